//! Algorithms: what an operation is made of at one rank.
//!
//! ```text
//!  all-reduce       every rank ── its part of shard s ──► rank s: sum ── encoded once ──► every other rank
//!  reduce-scatter   the first half of that, all-gather the second
//!  broadcast        root ── shard s ──► rank s ── as it is ──► every other rank but the root      (exact, of some size)
//!                   root ── everything ──► every other rank                                       (otherwise)
//!  parameter server as all-reduce, where shards belong to some ranks, who may have no part of their own
//! ```

use super::{Phase, shard_range};
use std::ops::Range;

/// One of the two tensors of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tensor {
    Input,
    Output,
}

/// Where a shard is in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) tensor: Tensor,
    pub(super) start: usize,
}

/// What happens to a shard at this rank, row by row: contributions come from some ranks (`from`) and from memory (`own`); their sum goes to other ranks (`to`) and to memory (`write`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Blueprint {
    pub(super) shard: u16,
    /// Coordinates.
    pub(super) length: usize,
    pub(super) own: Option<Place>,
    /// Ascending.
    pub(super) from: Vec<u16>,
    /// In which phase their messages come.
    pub(super) phase_in: Phase,
    pub(super) to: Vec<u16>,
    pub(super) phase_out: Phase,
    pub(super) write: Option<Place>,
    /// Whether the sum is to be averaged, where it is.
    pub(super) sums: bool,
    /// Index of what has to have read a row from memory before this may write it.
    pub(super) after: Option<usize>,
}

impl Blueprint {
    fn new(shard: usize, range: &Range<usize>) -> Self {
        Self {
            shard: shard as u16,
            length: range.len(),
            own: None,
            from: Vec::new(),
            phase_in: Phase::ReduceScatter,
            to: Vec::new(),
            phase_out: Phase::AllGather,
            write: None,
            sums: false,
            after: None,
        }
    }

    /// Received and written, nothing else.
    pub(super) fn only_stores(&self) -> bool {
        self.own.is_none() && self.from.len() == 1 && self.to.is_empty() && !self.sums
    }
}

/// Who takes part.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ranks {
    pub(super) rank: u16,
    pub(super) world: u16,
}

impl Ranks {
    /// The other ranks, in an order that starts behind this one: if all began with rank 0 its link would be the bottleneck.
    fn others(self) -> impl Iterator<Item = u16> {
        let (rank, world) = (u32::from(self.rank), u32::from(self.world));
        (1..world).map(move |k| ((rank + k) % world) as u16)
    }
}

fn at(tensor: Tensor, start: usize) -> Place {
    Place { tensor, start }
}

/// A sum of `length` coordinates whose shards belong to `owners`, of what `workers` have, for all of them. In place.
pub(super) fn all_reduce(ranks: Ranks, length: usize, owners: &[u16], workers: &[u16]) -> Vec<Blueprint> {
    let works = workers.contains(&ranks.rank);
    let mut plan = Vec::new();
    // Other owners first behind this rank come first here, too.
    let turn = owners.iter().position(|&owner| owner > ranks.rank).unwrap_or(0);
    for k in (turn..owners.len()).chain(0..turn) {
        let (owner, range) = (owners[k], shard_range(length, owners.len() as u16, k as u16));
        if range.is_empty() {
            continue;
        }
        let shard = Blueprint::new(k, &range);
        let place = works.then(|| at(Tensor::Output, range.start));
        if owner == ranks.rank {
            let mut from: Vec<u16> = workers.iter().copied().filter(|&worker| worker != owner).collect();
            from.sort_unstable();
            let to = ranks.others().filter(|other| from.contains(other)).collect();
            plan.push(Blueprint { own: place, from, to, write: place, sums: true, ..shard });
        } else if works {
            let source = plan.len();
            let (to, phase_out) = (vec![owner], Phase::ReduceScatter);
            plan.push(Blueprint { own: place, to, phase_out, ..shard.clone() });
            let (from, phase_in) = (vec![owner], Phase::AllGather);
            plan.push(Blueprint { from, phase_in, write: place, after: Some(source), ..shard });
        }
    }
    plan
}

/// Shard s of the sum, for rank s.
pub(super) fn reduce_scatter(ranks: Ranks, length: usize) -> Vec<Blueprint> {
    let mut plan = Vec::new();
    for rank in ranks.others().chain([ranks.rank]) {
        let range = shard_range(length, ranks.world, rank);
        if range.is_empty() {
            continue;
        }
        let shard = Blueprint {
            own: Some(at(Tensor::Input, range.start)),
            ..Blueprint::new(usize::from(rank), &range)
        };
        plan.push(if rank == ranks.rank {
            let from = (0..ranks.world).filter(|&other| other != rank).collect();
            Blueprint { from, write: Some(at(Tensor::Output, 0)), sums: true, ..shard }
        } else {
            Blueprint { to: vec![rank], phase_out: Phase::ReduceScatter, ..shard }
        });
    }
    plan
}

/// The sum, for one rank. In place there; the others' memory stays as it is.
pub(super) fn reduce(ranks: Ranks, length: usize, root: u16) -> Vec<Blueprint> {
    if length == 0 {
        return Vec::new();
    }
    let own = Some(at(Tensor::Output, 0));
    let shard = Blueprint { own, ..Blueprint::new(0, &(0..length)) };
    vec![if root == ranks.rank {
        let from = (0..ranks.world).filter(|&other| other != root).collect();
        Blueprint { from, write: own, sums: true, ..shard }
    } else {
        Blueprint { to: vec![root], phase_out: Phase::ReduceScatter, ..shard }
    }]
}

/// Every rank's shard, for all. The own one comes from the input.
pub(super) fn all_gather(ranks: Ranks, length: usize) -> Vec<Blueprint> {
    let mut plan = Vec::new();
    for rank in [ranks.rank].into_iter().chain(ranks.others()) {
        let range = shard_range(length, ranks.world, rank);
        if range.is_empty() {
            continue;
        }
        let shard = Blueprint {
            write: Some(at(Tensor::Output, range.start)),
            ..Blueprint::new(usize::from(rank), &range)
        };
        plan.push(if rank == ranks.rank {
            Blueprint { own: Some(at(Tensor::Input, 0)), to: ranks.others().collect(), ..shard }
        } else {
            Blueprint { from: vec![rank], phase_in: Phase::AllGather, ..shard }
        });
    }
    plan
}

/// Coordinates of a shard below which the root sends everything to everyone: packets that are nearly empty.
const SCATTERED: usize = 1_024;

/// The root's values, for all. Where what is sent on is what came, the root sends each shard once, and its receivers send it on.
pub(super) fn broadcast(ranks: Ranks, length: usize, root: u16, exact: bool) -> Vec<Blueprint> {
    let receivers: Vec<u16> = (0..ranks.world).filter(|&rank| rank != root).collect();
    if length == 0 || receivers.is_empty() {
        return Vec::new();
    }
    let relayed = exact && receivers.len() > 1 && length / receivers.len() >= SCATTERED;
    if !relayed {
        let everything = Blueprint::new(0, &(0..length));
        let memory = Some(at(Tensor::Output, 0));
        return vec![if ranks.rank == root {
            // What the others have of it is not what was sent; the root takes that, too.
            Blueprint { own: memory, to: receivers, write: memory, ..everything }
        } else {
            Blueprint { from: vec![root], phase_in: Phase::AllGather, write: memory, ..everything }
        }];
    }
    let mut plan = Vec::new();
    for (k, &relay) in receivers.iter().enumerate() {
        let range = shard_range(length, receivers.len() as u16, k as u16);
        let (shard, memory) = (Blueprint::new(k, &range), Some(at(Tensor::Output, range.start)));
        plan.push(if ranks.rank == root {
            Blueprint { own: memory, to: vec![relay], phase_out: Phase::ReduceScatter, ..shard }
        } else if ranks.rank == relay {
            let to = ranks.others().filter(|&other| other != root).collect();
            Blueprint { from: vec![root], to, write: memory, ..shard }
        } else {
            Blueprint { from: vec![relay], phase_in: Phase::AllGather, write: memory, ..shard }
        });
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// (from, to, phase, shard, length) of all messages, as their senders see them and as their receivers do.
    type Messages = BTreeMap<(u16, u16, u8, u16, usize), u32>;

    fn messages(
        world: u16,
        plan: impl Fn(Ranks) -> Vec<Blueprint>,
    ) -> (Messages, Messages, Vec<Vec<Blueprint>>) {
        let (mut sent, mut expected) = (Messages::new(), Messages::new());
        let plans: Vec<_> = (0..world).map(|rank| plan(Ranks { rank, world })).collect();
        for (rank, plan) in (0..).zip(&plans) {
            for part in plan {
                for &to in &part.to {
                    *sent.entry((rank, to, part.phase_out as u8, part.shard, part.length)).or_default() += 1;
                }
                for &from in &part.from {
                    *expected
                        .entry((from, rank, part.phase_in as u8, part.shard, part.length))
                        .or_default() += 1;
                }
            }
        }
        (sent, expected, plans)
    }

    fn check(world: u16, name: &str, plan: impl Fn(Ranks) -> Vec<Blueprint>) -> Vec<Vec<Blueprint>> {
        let (sent, expected, plans) = messages(world, plan);
        assert_eq!(sent, expected, "{name} of {world}: what is sent is what is expected");
        assert!(sent.values().all(|&times| times == 1), "{name} of {world}: each id is used once");
        for (rank, plan) in plans.iter().enumerate() {
            for part in plan {
                assert!(
                    !part.from.contains(&(rank as u16)) && !part.to.contains(&(rank as u16)),
                    "{name} of {world}: nobody writes to itself"
                );
                assert!(part.from.is_sorted() && part.length > 0, "{name} of {world}");
            }
        }
        plans
    }

    /// Every coordinate of `length` is written exactly once.
    fn tiles(plan: &[Blueprint], length: usize) -> bool {
        let mut parts: Vec<_> =
            plan.iter().filter_map(|part| part.write.map(|at| (at.start, part.length))).collect();
        parts.sort_unstable();
        let mut next = 0;
        parts.iter().all(|&(start, count)| std::mem::replace(&mut next, start + count) == start)
            && next == length
    }

    #[test]
    fn every_message_has_a_sender_and_a_receiver_and_every_result_is_written_once() {
        for world in 1..=9 {
            let all: Vec<u16> = (0..world).collect();
            for length in [0, 1, 5, 40_000] {
                for plan in check(world, "all-reduce", |ranks| all_reduce(ranks, length, &all, &all)) {
                    assert!(tiles(&plan, length));
                }
                for (rank, plan) in
                    check(world, "reduce-scatter", |ranks| reduce_scatter(ranks, length)).iter().enumerate()
                {
                    assert!(tiles(plan, shard_range(length, world, rank as u16).len()));
                }
                for plan in check(world, "all-gather", |ranks| all_gather(ranks, length)) {
                    assert!(tiles(&plan, length));
                }
                for root in 0..world {
                    check(world, "reduce", |ranks| reduce(ranks, length, root));
                    for exact in [false, true] {
                        let plans = check(world, "broadcast", |ranks| broadcast(ranks, length, root, exact));
                        let receivers =
                            plans.iter().enumerate().filter(|(rank, _)| *rank != usize::from(root));
                        assert!(receivers.into_iter().all(|(_, plan)| tiles(plan, length)));
                    }
                }
                let (servers, workers) = all.split_at(usize::from(world).div_ceil(3));
                let plans =
                    check(world, "parameter servers", |ranks| all_reduce(ranks, length, servers, workers));
                for plan in &plans[servers.len()..] {
                    assert!(tiles(plan, length));
                }
            }
        }
    }

    #[test]
    fn the_root_of_a_large_exact_broadcast_sends_everything_once() {
        let plans = check(5, "broadcast", |ranks| broadcast(ranks, 1 << 20, 2, true));
        let sent: usize = plans[2].iter().map(|part| part.length * part.to.len()).sum();
        assert_eq!(sent, 1 << 20);
    }
}
