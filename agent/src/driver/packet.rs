// SPDX-License-Identifier: Apache-2.0
//! UDP datagrams out of IP packets whose lengths need not be true.
//!
//! Some switches trim a frame and leave IP total length and UDP length as they were (SAI asks for a
//! fix, test plans and VPP leave them). The kernel drops such packets before any UDP socket sees
//! them, so they are taken from a packet socket and sized here by the bytes that came.
#![forbid(unsafe_code)]

const UDP: u8 = 17;
const UDP_HEADER: usize = 8;

/// A datagram found in a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Source address as 16 bytes; IPv4 as an IPv4-mapped one.
    pub source: [u8; 16],
    /// Destination address, likewise.
    pub destination: [u8; 16],
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub port: u16,
    /// TOS or traffic class.
    pub tos: u8,
    /// What came of the payload.
    pub payload: &'a [u8],
}

fn mapped(v4: &[u8]) -> [u8; 16] {
    let mut address = [0; 16];
    address[10..12].fill(0xff);
    for (to, from) in address[12..].iter_mut().zip(v4) {
        *to = *from;
    }
    address
}

/// Reads an IP packet that begins with its IP header and has been trimmed anywhere behind its UDP
/// header. Lengths larger than what came are ignored; smaller ones end the payload, because what
/// lies behind is Ethernet padding. `None`: not a whole UDP datagram's beginning (another protocol,
/// a fragment, IPv6 extension headers, trimmed inside the headers).
pub fn parse(packet: &[u8]) -> Option<Datagram<'_>> {
    let half = |at: usize| Some(u16::from_be_bytes([*packet.get(at)?, *packet.get(at + 1)?]));
    let (header, claimed, tos, source, destination) = match packet.first()? >> 4 {
        4 => {
            let header = usize::from(packet[0] & 15) * 4;
            let fragment = half(6)? & 0x3fff;
            if header < 20 || *packet.get(9)? != UDP || fragment != 0 {
                return None;
            }
            let (source, destination) = (mapped(packet.get(12..16)?), mapped(packet.get(16..20)?));
            (header, usize::from(half(2)?), *packet.get(1)?, source, destination)
        }
        6 => {
            if *packet.get(6)? != UDP {
                return None;
            }
            let tos = (half(0)? >> 4) as u8;
            let source = packet.get(8..24)?.try_into().ok()?;
            (40, 40 + usize::from(half(4)?), tos, source, packet.get(24..40)?.try_into().ok()?)
        }
        _ => return None,
    };
    let end = claimed.min(packet.len());
    let udp = packet.get(header..end)?;
    let length = usize::from(u16::from_be_bytes([*udp.get(4)?, *udp.get(5)?]));
    let port = u16::from_be_bytes([*udp.get(2)?, *udp.get(3)?]);
    // A UDP length of less than its header, or 0 (a jumbogram), says nothing.
    let end = if length < UDP_HEADER { udp.len() } else { length.min(udp.len()) };
    let source_port = u16::from_be_bytes([*udp.first()?, *udp.get(1)?]);
    Some(Datagram { source, destination, source_port, port, tos, payload: udp.get(UDP_HEADER..end)? })
}

/// Length of what PACKET_VNET_HDR puts before a frame: `struct virtio_net_hdr`, in the machine's
/// byte order.
pub const OFFLOADS: usize = 10;
/// UDP datagrams of one length, that one IP packet stands for (VIRTIO_NET_HDR_GSO_UDP_L4).
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// Payload bytes of each of the datagrams, but the last, that a packet stands for because nobody
/// has split it yet; `None`: it is one datagram. `offloads` is a [`OFFLOADS`] bytes long
/// virtio_net_hdr.
pub fn segment(offloads: &[u8]) -> Option<usize> {
    let &[_, kind, _, _, low, high, ..] = offloads else { return None };
    let segment = usize::from(u16::from_ne_bytes([low, high]));
    (kind & !GSO_ECN == GSO_UDP_L4 && segment > 0).then_some(segment)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(payload: usize) -> Vec<u8> {
        let total = (28 + payload) as u16;
        let mut bytes = vec![0x45, 0x0d, 0, 0, 0, 0, 0x40, 0, 64, UDP, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        bytes[2..4].copy_from_slice(&total.to_be_bytes());
        bytes.extend_from_slice(&4000_u16.to_be_bytes());
        bytes.extend_from_slice(&9217_u16.to_be_bytes());
        bytes.extend_from_slice(&(total - 20).to_be_bytes());
        bytes.extend_from_slice(&[0, 0]);
        bytes.extend((0..payload).map(|i| i as u8));
        bytes
    }

    #[test]
    fn a_trimmed_packet_with_stale_lengths_gives_what_came() {
        let whole = packet(300);
        for length in 28..whole.len() {
            let got = parse(&whole[..length]).expect("headers are there");
            assert_eq!((got.payload, got.port, got.tos), (&whole[28..length], 9217, 0x0d));
        }
        assert!((0..28).all(|length| parse(&whole[..length]).is_none()));
    }

    #[test]
    fn ethernet_padding_is_no_payload() {
        let mut padded = packet(4);
        padded.resize(46, 0xee);
        assert_eq!(parse(&padded).expect("valid").payload, [0, 1, 2, 3]);
    }

    #[test]
    fn fragments_and_other_protocols_are_not_datagrams() {
        let mut fragment = packet(4);
        fragment[6] = 0x20;
        assert_eq!(parse(&fragment), None);
        let mut tcp = packet(4);
        tcp[9] = 6;
        assert_eq!(parse(&tcp), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), version in 0_u8..16) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = version << 4 | *first & 15;
            }
            if let Some(found) = parse(&bytes) {
                prop_assert!(found.payload.len() <= bytes.len());
            }
        }
    }
}
