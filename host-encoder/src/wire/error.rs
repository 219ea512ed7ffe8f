// SPDX-License-Identifier: Apache-2.0
//! Why bytes are refused.

use super::codec::Codec;
use super::identity::{Envelope, Kind};
use super::sizes::VERSION;
use std::ops::Range;

/// Why bytes are not a packet, or a header cannot be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PacketError {
    /// Fewer bytes than the part of the header that has to be there.
    #[error("packet of {got} bytes ends inside its head ({need} bytes)")]
    Short {
        /// Bytes received.
        got: usize,
        /// Bytes needed.
        need: usize,
    },
    /// Another version of the format, or not a Trimwire packet at all.
    #[error("unknown version {0} of the wire format (this side speaks {VERSION})")]
    Version(u8),
    /// A kind that does not exist.
    #[error(
        "unknown kind {0} (valid: 1 DATA, 2 ACK, 3 PROBE, 4 STATUS, 5 STOP, 6 FINAL, 7 ABORT, 8 HELLO, 9 PATH, 10 PIECE, 12 FORWARD)"
    )]
    Kind(u8),
    /// A DATA view of another kind of packet.
    #[error("{0:?} packet where DATA was expected")]
    NotData(Kind),
    /// A codec that does not exist.
    #[error("unknown codec {0} (valid: 0 rht, 5 raw)")]
    Codec(u8),
    /// The header's check is wrong: some of its bits are not what was sent.
    #[error(
        "the header's check is {got:#06x} where its bytes make {expected:#06x}: it was damaged, or is of another session"
    )]
    Check {
        /// The check received.
        got: u16,
        /// What the bytes in front of it make.
        expected: u16,
    },
    /// A packet of another message than the one it was given to.
    #[error("a packet of job {}, rank {}, message {} where job {}, rank {}, message {} was expected",
        .got.stream.job(), .got.stream.rank(), .got.message, .expected.stream.job(), .expected.stream.rank(), .expected.message)]
    OtherMessage {
        /// The packet's.
        got: Envelope,
        /// The message's.
        expected: Envelope,
    },
    /// Another layer class than the layout has for the packet's row.
    #[error("packet {index} is of layer class {got} where the layout has {expected}")]
    LayerClass {
        /// Its index.
        index: u32,
        /// Class received.
        got: u8,
        /// Class expected.
        expected: u8,
    },
    /// A packet of another row than the receiver's.
    #[error("packet {index} is not of row {row}, which has packets {} to {}", .packets.start, .packets.end.saturating_sub(1))]
    OtherRow {
        /// Its index.
        index: u32,
        /// The receiver's row.
        row: usize,
        /// The packets of that row.
        packets: Range<usize>,
    },
    /// A codec that does not rotate cannot have rotated a row twice.
    #[error("a row of codec {0}, which does not rotate, is said to be rotated twice")]
    Twice(Codec),
    /// A packet that says which of its blocks are zero, though its codec does not rotate or its row
    /// is not finite.
    #[error("a packet of codec {0} that is not rotated, or not finite, is said to have zero blocks")]
    Zeros(Codec),
    /// No whole tag of a sealed packet is right: it is forged, damaged, or was trimmed in front of
    /// its first tag.
    #[error("packet {0}: no tag in front of its end is right")]
    Unsealed(u32),
    /// Another codec than the message's.
    #[error("a packet of codec {got} in a message of codec {expected}")]
    OtherCodec {
        /// The packet's.
        got: Codec,
        /// The message's.
        expected: Codec,
    },
    /// Planes begin beyond the last one.
    #[error("first plane {plane} of codec {codec}, which has {}", codec.planes())]
    FirstPlane {
        /// Plane received.
        plane: u8,
        /// The packet's codec.
        codec: Codec,
    },
    /// The header's last field before κ names no number of coordinates.
    #[error("blocks {0:#06x} name no number of coordinates")]
    Blocks(u16),
    /// σ is infinite, or another NaN than the one that marks rows which are not finite.
    #[error("σ = {0} is not a magnitude")]
    Sigma(f32bits),
    /// The packet does not belong to the message's layout.
    #[error("packet index {index} is outside a message of {packets} packets")]
    Index {
        /// Index received.
        index: u32,
        /// Packets of the message.
        packets: u32,
    },
    /// σ, κ, peak or the zero blocks differ from an earlier packet of the same index, or the number
    /// of rotations from one of the same row: planes of two encodings do not mix.
    #[error(
        "packet {0} contradicts an earlier one (σ, κ, peak, zero blocks or the number of rotations differ)"
    )]
    Contradiction(u32),
    /// Another number of coordinates than the layout gives this packet.
    #[error("packet {index} carries {got} coordinates where the layout has {expected}")]
    Coordinates {
        /// Its index.
        index: u32,
        /// Coordinates received.
        got: usize,
        /// Coordinates expected.
        expected: usize,
    },
}

/// An f32 by its bits, so that errors stay comparable.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(non_camel_case_types)]
pub struct f32bits(pub u32);

impl std::fmt::Debug for f32bits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::fmt::Display for f32bits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f32::from_bits(self.0).fmt(f)
    }
}
