// SPDX-License-Identifier: Apache-2.0
//! The rows of a message.

use super::receiver::{OutputError, Receipt, RowReceiver};
use crate::decode::decoding::Decoding;
use crate::decode::words::RowWords;
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
    pub cut: usize,
    /// Packets of which nothing arrived.
    pub missing: usize,
}

/// Collects the packets of one message and decodes it.
#[derive(Debug, Clone)]
pub struct Decoder {
    layout: Layout,
    job: Job,
    envelope: Envelope,
    codec: Codec,
    parallel: bool,
    rows: Vec<RowReceiver>,
    /// The row of each packet: every one that arrives is looked up.
    row_of: Vec<u32>,
    /// Words of rows that are decoded, for others to use.
    spare: Vec<RowWords>,
}

impl Decoder {
    /// A decoder for the message that the sender of `envelope` encodes with the default codec in the same layout and job, on
    /// one thread. Packets of other messages are refused.
    pub fn new(layout: Layout, job: Job, envelope: Envelope, decoding: Decoding) -> Self {
        let row_of = (0..layout.rows())
            .flat_map(|row| std::iter::repeat_n(row as u32, layout.row_packets(row).len()))
            .collect();
        let rows =
            (0..layout.rows()).map(|row| RowReceiver::new(&layout, row, job, envelope, decoding)).collect();
        let spare = Vec::with_capacity(layout.rows());
        Self { layout, job, envelope, codec: Codec::default(), parallel: false, rows, row_of, spare }
    }

    /// For messages of another codec. Forgets what was received.
    pub fn with_codec(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self.each_row(|row| row.with_codec(codec))
    }

    /// For a sender that sends the first `planes` planes only: rows are complete when they hold those. After [`Self::with_codec`].
    /// Forgets what was received.
    pub fn with_planes(self, planes: u8) -> Self {
        self.each_row(|row| row.with_planes(planes))
    }

    /// For a sender that chooses planes row by row; otherwise as [`Self::with_planes`].
    pub fn with_row_planes(self, planes: impl Fn(usize) -> u8) -> Self {
        self.each_row(|row| {
            let planes = planes(row.row());
            row.with_planes(planes)
        })
    }

    /// On another instruction set. The result is the same, bit for bit.
    pub fn with_isa(self, isa: Isa) -> Self {
        self.each_row(|row| row.with_isa(isa))
    }

    /// For sealed packets (docs/reference/wire-format.md §12). What no right tag vouches for is not believed.
    pub fn sealed(self, sealer: &Sealer) -> Self {
        self.each_row(|row| row.sealed(sealer.clone()))
    }

    fn each_row(mut self, change: impl Fn(RowReceiver) -> RowReceiver) -> Self {
        self.rows = self.rows.into_iter().map(change).collect();
        self
    }

    /// Decodes rows in parallel, on the rayon pool of the caller. The result is the same. (Who wants to receive in parallel, too, gives each thread
    /// rows of its own: [`Self::into_rows`].)
    pub fn parallel(self, parallel: bool) -> Self {
        Self { parallel, ..self }
    }

    /// The message's layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The message's codec.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// What the message was rotated under.
    pub fn job(&self) -> Job {
        self.job
    }

    /// Which message is expected.
    pub fn envelope(&self) -> Envelope {
        self.envelope
    }

    /// The rows, for threads to own.
    pub fn into_rows(self) -> Vec<RowReceiver> {
        self.rows
    }

    /// The rows.
    pub fn rows(&self) -> &[RowReceiver] {
        &self.rows
    }

    /// Forgets all packets and expects another message of the same kind; keeps the buffers.
    pub fn reset(&mut self, envelope: Envelope) {
        self.envelope = envelope;
        self.rows.iter_mut().for_each(|row| row.reset(envelope));
    }

    /// Asks the machine to bring a payload closer that will be received after one or two others: for receivers that have several at hand which
    /// nobody touched lately, as in a ring that a network card writes. A hint; nothing else happens.
    pub fn prefetch(payload: &[u8]) {
        Ahead::new(payload).rest();
    }

    /// Takes the UDP payload of a DATA packet in. Its length is what arrived; nothing is changed on an error.
    pub fn receive(&mut self, payload: &[u8]) -> Result<Receipt, PacketError> {
        let view = PacketView::parse(payload)?;
        let index = view.header().index;
        match self.row_of.get(index as usize) {
            Some(&row) => self.rows[row as usize].open(payload, &view, &mut self.spare),
            None => Err(PacketError::Index { index, packets: self.row_of.len() as u32 }),
        }
    }

    /// Whole planes held of a packet: 0 when nothing, or nothing but its header, arrived.
    pub fn coverage(&self, index: usize) -> u8 {
        self.row(index).map_or(0, |row| row.coverage(index))
    }

    /// Whether anything, if only its header, arrived of a packet.
    pub fn arrived(&self, index: usize) -> bool {
        self.row(index).is_some_and(|row| row.arrived(index))
    }

    fn row(&self, index: usize) -> Option<&RowReceiver> {
        self.rows.get(*self.row_of.get(index)? as usize)
    }

    /// Decodes a packet as if no more than `planes` planes of it had arrived, none at 0 (replica-consistent decoding).
    pub fn limit(&mut self, index: usize, planes: u8) {
        if let Some(row) = self.row_of.get(index) {
            self.rows[*row as usize].limit(index, planes);
        }
    }

    /// How the packets fared.
    pub fn stats(&self) -> Stats {
        self.rows.iter().fold(Stats::default(), |stats, row| {
            let [full, cut, missing] = row.counts();
            Stats { full: stats.full + full, cut: stats.cut + cut, missing: stats.missing + missing }
        })
    }

    /// Decodes a complete row ([`Receipt::completed`]) into `out` (shape: `layout.row_coordinates(row)`) while it is in the cache, and makes
    /// room for others. Returns whether it did: not where packets of the row are missing or cut, or where it was taken before.
    /// [`Self::decode_into`] leaves rows alone that were taken. Fastest where an `out` of f32 begins at a cache line.
    pub fn decode_row_into<E: Element>(&mut self, row: usize, out: &mut [E]) -> Result<bool, OutputError> {
        self.take_row(row, out, RowReceiver::decode_into)
    }

    /// Decodes a complete row and adds it to `out`; otherwise as [`Self::decode_row_into`].
    pub fn add_row_into<E: Element>(&mut self, row: usize, out: &mut [E]) -> Result<bool, OutputError> {
        self.take_row(row, out, RowReceiver::add_into)
    }

    fn take_row<E: Element>(
        &mut self,
        row: usize,
        out: &mut [E],
        put: impl FnOnce(&RowReceiver, &mut [E]) -> Result<(), OutputError>,
    ) -> Result<bool, OutputError> {
        let Some(row) = self.rows.get_mut(row).filter(|row| row.is_complete()) else { return Ok(false) };
        put(row, out)?;
        self.spare.extend(row.take());
        Ok(true)
    }

    /// Decodes into `out` (shape: `layout.coordinates()`), but for rows that were taken already.
    pub fn decode_into<E: Element>(&self, out: &mut [E]) -> Result<(), OutputError> {
        self.put(out, RowReceiver::decode_into)
    }

    /// Decodes and adds to `out`, as a reducer does; shapes and rows as in [`Self::decode_into`].
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
        let rows = self.rows.iter().map(|row| {
            let (out, tail) =
                std::mem::take(&mut rest).split_at_mut(self.layout.row_coordinates(row.row()).len());
            rest = tail;
            (row, out)
        });
        let mut rows = rows.filter(|(row, _)| !row.is_taken());
        if self.parallel {
            let rows: Vec<_> = rows.collect();
            rows.into_par_iter().with_max_len(1).try_for_each(|(row, out)| put(row, out))
        } else {
            rows.try_for_each(|(row, out)| put(row, out))
        }
    }
}
