// SPDX-License-Identifier: Apache-2.0
//! The usual patterns: everything begins within `jitter_ns`.

use super::Demand;
use crate::sim::random::Random;

fn start(random: &mut Random, jitter_ns: u64) -> u64 {
    if jitter_ns == 0 { 0 } else { random.below(jitter_ns + 1) }
}

/// Hosts 1 to `senders` send `bytes` each to host 0.
pub fn incast(senders: u32, bytes: u64, jitter_ns: u64, seed: u64) -> Vec<Demand> {
    let mut random = Random::new(seed, 0x1c);
    (1..=senders).map(|host| Demand::at(host, 0, bytes, start(&mut random, jitter_ns))).collect()
}

/// Incasts that begin as a Poisson process before a time: the receiver of each and its senders are
/// drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Incasts {
    /// Of each.
    pub senders: u32,
    /// Of each sender.
    pub bytes: u64,
    /// Flows of one begin within so long, ns.
    pub jitter_ns: u64,
    /// Mean time from one to the next, ns.
    pub every_ns: u64,
    /// ns.
    pub until_ns: u64,
}

impl Incasts {
    /// The flows, in a network of so many hosts; when there are `most`, no more are made.
    pub fn demands(&self, hosts: u32, most: usize, seed: u64) -> Vec<Demand> {
        let mut random = Random::new(seed, 0x1ca);
        let (mut demands, mut order): (Vec<Demand>, Vec<u32>) = (Vec::new(), (0..hosts).collect());
        let mut at_ns = random.exponential(self.every_ns as f64);
        while at_ns < self.until_ns as f64 && demands.len() < most {
            random.shuffle(&mut order);
            for &source in order.iter().skip(1).take(self.senders as usize) {
                let begin_ns = at_ns as u64 + start(&mut random, self.jitter_ns);
                demands.push(Demand::at(source, order[0], self.bytes, begin_ns));
            }
            at_ns += random.exponential(self.every_ns as f64);
        }
        demands
    }
}

/// Every host sends to one other and receives from one other, drawn as one cycle through all.
pub fn permutation(hosts: u32, bytes: u64, jitter_ns: u64, seed: u64) -> Vec<Demand> {
    let mut random = Random::new(seed, 0x9e);
    let mut order: Vec<u32> = (0..hosts).collect();
    random.shuffle(&mut order);
    let next = order.iter().cycle().skip(1);
    let mut demands: Vec<Demand> = order
        .iter()
        .zip(next)
        .map(|(&from, &to)| Demand::at(from, to, bytes, start(&mut random, jitter_ns)))
        .collect();
    demands.sort_by_key(|demand| demand.source);
    demands
}

/// Every host sends `bytes` to every other one, beginning with its neighbour, so that not all begin
/// at the same.
pub fn all_to_all(hosts: u32, bytes: u64, jitter_ns: u64, seed: u64) -> Vec<Demand> {
    let mut random = Random::new(seed, 0xa1);
    let pairs = (0..hosts).flat_map(|from| (1..hosts).map(move |step| (from, (from + step) % hosts)));
    pairs.map(|(from, to)| Demand::at(from, to, bytes, start(&mut random, jitter_ns))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_permutation_has_every_host_once_at_each_end_and_nobody_sends_to_itself() {
        let demands = permutation(17, 100, 0, 5);
        let sources: BTreeSet<u32> = demands.iter().map(|demand| demand.source).collect();
        let destinations: BTreeSet<u32> = demands.iter().map(|demand| demand.destination).collect();
        assert_eq!((sources.len(), destinations.len(), demands.len()), (17, 17, 17));
        assert!(demands.iter().all(|demand| demand.source != demand.destination));
        assert_eq!(demands, permutation(17, 100, 0, 5));
        assert_ne!(demands, permutation(17, 100, 0, 6));
    }

    #[test]
    fn all_to_all_is_every_pair_once() {
        let pairs: BTreeSet<(u32, u32)> =
            all_to_all(5, 1, 0, 0).iter().map(|demand| (demand.source, demand.destination)).collect();
        assert_eq!(pairs.len(), 20);
        assert!(pairs.iter().all(|(from, to)| from != to));
    }
}
