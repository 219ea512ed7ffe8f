// SPDX-License-Identifier: Apache-2.0
//! The codecs and the planes that their packets are made of.

use super::sizes::{BLOCK, HEADER_LEN, TAG_LEN};
use std::fmt;
use std::str::FromStr;

/// How coordinates become bits. Both share the packet format. What the papers' codecs are worth
/// after a trim is in [`crate::papers`]; nobody sends those.
///
/// ```text
/// codec   rotated   plane 0      whole packet     after a trim to plane 0
/// rht     yes       sign         f32 precision    ±κσ, scaled to be unbiased
/// raw     no        everything   bit-exact        what arrived, zeros for the rest
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Codec {
    /// Randomised Hadamard transform, embedded quantiser (docs/reference/wire-format.md §5): every
    /// prefix is near the best of its size.
    #[default]
    Rht = 0,
    /// The f32s in order, as an untrimmable packet carries them.
    Raw = 5,
}

/// A name that is no codec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown codec {0:?} (valid: rht, raw)")]
pub struct UnknownCodec(String);

/// Most planes that a codec has.
pub const MAX_PLANES: u8 = 10;
/// Planes of one bit a coordinate, which come first.
pub const BIT_PLANES: u8 = 8;
/// Blocks of the longest packet whose header says which of them are zero.
const HEADER_BLOCKS: usize = 14;
/// Most coordinates of a packet: 255 blocks.
pub(super) const MAX_COORDINATES: usize = 255 * BLOCK;

impl Codec {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Rht, Self::Raw];

    /// The header's three bits.
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// The codec of an id; `None` for others.
    pub const fn from_id(id: u8) -> Option<Self> {
        match id {
            0 => Some(Self::Rht),
            5 => Some(Self::Raw),
            _ => None,
        }
    }

    /// Its name on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rht => "rht",
            Self::Raw => "raw",
        }
    }

    /// Whether rows are rotated before they are quantised.
    pub const fn rotates(self) -> bool {
        matches!(self, Self::Rht)
    }

    /// Planes of a whole packet.
    pub const fn planes(self) -> u8 {
        self.plane_bits().len() as u8
    }

    /// Planes that are sent of elements of that size unless the caller wants otherwise: of rht nine
    /// for elements of 16 bits, which take two bytes a coordinate as well and are more accurate
    /// than the elements are; otherwise all.
    pub const fn default_planes(self, element_bytes: usize) -> u8 {
        if element_bytes <= 2 && matches!(self, Self::Rht) { 9 } else { self.planes() }
    }

    /// Coordinates of a packet, a multiple of 32: as many as fit an MTU whole with `planes` planes,
    /// be it over IPv4 or IPv6, as fragments cannot be trimmed. Fewer planes than [`BIT_PLANES`] take
    /// the coordinates of as many: a fabric trims all packets to the same bytes, which then hold
    /// signs of all of them. `mtu` in bytes, IP header included; `sealed` packets carry tags
    /// (docs/reference/wire-format.md §12). At most 8,160; 0 where not even 32 fit.
    pub const fn coordinates_per_packet(self, mtu: usize, planes: u8, sealed: bool) -> usize {
        /// Of IPv6 and UDP; IPv4's are shorter.
        const HEADERS: usize = 40 + 8;
        let planes = if planes > BIT_PLANES { planes } else { BIT_PLANES };
        let mut n = 0;
        while n < MAX_COORDINATES {
            if HEADERS + self.packet_len(planes, n + BLOCK, sealed) > mtu {
                break;
            }
            n += BLOCK;
        }
        n
    }

    /// The planes of a packet of planes `first` to `end` (exclusive) that a tag follows when it is
    /// sealed, ascending: 0, 7 and the last one, as far as they are in it.
    pub const fn tagged_planes(self, first: u8, end: u8) -> Tagged {
        let end = if end < self.planes() { end } else { self.planes() };
        let (mut planes, mut count) = ([0; 3], 0);
        if first >= end {
            return Tagged { planes, count };
        }
        if first == 0 {
            count = 1;
        }
        if first <= 7 && end > 7 {
            planes[count] = 7;
            count += 1;
        }
        let last = end - 1;
        if last != 0 && last != 7 {
            planes[count] = last;
            count += 1;
        }
        Tagged { planes, count }
    }

    /// Tags that a sealed packet of planes `first` to `end` (exclusive) carries.
    pub const fn tags(self, first: u8, end: u8) -> usize {
        self.tagged_planes(first, end).count
    }

    /// Bits per coordinate of each plane.
    pub const fn plane_bits(self) -> &'static [u8] {
        match self {
            // With sixteen bits of position a whole packet is as accurate as f32 arithmetic on a
            // row is.
            Self::Rht => &[1, 1, 1, 1, 1, 1, 1, 1, 8, 8],
            Self::Raw => &[32],
        }
    }

    /// Offset of a plane in a body that begins with plane 0, bytes; of plane `planes()` or beyond,
    /// the length of a whole body. `coordinates` is a multiple of 32.
    pub const fn plane_offset(self, plane: u8, coordinates: usize) -> usize {
        let mask = if plane == 0 { 0 } else { self.mask_len(coordinates) };
        mask + self.bits(plane) * (coordinates / 8)
    }

    /// Bits of a coordinate in the planes in front of one.
    pub(crate) const fn bits(self, plane: u8) -> usize {
        // Every packet that arrives asks for some, so no table is walked.
        match self {
            Self::Rht if plane <= 8 => plane as usize,
            Self::Rht if plane == 9 => 16,
            Self::Rht => 24,
            Self::Raw if plane == 0 => 0,
            Self::Raw => 32,
        }
    }

    /// Bytes in front of plane 0's bits, of which each bit says whether a block of the packet is
    /// zero (docs/reference/wire-format.md §4). They count as plane 0's. Of packets of up to 448
    /// coordinates the header says it.
    pub const fn mask_len(self, coordinates: usize) -> usize {
        let blocks = coordinates / BLOCK;
        if self.rotates() && blocks > HEADER_BLOCKS { blocks.div_ceil(8) } else { 0 }
    }

    /// Length of a packet with the first `planes` planes, header and, where it is sealed, tags
    /// included, bytes.
    pub const fn packet_len(self, planes: u8, coordinates: usize, sealed: bool) -> usize {
        let tags = if sealed { TAG_LEN * self.tags(0, planes) } else { 0 };
        HEADER_LEN + self.plane_offset(planes, coordinates) + tags
    }

    /// Length of one plane, bytes; 0 beyond the last.
    pub const fn plane_len(self, plane: u8, coordinates: usize) -> usize {
        self.plane_offset(plane.saturating_add(1), coordinates) - self.plane_offset(plane, coordinates)
    }

    /// Length of a whole body, bytes.
    pub const fn body_len(self, coordinates: usize) -> usize {
        self.plane_offset(MAX_PLANES, coordinates)
    }

    /// How far the first `bytes` bytes of a body reach that begins with plane 0.
    pub const fn reach(self, bytes: usize, coordinates: usize) -> Reach {
        let mut planes = 0;
        while planes < self.planes() && self.plane_offset(planes + 1, coordinates) <= bytes {
            planes += 1;
        }
        let mut more = 0;
        if planes < self.planes() {
            let mask = if planes == 0 { self.mask_len(coordinates) } else { 0 };
            more = bytes.saturating_sub(self.plane_offset(planes, coordinates) + mask) * 8
                / self.plane_bits()[planes as usize] as usize;
        }
        Reach { planes, more }
    }
}

/// Planes that a tag follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tagged {
    planes: [u8; 3],
    count: usize,
}

impl Tagged {
    /// The planes, ascending.
    pub fn planes(&self) -> &[u8] {
        self.planes.get(..self.count).unwrap_or_default()
    }
}

/// How much of a packet's planes is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reach {
    /// Whole planes.
    pub planes: u8,
    /// Coordinates, from the packet's first, of which one plane more is there.
    pub more: usize,
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Codec {
    type Err = UnknownCodec;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|codec| codec.name() == name).ok_or_else(|| UnknownCodec(name.to_owned()))
    }
}

#[cfg(test)]
mod tests;
