// SPDX-License-Identifier: Apache-2.0
//! MLT's port (NSDI 2024, §4.2.2, §5.2): strict priority by layer, and above a threshold packets
//! without ECN, which carry small gradients, are dropped.

use super::{Counts, Discipline};
use crate::sim::packet::{CONTROL_CLASS, Ecn, Kind, PRIORITIES, Packet};
use std::collections::VecDeque;

/// One buffer for all data; control packets have a reserved priority (§5.1), and an eighth as much
/// of their own.
#[derive(Debug)]
pub(super) struct Selective {
    queues: [VecDeque<Packet>; PRIORITIES],
    /// By queue.
    waiting: [u64; PRIORITIES],
    /// Of data, and of all.
    data: u64,
    bytes: u64,
    limit: u64,
    /// By queue: the RED/ECN threshold. None drops nothing selectively.
    thresholds: Option<[u64; PRIORITIES]>,
}

impl Selective {
    /// §5.2: thresholds are smaller for queues of higher priority. The paper prints none; here they
    /// fall evenly from `drop_at` of the lowest queue to half of it.
    pub(super) fn new(limit: u64, drop_at: Option<u64>) -> Self {
        let steps = 2 * u64::from(CONTROL_CLASS - 1);
        let of =
            |drop_at: u64| std::array::from_fn(|class| drop_at * steps.saturating_sub(class as u64) / steps);
        Self {
            queues: Default::default(),
            waiting: [0; PRIORITIES],
            data: 0,
            bytes: 0,
            limit,
            thresholds: drop_at.map(of),
        }
    }
}

impl Discipline for Selective {
    fn enqueue(&mut self, _: u64, mut packet: Packet, counts: &mut Counts) {
        let (length, class) = (u64::from(packet.length), usize::from(packet.class).min(PRIORITIES - 1));
        if packet.kind == Kind::Data {
            let above = self.thresholds.is_some_and(|thresholds| self.waiting[class] > thresholds[class]);
            if self.data + length > self.limit || (above && packet.ecn == Ecn::NotEct) {
                return counts.drop(&packet);
            }
            if above && packet.ecn == Ecn::Ect {
                packet.ecn = Ecn::Ce;
                counts.marked += 1;
            }
            self.data += length;
        } else if self.waiting[class] + length > self.limit / 8 {
            return counts.drop(&packet);
        }
        self.waiting[class] += length;
        self.bytes += length;
        self.queues[class].push_back(packet);
    }

    fn dequeue(&mut self) -> Option<Packet> {
        let class = (0..PRIORITIES).rev().find(|&class| !self.queues[class].is_empty())?;
        let packet = self.queues[class].pop_front()?;
        let length = u64::from(packet.length);
        self.waiting[class] -= length;
        self.bytes -= length;
        self.data -= if packet.kind == Kind::Data { length } else { 0 };
        Some(packet)
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(number: u32, class: u8, ecn: Ecn) -> Packet {
        Packet { class, ecn, ..Packet::data(0, number, 1_000) }
    }

    #[test]
    fn above_the_threshold_small_gradients_are_dropped_and_large_ones_are_not() {
        let (mut queue, mut counts) = (Selective::new(5_000, Some(2_000)), Counts::default());
        for number in 0..8 {
            let ecn = if number % 2 == 0 { Ecn::Ect } else { Ecn::NotEct };
            queue.enqueue(0, packet(number, 0, ecn), &mut counts);
        }
        // The fourth finds 3,000 bytes; 0, 1, 2, 4 and 6 fill the buffer.
        let left: Vec<u32> = std::iter::from_fn(|| queue.dequeue()).map(|packet| packet.number).collect();
        assert_eq!((left, counts.dropped, counts.marked), (vec![0, 1, 2, 4, 6], 3, 2));
    }

    #[test]
    fn front_layers_go_first_and_have_the_smaller_threshold() {
        let (mut queue, mut counts) = (Selective::new(100_000, Some(4_000)), Counts::default());
        for number in 0..12 {
            queue.enqueue(0, packet(number, if number < 6 { 0 } else { 6 }, Ecn::NotEct), &mut counts);
        }
        let left: Vec<u32> = std::iter::from_fn(|| queue.dequeue()).map(|packet| packet.number).collect();
        // Five whole packets are above 4,000 bytes, three above 2,000.
        assert_eq!(left, [6, 7, 8, 0, 1, 2, 3, 4]);
        assert_eq!(counts.dropped, 4);
    }

    #[test]
    fn control_packets_find_room_when_data_does_not() {
        let (mut queue, mut counts) = (Selective::new(2_000, None), Counts::default());
        for number in 0..3 {
            queue.enqueue(0, packet(number, 0, Ecn::NotEct), &mut counts);
        }
        let stop = packet(9, 0, Ecn::Ect).answer(Kind::Final, 9);
        queue.enqueue(0, stop, &mut counts);
        assert_eq!((counts.dropped, counts.control_dropped), (1, 0));
        assert_eq!(queue.dequeue().map(|packet| packet.kind), Some(Kind::Final));
    }
}
