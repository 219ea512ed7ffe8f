// SPDX-License-Identifier: Apache-2.0
//! Sixteen lanes with AVX-512.
//!
//! Only where there are VBMI and GFNI, too (Ice Lake, Zen 4 and later): a permutation of any bytes
//! and a product of bit matrices do in one instruction what takes AVX2 a dozen to turn code words
//! into planes. Without them longer vectors gain nothing over AVX2, so such machines use that.

mod planes;

use super::{Kernel, Lanes, Planes};
use crate::wire::BLOCK;
use half::{bf16, f16};
use std::arch::asm;
use std::arch::x86_64::{
    __m512, __m512i, __mmask16, _mm_add_ps, _mm_add_ss, _mm_cvtss_f32, _mm_movehdup_ps, _mm_movehl_ps,
    _mm_sfence, _mm256_add_ps, _mm256_castps256_ps128, _mm256_extractf128_ps, _mm256_loadu_ps,
    _mm256_loadu_si256, _mm256_storeu_si256, _mm512_add_epi32, _mm512_add_ps, _mm512_and_si512,
    _mm512_broadcast_f32x8, _mm512_broadcast_i64x4, _mm512_castps_si512, _mm512_castps512_ps256,
    _mm512_castsi512_ps, _mm512_cmpgt_epi32_mask, _mm512_cmpgt_epu32_mask, _mm512_cvtepi32_epi16,
    _mm512_cvtepi32_ps, _mm512_cvtepu16_epi32, _mm512_cvtph_ps, _mm512_cvtps_ph, _mm512_cvttps_epi32,
    _mm512_extractf32x8_ps, _mm512_fmadd_ps, _mm512_fmsub_ps, _mm512_loadu_ps, _mm512_loadu_si512,
    _mm512_mask_blend_epi32, _mm512_mask_mov_epi32, _mm512_mask_sub_epi32, _mm512_mask_xor_epi32,
    _mm512_max_epu32, _mm512_min_epu32, _mm512_movepi32_mask, _mm512_mul_epu32, _mm512_mul_ps,
    _mm512_or_si512, _mm512_permute_ps, _mm512_permutexvar_epi32, _mm512_permutexvar_ps,
    _mm512_reduce_max_epu32, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setr_ps, _mm512_shuffle_f32x4,
    _mm512_slli_epi32, _mm512_slli_epi64, _mm512_srli_epi32, _mm512_srli_epi64, _mm512_storeu_ps,
    _mm512_storeu_si512, _mm512_stream_ps, _mm512_sub_ps, _mm512_test_epi32_mask, _mm512_xor_si512,
};

/// The proof that the machine has AVX-512 F, BW, DQ, VL, VBMI and GFNI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Avx512(());

impl Avx512 {
    pub(crate) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vbmi")
            && is_x86_feature_detected!("gfni"))
        .then_some(Self(()))
    }

    /// Runs a kernel in a function that has the features, so that everything inlines into it.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        let Self(()) = self;
        // SAFETY: `self` exists only where the features were detected.
        unsafe { run(kernel) }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,gfni")]
fn run<K: Kernel>(kernel: K) -> K::Output {
    let mut one = _mm512_set1_ps(1.0);
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {} */", inout(zmm_reg) one, options(pure, nomem, nostack, preserves_flags)) };
    kernel.run(Vectors { one })
}

/// Vectors on a machine that has the features: only [`Avx512::run`] makes one.
#[derive(Clone, Copy)]
pub(crate) struct Vectors {
    /// 1 in all lanes, which the compiler does not know: it would turn products by it back into
    /// plain sums.
    one: __m512,
}

/// Operations that are one intrinsic or two.
macro_rules! intrinsics {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty = $term:expr;)+) => {$(
        #[inline(always)]
        fn $name(self, $($arg: $type),*) -> $out {
            // SAFETY: `self` exists only where the features were detected; arrays have the size of
            // the vectors that are loaded from or stored to them.
            unsafe { $term }
        }
    )+};
}

impl Lanes for Vectors {
    const N: usize = 16;
    type Line = [f32; 16];
    type F = __m512;
    type U = __m512i;

    #[inline(always)]
    fn lines(values: &[f32]) -> &[[f32; 16]] {
        values.as_chunks().0
    }

    #[inline(always)]
    fn lines_mut(values: &mut [f32]) -> &mut [[f32; 16]] {
        values.as_chunks_mut().0
    }

    intrinsics! {
        load(line: &[f32; 16]) -> __m512 = _mm512_loadu_ps(line.as_ptr());
        store(line: &mut [f32; 16], v: __m512) -> () = _mm512_storeu_ps(line.as_mut_ptr(), v);
        // sum + v · v
        add_square(v: __m512, sum: __m512) -> __m512 = _mm512_fmadd_ps(v, v, sum);
        load_bf16(halves: &[bf16; BLOCK], at: usize) -> __m512 = {
            let halves = _mm256_loadu_si256(halves.as_chunks::<16>().0[at].as_ptr().cast());
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves)))
        };
        load_f16(halves: &[f16; BLOCK], at: usize) -> __m512
            = _mm512_cvtph_ps(_mm256_loadu_si256(halves.as_chunks::<16>().0[at].as_ptr().cast()));
        store_bf16(v: __m512, halves: &mut [bf16; BLOCK], at: usize) -> () = {
            // To nearest, ties to even; a NaN stays one.
            let bits = _mm512_castps_si512(v);
            let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
            let rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
            let magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(i32::MAX));
            let nan = _mm512_cmpgt_epu32_mask(magnitude, _mm512_set1_epi32(0x7f80_0000));
            let quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x0040_0000));
            let rounded = _mm512_srli_epi32::<16>(_mm512_mask_mov_epi32(rounded, nan, quiet));
            let to = halves.as_chunks_mut::<16>().0[at].as_mut_ptr();
            _mm256_storeu_si256(to.cast(), _mm512_cvtepi32_epi16(rounded));
        };
        store_f16(v: __m512, halves: &mut [f16; BLOCK], at: usize) -> () = {
            let to = halves.as_chunks_mut::<16>().0[at].as_mut_ptr();
            _mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<0>(v));
        };
        signs(values: &[f32; BLOCK]) -> u32 = {
            let of = |half: usize| {
                let half = _mm512_loadu_si512(values.as_chunks::<16>().0[half].as_ptr().cast());
                u32::from(_mm512_movepi32_mask(half))
            };
            of(0) | of(1) << 16
        };
        load_words(words: &[u32; BLOCK], at: usize) -> __m512i
            = _mm512_loadu_si512(words.as_chunks::<16>().0[at].as_ptr().cast());
        store_words(words: &mut [u32; BLOCK], at: usize, v: __m512i) -> ()
            = _mm512_storeu_si512(words.as_chunks_mut::<16>().0[at].as_mut_ptr().cast(), v);
        to_array(v: __m512i, out: &mut [u32; 16]) -> () = _mm512_storeu_si512(out.as_mut_ptr().cast(), v);
        table(table: &[f32; 8]) -> __m512 = _mm512_broadcast_f32x8(_mm256_loadu_ps(table.as_ptr()));
        table_u(table: &[u32; 8]) -> __m512i
            = _mm512_broadcast_i64x4(_mm256_loadu_si256(table.as_ptr().cast()));

        splat(value: f32) -> __m512 = _mm512_set1_ps(value);
        add(a: __m512, b: __m512) -> __m512 = _mm512_add_ps(a, b);
        sub(a: __m512, b: __m512) -> __m512 = _mm512_sub_ps(a, b);
        mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        bits(v: __m512) -> __m512i = _mm512_castps_si512(v);
        floats(v: __m512i) -> __m512 = _mm512_castsi512_ps(v);
        truncate(v: __m512) -> __m512i = _mm512_cvttps_epi32(v);
        convert(v: __m512i) -> __m512 = _mm512_cvtepi32_ps(v);

        splat_u(value: u32) -> __m512i = _mm512_set1_epi32(value.cast_signed());
        and(a: __m512i, b: __m512i) -> __m512i = _mm512_and_si512(a, b);
        or(a: __m512i, b: __m512i) -> __m512i = _mm512_or_si512(a, b);
        xor(a: __m512i, b: __m512i) -> __m512i = _mm512_xor_si512(a, b);
        add_u(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi32(a, b);
        min_u(a: __m512i, b: __m512i) -> __m512i = _mm512_min_epu32(a, b);
        max_u(a: __m512i, b: __m512i) -> __m512i = _mm512_max_epu32(a, b);

        shift_right_22(v: __m512i) -> __m512i = _mm512_srli_epi32::<22>(v);
        shift_right_28(v: __m512i) -> __m512i = _mm512_srli_epi32::<28>(v);
        shift_left_8(v: __m512i) -> __m512i = _mm512_slli_epi32::<8>(v);
        less_where_greater(v: __m512i, a: __m512i, b: __m512i) -> __m512i
            = _mm512_mask_sub_epi32(v, _mm512_cmpgt_epi32_mask(a, b), v, _mm512_set1_epi32(1));

        // Index bits above the low four are ignored, and tables of eight are repeated: the index
        // counts modulo eight.
        lookup(table: __m512, index: __m512i) -> __m512 = _mm512_permutexvar_ps(index, table);
        lookup_u(table: __m512i, index: __m512i) -> __m512i = _mm512_permutexvar_epi32(index, table);
    }

    #[inline(always)]
    fn stream(self, line: &mut [f32; 16], v: __m512) {
        let to = line.as_mut_ptr();
        if to.addr().is_multiple_of(64) {
            // SAFETY: see `intrinsics`; the line begins where such a store has to.
            unsafe { _mm512_stream_ps(to, v) };
        } else {
            self.store(line, v);
        }
    }

    #[inline(always)]
    fn fence(self) {
        // SAFETY: every processor of 64 bits has the instruction.
        unsafe { _mm_sfence() };
    }

    #[inline(always)]
    fn butterfly(self, a: __m512, b: __m512) -> (__m512, __m512) {
        // A fused 1 · a − b is rounded once, as the plain difference is, and runs on the
        // multipliers.
        // SAFETY: see `intrinsics`.
        (self.add(a, b), unsafe { _mm512_fmsub_ps(a, self.one, b) })
    }

    #[inline(always)]
    fn butterfly_lanes<const H: usize>(self, v: __m512) -> __m512 {
        // ±v + partner in one fused step: the product by ±1 is exact, so the sum is rounded once,
        // as a plain one is.
        // SAFETY: see `intrinsics`.
        unsafe {
            #[rustfmt::skip]
            let (partner, signs) = match H {
                1 => (
                    _mm512_permute_ps::<0b10_11_00_01>(v),
                    _mm512_setr_ps(1., -1., 1., -1., 1., -1., 1., -1., 1., -1., 1., -1., 1., -1., 1., -1.),
                ),
                2 => (
                    _mm512_permute_ps::<0b01_00_11_10>(v),
                    _mm512_setr_ps(1., 1., -1., -1., 1., 1., -1., -1., 1., 1., -1., -1., 1., 1., -1., -1.),
                ),
                4 => (
                    _mm512_shuffle_f32x4::<0b10_11_00_01>(v, v),
                    _mm512_setr_ps(1., 1., 1., 1., -1., -1., -1., -1., 1., 1., 1., 1., -1., -1., -1., -1.),
                ),
                _ => (
                    _mm512_shuffle_f32x4::<0b01_00_11_10>(v, v),
                    _mm512_setr_ps(1., 1., 1., 1., 1., 1., 1., 1., -1., -1., -1., -1., -1., -1., -1., -1.),
                ),
            };
            _mm512_fmadd_ps(v, signs, partner)
        }
    }

    #[inline(always)]
    fn sum(self, [v, _]: [__m512; 2]) -> f32 {
        // SAFETY: see `intrinsics`.
        unsafe {
            let eight = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn is_zero(self, v: __m512i) -> bool {
        // SAFETY: see `intrinsics`.
        unsafe { _mm512_test_epi32_mask(v, v) == 0 }
    }

    #[inline(always)]
    fn largest(self, [v, _]: [__m512i; 2]) -> u32 {
        // SAFETY: see `intrinsics`.
        unsafe { _mm512_reduce_max_epu32(v) }
    }

    #[inline(always)]
    fn flip(self, v: __m512, word: u32, at: usize) -> __m512 {
        // SAFETY: see `intrinsics`.
        unsafe {
            let (lanes, bits) = ((word >> (16 * at)) as __mmask16, _mm512_castps_si512(v));
            _mm512_castsi512_ps(_mm512_mask_xor_epi32(bits, lanes, bits, _mm512_set1_epi32(i32::MIN)))
        }
    }

    #[inline(always)]
    fn mul_wide(self, a: __m512i, b: __m512i) -> (__m512i, __m512i) {
        // SAFETY: see `intrinsics`.
        unsafe {
            let even = _mm512_mul_epu32(a, b);
            let odd = _mm512_mul_epu32(_mm512_srli_epi64::<32>(a), _mm512_srli_epi64::<32>(b));
            let high = _mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64::<32>(even), odd);
            let low = _mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64::<32>(odd));
            (high, low)
        }
    }
}

impl Planes for Vectors {
    // See the other backend's.
    #[inline(never)]
    fn outlined<K: Kernel>(self, kernel: K) -> K::Output {
        // SAFETY: see `intrinsics`.
        unsafe { run(kernel) }
    }

    #[inline(always)]
    fn split_codes(
        self,
        values: &[f32; BLOCK],
        codes: &[u32; BLOCK],
        upper: &mut [u8; BLOCK],
        bytes: [&mut [u8; BLOCK]; 2],
    ) {
        // SAFETY: see `intrinsics`.
        unsafe { planes::split_codes(values, codes, upper, bytes) }
    }

    #[inline(always)]
    fn turn_back(self, upper: &[[u8; BLOCK]; 8], planes: &mut [u8], at: usize) {
        // SAFETY: see `intrinsics`.
        unsafe { planes::turn_back(upper, planes, at) }
    }

    #[inline(always)]
    fn turn(self, planes: &[u8], at: usize, upper: &mut [[u8; BLOCK]; 8]) {
        // SAFETY: see `intrinsics`.
        unsafe { planes::turn(planes, at, upper) }
    }

    #[inline(always)]
    fn words(self, upper: &[u8; BLOCK], bytes: [&[u8; BLOCK]; 2], words: &mut [u32; BLOCK]) {
        // SAFETY: see `intrinsics`.
        unsafe { planes::words(upper, bytes, words) }
    }

    #[inline(always)]
    fn of_cells(self, magnitudes: &[f32; 128], words: &[u32], out: &mut [f32]) {
        // SAFETY: see `intrinsics`.
        unsafe { planes::of_cells(magnitudes, words, out) }
    }
}
