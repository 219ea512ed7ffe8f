// SPDX-License-Identifier: Apache-2.0
//! Frames that stand for many packets, as a sender with segmentation offloads hands them to its
//! interface.

/// linux/virtio_net.h.
const NEEDS_CSUM: u8 = 1;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;

/// One frame for many packets.
#[derive(Debug, Clone)]
pub(crate) struct Burst {
    /// `struct virtio_net_hdr`.
    pub(crate) offload: [u8; 10],
    pub(crate) frame: Vec<u8>,
    pub(crate) headers: usize,
    pub(crate) segment: usize,
}

/// What a burst is made of.
#[derive(Debug, Clone, Default)]
pub(crate) struct Recipe {
    /// Protocol and value, the outermost first.
    pub(crate) tags: Vec<[u16; 2]>,
    pub(crate) is_v6: bool,
    /// Multiples of four bytes in IPv4 and TCP.
    pub(crate) ip_options: usize,
    pub(crate) tcp_options: usize,
    /// IPv6: destination options of so many times eight bytes.
    pub(crate) extension: usize,
    /// `None`: UDP.
    pub(crate) tcp_flags: Option<u8>,
    pub(crate) dscp_ecn: u8,
    pub(crate) id: u16,
    pub(crate) sequence: u32,
    pub(crate) segment: usize,
    pub(crate) payload: Vec<u8>,
}

impl Recipe {
    /// The burst, its transport checksum holding the pseudo-header's sum, as CHECKSUM_PARTIAL wants
    /// it (RFC 1071, RFC 8200 §8.1).
    pub(crate) fn burst(&self) -> Burst {
        let mut frame = vec![0x02, 0, 0, 0, 0, 2, 0x02, 0, 0, 0, 0, 1];
        for tag in &self.tags {
            frame.extend(tag.iter().flat_map(|word| word.to_be_bytes()));
        }
        let (protocol, header) = match self.tcp_flags {
            Some(_) => (6u8, 20 + self.tcp_options),
            None => (17, 8),
        };
        let covered = header + self.payload.len();
        let addresses: Vec<u8> = if self.is_v6 {
            frame.extend(0x86dd_u16.to_be_bytes());
            frame.extend((0x6000_0000 | u32::from(self.dscp_ecn) << 20 | 0x12345).to_be_bytes());
            frame.extend(((8 * self.extension + covered) as u16).to_be_bytes());
            frame.extend([if self.extension > 0 { 60 } else { protocol }, 64]);
            let addresses: Vec<u8> = (0..32).map(|i| if i % 16 == 0 { 0xfd } else { i as u8 }).collect();
            frame.extend(&addresses);
            if self.extension > 0 {
                let pad = 8 * self.extension - 4;
                // One PadN fills the header.
                frame.extend([protocol, self.extension as u8 - 1, 1, pad as u8]);
                frame.extend(vec![0; pad]);
            }
            addresses
        } else {
            frame.extend(0x0800_u16.to_be_bytes());
            let start = frame.len();
            let length = 20 + self.ip_options;
            frame.extend([0x40 | (length / 4) as u8, self.dscp_ecn]);
            frame.extend(((length + covered) as u16).to_be_bytes());
            frame.extend(self.id.to_be_bytes());
            frame.extend([0x40, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 1, 9]);
            frame.extend(vec![1; self.ip_options]);
            let checksum = !fold(sum(&frame[start..]));
            frame[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
            vec![10, 0, 0, 1, 10, 0, 1, 9]
        };
        let transport = frame.len();
        let partial =
            fold(sum(&addresses) + u64::from(protocol) + (covered >> 16) as u64 + (covered & 0xffff) as u64);
        frame.extend([0x0f, 0xa0, 0x17, 0x70]);
        let (kind, at) = if let Some(flags) = self.tcp_flags {
            frame.extend(self.sequence.to_be_bytes());
            frame.extend(77u32.to_be_bytes());
            frame.extend([((header / 4) << 4) as u8, flags, 0x20, 0]);
            frame.extend(partial.to_be_bytes());
            frame.extend([0, 0]);
            frame.extend(vec![1; self.tcp_options]);
            (if self.is_v6 { GSO_TCPV6 } else { GSO_TCPV4 }, 16u16)
        } else {
            frame.extend((covered as u16).to_be_bytes());
            frame.extend(partial.to_be_bytes());
            (GSO_UDP_L4, 6)
        };
        let headers = frame.len();
        frame.extend(&self.payload);
        let mut offload = [NEEDS_CSUM, kind, 0, 0, 0, 0, 0, 0, 0, 0];
        for (at, value) in [(2, headers as u16), (4, self.segment as u16), (6, transport as u16), (8, at)] {
            offload[at..at + 2].copy_from_slice(&value.to_ne_bytes());
        }
        Burst { offload, frame, headers, segment: self.segment }
    }
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks(2).map(|pair| u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |&low| u64::from(low))).sum()
}

fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}
