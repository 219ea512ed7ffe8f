// SPDX-License-Identifier: Apache-2.0
//! Processors that ranks may use, and how many channels they have by that.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use trimwire_encoder::StreamId;

/// The most channels that ranks have, where they have a processor for each. More take more processor
/// time than they save (docs/results/gloo.md).
const CHANNELS: usize = 4;
/// Processors that Linux can have.
const IDS: u16 = 8_192;

/// The processors of a process. As text they are a list as Linux writes it, and how many of them
/// may be busy at once, where a control group says less: `0-3,8-11/2`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Cores {
    /// First and last of each run, ascending: a text of few bytes is little memory, whatever it
    /// says.
    runs: Vec<(u16, u16)>,
    /// Those that a control group allows at once.
    quota: Option<u16>,
}

impl Cores {
    /// This thread's.
    pub fn own() -> Self {
        let most = std::thread::available_parallelism().map_or(1, |most| most.get().min(IDS.into()) as u16);
        let runs = allowed().unwrap_or_else(|| vec![(0, most - 1)]);
        let quota = (usize::from(most) < count(&runs)).then_some(most);
        Self { runs, quota }
    }

    /// How many of them a rank may keep busy that shares `all` of its host with `ranks`, itself
    /// among them.
    fn share(&self, all: usize, ranks: usize) -> usize {
        // Ranks of one address share a control group, too.
        let each = self.quota.map_or(all, |quota| all.min(quota.into())) / ranks;
        // And none has more than its own: it has opened no more channels than these allow.
        each.min(count(&self.runs))
    }
}

fn allowed() -> Option<Vec<(u16, u16)>> {
    let set = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).ok()?;
    let ids = (0..nix::sched::CpuSet::count()).filter(|&id| set.is_set(id).unwrap_or(false));
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for id in ids.map(|id| id as u16) {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == id => *last = id,
            _ => runs.push((id, id)),
        }
    }
    Some(runs)
}

/// How many there are in runs that may overlap, ascending by their first.
fn count(runs: &[(u16, u16)]) -> usize {
    let mut next = 0;
    let new = runs.iter().map(|&(first, last)| {
        let (from, to) = (usize::from(first).max(next), usize::from(last) + 1);
        next = next.max(to);
        to.saturating_sub(from)
    });
    new.sum()
}

/// Channels of each rank where nobody has said how many: `ranks` are all of them, by address and
/// processors. Ranks of one address share what processors they have together.
pub fn channels_of<'a>(ranks: impl Iterator<Item = (IpAddr, &'a Cores)> + Clone) -> u16 {
    let mut hosts: BTreeMap<IpAddr, (Vec<(u16, u16)>, usize)> = BTreeMap::new();
    for (address, cores) in ranks.clone() {
        let (runs, ranks) = hosts.entry(address).or_default();
        runs.extend(&cores.runs);
        *ranks += 1;
    }
    let hosts: BTreeMap<IpAddr, (usize, usize)> = hosts
        .into_iter()
        .map(|(address, (mut runs, ranks))| {
            runs.sort_unstable();
            (address, (count(&runs), ranks))
        })
        .collect();
    let share = |(address, cores): (IpAddr, &Cores)| {
        hosts.get(&address).map_or(0, |&(all, ranks)| cores.share(all, ranks))
    };
    let least = ranks.clone().map(share).min().unwrap_or(1);
    let told_apart = (usize::from(StreamId::MAX_RANK) + 1) / ranks.count().max(1);
    least.min(told_apart).clamp(1, CHANNELS) as u16
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |&(first, last): &(u16, u16)| {
            if first == last { first.to_string() } else { format!("{first}-{last}") }
        };
        f.write_str(&self.runs.iter().map(text).collect::<Vec<_>>().join(","))?;
        self.quota.map_or(Ok(()), |quota| write!(f, "/{quota}"))
    }
}

/// What is no list of processors.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no list of processors (0-3,8-11, or with at most two of them at once 0-3,8-11/2)")]
pub struct CoresError(String);

impl FromStr for Cores {
    type Err = CoresError;

    fn from_str(text: &str) -> Result<Self, CoresError> {
        // What is shown of it is bounded: others write it.
        let error = || CoresError(text.chars().take(40).collect::<String>().escape_debug().to_string());
        let id = |text: &str| text.parse().ok().filter(|&id: &u16| id < IDS).ok_or_else(error);
        let (list, quota) = text.split_once('/').map_or((text, None), |(list, quota)| (list, Some(quota)));
        let mut runs: Vec<(u16, u16)> = Vec::new();
        for run in list.split(',') {
            let (first, last) = run.split_once('-').unwrap_or((run, run));
            let (first, last) = (id(first)?, id(last)?);
            if last < first || runs.last().is_some_and(|&(_, before)| first <= before) {
                return Err(error());
            }
            runs.push((first, last));
        }
        let quota = quota.map(id).transpose()?;
        Ok(Self { runs, quota })
    }
}

impl TryFrom<String> for Cores {
    type Error = CoresError;

    fn try_from(text: String) -> Result<Self, CoresError> {
        text.parse()
    }
}

impl From<Cores> for String {
    fn from(cores: Cores) -> Self {
        cores.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(ranks: &[(u8, &str)]) -> u16 {
        let rank = |&(host, cores): &(u8, &str)| {
            (IpAddr::from([10, 0, 0, host]), cores.parse().expect("a list of processors"))
        };
        let ranks: Vec<(IpAddr, Cores)> = ranks.iter().map(rank).collect();
        channels_of(ranks.iter().map(|(address, cores)| (*address, cores)))
    }

    #[test]
    fn ranks_have_a_channel_for_each_processor_up_to_four() {
        assert_eq!(of(&[(1, "0-3"), (2, "0-63")]), 4);
        assert_eq!(of(&[(1, "0-2"), (2, "0-63")]), 3, "the rank with the fewest decides");
        assert_eq!(of(&[(1, "0"), (2, "0-63")]), 1);
        assert_eq!(of(&[]), 1);
    }

    #[test]
    fn message_ids_tell_all_channels_of_all_ranks_apart() {
        let cores: Cores = "0-63".parse().expect("a list");
        let of = |ranks: u32| channels_of((0..ranks).map(|rank| (IpAddr::from(rank.to_be_bytes()), &cores)));
        assert_eq!((of(256), of(257), of(1_024)), (4, 3, 1));
    }

    #[test]
    fn ranks_of_a_host_share_its_processors() {
        assert_eq!(of(&[(1, "0-7"), (1, "0-7"), (2, "0-3")]), 4);
        assert_eq!(of(&[(1, "0-6"), (1, "0-6"), (2, "0-3")]), 3);
        assert_eq!(of(&[(1, "0-3"), (1, "4-7")]), 4, "each has some of its own");
        assert_eq!(of(&[(1, "0-3"), (1, "2-5")]), 3, "and these have six together");
        assert_eq!(of(&[(1, "0-1"), (1, "2-15")]), 2, "one of them has two, whatever the other has");
    }

    #[test]
    fn a_quota_counts_and_those_of_one_host_share_it() {
        assert_eq!(of(&[(1, "0-63/4"), (2, "0-63/9")]), 4);
        assert_eq!(of(&[(1, "0-63/3"), (2, "0-63/9")]), 3);
        assert_eq!(of(&[(1, "0-63/7"), (1, "0-63/7")]), 3);
    }

    #[test]
    fn ones_own_are_those_that_the_system_tells() {
        let own = Cores::own();
        let status = std::fs::read_to_string("/proc/thread-self/status").expect("Linux");
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list");
        assert_eq!(own.to_string().split('/').next(), Some(list.trim()));
    }

    #[test]
    fn what_is_no_list_is_an_error_that_shows_its_beginning_alone() {
        for text in ["", "x", "3-1", "1,1", "4,2-3", "0-8192", "0/", "0/x", "-", "0--1", "0-1/8192"] {
            assert!(text.parse::<Cores>().is_err(), "{text}");
        }
        let long = format!("{}\n", "9".repeat(100_000));
        assert!(long.parse::<Cores>().expect_err("no list").to_string().len() < 200);
    }

    proptest! {
        #[test]
        fn no_rank_is_given_more_channels_than_its_own_processors_allow(
            ranks in proptest::collection::vec((0..3_u8, 0..20_u16, 0..20_u16, proptest::option::of(0..20_u16)), 1..6),
        ) {
            let ranks: Vec<(IpAddr, Cores)> = ranks
                .into_iter()
                .map(|(host, first, more, quota)| (IpAddr::from([10, 0, 0, host]), Cores { runs: vec![(first, first + more)], quota }))
                .collect();
            let all = channels_of(ranks.iter().map(|(address, cores)| (*address, cores)));
            for (address, cores) in &ranks {
                prop_assert!(all <= channels_of(std::iter::once((*address, cores))));
            }
        }

        #[test]
        fn lists_are_read_as_they_are_written_and_ranks_of_a_host_have_their_union(
            mine in proptest::collection::btree_set(0..200_u16, 1..30),
            others in proptest::collection::btree_set(0..200_u16, 1..30),
            quota in proptest::option::of(0..IDS),
        ) {
            let list = |ids: &std::collections::BTreeSet<u16>| {
                ids.iter().map(u16::to_string).collect::<Vec<_>>().join(",").parse::<Cores>().expect("a list")
            };
            let (one, other) = (list(&mine), list(&others));
            let mut runs = [one.runs.clone(), other.runs.clone()].concat();
            runs.sort_unstable();
            prop_assert_eq!(count(&runs), mine.union(&others).count());
            prop_assert_eq!(count(&one.runs), mine.len());
            let cores = Cores { quota, ..one };
            prop_assert_eq!(cores.to_string().parse(), Ok(cores));
        }
    }
}
