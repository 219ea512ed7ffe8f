// SPDX-License-Identifier: Apache-2.0
//! A job on a link, under a law.

use super::link::Link;
use super::profile::{Profile, uniform};
use super::transfer::Transfer;
use trimwire_agent::planes::{Controller, Step};

/// A data-parallel job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Job {
    /// Bytes of the uncompressed gradient.
    pub gradient: f64,
    /// What a step computes before it sends, ns.
    pub compute_ns: u64,
    /// How it is summed.
    pub transfer: Transfer,
}

/// A step of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// When its communication ended, ns.
    pub at_ns: u64,
    /// What it was sent with.
    pub ratio: f64,
    /// Share of the uncompressed gradient that arrived.
    pub arrived: f64,
    /// Time of its communication, ns.
    pub delay_ns: u64,
}

/// A run.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Steps in order.
    pub samples: Vec<Sample>,
}

impl Outcome {
    /// Steps a second.
    pub fn throughput(&self) -> f64 {
        self.samples.last().map_or(0.0, |last| self.samples.len() as f64 * 1e9 / last.at_ns.max(1) as f64)
    }

    /// Mean share of the gradient that was sent.
    pub fn sent(&self) -> f64 {
        self.mean(|sample| sample.ratio)
    }

    /// Mean share that arrived.
    pub fn arrived(&self) -> f64 {
        self.mean(|sample| sample.arrived)
    }

    /// The slowest hundredth of the steps' communication begins here, ns.
    pub fn slowest(&self) -> u64 {
        let mut delays: Vec<u64> = self.samples.iter().map(|sample| sample.delay_ns).collect();
        delays.sort_unstable();
        delays.get((delays.len() * 99 / 100).min(delays.len().saturating_sub(1))).copied().unwrap_or(0)
    }

    fn mean(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        self.samples.iter().map(of).sum::<f64>() / self.samples.len().max(1) as f64
    }
}

/// Steps until the profile ends. Computing takes up to a hundredth more or less, so that no two
/// steps are the same.
pub fn run(job: Job, link: Link, profile: &Profile, controller: &mut Controller, seed: u64) -> Outcome {
    let mut random = seed;
    let mut now = 0;
    let mut samples = Vec::new();
    while now < profile.end_ns {
        now += (job.compute_ns as f64 * (0.99 + 0.02 * uniform(&mut random))) as u64 + 1;
        let ratio = controller.ratio();
        let bytes = job.transfer.bytes(job.gradient, ratio).max(1.0) as u64;
        let step = link.carry(now, bytes, ratio, controller.pace(), profile.at(now));
        let step = Step { compute_ns: job.compute_ns, ..step };
        now = step.at_ns;
        // A measurement that is refused leaves the ratio as it is.
        let _ = controller.step(&step);
        let sample = Sample { at_ns: now, ratio, arrived: ratio * step.arrived, delay_ns: step.delay_ns };
        samples.push(sample);
    }
    Outcome { samples }
}
