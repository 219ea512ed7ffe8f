// SPDX-License-Identifier: Apache-2.0
//! What stands around every law: checks in front, limits behind, the last good ratio in between.

use serde::{Deserialize, Serialize};

use super::step::{Step, StepError};
use super::{Da1, Da2, Da3, Da4, Da5, NetSense, Progress, TrimFeedback};

/// A law of ratios.
pub trait Law {
    /// What users call it.
    fn name(&self) -> &'static str;
    /// The ratio of the next step, from this step's ratio and measurements, which have been
    /// checked. It may be anything: the [`Controller`] keeps what is no number, and clamps.
    fn next(&mut self, ratio: f64, step: &Step) -> f64;
    /// Share of the line's rate at which the next step may leave, above 0, up to 1. Laws of the
    /// papers leave that to the transport.
    fn pace(&self) -> f64 {
        1.0
    }
}

/// Any of the laws, with its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "algorithm", rename_all = "kebab-case")]
#[allow(missing_docs, reason = "named as the laws are")]
pub enum Laws {
    Netsense(NetSense),
    Da1(Da1),
    Da2(Da2),
    Da3(Da3),
    Da4(Da4),
    Da5(Da5),
    TrimFeedback(TrimFeedback),
    Progress(Progress),
    /// Always the same ratio: uniform compression, the baseline of the papers.
    Fixed,
}

impl Law for Laws {
    fn name(&self) -> &'static str {
        match self {
            Self::Netsense(law) => law.name(),
            Self::Da1(law) => law.name(),
            Self::Da2(law) => law.name(),
            Self::Da3(law) => law.name(),
            Self::Da4(law) => law.name(),
            Self::Da5(law) => law.name(),
            Self::TrimFeedback(law) => law.name(),
            Self::Progress(law) => law.name(),
            Self::Fixed => "fixed",
        }
    }

    fn next(&mut self, ratio: f64, step: &Step) -> f64 {
        match self {
            Self::Netsense(law) => law.next(ratio, step),
            Self::Da1(law) => law.next(ratio, step),
            Self::Da2(law) => law.next(ratio, step),
            Self::Da3(law) => law.next(ratio, step),
            Self::Da4(law) => law.next(ratio, step),
            Self::Da5(law) => law.next(ratio, step),
            Self::TrimFeedback(law) => law.next(ratio, step),
            Self::Progress(law) => law.next(ratio, step),
            Self::Fixed => ratio,
        }
    }

    fn pace(&self) -> f64 {
        match self {
            Self::TrimFeedback(law) => law.pace(),
            Self::Progress(law) => law.pace(),
            _ => 1.0,
        }
    }
}

/// Between what a ratio stays.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Least ratio, above 0.
    pub k_min: f64,
    /// Greatest, at most 1.
    pub k_max: f64,
}

/// A law within limits. Feed it each step once, in order; its state survives a checkpoint through
/// serde.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Controller {
    law: Laws,
    limits: Limits,
    ratio: f64,
    at_ns: Option<u64>,
}

impl Controller {
    /// A law that begins with `ratio`. Limits that are no limits, and a first ratio outside, are
    /// brought to the nearest that are.
    pub fn new(law: Laws, limits: Limits, ratio: f64) -> Self {
        let share =
            |value: f64, otherwise: f64| if value.is_finite() { value.clamp(1e-6, 1.0) } else { otherwise };
        let k_min = share(limits.k_min, 1e-6);
        let limits = Limits { k_min, k_max: share(limits.k_max, 1.0).max(k_min) };
        let first = if ratio.is_finite() { ratio } else { limits.k_max };
        Self { law, limits, ratio: first.clamp(limits.k_min, limits.k_max), at_ns: None }
    }

    /// The ratio to send the next step with.
    pub fn ratio(&self) -> f64 {
        self.ratio
    }

    /// Share of the line's rate at which the next step may leave, above 0, up to 1.
    pub fn pace(&self) -> f64 {
        let pace = self.law.pace();
        if pace > 0.0 { pace.min(1.0) } else { 1.0 }
    }

    /// Its limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The law and what it knows.
    pub fn law(&self) -> &Laws {
        &self.law
    }

    /// Takes a step's measurements and says the ratio of the next one. A step that cannot have been
    /// measured changes nothing.
    pub fn step(&mut self, step: &Step) -> Result<f64, StepError> {
        step.check(self.at_ns)?;
        self.at_ns = Some(step.at_ns);
        let next = self.law.next(self.ratio, step);
        if !next.is_finite() {
            return Err(StepError::NoRatio { law: self.law.name(), ratio: next, kept: self.ratio });
        }
        self.ratio = next.clamp(self.limits.k_min, self.limits.k_max);
        Ok(self.ratio)
    }
}
