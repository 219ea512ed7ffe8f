// SPDX-License-Identifier: Apache-2.0
//! Who is in, and what disagrees: rank 0's side of the rendezvous, without sockets and clocks.
//!
//! The shell calls [`Meeting::join`] for every offer, [`Meeting::leave`] when a rank's connection
//! ends, [`Meeting::expire`] when time is up, and tells everyone [`Meeting::verdict`] once there is
//! one.
#![forbid(unsafe_code)]

use super::message::{Agreed, Member, Offer, Word};
use super::refusal::Refusal;
use crate::cores::channels_of;
use std::collections::{BTreeSet, VecDeque};
use std::net::SocketAddr;

/// What IPv4 asks of every link (RFC 791): below it a packet is hardly more than its headers.
const MTU_LEAST: u32 = crate::config::MTU_LEAST as u32;
/// Reasons why somebody was sent away that are reported.
const STRANGERS: usize = 3;

/// What becomes of who made an offer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// To wait for the verdict.
    Waits,
    /// Nothing: this one is told why, and the others do not hear of it.
    Refused(Refusal),
}

/// A rank that is there.
#[derive(Debug)]
struct Present {
    /// Where its connection comes from.
    source: SocketAddr,
    offer: Offer,
}

/// Rank 0's account.
#[derive(Debug)]
pub(super) struct Meeting {
    own: Offer,
    job: u8,
    seed: u64,
    fresh: [u8; 32],
    present: Vec<Option<Present>>,
    /// Ranks that have come at any time, this one included.
    seen: BTreeSet<u16>,
    strangers: VecDeque<String>,
    verdict: Option<Word>,
}

impl Meeting {
    /// Of rank 0, which makes an offer like everyone else and listens on `source`. `seed` is taken
    /// where it gives none.
    pub(super) fn new(own: Offer, source: SocketAddr, seed: u64, fresh: [u8; 32]) -> Self {
        let mut meeting = Self {
            job: own.job.unwrap_or(0),
            seed: own.seed.unwrap_or(seed),
            fresh,
            present: (0..own.world).map(|_| None).collect(),
            seen: BTreeSet::new(),
            strangers: VecDeque::new(),
            verdict: None,
            own: own.clone(),
        };
        meeting.join(source, own);
        meeting
    }

    /// Takes an offer.
    pub(super) fn join(&mut self, source: SocketAddr, offer: Offer) -> Admission {
        if let Some(reason) = offer.flaw() {
            return Admission::Refused(Refusal::Invalid { reason });
        }
        let rank = offer.rank;
        self.seen.insert(rank);
        if self.verdict.is_some() {
            return Admission::Waits;
        }
        // Of two processes that are one rank the first one stays: the other is another job's, or
        // started twice.
        if let Some(Some(present)) = self.present.get(usize::from(rank))
            && offer.world == self.own.world
        {
            let first = present.source;
            return Admission::Refused(Refusal::Taken { rank, first, second: source });
        }
        if let Some(refusal) = self.conflict(&offer) {
            self.verdict = Some(Word::Refused(refusal));
            return Admission::Waits;
        }
        if let Some(place) = self.present.get_mut(usize::from(rank)) {
            *place = Some(Present { source, offer });
        }
        self.conclude();
        Admission::Waits
    }

    /// What an offer has against those that were made before.
    fn conflict(&self, offer: &Offer) -> Option<Refusal> {
        let (rank, own) = (offer.rank, &self.own);
        if offer.world != own.world {
            return Some(Refusal::World { rank, world: offer.world, expected: own.world });
        }
        let differs = |what: &str, value: &dyn ToString, expected: &dyn ToString| {
            let (value, expected) = (value.to_string(), expected.to_string());
            Some(Refusal::Differs { rank, what: what.to_owned(), value, expected })
        };
        // Of different versions anything may differ: that is what is said.
        if offer.version != own.version {
            return differs("version", &offer.version, &own.version);
        }
        if let Some(job) = offer.job.filter(|&job| job != self.job) {
            return differs("job", &job, &self.job);
        }
        if let Some(seed) = offer.seed.filter(|&seed| seed != self.seed) {
            return differs("seed", &seed, &self.seed);
        }
        if let Some(mtu) = offer.mtu.filter(|&mtu| mtu < MTU_LEAST) {
            return Some(Refusal::Mtu { rank, mtu, least: MTU_LEAST });
        }
        let address = offer.address;
        let cannot = |rank, address, other, other_address| {
            Some(Refusal::Unreachable { rank, address, other, other_address })
        };
        if address.ip().is_loopback() && !own.address.ip().is_loopback() {
            return cannot(rank, address, own.rank, own.address);
        }
        if own.address.ip().is_loopback() && !address.ip().is_loopback()
            || address.is_ipv4() != own.address.is_ipv4()
        {
            return cannot(own.rank, own.address, rank, address);
        }
        let mut others = self.present.iter().flatten().map(|present| &present.offer);
        let same = others.find(|other| other.address == address)?;
        Some(Refusal::SameAddress { first: same.rank, second: rank, address })
    }

    /// All are there.
    fn conclude(&mut self) {
        let offers = || self.present.iter().flatten().map(|present| &present.offer);
        if offers().count() < usize::from(self.own.world) {
            return;
        }
        let members =
            offers().map(|offer| Member { address: offer.address, incarnation: offer.incarnation }).collect();
        let (job, seed, fresh) = (self.job, self.seed, self.fresh);
        let mtu = offers().filter_map(|offer| offer.mtu).min();
        let cores = offers().map(|offer| Some((offer.address.ip(), offer.cores.as_ref()?)));
        let cores: Option<Vec<_>> = cores.collect();
        let channels = cores.map_or(1, |cores| channels_of(cores.into_iter()));
        self.verdict = Some(Word::Agreed(Agreed { job, seed, mtu, channels, fresh, members }));
    }

    /// A rank has gone before all were there; it may come again.
    pub(super) fn leave(&mut self, rank: u16) {
        if self.verdict.is_none()
            && let Some(place) = self.present.get_mut(usize::from(rank))
        {
            *place = None;
        }
    }

    /// Somebody was sent away who made no offer.
    pub(super) fn turned_away(&mut self, why: String) {
        if self.strangers.len() == STRANGERS {
            self.strangers.pop_front();
        }
        self.strangers.push_back(why);
    }

    /// Time is up.
    pub(super) fn expire(&mut self, seconds: u64) {
        if self.verdict.is_some() {
            return;
        }
        let ranks = (0..).zip(&self.present).filter(|(_, place)| place.is_none()).map(|(rank, _)| rank);
        let (ranks, world) = (ranks.collect(), self.own.world);
        let strangers = self.strangers.iter().cloned().collect();
        self.verdict = Some(Word::Refused(Refusal::Missing { ranks, world, seconds, strangers }));
    }

    /// What everyone is to be told.
    pub(super) fn verdict(&self) -> Option<&Word> {
        self.verdict.as_ref()
    }

    /// Whether every rank has come at some time.
    pub(super) fn all_seen(&self) -> bool {
        (0..self.own.world).all(|rank| self.seen.contains(&rank))
    }
}

#[cfg(test)]
#[path = "meeting_tests.rs"]
mod tests;
