//! First in, first out, with ECN marks from a threshold on.

use super::{Counts, Discipline};
use crate::sim::packet::{Ecn, Packet};
use std::collections::VecDeque;

/// Marks go by the queue as it is when a packet comes, not by an average: RED with both thresholds at K (DCTCP §3.1).
#[derive(Debug)]
pub(super) struct DropTail {
    waiting: VecDeque<Packet>,
    bytes: u64,
    limit: u64,
    mark_at: Option<u64>,
}

impl DropTail {
    pub(super) fn new(limit: u64, mark_at: Option<u64>) -> Self {
        Self { waiting: VecDeque::new(), bytes: 0, limit, mark_at }
    }
}

/// Marks a packet that finds `bytes` waiting.
pub(super) fn mark(packet: &mut Packet, bytes: u64, mark_at: Option<u64>, counts: &mut Counts) {
    if packet.ecn == Ecn::Ect && mark_at.is_some_and(|mark_at| bytes > mark_at) {
        packet.ecn = Ecn::Ce;
        counts.marked += 1;
    }
}

impl Discipline for DropTail {
    fn enqueue(&mut self, _: u64, mut packet: Packet, counts: &mut Counts) {
        if self.bytes + u64::from(packet.length) > self.limit {
            return counts.drop(&packet);
        }
        mark(&mut packet, self.bytes, self.mark_at, counts);
        self.bytes += u64::from(packet.length);
        self.waiting.push_back(packet);
    }

    fn dequeue(&mut self) -> Option<Packet> {
        let packet = self.waiting.pop_front()?;
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
    fn what_does_not_fit_is_dropped_and_what_finds_more_than_k_is_marked() {
        let (mut queue, mut counts) = (DropTail::new(4_500, Some(1_500)), Counts::default());
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
