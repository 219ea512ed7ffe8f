// SPDX-License-Identifier: Apache-2.0
//! Tuple space search (Srinivasan, Suri and Varghese, SIGCOMM 1999): one hash map per mask, so that
//! a look-up costs as many probes as there are masks, however many entries. Ranges are left to the
//! caller to check.

use std::cmp::Reverse;

use super::super::hasher::FixedMap;

/// An entry's place in the order of matching: the largest priority first, then the lowest handle,
/// as in BMv2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank {
    priority: Reverse<i32>,
    handle: u32,
}

impl Rank {
    pub(super) fn new(priority: i32, handle: u32) -> Self {
        Self { priority: Reverse(priority), handle }
    }
}

/// The entries that share a mask.
#[derive(Clone, Debug)]
struct Tuple {
    mask: Box<[u64]>,
    /// No entry ranks before it; removing entries leaves it.
    first: Rank,
    /// By masked value, in order of rank: entries with ranges, or of several priorities, share a
    /// value.
    entries: FixedMap<Box<[u64]>, Vec<Rank>>,
}

/// Tuples in order of their first entry's rank.
#[derive(Clone, Debug, Default)]
pub(super) struct TupleSpace {
    tuples: Vec<Tuple>,
}

impl TupleSpace {
    pub(super) fn add(&mut self, value: &[u64], mask: &[u64], rank: Rank) {
        let mut tuple = match self.tuples.iter().position(|tuple| *tuple.mask == *mask) {
            Some(at) => self.tuples.remove(at),
            None => Tuple { mask: mask.into(), first: rank, entries: FixedMap::default() },
        };
        tuple.first = tuple.first.min(rank);
        let ranks = tuple.entries.entry(value.into()).or_default();
        ranks.insert(ranks.partition_point(|other| *other < rank), rank);
        let at = self.tuples.partition_point(|other| other.first < tuple.first);
        self.tuples.insert(at, tuple);
    }

    pub(super) fn remove(&mut self, value: &[u64], mask: &[u64], rank: Rank) {
        let Some(at) = self.tuples.iter().position(|tuple| *tuple.mask == *mask) else { return };
        let entries = &mut self.tuples[at].entries;
        if let Some(ranks) = entries.get_mut(value) {
            ranks.retain(|other| *other != rank);
            if ranks.is_empty() {
                entries.remove(value);
            }
        }
        if entries.is_empty() {
            self.tuples.remove(at);
        }
    }

    /// The handle of the first entry in order of rank whose mask and value fit the key and that is
    /// `accepted`.
    pub(super) fn find(
        &self,
        key: &[u64],
        masked: &mut Vec<u64>,
        accepted: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let mut best: Option<Rank> = None;
        for tuple in &self.tuples {
            if best.is_some_and(|best| best < tuple.first) {
                break;
            }
            masked.clear();
            masked.extend(key.iter().zip(&tuple.mask).map(|(key, mask)| key & mask));
            let ranks = tuple.entries.get(&masked[..]).map_or(&[][..], Vec::as_slice);
            let better = ranks.iter().take_while(|rank| best.is_none_or(|best| **rank < best));
            best = better.copied().find(|rank| accepted(rank.handle)).or(best);
        }
        best.map(|best| best.handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        /// Adding and removing at random, the space finds what a list in order of rank finds.
        #[test]
        fn the_space_finds_what_a_sorted_list_finds(
            entries in proptest::collection::vec((0u64..8, 0u64..8, 0i32..4, proptest::bool::ANY), 1..60),
            key in 0u64..8, odd_only in proptest::bool::ANY,
        ) {
            let mut space = TupleSpace::default();
            let mut list = Vec::new();
            for (handle, &(value, mask, priority, kept)) in (0u32..).zip(&entries) {
                let rank = Rank::new(priority, handle);
                space.add(&[value & mask], &[mask], rank);
                if kept { list.push((rank, value & mask, mask)) }
            }
            for (handle, &(value, mask, priority, kept)) in (0u32..).zip(&entries) {
                if !kept { space.remove(&[value & mask], &[mask], Rank::new(priority, handle)) }
            }
            list.sort_unstable();
            let accepted = |handle: u32| !odd_only || handle % 2 == 1;
            let expected = list.iter().find(|(rank, value, mask)| key & mask == *value && accepted(rank.handle));
            let found = space.find(&[key], &mut Vec::new(), accepted);
            proptest::prop_assert_eq!(found, expected.map(|(rank, ..)| rank.handle));
        }
    }
}
