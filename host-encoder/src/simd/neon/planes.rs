// SPDX-License-Identifier: Apache-2.0
//! The bytes and bits of code words, many at a time. Loads and stores of four vectors take words
//! apart into bytes, and put them together.
//!
//! Upper bytes come and go in order.

use crate::wire::BLOCK;
use std::arch::aarch64::{
    uint8x16_t, uint8x16x4_t, vbslq_u8, vdupq_n_u8, vld1q_u8, vld4q_u8, vshlq_n_u8, vshrq_n_u8, vst1q_u8,
    vst4q_u8, vuzp1q_u8, vuzp2q_u8, vzip1q_u8, vzip2q_u8,
};

#[target_feature(enable = "neon")]
#[inline]
fn load(bytes: &[u8; 16]) -> uint8x16_t {
    // SAFETY: a vector is sixteen bytes.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

#[target_feature(enable = "neon")]
#[inline]
fn store(bytes: &mut [u8; 16], v: uint8x16_t) {
    // SAFETY: a vector is sixteen bytes.
    unsafe { vst1q_u8(bytes.as_mut_ptr(), v) }
}

#[target_feature(enable = "neon")]
#[inline]
pub(super) fn split_codes(
    values: &[f32; BLOCK],
    codes: &[u32; BLOCK],
    upper: &mut [u8; BLOCK],
    [b, c]: [&mut [u8; BLOCK]; 2],
) {
    for half in 0..BLOCK / 16 {
        let (value, code) = (&values.as_chunks::<16>().0[half], &codes.as_chunks::<16>().0[half]);
        // SAFETY: sixteen words are four vectors.
        let (value, code) = unsafe { (vld4q_u8(value.as_ptr().cast()), vld4q_u8(code.as_ptr().cast())) };
        store(&mut upper.as_chunks_mut().0[half], vbslq_u8(vdupq_n_u8(1 << 7), value.3, code.2));
        store(&mut b.as_chunks_mut().0[half], code.1);
        store(&mut c.as_chunks_mut().0[half], code.0);
    }
}

#[target_feature(enable = "neon")]
#[inline]
pub(super) fn turn_back(upper: &[[u8; BLOCK]; 8], planes: &mut [u8], at: usize) {
    let length = planes.len() / 8;
    for (half, blocks) in upper.as_chunks::<4>().0.iter().enumerate() {
        let [a, b] = blocks.as_chunks::<2>().0 else { unreachable!("four are two pairs") };
        // SAFETY: two blocks are four vectors.
        let (a, b) = unsafe { (vld4q_u8(a.as_ptr().cast()), vld4q_u8(b.as_ptr().cast())) };
        // Vector i is made of bytes 8·j + i.
        let rows = transpose([
            vuzp1q_u8(a.0, b.0),
            vuzp1q_u8(a.1, b.1),
            vuzp1q_u8(a.2, b.2),
            vuzp1q_u8(a.3, b.3),
            vuzp2q_u8(a.0, b.0),
            vuzp2q_u8(a.1, b.1),
            vuzp2q_u8(a.2, b.2),
            vuzp2q_u8(a.3, b.3),
        ]);
        for (p, bits) in rows.into_iter().rev().enumerate() {
            store(&mut planes[p * length + at..][..BLOCK].as_chunks_mut().0[half], bits);
        }
    }
}

#[target_feature(enable = "neon")]
#[inline]
pub(super) fn turn(planes: &[u8], at: usize, upper: &mut [[u8; BLOCK]; 8]) {
    let length = planes.len() / 8;
    for (half, blocks) in upper.as_chunks_mut::<4>().0.iter_mut().enumerate() {
        let mut rows = [vdupq_n_u8(0); 8];
        for (p, row) in rows.iter_mut().rev().enumerate() {
            *row = load(&planes[p * length + at..][..BLOCK].as_chunks().0[half]);
        }
        let r = transpose(rows);
        let mut first = uint8x16x4_t(r[0], r[1], r[2], r[3]);
        let mut second = first;
        (first.0, second.0) = (vzip1q_u8(r[0], r[4]), vzip2q_u8(r[0], r[4]));
        (first.1, second.1) = (vzip1q_u8(r[1], r[5]), vzip2q_u8(r[1], r[5]));
        (first.2, second.2) = (vzip1q_u8(r[2], r[6]), vzip2q_u8(r[2], r[6]));
        (first.3, second.3) = (vzip1q_u8(r[3], r[7]), vzip2q_u8(r[3], r[7]));
        for (pair, bytes) in blocks.as_chunks_mut::<2>().0.iter_mut().zip([first, second]) {
            // SAFETY: two blocks are four vectors.
            unsafe { vst4q_u8(pair.as_mut_ptr().cast(), bytes) };
        }
    }
}

#[target_feature(enable = "neon")]
#[inline]
pub(super) fn words(upper: &[u8; BLOCK], [b, c]: [&[u8; BLOCK]; 2], words: &mut [u32; BLOCK]) {
    for (half, words) in words.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let of = |bytes: &[u8; BLOCK]| load(&bytes.as_chunks().0[half]);
        let bytes = uint8x16x4_t(vdupq_n_u8(0), of(c), of(b), of(upper));
        // SAFETY: sixteen words are four vectors.
        unsafe { vst4q_u8(words.as_mut_ptr().cast(), bytes) };
    }
}

/// 8 × 8 matrices of bits, one for each byte of a vector: bit j of vector i changes places with bit
/// i of vector j (Hacker's Delight, §7-3: blocks of four, of two, single bits).
#[target_feature(enable = "neon")]
#[inline]
fn transpose(mut r: [uint8x16_t; 8]) -> [uint8x16_t; 8] {
    macro_rules! swap {
        ($distance:literal, $mask:literal) => {
            for i in 0..8 {
                if i & $distance == 0 {
                    let (low, high, mask) = (r[i], r[i + $distance], vdupq_n_u8($mask));
                    r[i] = vbslq_u8(mask, low, vshlq_n_u8::<$distance>(high));
                    r[i + $distance] = vbslq_u8(mask, vshrq_n_u8::<$distance>(low), high);
                }
            }
        };
    }
    swap!(4, 0x0f);
    swap!(2, 0x33);
    swap!(1, 0x55);
    r
}
