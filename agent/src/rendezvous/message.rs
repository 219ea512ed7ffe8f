// SPDX-License-Identifier: Apache-2.0
//! What ranks tell each other when they meet: JSON, one message a frame ([`super::frame`]).
//!
//! Every text that comes from somebody else is bounded here, and escaped where it is shown.
#![forbid(unsafe_code)]

use super::refusal::Refusal;
use crate::cores::Cores;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use trimwire_encoder::StreamId;

/// The term that is compared before the others: of different versions anything may differ.
pub(super) const VERSION_TERM: &str = "version";
/// Most terms of an offer.
pub const TERMS_MAX: usize = 32;
/// Most bytes of a term's name, and of its value.
pub const TERM_LEN_MAX: usize = 64;

/// What a rank comes with. What is `None` it takes from rank 0.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// This rank, below `world`.
    pub rank: u16,
    /// Ranks of the job, 1 to 1,024.
    pub world: u16,
    /// How often the job has been started, counted by who starts it: ranks of an earlier generation are refused. Rank 0's own is 1 by default.
    pub generation: Option<u32>,
    /// Number of the job, 0 to 63; rank 0's own is 0 by default.
    pub job: Option<u8>,
    /// Seed of rotations and gradients; rank 0 draws one by default.
    pub seed: Option<u64>,
    /// Where this rank's endpoint listens, as others reach it.
    pub address: SocketAddr,
    /// Of its endpoint, not 0.
    pub incarnation: u32,
    /// Bytes of the longest IP packet that its interface sends.
    pub mtu: Option<u32>,
    /// Its processors, where it would have as many channels as they allow.
    pub cores: Option<Cores>,
    /// What all ranks have to have the same of, by name: a rank that differs is named, with both values.
    pub terms: BTreeMap<String, String>,
}

impl Offer {
    /// A rank with nothing else to say than where it is.
    pub fn new(rank: u16, world: u16, address: SocketAddr, incarnation: u32) -> Self {
        let (generation, job, seed, mtu, cores) = (None, None, None, None, None);
        Self { rank, world, generation, job, seed, address, incarnation, mtu, cores, terms: BTreeMap::new() }
    }

    /// Adds something that all ranks have to have the same of.
    #[must_use]
    pub fn term(mut self, name: &str, value: &impl ToString) -> Self {
        self.terms.insert(name.to_owned(), value.to_string());
        self
    }

    /// What is wrong with it by itself.
    pub(super) fn flaw(&self) -> Option<String> {
        let Self { rank, world, address, incarnation, job, .. } = self;
        let most = StreamId::MAX_RANK + 1;
        if *world == 0 || *world > most {
            return Some(format!("{world} ranks (valid are 1 to {most})"));
        }
        if rank >= world {
            return Some(format!("rank {rank} of {world} ranks; valid are 0 to {}", world - 1));
        }
        if let Some(job) = job.filter(|&job| job > StreamId::MAX_JOB) {
            return Some(format!("job {job} (valid are 0 to {})", StreamId::MAX_JOB));
        }
        if address.ip().is_unspecified() || address.port() == 0 {
            return Some(format!("nobody can send to {address}"));
        }
        if *incarnation == 0 {
            return Some("incarnation 0".to_owned());
        }
        if self.terms.len() > TERMS_MAX {
            return Some(format!("{} terms (at most {TERMS_MAX})", self.terms.len()));
        }
        let long = self.terms.iter().flat_map(|(name, value)| [name, value]);
        let long = long.map(String::len).find(|&length| length > TERM_LEN_MAX);
        long.map(|length| format!("a term of {length} bytes (at most {TERM_LEN_MAX})"))
    }
}

/// One rank, as all know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Where its endpoint listens.
    pub address: SocketAddr,
    /// Its endpoint's incarnation.
    pub incarnation: u32,
}

/// What rank 0 tells everyone once all are there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Agreed {
    pub(super) generation: u32,
    pub(super) job: u8,
    pub(super) seed: u64,
    pub(super) mtu: Option<u32>,
    pub(super) channels: u16,
    /// Drawn by rank 0 for this meeting: the packets' key is derived from it and the job's.
    pub(super) fresh: [u8; 32],
    /// In order of rank.
    pub(super) members: Vec<Member>,
}

impl Agreed {
    /// What is wrong with it, to a rank that made this offer.
    pub(super) fn flaw(&self, offer: &Offer) -> Option<String> {
        if self.members.len() != usize::from(offer.world) {
            return Some(format!("{} members of {} ranks", self.members.len(), offer.world));
        }
        if self.job > StreamId::MAX_JOB {
            return Some(format!("job {}", self.job));
        }
        if self.channels == 0 {
            return Some("0 channels".to_owned());
        }
        let own = self.members.get(usize::from(offer.rank));
        let known =
            own.is_some_and(|own| (own.address, own.incarnation) == (offer.address, offer.incarnation));
        (!known).then(|| format!("rank {} is somebody else in it", offer.rank))
    }
}

/// Rank 0's answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Agreed(Agreed),
    Refused(Refusal),
}
