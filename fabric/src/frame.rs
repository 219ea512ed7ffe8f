// SPDX-License-Identifier: Apache-2.0
//! Ethernet/IPv4/UDP frames as the hosts' kernels would write and read them.

use etherparse::{
    EtherType, Ethernet2Header, IpDscp, IpEcn, IpNumber, Ipv4Header, LaxNetSlice, LaxSlicedPacket,
    TransportSlice, UdpHeader,
};
use std::net::Ipv4Addr;
use trimwire_encoder::wire::{Kind, Prefix};

/// Bytes in front of a UDP payload: Ethernet 14, IPv4 20, UDP 8.
pub const HEADERS: usize = 42;

/// A host's place on the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    /// MAC address.
    pub mac: [u8; 6],
    /// IPv4 address.
    pub ip: Ipv4Addr,
}

/// A received UDP datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Sender's address.
    pub source: Ipv4Addr,
    /// UDP source port: what switches choose a path by.
    pub source_port: u16,
    /// UDP destination port.
    pub destination_port: u16,
    /// IPv4 traffic class byte: DSCP << 2 | ECN.
    pub tos: u8,
    /// As many payload bytes as arrived, whatever the length fields claim.
    pub payload: &'a [u8],
}

/// Writes a UDP datagram as a frame. The UDP checksum of DATA is 0, as agents send it: a trimming
/// switch could not mend it (the trim changes the sum, RFC 768 allows 0). All others have one.
///
/// `None` when the payload does not fit an IPv4 packet.
pub fn write(
    from: Address,
    to: Address,
    tos: u8,
    source_port: u16,
    destination_port: u16,
    payload: &[u8],
) -> Option<Vec<u8>> {
    let udp_length = u16::try_from(UdpHeader::LEN + payload.len()).ok()?;
    let mut ip = Ipv4Header::new(udp_length, 64, IpNumber::UDP, from.ip.octets(), to.ip.octets()).ok()?;
    // Six and two bits: neither conversion can fail.
    ip.dscp = IpDscp::try_new(tos >> 2).ok()?;
    ip.ecn = IpEcn::try_new(tos & 3).ok()?;
    ip.dont_fragment = true;
    ip.header_checksum = ip.calc_header_checksum();
    let ethernet = Ethernet2Header { source: from.mac, destination: to.mac, ether_type: EtherType::IPV4 };
    let mut udp = UdpHeader { source_port, destination_port, length: udp_length, checksum: 0 };
    if !Prefix::parse(payload).is_ok_and(|prefix| prefix.kind == Kind::Data) {
        udp.checksum = udp.calc_checksum_ipv4(&ip, payload).ok()?;
    }

    let mut frame = Vec::with_capacity(HEADERS + payload.len());
    frame.extend_from_slice(&ethernet.to_bytes());
    frame.extend_from_slice(&ip.to_bytes());
    frame.extend_from_slice(&udp.to_bytes());
    frame.extend_from_slice(payload);
    Some(frame)
}

/// Reads a frame as a UDP datagram; `None` for anything else.
///
/// The payload is what arrived, cut at the IP length where that is shorter (Ethernet padding):
/// switches disagree on whether a trim mends the length fields (docs/reference/codec.md,
/// `inspect`), so they can only make it shorter.
pub fn read(frame: &[u8]) -> Option<Datagram<'_>> {
    let sliced = LaxSlicedPacket::from_ethernet(frame).ok()?;
    let Some(LaxNetSlice::Ipv4(ip)) = &sliced.net else { return None };
    let header = ip.header();
    if header.protocol() != IpNumber::UDP || header.fragments_offset().value() != 0 {
        return None;
    }
    let Some(TransportSlice::Udp(udp)) = &sliced.transport else { return None };
    Some(Datagram {
        source: header.source_addr(),
        source_port: udp.source_port(),
        destination_port: udp.destination_port(),
        tos: header.dcp().value() << 2 | header.ecn().value(),
        payload: udp.payload(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use trimwire_encoder::wire::StreamId;

    fn address(last: u8) -> Address {
        Address { mac: [2, 0, 0, 0, 0, last], ip: Ipv4Addr::new(10, 0, 0, last) }
    }

    #[test]
    fn the_layout_is_the_one_of_the_rfcs() {
        let frame = write(address(1), address(2), 0b1010_0110, 0x1234, 9217, b"abc").unwrap();
        let mut expected = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
        expected.extend([0x45, 0xa6, 0, 31, 0, 0, 0x40, 0, 64, 17, 0x26, 0x26, 10, 0, 0, 1, 10, 0, 0, 2]);
        expected.extend([0x12, 0x34, 0x24, 0x01, 0, 11, 0xf1, 0x3d, b'a', b'b', b'c']); // RFC 768 by hand: 0ec2
        // RFC 1071 sum over the header, by hand, so that the checksum is not checked against its
        // own writer.
        let sum: u32 = expected[14..34]
            .chunks(2)
            .enumerate()
            .filter(|(i, _)| *i != 5)
            .map(|(_, b)| u32::from(b[0]) << 8 | u32::from(b[1]))
            .sum();
        let folded = !((sum & 0xffff) + (sum >> 16)) as u16;
        expected[24..26].copy_from_slice(&folded.to_be_bytes());
        assert_eq!(frame, expected);
    }

    #[test]
    fn data_has_no_checksum_and_all_other_kinds_have_a_right_one() {
        let stream = StreamId::new(1, 2).unwrap();
        for kind in [Kind::Data, Kind::Ack, Kind::Probe, Kind::Status, Kind::Stop, Kind::Final] {
            let prefix =
                Prefix { kind, codec: 0, important: true, layer_class: 0, last: false, stream, message: 9 };
            let frame = write(address(1), address(2), 0, 4, 5, &prefix.to_bytes()).unwrap();
            // RFC 768: with the pseudo-header (addresses, protocol, length), everything sums up to
            // ones.
            let words = frame[26..].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
            let sum = words.sum::<u32>() + 17 + (8 + 8);
            let right = (sum & 0xffff) + (sum >> 16) == 0xffff;
            assert_eq!(
                (frame[40..42] == [0, 0], right),
                (kind == Kind::Data, kind != Kind::Data),
                "{kind:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_datagram_survives_the_wire(payload in prop::collection::vec(any::<u8>(), 0..1480), tos: u8, port: u16) {
            let frame = write(address(1), address(2), tos, 4, port, &payload).unwrap();
            let got = read(&frame).unwrap();
            let expected =
                Datagram { source: address(1).ip, source_port: 4, destination_port: port, tos, payload: &payload };
            prop_assert_eq!(got, expected);
        }

        #[test]
        fn a_trim_that_leaves_the_length_fields_alone_still_yields_what_arrived(length in 0usize..1400, kept in 0usize..1400) {
            let payload = vec![7u8; length];
            let frame = write(address(1), address(2), 0, 4, 5, &payload).unwrap();
            let trimmed = &frame[..frame.len().min(HEADERS + kept)];
            prop_assert_eq!(read(trimmed).unwrap().payload.len(), length.min(kept));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }
}
