// SPDX-License-Identifier: Apache-2.0
//! UDP datagrams out of captured frames, trimmed ones too.

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};
use std::net::{IpAddr, SocketAddr};

/// A UDP payload and where it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Datagram {
    /// File and frame number, or which flag.
    pub source: String,
    /// Addresses and marks, where it came in a frame.
    pub route: Option<Route>,
    /// What arrived.
    pub payload: Vec<u8>,
}

/// What the headers in front of the payload say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub(super) struct Route {
    /// Sender.
    pub from: SocketAddr,
    /// Receiver.
    pub to: SocketAddr,
    /// Differentiated services code point.
    pub dscp: u8,
    /// ECN bits: 0 not-ECT, 1 and 2 ECT, 3 CE.
    pub ecn: u8,
    /// Payload bytes that the UDP header announces; more than arrived where a switch trimmed the
    /// packet and left the length.
    pub announced: u16,
}

/// How frames of a capture begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Link {
    /// An Ethernet header.
    Ethernet,
    /// An IP header.
    Ip,
    /// Linux's cooked header, with the EtherType at this offset and the packet behind this many
    /// bytes.
    Cooked(usize, usize),
}

impl Link {
    /// From the number of pcap's LINKTYPE registry.
    pub(super) fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            1 => Self::Ethernet,
            101 | 228 | 229 => Self::Ip,
            113 => Self::Cooked(14, 16),
            276 => Self::Cooked(0, 20),
            _ => return None,
        })
    }
}

impl Datagram {
    /// A payload that came without a frame.
    pub(super) fn bare(source: String, payload: Vec<u8>) -> Self {
        Self { source, route: None, payload }
    }
}

/// The UDP payload of a frame, as far as it was captured. `None` for everything else.
pub(super) fn udp(link: Link, frame: &[u8]) -> Option<(Route, &[u8])> {
    let packet = match link {
        Link::Ethernet => LaxSlicedPacket::from_ethernet(frame).ok()?,
        Link::Ip => LaxSlicedPacket::from_ip(frame).ok()?,
        Link::Cooked(ether_type, behind) => {
            let bytes = frame.get(ether_type..)?.first_chunk::<2>()?;
            LaxSlicedPacket::from_ether_type(EtherType(u16::from_be_bytes(*bytes)), frame.get(behind..)?)
        }
    };
    let (from, to, dscp, ecn): (IpAddr, IpAddr, _, _) = match packet.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            let (from, to) = (header.source_addr(), header.destination_addr());
            (from.into(), to.into(), header.dcp().value(), header.ecn().value())
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            let (from, to) = (header.source_addr(), header.destination_addr());
            (from.into(), to.into(), header.dscp().value(), header.ecn().value())
        }
        LaxNetSlice::Arp(_) => return None,
    };
    let Some(TransportSlice::Udp(udp)) = packet.transport else { return None };
    let route = Route {
        from: SocketAddr::new(from, udp.source_port()),
        to: SocketAddr::new(to, udp.destination_port()),
        dscp,
        ecn,
        announced: udp.length().saturating_sub(8),
    };
    Some((route, udp.payload()))
}
