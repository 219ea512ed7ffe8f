// SPDX-License-Identifier: Apache-2.0
//! Trim maps: how many bit-planes of each packet of a message a receiver has.
//!
//! A map travels in parts that each fit one control packet, so that a message of 2^24 packets
//! works. A part stands alone: it says which packets it covers, and a lost part costs only its own
//! packets' news. Wire format, big-endian:
//!
//! ```text
//!  0-3  offset: first packet covered
//!  4-7  count: packets covered, at least 1
//!  8    encoding: 0 runs, 1 two bits, 2 four bits
//!  9-   runs: LEB128 of (length − 1) << 4 | planes, one per run
//!       two bits a packet, first packet in the high bits: 0 missing, 1 trimmed, 2 full (3 is invalid)
//!       four bits a packet, first packet in the high bits: whole planes held, 0…10
//! ```

use trimwire_encoder::wire::{MAX_INDEX, PLANES};

/// Planes of a packet of which nothing was trimmed.
pub const FULL: u8 = PLANES;
/// Packets of the largest message (the DATA header's index has 24 bits).
pub const MAX_PACKETS: u32 = MAX_INDEX + 1;

const HEADER_LEN: usize = 9;

/// How exactly a map tells the planes of a trimmed packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// Missing, trimmed or full; a trimmed packet reads as one plane.
    Coarse,
    /// The number of planes.
    Planes,
}

/// Why the bytes of a map part are not a map part.
#[expect(missing_docs, reason = "messages say what the fields are")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// Fewer bytes than a part's header, or than its count needs, or more.
    #[error("trim map of {count} packets in encoding {encoding} has {got} bytes, not {need}")]
    Length {
        count: u32,
        encoding: u8,
        /// Bytes there are.
        got: usize,
        /// Bytes there should be.
        need: usize,
    },
    /// Nothing covered, or packets that no message can have.
    #[error("trim map covers {count} packets from {offset}; valid are 1 to {MAX_PACKETS} in all")]
    Range { offset: u32, count: u32 },
    /// Not an encoding.
    #[error("unknown trim map encoding {0}; valid are 0 (runs), 1 (two bits), 2 (four bits)")]
    Encoding(u8),
    /// A packet with more planes than there are.
    #[error("trim map gives packet {packet} the state {state}, which encoding {encoding} does not have")]
    State { packet: u32, state: u8, encoding: u8 },
    /// Runs that end in the middle or do not add up to the count.
    #[error("runs of the trim map cover {got} packets instead of {count}")]
    Runs { count: u32, got: u64 },
}

/// Consecutive packets of which the receiver has the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// First packet.
    pub start: u32,
    /// Number of packets, at least 1.
    pub count: u32,
    /// Whole planes held: 0 missing, [`FULL`] everything that was sent.
    pub planes: u8,
}

/// A checked part of a trim map; every state in it is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MapPart<'a> {
    offset: u32,
    count: u32,
    encoding: u8,
    states: &'a [u8],
}

impl<'a> MapPart<'a> {
    /// Checks the bytes of one part (to the end of the datagram).
    pub fn parse(bytes: &'a [u8]) -> Result<Self, MapError> {
        let Some((header, states)) = bytes.split_at_checked(HEADER_LEN) else {
            return Err(MapError::Length { count: 0, encoding: 0, got: bytes.len(), need: HEADER_LEN });
        };
        let word =
            |at: usize| header[at..at + 4].iter().fold(0_u32, |word, &byte| word << 8 | u32::from(byte));
        let (offset, count, encoding) = (word(0), word(4), header[8]);
        if count == 0 || offset.checked_add(count).is_none_or(|end| end > MAX_PACKETS) {
            return Err(MapError::Range { offset, count });
        }
        let part = Self { offset, count, encoding, states };
        let per_byte = match encoding {
            0 => return part.check_runs(),
            1 => 4,
            2 => 2,
            _ => return Err(MapError::Encoding(encoding)),
        };
        let need = count.div_ceil(per_byte) as usize;
        if states.len() != need {
            return Err(MapError::Length { count, encoding, got: states.len(), need });
        }
        let bad = (0..count).find(|&index| part.packed(index).is_err());
        match bad.map(|index| (index, part.packed(index))) {
            Some((index, Err(state))) => Err(MapError::State { packet: offset + index, state, encoding }),
            _ => Ok(part),
        }
    }

    fn check_runs(self) -> Result<Self, MapError> {
        let mut rest = self.states;
        let mut covered = 0_u64;
        while !rest.is_empty() {
            let Some((length, state)) = take_run(&mut rest) else { break };
            if state > FULL {
                let packet = self.offset.saturating_add(covered as u32);
                return Err(MapError::State { packet, state, encoding: 0 });
            }
            covered += u64::from(length);
            if covered > u64::from(self.count) {
                break;
            }
        }
        if covered != u64::from(self.count) || !rest.is_empty() {
            return Err(MapError::Runs { count: self.count, got: covered });
        }
        Ok(self)
    }

    /// First packet covered.
    pub fn offset(&self) -> u32 {
        self.offset
    }

    /// One past the last packet covered.
    pub fn end(&self) -> u32 {
        self.offset + self.count
    }

    /// What the part says, as runs in order of the packets.
    pub fn runs(&self) -> Runs<'a> {
        Runs { part: *self, rest: self.states, next: 0 }
    }

    /// State of the packet at `index` from the offset in a packed encoding; `Err` is an invalid
    /// state.
    fn packed(&self, index: u32) -> Result<u8, u8> {
        if self.encoding == 1 {
            let byte = self.states.get((index / 4) as usize).copied().unwrap_or(0);
            match byte >> (6 - 2 * (index % 4)) & 3 {
                0 => Ok(0),
                1 => Ok(1),
                2 => Ok(FULL),
                other => Err(other),
            }
        } else {
            let byte = self.states.get((index / 2) as usize).copied().unwrap_or(0);
            let state = byte >> (4 - 4 * (index % 2)) & 15;
            if state <= FULL { Ok(state) } else { Err(state) }
        }
    }
}

/// Iterator of [`MapPart::runs`].
#[derive(Debug, Clone)]
pub struct Runs<'a> {
    part: MapPart<'a>,
    rest: &'a [u8],
    next: u32,
}

impl Iterator for Runs<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        if self.next >= self.part.count {
            return None;
        }
        let start = self.part.offset + self.next;
        let (count, planes) = if self.part.encoding == 0 {
            take_run(&mut self.rest)?
        } else {
            let planes = self.part.packed(self.next).ok()?;
            let same = (self.next + 1..self.part.count).take_while(|&i| self.part.packed(i) == Ok(planes));
            (1 + same.count() as u32, planes)
        };
        self.next += count;
        Some(Run { start, count, planes })
    }
}

/// Takes one LEB128 run off the front: (length, planes). `None`: it ends early, or is longer than
/// any message.
fn take_run(bytes: &mut &[u8]) -> Option<(u32, u8)> {
    let mut value = 0_u32;
    for (position, &byte) in bytes.iter().enumerate().take(4) {
        value |= u32::from(byte & 0x7f) << (7 * position);
        if byte & 0x80 == 0 {
            *bytes = &bytes[position + 1..];
            return Some(((value >> 4) + 1, (value & 15) as u8));
        }
    }
    None
}

fn put_run(length: u32, planes: u8, out: &mut Vec<u8>) {
    let mut value = (length - 1) << 4 | u32::from(planes);
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends the part of a map of `packets` packets that starts at `offset` and covers as many as fit
/// into `budget` bytes (at least a header and 4 bytes). `planes` tells what is held of a packet.
/// Returns one past the last packet covered; nothing is written when `offset` is not below
/// `packets`.
pub fn write_part(
    planes: impl Fn(u32) -> u8,
    packets: u32,
    offset: u32,
    detail: Detail,
    budget: usize,
    out: &mut Vec<u8>,
) -> u32 {
    let packets = packets.min(MAX_PACKETS);
    if offset >= packets {
        return offset;
    }
    let room = budget.saturating_sub(HEADER_LEN).max(4);
    let state = |packet: u32| match (planes(packet).min(FULL), detail) {
        (1..FULL, Detail::Coarse) => 1,
        (state, _) => state,
    };
    let (encoding, per_byte) = match detail {
        Detail::Coarse => (1, 4),
        Detail::Planes => (2, 2),
    };
    let packed = (packets - offset).min((room as u32).saturating_mul(per_byte));

    // The better of the two ways is the one that covers more, or as much in fewer bytes.
    let mut runs = Vec::with_capacity(64);
    let mut end = offset;
    while end < packets {
        let planes = state(end);
        let length = 1 + (end + 1..packets).take_while(|&packet| state(packet) == planes).count() as u32;
        let before = runs.len();
        put_run(length, planes, &mut runs);
        if runs.len() > room {
            runs.truncate(before);
            break;
        }
        end += length;
    }
    let use_runs =
        end - offset > packed || (end - offset == packed && runs.len() <= packed.div_ceil(per_byte) as usize);
    let count = if use_runs { end - offset } else { packed };
    out.extend_from_slice(&offset.to_be_bytes());
    out.extend_from_slice(&count.to_be_bytes());
    if use_runs {
        out.push(0);
        out.extend_from_slice(&runs);
        return offset + count;
    }
    out.push(encoding);
    let bits = 8 / per_byte;
    for first in (offset..offset + count).step_by(per_byte as usize) {
        let byte = (0..per_byte).fold(0_u8, |byte, k| {
            let code = match (first + k < offset + count, detail) {
                (false, _) => 0,
                (true, Detail::Planes) => state(first + k),
                (true, Detail::Coarse) => state(first + k).min(2),
            };
            byte | code << (8 - bits * (k + 1))
        });
        out.push(byte);
    }
    offset + count
}

/// A whole trim map, assembled from its parts in any order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrimMap {
    planes: Vec<u8>,
    /// Covered packets, as merged intervals: start → end.
    known: std::collections::BTreeMap<u32, u32>,
}

impl TrimMap {
    /// The map of `packets` packets of which nothing is known yet (they read as full).
    pub fn unknown(packets: u32) -> Self {
        let packets = packets.min(MAX_PACKETS);
        Self { planes: vec![FULL; packets as usize], known: std::collections::BTreeMap::new() }
    }

    /// A complete map.
    pub fn from_planes(planes: Vec<u8>) -> Self {
        let mut map = Self { planes, known: std::collections::BTreeMap::new() };
        map.planes.truncate(MAX_PACKETS as usize);
        map.cover(0, map.packets());
        map
    }

    /// Number of packets of the message.
    pub fn packets(&self) -> u32 {
        self.planes.len() as u32
    }

    /// Planes held of a packet; 0 for one the message does not have.
    pub fn planes(&self, packet: u32) -> u8 {
        self.planes.get(packet as usize).copied().unwrap_or(0)
    }

    /// Planes of all packets.
    pub fn as_slice(&self) -> &[u8] {
        &self.planes
    }

    /// Takes what a part says; what lies beyond the message is ignored.
    pub fn take(&mut self, part: &MapPart<'_>) {
        for run in part.runs() {
            let end = (run.start + run.count).min(self.packets());
            if let Some(range) = self.planes.get_mut(run.start as usize..end as usize) {
                range.fill(run.planes);
            }
        }
        self.cover(part.offset(), part.end().min(self.packets()));
    }

    /// Number of packets at the front of the message about which everything is known.
    pub fn known_until(&self) -> u32 {
        self.known.get(&0).copied().unwrap_or(0)
    }

    /// Whether every packet's state is known.
    pub fn is_complete(&self) -> bool {
        self.known_until() == self.packets()
    }

    /// Lowers every packet to what `other` has of it (docs/reference/wire-format.md §8: the lowest
    /// precision that any replica got).
    pub fn merge_minimum(&mut self, other: &Self) {
        for (mine, &theirs) in self.planes.iter_mut().zip(&other.planes) {
            *mine = (*mine).min(theirs);
        }
    }

    fn cover(&mut self, start: u32, end: u32) {
        if start >= end {
            return;
        }
        let (mut start, mut end) = (start, end);
        // Merge with every interval that touches [start, end).
        while let Some((&s, &e)) = self.known.range(..=end).next_back().filter(|&(_, &e)| e >= start) {
            self.known.remove(&s);
            start = start.min(s);
            end = end.max(e);
        }
        self.known.insert(start, end);
    }
}

#[cfg(test)]
#[path = "trim_map_tests.rs"]
mod tests;
