// SPDX-License-Identifier: Apache-2.0
//! A communicator from one epoch to the next: its ranks, their numbers, and what becomes void.

use super::algorithm::Hosts;
use super::{Communicator, CommunicatorConfig, MessageId, OperationError, StartError};
use crate::endpoint::Endpoint;
use crate::epoch::{Change, Epoch, EpochError, RankSet};
use crate::wire::Reason;

impl Communicator {
    /// The epoch whose operations are run: its ranks and their numbers in the job.
    pub fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// Goes on without ranks that have died, as `ncclCommShrink` does: every rank that is to go on
    /// calls this, when an operation has failed or where it likes. Operations under way become
    /// void, here and everywhere.
    ///
    /// Left out are those that failed operations have found dead, started anew or out of reach,
    /// those of `exclude`, and whoever answers nothing. Ranks are named as they are from the job's
    /// beginning, and as errors name them. [`Self::poll_epoch`] tells how it ends; then this
    /// communicator's ranks are numbered anew from 0, in the same order, and its next operation is
    /// [`Epoch::first`].
    ///
    /// # Errors
    /// [`EpochError`] when it cannot even be asked for.
    pub fn shrink(
        &mut self,
        now_ns: u64,
        exclude: &[u16],
        endpoint: &mut Endpoint,
    ) -> Result<(), EpochError> {
        self.begin_epoch(now_ns, exclude, false, endpoint)
    }

    /// As [`Self::shrink`], and lets in who has started anew and asks for it ([`Self::join`],
    /// [`Endpoint::knocking`]): every rank calls this between the same two operations.
    ///
    /// # Errors
    /// As there.
    pub fn grow(&mut self, now_ns: u64, exclude: &[u16], endpoint: &mut Endpoint) -> Result<(), EpochError> {
        self.begin_epoch(now_ns, exclude, true, endpoint)
    }

    /// Asks the ranks of a job that goes on to let this one in, which has started anew: a
    /// communicator and an endpoint that have just been made, under the rank's number from the
    /// job's beginning. Ends in [`Self::poll_epoch`] when they call [`Self::grow`].
    pub fn join(&mut self, now_ns: u64, endpoint: &mut Endpoint) {
        endpoint.join(now_ns);
    }

    /// An epoch has begun, or will not begin for this rank: then no operation does either, until it
    /// is asked for again.
    pub fn poll_epoch(&mut self) -> Option<Result<Epoch, EpochError>> {
        self.epochs.pop_front()
    }

    fn begin_epoch(
        &mut self,
        now_ns: u64,
        exclude: &[u16],
        admit: bool,
        endpoint: &mut Endpoint,
    ) -> Result<(), EpochError> {
        if self.epochs.iter().any(Result::is_ok) {
            // It has begun meanwhile.
            return Ok(());
        }
        let exclude: RankSet = exclude.iter().copied().chain(self.blamed.iter().copied()).collect();
        let last = self.last.unwrap_or(self.epoch.first.wrapping_sub(1));
        endpoint.begin_epoch(now_ns, &exclude, admit, last)?;
        self.void(now_ns, None, endpoint);
        Ok(())
    }

    /// Ends what is under way, or of that what comes behind an operation.
    fn void(&mut self, now_ns: u64, last: Option<u32>, endpoint: &mut Endpoint) {
        let epoch = self.epoch.number.wrapping_add(1);
        for operation in self.operations.values_mut() {
            let number = operation.number();
            if last.is_some_and(|last| !MessageId::follows(number, last)) {
                continue;
            }
            operation.give_up(now_ns, OperationError::Void { number, epoch }, endpoint);
        }
    }

    /// Goes on in an epoch that another channel's endpoint has agreed on, at once. Operations of
    /// the one before are void.
    pub fn adopt(&mut self, now_ns: u64, epoch: &Epoch, arrivals: &[(u16, u32)], endpoint: &mut Endpoint) {
        self.void(now_ns, None, endpoint);
        endpoint.adopt_epoch(now_ns, epoch, arrivals);
        self.on_change(now_ns, Change::Begun(epoch.clone()), endpoint);
    }

    pub(super) fn on_change(&mut self, now_ns: u64, change: Change, endpoint: &mut Endpoint) {
        match change {
            // What it has begun it has ended, or it says of it that it will not.
            Change::Wanted { last, .. } => self.void(now_ns, Some(last), endpoint),
            Change::Begun(epoch) => {
                let home = &self.home;
                let place = |rank| epoch.place(rank).unwrap_or(0);
                let hosts = |&rank: &u16| home.hosts.get(usize::from(rank)).copied();
                self.config = CommunicatorConfig {
                    rank: place(home.rank),
                    world: epoch.members.len() as u16,
                    // A rank beyond the list has a host of its own.
                    hosts: epoch
                        .members
                        .iter()
                        .map(|rank| hosts(rank).unwrap_or(u32::MAX - u32::from(*rank)))
                        .collect(),
                    ..home.clone()
                };
                self.hosts = Hosts::new(self.config.world, &self.config.hosts);
                self.last = Some(epoch.first.wrapping_sub(1));
                self.blamed.clear();
                self.retire(endpoint);
                self.epoch = epoch.clone();
                self.epochs.push_back(Ok(epoch));
            }
            Change::Failed(error) => {
                self.void(now_ns, None, endpoint);
                self.epochs.push_back(Err(error));
            }
        }
    }

    /// Takes note of whom an operation's failure is put down to.
    pub(super) fn blame(&mut self, (culprit, reason): (u16, Reason)) {
        let gone = matches!(reason, Reason::Lost | Reason::Restarted | Reason::Stalled | Reason::PathMtu);
        if gone && culprit != self.home.rank {
            self.blamed.insert(culprit);
        }
    }

    /// Likewise, of one that had failed elsewhere before it was begun here.
    pub(super) fn blame_for_start(&mut self, error: &StartError) {
        if let Some(blame) = error.blame() {
            self.blame(blame);
        }
    }
}
