// SPDX-License-Identifier: Apache-2.0
//! The rotated coordinates of one packet to the planes of their code words.
//!
//! Two loops over its blocks: code words and their bytes, then bit-planes. What is between them
//! stays in the first-level cache.

use crate::quantise::quantiser::{Compander, Zones};
use crate::simd::{Ahead, Kernel, Lanes, Planes};
use crate::wire::BLOCK;

/// Blocks of the longest packet.
const BLOCKS: usize = 255;

/// Results between the loops.
#[derive(Debug)]
pub(crate) struct QuantiseScratch {
    /// Upper bytes of code words, in the backend's order.
    pub(super) upper: [[u8; BLOCK]; BLOCKS],
}

impl Default for QuantiseScratch {
    fn default() -> Self {
        Self { upper: [[0; BLOCK]; BLOCKS] }
    }
}

/// Quantises a packet of at most 8,160 coordinates, a multiple of 32.
pub(crate) struct Quantise<'a> {
    pub(crate) values: &'a [f32],
    /// The packet's peak byte.
    pub(crate) peak: u8,
    /// Multiplies values into zone widths.
    pub(crate) inverse: f32,
    /// How many planes are written.
    pub(crate) planes: u8,
    /// Where they go: as many bytes as they have.
    pub(crate) body: &'a mut [u8],
    /// Where later packets go.
    pub(crate) ahead: Ahead,
    pub(crate) room: &'a mut QuantiseScratch,
    /// Where the code words go: as many as values, or none.
    pub(crate) words: &'a mut [u32],
}

impl Kernel for Quantise<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Planes>(self, lanes: L) {
        let Self { values, peak, inverse, planes, body, mut ahead, room, words } = self;
        if planes == 1 && words.is_empty() {
            // Signs need no codes.
            for (to, values) in body.as_chunks_mut().0.iter_mut().zip(values.as_chunks().0) {
                ahead.line();
                *to = lanes.signs(values).to_le_bytes();
            }
            return;
        }
        let compander = Compander::new(lanes, &Zones::of(peak));
        let inverse = lanes.splat(inverse);
        let n = values.len();
        let (bits, bytes) = body.split_at_mut(n / 8 * usize::from(planes.min(8)));
        let (b, c) = bytes.split_at_mut(n.min(bytes.len()));
        let (b, c) = (b.as_chunks_mut::<BLOCK>().0, c.as_chunks_mut::<BLOCK>().0);
        let (mut no_b, mut no_c) = ([0; BLOCK], [0; BLOCK]);
        let QuantiseScratch { upper } = room;
        let mut words = words.as_chunks_mut::<BLOCK>().0.iter_mut();
        let (mut b, mut c) = (b.iter_mut(), c.iter_mut());
        for (values, upper) in values.as_chunks::<BLOCK>().0.iter().zip(&mut *upper) {
            let mut codes = [0; BLOCK];
            ahead.line();
            codes_of(lanes, &compander, inverse, values, &mut codes);
            if let Some(words) = words.next() {
                words_of(lanes, values, &codes, words);
            }
            // Planes that are not sent are dropped.
            let bytes = [b.next().unwrap_or(&mut no_b), c.next().unwrap_or(&mut no_c)];
            ahead.line();
            lanes.split_codes(values, &codes, upper, bytes);
        }
        turn_planes(lanes, upper, n, planes, bits);
    }
}

/// The upper bytes of `n` code words to the first planes, eight at most.
#[inline(always)]
pub(super) fn turn_planes<L: Planes>(
    lanes: L,
    upper: &[[u8; BLOCK]; BLOCKS],
    n: usize,
    planes: u8,
    bits: &mut [u8],
) {
    let blocks = n / BLOCK;
    // Room for pieces that are not written directly.
    let (mut pieces, part) = ([0; 8 * BLOCK], planes < 8 || blocks < 8);
    let mut block = 0;
    while block < blocks {
        // Eight blocks at a time. The last ones are done together with some that are done already.
        let first = block.min(blocks.saturating_sub(8));
        let Some(upper) = upper[first..].first_chunk() else { return };
        let (to, at) = if part { (&mut pieces[..], 0) } else { (&mut *bits, 4 * first) };
        lanes.turn_back(upper, to, at);
        if part {
            for (plane, piece) in bits.chunks_exact_mut(n / 8).zip(pieces.as_chunks::<BLOCK>().0) {
                let plane = &mut plane[4 * first..];
                let length = plane.len().min(BLOCK);
                plane[..length].copy_from_slice(&piece[..length]);
            }
        }
        block = first + 8;
    }
}

/// A block's code words: the signs of its values, then codes of 23 bits.
#[inline(always)]
fn words_of<L: Lanes>(lanes: L, values: &[f32; BLOCK], codes: &[u32; BLOCK], words: &mut [u32; BLOCK]) {
    let (sign, magnitude) = (lanes.splat_u(1 << 31), lanes.splat_u(0x7fff_ff00));
    for (at, line) in L::lines(values).iter().enumerate() {
        let sign = lanes.and(lanes.bits(lanes.load(line)), sign);
        let code = lanes.shift_left_8(lanes.load_words(codes, at));
        lanes.store_words(words, at, lanes.or(sign, lanes.and(code, magnitude)));
    }
}

/// A block's codes; `inverse` multiplies values into zone widths.
#[inline(always)]
fn codes_of<L: Lanes>(
    lanes: L,
    compander: &Compander<L>,
    inverse: L::F,
    values: &[f32; BLOCK],
    codes: &mut [u32; BLOCK],
) {
    let magnitude = lanes.splat_u(0x7fff_ffff);
    // A block is two vectors of sixteen lanes or four of eight.
    for (pair, lines) in L::lines(values).as_chunks::<2>().0.iter().enumerate() {
        let mut y = [inverse; 2];
        for i in 0..2 {
            let v = lanes.and(lanes.bits(lanes.load(&lines[i])), magnitude);
            y[i] = lanes.mul(lanes.floats(v), inverse);
        }
        let [a, b] = compander.codes(lanes, y);
        lanes.store_words(codes, 2 * pair, a);
        lanes.store_words(codes, 2 * pair + 1, b);
    }
}
