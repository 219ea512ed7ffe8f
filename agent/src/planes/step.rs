// SPDX-License-Identifier: Apache-2.0
//! What was measured of a step's communication.

use serde::{Deserialize, Serialize};

/// A step's communication, as a rank saw it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// When it ended, ns on any clock that does not run backwards.
    pub at_ns: u64,
    /// Bytes that were sent of the gradient.
    pub bytes: u64,
    /// From the first byte sent to the whole sum there, ns.
    pub delay_ns: u64,
    /// From the end of the communication before it to the beginning of this one, ns, where that is
    /// known, else 0: what is computed and not hidden behind communication.
    pub compute_ns: u64,
    /// Share of the packets that were trimmed, 0 to 1.
    #[serde(rename = "trimmed")]
    pub trimmed: f64,
    /// Share of the sent bytes that arrived, 0 to 1: what trims and losses left.
    pub arrived: f64,
    /// Share of the packets that were lost and had to be sent again, 0 to 1.
    pub lost: f64,
}

impl Step {
    /// A step on a network that neither trims nor loses.
    pub fn whole(at_ns: u64, bytes: u64, delay_ns: u64) -> Self {
        Self { at_ns, bytes, delay_ns, compute_ns: 0, trimmed: 0.0, arrived: 1.0, lost: 0.0 }
    }

    /// EBB of NetSenseML's formula 1, bytes per ns.
    pub fn bandwidth(&self) -> f64 {
        self.bytes as f64 / self.delay_ns as f64
    }

    /// Whether it can have been measured: `before` is when the step before it ended.
    pub fn check(&self, before: Option<u64>) -> Result<(), StepError> {
        if let Some(before) = before
            && self.at_ns < before
        {
            return Err(StepError::TimeRunsBackwards { at_ns: self.at_ns, before });
        }
        if self.delay_ns == 0 {
            return Err(StepError::NoDelay);
        }
        if self.bytes == 0 {
            return Err(StepError::NoBandwidth { delay_ns: self.delay_ns });
        }
        for (what, share) in [("trimmed", self.trimmed), ("arrived", self.arrived), ("lost", self.lost)] {
            if !(0.0..=1.0).contains(&share) {
                return Err(StepError::NoShare { what, share });
            }
        }
        Ok(())
    }
}

/// Why a measurement was not taken; the ratio stays what it was.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The step ended before the one before it.
    #[error("the step ended at {at_ns} ns, before the one before it ({before} ns): time ran backwards")]
    TimeRunsBackwards {
        /// Its end.
        at_ns: u64,
        /// The end of the step before.
        before: u64,
    },
    /// Nothing takes no time.
    #[error("delay_ns is 0: no communication takes no time")]
    NoDelay,
    /// Nothing was sent, so that nothing is known of the network.
    #[error("bytes is 0 in {delay_ns} ns: a bandwidth of 0 says nothing of the network")]
    NoBandwidth {
        /// How long nothing was sent.
        delay_ns: u64,
    },
    /// NaN, or out of range.
    #[error("{what} is {share}; valid are shares from 0 to 1")]
    NoShare {
        /// Name of the field.
        what: &'static str,
        /// Its value.
        share: f64,
    },
    /// A law's arithmetic ended in nothing.
    #[error("{law} gave {ratio} for this step; the ratio stays {kept}")]
    NoRatio {
        /// The law.
        law: &'static str,
        /// What it gave.
        ratio: f64,
        /// What stays.
        kept: f64,
    },
}
