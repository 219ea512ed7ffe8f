// SPDX-License-Identifier: Apache-2.0
//! Epochs: which ranks a job has, when some have died or come back.
//!
//! A job begins in epoch 0 with all its ranks. The members of an epoch agree on the next one: who
//! belongs to it, and the number of its first operation. Operations of the epoch before are void.
//!
//! # What is guaranteed
//!
//! **Of an epoch there is one set of ranks.** Any two ranks that begin epoch e begin it with the
//! same members and the same first operation number, whatever the network loses, delays, repeats or
//! divides, and whoever dies. A rank that cannot be sure gets an error instead and begins no
//! operation.
//!
//! This is single-decree Paxos (Lamport, "Paxos Made Simple", 2001, §2): each epoch's decree is
//! chosen by a *quorum* of the members of the epoch before ([`is_quorum`]). Two quorums have a rank
//! in common, so two sides of a divided network cannot both go on. The members that go on are a
//! quorum themselves. What a rank promises lives in its memory: a rank that has started anew has
//! another incarnation, votes for nothing and has to join ([`Membership::join`]).
//!
//! It ends in bounded time wherever a quorum stays connected: a rank that is waited for is given up
//! after `give_up_ns` of silence. Without one it ends in [`EpochError`].
//!
//! # How late packets do no harm
//!
//! Operation numbers are used once, whatever the epoch. An epoch's first number lies [`GAP`] beyond
//! every number that any of its members has used, so that it also lies beyond what a rank that was
//! left behind can have begun ahead of the others.
#![forbid(unsafe_code)]

mod lead;
mod membership;

pub use crate::wire::vote::{ARRIVALS_MAX, Decree, Motion, RankSet, Vote};
pub use membership::{Change, Membership, Timing};

use std::time::Duration;

/// Operation numbers between two epochs. A rank that has died may have begun operations that no
/// survivor has; it is ahead by as many as overlap, which memory bounds far below this.
pub const GAP: u32 = 1_024;

/// An epoch, as its members see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epoch {
    /// Its number; 0 is the job's beginning.
    pub number: u32,
    /// Its ranks, under the numbers that they have had from the job's beginning, ascending.
    pub members: Vec<u16>,
    /// Its first operation's number. Operations before are void.
    pub first: u32,
    /// Those of its ranks that were let in.
    pub arrivals: Vec<u16>,
}

impl Epoch {
    /// The place of a rank among the members: its number in this epoch's operations.
    pub fn place(&self, rank: u16) -> Option<u16> {
        self.members.binary_search(&rank).ok().map(|place| place as u16)
    }
}

/// Why there is no next epoch for this rank.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EpochError {
    /// The others have gone on without this rank. Only a new endpoint that joins is let in again.
    #[error("epoch {epoch} has begun without this rank, which the others believe dead; start anew and join")]
    Excluded {
        /// The epoch.
        epoch: u32,
    },
    /// Too few ranks are left to be sure that no others go on, too.
    #[error(
        "epoch {epoch} needs more than half of the {of} ranks of the one before, or half with rank {lowest} among them, and only ranks {left:?} are left"
    )]
    NoQuorum {
        /// The epoch.
        epoch: u32,
        /// Ranks of the epoch before.
        of: usize,
        /// The lowest of these.
        lowest: u16,
        /// Ranks that can be counted on.
        left: Vec<u16>,
    },
    /// Ranks are alive and have not asked for the epoch, or nobody lets this rank in.
    #[error("nothing has come of epoch {epoch} in {:?}: ranks {waiting:?} are waited for", Duration::from_nanos(*.waited_ns))]
    Undecided {
        /// The epoch.
        epoch: u32,
        /// Time since this rank has asked, ns.
        waited_ns: u64,
        /// Whom it waits for.
        waiting: Vec<u16>,
    },
    /// The next epoch is being agreed on already, or this rank waits to be let in.
    #[error("epoch {epoch} is being agreed on already")]
    Busy {
        /// The epoch.
        epoch: u32,
    },
}

/// Whether `ranks`, of `members`, are enough to decide: more than half of them, or half with the
/// lowest of all among them. Any two such sets have a rank in common.
pub fn is_quorum(members: &RankSet, ranks: &RankSet) -> bool {
    let there = members.intersection(ranks).count();
    let lowest = members.first().is_some_and(|lowest| ranks.contains(lowest));
    2 * there > members.len() || (2 * there == members.len() && lowest)
}

/// The later of two operation numbers, as serial numbers (RFC 1982).
fn later(a: u32, b: u32) -> u32 {
    if (a.wrapping_sub(b) as i32) < 0 { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn two_quorums_have_a_rank_in_common(world in 1_u16..12, a: u16, b: u16) {
            let members: RankSet = (0..world).map(|rank| rank * 3 + 1).collect();
            let of = |bits: u16| -> RankSet { members.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1).map(|(_, &rank)| rank).collect() };
            let (a, b) = (of(a), of(b));
            if is_quorum(&members, &a) && is_quorum(&members, &b) {
                prop_assert!(a.intersection(&b).next().is_some());
            }
        }
    }

    #[test]
    fn half_of_the_ranks_are_enough_with_the_lowest_among_them() {
        let members = RankSet::from([2, 5]);
        assert!(is_quorum(&members, &[2].into()) && !is_quorum(&members, &[5].into()));
        assert!(!is_quorum(&members, &[0, 1].into()), "strangers do not count");
    }

    #[test]
    fn the_later_of_two_numbers_is_found_across_their_end() {
        assert_eq!((later(3, u32::MAX), later(u32::MAX, 3), later(4, 9)), (3, 3, 9));
    }
}
