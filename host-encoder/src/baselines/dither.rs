//! The shared random thresholds of stochastic quantisation and subtractive dithering (docs/reference/wire-format.md §4).

use crate::rotate::RotationKey;
use crate::rotate::signs::philox_words;
use crate::simd::Isa;

/// L / σ (the HotNets'24 paper, §3.1, after TernGrad).
const CLIP: f32 = 2.5;
/// Keeps the words apart from those of the row's signs: ranks have ten bits.
const TAG: u32 = 1 << 16;

/// L of a packet, at most the largest f32: heads decode to ±L.
pub(crate) fn limit(sigma: f32) -> f32 {
    (CLIP * sigma).min(f32::MAX)
}

/// The Philox words of a row's coordinates, one each.
pub(crate) fn words_of(isa: Isa, key: RotationKey, row: u32, length: usize, words: &mut Vec<u32>) {
    philox_words(isa, key, row, TAG, length, words);
}

/// A coordinate's threshold t, uniform on (−L, L): the head is the sign of x + t.
#[inline]
pub(crate) fn threshold(word: u32, limit: f32) -> f32 {
    // An odd number of at most 25 bits whose lowest is set; exact in f32 after halving the range to 24 bits.
    let steps = 2 * (word >> 8) as i32 + 1 - (1 << 24);
    steps as f32 / 16_777_216.0 * limit
}
