// SPDX-License-Identifier: Apache-2.0
//! What random numbers are made from.

use crate::wire::Envelope;

/// What the ranks of a job have agreed on about random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// Seed that all ranks share.
    pub seed: u64,
}

/// What the random signs of a message depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RotationKey {
    pub(crate) job_seed: u64,
    pub(crate) message: u32,
    pub(crate) rank: u16,
}

impl Job {
    /// From a seed.
    pub const fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// A message's key. Nobody gives one, so that none can contradict the header. Ranks have
    /// rotations of their own: their errors are independent, and cancel in sums.
    pub(crate) fn key(self, envelope: Envelope) -> RotationKey {
        RotationKey { job_seed: self.seed, message: envelope.message, rank: envelope.stream.rank() }
    }
}
