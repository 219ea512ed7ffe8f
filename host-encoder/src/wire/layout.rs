// SPDX-License-Identifier: Apache-2.0
//! How a message's coordinates are divided into rows and packets (docs/reference/wire-format.md
//! §2).

use super::codec::{Codec, MAX_COORDINATES};
use super::sizes::{BLOCK, MAX_INDEX};
use std::ops::Range;
use std::sync::Arc;

/// Coordinates of a full packet of the default codec at an MTU of 1500 bytes.
pub const DEFAULT_COORDINATES_PER_PACKET: usize =
    Codec::Rht.coordinates_per_packet(1500, Codec::Rht.planes(), false);
/// Rows have 2^12 coordinates: one and its code words fit a first-level cache.
pub const DEFAULT_ROW_LOG2: u8 = 12;
/// Rows of so many coordinates are padded rather than split.
const SHORT: usize = 256;

/// Why a layout is impossible.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// Nothing to send.
    #[error("a message needs at least one coordinate")]
    Empty,
    /// A tensor of no coordinates.
    #[error("tensor {0} has no coordinates")]
    EmptyTensor(usize),
    /// A layer class that does not fit the header's three bits.
    #[error("tensor {tensor} is of layer class {layer_class} (valid: 0 to 7)")]
    LayerClass {
        /// Which one.
        tensor: usize,
        /// Its class.
        layer_class: u8,
    },
    /// A packet's coordinates do not fit the header.
    #[error("{0} coordinates a packet (valid: multiples of 32 from 32 to 8160)")]
    CoordinatesPerPacket(usize),
    /// Row length out of range.
    #[error("rows of 2^{0} coordinates (valid: 2^5 to 2^20)")]
    RowLog2(u8),
    /// The header's index has 24 bits.
    #[error("{packets} packets do not fit a message (at most {})", MAX_INDEX + 1)]
    TooLong {
        /// Packets the message would have, counted until it was clear that they are too many.
        packets: usize,
    },
}

/// A parameter of the model, or several that are treated as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tensor {
    /// Its coordinates, at least one.
    pub coordinates: usize,
    /// 0 (front layers, which the next step needs first) to 7.
    pub layer_class: u8,
}

/// The division of a message into rows and packets; both ends derive it from the same numbers.
///
/// A message is made of tensors, one behind the other. Rows are rotated as a whole, so each has a
/// power of two of coordinates; none straddles two tensors (who wants that passes them as one). A
/// packet never straddles two rows: their energies differ by up to two orders of magnitude, and σ
/// would fit neither. What is left behind a tensor's rows of full length is split into ever shorter
/// ones, with at most a few percent of padding. A row's blocks of 32 coordinates are shared out
/// among its packets as evenly as they go, the longer packets first.
///
/// Cloning is cheap: clones share their table of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout(Arc<Table>);

#[derive(Debug, PartialEq, Eq)]
struct Table {
    tensors: Vec<Tensor>,
    per_packet: usize,
    row_log2: u8,
    rows: Vec<Row>,
    coordinates: usize,
    padded: usize,
    packets: usize,
    masks: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Row {
    /// Where its coordinates begin in the message, without padding and with it.
    start: usize,
    padded_start: usize,
    /// Without padding.
    coordinates: u32,
    /// With padding.
    length: u32,
    first_packet: u32,
    /// Bytes of the masks of zero blocks in the packets before it, where there are any.
    masks: u32,
    layer_class: u8,
}

impl Layout {
    /// A message of one tensor of `coordinates` in layer class 0, at most `per_packet` of them in a
    /// packet ([`Codec::coordinates_per_packet`]), in rows of 2^12.
    pub fn new(coordinates: usize, per_packet: usize) -> Result<Self, LayoutError> {
        if coordinates == 0 {
            return Err(LayoutError::Empty);
        }
        Self::of_tensors(&[Tensor { coordinates, layer_class: 0 }], per_packet)
    }

    /// A message of several tensors, one behind the other, otherwise as [`Self::new`].
    pub fn of_tensors(tensors: &[Tensor], per_packet: usize) -> Result<Self, LayoutError> {
        Self::build(tensors.to_vec(), per_packet, DEFAULT_ROW_LOG2)
    }

    /// The same message in rows of at most 2^`row_log2` coordinates.
    pub fn with_row_log2(&self, row_log2: u8) -> Result<Self, LayoutError> {
        if !(5..=20).contains(&row_log2) {
            return Err(LayoutError::RowLog2(row_log2));
        }
        Self::build(self.0.tensors.clone(), self.0.per_packet, row_log2)
    }

    /// The same message with all tensors in one layer class.
    pub fn with_layer_class(&self, layer_class: u8) -> Result<Self, LayoutError> {
        let tensors = self.0.tensors.iter().map(|tensor| Tensor { layer_class, ..*tensor }).collect();
        Self::build(tensors, self.0.per_packet, self.0.row_log2)
    }

    fn build(tensors: Vec<Tensor>, per_packet: usize, row_log2: u8) -> Result<Self, LayoutError> {
        if per_packet == 0 || !per_packet.is_multiple_of(BLOCK) || per_packet > MAX_COORDINATES {
            return Err(LayoutError::CoordinatesPerPacket(per_packet));
        }
        if tensors.is_empty() {
            return Err(LayoutError::Empty);
        }
        let (mut rows, mut coordinates, mut padded, mut packets, mut masks) = (Vec::new(), 0, 0, 0, 0);
        for (number, tensor) in tensors.iter().enumerate() {
            let Tensor { coordinates: mut left, layer_class } = *tensor;
            if left == 0 {
                return Err(LayoutError::EmptyTensor(number));
            }
            if layer_class > 7 {
                return Err(LayoutError::LayerClass { tensor: number, layer_class });
            }
            while left > 0 {
                let length = row_length(left, row_log2);
                let here = left.min(length);
                rows.push(Row {
                    start: coordinates,
                    padded_start: padded,
                    coordinates: here as u32,
                    length: length as u32,
                    first_packet: packets as u32,
                    masks,
                    layer_class,
                });
                let here_packets = length.div_ceil(per_packet);
                masks += row_masks(length / BLOCK, here_packets, here_packets) as u32;
                packets += here_packets;
                // Here and not in the end: a made-up number of coordinates must not take the memory
                // of its rows.
                if packets > MAX_INDEX as usize + 1 {
                    return Err(LayoutError::TooLong { packets });
                }
                (left, coordinates, padded) = (left - here, coordinates + here, padded + length);
            }
        }
        Ok(Self(Arc::new(Table { tensors, per_packet, row_log2, rows, coordinates, padded, packets, masks })))
    }

    /// The tensors that the message is made of.
    pub fn tensors(&self) -> &[Tensor] {
        &self.0.tensors
    }

    /// Most coordinates that a packet carries.
    pub fn coordinates_per_packet(&self) -> usize {
        self.0.per_packet
    }

    /// log2 of the length of the longest rows that there may be.
    pub fn row_log2(&self) -> u8 {
        self.0.row_log2
    }

    /// Coordinates of the message, without padding.
    pub fn coordinates(&self) -> usize {
        self.0.coordinates
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.0.rows.len()
    }

    /// Number of packets.
    pub fn packets(&self) -> usize {
        self.0.packets
    }

    /// Coordinates with padding.
    pub fn padded_coordinates(&self) -> usize {
        self.0.padded
    }

    /// A row's place in the padded message; its length is a power of two. Panics unless `row <
    /// rows()`, as all that follow.
    pub fn row_range(&self, row: usize) -> Range<usize> {
        let Row { padded_start, length, .. } = self.0.rows[row];
        padded_start..padded_start + length as usize
    }

    /// A row's coordinates in the message, without padding.
    pub fn row_coordinates(&self, row: usize) -> Range<usize> {
        let Row { start, coordinates, .. } = self.0.rows[row];
        start..start + coordinates as usize
    }

    /// A row's layer class: its tensor's.
    pub fn layer_class(&self, row: usize) -> u8 {
        self.0.rows[row].layer_class
    }

    /// The packets of a row.
    pub fn row_packets(&self, row: usize) -> Range<usize> {
        let end = self.0.rows.get(row + 1).map_or(self.0.packets, |next| next.first_packet as usize);
        self.0.rows[row].first_packet as usize..end
    }

    /// The packets of a row, each with its place in the padded row.
    pub fn row_places(&self, row: usize) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let packets = self.row_packets(row);
        let edge = edges(self.row_range(row).len() / BLOCK, packets.len());
        let first = packets.start;
        packets.map(move |index| (index, edge(index - first)..edge(index - first + 1)))
    }

    /// The row that a packet belongs to; `index < packets()`.
    pub fn packet_row(&self, index: usize) -> usize {
        self.0.rows.partition_point(|row| row.first_packet as usize <= index).saturating_sub(1)
    }

    /// A packet's place in the padded message; `index < packets()`.
    pub fn packet_range(&self, index: usize) -> Range<usize> {
        let row = self.packet_row(index);
        let (Range { start, end }, packets) = (self.row_range(row), self.row_packets(row));
        let (edge, nth) = (edges((end - start) / BLOCK, packets.len()), index - packets.start);
        start + edge(nth)..start + edge(nth + 1)
    }

    /// Bytes of a packet's UDP payload when it carries the first `planes` planes and is not sealed.
    pub fn packet_len(&self, codec: Codec, index: usize, planes: u8) -> usize {
        codec.packet_len(planes, self.packet_range(index).len(), false)
    }

    /// Bytes of a row's packets together, with the first `planes` planes.
    pub fn row_len(&self, codec: Codec, row: usize, planes: u8, sealed: bool) -> usize {
        self.bytes_before(codec, row, self.row_packets(row).len(), planes, sealed)
    }

    /// Bytes of the first `nth` packets of a row, with the first `planes` planes.
    pub fn bytes_before(&self, codec: Codec, row: usize, nth: usize, planes: u8, sealed: bool) -> usize {
        let (blocks, packets) = (self.row_range(row).len() / BLOCK, self.row_packets(row).len());
        let nth = nth.min(packets);
        let masks = if codec.rotates() { row_masks(blocks, packets, nth) } else { 0 };
        length_of(codec, nth, edges(blocks, packets)(nth), masks, planes, sealed)
    }

    /// Bytes of all packets of the rows in front of one, with the first `planes` planes; of row
    /// `rows()`, of all packets of the message.
    pub fn row_start(&self, codec: Codec, row: usize, planes: u8, sealed: bool) -> usize {
        let Table { padded, packets, masks, rows, .. } = &*self.0;
        let (packets, padded, masks) = rows.get(row).map_or((*packets, *padded, *masks), |row| {
            (row.first_packet as usize, row.padded_start, row.masks)
        });
        let masks = if codec.rotates() { masks as usize } else { 0 };
        length_of(codec, packets, padded, masks, planes, sealed)
    }

    /// Bytes of all packets of a message, with the first `planes` planes.
    pub fn message_len(&self, codec: Codec, planes: u8, sealed: bool) -> usize {
        self.row_start(codec, self.rows(), planes, sealed)
    }
}

/// Bytes of packets that hold so many coordinates together, and masks of so many bytes. Planes have
/// the same number of bits for every coordinate, so it does not matter how they are shared out.
fn length_of(
    codec: Codec,
    packets: usize,
    coordinates: usize,
    masks: usize,
    planes: u8,
    sealed: bool,
) -> usize {
    let masks = if planes == 0 { 0 } else { masks };
    packets * codec.packet_len(planes, 0, sealed) + codec.bits(planes) * (coordinates / 8) + masks
}

/// Bytes of the masks of zero blocks in the first `nth` packets of a row of `blocks` in `packets`,
/// where the codec has masks.
fn row_masks(blocks: usize, packets: usize, nth: usize) -> usize {
    let (each, longer) = (blocks / packets, (blocks % packets).min(nth));
    let mask = |blocks: usize| Codec::Rht.mask_len(blocks * BLOCK);
    longer * mask(each + 1) + (nth - longer) * mask(each)
}

/// Where a row's packets begin, the one past the last included, in coordinates: a row of `blocks`
/// in `packets` of them. Those of one block more come first, so that packets of one length follow
/// each other, which is what a kernel sends in one piece (UDP_SEGMENT).
fn edges(blocks: usize, packets: usize) -> impl Fn(usize) -> usize {
    let (each, longer) = (blocks / packets, blocks % packets);
    move |nth| (nth * each + nth.min(longer)) * BLOCK
}

/// The length of the next row where `left` coordinates of a tensor are left: a full one, the last
/// one, which is padded, or half of what it would be.
fn row_length(left: usize, row_log2: u8) -> usize {
    let full = 1 << row_log2;
    if left >= full {
        return full;
    }
    let padded = left.next_power_of_two().max(BLOCK);
    if padded <= SHORT || padded - left <= padded / 32 { padded } else { padded / 2 }
}

#[cfg(test)]
mod tests;
