// SPDX-License-Identifier: Apache-2.0
//! Limbs in as few words as the fields in them take: what a flow costs in caches decides how fast
//! its packets are.

use super::super::bits::limbs_for;
use super::super::layout::Layout;

/// Which limbs, by the bits that each has room for. Words are full: the last limb of a kind is
/// there as often as it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Packing {
    whole: Box<[[u32; 1]]>,
    halves: Box<[[u32; 2]]>,
    quarters: Box<[[u32; 4]]>,
    eighths: Box<[[u32; 8]]>,
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
        let [mut whole, mut halves, mut quarters, mut eighths] = [const { Vec::new() }; 4];
        for limb in limbs {
            match widths.get(limb as usize) {
                Some(0..=8) => eighths.push(limb),
                Some(9..=16) => quarters.push(limb),
                Some(17..=32) => halves.push(limb),
                _ => whole.push(limb),
            }
        }
        Self {
            whole: full(&whole),
            halves: full(&halves),
            quarters: full(&quarters),
            eighths: full(&eighths),
        }
    }

    /// By word: the bits of its parts, and their limbs, from the least significant one on.
    #[cfg(feature = "native")]
    pub(crate) fn parts(&self) -> impl Iterator<Item = (u32, &[u32])> {
        let whole = self.whole.iter().map(|limbs| (64, &limbs[..]));
        let halves = self.halves.iter().map(|limbs| (32, &limbs[..]));
        let quarters = self.quarters.iter().map(|limbs| (16, &limbs[..]));
        whole.chain(halves).chain(quarters).chain(self.eighths.iter().map(|limbs| (8, &limbs[..])))
    }

    pub(crate) fn words(&self) -> usize {
        self.whole.len() + self.halves.len() + self.quarters.len() + self.eighths.len()
    }

    /// Takes the limbs; whether they fit, which whoever keeps them has to ask.
    #[inline]
    pub(super) fn take(&self, phv: &[u64], words: &mut [u64]) -> bool {
        let (whole, words) = words.split_at_mut(self.whole.len());
        let (halves, words) = words.split_at_mut(self.halves.len());
        let (quarters, eighths) = words.split_at_mut(self.quarters.len());
        whole.iter_mut().zip(&self.whole).for_each(|(word, [limb])| *word = phv[*limb as usize]);
        let beyond = take::<32, 2>(&self.halves, phv, halves)
            | take::<16, 4>(&self.quarters, phv, quarters)
            | take::<8, 8>(&self.eighths, phv, eighths);
        beyond == 0
    }

    /// Puts the limbs back.
    #[inline]
    pub(super) fn put(&self, words: &[u64], phv: &mut [u64]) {
        let (whole, words) = words.split_at(self.whole.len());
        let (halves, words) = words.split_at(self.halves.len());
        let (quarters, eighths) = words.split_at(self.quarters.len());
        whole.iter().zip(&self.whole).for_each(|(word, [limb])| phv[*limb as usize] = *word);
        put::<32, 2>(&self.halves, halves, phv);
        put::<16, 4>(&self.quarters, quarters, phv);
        put::<8, 8>(&self.eighths, eighths, phv);
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
    use super::super::super::native::packing::NativePacking;
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
            // Machine code does the same, where there is any.
            let native = NativePacking::compile(&packing, std::slice::from_ref(&packing));
            if let Some(native) = &native {
                let mut natively = vec![0; words.len()];
                let mut natively_back: Vec<u64> = phv.iter().map(|value| !value).collect();
                prop_assert!(native.take(&phv, &mut natively));
                native.put(0, &natively, &mut natively_back);
                prop_assert_eq!((&natively, &natively_back), (&words, &back));
            }
            for (limb, (value, back)) in phv.iter().zip(&back).enumerate() {
                prop_assert_eq!(*back, if chosen[limb] { *value } else { !*value });
            }
            if let Some(limb) = too_wide.filter(|limb| *limb < widths.len() && chosen[*limb] && widths[*limb] <= 32) {
                phv[limb] |= 1 << 32;
                prop_assert!(!packing.take(&phv, &mut words));
                prop_assert!(native.is_none_or(|native| !native.take(&phv, &mut words)));
            }
        }
    }
}
