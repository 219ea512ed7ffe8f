// SPDX-License-Identifier: Apache-2.0
//! The codecs and the planes that their packets are made of.

use super::sizes::{BLOCK, HEADER_LEN, TAG_LEN};
use std::fmt;
use std::str::FromStr;

/// How coordinates become bits. Both share the packet format. What the papers' codecs are worth after a trim is in [`crate::papers`]; nobody sends those.
///
/// ```text
/// codec   rotated   plane 0      whole packet     after a trim to plane 0
/// rht     yes       sign         f32 precision    ±κσ, scaled to be unbiased
/// raw     no        everything   bit-exact        what arrived, zeros for the rest
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Codec {
    /// Randomised Hadamard transform, embedded quantiser (docs/reference/wire-format.md §5): every prefix is near the best of its size.
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
/// Most coordinates of a packet: the header has eight bits for their blocks.
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

    /// Planes that are sent of elements of that size unless the caller wants otherwise: of rht nine for elements of 16 bits, which take two bytes a coordinate as
    /// well and are more accurate than the elements are; otherwise all.
    pub const fn default_planes(self, element_bytes: usize) -> u8 {
        if element_bytes <= 2 && matches!(self, Self::Rht) { 9 } else { self.planes() }
    }

    /// Most coordinates, a multiple of 32, of a packet that fits an MTU whole with its first `planes` planes, be it over IPv4 or IPv6: fragments cannot be cut. `mtu` in bytes,
    /// IP header included; `sealed` packets carry tags (docs/reference/wire-format.md §12). At most 8,160; 0 where not even 32 fit.
    pub const fn coordinates_per_packet(self, mtu: usize, planes: u8, sealed: bool) -> usize {
        /// Of IPv6 and UDP; IPv4's are shorter.
        const HEADERS: usize = 40 + 8;
        let mut n = 0;
        while n < MAX_COORDINATES {
            if HEADERS + self.packet_len(planes, n + BLOCK, sealed) > mtu {
                break;
            }
            n += BLOCK;
        }
        n
    }

    /// The planes of a packet of planes `first` to `end` (exclusive) that a tag follows when it is sealed, ascending: 0, 7 and the last one, as far as they are in it.
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
            // With sixteen bits of position a whole packet is as accurate as f32 arithmetic on a row is.
            Self::Rht => &[1, 1, 1, 1, 1, 1, 1, 1, 8, 8],
            Self::Raw => &[32],
        }
    }

    /// Offset of a plane in a body that begins with plane 0, bytes; of plane `planes()` or beyond, the length of a whole
    /// body. `coordinates` is a multiple of 32.
    pub const fn plane_offset(self, plane: u8, coordinates: usize) -> usize {
        // Every packet that arrives asks for some, so no table is walked.
        let bits = match self {
            Self::Rht if plane <= 8 => plane as usize,
            Self::Rht if plane == 9 => 16,
            Self::Rht => 24,
            Self::Raw if plane == 0 => 0,
            Self::Raw => 32,
        };
        bits * (coordinates / 8)
    }

    /// Length of a packet with the first `planes` planes, header and, where it is sealed, tags included, bytes.
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
            more = (bytes - self.plane_offset(planes, coordinates)) * 8
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
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_lead_back_to_their_codec() {
        for codec in Codec::ALL {
            assert_eq!(Codec::from_id(codec.id()), Some(codec));
            assert_eq!(codec.name().parse(), Ok(codec));
        }
        assert_eq!([1, 2, 3, 4, 6, 7].map(Codec::from_id), [None; 6]);
        let error = "rth".parse::<Codec>().unwrap_err().to_string();
        assert_eq!(error, "unknown codec \"rth\" (valid: rht, raw)");
    }

    #[test]
    fn planes_lie_one_behind_the_other() {
        for codec in Codec::ALL {
            let mut offset = 0;
            for (plane, bits) in codec.plane_bits().iter().enumerate() {
                assert_eq!(codec.plane_offset(plane as u8, 352), offset, "{codec}, plane {plane}");
                offset += 44 * usize::from(*bits);
            }
            for beyond in codec.planes()..=MAX_PLANES {
                assert_eq!(codec.plane_offset(beyond, 352), offset, "{codec}");
            }
        }
    }

    #[test]
    fn the_fullest_packets_fit_an_mtu_of_1500_bytes() {
        for codec in Codec::ALL {
            for (planes, sealed) in (1..=codec.planes()).flat_map(|planes| [(planes, false), (planes, true)])
            {
                let n = codec.coordinates_per_packet(1500, planes, sealed);
                let tags = if sealed { TAG_LEN * codec.tags(0, planes) } else { 0 };
                let datagram = |n| 40 + 8 + HEADER_LEN + codec.plane_offset(planes, n) + tags;
                let fullest = datagram(n) <= 1500 && (datagram(n + BLOCK) > 1500 || n == MAX_COORDINATES);
                assert!(fullest, "{codec}, {planes} planes: {n}");
            }
        }
        let whole = |codec: Codec| codec.coordinates_per_packet(1500, codec.planes(), false);
        assert_eq!(Codec::ALL.map(whole), [448, 352]);
        assert_eq!(Codec::Rht.coordinates_per_packet(1500, 9, false), 704);
        assert_eq!(Codec::Rht.coordinates_per_packet(60, 10, false), 0);
    }

    #[test]
    fn a_body_reaches_as_far_as_its_planes_and_no_further() {
        for codec in Codec::ALL {
            for bytes in 0..=codec.body_len(96) + 5 {
                let Reach { planes, more } = codec.reach(bytes, 96);
                assert!(codec.plane_offset(planes, 96) <= bytes && more < 96, "{codec}, {bytes} bytes");
                let next = codec
                    .plane_bits()
                    .get(usize::from(planes))
                    .map_or(0, |bits| more * usize::from(*bits) / 8);
                assert!(codec.plane_offset(planes, 96) + next <= bytes);
                assert_eq!(planes == codec.planes(), bytes >= codec.body_len(96), "{codec}, {bytes} bytes");
            }
        }
    }

    #[test]
    fn tags_lie_behind_the_sign_the_bit_planes_and_the_end() {
        let tags = |first, end| Codec::Rht.tags(first, end);
        assert_eq!(
            [tags(0, 1), tags(0, 2), tags(0, 8), tags(0, 9), tags(0, 10), tags(0, 99)],
            [1, 2, 2, 3, 3, 3]
        );
        assert_eq!([tags(1, 8), tags(7, 9), tags(8, 10), tags(3, 3), tags(9, 8)], [1, 2, 1, 0, 0]);
        assert_eq!(Codec::Raw.tags(0, 1), 1);
    }

    #[test]
    fn a_whole_body_holds_every_bit_of_its_coordinates() {
        for (codec, bits) in Codec::ALL.into_iter().zip([24, 32]) {
            assert_eq!(codec.body_len(352), 44 * bits, "{codec}");
            assert!(codec.planes() <= MAX_PLANES);
        }
    }
}
