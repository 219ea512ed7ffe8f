// SPDX-License-Identifier: Apache-2.0
//! Code words back to planes, for rows that are passed on.

use super::packet::{QuantiseScratch, turn_planes};
use crate::simd::{Kernel, Planes};
use crate::wire::BLOCK;

/// Writes the planes of a packet whose code words a receiver holds.
pub(crate) struct Repack<'a> {
    /// A multiple of 32, at most 8,160.
    pub(crate) words: &'a [u32],
    /// How many planes are written.
    pub(crate) planes: u8,
    /// Where they go: as many bytes as they have.
    pub(crate) body: &'a mut [u8],
    pub(crate) room: &'a mut QuantiseScratch,
}

impl Kernel for Repack<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Planes>(self, lanes: L) {
        let Self { words, planes, body, room } = self;
        let n = words.len();
        let (bits, bytes) = body.split_at_mut(n / 8 * usize::from(planes.min(8)));
        let (b, c) = bytes.split_at_mut(n.min(bytes.len()));
        let (b, c) = (b.as_chunks_mut::<BLOCK>().0, c.as_chunks_mut::<BLOCK>().0);
        let (mut no_b, mut no_c) = ([0; BLOCK], [0; BLOCK]);
        for (block, words) in words.as_chunks::<BLOCK>().0.iter().enumerate() {
            // The sign is the uppermost bit, the code the next 23 (docs/reference/wire-format.md
            // §4).
            let (mut signs, mut codes) = ([0.0; BLOCK], [0; BLOCK]);
            for ((sign, code), word) in signs.iter_mut().zip(&mut codes).zip(words) {
                (*sign, *code) = (f32::from_bits(word & 1 << 31), word >> 8 & 0x007f_ffff);
            }
            let b = b.get_mut(block).unwrap_or(&mut no_b);
            let c = c.get_mut(block).unwrap_or(&mut no_c);
            let Some(upper) = room.upper.get_mut(block) else { return };
            lanes.split_codes(&signs, &codes, upper, [b, c]);
        }
        turn_planes(lanes, &room.upper, n, planes, bits);
    }
}
