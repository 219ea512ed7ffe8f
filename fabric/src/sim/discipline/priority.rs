//! Strict priority of eight queues that share one buffer: what PIAS asks of a switch.

use super::drop_tail::mark;
use super::{Counts, Discipline};
use crate::sim::packet::Packet;
use std::collections::VecDeque;

const QUEUES: usize = 8;

/// The highest class is served first; the buffer and the threshold of marks are the port's (PIAS §5).
#[derive(Debug)]
pub(super) struct Priority {
    queues: [VecDeque<Packet>; QUEUES],
    bytes: u64,
    limit: u64,
    mark_at: Option<u64>,
}

impl Priority {
    pub(super) fn new(limit: u64, mark_at: Option<u64>) -> Self {
        Self { queues: Default::default(), bytes: 0, limit, mark_at }
    }
}

impl Discipline for Priority {
    fn enqueue(&mut self, _: u64, mut packet: Packet, counts: &mut Counts) {
        if self.bytes + u64::from(packet.length) > self.limit {
            return counts.drop(&packet);
        }
        mark(&mut packet, self.bytes, self.mark_at, counts);
        self.bytes += u64::from(packet.length);
        self.queues[usize::from(packet.class).min(QUEUES - 1)].push_back(packet);
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
        let (mut queue, mut counts) = (Priority::new(1 << 20, None), Counts::default());
        for (number, class) in (0..).zip([0, 3, 0, 7, 3]) {
            queue.enqueue(0, Packet { class, ..Packet::data(0, number, 100) }, &mut counts);
        }
        let left: Vec<u32> = std::iter::from_fn(|| queue.dequeue()).map(|packet| packet.number).collect();
        assert_eq!(left, [3, 1, 4, 0, 2]);
    }

    #[test]
    fn the_buffer_is_one_for_all_classes() {
        let (mut queue, mut counts) = (Priority::new(250, None), Counts::default());
        for class in [0, 1, 7] {
            queue.enqueue(0, Packet { class, ..Packet::data(0, 0, 100) }, &mut counts);
        }
        assert_eq!((queue.bytes(), counts.dropped), (200, 1));
    }
}
