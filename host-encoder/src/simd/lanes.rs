// SPDX-License-Identifier: Apache-2.0
//! What a backend has to provide.

use super::Kernel;
use crate::wire::BLOCK;
use half::{bf16, f16};

/// Runs a body for each vector of a group, which has as many as there are lanes: unrolled, so that
/// they stay in registers. (The compiler (1.95) leaves loops of sixteen turns as they are.)
macro_rules! each_vector {
    ($lanes:ty, $i:ident => $body:block) => {
        each_vector!(@ $i $body 0 1 2 3 4 5 6 7);
        if <$lanes>::N == 16 {
            each_vector!(@ $i $body 8 9 10 11 12 13 14 15);
        }
    };
    (@ $i:ident $body:block $($n:literal)+) => {$(
        {
            const $i: usize = $n;
            $body
        }
    )+};
}
pub(crate) use each_vector;

#[inline(always)]
fn sixteen<L: Lanes>(lanes: L, v: [L::U; 2]) -> [u32; 16] {
    let mut out = [0; 16];
    lanes.to_array(v[0], &mut out);
    if L::N == 8 {
        let mut upper = [0; 16];
        lanes.to_array(v[1], &mut upper);
        out[8..].copy_from_slice(&upper[..8]);
    }
    out
}

/// Vectors of `N` f32 or u32 and the operations that the kernels are made of.
///
/// A value of the implementing type is the proof that the machine has the instructions.
pub(crate) trait Lanes: Copy {
    /// Lanes of a vector: 8 or 16.
    const N: usize;
    /// Memory of one vector: `[f32; N]`.
    type Line: Copy;
    /// A vector of f32.
    type F: Copy;
    /// A vector of u32.
    type U: Copy;

    /// The whole vectors of a slice.
    fn lines(values: &[f32]) -> &[Self::Line];
    /// The whole vectors of a slice.
    fn lines_mut(values: &mut [f32]) -> &mut [Self::Line];
    fn load(self, line: &Self::Line) -> Self::F;
    /// Vector `at` of a block of a format of 16 bits, widened; `at < BLOCK / N`.
    #[inline(always)]
    fn load_bf16(self, halves: &[bf16; BLOCK], at: usize) -> Self::F {
        let mut wide = [0.0; 16];
        for i in 0..Self::N {
            wide[i] = halves[at * Self::N + i].to_f32();
        }
        self.load(&Self::lines(&wide)[0])
    }
    #[inline(always)]
    fn load_f16(self, halves: &[f16; BLOCK], at: usize) -> Self::F {
        let mut wide = [0.0; 16];
        for i in 0..Self::N {
            wide[i] = halves[at * Self::N + i].to_f32();
        }
        self.load(&Self::lines(&wide)[0])
    }
    /// Likewise narrowed: to nearest, ties to even; beyond the range to infinity.
    #[inline(always)]
    fn store_bf16(self, v: Self::F, halves: &mut [bf16; BLOCK], at: usize) {
        let mut wide = [0; 16];
        self.to_array(self.bits(v), &mut wide);
        for i in 0..Self::N {
            halves[at * Self::N + i] = bf16::from_f32(f32::from_bits(wide[i]));
        }
    }
    #[inline(always)]
    fn store_f16(self, v: Self::F, halves: &mut [f16; BLOCK], at: usize) {
        let mut wide = [0; 16];
        self.to_array(self.bits(v), &mut wide);
        for i in 0..Self::N {
            halves[at * Self::N + i] = f16::from_f32(f32::from_bits(wide[i]));
        }
    }
    /// The signs of a block: bit i of value i.
    #[inline(always)]
    fn signs(self, values: &[f32; BLOCK]) -> u32 {
        let mut signs = 0;
        for (i, value) in values.iter().enumerate() {
            signs |= value.to_bits() >> 31 << i;
        }
        signs
    }
    fn store(self, line: &mut Self::Line, v: Self::F);
    /// The same past the caches, where the machine can: for whole lines of memory that nobody reads
    /// soon. [`Self::fence`] has to follow before others may look.
    #[inline(always)]
    fn stream(self, line: &mut Self::Line, v: Self::F) {
        self.store(line, v);
    }
    /// What was streamed comes before what is written from here on.
    #[inline(always)]
    fn fence(self) {}
    /// Vector `at` of a block of words; `at < BLOCK / N`.
    fn load_words(self, words: &[u32; BLOCK], at: usize) -> Self::U;
    fn store_words(self, words: &mut [u32; BLOCK], at: usize, v: Self::U);

    fn splat(self, value: f32) -> Self::F;
    fn add(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub(self, a: Self::F, b: Self::F) -> Self::F;
    fn mul(self, a: Self::F, b: Self::F) -> Self::F;
    /// sum + v², rounded once or twice: for sums that no bit of a packet depends on.
    #[inline(always)]
    fn add_square(self, v: Self::F, sum: Self::F) -> Self::F {
        self.add(sum, self.mul(v, v))
    }
    /// (a + b, a − b).
    fn butterfly(self, a: Self::F, b: Self::F) -> (Self::F, Self::F);
    /// The same between lanes i and i + H: where bit H of i is clear v[i] + v[i + H], else v[i − H]
    /// − v[i].
    fn butterfly_lanes<const H: usize>(self, v: Self::F) -> Self::F;
    /// Loads a vector and does its butterflies at distance 4.
    #[inline(always)]
    fn load_butterfly_4(self, line: &Self::Line) -> Self::F {
        self.butterfly_lanes::<4>(self.load(line))
    }
    /// All butterflies between the lanes of a vector: at distance 4, then 1, then 2, then 8.
    #[inline(always)]
    fn butterflies(self, v: Self::F) -> Self::F {
        self.later_butterflies(self.butterfly_lanes::<4>(v))
    }
    /// Those at distance 1, then 2, then 8.
    #[inline(always)]
    fn later_butterflies(self, v: Self::F) -> Self::F {
        let v = self.butterfly_lanes::<1>(v);
        let v = self.butterfly_lanes::<2>(v);
        if Self::N == 16 { self.butterfly_lanes::<8>(v) } else { v }
    }
    /// Negates lane i of vector `at` of a block where bit `at · N + i` of `word` is set; `at <
    /// BLOCK / N`.
    fn flip(self, v: Self::F, word: u32, at: usize) -> Self::F;

    fn bits(self, v: Self::F) -> Self::U;
    fn floats(self, v: Self::U) -> Self::F;
    /// The whole part of 0 ≤ v < 2^31.
    fn truncate(self, v: Self::F) -> Self::U;
    /// The nearest f32 of a word that is read as an i32.
    fn convert(self, v: Self::U) -> Self::F;

    fn splat_u(self, value: u32) -> Self::U;
    fn and(self, a: Self::U, b: Self::U) -> Self::U;
    fn or(self, a: Self::U, b: Self::U) -> Self::U;
    fn xor(self, a: Self::U, b: Self::U) -> Self::U;
    fn add_u(self, a: Self::U, b: Self::U) -> Self::U;
    fn min_u(self, a: Self::U, b: Self::U) -> Self::U;
    fn max_u(self, a: Self::U, b: Self::U) -> Self::U;
    /// v / 2^22: of an f32's bits, the sign, the exponent and the first bit of the mantissa.
    fn shift_right_22(self, v: Self::U) -> Self::U;
    /// v / 2^28: the sign of a code word, and the three bits behind it.
    fn shift_right_28(self, v: Self::U) -> Self::U;
    /// v · 2^8 modulo 2^32: a code in its place in a code word.
    fn shift_left_8(self, v: Self::U) -> Self::U;
    /// v − 1 in lanes where a > b, read as i32s; v in the others.
    fn less_where_greater(self, v: Self::U, a: Self::U, b: Self::U) -> Self::U;
    /// High and low halves of the products.
    fn mul_wide(self, a: Self::U, b: Self::U) -> (Self::U, Self::U);

    /// A table of eight as a vector (repeated where a vector is longer).
    fn table(self, table: &[f32; 8]) -> Self::F;
    fn table_u(self, table: &[u32; 8]) -> Self::U;
    /// Entry `index % 8` of a table.
    fn lookup(self, table: Self::F, index: Self::U) -> Self::F;
    fn lookup_u(self, table: Self::U, index: Self::U) -> Self::U;

    fn to_array(self, v: Self::U, out: &mut [u32; 16]);
    /// The sum of sixteen values, halves upon halves: v[i] + v[i + 8], then i + 4, 2 and 1. The
    /// second vector holds the upper eight of them, or nothing where one holds sixteen.
    #[inline(always)]
    fn sum(self, v: [Self::F; 2]) -> f32 {
        let mut v = sixteen(self, v.map(|v| self.bits(v))).map(f32::from_bits);
        for half in [8, 4, 2, 1] {
            for i in 0..half {
                v[i] += v[i + half];
            }
        }
        v[0]
    }
    /// The largest of sixteen words, placed as in [`Self::sum`].
    #[inline(always)]
    fn largest(self, v: [Self::U; 2]) -> u32 {
        sixteen(self, v).into_iter().fold(0, u32::max)
    }
    /// Whether all lanes are 0.
    #[inline(always)]
    fn is_zero(self, v: Self::U) -> bool {
        self.largest([v, self.splat_u(0)]) == 0
    }
}

/// What code words are taken apart and put together with, and how a kernel runs another one.
pub(crate) trait Planes: Lanes {
    /// Runs a kernel in a function of its own: a loop that keeps its constants in registers needs
    /// them for itself.
    fn outlined<K: Kernel>(self, kernel: K) -> K::Output;

    /// The bytes of the code words that the signs of `values` and their codes of 23 bits make: the
    /// upper ones in an order of the backend's own, for [`Self::turn_back`], the next two in order.
    /// Bit 23 of a code is clear; those above it do not matter.
    fn split_codes(
        self,
        values: &[f32; BLOCK],
        codes: &[u32; BLOCK],
        upper: &mut [u8; BLOCK],
        bytes: [&mut [u8; BLOCK]; 2],
    );
    /// The upper bytes of eight blocks' code words ([`Self::split_codes`]) to their pieces of the
    /// bit-planes: the 32 bytes from `at` on of each of eight planes of the same length, one behind
    /// the other. Panics where planes end before that.
    fn turn_back(self, upper: &[[u8; BLOCK]; 8], planes: &mut [u8], at: usize);
    /// Pieces of bit-planes, as in [`Self::turn_back`], to the upper bytes of eight blocks' code
    /// words, in the backend's own order, for [`Self::words`].
    fn turn(self, planes: &[u8], at: usize, upper: &mut [[u8; BLOCK]; 8]);
    /// A block's code words from their upper bytes ([`Self::turn`]) and both byte-planes; the
    /// lowest byte becomes zero.
    fn words(self, upper: &[u8; BLOCK], bytes: [&[u8; BLOCK]; 2], words: &mut [u32; BLOCK]);
    /// Values by the upper bytes of their words: the magnitude at the seven bits behind the sign,
    /// with that sign. Whole blocks, as many as `out` has.
    #[inline(always)]
    fn of_cells(self, magnitudes: &[f32; 128], words: &[u32], out: &mut [f32]) {
        let mut table = [0.0; 256];
        for (i, magnitude) in magnitudes.iter().enumerate() {
            (table[i], table[128 + i]) = (*magnitude, -magnitude);
        }
        for (to, word) in out.iter_mut().zip(words) {
            *to = table[(word >> 24) as usize];
        }
    }
}
