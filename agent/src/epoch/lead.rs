// SPDX-License-Identifier: Apache-2.0
//! What the rank that leads an agreement knows of it.

use super::{Decree, RankSet, is_quorum, later};
use crate::wire::vote::ARRIVALS_MAX;
use std::collections::BTreeMap;

/// Low bits of a ballot that name its rank: no two ranks have one in common.
const RANK_BITS: u32 = 10;

/// A ballot of a rank, above another one.
pub(super) fn ballot_above(ballot: u32, rank: u16) -> u32 {
    ((ballot >> RANK_BITS) + 1) << RANK_BITS | u32::from(rank)
}

/// How often a ballot has been outbid.
pub(super) fn round(ballot: u32) -> u32 {
    ballot >> RANK_BITS
}

/// A rank's promise.
#[derive(Debug, Clone)]
pub(super) struct Promise {
    pub(super) last: u32,
    pub(super) suspects: RankSet,
    pub(super) accepted: Option<(u32, Decree)>,
}

#[derive(Debug)]
pub(super) enum Phase {
    /// Paxos' phase 1.
    Preparing(BTreeMap<u16, Promise>),
    /// Paxos' phase 2: what is proposed, and who has accepted it.
    Accepting(Decree, RankSet),
    /// Somebody has outbid this rank, who has until then.
    Outbid { until_ns: u64 },
}

#[derive(Debug)]
pub(super) struct Lead {
    pub(super) ballot: u32,
    pub(super) phase: Phase,
}

impl Lead {
    /// Whose vote is there, in this phase.
    pub(super) fn heard(&self) -> RankSet {
        match &self.phase {
            Phase::Preparing(promises) => promises.keys().copied().collect(),
            Phase::Accepting(_, acks) => acks.clone(),
            Phase::Outbid { .. } => RankSet::new(),
        }
    }
}

/// What is proposed after these promises: what may have been chosen already, or else all ranks of
/// which none believes another one dead, those of low numbers first, and who knocks. `Err`: too few
/// ranks of `members` are left by that.
pub(super) fn choose(
    members: &RankSet,
    promises: &BTreeMap<u16, Promise>,
    knocks: &BTreeMap<u16, u32>,
    gap: u32,
) -> Result<Decree, RankSet> {
    let accepted = promises.values().filter_map(|promise| promise.accepted.as_ref());
    if let Some((_, decree)) = accepted.max_by_key(|(ballot, _)| *ballot) {
        return Ok(decree.clone());
    }
    let mut chosen = RankSet::new();
    let mut last = None;
    for (&rank, promise) in promises {
        let suspected = |&other: &u16| {
            promise.suspects.contains(&other)
                || promises.get(&other).is_some_and(|promise| promise.suspects.contains(&rank))
        };
        if !chosen.iter().any(suspected) {
            chosen.insert(rank);
            last = Some(last.map_or(promise.last, |last| later(last, promise.last)));
        }
    }
    if !is_quorum(members, &chosen) {
        return Err(chosen);
    }
    let arrivals = knocks.iter().filter(|(rank, _)| !chosen.contains(rank)).take(ARRIVALS_MAX);
    let arrivals: BTreeMap<u16, u32> = arrivals.map(|(&rank, &incarnation)| (rank, incarnation)).collect();
    chosen.extend(arrivals.keys());
    let first = last.unwrap_or(0).wrapping_add(1).wrapping_add(gap);
    Ok(Decree { members: chosen, first, arrivals })
}
