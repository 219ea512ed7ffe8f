//! One row to packets: scale, rotate, take moments, quantise, write planes.

use crate::codec::Codec;
use crate::dither;
use crate::hadamard::{CACHE_BLOCK, join_blocks, transform_block};
use crate::head::{Head, Heads};
use crate::layout::Layout;
use crate::moments::{Moments, moments};
use crate::packet::{BLOCK, HEADER_LEN, Header, Prefix};
use crate::quantise::{Quantise, Room};
use crate::rotation::{self, RotationKey, copy_flipped};
use crate::scale::RowScale;
use crate::scratch::{AlignedRow, Scratch};
use crate::simd::{Ahead, Isa, Kernel, Lanes, Split};
use std::ops::Range;

/// What the rows of a message have in common.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowEncoder {
    pub(crate) layout: Layout,
    pub(crate) key: RotationKey,
    pub(crate) codec: Codec,
    pub(crate) isa: Isa,
    pub(crate) planes: u8,
    /// The packets' prefix; `important` and `last` are filled in.
    pub(crate) prefix: Prefix,
    /// Index of the message's last packet.
    pub(crate) last: usize,
}

/// Where a row's coordinates come from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Source<'a> {
    /// The row, without padding.
    pub(crate) row: &'a [f32],
    /// What will be encoded after it, as far as that is known.
    pub(crate) ahead: &'a [f32],
}

/// Why a row has no packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowError {
    /// Its root mean square exceeds the range of f32.
    TooLarge,
    /// NaN or infinity where they are refused.
    NotFinite,
}

impl RowEncoder {
    /// Writes the packets of `row` to `out` (as long as they are together) and a score for each to `scores`: the higher,
    /// the more important; NaN for rows that are not finite.
    pub(crate) fn encode(
        &self,
        row: usize,
        source: Source<'_>,
        strict: bool,
        buffers: Buffers<'_>,
        out: &mut [u8],
        scores: &mut [f64],
    ) -> Result<(), RowError> {
        let length = self.layout.row_range(row).len();
        let Buffers { row: values, signs, dither, room } = buffers;
        let values = values.of(length);
        match self.codec {
            Codec::Rht | Codec::RhtPaper => {
                rotation::signs_of(self.isa, self.key, row as u32, length, signs);
            }
            Codec::StochasticQuantisation | Codec::SubtractiveDithering => {
                dither::words_of(self.isa, self.key, row as u32, length, dither);
            }
            Codec::SignMagnitude | Codec::Raw => {}
        }
        let job = Job {
            encoder: self,
            row,
            source: source.row,
            ahead: source.ahead,
            values,
            signs,
            dither,
            room,
            out: &mut *out,
            scores: &mut *scores,
        };
        match self.isa.run(job) {
            Err(RowError::NotFinite) if !strict => {
                self.write_not_finite(row, out);
                scores.fill(f64::NAN);
                Ok(())
            }
            result => result,
        }
    }

    /// Packets whose σ is NaN and whose planes are zero.
    fn write_not_finite(&self, row: usize, out: &mut [u8]) {
        let mut rest = out;
        for (index, place) in self.layout.row_places(row) {
            let length = HEADER_LEN + self.codec.plane_offset(self.planes, place.len());
            let (packet, tail) = rest.split_at_mut(length);
            rest = tail;
            packet.fill(0);
            self.write_header(index, place.len(), Head::NOT_FINITE, packet);
        }
    }

    fn write_header(&self, index: usize, n: usize, head: Head, packet: &mut [u8]) {
        let header = Header {
            prefix: Prefix { last: index == self.last, ..self.prefix },
            first_plane: 0,
            index: index as u32,
            coordinates: n,
            sigma: head.sigma,
            kappa: head.kappa,
            peak: head.peak,
        };
        packet[..HEADER_LEN].copy_from_slice(&header.to_bytes());
    }
}

/// The working memory that a row needs, beside the row itself.
pub(crate) struct Buffers<'a> {
    pub(crate) row: &'a mut AlignedRow<f32>,
    pub(crate) signs: &'a mut Vec<u32>,
    pub(crate) dither: &'a mut Vec<u32>,
    pub(crate) room: &'a mut Room,
}

impl Scratch {
    /// The buffer for conversions, and the others.
    pub(crate) fn split(&mut self) -> (&mut Vec<f32>, Buffers<'_>) {
        let Self { wide, row, signs, dither, room, .. } = self;
        (wide, Buffers { row, signs, dither, room })
    }
}

struct Job<'a> {
    encoder: &'a RowEncoder,
    row: usize,
    /// The row's coordinates, without padding.
    source: &'a [f32],
    ahead: &'a [f32],
    /// The row at its working scale, with padding.
    values: &'a mut [f32],
    signs: &'a [u32],
    dither: &'a [u32],
    room: &'a mut Room,
    out: &'a mut [u8],
    scores: &'a mut [f64],
}

impl Kernel for Job<'_> {
    type Output = Result<(), RowError>;

    #[inline(always)]
    fn run<L: Lanes>(mut self, lanes: L) -> Result<(), RowError> {
        let RowEncoder { layout, codec, planes, .. } = *self.encoder;
        // The next row is asked for all through this one: the earlier half while it is transformed, the later while packets are written.
        let next = if codec.rotates() { self.ahead } else { &[] };
        let (soon, later) = next.split_at(next.len() / 2);
        let scale = self.prepare(lanes, soon)?;
        let mut later = Ahead::new(later);
        // The transform is not normalised: its values are √d times those of the rotation.
        let gain = if codec.rotates() { self.values.len() } else { 1 };
        let unit = scale.factor() * (gain as f64).sqrt();
        let mut energy = 0.0;
        let mut rest = std::mem::take(&mut self.out);
        let (mut heads, mut places) = (Heads::new(), layout.row_places(self.row));
        for (nth, (index, place)) in layout.row_places(self.row).enumerate() {
            if nth % Heads::LEN == 0 {
                heads = self.heads(lanes, &mut places, unit);
            }
            let (head, inverse) = match heads.get(nth % Heads::LEN) {
                Some(head) => head,
                // NaN and infinities are sent as they are.
                None if codec == Codec::Raw => (Head::NONE, 0.0),
                None => return Err(RowError::TooLarge),
            };
            let (packet, tail) = rest.split_at_mut(HEADER_LEN + codec.plane_offset(planes, place.len()));
            rest = tail;
            // Half a packet's coordinates.
            later.lines(place.len() / BLOCK);
            // Where the next packet goes.
            let ahead = Ahead::new(&rest[..packet.len().min(rest.len())]);
            let values = &self.values[place.clone()];
            self.encoder.write_header(index, place.len(), head, packet);
            let body = PlaneWriter { body: &mut packet[HEADER_LEN..], n: values.len(), planes };
            match codec {
                Codec::Rht => lanes.apart(Quantise {
                    values,
                    peak: head.peak,
                    inverse,
                    planes,
                    body: body.body,
                    ahead,
                    room: &mut *self.room,
                }),
                Codec::RhtPaper => {
                    floats(lanes, values.iter().map(|v| (f64::from(*v) / unit) as f32), body);
                }
                Codec::SignMagnitude => floats(lanes, self.original(place.clone()), body),
                Codec::StochasticQuantisation | Codec::SubtractiveDithering => {
                    let limit = dither::limit(head.sigma);
                    dithered(lanes, self.original(place.clone()), &self.dither[place.clone()], limit, body);
                }
                Codec::Raw => {
                    for (to, value) in
                        body.body.as_chunks_mut().0.iter_mut().zip(self.original(place.clone()))
                    {
                        *to = value.to_be_bytes();
                    }
                }
            }
            if codec.rotates() {
                energy += values.len() as f64 * f64::from(head.sigma).powi(2);
            } else {
                // MLT's priority of a packet: the magnitude of its mean.
                let sum: f64 = self.original(place.clone()).map(f64::from).sum();
                self.scores[nth] = (sum / place.len() as f64).abs();
            }
        }
        if codec.rotates() {
            self.scores.fill(energy / self.values.len() as f64);
        }
        Ok(())
    }
}

impl Job<'_> {
    /// Fills `values`: the row at its working scale, rotated by the codecs that do so. Meanwhile `soon` is asked for.
    #[inline(always)]
    fn prepare<L: Lanes>(&mut self, lanes: L, soon: &[f32]) -> Result<RowScale, RowError> {
        let rotates = self.encoder.codec.rotates();
        let signs = if rotates { self.signs } else { &[] };
        let mut ahead = Ahead::new(soon);
        // Nearly every row is worked on as it is, so its largest value is looked for on the way.
        let mut largest = 0;
        for (at, to) in self.values.chunks_mut(CACHE_BLOCK).enumerate() {
            let start = (at * CACHE_BLOCK).min(self.source.len());
            let end = (start + to.len()).min(self.source.len());
            let signs = signs.get(at * CACHE_BLOCK / 32..).unwrap_or_default();
            largest = copy_flipped(lanes, &self.source[start..end], signs, to).max(largest);
            if rotates {
                transform_block(lanes, to, &mut ahead);
            }
        }
        let largest = f32::from_bits(largest);
        if !largest.is_finite() {
            let carried = self.encoder.codec == Codec::Raw;
            return if carried { Ok(RowScale::for_largest(0.0)) } else { Err(RowError::NotFinite) };
        }
        let scale = RowScale::for_largest(largest);
        if !scale.is_one() {
            for (to, from) in self.values.iter_mut().zip(self.source) {
                *to = scale.up(*from);
            }
            if rotates {
                rotation::flip(lanes, self.values, signs);
                // Padding is +0 whatever its sign: so it is where nothing is scaled.
                self.values[self.source.len()..].fill(0.0);
                for block in self.values.chunks_mut(CACHE_BLOCK) {
                    transform_block(lanes, block, &mut Ahead::none());
                }
            }
        }
        if rotates {
            join_blocks(lanes, self.values, &mut ahead);
            ahead.rest();
        }
        Ok(scale)
    }

    /// The heads of the packets that come next.
    #[inline(always)]
    fn heads<L: Lanes>(
        &self,
        lanes: L,
        places: &mut impl Iterator<Item = (usize, Range<usize>)>,
        unit: f64,
    ) -> Heads {
        let mut sums = [(1, Moments::default()); Heads::LEN];
        for pair in sums.as_chunks_mut::<2>().0 {
            let Some((_, first)) = places.next() else { break };
            let second = places.next().map(|(_, place)| place);
            let of = |place: &Range<usize>| &self.values[place.clone()];
            let [a, b] = moments(lanes, [of(&first), second.as_ref().map(of).unwrap_or_default()]);
            *pair = [(first.len(), a), (second.map_or(1, |place| place.len()), b)];
        }
        Heads::of(&sums, unit)
    }

    /// Coordinates as the caller gave them, with padding.
    #[inline(always)]
    fn original(&self, place: Range<usize>) -> impl Iterator<Item = f32> {
        place.map(|i| self.source.get(i).copied().unwrap_or_default())
    }
}

/// The body of a packet under construction.
struct PlaneWriter<'a> {
    body: &'a mut [u8],
    n: usize,
    planes: u8,
}

impl PlaneWriter<'_> {
    /// Writes the first `planes` planes of a block.
    #[inline(always)]
    fn put(&mut self, block: usize, planes: &Split) {
        let (n, count) = (self.n, usize::from(self.planes));
        for (plane, bits) in planes.bits.iter().enumerate().take(count) {
            let at = plane * (n / 8) + 4 * block;
            self.body[at..at + 4].copy_from_slice(&bits.to_le_bytes());
        }
        for (plane, bytes) in planes.bytes.iter().enumerate().take(count.saturating_sub(8)) {
            let at = n + plane * n + BLOCK * block;
            self.body[at..at + BLOCK].copy_from_slice(bytes);
        }
    }

    /// Writes a block's twelfth plane.
    #[inline(always)]
    fn put_last(&mut self, block: usize, bits: u32) {
        if self.planes > 11 {
            let at = 4 * self.n + 4 * block;
            self.body[at..at + 4].copy_from_slice(&bits.to_le_bytes());
        }
    }
}

/// Planes of the f32s themselves.
#[inline(always)]
fn floats<L: Lanes>(lanes: L, mut values: impl Iterator<Item = f32>, mut body: PlaneWriter<'_>) {
    let (mut codes, mut planes) = ([0; BLOCK], Split::ZERO);
    for block in 0..body.n / BLOCK {
        for code in &mut codes {
            *code = values.next().unwrap_or_default().to_bits();
        }
        lanes.split(&codes, &mut planes);
        body.put(block, &planes);
    }
}

/// Heads, then the f32s; their last bits are the twelfth plane.
#[inline(always)]
fn dithered<L: Lanes>(
    lanes: L,
    mut values: impl Iterator<Item = f32>,
    words: &[u32],
    limit: f32,
    mut body: PlaneWriter<'_>,
) {
    let (mut codes, mut planes) = ([0; BLOCK], Split::ZERO);
    for (block, words) in words.as_chunks::<BLOCK>().0.iter().enumerate() {
        let mut last = 0;
        for i in 0..BLOCK {
            let x = values.next().unwrap_or_default();
            let head = u32::from(x + dither::threshold(words[i], limit) < 0.0);
            codes[i] = head << 31 | x.to_bits() >> 1;
            last |= (x.to_bits() & 1) << i;
        }
        lanes.split(&codes, &mut planes);
        body.put(block, &planes);
        body.put_last(block, last);
    }
}
