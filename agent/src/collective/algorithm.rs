// SPDX-License-Identifier: Apache-2.0
//! Which way contributions come together, and sums spread.

use super::shards::block_range;
use super::{Options, Replicas};
use std::ops::Range;
use trimwire_encoder::DEFAULT_COORDINATES_PER_PACKET;

/// The ways that contributions of a shard come to its owner and its sum to all others. The same on
/// all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Algorithm {
    /// By size, ranks and hosts: [`Algorithm::choose`].
    #[default]
    Automatic,
    /// Every rank sends to the owner, and the owner to every rank: each value is encoded twice,
    /// whatever the number of ranks. Up to world − 1 ranks send to one at the same time, which is
    /// what switches that trim are for.
    Direct,
    /// From neighbour to neighbour, once around to be summed and once more to spread: nobody sends
    /// to more than one, or receives from more. A sum is encoded anew at each of world − 1 hops,
    /// and each may trim.
    Ring,
    /// Inside each host first, then between hosts, each link of which carries every value once.
    /// Needs [`super::CommunicatorConfig::hosts`].
    TwoLevel,
}

impl std::fmt::Display for Algorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Automatic => "automatic",
            Self::Direct => "direct",
            Self::Ring => "ring",
            Self::TwoLevel => "two-level",
        })
    }
}

/// Bytes of an exact shard from which on many senders at once fill a port's buffer; below, the
/// ring's hops take longer than what they save.
const RING_SHARD_BYTES: usize = 256 * 1_024;
/// So many senders at once do not fill it.
const DIRECT_RANKS: usize = 8;

impl Algorithm {
    /// What [`Self::Automatic`] is for a tensor of `length` coordinates among ranks that are on
    /// `hosts`:
    ///
    /// - two levels where every host has two ranks or more, and there are several: the network
    ///   carries a host's part once instead of once a rank;
    /// - a ring for exact operations of more than eight ranks and from 256 KiB a shard on: what is
    ///   exact cannot be trimmed, so many senders at once make a port drop;
    /// - direct otherwise, and wherever replicas are to be consistent: what is trimmed is then
    ///   agreed on by owners with each receiver.
    pub fn choose(self, length: usize, hosts: &Hosts, options: &Options) -> Self {
        if self != Self::Automatic {
            return self;
        }
        let world = hosts.of.len();
        if options.replicas == Replicas::Consistent && !options.exact {
            Self::Direct
        } else if hosts.members.len() > 1 && hosts.columns() > 1 {
            Self::TwoLevel
        } else if options.exact && world > DIRECT_RANKS && 4 * length / world >= RING_SHARD_BYTES {
            Self::Ring
        } else {
            Self::Direct
        }
    }
}

/// Which ranks are on which host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts {
    /// Of each rank: its host's place in `members`, and its own among those.
    of: Vec<(usize, usize)>,
    /// Ranks of each host, ascending.
    members: Vec<Vec<u16>>,
}

impl Hosts {
    /// From a number for each rank, the same for ranks of one host. Ranks beyond the list, and all
    /// of an empty one, are alone.
    pub(super) fn new(world: u16, numbers: &[u32]) -> Self {
        let mut names: Vec<Option<u32>> = Vec::new();
        let mut members: Vec<Vec<u16>> = Vec::new();
        let mut of = Vec::with_capacity(usize::from(world));
        for rank in 0..world {
            let number = numbers.get(usize::from(rank)).copied();
            let known = number.and_then(|_| names.iter().position(|name| *name == number));
            let host = known.unwrap_or(names.len());
            if known.is_none() {
                names.push(number);
                members.push(Vec::new());
            }
            of.push((host, members[host].len()));
            members[host].push(rank);
        }
        Self { of, members }
    }

    /// Ranks of the smallest host: so many of each own shards.
    fn columns(&self) -> usize {
        self.members.iter().map(Vec::len).min().unwrap_or(0)
    }

    /// Whether every rank owns a shard where each host has as many owners.
    fn are_even(&self) -> bool {
        self.members.iter().all(|ranks| ranks.len() == self.columns())
    }
}

/// What a rank has to do with a shard of some owner: a tree's node, seen from itself. Contributions
/// go up, sums come down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    /// Whose contributions come here; ascending.
    pub(super) contributors: Vec<u16>,
    /// Where their sum goes; `None` at the owner.
    pub(super) up: Option<u16>,
    /// Where the shard's sum comes from; `None` at the owner.
    pub(super) down: Option<u16>,
    /// Where it goes on to.
    pub(super) receivers: Vec<u16>,
}

/// The trees of all shards.
#[derive(Debug, Clone, Copy)]
pub(super) enum Trees<'a> {
    Star,
    Ring,
    Hosts(&'a Hosts),
}

impl<'a> Trees<'a> {
    /// Those of an algorithm that was chosen.
    pub(super) fn new(algorithm: Algorithm, hosts: &'a Hosts) -> Self {
        match algorithm {
            Algorithm::Automatic | Algorithm::Direct => Self::Star,
            Algorithm::Ring => Self::Ring,
            Algorithm::TwoLevel => Self::Hosts(hosts),
        }
    }

    /// Likewise, for operations where every rank owns a shard: on hosts of different sizes, direct.
    pub(super) fn with_all_owners(self) -> Self {
        match self {
            Self::Hosts(hosts) if !hosts.are_even() => Self::Star,
            other => other,
        }
    }

    /// Who owns the shards of a tensor, where not every rank has to.
    pub(super) fn owners(self, world: u16, most: usize) -> Vec<u16> {
        match self {
            // A tensor of few packets: they are full, and few.
            Self::Star => (0..world).take(most.max(1)).collect(),
            Self::Ring => (0..world).collect(),
            Self::Hosts(hosts) => {
                let mut owners: Vec<u16> = hosts
                    .members
                    .iter()
                    .flat_map(|ranks| ranks.iter().take(hosts.columns()))
                    .copied()
                    .collect();
                owners.sort_unstable();
                owners
            }
        }
    }

    /// Hops of the longest way to an owner.
    pub(super) fn depth(self, world: u16) -> u16 {
        match self {
            Self::Star => 1,
            Self::Ring => world.saturating_sub(1).max(1),
            Self::Hosts(_) => 2,
        }
    }

    /// Hops between a rank and the leaves whose contributions come to it, and between the owner and
    /// it: how far it is up, and how far down.
    pub(super) fn height_and_depth(self, world: u16, rank: u16, owner: u16) -> (u16, u16) {
        match self {
            Self::Star => (u16::from(rank == owner), u16::from(rank != owner)),
            Self::Ring => {
                let (world, rank, owner) = (u32::from(world.max(1)), u32::from(rank), u32::from(owner));
                let down = (rank + world - owner) % world;
                let up = (world - 1 + down) % world;
                (up as u16, down as u16)
            }
            Self::Hosts(hosts) => {
                if rank == owner {
                    return (2, 0);
                }
                if hosts.leader(rank, owner) == rank {
                    (1, 1)
                } else {
                    (0, 2 - u16::from(hosts.are_together(rank, owner)))
                }
            }
        }
    }

    /// What `rank` has to do with the shard of `owner`, where all ranks contribute.
    pub(super) fn node(self, world: u16, rank: u16, owner: u16) -> Node {
        // In an order that starts behind this rank: if all began with rank 0 its link would be the
        // bottleneck.
        let others = || {
            let (rank, world) = (u32::from(rank), u32::from(world));
            (1..world).map(move |k| ((rank + k) % world) as u16)
        };
        let node = |mut contributors: Vec<u16>, parent: Option<u16>, receivers: Vec<u16>| {
            contributors.sort_unstable();
            Node { contributors, up: parent, down: parent, receivers }
        };
        match self {
            Self::Star if rank == owner => node(others().collect(), None, others().collect()),
            Self::Star => node(Vec::new(), Some(owner), Vec::new()),
            Self::Ring => {
                let (before, behind) = (ring(rank, world, world - 1), ring(rank, world, 1));
                let first = rank == ring(owner, world, 1);
                Node {
                    contributors: if first || world < 2 { Vec::new() } else { vec![before] },
                    up: (rank != owner).then_some(behind),
                    down: (rank != owner).then_some(before),
                    receivers: if behind == owner || world < 2 { Vec::new() } else { vec![behind] },
                }
            }
            Self::Hosts(hosts) => {
                let leader = hosts.leader(rank, owner);
                if leader != rank {
                    return node(Vec::new(), Some(leader), Vec::new());
                }
                let is_child = |&other: &u16| {
                    hosts.are_together(rank, other) || rank == owner && hosts.leader(other, owner) == other
                };
                let children: Vec<u16> = if rank == owner {
                    others().filter(is_child).collect()
                } else {
                    hosts.members_with(rank).iter().copied().filter(|&other| other != rank).collect()
                };
                node(children.clone(), (rank != owner).then_some(owner), children)
            }
        }
    }
}

/// The rank so many places behind another one.
fn ring(rank: u16, world: u16, places: u16) -> u16 {
    let world = u32::from(world.max(1));
    ((u32::from(rank) + u32::from(places)) % world) as u16
}

impl Hosts {
    fn place(&self, rank: u16) -> (usize, usize) {
        self.of.get(usize::from(rank)).copied().unwrap_or_default()
    }

    fn members_with(&self, rank: u16) -> &[u16] {
        self.members.get(self.place(rank).0).map_or(&[], Vec::as_slice)
    }

    fn are_together(&self, rank: u16, other: u16) -> bool {
        self.place(rank).0 == self.place(other).0
    }

    /// The rank of `rank`'s host that deals with the other hosts for a shard of `owner`: the owner
    /// itself, or who has its place.
    fn leader(&self, rank: u16, owner: u16) -> u16 {
        if self.are_together(rank, owner) {
            return owner;
        }
        let members = self.members_with(rank);
        let place = self.place(owner).1.min(members.len().saturating_sub(1));
        members.get(place).copied().unwrap_or(rank)
    }
}

/// Shards of a tensor that are worth a message: a packet each, at least.
pub(super) fn most_shards(length: usize) -> usize {
    length.div_ceil(DEFAULT_COORDINATES_PER_PACKET)
}

/// The shards of an all-reduce of `length` coordinates that goes directly: rank k owns the k-th,
/// and ranks beyond the last own none.
pub fn direct_shards(length: usize, world: u16) -> Vec<Range<usize>> {
    let owners = Trees::Star.owners(world, most_shards(length)).len() as u16;
    (0..owners).map(|owner| block_range(length, owners, owner)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(exact: bool, replicas: Replicas) -> Options {
        Options { exact, replicas, ..Options::default() }
    }

    #[test]
    fn the_choice_follows_size_ranks_and_hosts_and_can_be_forced() {
        let free = options(false, Replicas::Free);
        let alone = Hosts::new(16, &[]);
        let four = Hosts::new(16, &[0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]);
        let choose =
            |length, hosts: &Hosts, options: &Options| Algorithm::Automatic.choose(length, hosts, options);
        assert_eq!(choose(1 << 24, &alone, &free), Algorithm::Direct);
        assert_eq!(choose(1 << 24, &four, &free), Algorithm::TwoLevel);
        assert_eq!(choose(1 << 24, &four, &options(false, Replicas::Consistent)), Algorithm::Direct);
        assert_eq!(choose(1 << 24, &alone, &options(true, Replicas::Free)), Algorithm::Ring);
        assert_eq!(choose(1 << 10, &alone, &options(true, Replicas::Free)), Algorithm::Direct);
        let mixed = Hosts::new(5, &[7, 7, 7, 7, 9]);
        assert_eq!(
            choose(1 << 24, &mixed, &free),
            Algorithm::Direct,
            "one rank would do all of a host's work"
        );
        let one = Hosts::new(4, &[1, 1, 1, 1]);
        assert_eq!(choose(1 << 24, &one, &free), Algorithm::Direct, "there is no second level");
        assert_eq!(Algorithm::Ring.choose(1, &four, &free), Algorithm::Ring);
    }

    /// Every rank's contribution reaches the owner once, and the owner's sum every rank once, over
    /// neighbours who agree on who they are.
    #[test]
    fn trees_reach_everyone_once_and_both_ends_of_every_link_know_it() {
        let hosts = [
            Hosts::new(9, &[]),
            Hosts::new(9, &[0, 1, 2, 0, 1, 2, 0, 1, 2]),
            Hosts::new(9, &[5, 5, 5, 5, 5, 6, 6, 6, 7]),
            Hosts::new(9, &[1; 9]),
            Hosts::new(1, &[4]),
            Hosts::new(2, &[]),
        ];
        for hosts in &hosts {
            let world = hosts.of.len() as u16;
            for trees in [Trees::Star, Trees::Ring, Trees::Hosts(hosts)] {
                for owner in trees.owners(world, usize::from(world)) {
                    let nodes: Vec<Node> = (0..world).map(|rank| trees.node(world, rank, owner)).collect();
                    for rank in 0..world {
                        let node = &nodes[usize::from(rank)];
                        assert!(node.contributors.is_sorted());
                        assert_eq!((node.up.is_none(), node.down.is_none()), (rank == owner, rank == owner));
                        for &child in &node.contributors {
                            assert_eq!(nodes[usize::from(child)].up, Some(rank), "{trees:?}");
                        }
                        for &child in &node.receivers {
                            assert_eq!(nodes[usize::from(child)].down, Some(rank), "{trees:?}");
                        }
                        let (mut at, mut hops) = (rank, 0);
                        while let Some(next) = nodes[usize::from(at)].up {
                            assert!(nodes[usize::from(next)].contributors.contains(&at), "{trees:?}");
                            let heights = [at, next].map(|rank| trees.height_and_depth(world, rank, owner).0);
                            assert!(heights[0] < heights[1], "{trees:?}: contributions climb");
                            (at, hops) = (next, hops + 1);
                            assert!(
                                hops <= trees.depth(world),
                                "{trees:?} of {world}: rank {rank} to {owner}"
                            );
                        }
                        assert_eq!(at, owner);
                        let (mut at, mut hops) = (rank, 0);
                        while let Some(next) = nodes[usize::from(at)].down {
                            assert!(nodes[usize::from(next)].receivers.contains(&at), "{trees:?}");
                            (at, hops) = (next, hops + 1);
                        }
                        assert_eq!(
                            (at, hops),
                            (owner, trees.height_and_depth(world, rank, owner).1),
                            "{trees:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn between_hosts_every_shard_travels_once_each_way() {
        let hosts = Hosts::new(8, &[0, 0, 0, 0, 1, 1, 1, 1]);
        let trees = Trees::Hosts(&hosts);
        for owner in trees.owners(8, 8) {
            let crossings = (0..8)
                .filter(|&rank| trees.node(8, rank, owner).up.is_some_and(|up| (up < 4) != (rank < 4)))
                .count();
            assert_eq!(crossings, 1);
        }
    }
}
