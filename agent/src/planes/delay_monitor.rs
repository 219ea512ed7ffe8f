// SPDX-License-Identifier: Apache-2.0
//! DC2's delay monitor: d, m, a and r over the last steps.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// What the monitor says of step j, all in ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Delays {
    /// d_j, this step's delay.
    pub delay: f64,
    /// m_j, the least delay so far.
    pub least: f64,
    /// a_j, the mean of d_j … d_{j−w}.
    pub mean: f64,
    /// r_j, the mean difference between neighbours among them.
    pub trend: f64,
}

/// DC2 §IV. "The previous w samples (d_j, …, d_{j−w})" are w + 1 delays and w differences; before
/// there are as many, those there are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DelayMonitor {
    window: u32,
    least: Option<u64>,
    delays: VecDeque<u64>,
}

impl DelayMonitor {
    /// Means over the last `window` steps; the paper's are 50.
    pub fn new(window: u32) -> Self {
        Self { window: window.max(1), least: None, delays: VecDeque::new() }
    }

    /// Takes a step's delay.
    pub fn push(&mut self, delay_ns: u64) -> Delays {
        self.delays.push_back(delay_ns);
        while self.delays.len() > self.window as usize + 1 {
            self.delays.pop_front();
        }
        let least = self.least.map_or(delay_ns, |least| least.min(delay_ns));
        self.least = Some(least);
        let count = self.delays.len() as f64;
        // Differences of neighbours add up to the last less the first.
        let first = self.delays.front().copied().unwrap_or(delay_ns) as f64;
        let trend = if count > 1.0 { (delay_ns as f64 - first) / (count - 1.0) } else { 0.0 };
        Delays {
            delay: delay_ns as f64,
            least: least as f64,
            mean: self.delays.iter().map(|delay| *delay as f64).sum::<f64>() / count,
            trend,
        }
    }
}

impl Default for DelayMonitor {
    fn default() -> Self {
        Self::new(50)
    }
}
