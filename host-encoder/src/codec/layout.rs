//! Geometry of a message: which coordinates form a row, which a packet.

use std::ops::Range;

use thiserror::Error;

use crate::packet::{COORDINATE_UNIT, MAX_COORDINATES, MAX_PACKETS};

/// Default length of a rotated row, log₂ (trimmable-gradients §3.2).
pub const DEFAULT_ROW_LOG2: u8 = 15;
/// Shortest and longest legal row length, log₂.
const ROW_LOG2: std::ops::RangeInclusive<u8> = 5..=20;

/// Why a layout is not possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A message of no coordinates.
    #[error("a message needs at least 1 coordinate")]
    Empty,
    /// A packet size that the header cannot express.
    #[error(
        "{0} coordinates per packet: a multiple of 32 from 32 to 8160 is needed (352 fill a 1500-byte MTU)"
    )]
    CoordinatesPerPacket(usize),
    /// More packets than the header's index can count.
    #[error(
        "{coordinates} coordinates in packets of {coordinates_per_packet} are {packets} packets; a message has at most 1048576"
    )]
    TooManyPackets {
        /// Coordinates of the message.
        coordinates: usize,
        /// Coordinates per packet.
        coordinates_per_packet: usize,
        /// Packets needed.
        packets: usize,
    },
    /// A row length out of range.
    #[error("rows of 2^{0} coordinates: 2^5 to 2^20 are possible")]
    RowLog2(u8),
}

/// Geometry of a message. Sender and receiver must use the same one.
///
/// The coordinates form rows of 2^15; the last row is padded with zeros to its next power of two. Packet `i` covers rotated, padded
/// coordinates [i·n, i·n + n), and may straddle rows; the last packet may end before its n-th coordinate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    coordinates: usize,
    coordinates_per_packet: usize,
    row_log2: u8,
}

impl Layout {
    /// A message of `coordinates` (at least 1) in packets of `coordinates_per_packet` (multiple of 32, 32 to 8160).
    pub fn new(coordinates: usize, coordinates_per_packet: usize) -> Result<Self, LayoutError> {
        Self { coordinates, coordinates_per_packet, row_log2: DEFAULT_ROW_LOG2 }.checked()
    }

    /// The same message with rows of 2^`row_log2` coordinates (5 to 20).
    pub fn with_row_log2(self, row_log2: u8) -> Result<Self, LayoutError> {
        Self { row_log2, ..self }.checked()
    }

    fn checked(self) -> Result<Self, LayoutError> {
        let n = self.coordinates_per_packet;
        if self.coordinates == 0 {
            return Err(LayoutError::Empty);
        }
        if n == 0 || !n.is_multiple_of(COORDINATE_UNIT) || n > MAX_COORDINATES {
            return Err(LayoutError::CoordinatesPerPacket(n));
        }
        if !ROW_LOG2.contains(&self.row_log2) {
            return Err(LayoutError::RowLog2(self.row_log2));
        }
        // The padding at most doubles the last row, so this cannot overflow once the plain count is in range.
        let least = self.coordinates.div_ceil(n);
        let packets = if least > MAX_PACKETS { least } else { self.packets() };
        if packets > MAX_PACKETS {
            return Err(LayoutError::TooManyPackets {
                coordinates: self.coordinates,
                coordinates_per_packet: n,
                packets,
            });
        }
        Ok(self)
    }

    /// Coordinates of the message.
    pub const fn coordinates(&self) -> usize {
        self.coordinates
    }

    /// Coordinates per packet, n.
    pub const fn coordinates_per_packet(&self) -> usize {
        self.coordinates_per_packet
    }

    /// Coordinates of a whole row, log₂.
    pub const fn row_log2(&self) -> u8 {
        self.row_log2
    }

    /// Rows, the last of which may be shorter.
    pub const fn rows(&self) -> usize {
        self.coordinates.div_ceil(1 << self.row_log2)
    }

    /// Coordinates with the last row's padding.
    pub const fn padded_coordinates(&self) -> usize {
        let whole = self.coordinates >> self.row_log2 << self.row_log2;
        let rest = self.coordinates - whole;
        if rest == 0 { whole } else { whole + rest.next_power_of_two() }
    }

    /// Packets of the message.
    pub const fn packets(&self) -> usize {
        self.padded_coordinates().div_ceil(self.coordinates_per_packet)
    }

    /// Rotated, padded coordinates that a packet covers; empty for an index outside of the message.
    pub fn packet_range(&self, index: usize) -> Range<usize> {
        let end = self.padded_coordinates();
        let start = index.saturating_mul(self.coordinates_per_packet).min(end);
        start..(start + self.coordinates_per_packet).min(end)
    }

    /// Rotated, padded coordinates of a row; empty for an index outside of the message.
    pub fn row_range(&self, row: usize) -> Range<usize> {
        let end = self.padded_coordinates();
        let start = row.saturating_mul(1 << self.row_log2).min(end);
        start..(start + (1 << self.row_log2)).min(end)
    }
}
