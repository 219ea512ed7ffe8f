// SPDX-License-Identifier: Apache-2.0
//! The DATA packet's header (docs/reference/wire-format.md §1).
//!
//! ```text
//!  0      version:4 | kind:4
//!  1      codec:3 | importance:1 | layer_class:3 | last:1
//!  2..4   job:6 | rank:10
//!  4..8   message
//!  8..16  packet_index:24 | first_plane:4 | twice:1 | σ, the 19 bits of an f32 behind its sign |
//!         blocks:16
//! 16      κ · 255
//! 17      peak, 32 · log2(largest |r| / σ), rounded up
//! 18..20  CRC-16/M17 of the bytes in front
//! ```
//! All fields are big-endian. `blocks` has a 1 at bit B for a packet of B blocks of 32 coordinates,
//! and below it a bit for each block of the row as it was before the rotation: 1 where all of it is
//! zero. Of more than 14 blocks it is `8000` + B, and the bits lie in front of plane 0.

use super::check::check_of;
use super::codec::Codec;
use super::error::{PacketError, f32bits};
use super::identity::Kind;
use super::mask::HeaderMask;
use super::prefix::Prefix;
use super::sizes::{BLOCK, HEADER_LEN, MAX_INDEX};
use super::zeros::{read_bits, read_mask};

/// The bits of σ in packets of a row that holds NaN or an infinity.
pub const NOT_FINITE: u32 = 0x7fc0_0000;
/// Bits of σ's fraction that are not sent.
pub(crate) const SIGMA_UNSENT: u32 = 12;
/// In `blocks`: the number of blocks follows, and the packet's body says which are zero.
const MANY: u16 = 1 << 15;
/// Where the check begins.
const CHECKED: usize = HEADER_LEN - 2;

/// The header of a DATA packet of planes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Header {
    /// The shared prefix; its kind is DATA and its codec one that exists.
    pub prefix: Prefix,
    /// First plane of the body: 0 but for repairs.
    pub first_plane: u8,
    /// Which packet of the message.
    pub index: u32,
    /// Coordinates the packet speaks of: a multiple of 32, at most 8,160.
    pub coordinates: usize,
    /// The row was rotated twice (docs/reference/wire-format.md §3).
    pub twice: bool,
    /// Root mean square of the packet's (rotated) coordinates, with eleven bits of fraction (more
    /// are not written); NaN where the row holds NaN or an infinity.
    pub sigma: f32,
    /// mean |r| / σ, in 1/255.
    pub kappa: u8,
    /// 32 · log2(largest |r| / σ), rounded up.
    pub peak: u8,
    /// Bit i: the packet's block i holds nothing but zeros in the row before its rotation. 0 in
    /// packets of more than 448 coordinates, whose body says it ([`Codec::mask_len`]).
    pub zeros: u16,
}

impl Header {
    /// Reads and checks a DATA packet's header.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, PacketError> {
        let prefix = Prefix::parse(bytes)?;
        if prefix.kind != Kind::Data {
            return Err(PacketError::NotData(prefix.kind));
        }
        let Some(head) = bytes.first_chunk::<HEADER_LEN>() else {
            return Err(PacketError::Short { got: bytes.len(), need: HEADER_LEN });
        };
        let (got, expected) = (u16::from_be_bytes([head[18], head[19]]), check_of(head));
        if got != expected {
            return Err(PacketError::Check { got, expected });
        }
        let codec = Codec::from_id(prefix.codec).ok_or(PacketError::Codec(prefix.codec))?;
        let place = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
        let scale = u32::from_be_bytes([head[11], head[12], head[13], 0]) >> 8;
        let sigma = (scale & 0x7_ffff) << SIGMA_UNSENT;
        let blocks = u16::from_be_bytes([head[14], head[15]]);
        let (coordinates, zeros) = blocks_of(blocks).ok_or(PacketError::Blocks(blocks))?;
        let header = Self {
            prefix,
            first_plane: (scale >> 20) as u8 & 15,
            index: place >> 8,
            coordinates,
            twice: scale & 1 << 19 != 0,
            sigma: f32::from_bits(sigma),
            kappa: head[16],
            peak: head[17],
            zeros,
        };
        if header.first_plane >= codec.planes() {
            return Err(PacketError::FirstPlane { plane: header.first_plane, codec });
        }
        if !header.sigma.is_finite() && (sigma != NOT_FINITE || header.twice) {
            return Err(PacketError::Sigma(f32bits(u32::from(header.twice) << 31 | sigma)));
        }
        if header.twice && !codec.rotates() {
            return Err(PacketError::Twice(codec));
        }
        if header.zeros != 0 && (!codec.rotates() || header.is_not_finite()) {
            return Err(PacketError::Zeros(codec));
        }
        Ok(header)
    }

    /// Likewise of a packet whose header is masked.
    #[inline]
    pub fn parse_masked(bytes: &[u8], mask: HeaderMask) -> Result<Self, PacketError> {
        let Some(head) = bytes.first_chunk::<HEADER_LEN>() else { return Self::parse(bytes) };
        let mut head = *head;
        mask.apply(&mut head);
        Self::parse(&head)
    }

    /// The coordinates that a DATA packet speaks of, which whoever forwards it may read: the mask
    /// does not cover them.
    pub fn coordinates_of(bytes: &[u8]) -> Option<usize> {
        let head = bytes.first_chunk::<HEADER_LEN>()?;
        blocks_of(u16::from_be_bytes([head[14], head[15]])).map(|(coordinates, _)| coordinates)
    }

    /// The packet's codec.
    pub fn codec(&self) -> Codec {
        Codec::from_id(self.prefix.codec).unwrap_or_default()
    }

    /// Whether the packet belongs to a row that holds NaN or an infinity.
    pub fn is_not_finite(&self) -> bool {
        self.sigma.is_nan()
    }

    /// The header as bytes, with its check.
    #[inline]
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&self.prefix.to_bytes());
        let marked = self.sigma.is_nan();
        let sigma = if marked { NOT_FINITE } else { self.sigma.to_bits() & !(1 << 31) };
        let count = (self.coordinates / BLOCK) as u16;
        let blocks = match count {
            0..15 => 1 << count | self.zeros & ((1 << count) - 1),
            _ => MANY | count & 0xff,
        };
        let place = u64::from(self.index & MAX_INDEX) << 40
            | u64::from(self.first_plane & 15) << 36
            | u64::from(self.twice && !marked) << 35
            | u64::from(sigma >> SIGMA_UNSENT) << 16
            | u64::from(blocks);
        bytes[8..16].copy_from_slice(&place.to_be_bytes());
        bytes[16] = self.kappa;
        bytes[17] = self.peak;
        let check = check_of(&bytes);
        bytes[CHECKED..].copy_from_slice(&check.to_be_bytes());
        bytes
    }
}

/// The coordinates, and which of their blocks are zero, of a header's `blocks`.
#[inline]
fn blocks_of(blocks: u16) -> Option<(usize, u16)> {
    let count = match blocks {
        0 => 0,
        1..MANY => blocks.ilog2() as u16,
        _ => Some(blocks - MANY).filter(|count| (15..=255).contains(count))?,
    };
    let zeros = if blocks < MANY { blocks & !(1 << count) } else { 0 };
    (count > 0).then_some((usize::from(count) * BLOCK, zeros))
}

/// A received DATA packet: a checked header and as much of the planes as arrived.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PacketView<'a> {
    header: Header,
    body: &'a [u8],
}

impl<'a> PacketView<'a> {
    /// Checks a UDP payload. Its length is what arrived; bytes beyond the last plane are ignored.
    #[inline]
    pub fn parse(payload: &'a [u8]) -> Result<Self, PacketError> {
        Self::parse_masked(payload, HeaderMask::NONE)
    }

    /// Likewise of a packet whose header is masked.
    #[inline]
    pub fn parse_masked(payload: &'a [u8], mask: HeaderMask) -> Result<Self, PacketError> {
        let header = Header::parse_masked(payload, mask)?;
        let (codec, n) = (header.codec(), header.coordinates);
        let all = codec.body_len(n) - codec.plane_offset(header.first_plane, n);
        let body = payload.get(HEADER_LEN..).unwrap_or_default();
        Ok(Self { header, body: &body[..body.len().min(all)] })
    }

    /// The same packet with other bytes from `first_plane` on, at most as many as its planes have.
    pub(crate) fn with_body<'b>(&self, body: &'b [u8]) -> PacketView<'b> {
        PacketView { header: self.header, body }
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whether each of its blocks is known to be zero; `None` where the mask that says it has not
    /// arrived.
    pub fn zero_blocks(&self) -> Option<Vec<bool>> {
        let Header { first_plane, coordinates, zeros: bits, .. } = self.header;
        let mask = self.header.codec().mask_len(coordinates);
        let mut zeros = vec![false; coordinates / BLOCK];
        if mask == 0 {
            read_bits(bits, &mut zeros);
        } else {
            let mask = self.body.get(..mask).filter(|_| first_plane == 0)?;
            read_mask(mask, 0, &mut zeros);
        }
        Some(zeros)
    }

    /// The bytes from `first_plane` on.
    pub fn body(&self) -> &'a [u8] {
        self.body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sixteen bits that a single wrong bit of a header adds to what its check should be.
    fn syndromes() -> Vec<u16> {
        let clean = check_of(&[0; HEADER_LEN]);
        (0..8 * HEADER_LEN)
            .map(|bit| {
                let mut damage = [0; HEADER_LEN];
                damage[bit / 8] = 1 << (bit % 8);
                check_of(&damage) ^ clean ^ u16::from_be_bytes([damage[CHECKED], damage[CHECKED + 1]])
            })
            .collect()
    }

    #[test]
    fn no_damage_of_up_to_four_bits_passes_the_check() {
        // A damage passes where its bits' syndromes cancel: sums of two of them against sums of two
        // others.
        let syndromes = syndromes();
        let mut pairs = vec![None; 1 << 16];
        for (a, x) in syndromes.iter().enumerate() {
            assert_ne!(*x, 0, "bit {a}");
            for (b, y) in syndromes.iter().enumerate().take(a) {
                let earlier = pairs[usize::from(x ^ y)].replace((a, b));
                assert!(x != y && earlier.is_none(), "bits {a}, {b} and {earlier:?}");
            }
        }
        for (a, x) in syndromes.iter().enumerate() {
            let two = pairs[usize::from(*x)];
            assert!(two.is_none(), "bits {a} and {two:?}");
        }
    }
}
