// SPDX-License-Identifier: Apache-2.0
//! `--adaptive`: an algorithm that says with how many planes the next operation is sent, the same
//! at all ranks.

use crate::{Failure, bad_input, failed};
use anyhow::anyhow;
use serde::Serialize;
use trimwire_agent::collective::{Algorithm, Collective, Memory, Options, Outcome};
use trimwire_agent::pacing::Pace;
use trimwire_agent::planes::{Adaptive, COUNTS, Counts, Step};

/// An operation, as the algorithm saw it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Taken {
    /// What it was sent with.
    planes: u8,
    ratio: f64,
    pace: f64,
    /// What was measured, by all ranks together.
    #[serde(flatten)]
    step: Option<Measured>,
    /// Why it was not taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    /// At this rank.
    pub(crate) nmse: Option<f64>,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct Measured {
    bytes: u64,
    seconds: f64,
    trimmed: f64,
    arrived: f64,
    lost: f64,
}

impl From<Step> for Measured {
    fn from(Step { bytes, delay_ns, trimmed, arrived, lost, .. }: Step) -> Self {
        Self { bytes, seconds: delay_ns as f64 / 1e9, trimmed, arrived, lost }
    }
}

/// An algorithm at work.
pub(crate) struct Steering {
    law: Adaptive,
    world: u16,
    pub(crate) taken: Vec<Taken>,
}

impl Steering {
    /// # Errors
    /// What is no algorithm, by name.
    pub(crate) fn new(law: &str, planes: u8, world: u16) -> Result<Self, Failure> {
        let law = Adaptive::new(law, planes).map_err(|error| bad_input(anyhow!("--adaptive: {error}")))?;
        Ok(Self { law, world, taken: Vec::new() })
    }

    /// How the next operation is done.
    pub(crate) fn apply(&self, options: &Options) -> Options {
        Options { planes: self.law.planes(), pace: Pace::of_share(self.law.pace()), ..options.clone() }
    }

    pub(crate) fn law(&self) -> &Adaptive {
        &self.law
    }

    /// What this rank tells the others of an operation, and how that travels: every bit of it.
    pub(crate) fn exchange(&self, outcome: &Outcome, idle_ns: u64) -> (Collective, Options) {
        let stats = &outcome.stats;
        let counts = Counts {
            bytes: stats.bytes_expected,
            bytes_arrived: stats.bytes_received,
            packets: stats.packets,
            trimmed: stats.trimmed,
            missing: stats.missing,
            repaired: stats.repaired,
            busy_ns: outcome.duration_ns,
            idle_ns,
        };
        let halves = |number: u64| [(number >> 32) as u32, number as u32].map(f32::from_bits);
        let input = Memory::from_vec(counts.to_numbers().into_iter().flat_map(halves).collect());
        let output = Memory::from_vec(vec![0.0_f32; 2 * COUNTS * usize::from(self.world)]);
        let options = Options { exact: true, algorithm: Algorithm::Direct, ..Options::default() };
        (Collective::AllGather { input, output }, options)
    }

    /// Takes what all ranks told.
    pub(crate) fn take(&mut self, told: Outcome, nmse: Option<f64>) -> Result<(), Failure> {
        told.result.map_err(failed)?;
        let words = told.output.and_then(|memory| memory.into_vec::<f32>().ok()).unwrap_or_default();
        let words: Vec<u32> = words.into_iter().map(f32::to_bits).collect();
        let join = |&[high, low]: &[u32; 2]| u64::from(high) << 32 | u64::from(low);
        let numbers: Vec<u64> = words.as_chunks::<2>().0.iter().map(join).collect();
        let ranks: Vec<Counts> =
            numbers.as_chunks::<COUNTS>().0.iter().map(|numbers| Counts::from_numbers(*numbers)).collect();
        let (planes, ratio, pace) = (self.law.planes(), self.law.ratio(), self.law.pace());
        let (step, refused) = match self.law.step(&ranks) {
            Ok(step) => (Some(step.into()), None),
            // The algorithm keeps its ratio, at all ranks alike.
            Err(error) => (None, Some(error.to_string())),
        };
        self.taken.push(Taken { planes, ratio, pace, step, refused, nmse });
        Ok(())
    }
}

/// In a line.
pub(crate) fn text(taken: &[Taken]) -> Option<String> {
    let planes = || taken.iter().map(|taken| taken.planes);
    let (least, most, last) = (planes().min()?, planes().max()?, taken.last()?);
    let mean = planes().map(f64::from).sum::<f64>() / taken.len() as f64;
    let (planes, pace) = (last.planes, last.pace);
    Some(format!("planes {least} to {most}, mean {mean:.2}, last {planes} at {pace:.3} of the line's rate"))
}
