// SPDX-License-Identifier: Apache-2.0
//! TCP ports for tests that listen on one that others have been told of.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

static NEXT: AtomicU16 = AtomicU16::new(0);

/// A port that is free on an address, as is the one behind it, below those that the system gives to outgoing connections: these would take it in between.
pub(crate) fn free(host: &str) -> u16 {
    let first = std::process::id() as u16 % 97 * 100;
    loop {
        let port = 20_000 + (first + NEXT.fetch_add(2, Ordering::Relaxed)) % 10_000;
        if [port, port + 1].into_iter().all(|port| TcpListener::bind((host, port)).is_ok()) {
            return port;
        }
    }
}
