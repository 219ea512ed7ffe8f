// SPDX-License-Identifier: Apache-2.0
//! Ethernet frames around UDP datagrams.
#![forbid(unsafe_code)]

use super::neighbour::Mac;
use std::net::{IpAddr, SocketAddr};

/// Bytes of an Ethernet header.
pub(super) const ETHERNET: usize = 14;
const UDP: usize = 8;
/// Of the longest headers: Ethernet, IPv6, UDP.
const HEADERS_MOST: usize = ETHERNET + 40 + UDP;
/// As the kernel's own (net.ipv4.ip_default_ttl).
const HOPS: u8 = 64;
const PROTOCOL_UDP: u8 = 17;

/// The headers of datagrams that differ in their payloads only.
#[derive(Debug, Clone, Copy)]
pub(super) struct Headers {
    bytes: [u8; HEADERS_MOST],
    length: usize,
    /// Of IPv4's header without length and checksum.
    ip: u64,
    /// Of UDP's pseudo-header and header without lengths; `None`: the checksum is left out.
    udp: Option<u64>,
}

/// The Internet checksum's sum (RFC 1071), in the machine's byte order and not folded yet.
fn sum(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(4);
    let mut last = [0; 4];
    for (to, from) in last.iter_mut().zip(words.remainder()) {
        *to = *from;
    }
    let whole: u64 =
        words.map(|word| u64::from(u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))).sum();
    whole + u64::from(u32::from_ne_bytes(last))
}

/// Folded to the 16 bits that stand in a header.
fn checksum(mut sum: u64) -> [u8; 2] {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_ne_bytes()
}

/// A length as it stands in a header, as part of a sum.
fn length_sum(length: u16) -> u64 {
    sum(&length.to_be_bytes())
}

impl Headers {
    /// Of datagrams between addresses of one family, with TOS or traffic class. As sockets have them: not to be fragmented, and a flow label by the ports, so that switches that
    /// hash it choose a path by the source port, too.
    pub(super) fn new(
        [from_mac, to_mac]: [Mac; 2],
        from: SocketAddr,
        to: SocketAddr,
        tos: u8,
        checksum: bool,
    ) -> Option<Self> {
        let mut bytes = [0; HEADERS_MOST];
        bytes[..6].copy_from_slice(&to_mac);
        bytes[6..12].copy_from_slice(&from_mac);
        let ip = &mut bytes[ETHERNET..];
        let (header, ethertype, pseudo) = match (from.ip(), to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                // No identification: RFC 6864 §4.1.
                ip[..10].copy_from_slice(&[0x45, tos, 0, 0, 0, 0, 0x40, 0, HOPS, PROTOCOL_UDP]);
                ip[12..16].copy_from_slice(&from.octets());
                ip[16..20].copy_from_slice(&to.octets());
                (20, libc::ETH_P_IP as u16, sum(&ip[12..20]))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let ports = u32::from(from.port()) << 16 | u32::from(to.port());
                // Fibonacci hashing: the upper bits are those of all ports.
                let label = ports.wrapping_mul(0x9e37_79b9) >> 12;
                let first = 6 << 28 | u32::from(tos) << 20 | label;
                ip[..4].copy_from_slice(&first.to_be_bytes());
                ip[6..8].copy_from_slice(&[PROTOCOL_UDP, HOPS]);
                ip[8..24].copy_from_slice(&source.octets());
                ip[24..40].copy_from_slice(&destination.octets());
                (40, libc::ETH_P_IPV6 as u16, sum(&ip[8..40]))
            }
            _ => return None,
        };
        let ports = &mut ip[header..header + 4];
        ports[..2].copy_from_slice(&from.port().to_be_bytes());
        ports[2..].copy_from_slice(&to.port().to_be_bytes());
        let udp = pseudo + sum(ports) + sum(&[0, PROTOCOL_UDP]);
        let ip = if header == 20 { sum(&ip[..20]) } else { 0 };
        bytes[12..14].copy_from_slice(&ethertype.to_be_bytes());
        Some(Self { bytes, length: ETHERNET + header + UDP, ip, udp: checksum.then_some(udp) })
    }

    /// Bytes of a frame around a payload.
    pub(super) fn frame_length(&self, payload: usize) -> usize {
        self.length + payload
    }

    /// Writes a frame, which is as long as [`Self::frame_length`] says; payloads have at most 65,507 bytes.
    pub(super) fn write(&self, frame: &mut [u8], payload: &[u8]) {
        let Some((headers, body)) = frame.split_at_mut_checked(self.length) else { return };
        headers.copy_from_slice(&self.bytes[..self.length]);
        body.copy_from_slice(payload);
        let datagram = (UDP + payload.len()) as u16;
        let ip = &mut headers[ETHERNET..];
        if self.length == HEADERS_MOST {
            ip[4..6].copy_from_slice(&datagram.to_be_bytes());
        } else {
            let total = datagram.wrapping_add(20);
            ip[2..4].copy_from_slice(&total.to_be_bytes());
            ip[10..12].copy_from_slice(&checksum(self.ip + length_sum(total)));
        }
        let udp = &mut headers[self.length - UDP..];
        udp[4..6].copy_from_slice(&datagram.to_be_bytes());
        if let Some(begun) = self.udp {
            // The length is in the pseudo-header and in the header.
            let found = checksum(begun + 2 * length_sum(datagram) + sum(payload));
            // 0 would say that there is none (RFC 768).
            udp[6..8].copy_from_slice(&if found == [0, 0] { [0xff, 0xff] } else { found });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::packet;
    use proptest::prelude::*;

    /// RFC 1071 §4.1, as it stands there: 16 bits at a time, in the order of the network.
    fn reference(parts: &[&[u8]]) -> u16 {
        let bytes: Vec<u8> = parts.concat();
        let mut sum = 0_u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        }
        while sum >> 16 != 0 {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    proptest! {
        #[test]
        fn frames_are_what_sockets_send(
            v6 in any::<bool>(),
            tos in any::<u8>(),
            ports in any::<[u16; 2]>(),
            ends in any::<[u64; 2]>(),
            payload in proptest::collection::vec(any::<u8>(), 1..1_600),
        ) {
            let address = |end: u64| -> IpAddr {
                if v6 { std::net::Ipv6Addr::from(u128::from(end) << 64 | 1).into() } else { std::net::Ipv4Addr::from(end as u32).into() }
            };
            let [from, to] = [0, 1].map(|at| SocketAddr::new(address(ends[at]), ports[at]));
            let headers = Headers::new([[2; 6], [4; 6]], from, to, tos, true).expect("one family");
            let mut frame = vec![0xaa; headers.frame_length(payload.len())];
            headers.write(&mut frame, &payload);
            prop_assert_eq!(&frame[..12], &[4, 4, 4, 4, 4, 4, 2, 2, 2, 2, 2, 2]);
            prop_assert_eq!(&frame[12..14], if v6 { &[0x86, 0xdd] } else { &[8, 0] });
            let ip = &frame[14..];
            let found = packet::parse(ip).expect("a datagram");
            prop_assert_eq!((found.source_port, found.port, found.tos), (ports[0], ports[1], tos));
            prop_assert_eq!(IpAddr::from(found.source).to_canonical(), from.ip().to_canonical());
            prop_assert_eq!(IpAddr::from(found.destination).to_canonical(), to.ip().to_canonical());
            prop_assert_eq!(found.payload, &payload[..]);
            let (header, addresses) = if v6 { (40, 8..40) } else { (20, 12..20) };
            let length = (payload.len() + 8) as u16;
            if !v6 {
                prop_assert_eq!(reference(&[&ip[..20]]), 0xffff);
                prop_assert_eq!(&ip[2..4], &(length + 20).to_be_bytes());
                prop_assert_eq!(ip[6], 0x40, "not to be fragmented");
            }
            let pseudo = [&ip[addresses], &length.to_be_bytes()[..], &[0, 17]].concat();
            prop_assert_eq!(reference(&[&pseudo, &ip[header..]]), 0xffff);
            let without = Headers::new([[2; 6], [4; 6]], from, to, tos, false).expect("one family");
            without.write(&mut frame, &payload);
            prop_assert_eq!(&frame[14 + header + 6..14 + header + 8], &[0, 0]);
        }
    }

    #[test]
    fn a_sum_of_zero_is_sent_as_all_ones() {
        let end = |port| SocketAddr::new([0, 0, 0, 0].into(), port);
        let headers = Headers::new([[0; 6]; 2], end(0), end(0), 0, true).expect("one family");
        // 17 and twice the length, 10, and the payload: 0xffff together.
        let mut frame = vec![0; headers.frame_length(2)];
        headers.write(&mut frame, &(0xffff_u16 - 17 - 20).to_be_bytes());
        assert_eq!(frame[40..42], [0xff, 0xff]);
    }
}
