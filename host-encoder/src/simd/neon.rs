// SPDX-License-Identifier: Apache-2.0
//! Eight lanes in pairs of vectors, with NEON.

mod planes;

use super::{Kernel, Lanes, Planes};
use crate::wire::BLOCK;
use std::arch::aarch64::{
    float32x4_t, uint8x16x2_t, uint32x4_t, vadd_f32, vaddq_f32, vaddq_u32, vandq_u32, vcgtq_s32,
    vcvtq_f32_s32, vcvtq_s32_f32, vdupq_n_f32, vdupq_n_u32, veorq_u32, vextq_f32, vfmaq_f32, vget_high_f32,
    vget_low_f32, vget_low_u32, vld1q_f32, vld1q_u32, vmaxq_u32, vmaxvq_u32, vminq_u32, vmlaq_u32,
    vmull_high_u32, vmull_u32, vmulq_f32, vorrq_u32, vpadds_f32, vqtbl2q_u8, vreinterpretq_f32_u32,
    vreinterpretq_s32_u32, vreinterpretq_u8_u32, vreinterpretq_u32_f32, vreinterpretq_u32_s32,
    vreinterpretq_u32_u8, vreinterpretq_u32_u64, vrev64q_f32, vshlq_n_u32, vshrq_n_u32, vst1q_f32, vst1q_u32,
    vsubq_f32, vtstq_u32, vuzp1q_u32, vuzp2q_u32,
};

/// The proof that the machine has NEON, as those with Linux, macOS or Windows do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Neon(());

impl Neon {
    pub(crate) fn detect() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Self(()))
    }
}

type F = [float32x4_t; 2];
type U = [uint32x4_t; 2];

/// Operations that are the same on both vectors of a pair.
macro_rules! pairwise {
    ($($name:ident($($arg:ident: $type:ty),+) -> $out:ty = |$i:ident| $term:expr;)+) => {$(
        #[inline(always)]
        fn $name(self, $($arg: $type),+) -> $out {
            // SAFETY: `self` exists only where NEON was detected.
            unsafe {
                let first = {
                    let $i = 0;
                    $term
                };
                let $i = 1;
                [first, $term]
            }
        }
    )+};
}

impl Lanes for Neon {
    const N: usize = 8;
    type Line = [f32; 8];
    type F = F;
    type U = U;

    #[inline(always)]
    fn lines(values: &[f32]) -> &[[f32; 8]] {
        values.as_chunks().0
    }

    #[inline(always)]
    fn lines_mut(values: &mut [f32]) -> &mut [[f32; 8]] {
        values.as_chunks_mut().0
    }

    #[inline(always)]
    fn load(self, line: &[f32; 8]) -> F {
        let [low, high] = halves(line);
        // SAFETY: see `pairwise`; a half is a vector of four.
        unsafe { [vld1q_f32(low.as_ptr()), vld1q_f32(high.as_ptr())] }
    }

    #[inline(always)]
    fn store(self, line: &mut [f32; 8], v: F) {
        for (half, v) in line.as_chunks_mut::<4>().0.iter_mut().zip(v) {
            // SAFETY: see `pairwise`; a half is a vector of four.
            unsafe { vst1q_f32(half.as_mut_ptr(), v) };
        }
    }

    #[inline(always)]
    fn load_words(self, words: &[u32; BLOCK], at: usize) -> U {
        self.table_u(&words.as_chunks().0[at])
    }

    #[inline(always)]
    fn store_words(self, words: &mut [u32; BLOCK], at: usize, v: U) {
        let line: &mut [u32; 8] = &mut words.as_chunks_mut().0[at];
        for (half, v) in line.as_chunks_mut::<4>().0.iter_mut().zip(v) {
            // SAFETY: see `pairwise`; a half is a vector of four.
            unsafe { vst1q_u32(half.as_mut_ptr(), v) };
        }
    }

    #[inline(always)]
    fn to_array(self, v: U, out: &mut [u32; 16]) {
        for (four, v) in out.as_chunks_mut::<4>().0.iter_mut().zip(v) {
            // SAFETY: see `pairwise`; an array of four is a vector.
            unsafe { vst1q_u32(four.as_mut_ptr(), v) };
        }
    }

    #[inline(always)]
    fn table(self, table: &[f32; 8]) -> F {
        self.load(table)
    }

    #[inline(always)]
    fn table_u(self, table: &[u32; 8]) -> U {
        let [low, high] = halves(table);
        // SAFETY: see `pairwise`; a half is a vector of four.
        unsafe { [vld1q_u32(low.as_ptr()), vld1q_u32(high.as_ptr())] }
    }

    #[inline(always)]
    fn splat(self, value: f32) -> F {
        // SAFETY: see `pairwise`.
        unsafe { [vdupq_n_f32(value); 2] }
    }

    #[inline(always)]
    fn splat_u(self, value: u32) -> U {
        // SAFETY: see `pairwise`.
        unsafe { [vdupq_n_u32(value); 2] }
    }

    pairwise! {
        add(a: F, b: F) -> F = |i| vaddq_f32(a[i], b[i]);
        sub(a: F, b: F) -> F = |i| vsubq_f32(a[i], b[i]);
        mul(a: F, b: F) -> F = |i| vmulq_f32(a[i], b[i]);
        bits(v: F) -> U = |i| vreinterpretq_u32_f32(v[i]);
        floats(v: U) -> F = |i| vreinterpretq_f32_u32(v[i]);
        truncate(v: F) -> U = |i| vreinterpretq_u32_s32(vcvtq_s32_f32(v[i]));
        convert(v: U) -> F = |i| vcvtq_f32_s32(vreinterpretq_s32_u32(v[i]));

        and(a: U, b: U) -> U = |i| vandq_u32(a[i], b[i]);
        or(a: U, b: U) -> U = |i| vorrq_u32(a[i], b[i]);
        xor(a: U, b: U) -> U = |i| veorq_u32(a[i], b[i]);
        add_u(a: U, b: U) -> U = |i| vaddq_u32(a[i], b[i]);
        min_u(a: U, b: U) -> U = |i| vminq_u32(a[i], b[i]);
        max_u(a: U, b: U) -> U = |i| vmaxq_u32(a[i], b[i]);
        shift_right_22(v: U) -> U = |i| vshrq_n_u32::<22>(v[i]);
        shift_right_28(v: U) -> U = |i| vshrq_n_u32::<28>(v[i]);
        shift_left_8(v: U) -> U = |i| vshlq_n_u32::<8>(v[i]);
        // What a comparison finds true is all ones: −1.
        less_where_greater(v: U, a: U, b: U) -> U
            = |i| vaddq_u32(v[i], vcgtq_s32(vreinterpretq_s32_u32(a[i]), vreinterpretq_s32_u32(b[i])));
    }

    #[inline(always)]
    fn butterfly(self, a: F, b: F) -> (F, F) {
        (self.add(a, b), self.sub(a, b))
    }

    #[inline(always)]
    fn butterfly_lanes<const H: usize>(self, [low, high]: F) -> F {
        // ±v + partner in one fused step: the product by ±1 is exact, so the sum is rounded once,
        // as a plain one is.
        // SAFETY: see `pairwise`; an array of four is a vector.
        unsafe {
            match H {
                1 => {
                    let signs = vld1q_f32([1., -1., 1., -1.].as_ptr());
                    [vfmaq_f32(vrev64q_f32(low), low, signs), vfmaq_f32(vrev64q_f32(high), high, signs)]
                }
                2 => {
                    let signs = vld1q_f32([1., 1., -1., -1.].as_ptr());
                    let swapped = [vextq_f32::<2>(low, low), vextq_f32::<2>(high, high)];
                    [vfmaq_f32(swapped[0], low, signs), vfmaq_f32(swapped[1], high, signs)]
                }
                _ => [vaddq_f32(low, high), vsubq_f32(low, high)],
            }
        }
    }

    #[inline(always)]
    fn flip(self, v: F, word: u32, at: usize) -> F {
        let [low, high] = self.table_u(&[1, 2, 4, 8, 16, 32, 64, 128]);
        // SAFETY: see `pairwise`.
        let flips = unsafe {
            let (word, sign) = (vdupq_n_u32(word >> (8 * at)), vdupq_n_u32(1 << 31));
            [vandq_u32(vtstq_u32(word, low), sign), vandq_u32(vtstq_u32(word, high), sign)]
        };
        self.floats(self.xor(self.bits(v), flips))
    }

    #[inline(always)]
    fn mul_wide(self, a: U, b: U) -> (U, U) {
        // SAFETY: see `pairwise`.
        let wide = |a, b| unsafe {
            let low = vreinterpretq_u32_u64(vmull_u32(vget_low_u32(a), vget_low_u32(b)));
            let high = vreinterpretq_u32_u64(vmull_high_u32(a, b));
            (vuzp2q_u32(low, high), vuzp1q_u32(low, high))
        };
        let (first, second) = (wide(a[0], b[0]), wide(a[1], b[1]));
        ([first.0, second.0], [first.1, second.1])
    }

    #[inline(always)]
    fn lookup(self, table: F, index: U) -> F {
        self.floats(self.lookup_u(self.bits(table), index))
    }

    #[inline(always)]
    fn lookup_u(self, table: U, index: U) -> U {
        // SAFETY: see `pairwise`.
        unsafe {
            let table = uint8x16x2_t(vreinterpretq_u8_u32(table[0]), vreinterpretq_u8_u32(table[1]));
            let entries = |index| {
                // Look-ups are of bytes: those of entry i are 4·i to 4·i + 3.
                let index = vandq_u32(index, vdupq_n_u32(7));
                let bytes = vmlaq_u32(vdupq_n_u32(0x0302_0100), index, vdupq_n_u32(0x0404_0404));
                vreinterpretq_u32_u8(vqtbl2q_u8(table, vreinterpretq_u8_u32(bytes)))
            };
            [entries(index[0]), entries(index[1])]
        }
    }

    #[inline(always)]
    fn sum(self, [low, high]: [F; 2]) -> f32 {
        let [low, high] = self.add(low, high);
        // SAFETY: see `pairwise`.
        unsafe {
            let four = vaddq_f32(low, high);
            vpadds_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)))
        }
    }

    #[inline(always)]
    fn largest(self, [low, high]: [U; 2]) -> u32 {
        let [low, high] = self.max_u(low, high);
        // SAFETY: see `pairwise`.
        unsafe { vmaxvq_u32(vmaxq_u32(low, high)) }
    }
}

impl Planes for Neon {
    #[inline(never)]
    fn outlined<K: Kernel>(self, kernel: K) -> K::Output {
        kernel.run(self)
    }

    #[inline(always)]
    fn split_codes(
        self,
        values: &[f32; BLOCK],
        codes: &[u32; BLOCK],
        upper: &mut [u8; BLOCK],
        bytes: [&mut [u8; BLOCK]; 2],
    ) {
        // SAFETY: see `pairwise`.
        unsafe { planes::split_codes(values, codes, upper, bytes) }
    }

    #[inline(always)]
    fn turn_back(self, upper: &[[u8; BLOCK]; 8], planes: &mut [u8], at: usize) {
        // SAFETY: see `pairwise`.
        unsafe { planes::turn_back(upper, planes, at) }
    }

    #[inline(always)]
    fn turn(self, planes: &[u8], at: usize, upper: &mut [[u8; BLOCK]; 8]) {
        // SAFETY: see `pairwise`.
        unsafe { planes::turn(planes, at, upper) }
    }

    #[inline(always)]
    fn words(self, upper: &[u8; BLOCK], bytes: [&[u8; BLOCK]; 2], words: &mut [u32; BLOCK]) {
        // SAFETY: see `pairwise`.
        unsafe { planes::words(upper, bytes, words) }
    }
}

#[inline(always)]
fn halves<T>(line: &[T; 8]) -> [&[T; 4]; 2] {
    let [low, high] = line.as_chunks().0 else { unreachable!("eight are two times four") };
    [low, high]
}
