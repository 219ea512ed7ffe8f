// SPDX-License-Identifier: Apache-2.0
//! Which blocks of a packet hold nothing but zeros, as bits (docs/reference/wire-format.md §4).

/// The bits of at most 16 blocks, the first one least significant.
#[inline]
pub(crate) fn bits_of(zeros: &[bool]) -> u16 {
    zeros.iter().rev().fold(0, |bits, zero| bits << 1 | u16::from(*zero))
}

/// The mask of as many blocks as it has bits for.
pub(crate) fn write_mask(zeros: &[bool], mask: &mut [u8]) {
    for (byte, eight) in mask.iter_mut().zip(zeros.chunks(8)) {
        *byte = bits_of(eight) as u8;
    }
}

/// Blocks by the bits that begin with theirs.
#[inline]
pub(crate) fn read_bits(bits: u16, zeros: &mut [bool]) {
    for (i, zero) in zeros.iter_mut().enumerate().take(16) {
        *zero = bits >> i & 1 == 1;
    }
}

/// Blocks by their mask, of which bytes from the `at`th on are given.
pub(crate) fn read_mask(mask: &[u8], at: usize, zeros: &mut [bool]) {
    for (byte, eight) in mask.iter().zip(zeros.chunks_mut(8).skip(at)) {
        read_bits((*byte).into(), eight);
    }
}
