// SPDX-License-Identifier: Apache-2.0
//! Frames that tests send: UDP datagrams, and frames that stand for many packets, as a sender with
//! segmentation offloads hands them to its interface.
#![forbid(unsafe_code)]

use etherparse::{
    EtherType, Ethernet2Header, IpNumber, Ipv4Header, Ipv6Header, Ipv6RawExtHeader, PacketBuilder,
    SingleVlanHeader, TcpHeader, UdpHeader, VlanId, VlanPcp,
};

/// MAC addresses of a host and of its switch port.
const SOURCE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PORT_MAC: [u8; 6] = [2, 0xaa, 0, 0, 0, 0];
const SOURCE: [u8; 4] = [10, 0, 0, 1];

/// A UDP datagram without a UDP checksum from 10.0.0.1, with `tos` (DSCP and ECN) in IPv4's header.
pub fn udp(tos: u8, to: [u8; 4], port: u16, payload: &[u8]) -> Vec<u8> {
    let mut ip = Ipv4Header::new(0, 64, IpNumber::UDP, SOURCE, to).expect("a length of zero");
    ip.dscp = (tos >> 2).try_into().expect("six bits");
    ip.ecn = (tos & 3).try_into().expect("two bits");
    ip.dont_fragment = false;
    let builder = PacketBuilder::ethernet2(SOURCE_MAC, PORT_MAC)
        .ip(etherparse::IpHeaders::Ipv4(ip, etherparse::Ipv4Extensions::default()));
    let mut frame = Vec::new();
    builder.udp(4_000, port).write(&mut frame, payload).expect("a frame that is not too long");
    frame[40..42].fill(0);
    frame
}

/// Makes the checksum of the IPv4 header at the start of `ip` right, where there is a whole header.
pub fn mend_ipv4_checksum(ip: &mut [u8]) {
    if let Ok((header, _)) = Ipv4Header::from_slice(ip) {
        ip[10..12].copy_from_slice(&header.calc_header_checksum().to_be_bytes());
    }
}

/// linux/virtio_net.h.
const NEEDS_CSUM: u8 = 1;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;

/// One frame for many packets.
#[derive(Debug, Clone)]
pub struct Burst {
    /// `struct virtio_net_hdr`.
    pub offload: [u8; 10],
    /// The frame.
    pub frame: Vec<u8>,
    /// Bytes of headers.
    pub headers: usize,
    /// Bytes of payload in each packet but the last.
    pub segment: usize,
}

/// What a burst is made of.
#[derive(Debug, Clone, Default)]
pub struct Recipe {
    /// Protocol and value of VLAN tags, the outermost first.
    pub tags: Vec<[u16; 2]>,
    /// IPv6, not IPv4.
    pub is_v6: bool,
    /// Bytes, in multiples of four.
    pub ip_options: usize,
    /// Bytes, in multiples of four.
    pub tcp_options: usize,
    /// IPv6: destination options of so many times eight bytes.
    pub extension: usize,
    /// `None`: UDP.
    pub tcp_flags: Option<u8>,
    /// TOS or traffic class.
    pub dscp_ecn: u8,
    /// IPv4's identification.
    pub id: u16,
    /// TCP's.
    pub sequence: u32,
    /// Bytes of payload in each packet but the last.
    pub segment: usize,
    /// Of all packets.
    pub payload: Vec<u8>,
}

impl Recipe {
    /// The burst, its transport checksum holding the pseudo-header's sum, as CHECKSUM_PARTIAL wants
    /// it (RFC 1071, RFC 8200 §8.1).
    pub fn burst(&self) -> Burst {
        let header = if self.tcp_flags.is_some() { 20 + self.tcp_options } else { 8 };
        let protocol = if self.tcp_flags.is_some() { IpNumber::TCP } else { IpNumber::UDP };
        let covered = header + self.payload.len();
        let (network, addresses) = self.network(protocol, covered);
        let kind = if self.is_v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        let next = |tag: Option<&[u16; 2]>| tag.map_or(kind, |&[protocol, _]| EtherType(protocol));
        let ethernet = Ethernet2Header {
            destination: [2, 0, 0, 0, 0, 2],
            source: SOURCE_MAC,
            ether_type: next(self.tags.first()),
        };
        let mut frame = ethernet.to_bytes().to_vec();
        for (nth, [_, value]) in self.tags.iter().enumerate() {
            let tag = SingleVlanHeader {
                pcp: VlanPcp::try_new((value >> 13) as u8).expect("three bits"),
                drop_eligible_indicator: value >> 12 & 1 == 1,
                vlan_id: VlanId::try_new(value & 0xfff).expect("twelve bits"),
                ether_type: next(self.tags.get(nth + 1)),
            };
            frame.extend(tag.to_bytes());
        }
        frame.extend(network);
        let transport = frame.len();
        let length = covered as u32;
        let pseudo = [&addresses[..], &length.to_be_bytes(), &[0, 0, 0, protocol.0]].concat();
        let checksum = fold(&pseudo);
        let (kind, at) = if let Some(flags) = self.tcp_flags {
            let mut tcp = TcpHeader::new(4_000, 6_000, self.sequence, 0x2000);
            tcp.set_options_raw(&vec![1; self.tcp_options]).expect("forty bytes at most");
            (tcp.acknowledgment_number, tcp.checksum) = (77, checksum);
            let mut bytes = tcp.to_bytes().to_vec();
            bytes[13] = flags;
            frame.extend(bytes);
            (if self.is_v6 { GSO_TCPV6 } else { GSO_TCPV4 }, 16_u16)
        } else {
            let udp =
                UdpHeader { source_port: 4_000, destination_port: 6_000, length: covered as u16, checksum };
            frame.extend(udp.to_bytes());
            (GSO_UDP_L4, 6)
        };
        let headers = frame.len();
        frame.extend(&self.payload);
        let mut offload = [NEEDS_CSUM, kind, 0, 0, 0, 0, 0, 0, 0, 0];
        let words = [headers as u16, self.segment as u16, transport as u16, at];
        for (to, word) in offload[2..].chunks_mut(2).zip(words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        Burst { offload, frame, headers, segment: self.segment }
    }

    /// The network header, and its addresses.
    fn network(&self, protocol: IpNumber, covered: usize) -> (Vec<u8>, Vec<u8>) {
        if !self.is_v6 {
            let to = [10, 0, 1, 9];
            let mut ip = Ipv4Header::new(0, 64, protocol, SOURCE, to).expect("a length of zero");
            ip.options = vec![1; self.ip_options].as_slice().try_into().expect("forty bytes at most");
            ip.identification = self.id;
            ip.dont_fragment = true;
            ip.total_len = (ip.header_len() + covered) as u16;
            let mut bytes = ip.to_bytes().to_vec();
            bytes[1] = self.dscp_ecn;
            mend_ipv4_checksum(&mut bytes);
            return (bytes, [SOURCE, to].concat());
        }
        let addresses: Vec<u8> = (0..32).map(|i| if i % 16 == 0 { 0xfd } else { i as u8 }).collect();
        let address = |at| addresses[at..at + 16].try_into().expect("sixteen bytes");
        let ip = Ipv6Header {
            traffic_class: self.dscp_ecn,
            flow_label: 0x12345.try_into().expect("twenty bits"),
            payload_length: (8 * self.extension + covered) as u16,
            next_header: if self.extension > 0 { IpNumber::IPV6_DESTINATION_OPTIONS } else { protocol },
            hop_limit: 64,
            source: address(0),
            destination: address(16),
        };
        let mut bytes = ip.to_bytes().to_vec();
        if self.extension > 0 {
            // One PadN fills the header.
            let pad = 8 * self.extension - 4;
            let options = [&[1, pad as u8][..], &vec![0; pad]].concat();
            let header = Ipv6RawExtHeader::new_raw(protocol, &options).expect("multiples of eight bytes");
            bytes.extend_from_slice(&header.to_bytes());
        }
        (bytes, addresses)
    }
}

/// The ones' complement sum of words (RFC 1071), not inverted.
pub fn fold(bytes: &[u8]) -> u16 {
    let word = |pair: &[u8]| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u64::from(low));
    let mut sum: u64 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
