// SPDX-License-Identifier: Apache-2.0
//! The eight bytes that packets of every kind begin with (docs/reference/wire-format.md §1).

use super::error::PacketError;
use super::identity::{Envelope, Kind, StreamId};
use super::sizes::{PREFIX_LEN, VERSION};

impl TryFrom<u8> for Kind {
    type Error = PacketError;

    fn try_from(value: u8) -> Result<Self, PacketError> {
        Ok(match value {
            1 => Self::Data,
            2 => Self::Ack,
            3 => Self::Probe,
            4 => Self::Status,
            5 => Self::Stop,
            6 => Self::Final,
            7 => Self::Abort,
            8 => Self::Hello,
            9 => Self::Path,
            10 => Self::Piece,
            11 => Self::Vote,
            12 => Self::Forward,
            other => return Err(PacketError::Kind(other)),
        })
    }
}

/// The eight bytes that every packet begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    /// What the packet is for.
    pub kind: Kind,
    /// Codec, 0 to 7.
    pub codec: u8,
    /// Whether switches should trim others first (docs/reference/wire-format.md §7).
    pub important: bool,
    /// Layer class, 0 (front layers) to 7.
    pub layer_class: u8,
    /// The last packet of its message.
    pub last: bool,
    /// Job and source rank.
    pub stream: StreamId,
    /// The message: one shard of one phase of a collective.
    pub message: u32,
}

impl Prefix {
    /// Reads the prefix of any packet.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, PacketError> {
        let Some(&[b0, b1, b2, b3, m0, m1, m2, m3]) = bytes.first_chunk::<PREFIX_LEN>() else {
            return Err(PacketError::Short { got: bytes.len(), need: PREFIX_LEN });
        };
        if b0 >> 4 != VERSION {
            return Err(PacketError::Version(b0 >> 4));
        }
        Ok(Self {
            kind: Kind::try_from(b0 & 15)?,
            codec: b1 >> 5,
            important: b1 & 0x10 != 0,
            layer_class: b1 >> 1 & 7,
            last: b1 & 1 != 0,
            stream: StreamId { job: b2 >> 2, rank: u16::from_be_bytes([b2 & 3, b3]) },
            message: u32::from_be_bytes([m0, m1, m2, m3]),
        })
    }

    /// The prefix as bytes. Only the low bits that the wire has of `codec` and `layer_class` are
    /// written.
    #[inline]
    pub fn to_bytes(self) -> [u8; PREFIX_LEN] {
        let [r0, r1] = self.stream.rank.to_be_bytes();
        let [m0, m1, m2, m3] = self.message.to_be_bytes();
        let flags = self.codec << 5
            | u8::from(self.important) << 4
            | (self.layer_class & 7) << 1
            | u8::from(self.last);
        [VERSION << 4 | self.kind as u8, flags, self.stream.job << 2 | r0, r1, m0, m1, m2, m3]
    }

    /// The message that the packet belongs to.
    pub fn envelope(&self) -> Envelope {
        Envelope { stream: self.stream, message: self.message }
    }
}
