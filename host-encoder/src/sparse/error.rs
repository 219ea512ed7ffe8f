// SPDX-License-Identifier: Apache-2.0
//! Why a packet is no part of a sparse message.

use crate::wire::{PacketError, f32bits};

/// Why a packet is refused. A packet that is refused changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SparsePacketError {
    /// What packets of any codec are refused for.
    #[error(transparent)]
    Packet(#[from] PacketError),
    /// A packet of planes.
    #[error("a packet of codec {0} in a sparse message (6)")]
    Dense(u8),
    /// Entries have no planes.
    #[error("first plane {0} in a sparse message, which has none")]
    FirstPlane(u8),
    /// Numbers that no sparse packet's heads hold.
    #[error("{field} is {value} (valid: 0 to {most})")]
    Field {
        /// Which one.
        field: &'static str,
        /// What it is.
        value: u32,
        /// What it may be at most.
        most: u32,
    },
    /// A σ with *twice*, that is infinite, another NaN than the mark, or of more fraction bits than the packet's entries.
    #[error("σ = {sigma} is not a magnitude of {fraction_bits} fraction bits")]
    Sigma {
        /// The σ received, with the bit in front of it.
        sigma: f32bits,
        /// Fraction bits of the packet.
        fraction_bits: u8,
    },
    /// Some fields say that the packet has no entries, and others that it has.
    #[error("packet {0} says that it has no entries, and that it has some")]
    Entries(u32),
    /// Coordinates that the message does not have, or of more than one layer class, or in the wrong order.
    #[error(
        "packet {index} is of coordinates {first} to {last}, which are not in one run of the message's {coordinates}"
    )]
    Range {
        /// Its index.
        index: u32,
        /// Its first coordinate.
        first: u32,
        /// Its last one.
        last: u32,
        /// Coordinates of the message.
        coordinates: usize,
    },
    /// What follows is no entry.
    #[error("packet {index}: entry {entry} is not one")]
    Code {
        /// Its index.
        index: u32,
        /// Which of its entries, from 0.
        entry: usize,
    },
    /// Two entries of one coordinate.
    #[error("packet {index} has two entries of coordinate {coordinate}")]
    Twice {
        /// Its index.
        index: u32,
        /// The coordinate.
        coordinate: u32,
    },
    /// Another number of packets than an earlier packet's.
    #[error("packet {index} is of a message of {got} packets, earlier ones were of one of {expected}")]
    Packets {
        /// Its index.
        index: u32,
        /// Packets it says there are.
        got: u32,
        /// Packets there are.
        expected: u32,
    },
    /// Coordinates are not in the order of packets.
    #[error("packet {index} is of coordinates {first} to {last}, which packet {other} is in the way of")]
    Overlap {
        /// Its index.
        index: u32,
        /// Its first coordinate.
        first: u32,
        /// Its last one.
        last: u32,
        /// The packet that is held.
        other: u32,
    },
}
