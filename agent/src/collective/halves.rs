// SPDX-License-Identifier: Apache-2.0
//! Elements of 16 bits in exact messages: two make a coordinate of codec raw, so that they travel
//! as they are.

use super::memory::Number;

/// Coordinates that so many elements make.
pub(super) fn words(elements: usize) -> usize {
    elements.div_ceil(2)
}

/// Two elements a coordinate, the first in the upper half; a last one alone has zeros below it.
pub(super) fn pack<E: Number>(values: &[E], words: &mut Vec<f32>) {
    let (pairs, last) = E::halves(values).as_chunks();
    let word = |a: u16, b: u16| f32::from_bits(u32::from(a) << 16 | u32::from(b));
    words.clear();
    words.extend(pairs.iter().map(|&[a, b]| word(a, b)));
    words.extend(last.iter().map(|&a| word(a, 0)));
}

/// The elements that coordinates are made of, as many as there is room for.
pub(super) fn unpack<E: Number>(words: &[f32], values: &mut [E]) {
    let (pairs, last) = E::halves_mut(values).as_chunks_mut();
    let halves = |word: &f32| [(word.to_bits() >> 16) as u16, word.to_bits() as u16];
    for (pair, word) in pairs.iter_mut().zip(words) {
        *pair = halves(word);
    }
    for (value, word) in last.iter_mut().zip(words.iter().skip(pairs.len())) {
        [*value, _] = halves(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn every_element_comes_back_as_it_was_nans_and_odd_ends_included() {
        for length in [0, 1, 2, 65_535, 65_536] {
            let of: Vec<f16> = (0..length).map(|bits| f16::from_bits(bits as u16)).collect();
            let mut packed = Vec::new();
            pack(&of, &mut packed);
            assert_eq!(packed.len(), words(length));
            let mut back = vec![f16::ZERO; length];
            unpack(&packed, &mut back);
            assert!(of.iter().zip(&back).all(|(a, b)| a.to_bits() == b.to_bits()), "{length}");
        }
        let mut packed = Vec::new();
        pack(&[bf16::from_f32(1.5), bf16::from_f32(-2.0), bf16::from_f32(3.0)], &mut packed);
        assert_eq!(packed.iter().map(|word| word.to_bits()).collect::<Vec<_>>(), [0x3fc0_c000, 0x4040_0000]);
    }
}
