// SPDX-License-Identifier: Apache-2.0
//! Datagrams that leave together, and how one arrives.
#![forbid(unsafe_code)]

use bytes::Bytes;
use std::net::SocketAddr;

/// The socket that a burst leaves from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// One that is listened on: control packets. By index of the interface, counted round.
    Listening(u16),
    /// One of those that DATA is sprayed over, by index: each has a source port of its own, by
    /// which switches choose a path. With several interfaces it is on the one of that index,
    /// counted round.
    Path(u16),
}

/// Datagrams to one address, back to back, of one origin and traffic class: what a kernel with
/// segmentation offload (UDP_SEGMENT) takes in one piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Burst {
    /// Where to.
    pub to: SocketAddr,
    /// Where from.
    pub origin: Origin,
    /// DSCP << 2 | ECN.
    pub tos: u8,
    /// The UDP payloads, one behind the other; at least one byte, and at most 65,507.
    pub payload: Bytes,
    /// Length of each payload but the last, which may be shorter; at least 1.
    pub segment: usize,
}

/// How a datagram arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// Where it came from.
    pub source: SocketAddr,
    /// TOS or traffic class: DSCP << 2 | ECN.
    pub tos: u8,
    /// How long ago, ns: what it has waited in the host, which is no part of a round trip. 0 where
    /// nobody knows.
    pub age_ns: u64,
}

impl Arrived {
    /// Right now.
    pub fn now(source: SocketAddr, tos: u8) -> Self {
        Self { source, tos, age_ns: 0 }
    }
}

impl Burst {
    /// The datagrams' payloads.
    pub fn datagrams(&self) -> impl Iterator<Item = &[u8]> {
        self.payload.chunks(self.segment.max(1))
    }

    /// Number of datagrams.
    pub fn count(&self) -> usize {
        self.payload.len().div_ceil(self.segment.max(1))
    }
}
