//! What happens when: events by virtual time, those of one instant in the order in which they were scheduled.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events live in a slab, so that the heap moves 24 bytes an event, whatever an event carries.
#[derive(Debug)]
pub(crate) struct Calendar<E> {
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    slab: Vec<Option<E>>,
    free: Vec<u32>,
    scheduled: u64,
}

impl<E> Default for Calendar<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), slab: Vec::new(), free: Vec::new(), scheduled: 0 }
    }
}

impl<E> Calendar<E> {
    pub(crate) fn push(&mut self, at_ns: u64, event: E) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slab.push(None);
            (self.slab.len() - 1) as u32
        });
        self.slab[slot as usize] = Some(event);
        self.heap.push(Reverse((at_ns, self.scheduled, slot)));
        self.scheduled += 1;
    }

    /// Time of the earliest event.
    pub(crate) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at_ns, ..))| *at_ns)
    }

    /// Takes the earliest event, if it is before `end_ns`.
    pub(crate) fn pop_before(&mut self, end_ns: u64) -> Option<(u64, E)> {
        if self.next_at()? >= end_ns {
            return None;
        }
        let Reverse((at_ns, _, slot)) = self.heap.pop()?;
        self.free.push(slot);
        Some((at_ns, self.slab[slot as usize].take()?))
    }

    /// Bytes that the events have taken at most.
    pub(crate) fn memory(&self) -> usize {
        self.slab.len() * (size_of::<Option<E>>() + size_of::<(u64, u64, u32)>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn events_come_out_by_time_and_then_by_order_of_scheduling(times in prop::collection::vec(0u64..50, 0..200), end in 0u64..60) {
            let mut calendar = Calendar::default();
            for (index, &at_ns) in times.iter().enumerate() {
                calendar.push(at_ns, index);
            }
            let mut expected: Vec<(u64, usize)> = times.iter().copied().enumerate().map(|(i, t)| (t, i)).collect();
            expected.sort_by_key(|&(t, _)| t); // stable: the oracle for ties
            expected.retain(|&(t, _)| t < end);
            let got: Vec<(u64, usize)> = std::iter::from_fn(|| calendar.pop_before(end)).collect();
            prop_assert_eq!(got, expected);
        }
    }
}
