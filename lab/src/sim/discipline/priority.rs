// SPDX-License-Identifier: Apache-2.0
//! Drop-tail: queues that share one buffer, the highest served first, with ECN marks from a
//! threshold on. With one queue that is first in, first out; with eight, what PIAS asks of a
//! switch.

use super::{Counts, Discipline};
use crate::sim::packet::{Ecn, Packet};
use std::collections::VecDeque;

/// The buffer and the threshold of marks are the port's (PIAS §5). Marks go by the queue as it is
/// when a packet comes, not by an average: RED with both thresholds at K (DCTCP §3.1).
#[derive(Debug)]
pub(super) struct Priority {
    /// By class; the last one has all above.
    queues: Vec<VecDeque<Packet>>,
    bytes: u64,
    limit: u64,
    mark_at: Option<u64>,
}

impl Priority {
    /// `queues` is at least 1.
    pub(super) fn new(queues: usize, limit: u64, mark_at: Option<u64>) -> Self {
        Self { queues: vec![VecDeque::new(); queues], bytes: 0, limit, mark_at }
    }
}

impl Discipline for Priority {
    fn enqueue(&mut self, _: u64, mut packet: Packet, counts: &mut Counts) {
        if self.bytes + u64::from(packet.length) > self.limit {
            return counts.drop(&packet);
        }
        if packet.ecn == Ecn::Ect && self.mark_at.is_some_and(|mark_at| self.bytes > mark_at) {
            packet.ecn = Ecn::Ce;
            counts.marked += 1;
        }
        self.bytes += u64::from(packet.length);
        let queue = usize::from(packet.class).min(self.queues.len() - 1);
        self.queues[queue].push_back(packet);
    }

    fn dequeue(&mut self) -> Option<Packet> {
        let packet = self.queues.iter_mut().rev().find_map(VecDeque::pop_front)?;
        self.bytes -= u64::from(packet.length);
        Some(packet)
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_higher_class_overtakes_and_a_class_keeps_its_order() {
        let (mut queue, mut counts) = (Priority::new(8, 1 << 20, None), Counts::default());
        for (number, class) in (0..).zip([0, 3, 0, 7, 3]) {
            queue.enqueue(0, Packet { class, ..Packet::data(0, number, 100) }, &mut counts);
        }
        let left: Vec<u32> = std::iter::from_fn(|| queue.dequeue()).map(|packet| packet.number).collect();
        assert_eq!(left, [3, 1, 4, 0, 2]);
    }

    #[test]
    fn the_buffer_is_one_for_all_classes() {
        let (mut queue, mut counts) = (Priority::new(8, 250, None), Counts::default());
        for class in [0, 1, 7] {
            queue.enqueue(0, Packet { class, ..Packet::data(0, 0, 100) }, &mut counts);
        }
        assert_eq!((queue.bytes(), counts.dropped), (200, 1));
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_what_finds_more_than_k_is_marked() {
        let (mut queue, mut counts) = (Priority::new(1, 4_500, Some(1_500)), Counts::default());
        for number in 0..5 {
            queue.enqueue(0, Packet::data(0, number, 1_000), &mut counts);
        }
        let left: Vec<(u32, Ecn)> =
            std::iter::from_fn(|| queue.dequeue()).map(|packet| (packet.number, packet.ecn)).collect();
        // The second finds 1,000 bytes, the third 2,000; the fifth would make 5,000.
        assert_eq!(left, [(0, Ecn::Ect), (1, Ecn::Ect), (2, Ecn::Ce), (3, Ecn::Ce)]);
        assert_eq!((counts.marked, counts.dropped, queue.bytes()), (2, 1, 0));
    }
}
