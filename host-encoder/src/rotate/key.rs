//! What random numbers are made from.

use crate::wire::Envelope;

/// What the ranks of a job have agreed on about random numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Job {
    /// Seed that all ranks share.
    pub seed: u64,
    /// Whether the ranks share rotations.
    pub rotation: Rotation,
}

/// Whose rotation a message is encoded under.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rotation {
    /// The sending rank's own: errors of different ranks are independent, and cancel in sums.
    #[default]
    Independent,
    /// The same one at all ranks: sums can be taken before the rotation is undone ([`crate::RotatedSum`]).
    Shared,
}

/// What the random signs of a message depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RotationKey {
    pub(crate) job_seed: u64,
    pub(crate) message: u32,
    /// 0 where ranks share rotations.
    pub(crate) rank: u16,
}

impl Job {
    /// Independent rotations from a seed.
    pub const fn new(seed: u64) -> Self {
        Self { seed, rotation: Rotation::Independent }
    }

    /// A message's key. Nobody gives one, so that none can contradict the header.
    pub(crate) fn key(self, envelope: Envelope) -> RotationKey {
        let rank = match self.rotation {
            Rotation::Independent => envelope.stream.rank(),
            Rotation::Shared => 0,
        };
        RotationKey { job_seed: self.seed, message: envelope.message, rank }
    }
}
