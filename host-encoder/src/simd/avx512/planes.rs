// SPDX-License-Identifier: Apache-2.0
//! The bytes and bits of code words, many at a time, with VBMI and GFNI.
//!
//! Every function needs the features that [`super::Avx512`] stands for.

use crate::wire::BLOCK;
use std::arch::x86_64::{
    __m512i, _mm_loadu_si128, _mm_storeu_si128, _mm256_loadu_si256, _mm256_storeu_si256, _mm512_castps_si512,
    _mm512_castsi256_si512, _mm512_castsi512_ps, _mm512_castsi512_si128, _mm512_castsi512_si256,
    _mm512_extracti32x4_epi32, _mm512_extracti64x4_epi64, _mm512_gf2p8affine_epi64_epi8, _mm512_inserti64x4,
    _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mask_blend_ps, _mm512_mask_broadcast_i32x4,
    _mm512_maskz_broadcast_i32x4, _mm512_permutex2var_epi64, _mm512_permutex2var_ps, _mm512_permutexvar_epi8,
    _mm512_set1_epi32, _mm512_set1_epi64, _mm512_setr_epi64, _mm512_setzero_ps, _mm512_srli_epi32,
    _mm512_storeu_ps, _mm512_storeu_si512, _mm512_ternarylogic_epi32, _mm512_test_epi32_mask,
    _mm512_unpackhi_epi64, _mm512_unpacklo_epi64,
};

/// Sixty-four places that bytes come from.
struct Order([u8; 64]);

impl Order {
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn load(&self) -> __m512i {
        // SAFETY: a vector is 64 bytes.
        unsafe { _mm512_loadu_si512(self.0.as_ptr().cast()) }
    }
}

/// Of sixteen words: their third bytes, those of eight words backwards (see [`turn_back`]), then
/// their second, then their first bytes.
static BYTES_OF_WORDS: Order = {
    let (mut order, mut i) = ([0; 64], 0);
    while i < 16 {
        let backwards = (i & 8) | (7 - (i & 7));
        order[i] = 4 * backwards as u8 + 2;
        order[16 + i] = 4 * i as u8 + 1;
        order[32 + i] = 4 * i as u8;
        i += 1;
    }
    Order(order)
};

/// Undoes that for bytes in order: of three times sixteen bytes and zeros, sixteen words of a zero
/// and one of each.
static WORDS_OF_BYTES: Order = {
    let (mut order, mut i) = ([0; 64], 0);
    while i < 16 {
        order[4 * i] = 48 + i as u8;
        order[4 * i + 1] = 32 + i as u8;
        order[4 * i + 2] = 16 + i as u8;
        order[4 * i + 3] = i as u8;
        i += 1;
    }
    Order(order)
};

/// Eight times eight bytes with rows and columns exchanged.
static TRANSPOSED: Order = {
    let (mut order, mut i) = ([0; 64], 0);
    while i < 64 {
        order[i] = (8 * (i % 8) + i / 8) as u8;
        i += 1;
    }
    Order(order)
};

/// The upper bytes come out backwards, eight by eight.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
#[inline]
pub(super) fn split_codes(
    values: &[f32; BLOCK],
    codes: &[u32; BLOCK],
    upper: &mut [u8; BLOCK],
    [b, c]: [&mut [u8; BLOCK]; 2],
) {
    let (order, sign) = (BYTES_OF_WORDS.load(), _mm512_set1_epi32(1 << 23));
    for half in 0..2 {
        // SAFETY: each half is sixteen words or bytes.
        unsafe {
            let value = _mm512_loadu_si512(values.as_chunks::<16>().0[half].as_ptr().cast());
            let code = _mm512_loadu_si512(codes.as_chunks::<16>().0[half].as_ptr().cast());
            // Where `sign` is set the value's sign, elsewhere the code.
            let word = _mm512_ternarylogic_epi32::<0b1110_0010>(_mm512_srli_epi32::<8>(value), sign, code);
            let bytes = _mm512_permutexvar_epi8(order, word);
            let at = |bytes: &mut [u8; BLOCK]| bytes.as_chunks_mut::<16>().0[half].as_mut_ptr().cast();
            _mm_storeu_si128(at(upper), _mm512_castsi512_si128(bytes));
            _mm_storeu_si128(at(b), _mm512_extracti32x4_epi32::<1>(bytes));
            _mm_storeu_si128(at(c), _mm512_extracti32x4_epi32::<2>(bytes));
        }
    }
}

/// A product of bit matrices takes eight bytes as the rows of one, the last row first, and gives
/// for each byte of the other operand the parities of the rows masked by it. Of bytes with a single
/// bit each these are columns: the transpose, backwards.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
#[inline]
pub(super) fn turn_back(upper: &[[u8; BLOCK]; 8], planes: &mut [u8], at: usize) {
    let length = super::super::avx2::planes::length_of(planes, at);
    let (order, planes) = (TRANSPOSED.load(), planes.as_mut_ptr());
    // Byte p of each column comes from bit 7 − p, that of plane p.
    let columns = _mm512_set1_epi64(0x0102_0408_1020_4080);
    // Eight bytes of each plane, for 64 coordinates.
    let eights = |pair: usize| {
        // SAFETY: two blocks are 64 bytes.
        let bytes = unsafe { _mm512_loadu_si512(upper.as_chunks::<2>().0[pair].as_ptr().cast()) };
        let turned = _mm512_gf2p8affine_epi64_epi8::<0>(columns, bytes);
        _mm512_permutexvar_epi8(order, turned)
    };
    let (a, b, c, d) = (eights(0), eights(1), eights(2), eights(3));
    let even = (_mm512_unpacklo_epi64(a, b), _mm512_unpacklo_epi64(c, d));
    let odd = (_mm512_unpackhi_epi64(a, b), _mm512_unpackhi_epi64(c, d));
    let first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    let second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    for (from, (low, high)) in [even, odd].into_iter().enumerate() {
        for (quarter, order) in [first, second].into_iter().enumerate() {
            let two = _mm512_permutex2var_epi64(low, order, high);
            let plane = |p: usize| planes.wrapping_add(p * length + at);
            // SAFETY: each of eight planes has a piece there.
            unsafe {
                let p = from + 4 * quarter;
                _mm256_storeu_si256(plane(p).cast(), _mm512_castsi512_si256(two));
                _mm256_storeu_si256(plane(p + 2).cast(), _mm512_extracti64x4_epi64::<1>(two));
            }
        }
    }
}

/// The upper bytes come out in order.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi,gfni")]
#[inline]
pub(super) fn turn(planes: &[u8], at: usize, upper: &mut [[u8; BLOCK]; 8]) {
    let length = super::super::avx2::planes::length_of(planes, at);
    let order = TRANSPOSED.load();
    // Byte j of each column comes from bit j, that of coordinate j.
    let columns = _mm512_set1_epi64(0x8040_2010_0804_0201_u64.cast_signed());
    let two = |p: usize| {
        // SAFETY: each of eight planes has a piece there.
        unsafe {
            let plane = |p: usize| _mm256_loadu_si256(planes.as_ptr().add(p * length + at).cast());
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(plane(p)), plane(p + 2))
        }
    };
    let (even, odd) = ((two(0), two(4)), (two(1), two(5)));
    let first = _mm512_setr_epi64(0, 1, 4, 5, 8, 9, 12, 13);
    let second = _mm512_setr_epi64(2, 3, 6, 7, 10, 11, 14, 15);
    for (half, order_of) in [first, second].into_iter().enumerate() {
        let even = _mm512_permutex2var_epi64(even.0, order_of, even.1);
        let odd = _mm512_permutex2var_epi64(odd.0, order_of, odd.1);
        let eights = [_mm512_unpacklo_epi64(even, odd), _mm512_unpackhi_epi64(even, odd)];
        for (pair, eights) in eights.into_iter().enumerate() {
            let rows = _mm512_permutexvar_epi8(order, eights);
            let bytes = _mm512_gf2p8affine_epi64_epi8::<0>(columns, rows);
            let to = &mut upper.as_chunks_mut::<2>().0[2 * half + pair];
            // SAFETY: two blocks are 64 bytes.
            unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), bytes) };
        }
    }
}

#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vbmi")]
#[inline]
pub(super) fn words(upper: &[u8; BLOCK], [b, c]: [&[u8; BLOCK]; 2], words: &mut [u32; BLOCK]) {
    let order = WORDS_OF_BYTES.load();
    for (half, words) in words.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        // SAFETY: each half is sixteen words or bytes.
        unsafe {
            let of = |bytes: &[u8; BLOCK]| _mm_loadu_si128(bytes.as_chunks::<16>().0[half].as_ptr().cast());
            let bytes = _mm512_maskz_broadcast_i32x4(0x000f, of(upper));
            let bytes = _mm512_mask_broadcast_i32x4(bytes, 0x00f0, of(b));
            let bytes = _mm512_mask_broadcast_i32x4(bytes, 0x0f00, of(c));
            _mm512_storeu_si512(words.as_mut_ptr().cast(), _mm512_permutexvar_epi8(order, bytes));
        }
    }
}

/// Eight vectors hold the magnitudes. A look-up in two of them takes five bits of the index; two
/// bits choose among four of those.
#[target_feature(enable = "avx512f,avx512dq,avx512bw,avx512vbmi")]
#[inline]
pub(super) fn of_cells(magnitudes: &[f32; 128], words: &[u32], out: &mut [f32]) {
    let mut table = [_mm512_setzero_ps(); 8];
    for (v, sixteen) in table.iter_mut().zip(magnitudes.as_chunks::<16>().0) {
        // SAFETY: a vector is sixteen f32.
        *v = unsafe { _mm512_loadu_ps(sixteen.as_ptr()) };
    }
    let (sixth, seventh) = (_mm512_set1_epi32(1 << 29), _mm512_set1_epi32(1 << 30));
    let sign = _mm512_set1_epi32(i32::MIN);
    for (words, out) in words.as_chunks::<16>().0.iter().zip(out.as_chunks_mut::<16>().0) {
        // SAFETY: as above.
        let word = unsafe { _mm512_loadu_si512(words.as_ptr().cast()) };
        let index = _mm512_srli_epi32::<24>(word);
        let sixth = _mm512_test_epi32_mask(word, sixth);
        let seventh = _mm512_test_epi32_mask(word, seventh);
        let two = |at: usize| _mm512_permutex2var_ps(table[at], index, table[at + 1]);
        let low = _mm512_mask_blend_ps(sixth, two(0), two(2));
        let high = _mm512_mask_blend_ps(sixth, two(4), two(6));
        let magnitude = _mm512_castps_si512(_mm512_mask_blend_ps(seventh, low, high));
        // The magnitude, and of the word the sign.
        let value = _mm512_ternarylogic_epi32::<0b1111_1000>(magnitude, word, sign);
        // SAFETY: as above.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), _mm512_castsi512_ps(value)) };
    }
}
