// SPDX-License-Identifier: Apache-2.0
//! The last step of a row on its way back: signs, zero blocks, scale, format.

use crate::rotate::hadamard::{CACHE_BLOCK, Leave, transform_block_to};
use crate::rotate::scale::RowScale;
use crate::simd::{Ahead, Format, Lanes};
use crate::wire::BLOCK;

/// Blocks of a piece.
const BLOCKS: usize = CACHE_BLOCK / BLOCK;

/// What is left to do when a row is transformed.
pub(crate) struct Finish<'a> {
    pub(crate) signs: &'a [u32],
    /// Which blocks are exactly 0, whatever the transform made of them.
    pub(crate) zeros: &'a [bool],
    pub(crate) scale: RowScale,
    /// Adds to what is there.
    pub(crate) add: bool,
    /// What is stored goes past the caches.
    pub(crate) stream: bool,
}

/// Finishes vectors as they come out of the transform.
struct Last<'a, L: Lanes, F, const STREAM: bool> {
    signs: &'a [u32; BLOCKS],
    by: L::F,
    out: &'a mut [[F; BLOCK]; BLOCKS],
}

impl<L: Lanes, F: Format, const STREAM: bool> Leave<L> for Last<'_, L, F, STREAM> {
    #[inline(always)]
    fn leave(&mut self, lanes: L, at: usize, v: L::F, _: &mut L::Line) {
        let (block, at) = (at / (BLOCK / L::N), at % (BLOCK / L::N));
        let v = lanes.mul(lanes.flip(v, self.signs[block], at), self.by);
        let to = &mut self.out[block];
        if STREAM { F::stream(lanes, v, to, at) } else { F::store(lanes, v, to, at) }
    }
}

impl Finish<'_> {
    /// Transforms a row of one piece and finishes it while it is in registers: what is stored
    /// misses the first-level cache, and the transform has something to do meanwhile. Returns
    /// whether it did. It does not with fewer than sixteen lanes or where the row has padding, and
    /// not for sums: their loads miss as well, and the processor foresees only those in order.
    #[inline(always)]
    pub(crate) fn transform<L: Lanes, F: Format>(
        &self,
        lanes: L,
        values: &mut [f32],
        out: &mut [F],
        ahead: &mut Ahead,
    ) -> bool {
        let (Some(signs), Some(out)) = (self.signs.first_chunk(), out.as_chunks_mut().0.first_chunk_mut())
        else {
            return false;
        };
        if L::N < 16 || values.len() != CACHE_BLOCK || self.add {
            return false;
        }
        let by = lanes.splat(self.scale.inverse());
        if self.stream {
            transform_block_to(lanes, values, &mut Last::<_, _, true> { signs, by, out }, ahead);
        } else {
            transform_block_to(lanes, values, &mut Last::<_, _, false> { signs, by, out }, ahead);
        }
        for (to, _) in out.iter_mut().zip(self.zeros).filter(|(_, zero)| **zero) {
            *to = [F::ZERO; BLOCK];
        }
        if self.stream {
            lanes.fence();
        }
        true
    }

    /// Flips the signs back, takes the working scale off and stores or adds.
    #[inline(always)]
    pub(crate) fn finish<L: Lanes, F: Format>(&self, lanes: L, values: &[f32], out: &mut [F]) {
        match (self.add, self.stream) {
            (true, _) => self.put::<L, F, true, false>(lanes, values, out),
            (false, true) => self.put::<L, F, false, true>(lanes, values, out),
            (false, false) => self.put::<L, F, false, false>(lanes, values, out),
        }
    }

    #[inline(always)]
    fn put<L: Lanes, F: Format, const ADD: bool, const STREAM: bool>(
        &self,
        lanes: L,
        values: &[f32],
        out: &mut [F],
    ) {
        let Self { signs, zeros, scale, .. } = *self;
        let by = lanes.splat(scale.inverse());
        let (from, (to, last)) = (values.as_chunks::<BLOCK>().0, out.as_chunks_mut::<BLOCK>());
        let whole = to.len();
        for (((to, from), word), zero) in to.iter_mut().zip(from).zip(signs).zip(zeros) {
            if *zero {
                // A sum with nothing is what it was.
                if !ADD {
                    *to = [F::ZERO; BLOCK];
                }
                continue;
            }
            for (at, from) in L::lines(from).iter().enumerate() {
                let v = lanes.mul(lanes.flip(lanes.load(from), *word, at), by);
                if STREAM {
                    F::stream(lanes, v, to, at);
                    continue;
                }
                let v = if ADD { lanes.add(F::load(lanes, to, at), v) } else { v };
                F::store(lanes, v, to, at);
            }
        }
        if STREAM {
            lanes.fence();
        }
        let (Some(from), Some(word), Some(zero)) = (from.get(whole), signs.get(whole), zeros.get(whole))
        else {
            return;
        };
        for (i, (to, from)) in last.iter_mut().zip(from).enumerate() {
            let value = f32::from_bits(from.to_bits() ^ (word >> i & 1) << 31) * scale.inverse();
            *to = match (ADD, *zero) {
                (false, true) => F::ZERO,
                (false, false) => F::narrow(value),
                (true, true) => *to,
                (true, false) => F::narrow(to.wide() + value),
            };
        }
    }
}
