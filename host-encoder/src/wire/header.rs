// SPDX-License-Identifier: Apache-2.0
//! The DATA packet's header (docs/reference/wire-format.md §1).
//!
//! ```text
//!  0      version:4 | kind:4
//!  1      codec:3 | importance:1 | layer_class:3 | last:1
//!  2..4   job:6 | rank:10
//!  4..8   message
//!  8..12  first_plane:4 | packet_index:20 | coordinates/32:8
//! 12..16  twice:1 | σ, f32 without its sign:31
//! 16      κ · 255
//! 17      peak, 32 · log2(largest |r| / σ), rounded up
//! 18..20  CRC-16/M17 of the bytes in front
//! ```
//! All fields are big-endian.

use super::check::check_of;
use super::codec::Codec;
use super::error::{PacketError, f32bits};
use super::identity::Kind;
use super::mask::HeaderMask;
use super::prefix::Prefix;
use super::sizes::{BLOCK, HEADER_LEN, MAX_INDEX};

/// The bits of σ in packets of a row that holds NaN or an infinity.
pub const NOT_FINITE: u32 = 0x7fc0_0000;
/// The bit in front of σ.
const TWICE: u32 = 1 << 31;
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
    /// Root mean square of the packet's (rotated) coordinates; NaN where the row holds NaN or an
    /// infinity.
    pub sigma: f32,
    /// mean |r| / σ, in 1/255.
    pub kappa: u8,
    /// 32 · log2(largest |r| / σ), rounded up.
    pub peak: u8,
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
        let sigma = u32::from_be_bytes([head[12], head[13], head[14], head[15]]);
        let header = Self {
            prefix,
            first_plane: (place >> 28) as u8,
            index: place >> 8 & MAX_INDEX,
            coordinates: (place & 0xff) as usize * BLOCK,
            twice: sigma & TWICE != 0,
            sigma: f32::from_bits(sigma & !TWICE),
            kappa: head[16],
            peak: head[17],
        };
        if header.first_plane >= codec.planes() {
            return Err(PacketError::FirstPlane { plane: header.first_plane, codec });
        }
        if header.coordinates == 0 {
            return Err(PacketError::Empty);
        }
        if !header.sigma.is_finite() && sigma != NOT_FINITE {
            return Err(PacketError::Sigma(f32bits(sigma)));
        }
        if header.twice && !codec.rotates() {
            return Err(PacketError::Twice(codec));
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
        let place = u32::from(self.first_plane) << 28
            | (self.index & MAX_INDEX) << 8
            | (self.coordinates / BLOCK) as u32 & 0xff;
        bytes[8..12].copy_from_slice(&place.to_be_bytes());
        let twice = if self.twice { TWICE } else { 0 };
        let sigma = if self.sigma.is_nan() { NOT_FINITE } else { self.sigma.to_bits() | twice };
        bytes[12..16].copy_from_slice(&sigma.to_be_bytes());
        bytes[16] = self.kappa;
        bytes[17] = self.peak;
        let check = check_of(&bytes);
        bytes[CHECKED..].copy_from_slice(&check.to_be_bytes());
        bytes
    }
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
