//! Packets in, gradient out: any prefix, any order, duplicates and repairs.

use crate::codec::Codec;
use crate::decode_row::{Put, RowDecoder};
use crate::held::{Held, Precision};
use crate::layout::Layout;
use crate::packet::{PacketError, PacketView};
use crate::rotation::RotationKey;
use crate::scratch::with_scratch;
use crate::simd::Isa;
use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;

/// How coordinates that did not arrive whole are filled in (DESIGN §4).
///
/// | codec | unbiased | mmse | paper |
/// |---|---|---|---|
/// | rht, rht-paper | λ · centroid | centroid | f · sign |
/// | sign-magnitude | κσ · sign | κσ · sign | σ · sign |
/// | sq, sd | ±L, ±L − t | the same | the same |
/// | raw | what arrived | the same | the same |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Decoding {
    /// λ · centroid with λ = 1 / (1 − Σ p_b D_b): unbiased, NMSE = λ − 1.
    #[default]
    Unbiased,
    /// The centroid itself: biased, the smallest error of a single transfer.
    Mmse,
    /// f · sign on every cut coordinate with f = ‖V‖² / ‖R(V)‖₁ of the row (the paper, §3.2); σ · sign without a rotation (§3.1).
    Paper,
}

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
}

/// How the packets of a message fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Packets of which all planes are held.
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
    key: RotationKey,
    decoding: Decoding,
    codec: Codec,
    isa: Isa,
    parallel: bool,
    held: Vec<Option<Held>>,
    limits: Vec<u8>,
    /// Bodies of all packets, one behind the other, each with room for all planes.
    bodies: Vec<u8>,
}

impl Decoder {
    /// A decoder for the message that an [`crate::Encoder`] of the same layout and key makes, with the default codec, on
    /// one thread.
    pub fn new(layout: Layout, key: RotationKey, decoding: Decoding) -> Self {
        let codec = Codec::default();
        let packets = layout.packets();
        Self {
            layout,
            key,
            decoding,
            codec,
            isa: Isa::best(),
            parallel: false,
            held: vec![None; packets],
            limits: vec![u8::MAX; packets],
            bodies: vec![0; codec.body_len(layout.padded_coordinates())],
        }
    }

    /// For messages of another codec. Forgets what was received.
    pub fn with_codec(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self.bodies.resize(codec.body_len(self.layout.padded_coordinates()), 0);
        self.reset(self.key);
        self
    }

    /// On another instruction set. The result is the same, bit for bit.
    pub fn with_isa(self, isa: Isa) -> Self {
        Self { isa, ..self }
    }

    /// Works on rows in parallel, on the rayon pool of the caller. The result is the same.
    pub fn parallel(self, parallel: bool) -> Self {
        Self { parallel, ..self }
    }

    /// The message's layout.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The message's codec.
    pub fn codec(&self) -> Codec {
        self.codec
    }

    /// What the message was rotated under.
    pub fn key(&self) -> RotationKey {
        self.key
    }

    /// Forgets all packets and expects a message rotated under `key`; keeps the buffers.
    pub fn reset(&mut self, key: RotationKey) {
        self.key = key;
        self.held.fill(None);
        self.limits.fill(u8::MAX);
    }

    /// Takes the UDP payload of a DATA packet in. Its length is what arrived; nothing is changed on an error.
    pub fn receive(&mut self, payload: &[u8]) -> Result<Receipt, PacketError> {
        let view = PacketView::parse(payload)?;
        let (header, codec) = (*view.header(), self.codec);
        if header.codec() != codec {
            return Err(PacketError::OtherCodec { got: header.codec(), expected: codec });
        }
        let index = header.index as usize;
        if index >= self.held.len() {
            return Err(PacketError::Index { index: header.index, packets: self.held.len() as u32 });
        }
        let place = self.layout.packet_range(index);
        if header.coordinates != place.len() {
            return Err(PacketError::Coordinates {
                index: header.index,
                got: header.coordinates,
                expected: place.len(),
            });
        }
        let first_sight = self.held[index].is_none();
        let held = self.held[index].get_or_insert(Held::new(header));
        if !held.agrees_with(&header) {
            return Err(PacketError::Contradiction(header.index));
        }
        let planes_before = held.leading();
        let slot = codec.body_len(place.start)..codec.body_len(place.end);
        let gained = held.merge(codec, header.first_plane, view.body(), &mut self.bodies[slot]);
        let planes_now = held.leading();
        Ok(Receipt { index, planes_before, planes_now, duplicate: !gained && !first_sight })
    }

    /// Whole planes held of a packet: 0 when nothing, or nothing but its head, arrived.
    pub fn coverage(&self, index: usize) -> u8 {
        self.held.get(index).copied().flatten().map_or(0, |held| held.leading())
    }

    /// Whether anything, if only its head, arrived of a packet.
    pub fn arrived(&self, index: usize) -> bool {
        self.held.get(index).is_some_and(Option::is_some)
    }

    /// Decodes a packet as if no more than `planes` planes of it had arrived, none at 0 (replica-consistent decoding).
    pub fn limit(&mut self, index: usize, planes: u8) {
        if let Some(limit) = self.limits.get_mut(index) {
            *limit = planes;
        }
    }

    /// How the packets fared.
    pub fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        for held in &self.held {
            match held {
                None => stats.missing += 1,
                Some(held) if held.leading() >= self.codec.planes() => stats.full += 1,
                Some(_) => stats.cut += 1,
            }
        }
        stats
    }

    /// Decodes into `out` (shape: `layout.coordinates()`; a longer or shorter slice is filled as far as both reach).
    pub fn finish_into(&self, out: &mut [f32]) {
        self.decode(out, Put::Store);
    }

    /// Decodes and adds to `out`, as a reducer does; shapes as in [`Self::finish_into`].
    pub fn add_into(&self, out: &mut [f32]) {
        self.decode(out, Put::Add);
    }

    /// Decodes all rows to `out`. With [`Put::AddRotated`] its shape is that of the padded message.
    pub(crate) fn decode(&self, out: &mut [f32], put: Put) {
        let row_length = self.layout.row_range(0).len();
        let held = |index: usize| self.precision(index);
        let rows = RowDecoder {
            layout: self.layout,
            key: self.key,
            codec: self.codec,
            decoding: self.decoding,
            isa: self.isa,
            bodies: &self.bodies,
            precision: &held,
        };
        let decode = |(row, out): (usize, &mut [f32])| {
            with_scratch(|scratch| rows.decode(row, put, scratch, out));
        };
        let rows = self.layout.rows();
        if self.parallel {
            out.par_chunks_mut(row_length).take(rows).enumerate().for_each(decode);
        } else {
            out.chunks_mut(row_length).take(rows).enumerate().for_each(decode);
        }
    }

    /// A packet's precision, if anything of it arrived.
    fn precision(&self, index: usize) -> Option<Precision> {
        self.held[index].and_then(|held| held.precision(self.codec, self.limits[index]))
    }
}
