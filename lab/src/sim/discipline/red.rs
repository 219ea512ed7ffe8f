// SPDX-License-Identifier: Apache-2.0
//! DCQCN's port, its congestion point (Zhu et al., SIGCOMM 2015, §3.1, fig. 5): strict priority,
//! marks by RED on the queue as it is, and priorities that PFC holds.

use super::{Counts, Discipline};
use crate::sim::packet::{Ecn, PRIORITIES, Packet};
use crate::sim::random::Random;
use std::collections::VecDeque;

/// When a packet is marked, by the bytes of its priority that it finds waiting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Marks {
    /// None up to here, bytes.
    pub k_min: u64,
    /// All above here, bytes.
    pub k_max: u64,
    /// Share at `k_max`; in between it rises from 0 in proportion.
    pub p_max: f64,
}

impl Marks {
    /// Of a queue of so many bytes (fig. 5).
    fn share(&self, bytes: u64) -> f64 {
        if bytes <= self.k_min {
            0.0
        } else if bytes > self.k_max {
            1.0
        } else {
            self.p_max * (bytes - self.k_min) as f64 / (self.k_max - self.k_min) as f64
        }
    }
}

/// Queues by priority, the highest first; the port's bytes have a limit where PFC does not keep
/// packets away.
#[derive(Debug)]
pub(super) struct Red {
    queues: [VecDeque<Packet>; PRIORITIES],
    waiting: [u64; PRIORITIES],
    bytes: u64,
    limit: u64,
    marks: Marks,
    /// A bit a priority.
    held: u8,
    coin: Random,
}

impl Red {
    pub(super) fn new(limit: u64, marks: Marks, seed: u64, place: u64) -> Self {
        Self {
            queues: Default::default(),
            waiting: [0; PRIORITIES],
            bytes: 0,
            limit,
            marks,
            held: 0,
            coin: Random::new(seed, place),
        }
    }

    /// The highest priority that waits and is not held.
    fn next(&self) -> Option<usize> {
        (0..PRIORITIES).rev().find(|&class| self.waiting[class] > 0 && self.held >> class & 1 == 0)
    }
}

impl Discipline for Red {
    fn enqueue(&mut self, _: u64, mut packet: Packet, counts: &mut Counts) {
        let (length, class) = (u64::from(packet.length), usize::from(packet.class).min(PRIORITIES - 1));
        if self.bytes + length > self.limit {
            return counts.drop(&packet);
        }
        let share = self.marks.share(self.waiting[class]);
        if packet.ecn == Ecn::Ect && share > 0.0 && (share >= 1.0 || self.coin.unit() < share) {
            packet.ecn = Ecn::Ce;
            counts.marked += 1;
        }
        self.waiting[class] += length;
        self.bytes += length;
        self.queues[class].push_back(packet);
    }

    fn dequeue(&mut self) -> Option<Packet> {
        let class = self.next()?;
        let packet = self.queues[class].pop_front()?;
        self.waiting[class] -= u64::from(packet.length);
        self.bytes -= u64::from(packet.length);
        Some(packet)
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn is_ready(&self) -> bool {
        self.next().is_some()
    }

    fn hold(&mut self, class: u8, on: bool) {
        let bit = 1 << (class & 7);
        self.held = if on { self.held | bit } else { self.held & !bit };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: Marks = Marks { k_min: 5_000, k_max: 200_000, p_max: 0.01 };

    fn queue(limit: u64, marks: Marks) -> (Red, Counts) {
        (Red::new(limit, marks, 7, 0), Counts::default())
    }

    #[test]
    fn the_share_of_marks_is_figure_5s() {
        assert_eq!([0, 5_000, 200_001].map(|bytes| MARKS.share(bytes)), [0.0, 0.0, 1.0]);
        assert!((MARKS.share(102_500) - 0.005).abs() < 1e-12);
        assert!((MARKS.share(200_000) - 0.01).abs() < 1e-12);
        // Both thresholds at one place are DCTCP's K.
        let step = Marks { k_min: 9, k_max: 9, p_max: 1.0 };
        assert_eq!([9, 10].map(|bytes| step.share(bytes)), [0.0, 1.0]);
    }

    #[test]
    fn packets_are_marked_as_often_as_the_queue_they_find_says() {
        let (mut red, mut counts) = queue(u64::MAX, Marks { k_min: 0, k_max: 100_000, p_max: 0.5 });
        for number in 0..50 {
            red.enqueue(0, Packet::data(0, number, 1_000), &mut counts);
        }
        counts.marked = 0;
        // Each finds 50,000 bytes: one in four is marked, 2,500 of 10,000 with a deviation of 43.
        for number in 50..10_050 {
            red.enqueue(0, Packet::data(0, number, 1_000), &mut counts);
            red.dequeue();
        }
        assert!((2_300..2_700).contains(&counts.marked), "{}", counts.marked);
    }

    #[test]
    fn a_pause_holds_its_priority_alone() {
        let (mut red, mut counts) = queue(u64::MAX, MARKS);
        for (number, class) in (0..).zip([3, 0, 3, 5]) {
            red.enqueue(0, Packet { class, ..Packet::data(0, number, 100) }, &mut counts);
        }
        red.hold(3, true);
        let left: Vec<u32> = std::iter::from_fn(|| red.dequeue()).map(|packet| packet.number).collect();
        assert_eq!((left, red.bytes(), red.is_ready()), (vec![3, 1], 200, false));
        red.hold(3, false);
        let left: Vec<u32> = std::iter::from_fn(|| red.dequeue()).map(|packet| packet.number).collect();
        assert_eq!(left, [0, 2]);
    }

    #[test]
    fn without_pfc_what_does_not_fit_is_dropped() {
        let (mut red, mut counts) = queue(2_500, MARKS);
        (0..4).for_each(|number| red.enqueue(0, Packet::data(0, number, 1_000), &mut counts));
        assert_eq!((red.bytes(), counts.dropped), (2_000, 2));
    }
}
