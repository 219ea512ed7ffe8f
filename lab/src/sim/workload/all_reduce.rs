// SPDX-License-Identifier: Apache-2.0
//! All-reduces of data-parallel training.

use super::{Begin, Demand};
use crate::sim::random::Random;

/// A direct all-reduce: every host owns a shard of the gradient.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AllReduce {
    /// Of a shard.
    pub bytes: u64,
    /// What a host computes before it sends, ns.
    pub compute_ns: u64,
    /// Up to so much more, drawn for every host, ns.
    pub jitter_ns: u64,
}

/// Every host sends each other one its shard, and, when it has its own from all, its own to each:
/// the agent's default algorithm. The first n (n − 1) demands are of the first half, ordered by
/// source, then by how far the destination is behind it; those of the second half are ordered in
/// the same way.
pub fn all_reduce(hosts: u32, how: &AllReduce, seed: u64) -> Vec<Demand> {
    let (mut random, others) = (Random::new(seed, 0xa5), hosts.saturating_sub(1));
    let mut demands = Vec::with_capacity(2 * hosts as usize * others as usize);
    for source in 0..hosts {
        let late_ns = (random.unit() * how.jitter_ns as f64) as u64;
        let begin_ns = how.compute_ns.saturating_add(late_ns);
        demands
            .extend((1..hosts).map(|step| Demand::at(source, (source + step) % hosts, how.bytes, begin_ns)));
    }
    for source in 0..hosts {
        // Of the host that is so far before it.
        let to_it: Vec<u32> =
            (1..hosts).map(|step| (source + hosts - step) % hosts * others + step - 1).collect();
        demands.extend((1..hosts).map(|step| Demand {
            begin: Begin::Later(0),
            after: to_it.clone(),
            ..Demand::at(source, (source + step) % hosts, how.bytes, 0)
        }));
    }
    demands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_all_reduce_scatters_to_everybody_and_gathers_what_has_come_from_everybody() {
        let how = AllReduce { bytes: 500, compute_ns: 1_000, jitter_ns: 100 };
        let demands = all_reduce(5, &how, 1);
        let (scatter, gather) = demands.split_at(5 * 4);
        for (number, demand) in scatter.iter().enumerate() {
            let (source, step) = (number as u32 / 4, number as u32 % 4 + 1);
            assert_eq!((demand.source, demand.destination), (source, (source + step) % 5));
            assert!(matches!(demand.begin, Begin::At(at) if (1_000..=1_100).contains(&at)), "{demand:?}");
        }
        for demand in gather {
            let mut sources: Vec<u32> = demand.after.iter().map(|&at| scatter[at as usize].source).collect();
            assert!(demand.after.iter().all(|&at| scatter[at as usize].destination == demand.source));
            sources.sort_unstable();
            assert_eq!(sources, (0..5).filter(|host| *host != demand.source).collect::<Vec<_>>());
        }
        let pairs: std::collections::BTreeSet<_> = gather.iter().map(|d| (d.source, d.destination)).collect();
        assert_eq!(pairs.len(), 20);
    }
}
