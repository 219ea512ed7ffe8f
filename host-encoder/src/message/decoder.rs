// SPDX-License-Identifier: Apache-2.0
//! The rows of a message.

use super::receiver::{OutputError, Receipt, RowReceiver};
use crate::decode::decoding::Decoding;
use crate::element::Element;
use crate::rotate::Job;
use crate::simd::{Ahead, Isa};
use crate::wire::seal::Sealer;
use crate::wire::{Codec, Envelope, Layout, PacketError, PacketView};
use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};

/// How the packets of a message fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Packets of which all planes that are sent are held.
    pub full: usize,
    /// Packets of which a part is held.
    pub trimmed: usize,
    /// Packets of which nothing arrived.
    pub missing: usize,
}

/// Collects the packets of one message and decodes it.
#[derive(Debug, Clone)]
pub struct Decoder {
    layout: Layout,
    envelope: Envelope,
    parallel: bool,
    rows: Vec<RowReceiver>,
    /// The row of each packet: every one that arrives is looked up.
    row_of: Vec<u32>,
}

impl Decoder {
    /// A decoder for the message that the sender of `envelope` encodes with the default codec in
    /// the same layout and job, on one thread. Packets of other messages are refused.
    pub fn new(layout: Layout, job: Job, envelope: Envelope, decoding: Decoding) -> Self {
        let row_of = (0..layout.rows())
            .flat_map(|row| std::iter::repeat_n(row as u32, layout.row_packets(row).len()))
            .collect();
        let rows =
            (0..layout.rows()).map(|row| RowReceiver::new(&layout, row, job, envelope, decoding)).collect();
        Self { layout, envelope, parallel: false, rows, row_of }
    }

    /// For messages of another codec. Forgets what was received.
    pub fn with_codec(self, codec: Codec) -> Self {
        self.each_row(|row| row.with_codec(codec))
    }

    /// For a sender that sends the first `planes` planes only: rows are complete when they hold
    /// those. After [`Self::with_codec`]. Forgets what was received.
    pub fn with_planes(self, planes: u8) -> Self {
        self.each_row(|row| row.with_planes(planes))
    }

    /// On another instruction set. The result is the same, bit for bit.
    pub fn with_isa(self, isa: Isa) -> Self {
        self.each_row(|row| row.with_isa(isa))
    }

    /// For sealed packets (docs/reference/wire-format.md §12): planes without a right tag are
    /// ignored.
    pub fn sealed(self, sealer: &Sealer) -> Self {
        self.each_row(|row| row.sealed(sealer.clone()))
    }

    fn each_row(mut self, change: impl Fn(RowReceiver) -> RowReceiver) -> Self {
        self.rows = self.rows.into_iter().map(change).collect();
        self
    }

    /// Decodes rows in parallel, on the rayon pool of the caller. The result is the same.
    pub fn parallel(self, parallel: bool) -> Self {
        Self { parallel, ..self }
    }

    /// The message's layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Which message is expected.
    pub fn envelope(&self) -> Envelope {
        self.envelope
    }

    /// Forgets all packets and expects another message of the same kind; keeps the buffers.
    pub fn reset(&mut self, envelope: Envelope) {
        self.envelope = envelope;
        self.rows.iter_mut().for_each(|row| row.reset(envelope));
    }

    /// Prefetches a payload that will be received after one or two others, as from a ring that a
    /// network card writes.
    pub fn prefetch(payload: &[u8]) {
        Ahead::new(payload).rest();
    }

    /// Takes in the UDP payload of a DATA packet, as long as it arrived. An error changes nothing.
    pub fn receive(&mut self, payload: &[u8]) -> Result<Receipt, PacketError> {
        let view = PacketView::parse(payload)?;
        let index = view.header().index;
        match self.row_of.get(index as usize) {
            Some(&row) => self.rows[row as usize].receive_parsed(payload, &view),
            None => Err(PacketError::Index { index, packets: self.row_of.len() as u32 }),
        }
    }

    /// Whole planes held of a packet.
    pub fn coverage(&self, index: usize) -> u8 {
        self.row(index).map_or(0, |row| row.coverage(index))
    }

    /// Whether a packet arrived, if only its header.
    pub fn arrived(&self, index: usize) -> bool {
        self.row(index).is_some_and(|row| row.arrived(index))
    }

    fn row(&self, index: usize) -> Option<&RowReceiver> {
        self.rows.get(*self.row_of.get(index)? as usize)
    }

    /// Decodes a packet as if no more than `planes` planes of it had arrived, none at 0
    /// (replica-consistent decoding).
    pub fn limit(&mut self, index: usize, planes: u8) {
        if let Some(row) = self.row_of.get(index) {
            self.rows[*row as usize].limit(index, planes);
        }
    }

    /// How the packets fared.
    pub fn stats(&self) -> Stats {
        self.rows.iter().fold(Stats::default(), |stats, row| {
            let [full, trimmed, missing] = row.counts();
            Stats {
                full: stats.full + full,
                trimmed: stats.trimmed + trimmed,
                missing: stats.missing + missing,
            }
        })
    }

    /// Decodes into `out` (shape: `layout.coordinates()`).
    pub fn decode_into<E: Element>(&self, out: &mut [E]) -> Result<(), OutputError> {
        self.put(out, RowReceiver::decode_into)
    }

    /// Decodes and adds to `out`, as a reducer does.
    pub fn add_into<E: Element>(&self, out: &mut [E]) -> Result<(), OutputError> {
        self.put(out, RowReceiver::add_into)
    }

    fn put<E: Element>(
        &self,
        out: &mut [E],
        put: impl Fn(&RowReceiver, &mut [E]) -> Result<(), OutputError> + Sync,
    ) -> Result<(), OutputError> {
        let expected = self.layout.coordinates();
        if out.len() != expected {
            return Err(OutputError { got: out.len(), expected });
        }
        let mut rest = out;
        let mut rows = self.rows.iter().map(|row| {
            let (out, tail) =
                std::mem::take(&mut rest).split_at_mut(self.layout.row_coordinates(row.row()).len());
            rest = tail;
            (row, out)
        });
        if self.parallel {
            let rows: Vec<_> = rows.collect();
            rows.into_par_iter().with_max_len(1).try_for_each(|(row, out)| put(row, out))
        } else {
            rows.try_for_each(|(row, out)| put(row, out))
        }
    }
}
