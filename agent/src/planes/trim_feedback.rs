// SPDX-License-Identifier: Apache-2.0
//! Ours: as much as arrives with a few percent trimmed.

use serde::{Deserialize, Serialize};

use super::controller::Law;
use super::step::Step;

/// Closed loop on what switches do to packets.
///
/// A trim tells what a delay does not: how much of what was sent there was room for. So a ratio
/// that was too great is set right in one step, not halved until it fits: what arrived of a step
/// *is* the ratio that would have. Between `low` and `high` the ratio stays: the few percent of
/// trims are what tells that the network is full, at the price of the least significant planes of a
/// few packets. Below, it grows by a share that doubles up to `fastest` while nothing is trimmed.
///
/// Fewer planes alone would change nothing: a sender that goes on at the line's rate sends shorter
/// packets the faster, and a port that has a tenth of the line trims as many of them. So the *pace*
/// falls with the ratio: packets leave as far apart as before, a step takes as long, and what is
/// left out makes room. Both grow together again; planes that are left out for the budget's sake
/// leave the pace as it is. Losses, where a switch drops instead, are answered alike.
///
/// Bursts come and go in microseconds, which is what trims are for: the trimmed share is smoothed
/// over `memory` steps before it is answered.
///
/// Where nothing trims (a switch without trimming, a slow card), a full network shows as delay
/// only, and delay says nothing of what users can bear: with `budget_ns`, what computing hides or a
/// user tolerates, a step that took longer is scaled to it, and one that nearly did does not grow.
/// Without, delays are not looked at.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrimFeedback {
    /// Trimmed share below which the ratio grows.
    pub low: f64,
    /// Trimmed share above which it falls to what arrives.
    pub high: f64,
    /// Steps over which trims are smoothed.
    pub memory: f64,
    /// Greatest growth of a step.
    pub fastest: f64,
    /// Time that a step's communication may take, ns.
    pub budget_ns: Option<u64>,
    growth: f64,
    /// Share of the line's rate, above 0, up to 1.
    pace: f64,
    smoothed: Option<[f64; 2]>,
}

/// Growth of the first step below `low`.
const SLOWEST: f64 = 0.02;
/// Least share of the line's rate.
const LEAST_PACE: f64 = 0.001;

impl Default for TrimFeedback {
    fn default() -> Self {
        Self {
            low: 0.01,
            high: 0.05,
            memory: 2.0,
            fastest: 0.32,
            budget_ns: None,
            growth: SLOWEST,
            pace: 1.0,
            smoothed: None,
        }
    }
}

impl TrimFeedback {
    /// The same with a budget of time, ns.
    #[must_use]
    pub fn within(mut self, budget_ns: u64) -> Self {
        self.budget_ns = Some(budget_ns.max(1));
        self
    }

    /// Starts smoothing anew: what was measured belongs to another ratio.
    fn settle(&mut self) {
        self.growth = SLOWEST;
        self.smoothed = None;
    }
}

impl Law for TrimFeedback {
    fn name(&self) -> &'static str {
        "trim-feedback"
    }

    fn pace(&self) -> f64 {
        self.pace
    }

    fn next(&mut self, ratio: f64, step: &Step) -> f64 {
        let weight = 1.0 / self.memory.max(1.0);
        let now = [step.trimmed, step.arrived];
        let [trimmed, arrived] = match self.smoothed {
            None => now,
            Some(before) => [0, 1].map(|i| before[i] + weight * (now[i] - before[i])),
        };
        self.smoothed = Some([trimmed, arrived]);
        // 1 where the budget is used up.
        let used = self.budget_ns.map_or(0.0, |budget| step.delay_ns as f64 / budget as f64);
        if trimmed > self.high || step.lost > self.high || used > 1.0 {
            let fits = if trimmed > self.high { arrived } else { 1.0 };
            // What was trimmed says how much there is room for; what was lost only that there was
            // too much: a burst that even heads did not fit into is soon over.
            let fits = if step.lost > self.high { fits * (1.0 - step.lost).max(0.5) } else { fits }.max(0.1);
            self.settle();
            self.pace = (self.pace * fits).max(LEAST_PACE);
            // Round trips and heads do not shrink with the ratio, so a delay is not scaled by more
            // than half at a time.
            return ratio * fits.min((1.0 / used).clamp(0.5, 1.0)).max(0.1);
        }
        if trimmed >= self.low {
            self.growth = SLOWEST;
            return ratio;
        }
        let growth = self.growth.min(self.fastest);
        // Not beyond the budget, if delay grows as the ratio does.
        let room = if used > 0.0 { (0.95 / used - 1.0).max(0.0) } else { f64::INFINITY };
        self.growth = (2.0 * growth).min(self.fastest);
        self.pace = (self.pace * (1.0 + growth)).min(1.0);
        ratio * (1.0 + growth.min(room))
    }
}
