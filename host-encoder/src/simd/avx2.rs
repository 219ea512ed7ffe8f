// SPDX-License-Identifier: Apache-2.0
//! Eight lanes with AVX2, FMA and F16C.

pub(super) mod planes;

use super::{Kernel, Lanes, Planes};
use crate::wire::BLOCK;
use half::{bf16, f16};
use planes::{apart, columns, in_order};
use std::arch::asm;
use std::arch::x86_64::{
    __m256, __m256i, _mm_add_ps, _mm_add_ss, _mm_cvtsi128_si32, _mm_cvtss_f32, _mm_loadu_ps, _mm_loadu_si128,
    _mm_max_epu32, _mm_movehdup_ps, _mm_movehl_ps, _mm_shuffle_epi32, _mm_storeu_si128, _mm256_add_epi32,
    _mm256_add_ps, _mm256_and_si256, _mm256_blend_epi32, _mm256_blendv_epi8, _mm256_castps_si256,
    _mm256_castps256_ps128, _mm256_castsi256_ps, _mm256_castsi256_si128, _mm256_cmpgt_epi32,
    _mm256_cvtepi32_ps, _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_cvtps_ph, _mm256_cvttps_epi32,
    _mm256_extractf128_ps, _mm256_extracti128_si256, _mm256_fmadd_ps, _mm256_fmsub_ps, _mm256_loadu_ps,
    _mm256_loadu_si256, _mm256_max_epu32, _mm256_min_epu32, _mm256_movemask_ps, _mm256_mul_epu32,
    _mm256_mul_ps, _mm256_or_si256, _mm256_packs_epi16, _mm256_packs_epi32, _mm256_packus_epi32,
    _mm256_permute_ps, _mm256_permute2f128_ps, _mm256_permute4x64_epi64, _mm256_permutevar8x32_epi32,
    _mm256_permutevar8x32_ps, _mm256_set_m128, _mm256_set1_epi8, _mm256_set1_epi32, _mm256_set1_ps,
    _mm256_setr_epi8, _mm256_setr_epi32, _mm256_setr_ps, _mm256_setzero_si256, _mm256_slli_epi32,
    _mm256_slli_epi64, _mm256_sllv_epi32, _mm256_srli_epi32, _mm256_srli_epi64, _mm256_storeu_ps,
    _mm256_storeu_si256, _mm256_sub_epi32, _mm256_sub_ps, _mm256_testz_si256, _mm256_unpackhi_epi8,
    _mm256_unpackhi_epi16, _mm256_unpacklo_epi8, _mm256_unpacklo_epi16, _mm256_xor_ps, _mm256_xor_si256,
};

/// The proof that the machine has AVX2, FMA and F16C.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(crate) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c"))
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

#[target_feature(enable = "avx2,fma,f16c")]
fn run<K: Kernel>(kernel: K) -> K::Output {
    let mut one = _mm256_set1_ps(1.0);
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {} */", inout(ymm_reg) one, options(pure, nomem, nostack, preserves_flags)) };
    kernel.run(Vectors { one })
}

/// Vectors on a machine that has the features: only [`Avx2::run`] makes one.
#[derive(Clone, Copy)]
pub(crate) struct Vectors {
    /// 1 in all lanes, which the compiler does not know: it would turn products by it back into
    /// plain sums.
    one: __m256,
}

/// Operations that are one intrinsic.
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
    const N: usize = 8;
    type Line = [f32; 8];
    type F = __m256;
    type U = __m256i;

    #[inline(always)]
    fn lines(values: &[f32]) -> &[[f32; 8]] {
        values.as_chunks().0
    }

    #[inline(always)]
    fn lines_mut(values: &mut [f32]) -> &mut [[f32; 8]] {
        values.as_chunks_mut().0
    }

    intrinsics! {
        load(line: &[f32; 8]) -> __m256 = _mm256_loadu_ps(line.as_ptr());
        store(line: &mut [f32; 8], v: __m256) -> () = _mm256_storeu_ps(line.as_mut_ptr(), v);
        // sum + v · v
        add_square(v: __m256, sum: __m256) -> __m256 = _mm256_fmadd_ps(v, v, sum);
        load_bf16(halves: &[bf16; BLOCK], at: usize) -> __m256 = {
            let halves = _mm_loadu_si128(halves.as_chunks::<8>().0[at].as_ptr().cast());
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves)))
        };
        load_f16(halves: &[f16; BLOCK], at: usize) -> __m256
            = _mm256_cvtph_ps(_mm_loadu_si128(halves.as_chunks::<8>().0[at].as_ptr().cast()));
        store_bf16(v: __m256, halves: &mut [bf16; BLOCK], at: usize) -> () = {
            // To nearest, ties to even; a NaN stays one.
            let bits = _mm256_castps_si256(v);
            let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
            let rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
            let magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(i32::MAX));
            let nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f80_0000));
            let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
            let rounded = _mm256_srli_epi32::<16>(_mm256_blendv_epi8(rounded, quiet, nan));
            let packed = _mm256_permute4x64_epi64::<0b1000>(_mm256_packus_epi32(rounded, rounded));
            let to = halves.as_chunks_mut::<8>().0[at].as_mut_ptr();
            _mm_storeu_si128(to.cast(), _mm256_castsi256_si128(packed));
        };
        store_f16(v: __m256, halves: &mut [f16; BLOCK], at: usize) -> () = {
            let to = halves.as_chunks_mut::<8>().0[at].as_mut_ptr();
            _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<0>(v));
        };
        signs(values: &[f32; BLOCK]) -> u32 = {
            let of = |at: usize| {
                let v = _mm256_loadu_ps(values.as_chunks::<8>().0[at].as_ptr());
                _mm256_movemask_ps(v).cast_unsigned() << (8 * at)
            };
            of(0) | of(1) | of(2) | of(3)
        };
        load_words(words: &[u32; BLOCK], at: usize) -> __m256i
            = _mm256_loadu_si256(words.as_chunks::<8>().0[at].as_ptr().cast());
        store_words(words: &mut [u32; BLOCK], at: usize, v: __m256i) -> ()
            = _mm256_storeu_si256(words.as_chunks_mut::<8>().0[at].as_mut_ptr().cast(), v);
        to_array(v: __m256i, out: &mut [u32; 16]) -> () = _mm256_storeu_si256(out.as_mut_ptr().cast(), v);
        table(table: &[f32; 8]) -> __m256 = _mm256_loadu_ps(table.as_ptr());
        table_u(table: &[u32; 8]) -> __m256i = _mm256_loadu_si256(table.as_ptr().cast());

        splat(value: f32) -> __m256 = _mm256_set1_ps(value);
        add(a: __m256, b: __m256) -> __m256 = _mm256_add_ps(a, b);
        sub(a: __m256, b: __m256) -> __m256 = _mm256_sub_ps(a, b);
        mul(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
        bits(v: __m256) -> __m256i = _mm256_castps_si256(v);
        floats(v: __m256i) -> __m256 = _mm256_castsi256_ps(v);
        truncate(v: __m256) -> __m256i = _mm256_cvttps_epi32(v);
        convert(v: __m256i) -> __m256 = _mm256_cvtepi32_ps(v);

        splat_u(value: u32) -> __m256i = _mm256_set1_epi32(value.cast_signed());
        and(a: __m256i, b: __m256i) -> __m256i = _mm256_and_si256(a, b);
        or(a: __m256i, b: __m256i) -> __m256i = _mm256_or_si256(a, b);
        xor(a: __m256i, b: __m256i) -> __m256i = _mm256_xor_si256(a, b);
        add_u(a: __m256i, b: __m256i) -> __m256i = _mm256_add_epi32(a, b);
        min_u(a: __m256i, b: __m256i) -> __m256i = _mm256_min_epu32(a, b);
        max_u(a: __m256i, b: __m256i) -> __m256i = _mm256_max_epu32(a, b);
        shift_right_22(v: __m256i) -> __m256i = _mm256_srli_epi32::<22>(v);
        shift_right_28(v: __m256i) -> __m256i = _mm256_srli_epi32::<28>(v);
        shift_left_8(v: __m256i) -> __m256i = _mm256_slli_epi32::<8>(v);
        less_where_greater(v: __m256i, a: __m256i, b: __m256i) -> __m256i
            = _mm256_add_epi32(v, _mm256_cmpgt_epi32(a, b));
        lookup(table: __m256, index: __m256i) -> __m256 = _mm256_permutevar8x32_ps(table, index);
        lookup_u(table: __m256i, index: __m256i) -> __m256i = _mm256_permutevar8x32_epi32(table, index);
    }

    #[inline(always)]
    fn butterfly(self, a: __m256, b: __m256) -> (__m256, __m256) {
        // A fused 1 · a − b is rounded once, as the plain difference is, and runs on the
        // multipliers.
        // SAFETY: see `intrinsics`.
        (self.add(a, b), unsafe { _mm256_fmsub_ps(a, self.one, b) })
    }

    #[inline(always)]
    fn load_butterfly_4(self, line: &[f32; 8]) -> __m256 {
        // Both halves twice over, straight from memory: no permutation has to cross the halves.
        // SAFETY: see `intrinsics`; a line holds two times four f32.
        unsafe {
            let signs = _mm256_setr_ps(1., 1., 1., 1., -1., -1., -1., -1.);
            let (low, high) = (_mm_loadu_ps(line.as_ptr()), _mm_loadu_ps(line.as_ptr().add(4)));
            let (low, high) = (_mm256_set_m128(low, low), _mm256_set_m128(high, high));
            _mm256_fmadd_ps(high, signs, low)
        }
    }

    #[inline(always)]
    fn butterfly_lanes<const H: usize>(self, v: __m256) -> __m256 {
        // ±v + partner in one fused step: the product by ±1 is exact, so the sum is rounded once,
        // as a plain one is.
        // SAFETY: see `intrinsics`.
        unsafe {
            let (partner, signs) = match H {
                1 => (
                    _mm256_permute_ps::<0b10_11_00_01>(v),
                    _mm256_setr_ps(1., -1., 1., -1., 1., -1., 1., -1.),
                ),
                2 => (
                    _mm256_permute_ps::<0b01_00_11_10>(v),
                    _mm256_setr_ps(1., 1., -1., -1., 1., 1., -1., -1.),
                ),
                _ => (_mm256_permute2f128_ps::<1>(v, v), _mm256_setr_ps(1., 1., 1., 1., -1., -1., -1., -1.)),
            };
            _mm256_fmadd_ps(v, signs, partner)
        }
    }

    #[inline(always)]
    fn flip(self, v: __m256, word: u32, at: usize) -> __m256 {
        // SAFETY: see `intrinsics`.
        unsafe {
            // The lane's bit becomes its sign bit. One word serves four vectors, with other counts.
            let counts = _mm256_sub_epi32(
                _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24),
                _mm256_set1_epi32(8 * at as i32),
            );
            let shifted = _mm256_sllv_epi32(_mm256_set1_epi32(word.cast_signed()), counts);
            let signs = _mm256_and_si256(shifted, _mm256_set1_epi32(i32::MIN));
            _mm256_xor_ps(v, _mm256_castsi256_ps(signs))
        }
    }

    #[inline(always)]
    fn mul_wide(self, a: __m256i, b: __m256i) -> (__m256i, __m256i) {
        // SAFETY: see `intrinsics`.
        unsafe {
            let even = _mm256_mul_epu32(a, b);
            let odd = _mm256_mul_epu32(_mm256_srli_epi64::<32>(a), _mm256_srli_epi64::<32>(b));
            let high = _mm256_blend_epi32::<0b1010_1010>(_mm256_srli_epi64::<32>(even), odd);
            let low = _mm256_blend_epi32::<0b1010_1010>(even, _mm256_slli_epi64::<32>(odd));
            (high, low)
        }
    }

    #[inline(always)]
    fn sum(self, [low, high]: [__m256; 2]) -> f32 {
        // SAFETY: see `intrinsics`.
        unsafe {
            let eight = _mm256_add_ps(low, high);
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }

    #[inline(always)]
    fn is_zero(self, v: __m256i) -> bool {
        // SAFETY: see `intrinsics`.
        unsafe { _mm256_testz_si256(v, v) == 1 }
    }

    #[inline(always)]
    fn largest(self, [low, high]: [__m256i; 2]) -> u32 {
        // SAFETY: see `intrinsics`.
        unsafe {
            let eight = _mm256_max_epu32(low, high);
            let four = _mm_max_epu32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256::<1>(eight));
            let two = _mm_max_epu32(four, _mm_shuffle_epi32::<0b11_10_11_10>(four));
            _mm_cvtsi128_si32(_mm_max_epu32(two, _mm_shuffle_epi32::<0b01>(two))).cast_unsigned()
        }
    }
}

impl Planes for Vectors {
    // Here, and not at `run`: of functions with target features the compiler (1.95) forgets that
    // they are never to be inlined.
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
        // SAFETY: see `intrinsics`; every place has 32 bytes.
        unsafe {
            // Each 128-bit lane: bytes 2 of its four codes, then bytes 1 and 0.
            let by_byte = _mm256_setr_epi8(
                2, 6, 10, 14, 1, 5, 9, 13, 0, 4, 8, 12, -1, -1, -1, -1, //
                2, 6, 10, 14, 1, 5, 9, 13, 0, 4, 8, 12, -1, -1, -1, -1,
            );
            let code = |at| self.load_words(codes, at);
            let (codes, rest) = columns([code(0), code(1), code(2), code(3)], by_byte);
            // Saturation keeps signs, and leaves them where `columns` leaves the codes' bytes.
            let value = |at: usize| self.bits(self.load(&values.as_chunks::<8>().0[at]));
            let signs = _mm256_packs_epi16(
                _mm256_packs_epi32(value(0), value(1)),
                _mm256_packs_epi32(value(2), value(3)),
            );
            let signs = _mm256_and_si256(signs, _mm256_set1_epi8(-128));
            _mm256_storeu_si256(upper.as_mut_ptr().cast(), _mm256_or_si256(codes, signs));
            for (to, from) in bytes.into_iter().zip(rest) {
                _mm256_storeu_si256(to.as_mut_ptr().cast(), in_order(from));
            }
        }
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
    fn words(self, upper: &[u8; BLOCK], [b, c]: [&[u8; BLOCK]; 2], words: &mut [u32; BLOCK]) {
        // SAFETY: see `intrinsics`.
        unsafe {
            // All of them apart, as in `upper`: interleaved they come out in order.
            let load = |bytes: &[u8; BLOCK]| _mm256_loadu_si256(bytes.as_ptr().cast());
            let (a, b, c) = (load(upper), apart(load(b)), apart(load(c)));
            let zero = _mm256_setzero_si256();
            let (low, low_2) = (_mm256_unpacklo_epi8(zero, c), _mm256_unpackhi_epi8(zero, c));
            let (high, high_2) = (_mm256_unpacklo_epi8(b, a), _mm256_unpackhi_epi8(b, a));
            self.store_words(words, 0, _mm256_unpacklo_epi16(low, high));
            self.store_words(words, 1, _mm256_unpackhi_epi16(low, high));
            self.store_words(words, 2, _mm256_unpacklo_epi16(low_2, high_2));
            self.store_words(words, 3, _mm256_unpackhi_epi16(low_2, high_2));
        }
    }
}
