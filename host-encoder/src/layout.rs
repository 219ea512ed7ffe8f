//! How a message's coordinates are divided into rows and packets.

use crate::codec::Codec;
use crate::packet::{BLOCK, HEADER_LEN, MAX_INDEX};
use std::ops::Range;

/// Coordinates of a full packet of the default codec at an MTU of 1500 bytes.
pub const DEFAULT_COORDINATES_PER_PACKET: usize = Codec::Rht.coordinates_per_packet();
/// Rows have 2^15 coordinates (the paper, §3.2).
pub const DEFAULT_ROW_LOG2: u8 = 15;

/// Why a layout is impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Nothing to send.
    #[error("a message needs at least one coordinate")]
    Empty,
    /// A packet's coordinates do not fit the header.
    #[error("{0} coordinates a packet (valid: multiples of 32 from 32 to 8160)")]
    CoordinatesPerPacket(usize),
    /// Row length out of range.
    #[error("rows of 2^{0} coordinates (valid: 2^5 to 2^20)")]
    RowLog2(u8),
    /// The header's index has 20 bits.
    #[error("{packets} packets do not fit a message (at most {})", MAX_INDEX + 1)]
    TooLong {
        /// Packets the message would have.
        packets: usize,
    },
}

/// The division of a message into rows and packets; both ends derive it from the same numbers.
///
/// Rows are rotated as a whole, so each is padded to a power of two (only the last one can be shorter than the
/// rest). A packet never straddles two rows: their energies differ by up to two orders of magnitude, and σ would
/// fit neither. A row's blocks of 32 coordinates are shared out among its packets as evenly as they go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    coordinates: usize,
    per_packet: usize,
    row_log2: u8,
    /// Packets of a full row.
    row_packets: usize,
}

impl Layout {
    /// A message of `coordinates`, at most `per_packet` of them in a packet, in rows of 2^15.
    pub fn new(coordinates: usize, per_packet: usize) -> Result<Self, LayoutError> {
        if per_packet == 0 || !per_packet.is_multiple_of(BLOCK) || per_packet > 255 * BLOCK {
            return Err(LayoutError::CoordinatesPerPacket(per_packet));
        }
        if coordinates == 0 {
            return Err(LayoutError::Empty);
        }
        Self { coordinates, per_packet, row_log2: DEFAULT_ROW_LOG2, row_packets: 0 }.checked()
    }

    /// The same message in rows of 2^`row_log2` coordinates.
    pub fn with_row_log2(self, row_log2: u8) -> Result<Self, LayoutError> {
        if !(5..=20).contains(&row_log2) {
            return Err(LayoutError::RowLog2(row_log2));
        }
        Self { row_log2, ..self }.checked()
    }

    fn checked(self) -> Result<Self, LayoutError> {
        let this = Self { row_packets: (1usize << self.row_log2).div_ceil(self.per_packet), ..self };
        let packets = this.packets();
        if packets > MAX_INDEX as usize + 1 {
            return Err(LayoutError::TooLong { packets });
        }
        Ok(this)
    }

    /// Most coordinates that a packet carries.
    pub fn coordinates_per_packet(&self) -> usize {
        self.per_packet
    }

    /// log2 of the row length.
    pub fn row_log2(&self) -> u8 {
        self.row_log2
    }

    /// Coordinates of the message, without padding.
    pub fn coordinates(&self) -> usize {
        self.coordinates
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.full_rows() + usize::from(self.last_row() > 0)
    }

    /// Number of packets.
    pub fn packets(&self) -> usize {
        self.full_rows() * self.row_packets + self.packets_of(self.last_row())
    }

    /// Coordinates with padding.
    pub fn padded_coordinates(&self) -> usize {
        (self.full_rows() << self.row_log2) + self.last_row()
    }

    /// A row's place in the padded message; `row < rows()`.
    pub fn row_range(&self, row: usize) -> Range<usize> {
        let start = row << self.row_log2;
        start..start + if row < self.full_rows() { 1 << self.row_log2 } else { self.last_row() }
    }

    /// A row's coordinates, without padding; `row < rows()`.
    pub fn row_coordinates(&self, row: usize) -> Range<usize> {
        let Range { start, end } = self.row_range(row);
        start..end.min(self.coordinates)
    }

    /// The packets of a row.
    pub fn row_packets(&self, row: usize) -> Range<usize> {
        let start = row * self.row_packets;
        start
            ..start + if row < self.full_rows() { self.row_packets } else { self.packets_of(self.last_row()) }
    }

    /// The packets of a row, each with its place in the row.
    pub(crate) fn row_places(&self, row: usize) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let (blocks, packets) = (self.row_range(row).len() / BLOCK, self.row_packets(row));
        // Packet k ends at block ⌊(k + 1) · blocks / count⌋: the quotients of a division that is done once, carry by carry.
        let count = packets.len();
        let (each, left) = (blocks / count, blocks % count);
        let (mut end, mut carry) = (0, 0);
        packets.map(move |index| {
            let start = end;
            carry += left;
            let more = carry >= count;
            carry -= if more { count } else { 0 };
            end += (each + usize::from(more)) * BLOCK;
            (index, start..end)
        })
    }

    /// The row that a packet belongs to; `index < packets()`.
    pub fn packet_row(&self, index: usize) -> usize {
        (index / self.row_packets).min(self.rows().saturating_sub(1))
    }

    /// A packet's place in the padded message; `index < packets()`.
    pub fn packet_range(&self, index: usize) -> Range<usize> {
        let row = self.packet_row(index);
        let (Range { start, end }, packets) = (self.row_range(row), self.row_packets(row));
        let (blocks, nth) = ((end - start) / BLOCK, index - packets.start);
        let edge = |nth: usize| start + nth * blocks / packets.len() * BLOCK;
        edge(nth)..edge(nth + 1)
    }

    /// Bytes of a packet's UDP payload when it carries the first `planes` planes.
    pub fn packet_len(&self, codec: Codec, index: usize, planes: u8) -> usize {
        HEADER_LEN + codec.plane_offset(planes, self.packet_range(index).len())
    }

    /// Where a packet begins in a buffer that holds all packets of a message one behind the other, bytes.
    pub fn packet_offset(&self, codec: Codec, index: usize, planes: u8) -> usize {
        // Planes have the same number of bits for every coordinate, so the coordinates in front say it all.
        let before =
            if index < self.packets() { self.packet_range(index).start } else { self.padded_coordinates() };
        index.min(self.packets()) * HEADER_LEN + codec.plane_offset(planes, before)
    }

    /// Bytes of all packets of a message.
    pub fn message_len(&self, codec: Codec, planes: u8) -> usize {
        self.packet_offset(codec, self.packets(), planes)
    }

    fn full_rows(&self) -> usize {
        self.coordinates >> self.row_log2
    }

    /// Padded length of the row behind the full ones; 0 when there is none.
    fn last_row(&self) -> usize {
        match self.coordinates & ((1 << self.row_log2) - 1) {
            0 => 0,
            rest => rest.next_power_of_two().max(BLOCK),
        }
    }

    fn packets_of(&self, row_length: usize) -> usize {
        row_length.div_ceil(self.per_packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn packets_tile_the_padded_message_and_stay_in_their_row(
            coordinates in 1usize..300_000, blocks in 1usize..60, row_log2 in 5u8..17,
        ) {
            let layout = Layout::new(coordinates, blocks * 32).unwrap().with_row_log2(row_log2).unwrap();
            prop_assert!(layout.padded_coordinates() >= coordinates);
            for row in 0..layout.rows() {
                let start = layout.row_range(row).start;
                for (index, place) in layout.row_places(row) {
                    prop_assert_eq!(start + place.start..start + place.end, layout.packet_range(index));
                }
            }
            let mut next = 0;
            for index in 0..layout.packets() {
                let range = layout.packet_range(index);
                prop_assert_eq!(range.start, next);
                prop_assert!(!range.is_empty() && range.len() <= blocks * 32 && range.len().is_multiple_of(32));
                let row = layout.packet_row(index);
                prop_assert!(layout.row_packets(row).contains(&index));
                let row = layout.row_range(row);
                prop_assert!(row.start <= range.start && range.end <= row.end);
                next = range.end;
            }
            prop_assert_eq!(next, layout.padded_coordinates());
        }
    }

    #[test]
    fn impossible_layouts_are_refused() {
        assert_eq!(Layout::new(0, 352), Err(LayoutError::Empty));
        assert_eq!(Layout::new(5, 33), Err(LayoutError::CoordinatesPerPacket(33)));
        assert_eq!(Layout::new(5, 8192), Err(LayoutError::CoordinatesPerPacket(8192)));
        assert!(matches!(Layout::new(1 << 30, 32), Err(LayoutError::TooLong { .. })));
    }
}
