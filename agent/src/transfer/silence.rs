// SPDX-License-Identifier: Apache-2.0
//! Data is in flight, and no ACKs come.
//!
//! A dropping switch may drop all packets of one rank and none of another. The rank hears of no
//! loss, since later arrivals show losses. It asks early, as a tail loss probe does (RFC 8985 §7,
//! RFC 9002 §6.2), and less often with each question in vain.

use super::backoff;
use super::path::PathEstimate;
use crate::config::TimeoutConfig;
use crate::rate::{Feedback, RateAlgorithm};

/// Of one message.
#[derive(Debug, Default)]
pub struct Silence {
    /// When something was heard last, or the first packet of what is on its way left.
    since_ns: u64,
    /// Questions since.
    asked: u32,
}

impl Silence {
    /// A packet leaves, and nothing else is on its way.
    pub fn begin(&mut self, now_ns: u64) {
        self.since_ns = self.since_ns.max(now_ns);
    }

    /// Packets have arrived.
    pub fn end(&mut self, now_ns: u64) {
        (self.since_ns, self.asked) = (now_ns, 0);
    }

    /// A question is due.
    pub fn asked(&mut self) {
        self.asked = self.asked.saturating_add(1);
    }

    /// When it began.
    pub fn since_ns(&self) -> u64 {
        self.since_ns
    }

    /// How long to wait for news before asking, from now on.
    pub fn ask_after_ns(&self, estimate: &PathEstimate, timeouts: &TimeoutConfig) -> u64 {
        let most_ns = estimate.answer_timeout_ns(0, timeouts);
        estimate.silence_ns(timeouts).map_or(most_ns, |silence_ns| backoff(silence_ns, self.asked, most_ns))
    }
}

/// When the rate algorithm last reduced the rate, and which losses it need not hear of because of
/// that.
#[derive(Debug, Default)]
pub struct Slowdown {
    at_ns: u64,
}

/// A rate that fell to this part of itself was reduced for good cause. (Algorithms take a little
/// off in many rounds; that does not answer a burst of losses.)
const SLOWED: (u128, u128) = (3, 4);

impl Slowdown {
    /// When the algorithm last took a quarter of its rate or more.
    pub fn at_ns(&self) -> u64 {
        self.at_ns
    }

    /// Hands feedback to the rate algorithm without `answered` of the losses: those of packets that
    /// left before [`at_ns`](Self::at_ns). The rate has fallen for what a queue dropped; it would
    /// fall again for what the same queue dropped later, which is found out afterwards (RFC 9002
    /// §7.3.2).
    pub fn tell(&mut self, algorithm: &mut dyn RateAlgorithm, feedback: &Feedback, answered: u32) {
        let before_bps = u128::from(algorithm.rate_bps());
        algorithm.on_feedback(&Feedback { lost: feedback.lost.saturating_sub(answered), ..*feedback });
        if u128::from(algorithm.rate_bps()) * SLOWED.1 <= before_bps * SLOWED.0 {
            self.at_ns = feedback.now_ns;
        }
    }
}
