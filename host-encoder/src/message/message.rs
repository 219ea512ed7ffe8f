// SPDX-License-Identifier: Apache-2.0
//! An encoded message: its packets in one buffer.

use super::choice::EncodedRow;
use super::sealing;
use crate::wire::seal::Sealer;
use crate::wire::{Codec, Header, HeaderMask, Layout, repair};
use std::ops::Range;

/// The packets of one message, as they go on the wire. Reuse it: a second encoding of the same size
/// does not allocate.
#[derive(Debug, Clone, Default)]
pub struct Message {
    /// What was encoded; `None` before the first encoding.
    pub(super) shape: Option<Shape>,
    pub(super) rows: Vec<EncodedRow>,
    /// Where each row's packets begin.
    pub(super) starts: Vec<usize>,
    pub(super) bytes: Vec<u8>,
}

/// What decides where packets lie.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) layout: Layout,
    pub(super) codec: Codec,
    /// Of sealed packets.
    pub(super) sealer: Option<Sealer>,
}

impl Message {
    /// Number of packets.
    pub fn packets(&self) -> usize {
        self.shape.as_ref().map_or(0, |shape| shape.layout.packets())
    }

    /// How it is divided; `None` before the first encoding.
    pub fn layout(&self) -> Option<&Layout> {
        self.shape.as_ref().map(|shape| &shape.layout)
    }

    /// Whether its packets are sealed.
    pub fn is_sealed(&self) -> bool {
        self.shape.as_ref().is_some_and(|shape| shape.sealer.is_some())
    }

    /// A row's packets, one behind the other; empty beyond the last row.
    pub fn row(&self, row: usize) -> &[u8] {
        let end = self.starts.get(row + 1).copied().unwrap_or(self.bytes.len());
        let start = self.starts.get(row).copied().filter(|_| self.shape.is_some());
        start.and_then(|start| self.bytes.get(start..end)).unwrap_or_default()
    }

    /// The rows, in order; none before the first encoding.
    pub fn rows(&self) -> &[EncodedRow] {
        if self.shape.is_some() { &self.rows } else { &[] }
    }

    /// Most planes that a packet carries, from 1 to the codec's number; 0 before the first
    /// encoding.
    pub fn planes(&self) -> u8 {
        self.rows().iter().map(|row| row.planes).max().unwrap_or(0)
    }

    /// The codec; the default one before the first encoding.
    pub fn codec(&self) -> Codec {
        self.shape.as_ref().map_or(Codec::default(), |shape| shape.codec)
    }

    /// A packet's UDP payload; empty beyond the last packet.
    pub fn packet(&self, index: usize) -> &[u8] {
        let Some(Shape { layout, codec, sealer }) = self.shape.as_ref().filter(|_| index < self.packets())
        else {
            return &[];
        };
        let row = layout.packet_row(index);
        let (planes, nth) = (self.rows[row].planes, index - layout.row_packets(row).start);
        let edge = |nth| self.starts[row] + layout.bytes_before(*codec, row, nth, planes, sealer.is_some());
        self.bytes.get(edge(nth)..edge(nth + 1)).unwrap_or_default()
    }

    /// A packet's header; `None` beyond the last.
    pub fn header(&self, index: usize) -> Option<Header> {
        Header::parse(self.packet(index)).ok()
    }

    /// Whether a packet is important: switches trim and drop the others first
    /// (docs/reference/wire-format.md §7).
    pub fn importance(&self, index: usize) -> bool {
        self.header(index).is_some_and(|header| header.prefix.important)
    }

    /// A packet that carries just `planes` of packet `index`, sealed where the message is; `None`
    /// when the message does not hold any of them.
    pub fn repair(&self, index: usize, planes: Range<u8>) -> Option<Vec<u8>> {
        if let Some(Shape { layout, sealer: Some(sealer), .. }) = &self.shape {
            let sent = self.rows.get(layout.packet_row(index))?.planes;
            return sealing::repair(sealer, self.packet(index), planes, sent);
        }
        repair(self.packet(index), planes, HeaderMask::NONE)
    }
}
