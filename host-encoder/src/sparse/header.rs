// SPDX-License-Identifier: Apache-2.0
//! The heads of a sparse packet (docs/reference/wire-format.md §13).
//!
//! ```text
//!  0..12  as all DATA packets; the first plane is 0
//! 11      entries / 32, rounded up
//! 12..16  σ: the largest magnitude
//! 16      32 · byte 11 − entries
//! 17      fraction bits
//! 18..20  check of the bytes in front
//! 20..24  first coordinate
//! 24..28  last coordinate
//! 28      order of the gaps' code
//! 29..32  packets of the message − 1
//! ```

use super::error::SparsePacketError;
use super::level::{MOST_FRACTION_BITS, unsent_bits};
use crate::wire::{
    BLOCK, HEADER_LEN, MAX_INDEX, NOT_FINITE, PacketError, Prefix, checked_head, f32bits, write_check,
};

/// The codec of sparse messages in a packet's prefix.
pub const SPARSE_CODEC_ID: u8 = 6;
/// Bytes in front of a sparse packet's first entry. No packet is cut to fewer and of use.
pub const SPARSE_HEAD_LEN: usize = HEADER_LEN + 12;
/// Most entries of a packet: the header has eight bits for their blocks.
pub(super) const MOST_ENTRIES: usize = 255 * BLOCK;
/// Largest order: a code has at most 63 zeros and 64 bits behind them.
pub(super) const MOST_ORDER: u8 = 62;

/// The heads of a sparse packet: those that are in front of entries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SparseHeader {
    /// The shared prefix; its kind is DATA and its codec [`SPARSE_CODEC_ID`].
    pub prefix: Prefix,
    /// Which packet of the message.
    pub index: u32,
    /// Packets of the message, from 1 to 2^20.
    pub packets: u32,
    /// Entries of the whole packet, at most 8,160.
    pub entries: usize,
    /// The largest magnitude of its entries, 0 where there are none; NaN if the message is not finite.
    pub sigma: f32,
    /// Bits of a magnitude behind its first one, at most 23.
    pub fraction_bits: u8,
    /// The lowest coordinate that it may have an entry of.
    pub first: u32,
    /// The highest one.
    pub last: u32,
    /// Order of the exponential-Golomb code of its gaps, at most 62.
    pub order: u8,
}

impl SparseHeader {
    /// Reads and checks the heads of a packet.
    pub fn parse(bytes: &[u8]) -> Result<Self, SparsePacketError> {
        let (prefix, head) = checked_head(bytes)?;
        if prefix.codec != SPARSE_CODEC_ID {
            return Err(SparsePacketError::Dense(prefix.codec));
        }
        let Some(&[f0, f1, f2, f3, l0, l1, l2, l3, order, p0, p1, p2]) =
            bytes.get(HEADER_LEN..).and_then(|body| body.first_chunk())
        else {
            return Err(PacketError::Short { got: bytes.len(), need: SPARSE_HEAD_LEN }.into());
        };
        let place = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
        let sigma = u32::from_be_bytes([head[12], head[13], head[14], head[15]]);
        let (blocks, padding, fraction_bits) = (place & 0xff, u32::from(head[16]), head[17]);
        let packets = u32::from_be_bytes([0, p0, p1, p2]);
        if place >> 28 != 0 {
            return Err(SparsePacketError::FirstPlane((place >> 28) as u8));
        }
        if blocks == 0 {
            return Err(PacketError::Empty.into());
        }
        let index = place >> 8 & MAX_INDEX;
        for (field, value, most) in [
            ("κ", padding, BLOCK as u32),
            ("the number of fraction bits", fraction_bits.into(), MOST_FRACTION_BITS.into()),
            ("the order", order.into(), MOST_ORDER.into()),
            ("the number of packets less 1", packets, MAX_INDEX),
        ] {
            if value > most {
                return Err(SparsePacketError::Field { field, value, most });
            }
        }
        if index > packets {
            return Err(PacketError::Index { index, packets: packets + 1 }.into());
        }
        let header = Self {
            prefix,
            index,
            packets: packets + 1,
            entries: blocks as usize * BLOCK - padding as usize,
            sigma: f32::from_bits(sigma),
            fraction_bits,
            first: u32::from_be_bytes([f0, f1, f2, f3]),
            last: u32::from_be_bytes([l0, l1, l2, l3]),
            order,
        };
        let unsent = (1 << unsent_bits(fraction_bits)) - 1;
        // Infinities, NaNs and what has a sign come behind the largest f32.
        if sigma != NOT_FINITE && (sigma > f32::MAX.to_bits() || sigma & unsent != 0) {
            return Err(SparsePacketError::Sigma { sigma: f32bits(sigma), fraction_bits });
        }
        let none = sigma == NOT_FINITE || sigma == 0 || padding == BLOCK as u32;
        let all_say_so = sigma == NOT_FINITE || sigma == 0;
        let fields = (header.entries, header.first, header.last, order, packets);
        if none && (!all_say_so || fields != (0, 0, 0, 0, 0)) {
            return Err(SparsePacketError::Entries(index));
        }
        Ok(header)
    }

    /// Whether the message holds NaN or an infinity.
    pub fn is_not_finite(&self) -> bool {
        self.sigma.is_nan()
    }

    /// The heads as bytes, with the check.
    pub fn to_bytes(self) -> [u8; SPARSE_HEAD_LEN] {
        let mut head = [0; HEADER_LEN];
        let blocks = self.entries.div_ceil(BLOCK).clamp(1, 255);
        let sigma = if self.sigma.is_nan() { NOT_FINITE } else { self.sigma.to_bits() };
        head[..8].copy_from_slice(&self.prefix.to_bytes());
        head[8..12].copy_from_slice(&((self.index & MAX_INDEX) << 8 | blocks as u32).to_be_bytes());
        head[12..16].copy_from_slice(&sigma.to_be_bytes());
        head[16] = (blocks * BLOCK).saturating_sub(self.entries) as u8;
        head[17] = self.fraction_bits;
        write_check(&mut head);
        let mut bytes = [0; SPARSE_HEAD_LEN];
        bytes[..HEADER_LEN].copy_from_slice(&head);
        bytes[20..24].copy_from_slice(&self.first.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.last.to_be_bytes());
        bytes[28..].copy_from_slice(&(self.packets.saturating_sub(1) & MAX_INDEX).to_be_bytes());
        bytes[28] = self.order;
        bytes
    }

    /// The level of the largest magnitude.
    pub(super) fn top(&self) -> u32 {
        self.sigma.to_bits() >> unsent_bits(self.fraction_bits)
    }

    /// Coordinates from the first to the last one.
    pub(super) fn span(&self) -> u64 {
        u64::from(self.last.saturating_sub(self.first)) + 1
    }

    /// Whether two packets of one index may be copies, cut or not, of the same one.
    pub(super) fn is_of_one_packet_with(&self, other: &Self) -> bool {
        let fields = |of: &Self| {
            (of.entries, of.sigma.to_bits(), of.fraction_bits, of.first, of.last, of.order, of.packets)
        };
        fields(self) == fields(other)
    }
}
