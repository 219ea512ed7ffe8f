// SPDX-License-Identifier: Apache-2.0
//! Datagrams that the system would not send.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::net::SocketAddr;

/// Pairs of an address and a reason that are reported, each once.
const REPORTS: usize = 64;

/// A datagram that the system would not send.
#[derive(Debug)]
pub struct Refusal {
    /// Where to.
    pub to: SocketAddr,
    /// Length of its payload, bytes.
    pub length: usize,
    /// MTU of the path, as far as the kernel knows it: bytes of an IP packet.
    pub mtu: Option<u32>,
    /// The system's reason.
    pub error: io::Error,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { to, length, mtu, error } = self;
        write!(f, "cannot send {length} bytes to {to}: {error}")?;
        if let Some(mtu) = mtu
            && is_too_long(error)
        {
            let headers = if to.is_ipv4() { 28 } else { 48 };
            let most = mtu.saturating_sub(headers);
            write!(f, " (the MTU there is {mtu}, for payloads of up to {most} bytes)")?;
        }
        Ok(())
    }
}

/// Whether a datagram does not fit the path's MTU.
pub(super) fn is_too_long(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EMSGSIZE)
}

/// What has been reported.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    reported: BTreeSet<(SocketAddr, Option<i32>)>,
    latest: Option<Refusal>,
}

impl Refusals {
    /// Whether this is the first of an address and a reason.
    pub(super) fn is_news(&mut self, address: SocketAddr, error: &io::Error) -> bool {
        let key = (address, error.raw_os_error());
        self.reported.len() < REPORTS && self.reported.insert(key)
    }

    /// Reports one.
    pub(super) fn report(&mut self, refusal: Refusal) {
        tracing::warn!("{refusal}; counted, and not reported again for this address");
        self.latest = Some(refusal);
    }

    /// The latest that was reported.
    pub(super) fn latest(&self) -> Option<&Refusal> {
        self.latest.as_ref()
    }
}
