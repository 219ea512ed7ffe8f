// SPDX-License-Identifier: Apache-2.0
//! Which packets of a message a receiver has, and how much of each.

use super::untold::Untold;
use crate::wire::trim_map::{FULL, TrimMap};
use std::collections::BTreeSet;

/// Planes held of each packet.
#[derive(Debug)]
pub(super) struct Received {
    held: Vec<u8>,
    /// Planes that are sent of each.
    planes: u8,
    /// Whether all of these are wanted, or any.
    every_plane: bool,
    /// All packets below are satisfied.
    low: u32,
    /// One past the last packet of which something arrived.
    high: u32,
    missing: u32,
    unfinished: u32,
    /// Packets that are missing, and that the sender does not send again.
    waived: BTreeSet<u32>,
    /// Packets of which no report has told what is held.
    untold: Untold,
}

impl Received {
    pub(super) fn new(packets: u32, planes: u8, every_plane: bool) -> Self {
        let held = vec![0; packets as usize];
        let (waived, untold) = (BTreeSet::new(), Untold::new(packets));
        Self {
            held,
            waived,
            planes,
            every_plane,
            low: 0,
            high: 0,
            missing: packets,
            unfinished: packets,
            untold,
        }
    }

    pub(super) fn packets(&self) -> u32 {
        self.held.len() as u32
    }

    /// Planes that are sent of each packet.
    pub(super) fn planes(&self) -> u8 {
        self.planes
    }

    /// Packets of which nothing has arrived.
    pub(super) fn missing(&self) -> u32 {
        self.missing
    }

    /// Packets of which not every plane has arrived.
    pub(super) fn unfinished(&self) -> u32 {
        self.unfinished
    }

    /// First packet that is not satisfied, and one past the last of which something arrived.
    pub(super) fn span(&self) -> (u32, u32) {
        (self.low, self.high.max(self.low))
    }

    /// Packets that are not satisfied.
    pub(super) fn unsatisfied(&self) -> u32 {
        if self.every_plane { self.unfinished } else { self.missing }
    }

    /// Whether so many planes of a packet are enough.
    pub(super) fn satisfies(&self, held: u8) -> bool {
        held >= if self.every_plane { self.planes } else { 1 }
    }

    pub(super) fn held(&self, index: u32) -> u8 {
        self.held.get(index as usize).copied().unwrap_or(0)
    }

    /// What a map says of a packet: planes held, and [`FULL`] for all that were sent.
    pub(super) fn state(&self, index: u32) -> u8 {
        match self.held(index) {
            held if held >= self.planes => FULL,
            held => held,
        }
    }

    /// Takes note of what is held of a packet. Whether it is satisfied by that and was not before.
    pub(super) fn set(&mut self, index: u32, held: u8) -> bool {
        let Some(slot) = self.held.get_mut(index as usize) else { return false };
        let before = std::mem::replace(slot, held.max(*slot));
        let now = *slot;
        if now > before {
            self.untold.add(index);
        }
        self.high = self.high.max(index + 1);
        self.missing -= u32::from(before == 0 && now > 0);
        self.unfinished -= u32::from(before < self.planes && now >= self.planes);
        let satisfied = !self.satisfies(before) && self.satisfies(now) && !self.waived.remove(&index);
        while self.low < self.packets() && self.satisfies(self.held(self.low)) {
            self.low += 1;
        }
        satisfied
    }

    /// A packet that is missing is not sent again. Whether it is satisfied by that, and was not
    /// before: no more than `most` are.
    pub(super) fn waive(&mut self, index: u32, most: u32) -> bool {
        let missing = index < self.packets() && self.held(index) == 0;
        missing && self.waived.len() < most as usize && self.waived.insert(index)
    }

    /// Whether packets are missing, and none of them is sent again.
    pub(super) fn is_all_waived(&self) -> bool {
        !self.waived.is_empty() && self.waived.len() == self.missing as usize
    }

    /// Fewer planes are sent than was thought. Gives the packets that are satisfied by that.
    pub(super) fn set_planes(&mut self, planes: u8) -> Vec<u32> {
        let before = std::mem::replace(&mut self.planes, planes);
        let newly = |held: u8| held < before && held >= planes;
        let finished = (0..self.packets()).filter(|&index| newly(self.held(index)));
        let finished: Vec<u32> = finished.collect();
        self.unfinished -= finished.len() as u32;
        // What was told of them reads otherwise.
        finished.iter().for_each(|&index| self.untold.add(index));
        self.low = (0..self.packets()).find(|&p| !self.satisfies(self.held(p))).unwrap_or(self.packets());
        if self.every_plane { finished } else { Vec::new() }
    }

    /// What no report has told, which the writer of one takes packets from.
    pub(super) fn untold(&mut self) -> &mut Untold {
        &mut self.untold
    }

    /// The final map.
    pub(super) fn map(&self) -> TrimMap {
        TrimMap::from_planes((0..self.packets()).map(|index| self.state(index)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_waived_satisfies_once_whether_it_arrives_or_not_and_stays_missing() {
        let mut received = Received::new(8, FULL, false);
        assert!(received.set(0, 3) && !received.waive(0, 8), "it is there");
        assert!(received.waive(1, 2) && !received.waive(1, 2) && received.waive(2, 2));
        assert!(
            !received.waive(3, 2) && !received.waive(8, 9),
            "no more than may be missing, and none that there is not"
        );
        assert_eq!((received.missing(), received.is_all_waived()), (7, false));
        assert!(!received.set(1, FULL), "late, and counted already");
        assert_eq!((received.missing(), received.held(1)), (6, FULL));
        assert!(received.waive(3, 2), "another one may be missing in its place");
        assert!((4..8).all(|packet| received.set(packet, 1)));
        assert_eq!((received.missing(), received.is_all_waived(), received.span().0), (2, true, 2));
    }

    proptest! {
        #[test]
        fn counts_are_those_of_the_packets(
            every: bool, planes in 2_u8..=FULL, fewer in 1_u8..=FULL, arrivals in prop::collection::vec((0_u32..40, 0_u8..=FULL), 0..120),
        ) {
            let mut received = Received::new(40, planes, every);
            let mut held = [0_u8; 40];
            let mut satisfied = Vec::new();
            for (index, now) in arrivals {
                if received.set(index, now) {
                    satisfied.push(index);
                }
                held[index as usize] = held[index as usize].max(now);
            }
            let planes = if fewer < planes {
                satisfied.extend(received.set_planes(fewer));
                fewer
            } else {
                planes
            };
            let count = |f: &dyn Fn(u8) -> bool| held.iter().filter(|&&h| f(h)).count() as u32;
            prop_assert_eq!(received.missing(), count(&|h| h == 0));
            prop_assert_eq!(received.unfinished(), count(&|h| h < planes));
            satisfied.sort_unstable();
            let expected: Vec<u32> = (0..40).filter(|&i| held[i as usize] >= if every { planes } else { 1 }).collect();
            prop_assert_eq!(&satisfied, &expected, "each told once");
            let low = (0..40).find(|i| !expected.contains(i)).unwrap_or(40);
            prop_assert_eq!(received.span().0, low);
        }
    }
}
