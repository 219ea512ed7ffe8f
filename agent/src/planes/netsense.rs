// SPDX-License-Identifier: Apache-2.0
//! NetSenseML, algorithm 1: keep what is sent below the bandwidth-delay product.

use serde::{Deserialize, Serialize};

use super::controller::Law;
use super::extremes::Greatest;
use super::step::Step;

/// NetSenseML §4.1.
///
/// Start-up raises the ratio by β₁ a step until a packet is lost or the round trip is excessive;
/// from then on BtlBw, the greatest EBB, times RTprop, the least RTT, is the BDP. A step that sent
/// more than 0.9 of it multiplies the ratio by α, another one adds β₂.
///
/// The paper gives α, β₂, 0.9, the first ratio (0.01) and the floor (0.005). It does not say what
/// β₁ is, from where on an RTT is excessive, or over how many intervals the extremes are taken;
/// ours are β₁ = 0.05, twice RTprop, and the last 10 intervals for both, BBR's window for BtlBw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NetSense {
    /// What start-up adds a step.
    pub beta1: f64,
    /// What a step below the BDP adds.
    pub beta2: f64,
    /// What a step above it multiplies by.
    pub alpha: f64,
    /// Share of the BDP that may be sent.
    pub share: f64,
    /// Multiple of RTprop from which an RTT ends start-up.
    pub excessive: f64,
    starting: bool,
    bandwidth: Greatest,
    /// Negative round trips.
    round_trip: Greatest,
}

impl NetSense {
    /// The ratio of the first step.
    pub const FIRST: f64 = 0.01;
    /// The least ratio.
    pub const FLOOR: f64 = 0.005;

    /// The paper's parameters, with extremes of the last `window` intervals.
    pub fn new(window: u32) -> Self {
        Self {
            beta1: 0.05,
            beta2: 0.01,
            alpha: 0.5,
            share: 0.9,
            excessive: 2.0,
            starting: true,
            bandwidth: Greatest::of_last(window),
            round_trip: Greatest::of_last(window),
        }
    }

    /// The same, knowing nothing of the network, with extremes of the last `window` intervals.
    #[must_use]
    pub fn over(mut self, window: u32) -> Self {
        self.starting = true;
        self.bandwidth = Greatest::of_last(window);
        self.round_trip = Greatest::of_last(window);
        self
    }

    /// Whether the network's limit has not been met yet.
    pub fn is_starting(&self) -> bool {
        self.starting
    }
}

impl Default for NetSense {
    fn default() -> Self {
        Self::new(10)
    }
}

impl Law for NetSense {
    fn name(&self) -> &'static str {
        "netsense"
    }

    fn next(&mut self, ratio: f64, step: &Step) -> f64 {
        let round_trip = step.delay_ns as f64;
        let bottleneck = self.bandwidth.push(step.bandwidth());
        let propagation = -self.round_trip.push(-round_trip);
        if self.starting {
            if step.lost == 0.0 && round_trip <= self.excessive * propagation {
                return (ratio + self.beta1).min(1.0);
            }
            self.starting = false;
        }
        if step.bytes as f64 > self.share * bottleneck * propagation {
            (ratio * self.alpha).max(Self::FLOOR)
        } else {
            (ratio + self.beta2).min(1.0)
        }
    }
}
