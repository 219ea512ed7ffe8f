// SPDX-License-Identifier: Apache-2.0
//! From what ranks counted of a step to its measurements, the same for all of them.

use serde::{Deserialize, Serialize};

use super::step::Step;

/// What a rank counted of the operations of a step. Sums: those of several operations add up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Payload bytes of the messages for this rank as they were sent, repairs not counted.
    pub bytes: u64,
    /// Of these, what came, repairs included.
    pub bytes_arrived: u64,
    /// Packets of these messages.
    pub packets: u64,
    /// Of these, packets that were trimmed when they were decoded.
    pub trimmed: u64,
    /// Packets of which nothing came.
    pub missing: u64,
    /// Packets that this rank sent again.
    pub repaired: u64,
    /// Time in which an operation was under way at this rank, ns.
    pub busy_ns: u64,
    /// Time from the end of the step before to the beginning of this one's first operation at this
    /// rank, ns; 0 where there was none before.
    pub idle_ns: u64,
}

/// Numbers of [`Counts`].
pub const COUNTS: usize = 8;

impl Counts {
    /// In the order of the fields, to be told to other ranks.
    pub fn to_numbers(self) -> [u64; COUNTS] {
        let Self { bytes, bytes_arrived, packets, trimmed, missing, repaired, busy_ns, idle_ns } = self;
        [bytes, bytes_arrived, packets, trimmed, missing, repaired, busy_ns, idle_ns]
    }

    /// What another rank told. Any numbers are taken: [`Step::check`] refuses those that cannot be.
    pub fn from_numbers(numbers: [u64; COUNTS]) -> Self {
        let [bytes, bytes_arrived, packets, trimmed, missing, repaired, busy_ns, idle_ns] = numbers;
        Self { bytes, bytes_arrived, packets, trimmed, missing, repaired, busy_ns, idle_ns }
    }

    /// Adds another operation's; times of operations that overlap are the caller's to join.
    pub fn add(&mut self, other: &Self) {
        let mut sum = self.to_numbers();
        for (sum, number) in sum.iter_mut().zip(other.to_numbers()) {
            *sum = sum.saturating_add(number);
        }
        *self = Self::from_numbers(sum);
    }

    /// The step that all ranks' counts make, which ended at `at_ns` if the steps before it did at
    /// `began_ns`.
    ///
    /// Shares are of all ranks' packets. The delay is the *least* of the ranks': who began last has
    /// waited for nobody, and all end at about the same time, so that computation which takes
    /// longer at one rank is not taken for a slow network; that longest computation is the step's.
    pub fn step(ranks: &[Self], began_ns: u64) -> Step {
        let mut all = Self::default();
        ranks.iter().for_each(|rank| all.add(rank));
        let delay_ns = ranks.iter().map(|rank| rank.busy_ns).min().unwrap_or(0);
        let share = |part: u64, of: u64| if of == 0 { 0.0 } else { (part as f64 / of as f64).min(1.0) };
        Step {
            at_ns: began_ns.saturating_add(delay_ns),
            bytes: all.bytes / ranks.len().max(1) as u64,
            delay_ns,
            compute_ns: ranks.iter().map(|rank| rank.idle_ns).max().unwrap_or(0),
            trimmed: share(all.trimmed, all.packets),
            arrived: if all.bytes == 0 { 1.0 } else { share(all.bytes_arrived, all.bytes) },
            lost: share(all.missing.saturating_add(all.repaired), all.packets),
        }
    }
}
