// SPDX-License-Identifier: Apache-2.0
//! The event queue: the one place where virtual time is ordered.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A priority queue of events keyed by virtual time (ns).
///
/// Events of the same instant come out in the order in which they were pushed, so a run depends on
/// nothing but its inputs.
#[derive(Debug)]
pub struct EventQueue<E> {
    heap: BinaryHeap<Entry<E>>,
    pushed: u64,
}

#[derive(Debug)]
struct Entry<E> {
    at_ns: u64,
    sequence: u64,
    event: E,
}

impl<E> Default for EventQueue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), pushed: 0 }
    }
}

impl<E> EventQueue<E> {
    /// Schedules `event` at `at_ns`.
    pub fn push(&mut self, at_ns: u64, event: E) {
        self.heap.push(Entry { at_ns, sequence: self.pushed, event });
        self.pushed += 1;
    }

    /// Takes the earliest event and its time.
    pub fn pop(&mut self) -> Option<(u64, E)> {
        self.heap.pop().map(|entry| (entry.at_ns, entry.event))
    }

    /// The earliest event and its time, left where it is.
    pub fn peek(&self) -> Option<(u64, &E)> {
        self.heap.peek().map(|entry| (entry.at_ns, &entry.event))
    }

    /// Time of the earliest event.
    pub fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|entry| entry.at_ns)
    }
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at_ns, self.sequence) == (other.at_ns, other.sequence)
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    // `BinaryHeap` is a max-heap: the earliest entry has to compare greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_ns, other.sequence).cmp(&(self.at_ns, self.sequence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn events_come_out_by_time_and_then_by_order_of_scheduling(times in prop::collection::vec(0u64..50, 0..200)) {
            let mut queue = EventQueue::default();
            for (index, &at_ns) in times.iter().enumerate() {
                queue.push(at_ns, index);
            }
            let mut expected: Vec<(u64, usize)> = times.iter().copied().enumerate().map(|(i, t)| (t, i)).collect();
            expected.sort_by_key(|&(t, _)| t); // stable: the oracle for ties
            let got: Vec<(u64, usize)> = std::iter::from_fn(|| queue.pop()).collect();
            prop_assert_eq!(got, expected);
        }
    }
}
