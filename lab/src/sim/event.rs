// SPDX-License-Identifier: Apache-2.0
//! What happens in a network, and where.

use super::packet::Packet;
use super::topology::Node;

/// Which end of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Sender,
    Receiver,
}

/// What happens, at a node of the domain.
#[derive(Debug)]
pub(crate) enum Event {
    Arrival {
        node: Node,
        packet: Packet,
    },
    PortFree {
        switch: u32,
        port: u32,
    },
    CardFree {
        host: u32,
    },
    Timer {
        host: u32,
        side: Side,
        slot: u32,
    },
    Pull {
        host: u32,
    },
    /// A flow begins, or a computation ends.
    Begin {
        flow: u32,
    },
    Change {
        change: u32,
    },
    /// Switches have other ways.
    Reroute {
        era: u32,
    },
}

/// A frame on its way from one domain to another.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) at_ns: u64,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) event: Event,
}
