// SPDX-License-Identifier: Apache-2.0
//! One row under reception.

use super::sealing::with_believed;
use crate::decode::decoding::Decoding;
use crate::decode::kept::Kept;
use crate::decode::precision::Precision;
use crate::decode::reception::Reception;
use crate::decode::row::{Put, RowDecoder};
use crate::decode::words::RowWords;
use crate::element::{Element, ValuesMut};
use crate::quantise::statistics::Statistics;
use crate::raw;
use crate::rotate::Job;
use crate::scratch::with_scratch;
use crate::simd::Isa;
use crate::wire::seal::Sealer;
use crate::wire::{Codec, Envelope, Layout, PacketError, PacketView};
use std::ops::Range;

/// What a packet added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Its index.
    pub index: usize,
    /// Whole planes held before.
    pub planes_before: u8,
    /// Whole planes held now.
    pub planes_now: u8,
    /// The packet brought nothing that was not held already.
    pub duplicate: bool,
    /// The row that the packet completed: all planes that are sent of all its packets are held now.
    pub completed: Option<usize>,
}

/// An output that is not as long as what is decoded into it. It is left as it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an output of {got} coordinates for {expected}")]
pub struct OutputError {
    /// Coordinates given.
    pub got: usize,
    /// Coordinates that are decoded, without padding.
    pub expected: usize,
}

/// Collects the packets of one row and decodes it. Rows do not depend on each other, so any thread
/// may own one and reuse it for later messages ([`Self::reset`]). [`super::Decoder`] has one for
/// each row of a message.
///
/// ```
/// # use trimwire_encoder::*;
/// let layout = Layout::new(40_000, DEFAULT_COORDINATES_PER_PACKET)?;
/// let (job, envelope) = (Job::new(7), Envelope { stream: StreamId::new(0, 3).unwrap(), message: 1 });
/// let gradient: Vec<f32> = (0..40_000).map(|i| (i as f32).sin()).collect();
/// let (encoder, codec) = (Encoder::new(layout.clone(), job), Codec::Rht);
/// let mut sum = vec![0.0; 40_000];
/// for row in 0..layout.rows() {
///     // The sender encodes a row, and its packets leave.
///     let mut packets = vec![0; encoder.row_len(row, codec.planes())];
///     let values = &gradient[layout.row_coordinates(row)];
///     encoder.encode_row(row, values, envelope, RowChoice::whole(codec), &mut packets)?;
///     // The receiver adds it to its sum as soon as it is there.
///     let mut receiver = RowReceiver::new(&layout, row, job, envelope, Decoding::Unbiased);
///     let mut rest = &packets[..];
///     for (_, place) in layout.row_places(row) {
///         let (packet, tail) = rest.split_at(codec.packet_len(codec.planes(), place.len(), false));
///         receiver.receive(packet)?;
///         rest = tail;
///     }
///     assert!(receiver.is_complete());
///     receiver.add_into(&mut sum[layout.row_coordinates(row)])?;
/// }
/// assert!(nmse(&sum, &gradient) < 1e-12);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct RowReceiver {
    pub(super) layout: Layout,
    pub(super) row: usize,
    pub(super) job: Job,
    pub(super) envelope: Envelope,
    /// Whose keys it was rotated under, if not the sender's.
    pub(super) origin: Option<Envelope>,
    pub(super) codec: Codec,
    pub(super) decoding: Decoding,
    pub(super) isa: Isa,
    pub(super) sealer: Option<Sealer>,
    /// Whole planes at which a packet counts as complete.
    pub(super) planes: u8,
    /// Index of its first packet.
    pub(super) first: usize,
    pub(super) packets: Vec<Packet>,
    /// Its packets' words, from the first packet on.
    pub(super) words: Option<RowWords>,
    /// Its packets' bytes instead, if a GPU decodes them.
    pub(super) kept: Option<Kept>,
    /// Whether the row was rotated twice: its first packet says it.
    pub(super) twice: Option<bool>,
    /// Whether its packets are marked as important.
    pub(super) important: bool,
    /// How many of its packets are not complete.
    pub(super) missing: usize,
}

/// A packet of the row.
#[derive(Debug, Clone)]
pub(super) struct Packet {
    /// Its place in the row.
    pub(super) start: u32,
    pub(super) end: u32,
    /// Planes that may be used.
    pub(super) limit: u8,
    /// Bytes of its planes that may be used; `None`: it counts as lost.
    pub(super) most: Option<u16>,
    pub(super) reception: Option<Reception>,
}

impl RowReceiver {
    /// A receiver for row `row` of the message that the sender of `envelope` encodes with the
    /// default codec in the same layout and job. Panics unless `row < layout.rows()`.
    pub fn new(layout: &Layout, row: usize, job: Job, envelope: Envelope, decoding: Decoding) -> Self {
        let packet = |(_, place): (usize, Range<usize>)| Packet {
            start: place.start as u32,
            end: place.end as u32,
            limit: u8::MAX,
            most: Some(u16::MAX),
            reception: None,
        };
        let packets: Vec<_> = layout.row_places(row).map(packet).collect();
        Self {
            layout: layout.clone(),
            row,
            job,
            envelope,
            origin: None,
            codec: Codec::default(),
            decoding,
            isa: Isa::best(),
            sealer: None,
            planes: Codec::default().planes(),
            first: layout.row_packets(row).start,
            missing: packets.len(),
            packets,
            words: None,
            kept: None,
            twice: None,
            important: false,
        }
    }

    /// For messages of another codec. Forgets what was received.
    pub fn with_codec(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self.with_planes(codec.planes())
    }

    /// For a sender that sends the first `planes` planes only: the row is complete when it holds
    /// those. After [`Self::with_codec`]. Forgets what was received.
    pub fn with_planes(mut self, planes: u8) -> Self {
        self.planes = planes.clamp(1, self.codec.planes());
        self.reset(self.envelope);
        self
    }

    /// On another instruction set. The result is the same, bit for bit.
    pub fn with_isa(self, isa: Isa) -> Self {
        Self { isa, ..self }
    }

    /// For sealed packets (docs/reference/wire-format.md §12): planes without a right tag are
    /// ignored.
    pub fn sealed(self, sealer: Sealer) -> Self {
        Self { sealer: Some(sealer), ..self }
    }

    /// For a row that its sender passes on ([`Self::repack`]): whose keys it was rotated under.
    pub fn with_origin(self, origin: Envelope) -> Self {
        Self { origin: Some(origin), ..self }
    }

    /// Forgets all packets and expects the same row of another message; keeps the buffers.
    pub fn reset(&mut self, envelope: Envelope) {
        self.envelope = envelope;
        for packet in &mut self.packets {
            (packet.reception, packet.limit, packet.most) = (None, u8::MAX, Some(u16::MAX));
        }
        (self.twice, self.missing) = (None, self.packets.len());
        self.important = false;
    }

    /// Takes over the code words' memory, four bytes a coordinate, of a receiver that is not needed
    /// any more. To be called before anything is received.
    pub fn reusing(mut self, spent: Self) -> Self {
        if self.words.is_none() && self.kept.is_none() {
            self.words = spent.words;
            if let Some(words) = &mut self.words {
                let length = self.layout.row_range(self.row).len();
                words.prepare(length);
            }
        }
        self
    }

    /// The envelope of its message.
    pub fn envelope(&self) -> Envelope {
        self.envelope
    }

    /// The row's number in its message.
    pub fn row(&self) -> usize {
        self.row
    }

    /// The division of its message.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Its codec.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// Planes at which a packet counts as complete.
    pub fn planes(&self) -> u8 {
        self.planes
    }

    /// Takes in the UDP payload of a DATA packet, as long as it arrived. An error changes nothing.
    pub fn receive(&mut self, payload: &[u8]) -> Result<Receipt, PacketError> {
        self.receive_parsed(payload, &PacketView::parse(payload)?)
    }

    /// Takes in a packet that is parsed already, under whatever mask.
    pub fn receive_parsed(
        &mut self,
        payload: &[u8],
        packet: &PacketView<'_>,
    ) -> Result<Receipt, PacketError> {
        // A clone of sixteen bytes, because `take_in` borrows the receiver.
        let Some(sealer) = self.sealer.clone() else { return self.take_in(packet) };
        let header = packet.header();
        with_believed(&sealer, header, self.planes, payload, |body| self.take_in(&packet.with_body(body)))
            .unwrap_or(Err(PacketError::Unsealed(header.index)))
    }

    #[inline]
    fn take_in(&mut self, view: &PacketView<'_>) -> Result<Receipt, PacketError> {
        let (header, codec) = (view.header(), self.codec);
        let index = header.index as usize;
        let nth = self.check(view)?;
        let packet = &mut self.packets[nth];
        let place = packet.start as usize..packet.end as usize;
        let statistics = Statistics::from(header);
        let first_sight = packet.reception.is_none();
        let contradicts =
            packet.reception.as_ref().is_some_and(|reception| reception.statistics() != statistics);
        if contradicts || *self.twice.get_or_insert(header.twice) != header.twice {
            return Err(PacketError::Contradiction(header.index));
        }
        self.important |= header.prefix.important;
        let reception = packet.reception.get_or_insert_with(|| Reception::new(statistics, place.len()));
        let planes_before = reception.leading();
        let mut receipt =
            Receipt { index, planes_before, planes_now: planes_before, duplicate: true, completed: None };
        if planes_before >= codec.planes() {
            return Ok(receipt);
        }
        let gained = if let Some(kept) = &mut self.kept {
            let room = kept.body(header, &self.layout, self.row, nth);
            reception.keep(codec, header.first_plane, view.body(), room)
        } else {
            let words = self.words.get_or_insert_with(|| {
                let length = self.layout.row_range(self.row).len();
                // No longer than the row: a message may have thousands of short ones.
                let mut words = RowWords::default();
                words.prepare(length);
                words
            });
            let words = words.packet(place);
            reception.merge(self.isa, codec, header.first_plane, view.body(), first_sight, words)
        };
        receipt.planes_now = reception.leading();
        receipt.duplicate = !gained && !first_sight;
        if (planes_before..receipt.planes_now).contains(&(self.planes - 1)) {
            self.missing -= 1;
            receipt.completed = (self.missing == 0).then_some(self.row);
        }
        Ok(receipt)
    }

    /// The packet's number in the row, if it is what the row expects.
    #[inline]
    fn check(&self, view: &PacketView<'_>) -> Result<usize, PacketError> {
        let header = view.header();
        let got = header.prefix.envelope();
        if got != self.envelope {
            return Err(PacketError::OtherMessage { got, expected: self.envelope });
        }
        if header.codec() != self.codec {
            return Err(PacketError::OtherCodec { got: header.codec(), expected: self.codec });
        }
        let index = header.index;
        let nth = (index as usize).wrapping_sub(self.first);
        let Some(packet) = self.packets.get(nth) else {
            let packets = self.first..self.first + self.packets.len();
            return Err(PacketError::OtherRow { index, row: self.row, packets });
        };
        let expected = (packet.end - packet.start) as usize;
        if header.coordinates != expected {
            return Err(PacketError::Coordinates { index, got: header.coordinates, expected });
        }
        let (got, expected) = (header.prefix.layer_class, self.layout.layer_class(self.row));
        if got != expected {
            return Err(PacketError::LayerClass { index, got, expected });
        }
        Ok(nth)
    }

    /// Whether all planes that are sent of all packets are held.
    pub fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Whole planes held of a packet of the message; 0 if it is not of this row.
    pub fn coverage(&self, index: usize) -> u8 {
        self.reception(index).map_or(0, Reception::leading)
    }

    /// Whether a packet of the message arrived, if only its header.
    pub fn arrived(&self, index: usize) -> bool {
        self.reception(index).is_some()
    }

    fn reception(&self, index: usize) -> Option<&Reception> {
        self.packets.get(index.wrapping_sub(self.first))?.reception.as_ref()
    }

    /// Bytes of planes that a packet is decoded from, without header and tags: those that arrived
    /// without a gap from plane 0 on, at most what [`Self::trim_to`] allows. `None`: it is lost, or
    /// not of this row.
    pub fn held(&self, index: usize) -> Option<usize> {
        let packet = self.packets.get(index.wrapping_sub(self.first))?;
        Some(packet.reception.as_ref()?.prefix(self.codec).min(packet.most?.into()))
    }

    /// Decodes a packet as if only the first `held` bytes of its planes had arrived (`None`: as if
    /// it were lost). A whole packet, trimmed to what [`Self::held`] said, decodes to the same
    /// bits.
    pub fn trim_to(&mut self, index: usize, held: Option<usize>) {
        if let Some(packet) = self.packets.get_mut(index.wrapping_sub(self.first)) {
            packet.most = held.map(|bytes| bytes.min(u16::MAX.into()) as u16);
        }
    }

    /// Decodes a packet as if no more than `planes` planes of it had arrived, none at 0
    /// (replica-consistent decoding).
    pub fn limit(&mut self, index: usize, planes: u8) {
        if let Some(packet) = self.packets.get_mut(index.wrapping_sub(self.first)) {
            packet.limit = planes;
        }
    }

    /// Decodes what arrived into `out` (shape: the row's coordinates, without padding). Fastest if
    /// an `out` of f32 begins at a cache line.
    pub fn decode_into<E: Element>(&self, out: &mut [E]) -> Result<(), OutputError> {
        self.put(Put::Store, E::values_mut(out))
    }

    /// Decodes what arrived and adds it to `out`, as a reducer does.
    pub fn add_into<E: Element>(&self, out: &mut [E]) -> Result<(), OutputError> {
        self.put(Put::Add, E::values_mut(out))
    }

    pub(super) fn put(&self, put: Put, out: ValuesMut<'_>) -> Result<(), OutputError> {
        let expected = self.layout.row_coordinates(self.row).len();
        if out.len() != expected {
            return Err(OutputError { got: out.len(), expected });
        }
        self.with_decoder(|decoder, words| put_row(self.codec, decoder, words, put, out));
        Ok(())
    }

    fn with_decoder(&self, decode: impl FnOnce(&RowDecoder<'_>, &RowWords)) {
        if let Some(kept) = &self.kept {
            return self.joined(kept).with_words(decode);
        }
        self.with_words(decode);
    }

    fn with_words(&self, decode: impl FnOnce(&RowDecoder<'_>, &RowWords)) {
        let nothing = RowWords::default();
        let precision = |nth: usize| self.precision(nth);
        let decoder = RowDecoder {
            layout: &self.layout,
            row: self.row,
            key: self.job.key(self.origin.unwrap_or(self.envelope)),
            decoding: self.decoding,
            isa: self.isa,
            twice: self.twice.unwrap_or(false),
            precision: &precision,
        };
        decode(&decoder, self.words.as_ref().unwrap_or(&nothing));
    }

    /// A packet's precision, if anything of it arrived.
    #[inline]
    fn precision(&self, nth: usize) -> Option<Precision> {
        let packet = self.packets.get(nth)?;
        packet.reception.as_ref()?.precision(self.codec, packet.limit, packet.most?)
    }

    /// Packets that are held whole, in part, and not at all.
    pub(super) fn counts(&self) -> [usize; 3] {
        let mut counts = [0; 3];
        for packet in &self.packets {
            counts[match &packet.reception {
                Some(reception) if reception.leading() >= self.planes => 0,
                Some(_) => 1,
                None => 2,
            }] += 1;
        }
        counts
    }
}

/// Decodes a row in any format.
pub(super) fn put_row(
    codec: Codec,
    decoder: &RowDecoder<'_>,
    words: &RowWords,
    put: Put,
    out: ValuesMut<'_>,
) {
    match codec {
        Codec::Rht => with_scratch(|scratch| decoder.decode(words, put, scratch, out)),
        Codec::Raw => raw::decode_row(decoder, words, put, out),
    }
}
