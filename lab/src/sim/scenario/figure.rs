// SPDX-License-Identifier: Apache-2.0
//! What a scenario is a figure of: the columns of its table, and what its paper claims of the same.

use crate::sim::report::RunReport;
use serde::Deserialize;

/// A column: one figure of each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Measure {
    /// Mean flow completion time.
    Mean,
    /// Median.
    P50,
    /// What 99 in 100 flows keep to.
    P99,
    /// What 999 in 1,000 flows keep to.
    P999,
    /// The slowest flow.
    Max,
    /// The slowest flow over the ideal.
    MaxOfIdeal,
    /// The median flow over the ideal.
    P50OfIdeal,
    /// From the begin of the first flow to the end of the last.
    Completion,
    /// Share of the packets sent that switches trim.
    Trimmed,
    /// Likewise, dropped or lost.
    Dropped,
    /// Likewise, sent again.
    Again,
    /// Time-outs of senders.
    Timeouts,
    /// Pauses that switches asked for (PFC).
    Pauses,
    /// Time that priorities of ports and cards were held, summed over all.
    Paused,
    /// Error by the closed form.
    Nmse,
    /// Time to the accuracy that a training aims at.
    ToTarget,
    /// Median time of a step.
    StepP50,
    /// What 99 in 100 steps keep to.
    StepP99,
    /// At the end of a training.
    Accuracy,
    /// Of the sums of gradients, measured.
    SumsNmse,
}

/// How a figure is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds, written in ms.
    Time,
    /// A share, written in per cent.
    Share,
    /// A count.
    Number,
    /// Of the ideal.
    Ratio,
    /// In powers of ten.
    Error,
}

impl Measure {
    /// Head of its column.
    pub fn title(self) -> &'static str {
        match self {
            Self::Mean => "mean, ms",
            Self::P50 => "median, ms",
            Self::P99 => "p99, ms",
            Self::P999 => "p99.9, ms",
            Self::Max => "slowest, ms",
            Self::MaxOfIdeal => "slowest, of the ideal",
            Self::P50OfIdeal => "median, of the ideal",
            Self::Completion => "all, ms",
            Self::Trimmed => "trimmed",
            Self::Dropped => "dropped",
            Self::Again => "sent again",
            Self::Timeouts => "time-outs",
            Self::Pauses => "pauses",
            Self::Paused => "held, ms",
            Self::Nmse => "NMSE",
            Self::ToTarget => "to the target, ms",
            Self::StepP50 => "step p50, ms",
            Self::StepP99 => "step p99, ms",
            Self::Accuracy => "accuracy",
            Self::SumsNmse => "NMSE of sums",
        }
    }

    /// How it is written.
    pub fn unit(self) -> Unit {
        match self {
            Self::Mean
            | Self::P50
            | Self::P99
            | Self::P999
            | Self::Max
            | Self::Completion
            | Self::Paused
            | Self::ToTarget
            | Self::StepP50
            | Self::StepP99 => Unit::Time,
            Self::MaxOfIdeal | Self::P50OfIdeal => Unit::Ratio,
            Self::Timeouts | Self::Pauses => Unit::Number,
            Self::Trimmed | Self::Dropped | Self::Again | Self::Accuracy => Unit::Share,
            Self::Nmse | Self::SumsNmse => Unit::Error,
        }
    }

    /// Of a run; none where it has none, as a training that never reached its target.
    pub fn of(self, run: &RunReport) -> Option<f64> {
        let trained = run.training.as_ref();
        match self {
            Self::Mean => run.fct_mean_s,
            Self::P50 => run.fct_p50_s,
            Self::P99 => run.fct_p99_s,
            Self::P999 => run.fct_p999_s,
            Self::Max => run.fct_max_s,
            Self::MaxOfIdeal => Some(run.fct_max_s? / run.ideal_s),
            Self::P50OfIdeal => Some(run.fct_p50_s? / run.ideal_s),
            Self::Completion => run.completion_s,
            Self::Trimmed => Some(run.trimmed_share),
            Self::Dropped => Some(run.dropped_share),
            Self::Again => Some(run.repaired_share),
            Self::Timeouts => Some(run.timeouts as f64),
            Self::Pauses => Some(run.pauses as f64),
            Self::Paused => Some(run.paused_s),
            Self::Nmse => run.nmse,
            Self::ToTarget => trained?.seconds_to_target,
            Self::StepP50 => Some(trained?.step_p50_s),
            Self::StepP99 => Some(trained?.step_p99_s),
            Self::Accuracy => Some(trained?.accuracy),
            Self::SumsNmse => Some(trained?.nmse),
        }
    }
}

/// What a paper says of one run beside another.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// In words.
    pub says: String,
    /// The run that it is about.
    pub run: String,
    /// The run that it is compared with.
    pub beside: String,
    /// Of which figure.
    pub of: Measure,
    /// The paper's number: by how many per cent `run`'s figure differs, negative where it is less.
    pub paper: f64,
}

/// Columns of a scenario that names none.
pub(super) fn columns() -> Vec<Measure> {
    use Measure::{Again, Dropped, Max, Mean, Nmse, P99, Trimmed};
    vec![Mean, P99, Max, Trimmed, Dropped, Again, Nmse]
}
