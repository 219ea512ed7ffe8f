// SPDX-License-Identifier: Apache-2.0
//! The packets of one row back to coordinates.

use super::decoding::Decoding;
use super::dequantise::{self, Scales};
use super::finish::Finish;
use super::precision::Precision;
use super::weights::RowWeights;
use super::words::RowWords;
use crate::element::ValuesMut;
use crate::rotate::RotationKey;
use crate::rotate::hadamard::{CACHE_BLOCK, join_blocks, transform_again, transform_block};
use crate::rotate::rotation;
use crate::rotate::scale::RowScale;
use crate::scratch::Scratch;
use crate::simd::{Ahead, Format, Isa, Kernel, Planes};
use crate::wire::{BLOCK, Layout};
use std::ops::Range;

/// What happens to decoded coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    /// They replace what is there.
    Store,
    /// They are added to what is there.
    Add,
}

/// One row of a message, about to be decoded.
#[derive(Clone, Copy)]
pub(crate) struct RowDecoder<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) row: usize,
    pub(crate) key: RotationKey,
    pub(crate) decoding: Decoding,
    pub(crate) isa: Isa,
    /// It was rotated twice.
    pub(crate) twice: bool,
    /// The precision of each of its packets by its number in the row, if anything of it arrived.
    pub(crate) precision: &'a dyn Fn(usize) -> Option<Precision>,
}

impl RowDecoder<'_> {
    /// Decodes the row from its words to `out`, as long as its coordinates without padding.
    pub(crate) fn decode(&self, words: &RowWords, put: Put, scratch: &mut Scratch, mut out: ValuesMut<'_>) {
        if self.is_marked() {
            return out.fill(f32::NAN);
        }
        let Some(units) = self.units() else {
            // Adding zeros changes nothing (but −0, whose sign a sum of reals does not have).
            if put == Put::Store {
                out.fill(0.0);
            }
            return;
        };
        let length = self.layout.row_range(self.row).len();
        let Scratch { row: values, signs, second_signs, zeros, .. } = scratch;
        let values = values.away_from(out.address().cast(), length);
        self.signs(length, signs, second_signs);
        zeros.clear();
        for (nth, (_, place)) in self.layout.row_places(self.row).enumerate() {
            if (self.precision)(nth).is_some_and(|precision| precision.zeros) {
                zeros.extend_from_slice(words.zeros(place));
            } else {
                zeros.resize(place.end / BLOCK, false);
            }
        }
        let signs = (&signs[..], &second_signs[..]);
        self.isa.run(Job { decoder: self, words, units, put, values, signs, zeros, out });
    }

    /// What the row's packets are multiplied by. `None` if all its coordinates are zero.
    pub(crate) fn units(&self) -> Option<Units> {
        let weights = self.weights();
        let largest = weights.largest().filter(|largest| *largest > 0.0)?;
        let scale = RowScale::for_largest(largest);
        let gain = scale.factor() * self.gain(self.layout.row_range(self.row).len());
        let (lambda, paper) = match self.decoding {
            Decoding::Unbiased => (weights.lambda(), 0.0),
            Decoding::Mmse => (1.0, 0.0),
            Decoding::Paper => (1.0, weights.paper_scale()),
        };
        let scales = Scales { decoding: self.decoding, unit: lambda * gain, paper: paper * gain };
        Some(Units { scale, scales })
    }

    /// Whether a packet of a row that is not finite arrived.
    pub(crate) fn is_marked(&self) -> bool {
        let packets = self.layout.row_packets(self.row).len();
        (0..packets)
            .any(|nth| (self.precision)(nth).is_some_and(|precision| precision.statistics.is_not_finite()))
    }

    /// What λ and f follow from.
    fn weights(&self) -> RowWeights {
        let mut weights = RowWeights::new(self.layout.row_range(self.row).len());
        for (nth, (_, place)) in self.layout.row_places(self.row).enumerate() {
            if let Some(precision) = (self.precision)(nth) {
                weights.add(place.len(), precision);
            }
        }
        weights
    }

    /// The signs that the inverse rotation needs.
    fn signs(&self, length: usize, signs: &mut Vec<u32>, second_signs: &mut Vec<u32>) {
        rotation::signs_of(self.isa, self.key, self.row as u32, length, signs);
        if self.twice {
            rotation::second_signs_of(self.isa, self.key, self.row as u32, length, second_signs);
        }
    }

    /// Factor that makes up for transforms that are not normalised.
    fn gain(&self, length: usize) -> f64 {
        if self.twice { 1.0 / length as f64 } else { 1.0 / (length as f64).sqrt() }
    }
}

/// A row's working scale, and what its packets are multiplied by for it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Units {
    scale: RowScale,
    scales: Scales,
}

struct Job<'a> {
    decoder: &'a RowDecoder<'a>,
    words: &'a RowWords,
    units: Units,
    put: Put,
    values: &'a mut [f32],
    signs: (&'a [u32], &'a [u32]),
    zeros: &'a [bool],
    out: ValuesMut<'a>,
}

impl Kernel for Job<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Planes>(self, lanes: L) {
        let Self { decoder, words, units, put, values, signs, zeros, mut out } = self;
        let mut way = InverseRow::new(lanes, units, decoder.twice, put, decoder.layout, &out);
        for (nth, (_, place)) in decoder.layout.row_places(decoder.row).enumerate() {
            let words = words.of(place.clone());
            way.packet(lanes, (decoder.precision)(nth), words, place, values);
        }
        way.finish(lanes, values, signs, zeros, &mut out);
    }
}

/// Decodes a row packet by packet, in order, and rotates it back.
pub(crate) struct InverseRow {
    units: Units,
    twice: bool,
    put: Put,
    /// Values that are transformed already, in pieces.
    transformed: usize,
    /// The output is written past the caches.
    stream: bool,
    /// Prefetches the output.
    ahead: Ahead,
}

/// Messages of at least so many coordinates are written past the caches. They do not fit a cache as
/// a whole, and a write past the caches need not read first what it overwrites. (memcpy in C
/// libraries has a limit like this.)
const STREAMED: usize = 1 << 22;

/// Whether rows of a message are written past the caches.
pub(crate) fn streams(put: Put, layout: &Layout) -> bool {
    put == Put::Store && layout.coordinates() >= STREAMED
}

impl InverseRow {
    /// Of a row of `layout` that goes to `out`, and was rotated once, or twice.
    #[inline(always)]
    pub(crate) fn new<L: Planes>(
        _: L,
        units: Units,
        twice: bool,
        put: Put,
        layout: &Layout,
        out: &ValuesMut<'_>,
    ) -> Self {
        // Only vectors of whole cache lines can be written without reading what is there.
        let whole_lines =
            L::N == 16 && matches!(out, ValuesMut::F32(values) if values.as_ptr().addr().is_multiple_of(64));
        let stream = whole_lines && streams(put, layout);
        let ahead = if stream { Ahead::none() } else { out.ahead() };
        Self { units, twice, put, transformed: 0, stream, ahead }
    }

    /// Makes values of the code words of the packet at `place`.
    #[inline(always)]
    pub(crate) fn packet<L: Planes>(
        &mut self,
        lanes: L,
        precision: Option<Precision>,
        words: &[u32],
        place: Range<usize>,
        values: &mut [f32],
    ) {
        // Pieces are transformed as soon as they are full, while they are in the cache.
        while place.start >= self.transformed + CACHE_BLOCK {
            let piece = &mut values[self.transformed..self.transformed + CACHE_BLOCK];
            transform_block(lanes, piece, &mut self.ahead);
            self.transformed += CACHE_BLOCK;
        }
        // The output is prefetched completely before the last levels write it.
        self.ahead.lines(place.len().div_ceil(2 * BLOCK));
        match precision {
            Some(precision) => {
                dequantise::packet(lanes, precision, self.units.scales, words, &mut values[place]);
            }
            None => values[place].fill(0.0),
        }
    }

    /// Finishes the row when all packets are decoded. Signs are those of its first rotation and of
    /// its second, if there was one; blocks of `zeros` are exactly 0.
    #[inline(always)]
    pub(crate) fn finish<L: Planes>(
        self,
        lanes: L,
        values: &mut [f32],
        signs: (&[u32], &[u32]),
        zeros: &[bool],
        out: &mut ValuesMut<'_>,
    ) {
        match out {
            ValuesMut::F32(out) => self.finish_as(lanes, values, signs, zeros, out),
            ValuesMut::F16(out) => self.finish_as(lanes, values, signs, zeros, out),
            ValuesMut::Bf16(out) => self.finish_as(lanes, values, signs, zeros, out),
        }
    }

    #[inline(always)]
    fn finish_as<L: Planes, F: Format>(
        mut self,
        lanes: L,
        values: &mut [f32],
        (signs, second_signs): (&[u32], &[u32]),
        zeros: &[bool],
        out: &mut [F],
    ) {
        let Units { scale, .. } = self.units;
        let to = Finish { signs, zeros, scale, add: self.put == Put::Add, stream: self.stream };
        if self.transformed == 0 && !self.twice && to.transform(lanes, values, out, &mut self.ahead) {
            return;
        }
        for block in values[self.transformed..].chunks_mut(CACHE_BLOCK) {
            transform_block(lanes, block, &mut self.ahead);
        }
        if self.twice {
            transform_again(lanes, values, 1.0, second_signs);
        }
        join_blocks(lanes, values, &mut self.ahead);
        to.finish(lanes, values, out);
    }
}
