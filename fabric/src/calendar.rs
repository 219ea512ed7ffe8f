// SPDX-License-Identifier: Apache-2.0
//! What happens when: events by virtual time, those of one instant in the order in which they were
//! scheduled.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Time, order of scheduling, slot.
type Key = (u64, u64, u32);

/// A bucket has 2^7 ns, about what a frame takes; the wheel has 32 us, more than most events are
/// ahead, and is small, as every domain has one.
const SHIFT: u32 = 7;
const BUCKETS: usize = 256;

/// A calendar queue (R. Brown, CACM 1988) of keys; events live in a slab beside it.
#[derive(Debug)]
pub struct Calendar<E> {
    /// The earliest events, all of one bucket, the first of them last; empty only when there are
    /// none at all.
    current: Vec<Key>,
    /// The bucket, counted from time 0, that they are of; nothing is earlier.
    bucket: u64,
    /// Later ones, by bucket modulo the wheel's size; where time was turned back to an earlier
    /// event, of two rounds of the wheel.
    wheel: Vec<Vec<Key>>,
    /// By bucket, whether it has any.
    occupied: Vec<u64>,
    turning: usize,
    /// Those beyond the wheel.
    far: BinaryHeap<Reverse<Key>>,
    slab: Vec<Option<E>>,
    free: Vec<u32>,
    scheduled: u64,
}

impl<E> Default for Calendar<E> {
    fn default() -> Self {
        Self {
            current: Vec::new(),
            bucket: 0,
            wheel: vec![Vec::new(); BUCKETS],
            occupied: vec![0; BUCKETS / 64],
            turning: 0,
            far: BinaryHeap::new(),
            slab: Vec::new(),
            free: Vec::new(),
            scheduled: 0,
        }
    }
}

impl<E> Calendar<E> {
    /// Puts an event at a time.
    pub fn push(&mut self, at_ns: u64, event: E) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slab.push(None);
            (self.slab.len() - 1) as u32
        });
        self.slab[slot as usize] = Some(event);
        let key = (at_ns, self.scheduled, slot);
        self.scheduled += 1;
        let bucket = at_ns >> SHIFT;
        if self.current.is_empty() {
            self.bucket = bucket;
        } else if bucket < self.bucket {
            let later = std::mem::take(&mut self.current);
            self.bucket = bucket;
            later.into_iter().for_each(|key| self.put(key));
        }
        if bucket == self.bucket {
            let place = self.current.partition_point(|other| *other > key);
            self.current.insert(place, key);
        } else {
            self.put(key);
        }
    }

    /// Keeps a key of a later bucket than the current one.
    fn put(&mut self, key: Key) {
        let bucket = key.0 >> SHIFT;
        if bucket >= self.bucket + BUCKETS as u64 {
            return self.far.push(Reverse(key));
        }
        let at = bucket as usize % BUCKETS;
        self.wheel[at].push(key);
        self.occupied[at / 64] |= 1 << (at % 64);
        self.turning += 1;
    }

    /// Time of the earliest event.
    pub fn next_at(&self) -> Option<u64> {
        self.current.last().map(|(at_ns, ..)| *at_ns)
    }

    /// The earliest event and its time, left where it is.
    pub fn peek(&self) -> Option<(u64, &E)> {
        let (at_ns, _, slot) = self.current.last()?;
        Some((*at_ns, self.slab[*slot as usize].as_ref()?))
    }

    /// Takes the earliest event.
    pub fn pop(&mut self) -> Option<(u64, E)> {
        self.pop_before(u64::MAX)
    }

    /// Takes the earliest event, if it is before `end_ns`.
    pub fn pop_before(&mut self, end_ns: u64) -> Option<(u64, E)> {
        if self.next_at()? >= end_ns {
            return None;
        }
        let (at_ns, _, slot) = self.current.pop()?;
        if self.current.is_empty() {
            self.turn();
        }
        self.free.push(slot);
        Some((at_ns, self.slab[slot as usize].take()?))
    }

    /// Goes on to the next bucket that has events.
    fn turn(&mut self) {
        loop {
            if self.turning == 0 {
                let Some(Reverse((at_ns, ..))) = self.far.peek() else { return };
                self.bucket = at_ns >> SHIFT;
            }
            let end = self.bucket + BUCKETS as u64;
            while self.far.peek().is_some_and(|Reverse((at_ns, ..))| at_ns >> SHIFT < end) {
                if let Some(Reverse(key)) = self.far.pop() {
                    self.put(key);
                }
            }
            let mut bucket = self.bucket;
            while let Some(next) = self.next_occupied(bucket, end) {
                self.take(next);
                if !self.current.is_empty() {
                    self.bucket = next;
                    return;
                }
                bucket = next + 1;
            }
            self.bucket = end;
        }
    }

    /// The first bucket from `from` on, and before `end`, that has events; they may be of the
    /// wheel's next round.
    fn next_occupied(&self, from: u64, end: u64) -> Option<u64> {
        let mut bucket = from;
        while bucket < end {
            let at = bucket as usize % BUCKETS;
            let word = self.occupied[at / 64] >> (at % 64);
            if word != 0 {
                let found = bucket + u64::from(word.trailing_zeros());
                return (found < end).then_some(found);
            }
            bucket += 64 - at as u64 % 64;
        }
        None
    }

    /// Moves a bucket's events of this round to the current ones.
    fn take(&mut self, bucket: u64) {
        let at = bucket as usize % BUCKETS;
        if self.wheel[at].iter().all(|key| key.0 >> SHIFT == bucket) {
            std::mem::swap(&mut self.current, &mut self.wheel[at]);
        } else {
            self.current.extend(self.wheel[at].extract_if(.., |key| key.0 >> SHIFT == bucket));
        }
        self.turning -= self.current.len();
        self.current.sort_unstable_by(|a, b| b.cmp(a));
        if self.wheel[at].is_empty() {
            self.occupied[at / 64] &= !(1 << (at % 64));
        }
    }

    /// Bytes that the events have taken at most.
    pub fn memory(&self) -> usize {
        self.slab.len() * (size_of::<Option<E>>() + size_of::<Key>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Near, within the wheel, a round of it later, far.
    fn time() -> impl Strategy<Value = u64> {
        prop_oneof![0u64..50, 0u64..300_000, 200_000u64..600_000, 0u64..100_000_000]
    }

    proptest! {
        #[test]
        fn events_come_out_by_time_and_then_by_order_of_scheduling(times in prop::collection::vec(time(), 0..200), end in time()) {
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

        #[test]
        fn events_that_are_scheduled_in_between_come_out_where_a_heap_has_them(
            steps in prop::collection::vec((time(), any::<bool>(), any::<bool>()), 0..300)
        ) {
            let (mut calendar, mut heap) = (Calendar::default(), BinaryHeap::new());
            let mut now_ns = 0;
            for (index, (ahead, early, pops)) in steps.into_iter().enumerate() {
                // Other domains' frames may be earlier than what stands there.
                let at_ns = now_ns + if early { ahead % 64 } else { ahead };
                calendar.push(at_ns, index);
                heap.push(Reverse((at_ns, index)));
                prop_assert_eq!(calendar.next_at(), heap.peek().map(|Reverse((at_ns, _))| *at_ns));
                if pops {
                    let expected = heap.pop().map(|Reverse(event)| event);
                    prop_assert_eq!(calendar.pop_before(u64::MAX), expected);
                    now_ns = expected.map_or(now_ns, |(at_ns, _)| at_ns);
                }
            }
            let rest: Vec<(u64, usize)> = std::iter::from_fn(|| heap.pop().map(|Reverse(event)| event)).collect();
            let got: Vec<(u64, usize)> = std::iter::from_fn(|| calendar.pop_before(u64::MAX)).collect();
            prop_assert_eq!(got, rest);
        }
    }
}
