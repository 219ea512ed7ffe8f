// SPDX-License-Identifier: Apache-2.0
//! What an operation is made of at one rank.
//!
//! ```text
//!  all-reduce       every rank's part of a shard ── up its tree, summed on the way ──► owner ── down the tree, as it is ──► every rank
//!  reduce-scatter   the first half of that, all-gather the second; reduce the first half of one shard's
//!  broadcast        root ── shard s ──► rank s ── as it is ──► every other rank but the root      (of some size)
//!                   root ── everything ──► every other rank                                       (otherwise)
//!  parameter server as all-reduce, where shards belong to some ranks, who may have no part of their own
//! ```
//!
//! Trees are those of [`Trees`]: a star, a ring that is opened at the owner, or two levels.

use super::algorithm::Trees;
use super::shards::block_range;
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

/// What happens to a shard at this rank, row by row: contributions come from some ranks (`from`)
/// and from memory (`own`); their sum goes to other ranks (`to`) and to memory (`write`).
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
    /// Whose message it was first, and in which phase, where what comes, or goes on, is not its
    /// sender's own.
    pub(super) origin: Option<(u16, Phase)>,
    /// Which hop what comes has come by, of how many from the first contribution to the last
    /// result.
    pub(super) hop: (u16, u16),
    /// Hops of a way up or down: each may lose its part of what may be lost.
    pub(super) depth: u16,
}

impl Blueprint {
    /// Names ranks as the endpoint does: they were places among an epoch's members, which ascend.
    pub(super) fn name_ranks(&mut self, members: &[u16]) {
        let name = |place: u16| members.get(usize::from(place)).copied().unwrap_or(place);
        self.from.iter_mut().chain(&mut self.to).for_each(|rank| *rank = name(*rank));
        self.origin = self.origin.map(|(rank, phase)| (name(rank), phase));
    }

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
            origin: None,
            hop: (1, 1),
            depth: 1,
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
    /// The other ranks, in an order that starts behind this one: if all began with rank 0 its link
    /// would be the bottleneck.
    fn others(self) -> impl Iterator<Item = u16> {
        let (rank, world) = (u32::from(self.rank), u32::from(self.world));
        (1..world).map(move |k| ((rank + k) % world) as u16)
    }
}

fn at(tensor: Tensor, start: usize) -> Place {
    Place { tensor, start }
}

/// What a rank does for a shard that belongs to `owner`: its part and its contributors' go up
/// (`own`), the sum comes down (`write`).
fn shard(
    ranks: Ranks,
    trees: Trees<'_>,
    owner: u16,
    part: &Blueprint,
    own: Option<Place>,
    write: Option<Place>,
    plan: &mut Vec<Blueprint>,
) {
    let Ranks { rank, world } = ranks;
    let node = trees.node(world, rank, owner);
    let (height, depth) = trees.height_and_depth(world, rank, owner);
    let hops = 2 * trees.depth(world);
    let (up, down) = (Some((owner, Phase::AllGather)), (hops / 2 + depth, hops));
    let origin = up.filter(|_| trees.depth(world) > 1);
    let part = Blueprint { depth: trees.depth(world), ..part.clone() };
    let mut read = None;
    if own.is_some() {
        let from = node.contributors;
        let part = Blueprint { own, from, hop: (height, hops), ..part.clone() };
        let Some(to) = node.up else {
            let to = if write.is_some() { node.receivers } else { Vec::new() };
            return plan.push(Blueprint { to, write, sums: true, ..part });
        };
        read = Some(plan.len());
        plan.push(Blueprint { to: vec![to], phase_out: Phase::ReduceScatter, ..part });
    }
    if let (Some(from), true) = (node.down, write.is_some()) {
        let (from, to) = (vec![from], node.receivers);
        let phase_in = Phase::AllGather;
        plan.push(Blueprint { from, phase_in, to, write, after: read, origin, hop: down, ..part.clone() });
    } else if write.is_some() {
        // The owner of what needs no sum.
        plan.push(Blueprint { to: node.receivers, write, ..part.clone() });
    }
}

/// A sum of `length` coordinates of all ranks, for all of them, whose shards belong to `owners`. In
/// place.
pub(super) fn all_reduce(ranks: Ranks, length: usize, trees: Trees<'_>, owners: &[u16]) -> Vec<Blueprint> {
    let mut plan = Vec::new();
    for (k, owner) in behind(ranks.rank, owners) {
        let range = block_range(length, owners.len() as u16, k as u16);
        if !range.is_empty() {
            let place = Some(at(Tensor::Output, range.start));
            shard(ranks, trees, owner, &Blueprint::new(k, &range), place, place, &mut plan);
        }
    }
    plan
}

/// Shards of some ranks, in an order that starts behind this one.
fn behind(rank: u16, owners: &[u16]) -> impl Iterator<Item = (usize, u16)> {
    let turn = owners.iter().position(|&owner| owner > rank).unwrap_or(0);
    (turn..owners.len()).chain(0..turn).map(|k| (k, owners[k]))
}

/// A sum of `length` coordinates whose shards belong to `servers`, of what `workers` have, for all
/// of them. In place.
pub(super) fn push_pull(ranks: Ranks, length: usize, servers: &[u16], workers: &[u16]) -> Vec<Blueprint> {
    let works = workers.contains(&ranks.rank);
    let mut plan = Vec::new();
    for (k, owner) in behind(ranks.rank, servers) {
        let range = block_range(length, servers.len() as u16, k as u16);
        if range.is_empty() {
            continue;
        }
        let shard = Blueprint { hop: (1, 2), ..Blueprint::new(k, &range) };
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
            let (after, hop) = (Some(source), (2, 2));
            plan.push(Blueprint { from, phase_in, write: place, after, hop, ..shard });
        }
    }
    plan
}

/// Shard s of the sum, for rank s.
pub(super) fn reduce_scatter(ranks: Ranks, length: usize, trees: Trees<'_>) -> Vec<Blueprint> {
    let mut plan = Vec::new();
    for owner in ranks.others().chain([ranks.rank]) {
        let range = shard_range(length, ranks.world, owner);
        if range.is_empty() {
            continue;
        }
        let own = Some(at(Tensor::Input, range.start));
        let write = (owner == ranks.rank).then(|| at(Tensor::Output, 0));
        let from = plan.len();
        shard(ranks, trees, owner, &Blueprint::new(usize::from(owner), &range), own, write, &mut plan);
        one_way(&mut plan[from..], 0);
    }
    plan
}

/// Half of an all-reduce has half of its hops: `before` of them are not there.
fn one_way(plan: &mut [Blueprint], before: u16) {
    for part in plan {
        let (hop, hops) = part.hop;
        part.hop = (hop.saturating_sub(before), hops / 2);
        if before == 0 {
            // The sum stays.
            part.to.retain(|_| part.phase_out == Phase::ReduceScatter);
        }
    }
}

/// The sum, for one rank. In place there; the others' memory stays as it is.
pub(super) fn reduce(ranks: Ranks, length: usize, root: u16, trees: Trees<'_>) -> Vec<Blueprint> {
    let mut plan = Vec::new();
    if length > 0 {
        let own = Some(at(Tensor::Output, 0));
        let write = own.filter(|_| root == ranks.rank);
        shard(ranks, trees, root, &Blueprint::new(0, &(0..length)), own, write, &mut plan);
        one_way(&mut plan, 0);
    }
    plan
}

/// From each rank to each its part; `to` and `from` are coordinates by rank. A message's shard is
/// its receiver's rank, so that no two that a rank sends have one id.
pub(super) fn all_to_all(ranks: Ranks, to: &[usize], from: &[usize]) -> Vec<Blueprint> {
    let range = |lengths: &[usize], rank: u16| {
        let rank = usize::from(rank);
        let start = lengths.iter().take(rank).sum::<usize>();
        start..start + lengths.get(rank).copied().unwrap_or(0)
    };
    let mut plan = Vec::new();
    for other in ranks.others() {
        let (sent, received) = (range(to, other), range(from, other));
        if !sent.is_empty() {
            let (own, to) = (Some(at(Tensor::Input, sent.start)), vec![other]);
            let phase_out = Phase::ReduceScatter;
            plan.push(Blueprint { own, to, phase_out, ..Blueprint::new(usize::from(other), &sent) });
        }
        if !received.is_empty() {
            let (write, from) = (Some(at(Tensor::Output, received.start)), vec![other]);
            plan.push(Blueprint { from, write, ..Blueprint::new(usize::from(ranks.rank), &received) });
        }
    }
    let (kept, place) = (range(to, ranks.rank), range(from, ranks.rank).start);
    if !kept.is_empty() {
        let (own, write) = (Some(at(Tensor::Input, kept.start)), Some(at(Tensor::Output, place)));
        plan.push(Blueprint { own, write, ..Blueprint::new(usize::from(ranks.rank), &kept) });
    }
    plan
}

/// Every rank's shard, for all. The own one comes from the input.
pub(super) fn all_gather(ranks: Ranks, length: usize, trees: Trees<'_>) -> Vec<Blueprint> {
    let mut plan = Vec::new();
    for owner in [ranks.rank].into_iter().chain(ranks.others()) {
        let range = shard_range(length, ranks.world, owner);
        if range.is_empty() {
            continue;
        }
        let (from, write) = (plan.len(), Some(at(Tensor::Output, range.start)));
        shard(ranks, trees, owner, &Blueprint::new(usize::from(owner), &range), None, write, &mut plan);
        if owner == ranks.rank {
            plan[from].own = Some(at(Tensor::Input, 0));
        }
        one_way(&mut plan[from..], trees.depth(ranks.world));
    }
    plan
}

/// Coordinates of a shard below which the root sends everything to everyone: packets that are
/// nearly empty.
const SCATTERED: usize = 1_024;

/// The root's values, for all. Unless it is to be `direct`, the root sends each shard of a large
/// one once, and its receivers send it on as it came.
pub(super) fn broadcast(ranks: Ranks, length: usize, root: u16, direct: bool) -> Vec<Blueprint> {
    let receivers: Vec<u16> = (0..ranks.world).filter(|&rank| rank != root).collect();
    if length == 0 || receivers.is_empty() {
        return Vec::new();
    }
    let relayed = !direct && receivers.len() > 1 && length / receivers.len() >= SCATTERED;
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
        let range = block_range(length, receivers.len() as u16, k as u16);
        let memory = Some(at(Tensor::Output, range.start));
        let origin = Some((root, Phase::ReduceScatter));
        let shard = Blueprint { hop: (1, 2), depth: 2, ..Blueprint::new(k, &range) };
        plan.push(if ranks.rank == root {
            let (to, phase_out) = (vec![relay], Phase::ReduceScatter);
            Blueprint { own: memory, to, phase_out, write: memory, ..shard }
        } else if ranks.rank == relay {
            let to = ranks.others().filter(|&other| other != root).collect();
            Blueprint { from: vec![root], to, write: memory, origin, ..shard }
        } else {
            let (from, phase_in) = (vec![relay], Phase::AllGather);
            Blueprint { from, phase_in, write: memory, origin, hop: (2, 2), ..shard }
        });
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::super::algorithm::Hosts;
    use super::*;
    use std::collections::BTreeMap;

    /// (from, to, phase, shard, length) of all messages, as their senders see them and as their
    /// receivers do.
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
            let (alone, mixed) = (Hosts::new(world, &[]), Hosts::new(world, &[0, 1, 0, 1, 0, 1, 2, 2, 2]));
            let shapes = [Trees::Star, Trees::Ring, Trees::Hosts(&alone), Trees::Hosts(&mixed)];
            for (length, trees) in
                [0, 1, 5, 40_000].into_iter().flat_map(|length| shapes.map(|trees| (length, trees)))
            {
                let owners = trees.owners(world, length / 448);
                for plan in check(world, "all-reduce", |ranks| all_reduce(ranks, length, trees, &owners)) {
                    assert!(tiles(&plan, length));
                }
                let trees = trees.with_all_owners();
                for (rank, plan) in
                    check(world, "reduce-scatter", |ranks| reduce_scatter(ranks, length, trees))
                        .iter()
                        .enumerate()
                {
                    assert!(tiles(plan, shard_range(length, world, rank as u16).len()));
                }
                for plan in check(world, "all-gather", |ranks| all_gather(ranks, length, trees)) {
                    assert!(tiles(&plan, length));
                }
                for root in 0..world {
                    let plans = check(world, "reduce", |ranks| reduce(ranks, length, root, trees));
                    assert!(tiles(&plans[usize::from(root)], length));
                    for direct in [false, true] {
                        for plan in check(world, "broadcast", |ranks| broadcast(ranks, length, root, direct))
                        {
                            assert!(tiles(&plan, length) || world == 1);
                        }
                    }
                }
                let (servers, workers) = all.split_at(usize::from(world).div_ceil(3));
                let plans =
                    check(world, "parameter servers", |ranks| push_pull(ranks, length, servers, workers));
                for plan in &plans[servers.len()..] {
                    assert!(tiles(plan, length));
                }
            }
        }
    }

    #[test]
    fn from_each_rank_to_each_goes_its_part_however_uneven_the_parts_are() {
        for world in 1..=6_usize {
            let part = |from: usize, to: usize| (from * 7 + to * 3) % 5 * 100;
            let parts = |rank: usize| {
                let to: Vec<usize> = (0..world).map(|other| part(rank, other)).collect();
                let from: Vec<usize> = (0..world).map(|other| part(other, rank)).collect();
                (to, from)
            };
            let plans = check(world as u16, "all-to-all", |ranks| {
                let (to, from) = parts(usize::from(ranks.rank));
                all_to_all(ranks, &to, &from)
            });
            for (rank, plan) in plans.iter().enumerate() {
                let (to, from) = parts(rank);
                assert!(tiles(plan, from.iter().sum()));
                let read: usize = plan.iter().filter(|part| part.own.is_some()).map(|part| part.length).sum();
                assert_eq!(read, to.iter().sum::<usize>());
            }
        }
    }

    /// Bytes of rank r in each direction, in shards: 2 (world − 1) / world of the tensor, whatever
    /// the algorithm, is the least that an all-reduce can do with.
    #[test]
    fn every_rank_sends_as_little_as_an_all_reduce_can() {
        let world = 8;
        for trees in [Trees::Star, Trees::Ring] {
            let owners = trees.owners(world, 1_000);
            for plan in check(world, "all-reduce", |ranks| all_reduce(ranks, 8_192, trees, &owners)) {
                let sent: usize = plan.iter().map(|part| part.length * part.to.len()).sum();
                assert_eq!(sent, 2 * 7 * 1_024, "{trees:?}");
            }
        }
    }

    #[test]
    fn the_root_of_a_large_broadcast_sends_everything_once() {
        let plans = check(5, "broadcast", |ranks| broadcast(ranks, 1 << 20, 2, false));
        let sent: usize = plans[2].iter().map(|part| part.length * part.to.len()).sum();
        assert_eq!(sent, 1 << 20);
    }
}
