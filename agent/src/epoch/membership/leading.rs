// SPDX-License-Identifier: Apache-2.0
//! What a member does of its own accord, as time passes: repeat, lead a ballot, give up.

use super::super::Decree;
use super::super::EpochError;
use super::super::GAP;
use super::super::Motion;
use super::super::RankSet;
use super::super::Vote;
use super::super::is_quorum;
use super::super::lead::Lead;
use super::super::lead::Phase;
use super::super::lead::Promise;
use super::super::lead::ballot_above;
use super::super::lead::choose;
use super::{Change, Membership, State, Timing, question};
use std::collections::BTreeMap;

impl Membership {
    /// Says again what is not answered, and gives up who does not answer.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        let Timing { repeat_ns, give_up_ns, patience_ns } = self.timing;
        let epoch = self.next();
        match &mut self.state {
            State::Joining { since_ns, due_ns } => {
                if now_ns < *due_ns {
                    return;
                }
                let waited_ns = now_ns.saturating_sub(*since_ns);
                let others = (0..self.world).filter(|&rank| rank != self.own);
                if waited_ns >= patience_ns {
                    let error = EpochError::Undecided { epoch, waited_ns, waiting: others.collect() };
                    self.state = State::Excluded(error.clone());
                    self.changes.push_back(Change::Failed(error));
                    return;
                }
                *due_ns = now_ns.saturating_add(repeat_ns);
                let join = Vote { epoch: 0, motion: Motion::Join };
                self.outbox.extend(others.map(|rank| (rank, join.clone())));
            }
            State::Running(running) => {
                if now_ns < running.due_ns {
                    return;
                }
                if now_ns.saturating_sub(running.due_ns) >= give_up_ns / 2 {
                    // It was this rank that paused: nobody was heard because nobody was listened
                    // to.
                    running.heard_ns.values_mut().for_each(|heard_ns| *heard_ns = now_ns);
                }
                running.due_ns = now_ns.saturating_add(repeat_ns);
                let waiting = running.waiting(&self.decree.members, self.own);
                let waited_ns = now_ns.saturating_sub(running.since_ns);
                if waited_ns >= patience_ns {
                    let waiting = waiting.into_iter().collect();
                    return self.fail(EpochError::Undecided { epoch, waited_ns, waiting });
                }
                for rank in &waiting {
                    let heard_ns = *running.heard_ns.entry(*rank).or_insert(now_ns);
                    if now_ns.saturating_sub(heard_ns) >= give_up_ns {
                        running.suspects.insert(*rank);
                    }
                }
                let motion = match &running.lead {
                    Some(lead) => question(lead, running.last),
                    None => Some(Motion::Ask { last: running.last }),
                };
                for rank in waiting.difference(&running.suspects) {
                    self.outbox.extend(motion.clone().map(|motion| (*rank, Vote { epoch, motion })));
                }
                self.go_on(now_ns);
            }
            State::Idle | State::Excluded(_) => {}
        }
    }

    /// Takes the next steps for which everything is there.
    pub(super) fn go_on(&mut self, now_ns: u64) {
        let members = self.decree.members.clone();
        loop {
            let State::Running(running) = &mut self.state else { return };
            let left = &members - &running.suspects;
            if !is_quorum(&members, &left) {
                return self.no_quorum(&left);
            }
            let leader = left.first().copied();
            if running.leader != leader {
                running.leader = leader;
                running.heard_ns.extend(leader.map(|leader| (leader, now_ns)));
                if leader != Some(self.own) {
                    running.lead = None;
                    let asked = leader.map(|leader| {
                        (
                            leader,
                            Vote {
                                epoch: self.epoch.wrapping_add(1),
                                motion: Motion::Ask { last: running.last },
                            },
                        )
                    });
                    self.outbox.extend(asked);
                }
            }
            if leader != Some(self.own) {
                return;
            }
            let waits = !running.waiting(&members, self.own).is_empty();
            let Some(lead) = &mut running.lead else {
                self.prepare(now_ns);
                continue;
            };
            match &lead.phase {
                Phase::Outbid { until_ns } if now_ns >= *until_ns => self.prepare(now_ns),
                Phase::Outbid { .. } => return,
                _ if waits => return,
                Phase::Preparing(promises) => {
                    let voters = promises.keys().copied().collect();
                    if !is_quorum(&members, &voters) {
                        return self.no_quorum(&voters);
                    }
                    let ballot = lead.ballot;
                    if self.promised > ballot {
                        lead.outbid(now_ns, self.promised, self.own, self.timing.repeat_ns);
                        continue;
                    }
                    let promises = promises.clone();
                    let knocks = if running.admit { self.knocks_at(now_ns) } else { BTreeMap::new() };
                    match choose(&members, &promises, &knocks, GAP) {
                        Ok(decree) => self.propose(now_ns, ballot, &decree),
                        Err(left) => return self.no_quorum(&left),
                    }
                }
                Phase::Accepting(decree, acks) => {
                    if !is_quorum(&members, acks) {
                        let acks = acks.clone();
                        return self.no_quorum(&acks);
                    }
                    let decree = decree.clone();
                    return self.decide(&members, &decree);
                }
            }
        }
    }

    pub(super) fn no_quorum(&mut self, left: &RankSet) {
        self.fail(EpochError::NoQuorum {
            epoch: self.next(),
            of: self.decree.members.len(),
            lowest: self.decree.members.first().copied().unwrap_or(0),
            left: left.iter().copied().collect(),
        });
    }

    /// Paxos' phase 1.
    pub(super) fn prepare(&mut self, now_ns: u64) {
        let epoch = self.next();
        let State::Running(running) = &mut self.state else { return };
        let seen = running.lead.as_ref().map_or(0, |lead| lead.ballot).max(self.promised);
        let ballot = ballot_above(seen, self.own);
        self.promised = ballot;
        let own = Promise {
            last: running.last,
            suspects: running.suspects.clone(),
            accepted: self.accepted.clone(),
        };
        running.lead = Some(Lead { ballot, phase: Phase::Preparing([(self.own, own)].into()) });
        let last = running.last;
        for rank in running.waiting(&self.decree.members, self.own) {
            running.heard_ns.insert(rank, now_ns);
            self.outbox.push_back((rank, Vote { epoch, motion: Motion::Prepare { ballot, last } }));
        }
    }

    /// Paxos' phase 2.
    pub(super) fn propose(&mut self, now_ns: u64, ballot: u32, decree: &Decree) {
        let epoch = self.next();
        let State::Running(running) = &mut self.state else { return };
        self.accepted = Some((ballot, decree.clone()));
        running.lead = Some(Lead { ballot, phase: Phase::Accepting(decree.clone(), [self.own].into()) });
        for rank in running.waiting(&self.decree.members, self.own) {
            running.heard_ns.insert(rank, now_ns);
            let motion = Motion::Accept { ballot, decree: decree.clone() };
            self.outbox.push_back((rank, Vote { epoch, motion }));
        }
    }

    /// The decree is chosen: everybody is told, once; who misses it asks.
    pub(super) fn decide(&mut self, members: &RankSet, decree: &Decree) {
        let epoch = self.next();
        for &rank in members.union(&decree.members).filter(|&&rank| rank != self.own) {
            self.outbox.push_back((rank, Vote { epoch, motion: Motion::Decided { decree: decree.clone() } }));
        }
        self.on_decided(epoch, decree);
    }
}
