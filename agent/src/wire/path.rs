// SPDX-License-Identifier: Apache-2.0
//! PATH: a question that is as long as a packet may be, and its answer.

use super::{IDENTITY_LEN, PATH_LEN, WireError};
use trimwire_encoder::wire::PREFIX_LEN;

/// PATH: whether a packet of this length gets through (RFC 8899 calls the question a probe packet).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Path {
    /// Which question; the answer repeats it.
    pub sequence: u32,
    /// Bytes of the question, prefix included and tag excluded; the answer repeats it.
    pub length: u16,
    /// Bytes of the longest IP packet that the sender's interfaces carry.
    pub mtu: u16,
    /// It answers a question.
    pub answer: bool,
    /// The sender hears nothing of the receiver, whose own packets may be too long for the way
    /// back.
    pub unheard: bool,
}

impl Path {
    /// Bytes of an answer, and of the shortest question.
    pub const LEN: usize = PREFIX_LEN + IDENTITY_LEN + PATH_LEN;

    /// Reads the fixed part; the caller has checked its length. `got`: bytes that arrived of the
    /// packet.
    pub(super) fn read(fixed: &[u8], got: usize) -> Result<Self, WireError> {
        let half = |at: usize| fixed.get(at..at + 2).map_or(0, |half| u16::from_be_bytes([half[0], half[1]]));
        let flags = fixed.get(8).copied().unwrap_or(0);
        let (length, answer) = (half(4), flags & 1 != 0);
        let whole = if answer { Self::LEN } else { usize::from(length) };
        if usize::from(length) < Self::LEN || got < whole {
            return Err(WireError::Question { length, got, least: Self::LEN });
        }
        Ok(Self { sequence: super::word(fixed, 0), length, mtu: half(6), answer, unheard: flags & 2 != 0 })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.sequence.to_be_bytes());
        out.extend_from_slice(&self.length.to_be_bytes());
        out.extend_from_slice(&self.mtu.to_be_bytes());
        out.extend_from_slice(&[u8::from(self.answer) | u8::from(self.unheard) << 1, 0, 0, 0]);
        if !self.answer {
            out.resize(out.len().max(usize::from(self.length)), 0);
        }
    }
}
