// SPDX-License-Identifier: Apache-2.0
//! What a sender left to its interface: a checksum, or the splitting of a burst into frames (TSO,
//! UDP_SEGMENT; the kernel puts bursts together on reception, too: GRO). Between interfaces of one
//! machine nobody does it, and a switch works on packets.
//!
//! A burst is one frame with the headers of its first packet and the payloads of all. Each packet's
//! headers are written in front of its payload, over bytes of the packets before it, which are gone
//! by then: payloads stay where they are.

#[cfg(test)]
mod tests;

/// Longest headers of a burst: two VLAN tags, IPv6 with extension headers, TCP with options.
const MOST_HEADERS: usize = 256;
/// Most frames of one burst. TCP sends no fewer than 48 bytes a segment with its options
/// (TCP_MIN_MSS of the kernel), 64 KiB at once.
const MOST_FRAMES: usize = 2_048;

const NEEDS_CHECKSUM: u8 = 1;
/// Kinds of bursts (linux/virtio_net.h), and the bit beside them that says that the first packet
/// has CWR set.
const TCP_OVER_IPV4: u8 = 1;
const TCP_OVER_IPV6: u8 = 4;
const DATAGRAMS: u8 = 5;
const ECN: u8 = 0x80;

const TCP: u8 = 6;
const UDP: u8 = 17;
const TCP_FIN_PSH: u8 = 0x09;
const TCP_CWR: u8 = 0x80;

/// `struct virtio_net_hdr`, which PACKET_VNET_HDR puts before every frame. Its length of the
/// headers is a hint, and not used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Offload {
    flags: u8,
    kind: u8,
    /// Bytes of payload in each packet but the last.
    segment: usize,
    /// What the checksum covers begins here, in bytes from the frame's start.
    covered_from: usize,
    /// Where the checksum stands behind that. It holds the pseudo-header's sum (CHECKSUM_PARTIAL).
    checksum_at: usize,
}

/// Why a burst is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A single frame that is longer than any that is taken, or a burst of such.
    #[error("frames longer than 9,230 bytes")]
    TooLong,
    /// Another kind of burst than TCP's and UDP's, or without checksums left to the interface
    /// (LRO).
    #[error("bursts of kind {0} or with whole checksums")]
    Kind(u8),
    /// A kind that the kernel cannot tell: UDP's before Linux 6.2, a tunnel's or SCTP's.
    #[error("bursts of a kind that this kernel has no name for")]
    Unnamed,
    /// Headers that are not Ethernet, VLAN tags, IP and what the kernel says that follows: damaged
    /// ones, or a tunnel's.
    #[error("bursts in a tunnel, or with damaged headers")]
    Headers,
    /// More packets than any kernel makes of a burst.
    #[error("bursts of more than 2,048 packets")]
    TooMany,
}

impl Offload {
    /// Bytes of the kernel's structure.
    pub(super) const BYTES: usize = 10;

    pub(super) fn of(header: [u8; Self::BYTES]) -> Self {
        let [flags, kind, _, _, segment @ .., start0, start1, at0, at1] = header;
        let word = |bytes| usize::from(u16::from_ne_bytes(bytes));
        Self {
            flags,
            kind: kind & !ECN,
            segment: word(segment),
            covered_from: word([start0, start1]),
            checksum_at: word([at0, at1]),
        }
    }

    /// Whether the frame stands for many.
    pub(super) fn is_burst(&self) -> bool {
        self.kind != 0
    }

    /// Computes the checksum of a single frame, if it was left to the interface.
    pub(super) fn finish(&self, frame: &mut [u8]) {
        if self.flags & NEEDS_CHECKSUM != 0 {
            finish_checksum(frame, self.covered_from, self.checksum_at);
        }
    }
}

/// A burst whose headers are understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Burst {
    /// Where IP and TCP or UDP begin, and the payload, in bytes from the frame's start.
    network: usize,
    transport: usize,
    payload: usize,
    /// Bytes of all payloads, and of each but the last.
    length: usize,
    segment: usize,
    is_ipv6: bool,
    is_tcp: bool,
}

impl Burst {
    /// Reads the headers in a frame of `length` bytes of which `front` is known, whose frames may
    /// have `most` bytes.
    pub(super) fn parse(
        front: &[u8],
        length: usize,
        offload: &Offload,
        most: usize,
    ) -> Result<Self, Refusal> {
        let is_tcp = match offload.kind {
            TCP_OVER_IPV4 | TCP_OVER_IPV6 => true,
            DATAGRAMS => false,
            other => return Err(Refusal::Kind(other)),
        };
        // Without it, a tunnel's inner headers could not be told from outer ones.
        if offload.flags & NEEDS_CHECKSUM == 0 || offload.segment == 0 {
            return Err(Refusal::Kind(offload.kind));
        }
        let Headers { network, transport, protocol, is_ipv6 } = headers(front).ok_or(Refusal::Headers)?;
        let (wanted, size, checksum_at) = if is_tcp {
            let words = front.get(transport + 12).map(|byte| byte >> 4).filter(|&words| words >= 5);
            (TCP, 4 * usize::from(words.ok_or(Refusal::Headers)?), 16)
        } else {
            (UDP, 8, 6)
        };
        let payload = transport + size;
        let is_meant = protocol == wanted
            && (offload.covered_from, offload.checksum_at) == (transport, checksum_at)
            && (!is_tcp || is_ipv6 == (offload.kind == TCP_OVER_IPV6));
        if !is_meant || payload > front.len().min(length).min(MOST_HEADERS) {
            return Err(Refusal::Headers);
        }
        let burst = Self {
            network,
            transport,
            payload,
            length: length - payload,
            segment: offload.segment,
            is_ipv6,
            is_tcp,
        };
        if payload + burst.segment.min(burst.length) > most {
            return Err(Refusal::TooLong);
        }
        if burst.frames() > MOST_FRAMES {
            return Err(Refusal::TooMany);
        }
        Ok(burst)
    }

    /// Frames that the burst stands for.
    pub(super) fn frames(&self) -> usize {
        self.length.div_ceil(self.segment).max(1)
    }

    /// Makes the frames, one after the other, each in its place in `frame`, which is the one that
    /// was parsed.
    pub(super) fn split(&self, frame: &mut [u8], mut take: impl FnMut(&mut [u8])) {
        let mut first = [0; MOST_HEADERS];
        let (Some(headers), Some(from)) = (first.get_mut(..self.payload), frame.get(..self.payload)) else {
            return;
        };
        headers.copy_from_slice(from);
        for i in 0..self.frames() {
            let at = i * self.segment;
            let size = self.payload + (self.length - at).min(self.segment);
            let Some(frame) = frame.get_mut(at..at + size) else { return };
            frame[..self.payload].copy_from_slice(headers);
            self.mend(frame, i);
            take(frame);
        }
    }

    /// Makes the first frame's headers those of frame `i` (`inet_gso_segment`, `tcp_gso_segment`,
    /// `__udp_gso_segment` of the kernel).
    fn mend(&self, frame: &mut [u8], i: usize) {
        let (ip, transport) = frame[self.network..].split_at_mut(self.transport - self.network);
        let covered = transport.len();
        if self.is_ipv6 {
            put(ip, 4, (ip.len() - 40 + covered) as u16);
        } else {
            put(ip, 2, (ip.len() + covered) as u16);
            put(ip, 4, word(ip, 4).wrapping_add(i as u16));
            put(ip, 10, 0);
            let checksum = !fold(sum(ip));
            ip[10..12].copy_from_slice(&checksum.to_ne_bytes());
        }
        // The pseudo-header's sum counts the length of the whole burst: the kernel's, which knows
        // where routing headers lead.
        let (checksum_at, whole) = if self.is_tcp {
            let sequence = (u32::from(word(transport, 4)) << 16 | u32::from(word(transport, 6)))
                .wrapping_add((i * self.segment) as u32);
            transport[4..8].copy_from_slice(&sequence.to_be_bytes());
            if i + 1 < self.frames() {
                transport[13] &= !TCP_FIN_PSH;
            }
            if i > 0 {
                transport[13] &= !TCP_CWR;
            }
            (16, (self.payload - self.transport + self.length) as u16)
        } else {
            let whole = word(transport, 4);
            put(transport, 4, covered as u16);
            (6, whole)
        };
        let partial = u64::from(word(transport, checksum_at)) + u64::from(!whole) + covered as u64;
        put(transport, checksum_at, fold(partial));
        finish_checksum(transport, 0, checksum_at);
    }
}

/// Where headers stand in a frame.
struct Headers {
    network: usize,
    transport: usize,
    /// What follows IP.
    protocol: u8,
    is_ipv6: bool,
}

/// Ethernet, VLAN tags and IP, as far as they are what they say; no fragments.
fn headers(front: &[u8]) -> Option<Headers> {
    let byte = |at: usize| front.get(at).copied();
    let word = |at: usize| Some(u16::from_be_bytes([byte(at)?, byte(at + 1)?]));
    let mut network = 14;
    let kind = loop {
        match word(network - 2)? {
            0x8100 | 0x88a8 => network += 4,
            kind => break kind,
        }
    };
    let version = byte(network)? >> 4;
    match kind {
        0x0800 if version == 4 => {
            let words = usize::from(byte(network)? & 0xf);
            let is_fragment = word(network + 6)? & 0x3fff != 0;
            let protocol = byte(network + 9)?;
            let transport = network + 4 * words;
            (words >= 5 && !is_fragment).then_some(Headers { network, transport, protocol, is_ipv6: false })
        }
        0x86dd if version == 6 => {
            let (mut protocol, mut transport) = (byte(network + 6)?, network + 40);
            // Hop-by-hop options, routing, destination options.
            while matches!(protocol, 0 | 43 | 60) {
                protocol = byte(transport)?;
                transport += 8 * (1 + usize::from(byte(transport + 1)?));
            }
            Some(Headers { network, transport, protocol, is_ipv6: true })
        }
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// The checksum of everything from `start` on, whose field at `start + offset` holds the
/// pseudo-header's sum (RFC 1071).
fn finish_checksum(frame: &mut [u8], start: usize, offset: usize) {
    let Some(covered) = frame.get_mut(start..).filter(|covered| covered.len() >= offset + 2) else { return };
    // UDP sends a computed 0 as all ones (RFC 768); for TCP the two are the same number.
    let checksum = match !fold(sum(covered)) {
        0 => 0xffff,
        other => other,
    };
    covered[offset..offset + 2].copy_from_slice(&checksum.to_ne_bytes());
}

/// A sum whose folding is the ones' complement sum of all 16-bit words in this machine's byte
/// order, which is the sum in the network's with its bytes exchanged (RFC 1071, §2 (B)); at most
/// 2^32 bytes.
fn sum(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    words.iter().chain([&last]).map(|word| u64::from(u32::from_ne_bytes(*word))).sum()
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
