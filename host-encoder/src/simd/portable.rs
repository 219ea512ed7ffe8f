// SPDX-License-Identifier: Apache-2.0
//! Eight lanes in plain Rust.

use super::{Kernel, Lanes, Planes};
use crate::wire::BLOCK;

/// The backend that every machine has; the oracle of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Portable;

const N: usize = 8;

macro_rules! lanewise {
    ($($name:ident($($arg:ident: $type:ty),+) -> $out:ty = |$i:ident| $term:expr;)+) => {$(
        #[inline(always)]
        fn $name(self, $($arg: [$type; N]),+) -> [$out; N] {
            let mut out = [<$out>::default(); N];
            for $i in 0..N {
                out[$i] = $term;
            }
            out
        }
    )+};
}

impl Lanes for Portable {
    const N: usize = N;
    type Line = [f32; N];
    type F = [f32; N];
    type U = [u32; N];

    #[inline(always)]
    fn lines(values: &[f32]) -> &[[f32; N]] {
        values.as_chunks().0
    }

    #[inline(always)]
    fn lines_mut(values: &mut [f32]) -> &mut [[f32; N]] {
        values.as_chunks_mut().0
    }

    #[inline(always)]
    fn load(self, line: &[f32; N]) -> [f32; N] {
        *line
    }

    #[inline(always)]
    fn store(self, line: &mut [f32; N], v: [f32; N]) {
        *line = v;
    }

    #[inline(always)]
    fn load_words(self, words: &[u32; BLOCK], at: usize) -> [u32; N] {
        words.as_chunks().0[at]
    }

    #[inline(always)]
    fn store_words(self, words: &mut [u32; BLOCK], at: usize, v: [u32; N]) {
        words.as_chunks_mut().0[at] = v;
    }

    #[inline(always)]
    fn splat(self, value: f32) -> [f32; N] {
        [value; N]
    }

    #[inline(always)]
    fn splat_u(self, value: u32) -> [u32; N] {
        [value; N]
    }

    lanewise! {
        add(a: f32, b: f32) -> f32 = |i| a[i] + b[i];
        sub(a: f32, b: f32) -> f32 = |i| a[i] - b[i];
        mul(a: f32, b: f32) -> f32 = |i| a[i] * b[i];
        bits(v: f32) -> u32 = |i| v[i].to_bits();
        floats(v: u32) -> f32 = |i| f32::from_bits(v[i]);
        truncate(v: f32) -> u32 = |i| v[i] as i32 as u32;
        convert(v: u32) -> f32 = |i| v[i] as i32 as f32;
        and(a: u32, b: u32) -> u32 = |i| a[i] & b[i];
        or(a: u32, b: u32) -> u32 = |i| a[i] | b[i];
        xor(a: u32, b: u32) -> u32 = |i| a[i] ^ b[i];
        add_u(a: u32, b: u32) -> u32 = |i| a[i].wrapping_add(b[i]);
        min_u(a: u32, b: u32) -> u32 = |i| if a[i] < b[i] { a[i] } else { b[i] };
        max_u(a: u32, b: u32) -> u32 = |i| if a[i] > b[i] { a[i] } else { b[i] };
        shift_right_22(v: u32) -> u32 = |i| v[i] >> 22;
        shift_right_28(v: u32) -> u32 = |i| v[i] >> 28;
        shift_left_8(v: u32) -> u32 = |i| v[i] << 8;
        less_where_greater(v: u32, a: u32, b: u32) -> u32
            = |i| v[i].wrapping_sub(u32::from(a[i].cast_signed() > b[i].cast_signed()));
        lookup(table: f32, index: u32) -> f32 = |i| table[(index[i] & 7) as usize];
        lookup_u(table: u32, index: u32) -> u32 = |i| table[(index[i] & 7) as usize];
    }

    #[inline(always)]
    fn butterfly(self, a: [f32; N], b: [f32; N]) -> ([f32; N], [f32; N]) {
        (self.add(a, b), self.sub(a, b))
    }

    #[inline(always)]
    fn butterfly_lanes<const H: usize>(self, v: [f32; N]) -> [f32; N] {
        let mut out = v;
        for i in 0..N {
            out[i] = if i & H == 0 { v[i] + v[(i + H) % N] } else { v[i - H] - v[i] };
        }
        out
    }

    #[inline(always)]
    fn flip(self, v: [f32; N], word: u32, at: usize) -> [f32; N] {
        /// Comparing with constants vectorises on every machine; shifting each lane by its own
        /// count does not.
        const BITS: [u32; N] = [1, 2, 4, 8, 16, 32, 64, 128];
        let (bits, mut out) = (word >> (at * N), v);
        for i in 0..N {
            let sign = if bits & BITS[i] == 0 { 0 } else { 1 << 31 };
            out[i] = f32::from_bits(v[i].to_bits() ^ sign);
        }
        out
    }

    #[inline(always)]
    fn mul_wide(self, a: [u32; N], b: [u32; N]) -> ([u32; N], [u32; N]) {
        let (mut high, mut low) = ([0; N], [0; N]);
        for i in 0..N {
            let product = u64::from(a[i]) * u64::from(b[i]);
            (high[i], low[i]) = ((product >> 32) as u32, product as u32);
        }
        (high, low)
    }

    #[inline(always)]
    fn table(self, table: &[f32; 8]) -> [f32; N] {
        *table
    }

    #[inline(always)]
    fn table_u(self, table: &[u32; 8]) -> [u32; N] {
        *table
    }

    #[inline(always)]
    fn to_array(self, v: [u32; N], out: &mut [u32; 16]) {
        out[..N].copy_from_slice(&v);
    }
}

impl Planes for Portable {
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
        [b, c]: [&mut [u8; BLOCK]; 2],
    ) {
        for i in 0..BLOCK {
            upper[i] = (values[i].to_bits() >> 31 << 7 | codes[i] >> 16) as u8;
            b[i] = (codes[i] >> 8) as u8;
            c[i] = codes[i] as u8;
        }
    }

    #[inline(always)]
    fn turn_back(self, upper: &[[u8; BLOCK]; 8], planes: &mut [u8], at: usize) {
        let length = planes.len() / 8;
        for (j, bytes) in upper.as_flattened().as_chunks::<8>().0.iter().enumerate() {
            let turned = transpose(u64::from_le_bytes(*bytes)).to_le_bytes();
            for p in 0..8 {
                planes[p * length + at + j] = turned[7 - p];
            }
        }
    }

    #[inline(always)]
    fn turn(self, planes: &[u8], at: usize, upper: &mut [[u8; BLOCK]; 8]) {
        let length = planes.len() / 8;
        for j in 0..BLOCK {
            let mut rows = [0; 8];
            for p in 0..8 {
                rows[7 - p] = planes[p * length + at + j];
            }
            let turned = transpose(u64::from_le_bytes(rows)).to_le_bytes();
            upper[j / 4][8 * (j % 4)..][..8].copy_from_slice(&turned);
        }
    }

    #[inline(always)]
    fn words(self, upper: &[u8; BLOCK], bytes: [&[u8; BLOCK]; 2], words: &mut [u32; BLOCK]) {
        for i in 0..BLOCK {
            words[i] = u32::from_be_bytes([upper[i], bytes[0][i], bytes[1][i], 0]);
        }
    }
}

/// Transposes an 8 × 8 matrix of bits: bit j of byte i goes to bit i of byte j (Hacker's Delight,
/// §7-3).
#[inline(always)]
fn transpose(mut x: u64) -> u64 {
    for (shift, mask) in
        [(7, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0x0000_0000_f0f0_f0f0)]
    {
        let t = (x ^ (x >> shift)) & mask;
        x ^= t ^ (t << shift);
    }
    x
}
