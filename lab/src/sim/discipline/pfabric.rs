// SPDX-License-Identifier: Apache-2.0
//! pFabric's port: the flow that has the least left goes first, the one that has the most is
//! dropped.

use super::{Counts, Discipline};
use crate::sim::packet::Packet;
use std::collections::VecDeque;

/// A port's buffer is tiny (two bandwidth-delay products), so both searches look at all of it, as
/// the paper's hardware does (§4.2, §6).
#[derive(Debug)]
pub(super) struct PFabric {
    /// In the order of arrival.
    waiting: VecDeque<Packet>,
    bytes: u64,
    limit: u64,
}

impl PFabric {
    pub(super) fn new(limit: u64) -> Self {
        Self { waiting: VecDeque::new(), bytes: 0, limit }
    }

    fn remove(&mut self, at: usize) -> Option<Packet> {
        let packet = self.waiting.remove(at)?;
        self.bytes -= u64::from(packet.length);
        Some(packet)
    }
}

impl Discipline for PFabric {
    /// §4.2, priority dropping: while the buffer is full and a packet of lower priority waits, that
    /// one is dropped, the latest of equals; else the one that comes.
    fn enqueue(&mut self, _: u64, packet: Packet, counts: &mut Counts) {
        while self.bytes + u64::from(packet.length) > self.limit {
            let last = (0..self.waiting.len()).max_by_key(|&at| (self.waiting[at].rank, at));
            match last.filter(|&at| self.waiting[at].rank > packet.rank) {
                Some(at) => {
                    if let Some(dropped) = self.remove(at) {
                        counts.drop(&dropped);
                    }
                }
                None => return counts.drop(&packet),
            }
        }
        self.bytes += u64::from(packet.length);
        self.waiting.push_back(packet);
    }

    /// §4.2, priority scheduling: the flow of the packet of the highest priority, and of its
    /// packets the earliest, so that a flow's first packets do not starve behind its last.
    fn dequeue(&mut self) -> Option<Packet> {
        let best = (0..self.waiting.len()).min_by_key(|&at| (self.waiting[at].rank, at))?;
        let (flow, kind) = (self.waiting[best].flow, self.waiting[best].kind);
        let first = self.waiting.iter().position(|packet| packet.flow == flow && packet.kind == kind)?;
        self.remove(first)
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(packets: &[(u32, u32, u32)], limit: u64) -> (Vec<(u32, u32)>, Counts) {
        let (mut queue, mut counts) = (PFabric::new(limit), Counts::default());
        for &(flow, number, rank) in packets {
            queue.enqueue(0, Packet { rank, ..Packet::data(flow, number, 100) }, &mut counts);
        }
        (std::iter::from_fn(|| queue.dequeue()).map(|packet| (packet.flow, packet.number)).collect(), counts)
    }

    #[test]
    fn the_earliest_packet_of_the_flow_with_the_least_left_goes_first() {
        // Flow 1's later packet has the highest priority; its earlier one leaves before it.
        let (order, _) = fill(&[(1, 0, 9), (2, 0, 5), (1, 1, 2)], 1_000);
        assert_eq!(order, [(1, 0), (1, 1), (2, 0)]);
    }

    #[test]
    fn a_full_buffer_drops_what_has_the_most_left_whether_it_waits_or_comes() {
        let (order, counts) = fill(&[(1, 0, 9), (2, 0, 5), (3, 0, 1), (4, 0, 20)], 200);
        assert_eq!(order, [(3, 0), (2, 0)]);
        assert_eq!(counts.dropped, 2);
    }
}
