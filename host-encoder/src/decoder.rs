//! Packets in, gradient out: any prefix, any order, duplicates and repairs.

use crate::codec::Codec;
use crate::decode_row::{Put, RowDecoder};
use crate::head::Head;
use crate::held::{Held, Precision};
use crate::layout::Layout;
use crate::packet::{PacketError, PacketView};
use crate::rotation::RotationKey;
use crate::scratch::with_scratch;
use crate::simd::{Ahead, Isa};
use crate::words::RowWords;
use rayon::iter::{IndexedParallelIterator, IntoParallelRefIterator, ParallelIterator};
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
    /// The row that the packet completed: all planes of all its packets are held now ([`Decoder::with_planes`]: all that are sent).
    /// [`Decoder::finish_row_into`] takes it.
    pub completed: Option<usize>,
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
    /// Whole planes at which a packet counts as complete.
    planes: u8,
    held: Vec<Option<Held>>,
    limits: Vec<u8>,
    /// Where each packet belongs: every one that arrives is looked up.
    places: Vec<Place>,
    rows: Vec<Row>,
    /// Words of rows that are decoded, for others to use.
    spare: Vec<RowWords>,
}

/// Where a packet belongs.
#[derive(Debug, Clone, Copy)]
struct Place {
    row: u32,
    /// Its coordinates, counted from the row's first.
    start: u32,
    end: u32,
}

/// A row under reception.
#[derive(Debug, Clone)]
struct Row {
    /// Its packets' words, from the first packet on.
    words: Option<RowWords>,
    /// How many of its packets are not complete.
    missing: usize,
    /// It was decoded, and its words are gone.
    taken: bool,
}

impl Row {
    fn new(packets: usize) -> Self {
        Self { words: None, missing: packets, taken: false }
    }
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
            planes: codec.planes(),
            held: vec![None; packets],
            limits: vec![u8::MAX; packets],
            places: (0..layout.rows())
                .flat_map(|row| layout.row_places(row).map(move |(_, place)| (row, place)))
                .map(|(row, place)| Place {
                    row: row as u32,
                    start: place.start as u32,
                    end: place.end as u32,
                })
                .collect(),
            rows: (0..layout.rows()).map(|row| Row::new(layout.row_packets(row).len())).collect(),
            spare: Vec::with_capacity(layout.rows()),
        }
    }

    /// For messages of another codec. Forgets what was received.
    pub fn with_codec(mut self, codec: Codec) -> Self {
        self.codec = codec;
        self.planes = codec.planes();
        self.reset(self.key);
        self
    }

    /// For a sender that sends the first `planes` planes only: rows are complete when they hold those. After [`Self::with_codec`].
    /// Forgets what was received.
    pub fn with_planes(mut self, planes: u8) -> Self {
        self.planes = planes.clamp(1, self.codec.planes());
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
        for (index, row) in self.rows.iter_mut().enumerate() {
            self.spare.extend(row.words.take());
            *row = Row::new(self.layout.row_packets(index).len());
        }
    }

    /// Asks the machine to bring a payload closer that will be received after one or two others: for receivers that have several at hand which
    /// nobody touched lately, as in a ring that a network card writes. A hint; nothing else happens.
    pub fn prefetch(payload: &[u8]) {
        Ahead::new(payload).rest();
    }

    /// Takes the UDP payload of a DATA packet in. Its length is what arrived; nothing is changed on an error.
    pub fn receive(&mut self, payload: &[u8]) -> Result<Receipt, PacketError> {
        let view = PacketView::parse(payload)?;
        let (header, codec) = (*view.header(), self.codec);
        if header.codec() != codec {
            return Err(PacketError::OtherCodec { got: header.codec(), expected: codec });
        }
        let index = header.index as usize;
        let (Some(&Place { row, start, end }), Some(slot)) =
            (self.places.get(index), self.held.get_mut(index))
        else {
            return Err(PacketError::Index { index: header.index, packets: self.held.len() as u32 });
        };
        let (row_index, within) = (row as usize, start as usize..end as usize);
        if header.coordinates != within.len() {
            return Err(PacketError::Coordinates {
                index: header.index,
                got: header.coordinates,
                expected: within.len(),
            });
        }
        let head = Head::from(&header);
        let first_sight = slot.is_none();
        let held = match slot {
            Some(held) if held.head() == head => held,
            Some(_) => return Err(PacketError::Contradiction(header.index)),
            None => slot.insert(Held::new(head, header.coordinates)),
        };
        let planes_before = held.leading();
        let row = &mut self.rows[row_index];
        let mut receipt =
            Receipt { index, planes_before, planes_now: planes_before, duplicate: true, completed: None };
        if row.taken || planes_before >= codec.planes() {
            return Ok(receipt);
        }
        let words = row.words.get_or_insert_with(|| {
            let mut words = self.spare.pop().unwrap_or_default();
            words.prepare(codec, self.layout.row_range(row_index).len(), self.layout.row_range(0).len());
            words
        });
        let words = words.of_mut(within);
        let gained = held.merge(self.isa, codec, header.first_plane, view.body(), first_sight, words);
        receipt.planes_now = held.leading();
        receipt.duplicate = !gained && !first_sight;
        if (planes_before..receipt.planes_now).contains(&(self.planes - 1)) {
            row.missing -= 1;
            receipt.completed = (row.missing == 0).then_some(row_index);
        }
        Ok(receipt)
    }

    /// Whole planes held of a packet: 0 when nothing, or nothing but its head, arrived.
    pub fn coverage(&self, index: usize) -> u8 {
        self.held.get(index).and_then(Option::as_ref).map_or(0, Held::leading)
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

    /// Decodes a complete row ([`Receipt::completed`]) into `out` (shape: `layout.row_coordinates(row)`) while it is in the cache, and makes
    /// room for others. Returns whether it did: not where packets of the row are missing or cut, or where it was taken before.
    /// [`Self::finish_into`] leaves rows alone that were taken. Fastest where `out` begins at a cache line.
    pub fn finish_row_into(&mut self, row: usize, out: &mut [f32]) -> bool {
        self.take_row(row, Put::Store, out)
    }

    /// Decodes a complete row and adds it to `out`; otherwise as [`Self::finish_row_into`].
    pub fn add_row_into(&mut self, row: usize, out: &mut [f32]) -> bool {
        self.take_row(row, Put::Add, out)
    }

    fn take_row(&mut self, row: usize, put: Put, out: &mut [f32]) -> bool {
        let Some(state) = self.rows.get_mut(row) else { return false };
        if state.missing > 0 {
            return false;
        }
        let Some(words) = state.words.take() else { return false };
        self.decode_row(row, &words, put, out);
        self.rows[row].taken = true;
        self.spare.push(words);
        true
    }

    /// Decodes into `out` (shape: `layout.coordinates()`; a longer or shorter slice is filled as far as both reach), but for rows that were
    /// taken already.
    pub fn finish_into(&self, out: &mut [f32]) {
        self.decode(out, Put::Store);
    }

    /// Decodes and adds to `out`, as a reducer does; shapes and rows as in [`Self::finish_into`].
    pub fn add_into(&self, out: &mut [f32]) {
        self.decode(out, Put::Add);
    }

    /// The first row that was taken.
    pub(crate) fn first_taken(&self) -> Option<usize> {
        self.rows.iter().position(|row| row.taken)
    }

    /// Decodes all rows to `out`. With [`Put::AddRotated`] its shape is that of the padded message.
    pub(crate) fn decode(&self, out: &mut [f32], put: Put) {
        let row_length = self.layout.row_range(0).len();
        let nothing = RowWords::default();
        let decode = |((row, state), out): ((usize, &Row), &mut [f32])| {
            if !state.taken {
                self.decode_row(row, state.words.as_ref().unwrap_or(&nothing), put, out);
            }
        };
        if self.parallel {
            self.rows.par_iter().enumerate().zip(out.par_chunks_mut(row_length)).for_each(decode);
        } else {
            self.rows.iter().enumerate().zip(out.chunks_mut(row_length)).for_each(decode);
        }
    }

    fn decode_row(&self, row: usize, words: &RowWords, put: Put, out: &mut [f32]) {
        let precision = |index: usize| self.precision(index);
        let decoder = RowDecoder {
            layout: self.layout,
            key: self.key,
            codec: self.codec,
            decoding: self.decoding,
            isa: self.isa,
            precision: &precision,
        };
        with_scratch(|scratch| decoder.decode(row, words, put, scratch, out));
    }

    /// A packet's precision, if anything of it arrived.
    #[inline]
    fn precision(&self, index: usize) -> Option<Precision> {
        self.held[index].as_ref()?.precision(self.codec, self.limits[index])
    }
}
