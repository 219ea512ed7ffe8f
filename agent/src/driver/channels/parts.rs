// SPDX-License-Identifier: Apache-2.0
//! An operation's parts, until all of them are over.
#![forbid(unsafe_code)]

use crate::collective::{OperationError, Outcome, OutcomeStats};
use std::collections::BTreeSet;

/// The parts of one operation.
#[derive(Debug)]
pub(super) struct Parts {
    started_ns: u64,
    /// Channels that are not done.
    waiting: BTreeSet<u16>,
    stats: OutcomeStats,
    /// The first channel's, which has the memory.
    first: Option<Outcome>,
    error: Option<OperationError>,
}

impl Parts {
    /// Of the first channel.
    pub(super) fn new(started_ns: u64) -> Self {
        Self { started_ns, waiting: [0].into(), stats: OutcomeStats::default(), first: None, error: None }
    }

    /// And of another.
    pub(super) fn waits_for(&mut self, channel: u16) {
        self.waiting.insert(channel);
    }

    pub(super) fn is_waiting_for(&self, channel: u16) -> bool {
        self.waiting.contains(&channel)
    }

    /// A channel is done.
    pub(super) fn absorb(&mut self, channel: u16, outcome: Outcome) {
        self.over(channel);
        self.stats += outcome.stats;
        if channel == 0 {
            self.first = Some(outcome);
        }
    }

    /// A channel does nothing more.
    pub(super) fn over(&mut self, channel: u16) {
        self.waiting.remove(&channel);
    }

    /// Takes note of a failure. `false`: there was one before, which is the operation's.
    pub(super) fn fail(&mut self, error: OperationError) -> bool {
        let first = self.error.is_none();
        self.error.get_or_insert(error);
        first
    }

    pub(super) fn is_over(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The operation's, once it is over.
    pub(super) fn outcome(self, now_ns: u64, number: u32) -> Outcome {
        let (input, output) = self.first.map_or((None, None), |first| (first.input, first.output));
        Outcome {
            number,
            result: self.error.map_or(Ok(()), Err),
            input,
            output,
            stats: self.stats,
            duration_ns: now_ns.saturating_sub(self.started_ns),
        }
    }
}
