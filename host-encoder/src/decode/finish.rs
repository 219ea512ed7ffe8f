// SPDX-License-Identifier: Apache-2.0
//! The last step of a row on its way back: signs, zero blocks, scale, format.

use crate::rotate::scale::RowScale;
use crate::simd::{Format, Lanes};
use crate::wire::BLOCK;

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

impl Finish<'_> {
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
