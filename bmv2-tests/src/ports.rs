// SPDX-License-Identifier: Apache-2.0
//! Ports for tests that listen on one that others have been told of.

use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU16, Ordering};

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port that is free on an address, for TCP and UDP, as is the one behind it, below those that
/// the system gives to outgoing connections: these would take it in between.
pub fn free(host: &str) -> u16 {
    free_on(&[host])
}

/// The same on several addresses.
pub fn free_on(hosts: &[&str]) -> u16 {
    let first = std::process::id() as u16 % 97 * 100;
    let is_free = |port: u16| {
        hosts
            .iter()
            .all(|host| TcpListener::bind((*host, port)).is_ok() && UdpSocket::bind((*host, port)).is_ok())
    };
    loop {
        let port = 20_000 + (first + NEXT.fetch_add(2, Ordering::Relaxed)) % 10_000;
        if is_free(port) && is_free(port + 1) {
            return port;
        }
    }
}
