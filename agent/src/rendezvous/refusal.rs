// SPDX-License-Identifier: Apache-2.0
//! Why ranks do not meet: said by rank 0, in the same words, to everyone who is there.
#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;

/// Why ranks do not meet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Refusal {
    /// Some did not come in time.
    #[error("{} of {world} did not come within {seconds} s{}", Ranks(.ranks), hint(.strangers))]
    Missing {
        /// Who, in order.
        ranks: Vec<u16>,
        /// Ranks of the job.
        world: u16,
        /// How long rank 0 waited.
        seconds: u64,
        /// Why the last few who came were sent away.
        strangers: Vec<String>,
    },
    /// Ranks were started for worlds of different size.
    #[error("rank {rank} was started as one of {world} ranks, rank 0 as one of {expected}")]
    World {
        /// The rank.
        rank: u16,
        /// Its world.
        world: u16,
        /// Rank 0's.
        expected: u16,
    },
    /// Two processes are one rank: the second one is told, and the others meet without it.
    #[error(
        "rank {rank} came twice: from {first} and from {second}; the first one stays (for another job MASTER_PORT \
         chooses another port)"
    )]
    Taken {
        /// The rank.
        rank: u16,
        /// Who was there.
        first: SocketAddr,
        /// Who came then.
        second: SocketAddr,
    },
    /// Two ranks announce one address: containers on several hosts, mostly.
    #[error(
        "ranks {first} and {second} both say that they listen on {address}; --bind or TRIMWIRE_SOCKET_IFNAME choose \
         an address that is theirs alone"
    )]
    SameAddress {
        /// The one.
        first: u16,
        /// The other.
        second: u16,
        /// The address.
        address: SocketAddr,
    },
    /// What has to be the same is not.
    #[error("rank {rank} has {} {}, rank 0 has {}", Word(.what), Word(.value), Word(.expected))]
    Differs {
        /// The rank.
        rank: u16,
        /// What differs.
        what: String,
        /// The rank's value.
        value: String,
        /// Rank 0's.
        expected: String,
    },
    /// An address that others cannot reach.
    #[error(
        "rank {rank} listens on {address}, which rank {other} on {other_address} cannot reach; --bind or \
         TRIMWIRE_SOCKET_IFNAME choose another address"
    )]
    Unreachable {
        /// The rank.
        rank: u16,
        /// Its address.
        address: SocketAddr,
        /// Who cannot reach it.
        other: u16,
        /// That one's address.
        other_address: SocketAddr,
    },
    /// An interface for packets too short to carry anything.
    #[error("rank {rank}'s interface has an MTU of {mtu} bytes; at least {least} are needed")]
    Mtu {
        /// The rank.
        rank: u16,
        /// Its MTU.
        mtu: u32,
        /// The least.
        least: u32,
    },
    /// Another job's key, or none.
    #[error("who came from {source_address} does not have rank 0's job key")]
    Unproven {
        /// Where the connection came from.
        source_address: SocketAddr,
    },
    /// A job key where rank 0 has none.
    #[error("who came from {source_address} has a job key, and rank 0 has none")]
    Keyed {
        /// Where the connection came from.
        source_address: SocketAddr,
    },
    /// An offer that is not valid by itself.
    #[error("not a valid offer: {}", Word(.reason))]
    Invalid {
        /// What is wrong with it.
        reason: String,
    },
}

/// Somebody else's text: no control characters reach a terminal or a log.
struct Word<'a>(&'a str);

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { f.write_str("none") } else { write!(f, "{}", self.0.escape_debug()) }
    }
}

/// `rank 3`, `ranks 3 and 5`, `ranks 1 to 7 and 9`.
struct Ranks<'a>(&'a [u16]);

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut runs: Vec<(u16, u16)> = Vec::new();
        for &rank in self.0 {
            match runs.last_mut() {
                Some((_, last)) if last.checked_add(1) == Some(rank) => *last = rank,
                _ => runs.push((rank, rank)),
            }
        }
        let words: Vec<String> = runs
            .iter()
            .flat_map(|&(first, last)| match last - first {
                0 => vec![first.to_string()],
                1 => vec![first.to_string(), last.to_string()],
                _ => vec![format!("{first} to {last}")],
            })
            .collect();
        f.write_str(if self.0.len() == 1 { "rank " } else { "ranks " })?;
        match words.split_last() {
            Some((last, [])) => f.write_str(last),
            Some((last, rest)) => write!(f, "{} and {last}", rest.join(", ")),
            None => f.write_str("none"),
        }
    }
}

fn hint(strangers: &[String]) -> String {
    let words: Vec<String> = strangers.iter().map(|stranger| Word(stranger).to_string()).collect();
    if words.is_empty() { String::new() } else { format!(" (sent away: {})", words.join("; ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_missing_is_named_and_long_lists_are_short() {
        let text = |ranks: &[u16]| {
            Refusal::Missing { ranks: ranks.to_vec(), world: 8, seconds: 60, strangers: vec![] }.to_string()
        };
        assert_eq!(text(&[3, 5]), "ranks 3 and 5 of 8 did not come within 60 s");
        assert_eq!(text(&[7]), "rank 7 of 8 did not come within 60 s");
        assert_eq!(text(&[1, 2, 3, 4, 6, 7]), "ranks 1 to 4, 6 and 7 of 8 did not come within 60 s");
        assert_eq!(text(&[1, 2, 3, 4, 5, 6, 7]), "ranks 1 to 7 of 8 did not come within 60 s");
    }

    #[test]
    fn what_others_say_does_not_reach_a_terminal_as_it_came() {
        let value = "\u{1b}[2J".to_owned();
        let refusal = Refusal::Differs { rank: 1, what: "planes".to_owned(), value, expected: String::new() };
        assert_eq!(refusal.to_string(), "rank 1 has planes \\u{1b}[2J, rank 0 has none");
    }
}
