// SPDX-License-Identifier: Apache-2.0
//! What of a message is to be sent again, and in which order, and what is not: the receiver is told
//! of that, as by FORWARD TSN (RFC 3758 §3.2), so that rows need not wait for the message's end.

use super::loss::Repair;
use crate::wire::trim_map::{Detail, FULL};
use crate::wire::{MapSource, Writer};
use std::collections::{BTreeMap, BTreeSet};
use trimwire_encoder::{Codec, quantiser};

/// Repairs that wait, each packet at most once.
#[derive(Debug, Default)]
pub(super) struct Repairs {
    /// By worth, the most first, then by packet.
    queue: BTreeMap<(u64, u32), Repair>,
    queued: BTreeSet<u32>,
}

impl Repairs {
    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.queued.clear();
    }

    /// Adds a repair unless its packet waits already. What is worth as much goes in the order of
    /// the packets.
    pub(super) fn push(&mut self, repair: Repair, worth: f64) {
        if self.queued.insert(repair.index) {
            // Numbers that are not negative are in the order of their bits.
            let rank = u64::MAX - worth.max(0.0).to_bits();
            self.queue.insert((rank, repair.index), repair);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Repair> {
        let (_, repair) = self.queue.pop_first()?;
        self.queued.remove(&repair.index);
        Some(repair)
    }
}

/// The error that a repair of planes `from` to `planes` removes, per byte: the row's energy per
/// coordinate, times the part that the planes tell (the quantiser's mean squared error of N(0, 1)),
/// over the bytes of a coordinate. Rows that are not finite come first.
pub(super) fn worth(codec: Codec, energy: f64, from: u8, planes: u8) -> f64 {
    const COORDINATES: usize = 32;
    let error = |planes: u8| match planes {
        0 => 1.0,
        all if all >= codec.planes() => 0.0,
        some => quantiser::distortion(some),
    };
    let at = |planes: u8| codec.plane_offset(planes, COORDINATES);
    let bytes = at(planes).saturating_sub(at(from)).max(1) as f64 / COORDINATES as f64;
    if energy.is_finite() { energy * (error(from) - error(planes)).max(0.0) / bytes } else { f64::INFINITY }
}

/// Packets that are lost and not sent again. The receiver is told once: if that is lost, the rows
/// wait.
#[derive(Debug, Default)]
pub(super) struct Forward {
    packets: BTreeSet<u32>,
}

impl Forward {
    pub(super) fn add(&mut self, packet: u32) {
        self.packets.insert(packet);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// They are sent again after all.
    pub(super) fn clear(&mut self) {
        self.packets.clear();
    }

    /// The next FORWARD of message `id` of so many packets, about as many of them as it has room
    /// for.
    pub(super) fn write(&mut self, id: u32, packets: u32, writer: Writer) -> Option<Vec<u8>> {
        let (&first, &last) = self.packets.first().zip(self.packets.last())?;
        let planes = |packet: u32| if self.packets.contains(&packet) { 0 } else { FULL };
        let source = MapSource { planes: &planes, packets: last + 1, offset: first, detail: Detail::Planes };
        let (payload, end) = writer.forward(id, packets, &source);
        self.packets = self.packets.split_off(&end);
        Some(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_energy_a_byte_goes_first_and_every_packet_once() {
        let mut repairs = Repairs::default();
        let rht = |energy, from_plane| worth(Codec::Rht, energy, from_plane, 10);
        for (index, energy, from_plane) in
            [(0, 1.0, 8), (1, 1.0, 1), (2, 1.0, 0), (3, 9.0, 1), (4, 1.0, 1), (5, f64::NAN, 9)]
        {
            repairs.push(Repair { index, from_plane }, rht(energy, from_plane));
        }
        repairs.push(Repair { index: 2, from_plane: 0 }, 1e9);
        let order: Vec<u32> = std::iter::from_fn(|| repairs.pop()).map(|repair| repair.index).collect();
        assert_eq!(order, [5, 3, 2, 1, 4, 0]);
        assert!(repairs.is_empty());
        repairs.push(Repair { index: 2, from_plane: 0 }, 0.0);
        assert_eq!(repairs.pop(), Some(Repair { index: 2, from_plane: 0 }), "it may be lost again");
    }

    #[test]
    fn without_worth_packets_go_in_their_order() {
        let mut repairs = Repairs::default();
        for index in [7, 3, 5] {
            repairs.push(Repair { index, from_plane: 0 }, 0.0);
        }
        let order: Vec<u32> = std::iter::from_fn(|| repairs.pop()).map(|repair| repair.index).collect();
        assert_eq!(order, [3, 5, 7]);
    }
}
