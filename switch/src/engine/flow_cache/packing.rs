// SPDX-License-Identifier: Apache-2.0
//! Limbs in as few words as the fields in them take: what a flow costs in caches decides how fast its packets are.

use super::super::bits::limbs_for;
use super::super::layout::Layout;

/// Which limbs, by the bits that each has room for. Words are full: the last limb of a kind is there as often as it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Packing {
    of_64: Box<[[u32; 1]]>,
    of_32: Box<[[u32; 2]]>,
    of_16: Box<[[u32; 4]]>,
    of_8: Box<[[u32; 8]]>,
}

/// Bits that each limb of headers and metadata needs at most.
pub(super) fn widths(layout: &Layout) -> Vec<u32> {
    let mut widths = vec![64; layout.size];
    for header in &layout.headers {
        widths[header.valid()] = 1;
        for slot in header.fields.iter().map(|field| field.slot) {
            if let Some(last) = slot.limbs().last() {
                widths[last] = slot.width - 64 * (limbs_for(slot.width) as u32 - 1);
            }
        }
    }
    widths
}

impl Packing {
    /// Limbs behind the end of `widths` need 64 bits.
    pub(super) fn new(limbs: impl IntoIterator<Item = u32>, widths: &[u32]) -> Self {
        let [mut of_64, mut of_32, mut of_16, mut of_8] = [const { Vec::new() }; 4];
        for limb in limbs {
            match widths.get(limb as usize) {
                Some(0..=8) => of_8.push(limb),
                Some(9..=16) => of_16.push(limb),
                Some(17..=32) => of_32.push(limb),
                _ => of_64.push(limb),
            }
        }
        Self { of_64: full(&of_64), of_32: full(&of_32), of_16: full(&of_16), of_8: full(&of_8) }
    }

    pub(super) fn words(&self) -> usize {
        self.of_64.len() + self.of_32.len() + self.of_16.len() + self.of_8.len()
    }

    /// Takes the limbs; whether they fit, which whoever keeps them has to ask.
    #[inline]
    pub(super) fn take(&self, phv: &[u64], words: &mut [u64]) -> bool {
        let (of_64, words) = words.split_at_mut(self.of_64.len());
        let (of_32, words) = words.split_at_mut(self.of_32.len());
        let (of_16, of_8) = words.split_at_mut(self.of_16.len());
        of_64.iter_mut().zip(&self.of_64).for_each(|(word, [limb])| *word = phv[*limb as usize]);
        let beyond = take::<32, 2>(&self.of_32, phv, of_32)
            | take::<16, 4>(&self.of_16, phv, of_16)
            | take::<8, 8>(&self.of_8, phv, of_8);
        beyond == 0
    }

    /// Puts the limbs back.
    #[inline]
    pub(super) fn put(&self, words: &[u64], phv: &mut [u64]) {
        let (of_64, words) = words.split_at(self.of_64.len());
        let (of_32, words) = words.split_at(self.of_32.len());
        let (of_16, of_8) = words.split_at(self.of_16.len());
        of_64.iter().zip(&self.of_64).for_each(|(word, [limb])| phv[*limb as usize] = *word);
        put::<32, 2>(&self.of_32, of_32, phv);
        put::<16, 4>(&self.of_16, of_16, phv);
        put::<8, 8>(&self.of_8, of_8, phv);
    }
}

fn full<const COUNT: usize>(limbs: &[u32]) -> Box<[[u32; COUNT]]> {
    let word = |limbs: &[u32]| std::array::from_fn(|at| limbs[at.min(limbs.len() - 1)]);
    limbs.chunks(COUNT).map(word).collect()
}

/// Gives the bits for which there is no room.
#[inline]
fn take<const BITS: u32, const COUNT: usize>(limbs: &[[u32; COUNT]], phv: &[u64], words: &mut [u64]) -> u64 {
    let mut beyond = 0;
    for (word, limbs) in words.iter_mut().zip(limbs) {
        let mut packed = 0;
        for at in 0..COUNT {
            let value = phv[limbs[at] as usize];
            beyond |= value;
            packed |= value << (at as u32 * BITS);
        }
        *word = packed;
    }
    beyond >> BITS
}

#[inline]
fn put<const BITS: u32, const COUNT: usize>(limbs: &[[u32; COUNT]], words: &[u64], phv: &mut [u64]) {
    for (word, limbs) in words.iter().zip(limbs) {
        for at in 0..COUNT {
            phv[limbs[at] as usize] = word >> (at as u32 * BITS) & ((1 << BITS) - 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever fits comes back, and nothing else changes; whatever does not is told.
        #[test]
        fn limbs_come_back_or_it_is_said_that_they_did_not_fit(
            widths in proptest::collection::vec(1_u32..=64, 1..60),
            values in proptest::collection::vec(proptest::num::u64::ANY, 60),
            too_wide in proptest::option::of(0_usize..60),
            chosen in proptest::collection::vec(proptest::bool::ANY, 60),
        ) {
            let limbs: Vec<u32> = (0..widths.len() as u32).filter(|limb| chosen[*limb as usize]).collect();
            let packing = Packing::new(limbs.iter().copied(), &widths);
            let kept = |limb: usize| u64::MAX >> (64 - widths[limb]);
            let mut phv: Vec<u64> = (0..widths.len()).map(|limb| values[limb] & kept(limb)).collect();
            let mut words = vec![0; packing.words()];
            prop_assert!(packing.take(&phv, &mut words));
            let mut back: Vec<u64> = phv.iter().map(|value| !value).collect();
            packing.put(&words, &mut back);
            for (limb, (value, back)) in phv.iter().zip(&back).enumerate() {
                prop_assert_eq!(*back, if chosen[limb] { *value } else { !*value });
            }
            if let Some(limb) = too_wide.filter(|limb| *limb < widths.len() && chosen[*limb] && widths[*limb] <= 32) {
                phv[limb] |= 1 << 32;
                prop_assert!(!packing.take(&phv, &mut words));
            }
        }
    }
}
