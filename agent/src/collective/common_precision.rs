// SPDX-License-Identifier: Apache-2.0
//! Consistent replicas at the owner of a sum: what its receivers have, and which tails are worth
//! fetching before all decode at the lowest precision among them.

use crate::wire::trim_map::{FULL, TrimMap};
use std::collections::BTreeMap;
use trimwire_encoder::{Codec, quantiser};

/// What is to be done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Others have not reported.
    Wait,
    /// All have: which packets' tails go to each of those who are not content. Those who get some
    /// report again.
    Fetch(BTreeMap<u16, Vec<u32>>),
    /// All are content: the precision at which they decode.
    Agreed(TrimMap),
}

/// What the receivers of a message have.
#[derive(Debug)]
pub(super) struct CommonPrecision {
    codec: Codec,
    planes: u8,
    /// What each has said, and whether it is content.
    reports: BTreeMap<u16, (TrimMap, bool)>,
    receivers: usize,
    /// How large the error may be: of what each would decode alone, when all had reported for the
    /// first time.
    aim: Option<f64>,
    rounds: u32,
}

/// So often tails are fetched: what is fetched may be trimmed again.
const ROUNDS: u32 = 3;

impl CommonPrecision {
    pub(super) fn new(codec: Codec, planes: u8, receivers: usize) -> Self {
        Self { codec, planes, reports: BTreeMap::new(), receivers, aim: None, rounds: 0 }
    }

    /// A receiver has reported. `energy` is that of a coordinate of each packet.
    pub(super) fn report(
        &mut self,
        from: u16,
        map: TrimMap,
        content: bool,
        energy: impl Fn(u32) -> f64,
    ) -> Step {
        self.reports.insert(from, (map, content));
        if self.reports.len() < self.receivers {
            return Step::Wait;
        }
        if self.reports.values().all(|(_, content)| *content) {
            let maps = std::mem::take(&mut self.reports).into_values().map(|(map, _)| map);
            let least = |mut least: TrimMap, map: TrimMap| {
                least.merge_minimum(&map);
                least
            };
            return maps.reduce(least).map_or(Step::Wait, Step::Agreed);
        }
        let tails = self.tails(energy);
        self.rounds += 1;
        self.reports.retain(|_, (_, content)| *content);
        Step::Fetch(tails)
    }

    /// Mean squared error of a coordinate of N(0, 1) at so many planes.
    fn error(&self, planes: u8) -> f64 {
        match planes {
            0 => 1.0,
            all if all >= self.planes => 0.0,
            some => quantiser::distortion(some),
        }
    }

    fn bytes_from(&self, planes: u8) -> usize {
        let at = |planes: u8| self.codec.plane_offset(planes.min(self.planes), 32);
        at(self.planes).saturating_sub(at(planes))
    }

    /// The tails that remove most error per byte, until the common decode errs no more than each
    /// receiver's own would on average (free replicas).
    fn tails(&mut self, energy: impl Fn(u32) -> f64) -> BTreeMap<u16, Vec<u32>> {
        let mut tails: BTreeMap<u16, Vec<u32>> = self
            .reports
            .iter()
            .filter(|(_, (_, content))| !content)
            .map(|(&rank, _)| (rank, Vec::new()))
            .collect();
        let packets = self.reports.values().map(|(map, _)| map.packets()).max().unwrap_or(0);
        let (mut alone, mut together) = (0.0, 0.0);
        let mut candidates = Vec::new();
        for packet in 0..packets {
            // A row that is not finite is NaN at any precision.
            let energy = Some(energy(packet)).filter(|energy| energy.is_finite()).unwrap_or(0.0);
            let held = || self.reports.values().map(|(map, _)| map.planes(packet));
            let least = held().min().unwrap_or(FULL);
            if least >= self.planes || energy == 0.0 {
                continue;
            }
            let gain = energy * self.error(least);
            let bytes: usize = held().map(|planes| self.bytes_from(planes)).sum();
            alone += held().map(|planes| energy * self.error(planes)).sum::<f64>() / self.receivers as f64;
            together += gain;
            candidates.push((gain / bytes.max(1) as f64, gain, packet));
        }
        let aim = *self.aim.get_or_insert(alone);
        candidates.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (_, gain, packet) in candidates {
            if together <= aim || self.rounds >= ROUNDS {
                break;
            }
            together -= gain;
            for (rank, (map, content)) in &self.reports {
                if !content && map.planes(packet) < self.planes {
                    tails.entry(*rank).or_default().push(packet);
                }
            }
        }
        tails
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(planes: &[u8]) -> TrimMap {
        TrimMap::from_planes(planes.to_vec())
    }

    #[test]
    fn where_nothing_is_trimmed_there_is_nothing_to_fetch() {
        let mut common = CommonPrecision::new(Codec::Rht, 10, 2);
        assert_eq!(common.report(1, map(&[FULL; 3]), true, |_| 1.0), Step::Wait);
        assert_eq!(common.report(2, map(&[FULL; 3]), true, |_| 1.0), Step::Agreed(map(&[FULL; 3])));
    }

    #[test]
    fn tails_are_fetched_until_all_together_err_no_more_than_each_alone_does_and_all_decode_by_the_least() {
        let mut common = CommonPrecision::new(Codec::Rht, 10, 4);
        // Rank 1 has one packet trimmed of much energy, rank 2 one of little, rank 3 lacks one;
        // each errs by a quarter of what all would together.
        let energy = |packet: u32| [100.0, 1.0, 10.0, 1.0][packet as usize];
        let reports = [
            (1, map(&[1, FULL, FULL, FULL]), false),
            (2, map(&[FULL, 1, FULL, FULL]), false),
            (3, map(&[FULL, FULL, 0, FULL]), false),
        ];
        for (rank, map, content) in reports {
            assert_eq!(common.report(rank, map, content, energy), Step::Wait);
        }
        let Step::Fetch(tails) = common.report(4, map(&[FULL; 4]), true, energy) else {
            panic!("all have reported")
        };
        assert_eq!(tails, BTreeMap::from([(1, vec![0]), (2, vec![]), (3, vec![])]), "the first is enough");
        assert_eq!(common.report(1, map(&[FULL; 4]), true, energy), Step::Wait);
        assert_eq!(common.report(2, map(&[FULL, 1, FULL, FULL]), true, energy), Step::Wait);
        let agreed = common.report(3, map(&[FULL, FULL, 0, FULL]), true, energy);
        assert_eq!(agreed, Step::Agreed(map(&[FULL, 1, 0, FULL])));
    }

    #[test]
    fn what_is_fetched_and_trimmed_again_is_fetched_again_a_few_times() {
        let mut common = CommonPrecision::new(Codec::Rht, 10, 2);
        common.report(1, map(&[FULL]), true, |_| 1.0);
        for _ in 0..ROUNDS {
            let fetched = Step::Fetch(BTreeMap::from([(2, vec![0])]));
            assert_eq!(common.report(2, map(&[1]), false, |_| 1.0), fetched);
        }
        assert_eq!(common.report(2, map(&[1]), false, |_| 1.0), Step::Fetch(BTreeMap::from([(2, vec![])])));
        assert_eq!(common.report(2, map(&[1]), true, |_| 1.0), Step::Agreed(map(&[1])));
    }

    #[test]
    fn who_is_content_already_is_sent_nothing() {
        let mut common = CommonPrecision::new(Codec::Rht, 10, 2);
        assert_eq!(common.report(1, map(&[1]), true, |_| 1.0), Step::Wait);
        assert_eq!(common.report(2, map(&[8]), false, |_| 1.0), Step::Fetch(BTreeMap::from([(2, vec![0])])));
    }
}
