// SPDX-License-Identifier: Apache-2.0
//! What `perf --on-failure shrink` does when an operation fails: the ranks that are left agree on
//! an epoch, find out how far each had come, and go on.

use super::{Bench, PerfArgs, coordinates};
use crate::operation::Operation;
use crate::{Failure, failed};
use anyhow::anyhow;
use serde::Serialize;
use trimwire_agent::collective::{Collective, Memory, Options, Outcome};
use trimwire_agent::driver::{Link, UntilEpoch};
use trimwire_agent::epoch::Epoch;

/// An epoch that has begun, as reports tell it.
#[derive(Debug, Serialize)]
pub(super) struct Begun {
    pub(super) epoch: u32,
    /// Its ranks, under the numbers that they were started with.
    pub(super) members: Vec<u16>,
    /// Why the one before ended.
    pub(super) because: String,
    /// From the failure to the first operation of the epoch, s.
    pub(super) seconds: f64,
}

impl Begun {
    pub(super) fn text(&self) -> String {
        let Self { epoch, members, because, seconds } = self;
        let members: Vec<String> = members.iter().map(u16::to_string).collect();
        format!("# epoch {epoch} of ranks {}, begun in {seconds:.3} s after {because}", members.join(", "))
    }
}

impl PerfArgs {
    /// Coordinates of the operation at a place among all.
    fn coordinates_of(&self, at: usize) -> usize {
        self.coordinates().nth(at).unwrap_or_else(|| coordinates(self.min_bytes))
    }
}

impl<L: Link> Bench<'_, L> {
    /// An operation has failed: goes on with those that are left. Afterwards all of them have done
    /// the same operations.
    pub(super) fn recover(&mut self, because: &str) -> Result<(), Failure> {
        let began_ns = self.driver.now_ns();
        tracing::warn!("{because}: the ranks agree on who is left");
        // Each time one more rank has died meanwhile.
        for _ in 0..=self.sums.members.len() {
            let epoch = self.shrink()?;
            let seconds = self.driver.now_ns().saturating_sub(began_ns) as f64 / 1e9;
            let Epoch { number: epoch, members, .. } = epoch;
            self.epochs.push(Begun { epoch, members, because: because.to_owned(), seconds });
            if self.catch_up()? {
                return Ok(());
            }
        }
        Err(failed(anyhow!("{because}, and no epoch since has lasted")))
    }

    fn shrink(&mut self) -> Result<Epoch, Failure> {
        let Self { communicator, driver, publisher, .. } = self;
        let now_ns = driver.now_ns();
        communicator.shrink(now_ns, &[], driver.endpoint()).map_err(failed)?;
        let epoch = publisher.run(driver, u64::MAX, &mut UntilEpoch(communicator))?;
        let epoch = epoch.ok_or_else(|| failed(anyhow!("the agreement did not end")))?.map_err(failed)?;
        // What was void.
        let now_ns = driver.now_ns();
        while communicator.poll_outcome(now_ns, driver.endpoint()).is_some() {}
        let root = self.args.root;
        let rooted = matches!(self.args.operation, Operation::Broadcast | Operation::Reduce);
        if rooted && epoch.place(root).is_none() {
            return Err(failed(anyhow!(
                "rank {root}, the operation's root, is not among those that are left"
            )));
        }
        self.sums.members.clone_from(&epoch.members);
        self.number = epoch.first;
        Ok(epoch)
    }

    /// Operations that some ranks have done and others not are done again, by all. `false`: one has
    /// failed.
    fn catch_up(&mut self) -> Result<bool, Failure> {
        // As few as are done are counted exactly by a float.
        let input = Memory::from_vec(vec![self.done as f32]);
        let output = Memory::from_vec(vec![0.0_f32; self.sums.members.len()]);
        // One coordinate a rank.
        let gather = Collective::AllGather { input, output };
        let Some(told) = self.attempt(gather, Options { exact: true, ..Options::default() })? else {
            return Ok(false);
        };
        let told = told.into_f32().unwrap_or_default();
        let least = told.iter().map(|&done| done as usize).min().unwrap_or(self.done);
        for at in least..self.done {
            let coordinates = self.args.coordinates_of(at);
            let collective = self.collective(self.gradient.get(..coordinates).unwrap_or_default());
            if self.attempt(collective, super::options(self.args))?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// An operation that nobody counts; `None` where it fails.
    fn attempt(&mut self, collective: Collective, options: Options) -> Result<Option<Outcome>, Failure> {
        let number = self.number;
        self.number = number.wrapping_add(1);
        let now_ns = self.driver.now_ns();
        let begun = self.communicator.start(now_ns, number, collective, options, self.driver.endpoint());
        if begun.is_err() {
            return Ok(None);
        }
        let outcome = self.finish(number)?;
        Ok(outcome.result.is_ok().then_some(outcome))
    }

    /// Waits until every rank has all its results: one that is gone can be of no help to those that
    /// have to do something again.
    pub(super) fn part(&mut self) {
        for _ in 0..=self.sums.members.len() {
            let tensor = Memory::from_vec(vec![0.0_f32]);
            let exact = Options { exact: true, ..Options::default() };
            match self.attempt(Collective::AllReduce { tensor }, exact) {
                Ok(Some(_)) => return,
                Ok(None) => {}
                Err(error) => return tracing::warn!("{:#}", error.error),
            }
            if let Err(error) = self.recover("an operation had to be done again") {
                // The results of this rank are all there.
                return tracing::warn!("{:#}", error.error);
            }
        }
    }
}
