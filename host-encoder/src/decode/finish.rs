// SPDX-License-Identifier: Apache-2.0
//! The last steps of a row on its way back: last levels of the transform, signs, scale, format.

use crate::rotate::hadamard::{CACHE_BLOCK, eight};
use crate::rotate::scale::RowScale;
use crate::simd::{Format, Kernel, Lanes, Planes};
use crate::wire::BLOCK;

/// Parts between which the last levels are: as many as fit the registers.
const PARTS: usize = 8;
/// Blocks of a part.
const BLOCKS: usize = CACHE_BLOCK / BLOCK;
/// A row of the usual length, 2^15.
type Row = [[[f32; BLOCK]; BLOCKS]; PARTS];

/// Does the levels between the pieces of a row of the usual length, flips the signs back, takes the
/// working scale off and stores or adds, all while the values are in registers: the row is read
/// once less from the second-level cache, and written once less to it. In a function of its own,
/// where all distances are constants.
///
/// Values come from eight places 16 KiB apart, and go to eight such places. In a first-level cache
/// of 32 KiB with eight ways either eight fill all the ways there are for them, so the two rows
/// must not lie alike in their pages ([`crate::aligned::AlignedRow::away_from`]).
pub(crate) struct LastLevels<'a, F> {
    values: &'a Row,
    signs: &'a [[u32; BLOCKS]; PARTS],
    scale: RowScale,
    add: bool,
    stream: bool,
    out: &'a mut [[[F; BLOCK]; BLOCKS]; PARTS],
}

impl<'a, F: Format> LastLevels<'a, F> {
    /// `None` for rows of other lengths. With `stream` what is stored at scale 1 goes past the
    /// caches.
    pub(crate) fn new(
        values: &'a [f32],
        signs: &'a [u32],
        scale: RowScale,
        add: bool,
        stream: bool,
        out: &'a mut [F],
    ) -> Option<Self> {
        let whole = |length| length == PARTS * BLOCKS * BLOCK;
        if !whole(values.len()) || !whole(out.len()) {
            return None;
        }
        Some(Self {
            values: values.as_chunks().0.as_chunks().0.first_chunk()?,
            signs: signs.as_chunks().0.first_chunk()?,
            scale,
            add,
            stream,
            out: out.as_chunks_mut().0.as_chunks_mut().0.first_chunk_mut()?,
        })
    }

    /// Whether an output is of the usual length, and begins at a line of memory.
    pub(crate) fn fits(out: &[F]) -> bool {
        out.len() == PARTS * BLOCKS * BLOCK && out.as_ptr().addr().is_multiple_of(64)
    }

    #[inline(always)]
    fn put<L: Lanes, const ADD: bool, const SCALED: bool, const STREAM: bool>(self, lanes: L) {
        let Self { values, signs, scale, out, .. } = self;
        let by = lanes.splat(scale.inverse());
        for block in 0..BLOCKS {
            for at in 0..BLOCK / L::N {
                let mut v = [lanes.splat(0.0); PARTS];
                for part in 0..PARTS {
                    v[part] = lanes.load(&L::lines(&values[part][block])[at]);
                }
                v = eight::<L, true>(lanes, v);
                for part in 0..PARTS {
                    let to = &mut out[part][block];
                    let mut v = lanes.flip(v[part], signs[part][block], at);
                    if SCALED {
                        v = lanes.mul(v, by);
                    }
                    if ADD {
                        v = lanes.add(F::load(lanes, to, at), v);
                    }
                    if STREAM {
                        F::stream(lanes, v, to, at);
                    } else {
                        F::store(lanes, v, to, at);
                    }
                }
            }
        }
        if STREAM {
            lanes.fence();
        }
    }
}

impl<F: Format> Kernel for LastLevels<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run<L: Planes>(self, lanes: L) {
        match (self.add, self.scale.is_one()) {
            (false, true) if self.stream => self.put::<L, false, false, true>(lanes),
            (false, true) => self.put::<L, false, false, false>(lanes),
            (true, true) => self.put::<L, true, false, false>(lanes),
            (false, false) => self.put::<L, false, true, false>(lanes),
            (true, false) => self.put::<L, true, true, false>(lanes),
        }
    }
}

/// Flips the signs back, takes the working scale off and stores or adds.
#[inline(always)]
pub(crate) fn finish<L: Lanes, F: Format>(
    lanes: L,
    values: &[f32],
    signs: &[u32],
    scale: RowScale,
    add: bool,
    out: &mut [F],
) {
    let values = &values[..out.len().min(values.len())];
    let by = lanes.splat(scale.inverse());
    let whole = values.len() / BLOCK;
    let words = signs.iter().copied().chain(std::iter::repeat(0));
    let blocks = out.as_chunks_mut::<BLOCK>().0.iter_mut().zip(values.as_chunks::<BLOCK>().0).zip(words);
    for ((to, from), word) in blocks.take(whole) {
        for (at, from) in L::lines(from).iter().enumerate() {
            let v = lanes.mul(lanes.flip(lanes.load(from), word, at), by);
            let v = if add { lanes.add(F::load(lanes, to, at), v) } else { v };
            F::store(lanes, v, to, at);
        }
    }
    for i in whole * BLOCK..values.len() {
        let word = signs.get(i / BLOCK).copied().unwrap_or_default();
        let value = f32::from_bits(values[i].to_bits() ^ (word >> (i % BLOCK) & 1) << 31) * scale.inverse();
        out[i] = F::narrow(if add { out[i].wide() + value } else { value });
    }
}
