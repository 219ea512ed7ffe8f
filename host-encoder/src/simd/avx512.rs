//! Sixteen lanes with AVX-512 F, BW, DQ and VL.

use super::{Kernel, Lanes, Planes};
use crate::wire::BLOCK;
use std::arch::x86_64::{
    __m512, __m512i, __mmask16, _mm_loadu_si128, _mm_storeu_si128, _mm256_loadu_ps, _mm256_loadu_si256,
    _mm256_storeu_si256, _mm512_add_epi32, _mm512_add_ps, _mm512_and_si512, _mm512_broadcast_f32x8,
    _mm512_broadcast_i64x4, _mm512_castps_si512, _mm512_castsi512_ps, _mm512_cmpgt_epi32_mask,
    _mm512_cvtepi32_epi8, _mm512_cvtepi32_ps, _mm512_cvtepu8_epi32, _mm512_cvttps_epi32, _mm512_fmadd_ps,
    _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mask_blend_epi32, _mm512_mask_sub_epi32, _mm512_max_epu32,
    _mm512_min_epu32, _mm512_movm_epi32, _mm512_mul_epu32, _mm512_mul_ps, _mm512_or_si512, _mm512_permute_ps,
    _mm512_permutexvar_epi32, _mm512_permutexvar_ps, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setr_ps,
    _mm512_shuffle_f32x4, _mm512_slli_epi32, _mm512_slli_epi64, _mm512_srli_epi32, _mm512_srli_epi64,
    _mm512_storeu_ps, _mm512_storeu_si512, _mm512_sub_ps, _mm512_xor_si512,
};

/// The proof that the machine has AVX-512 F, BW, DQ and VL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Avx512(());

impl Avx512 {
    pub(crate) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl"))
        .then_some(Self(()))
    }

    /// Runs a kernel in a function that has the features, so that everything inlines into it.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
        fn featured<K: Kernel>(lanes: Avx512, kernel: K) -> K::Output {
            kernel.run(lanes)
        }
        // SAFETY: `self` exists only where the features were detected.
        unsafe { featured(self, kernel) }
    }
}

/// Operations that are one intrinsic or two.
macro_rules! intrinsics {
    ($($name:ident($($arg:ident: $type:ty),*) -> $out:ty = $term:expr;)+) => {$(
        #[inline(always)]
        fn $name(self, $($arg: $type),*) -> $out {
            // SAFETY: `self` exists only where the features were detected; arrays have the size of the vectors that are
            // loaded from or stored to them.
            unsafe { $term }
        }
    )+};
}

impl Lanes for Avx512 {
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
        less_where_greater(v: __m512i, a: __m512i, b: __m512i) -> __m512i
            = _mm512_mask_sub_epi32(v, _mm512_cmpgt_epi32_mask(a, b), v, _mm512_set1_epi32(1));

        // Index bits above the low four are ignored, and tables of eight are repeated: the index counts modulo eight.
        lookup(table: __m512, index: __m512i) -> __m512 = _mm512_permutexvar_ps(index, table);
        lookup_u(table: __m512i, index: __m512i) -> __m512i = _mm512_permutexvar_epi32(index, table);
    }

    #[inline(always)]
    fn butterfly(self, a: __m512, b: __m512) -> (__m512, __m512) {
        (self.add(a, b), self.sub(a, b))
    }

    #[inline(always)]
    fn butterfly_lanes<const H: usize>(self, v: __m512) -> __m512 {
        // ±v + partner in one fused step: the product by ±1 is exact, so the sum is rounded once, as a plain one is.
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
    fn flip(self, v: __m512, word: u32, at: usize) -> __m512 {
        // SAFETY: see `intrinsics`.
        unsafe {
            let lanes = _mm512_movm_epi32((word >> (16 * at)) as __mmask16);
            let signs = _mm512_and_si512(lanes, _mm512_set1_epi32(i32::MIN));
            _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(v), signs))
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

impl Planes for Avx512 {
    // See the other backend's.
    #[inline(never)]
    fn outlined<K: Kernel>(self, kernel: K) -> K::Output {
        self.run(kernel)
    }

    #[inline(always)]
    fn split_codes(
        self,
        values: &[f32; BLOCK],
        codes: &[u32; BLOCK],
        upper: &mut [u8; BLOCK],
        [b, c]: [&mut [u8; BLOCK]; 2],
    ) {
        let codes = [self.load_words(codes, 0), self.load_words(codes, 1)];
        let [low, high] = [0, 1].map(|half| values.as_chunks::<16>().0[half].as_ptr());
        // SAFETY: see `intrinsics`; each half of the values is a vector. AVX-512 F includes AVX2.
        unsafe {
            self.narrow(b, _mm512_srli_epi32::<8>(codes[0]), _mm512_srli_epi32::<8>(codes[1]));
            self.narrow(c, codes[0], codes[1]);
            let with_sign = |code, values| {
                let signs = _mm512_and_si512(
                    _mm512_castps_si512(_mm512_loadu_ps(values)),
                    _mm512_set1_epi32(i32::MIN),
                );
                _mm512_or_si512(_mm512_srli_epi32::<16>(code), _mm512_srli_epi32::<24>(signs))
            };
            self.narrow(upper, with_sign(codes[0], low), with_sign(codes[1], high));
            let v = super::avx2::planes::apart(_mm256_loadu_si256(upper.as_ptr().cast()));
            _mm256_storeu_si256(upper.as_mut_ptr().cast(), v);
        }
    }

    #[inline(always)]
    fn turn_back(self, upper: &[[u8; BLOCK]; 8], planes: &mut [u8], at: usize) {
        // SAFETY: see `intrinsics`; AVX-512 F includes AVX2.
        unsafe { super::avx2::planes::turn_back(upper, planes, at) }
    }

    #[inline(always)]
    fn turn(self, planes: &[u8], at: usize, upper: &mut [[u8; BLOCK]; 8]) {
        // SAFETY: see `intrinsics`; AVX-512 F includes AVX2.
        unsafe { super::avx2::planes::turn(planes, at, upper) }
    }

    #[inline(always)]
    fn words(self, upper: &[u8; BLOCK], bytes: [&[u8; BLOCK]; 2], words: &mut [u32; BLOCK]) {
        let mut ordered = [0; BLOCK];
        // SAFETY: see `intrinsics`; AVX-512 F includes AVX2, and both have 32 bytes.
        unsafe {
            let v = super::avx2::planes::in_order(_mm256_loadu_si256(upper.as_ptr().cast()));
            _mm256_storeu_si256(ordered.as_mut_ptr().cast(), v);
        }
        self.together(&ordered, bytes, words);
    }
}

impl Avx512 {
    /// A block's code words from their upper bytes and both byte-planes.
    #[inline(always)]
    fn together(self, upper: &[u8; BLOCK], bytes: [&[u8; BLOCK]; 2], words: &mut [u32; BLOCK]) {
        for half in 0..2 {
            // SAFETY: see `intrinsics`.
            let word = unsafe {
                let high = _mm512_or_si512(
                    _mm512_slli_epi32::<24>(self.widen(upper, half)),
                    _mm512_slli_epi32::<16>(self.widen(bytes[0], half)),
                );
                _mm512_or_si512(high, _mm512_slli_epi32::<8>(self.widen(bytes[1], half)))
            };
            self.store_words(words, half, word);
        }
    }

    /// The lowest bytes of a block's words.
    #[inline(always)]
    fn narrow(self, bytes: &mut [u8; BLOCK], a: __m512i, b: __m512i) {
        let Self(()) = self;
        let (low, high) = bytes.split_at_mut(16);
        // SAFETY: see `intrinsics`; both halves hold sixteen bytes.
        unsafe {
            _mm_storeu_si128(low.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(a));
            _mm_storeu_si128(high.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(b));
        }
    }

    /// Half of a block's bytes as words.
    #[inline(always)]
    fn widen(self, bytes: &[u8; BLOCK], half: usize) -> __m512i {
        let Self(()) = self;
        let bytes = bytes.as_chunks::<16>().0[half];
        // SAFETY: see `intrinsics`; a half is sixteen bytes.
        unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(bytes.as_ptr().cast())) }
    }
}
