// SPDX-License-Identifier: Apache-2.0
//! NDP's port: a short queue of whole packets, and one of heads that goes first.

use super::{Counts, Discipline};
use crate::sim::packet::{HEAD, Kind, Packet, Trimming};
use crate::sim::random::Random;
use std::collections::VecDeque;

/// Heads served for one whole packet while both wait (§3.1: 10:1).
const HEADS_A_PACKET: u32 = 10;

/// §3.1: where the low-priority queue is full, the packet that comes or the last one that waits is
/// trimmed, by a coin, which keeps phases from repeating; heads and control packets wait in the
/// other queue. §3.2.4: a head that finds that one full goes back to its sender, once.
#[derive(Debug)]
pub(super) struct Ndp {
    whole: VecDeque<Packet>,
    heads: VecDeque<Packet>,
    bytes: u64,
    head_bytes: u64,
    packets: usize,
    most_head_bytes: u64,
    turns: u32,
    /// The head that goes back to its sender.
    returned: Option<Packet>,
    coin: Random,
}

impl Ndp {
    pub(super) fn new(packets: u32, heads: u64, seed: u64, place: u64) -> Self {
        Self {
            whole: VecDeque::new(),
            heads: VecDeque::new(),
            bytes: 0,
            head_bytes: 0,
            packets: packets.max(1) as usize,
            most_head_bytes: heads,
            turns: 0,
            returned: None,
            coin: Random::new(seed, place),
        }
    }

    fn enqueue_head(&mut self, packet: Packet, counts: &mut Counts) {
        let length = u64::from(packet.length);
        if self.head_bytes + length > self.most_head_bytes {
            if packet.kind == Kind::Data {
                counts.returned += 1;
                self.returned = Some(packet.returned());
            } else {
                counts.drop(&packet);
            }
            return;
        }
        self.head_bytes += length;
        self.bytes += length;
        self.heads.push_back(packet);
    }
}

impl Discipline for Ndp {
    fn enqueue(&mut self, _: u64, packet: Packet, counts: &mut Counts) {
        if packet.kind != Kind::Data || packet.is_trimmed() {
            return self.enqueue_head(packet, counts);
        }
        let mut packet = packet;
        if self.whole.len() < self.packets {
            self.bytes += u64::from(packet.length);
            return self.whole.push_back(packet);
        }
        if self.coin.below(2) == 0
            && let Some(last) = self.whole.back_mut()
        {
            self.bytes = self.bytes - u64::from(last.length) + u64::from(packet.length);
            std::mem::swap(last, &mut packet);
        }
        packet.length = packet.length.min(HEAD);
        packet.trimming = Trimming::Trimmed;
        counts.trimmed += 1;
        self.enqueue_head(packet, counts);
    }

    fn dequeue(&mut self) -> Option<Packet> {
        let heads_first = !self.heads.is_empty() && (self.turns < HEADS_A_PACKET || self.whole.is_empty());
        let packet = if heads_first {
            self.turns = if self.whole.is_empty() { 0 } else { self.turns + 1 };
            let packet = self.heads.pop_front()?;
            self.head_bytes -= u64::from(packet.length);
            packet
        } else {
            self.turns = 0;
            self.whole.pop_front()?
        };
        self.bytes -= u64::from(packet.length);
        Some(packet)
    }

    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn returned(&mut self) -> Option<Packet> {
        self.returned.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ninth_packet_or_the_eighth_is_trimmed_by_a_coin_and_goes_first() {
        let mut arrived = 0;
        for seed in 0..200 {
            let (mut queue, mut counts) = (Ndp::new(8, 1 << 20, seed, 0), Counts::default());
            for number in 0..9 {
                queue.enqueue(0, Packet::data(0, number, 1_500), &mut counts);
            }
            assert_eq!((counts.trimmed, queue.bytes()), (1, 8 * 1_500 + u64::from(HEAD)));
            let first = queue.dequeue().unwrap();
            assert!(first.is_trimmed() && first.length == HEAD && (7..9).contains(&first.number));
            arrived += u32::from(first.number == 8);
            let rest: Vec<u32> = std::iter::from_fn(|| queue.dequeue()).map(|packet| packet.number).collect();
            assert_eq!(rest[..7], [0, 1, 2, 3, 4, 5, 6]);
        }
        assert!((70..130).contains(&arrived), "{arrived} of 200");
    }

    #[test]
    fn a_head_that_finds_no_room_goes_back_to_its_sender_and_a_returned_one_is_dropped() {
        let (mut queue, mut counts) = (Ndp::new(1, 2 * u64::from(HEAD), 1, 0), Counts::default());
        for number in 0..3 {
            queue.enqueue(0, Packet::data(0, number, 1_500), &mut counts);
            assert!(queue.returned().is_none());
        }
        queue.enqueue(0, Packet::data(0, 3, 1_500), &mut counts);
        let back = queue.returned().unwrap();
        assert_eq!((back.kind, back.length, back.source, back.destination), (Kind::Returned, HEAD, 1, 0));
        assert!((2..=3).contains(&back.number), "the one that came or the one that waited");
        queue.enqueue(0, back, &mut counts);
        assert!(queue.returned().is_none());
        assert_eq!((counts.trimmed, counts.returned, counts.dropped, counts.control_dropped), (3, 1, 0, 1));
    }

    #[test]
    fn ten_heads_go_to_a_whole_packet_while_both_wait() {
        let (mut queue, mut counts) = (Ndp::new(8, 1 << 20, 1, 0), Counts::default());
        for number in 0..30 {
            queue.enqueue(0, Packet::data(0, number, 1_500), &mut counts);
        }
        let heads: Vec<bool> =
            std::iter::from_fn(|| queue.dequeue()).map(|packet| packet.is_trimmed()).collect();
        let expected: Vec<bool> = (0..30).map(|at| at % 11 != 10 && at < 24).collect();
        assert_eq!(heads, expected);
    }
}
