// SPDX-License-Identifier: Apache-2.0
//! The bytes and bits of code words, many at a time. For machines with longer vectors as well.

use crate::wire::BLOCK;
use std::arch::asm;
use std::arch::x86_64::{
    __m256i, _mm256_and_si256, _mm256_blend_epi32, _mm256_loadu_si256, _mm256_permute2x128_si256,
    _mm256_set1_epi8, _mm256_setr_epi8, _mm256_setr_epi32, _mm256_shuffle_epi8, _mm256_slli_epi16,
    _mm256_srli_epi16, _mm256_storeu_si256, _mm256_unpackhi_epi8, _mm256_unpackhi_epi16,
    _mm256_unpackhi_epi32, _mm256_unpackhi_epi64, _mm256_unpacklo_epi8, _mm256_unpacklo_epi16,
    _mm256_unpacklo_epi32, _mm256_unpacklo_epi64, _mm256_xor_si256,
};

/// The doublewords of `v` in another order: one instruction. The compiler (1.95) takes the
/// intrinsic apart into two others, which take longer.
#[target_feature(enable = "avx2")]
#[inline]
fn permute(v: __m256i, order: __m256i) -> __m256i {
    let permuted;
    // SAFETY: an instruction on registers that AVX2 has.
    unsafe {
        asm!("vpermd {}, {}, {}", lateout(ymm_reg) permuted, in(ymm_reg) order, in(ymm_reg) v,
            options(pure, nomem, nostack, preserves_flags));
    }
    permuted
}

/// The same vector, of which the compiler does not know how it came about: it would merge shuffles
/// into more and dearer ones, and turn sums into shifts.
#[target_feature(enable = "avx2")]
#[inline]
fn opaque(mut v: __m256i) -> __m256i {
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {} */", inout(ymm_reg) v, options(pure, nomem, nostack, preserves_flags)) };
    v
}

/// Of a block's words, in vectors, the bytes that `by_byte` puts first in each 128-bit lane; and
/// those that it puts second and third. All are [`apart`].
#[target_feature(enable = "avx2")]
#[inline]
pub(in crate::simd) fn columns(words: [__m256i; 4], by_byte: __m256i) -> (__m256i, [__m256i; 2]) {
    let [a, b, c, d] = words;
    let group = |v| opaque(_mm256_shuffle_epi8(v, by_byte));
    let (a, b, c, d) = (group(a), group(b), group(c), group(d));
    let (low_ab, high_ab) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let (low_cd, high_cd) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
    let bytes = [_mm256_unpackhi_epi64(low_ab, low_cd), _mm256_unpacklo_epi64(high_ab, high_cd)];
    (_mm256_unpacklo_epi64(low_ab, low_cd), bytes)
}

/// Of 32 bytes, 8·j to 8·j + 3 in the lower half, 8·j + 4 to 8·j + 7 in the upper one: so they come
/// where the halves of vectors are worked on apart.
#[target_feature(enable = "avx2")]
#[inline]
pub(in crate::simd) fn apart(v: __m256i) -> __m256i {
    permute(v, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7))
}

/// Undoes [`apart`].
#[target_feature(enable = "avx2")]
#[inline]
pub(in crate::simd) fn in_order(v: __m256i) -> __m256i {
    permute(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
}

/// 8 × 8 matrices of bits, one for each byte of a vector: bit j of vector i changes places with bit
/// i of vector j (Hacker's Delight, §7-3: blocks of four, of two, single bits).
#[target_feature(enable = "avx2")]
#[inline]
fn transpose(mut r: [__m256i; 8]) -> [__m256i; 8] {
    macro_rules! swap {
        ($distance:literal, $mask:literal) => {
            for i in 0..8 {
                if i & $distance == 0 {
                    let (low, high) = (r[i], r[i + $distance]);
                    let moved = _mm256_xor_si256(_mm256_srli_epi16::<$distance>(low), high);
                    let moved = _mm256_and_si256(moved, _mm256_set1_epi8($mask));
                    r[i] = _mm256_xor_si256(low, _mm256_slli_epi16::<$distance>(moved));
                    r[i + $distance] = _mm256_xor_si256(high, moved);
                }
            }
        };
    }
    swap!(4, 0x0f);
    swap!(2, 0x33);
    swap!(1, 0x55);
    r
}

/// The lower halves of both, the upper halves of both.
#[target_feature(enable = "avx2")]
#[inline]
fn halves(a: __m256i, b: __m256i) -> (__m256i, __m256i) {
    // One permutation that crosses the halves instead of two.
    let crossed = opaque(_mm256_permute2x128_si256::<0x21>(a, b));
    (_mm256_blend_epi32::<0xf0>(a, crossed), _mm256_blend_epi32::<0xf0>(crossed, b))
}

/// The length of eight planes, of which each has a piece at `at`: looked at once, not plane by
/// plane.
#[inline(always)]
pub(in crate::simd) fn length_of(planes: &[u8], at: usize) -> usize {
    let length = planes.len() / 8;
    assert!(
        length.checked_sub(BLOCK).is_some_and(|last| at <= last),
        "planes of {length} bytes have no piece at {at}"
    );
    length
}

/// [`Lanes::turn`]. The upper bytes come out [`apart`].
#[target_feature(enable = "avx2")]
#[inline]
pub(in crate::simd) fn turn(planes: &[u8], at: usize, upper: &mut [[u8; BLOCK]; 8]) {
    let length = length_of(planes, at);
    // SAFETY: each of eight planes has a piece there.
    let load = |p: usize| unsafe { _mm256_loadu_si256(planes.as_ptr().add((7 - p) * length + at).cast()) };
    let r = transpose([load(0), load(1), load(2), load(3), load(4), load(5), load(6), load(7)]);
    // Vector b now holds bytes 8·j + b. Four of them make runs of four bytes: 8·j to 8·j + 3, and
    // the other four what follows.
    let mut fours = r;
    for half in [0, 4] {
        let (a, b) = (_mm256_unpacklo_epi8(r[half], r[half + 1]), _mm256_unpackhi_epi8(r[half], r[half + 1]));
        let (c, d) =
            (_mm256_unpacklo_epi8(r[half + 2], r[half + 3]), _mm256_unpackhi_epi8(r[half + 2], r[half + 3]));
        fours[half] = _mm256_unpacklo_epi16(a, c);
        fours[half + 1] = _mm256_unpackhi_epi16(a, c);
        fours[half + 2] = _mm256_unpacklo_epi16(b, d);
        fours[half + 3] = _mm256_unpackhi_epi16(b, d);
    }
    for i in 0..4 {
        let (low, high) = halves(fours[i], fours[i + 4]);
        // SAFETY: each place has 32 bytes.
        unsafe {
            _mm256_storeu_si256(upper[i].as_mut_ptr().cast(), low);
            _mm256_storeu_si256(upper[i + 4].as_mut_ptr().cast(), high);
        }
    }
}

/// [`Lanes::turn_back`]. The upper bytes are [`apart`].
#[target_feature(enable = "avx2")]
#[inline]
pub(in crate::simd) fn turn_back(upper: &[[u8; BLOCK]; 8], planes: &mut [u8], at: usize) {
    let length = length_of(planes, at);
    // Each 128-bit lane: bytes 0 of its four words, then bytes 1, 2 and 3.
    let by_byte = _mm256_setr_epi8(
        0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15, //
        0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,
    );
    // SAFETY: a block has 32 bytes.
    let load = |k: usize| unsafe { _mm256_loadu_si256(upper[k].as_ptr().cast()) };
    let group = |k: usize| opaque(_mm256_shuffle_epi8(load(k), by_byte));
    // Bytes 8·j + b of four blocks: b from 0 to 3 in the lower halves, from 4 to 7 in the upper
    // ones.
    let fours = |k: usize| {
        let (a, b, c, d) = (group(k), group(k + 1), group(k + 2), group(k + 3));
        let (low_ab, high_ab) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
        let (low_cd, high_cd) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
        [
            _mm256_unpacklo_epi64(low_ab, low_cd),
            _mm256_unpackhi_epi64(low_ab, low_cd),
            _mm256_unpacklo_epi64(high_ab, high_cd),
            _mm256_unpackhi_epi64(high_ab, high_cd),
        ]
    };
    let (first, second) = (fours(0), fours(4));
    let mut r = [first[0]; 8];
    for b in 0..4 {
        (r[b], r[b + 4]) = halves(first[b], second[b]);
    }
    for (p, bits) in transpose(r).into_iter().rev().enumerate() {
        // SAFETY: each of eight planes has a piece there.
        unsafe { _mm256_storeu_si256(planes.as_mut_ptr().add(p * length + at).cast(), bits) };
    }
}
