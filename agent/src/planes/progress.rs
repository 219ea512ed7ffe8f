// SPDX-License-Identifier: Apache-2.0
//! Ours, where what a step takes is to be weighed against what its error costs.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use trimwire_encoder::{Codec, Decoding, PLANES, expected_nmse};

use super::controller::Law;
use super::fit::{Line, fit};
use super::ladder::{packet_share, planes_within};
use super::step::Step;

/// The planes with which a job gets furthest in a second.
///
/// An unbiased compressor whose error is ω adds ω times a gradient's square to its variance, and
/// SGD takes up to 1 + ω times as many steps for it (Alistarh et al., *QSGD*, NIPS 2017, theorem
/// 3.2 and its consequences). The codec's ω is known for every number of planes, and what a step
/// would take with them follows from those that were measured: computation, and communication as a
/// constant and a slope. So the planes are those for which the product of both is least; no budget
/// is to be given.
///
/// Steps of one size do not tell the constant from the slope: when all that are remembered are, one
/// step is sent with a plane more, the next time with one less.
///
/// How fast they leave is answered apart, as by [`super::TrimFeedback`]: the *pace* falls to what
/// arrives where packets are trimmed or lost, and grows while they are not. A pace that falls makes
/// steps longer, which the planes answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Share of packets trimmed below which the pace grows.
    pub low: f64,
    /// Share of packets trimmed, or lost, above which it falls.
    pub high: f64,
    /// What a hop's error counts: up and down are one and, averaged over the ranks, a part of one.
    pub price: f64,
    /// Steps that the model of communication is made of.
    pub memory: u32,
    growth: f64,
    pace: f64,
    /// (Bytes, ns) of the last steps' communication.
    samples: VecDeque<(f64, f64)>,
    /// What communication takes whatever its bytes, ns, as known when steps of two sizes were among
    /// them.
    constant: f64,
    /// How often another size was tried.
    probes: u32,
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            low: 0.01,
            high: 0.05,
            price: 1.25,
            memory: 12,
            growth: SLOWEST,
            pace: 1.0,
            samples: VecDeque::new(),
            constant: 0.0,
            probes: 0,
        }
    }
}

/// Growth of the pace in the first step without trims, and at most.
const SLOWEST: f64 = 0.02;
const FASTEST: f64 = 0.32;
const LEAST_PACE: f64 = 0.001;
/// A step that took so many times as long as was expected, or a part of it, is of another network:
/// what was known of the one before is forgotten.
const OTHER: f64 = 1.5;
/// Planes change for at least so much.
const WORTH: f64 = 0.02;

impl Progress {
    /// Answers trims and losses.
    fn set_pace(&mut self, step: &Step) {
        if step.trimmed > self.high || step.lost > self.high {
            let trimmed = if step.trimmed > self.high { step.arrived } else { 1.0 };
            let lost = if step.lost > self.high { 1.0 - step.lost } else { 1.0 };
            self.pace = (self.pace * (trimmed * lost).max(0.1)).max(LEAST_PACE);
            self.growth = SLOWEST;
            self.forget();
        } else if step.trimmed < self.low {
            if self.pace < 1.0 {
                self.forget();
            }
            self.pace = (self.pace * (1.0 + self.growth)).min(1.0);
            self.growth = (2.0 * self.growth).min(FASTEST);
        } else {
            self.growth = SLOWEST;
        }
    }

    /// At another pace, what was measured takes another time.
    fn forget(&mut self) {
        self.samples.clear();
        self.constant = 0.0;
    }

    /// Takes a step's communication: what so many bytes take, as far as is known.
    fn learn(&mut self, bytes: f64, delay: f64) -> Line {
        if self.samples.iter().any(|(b, d)| {
            let expected =
                if *b > 0.0 { self.constant + (d - self.constant).max(0.0) * bytes / b } else { *d };
            *b == bytes && (delay > OTHER * expected || delay * OTHER < expected)
        }) {
            self.forget();
        }
        self.samples.push_back((bytes, delay));
        while self.samples.len() > self.memory.max(2) as usize {
            self.samples.pop_front();
        }
        let samples = self.samples.make_contiguous();
        if let Some(line) = fit(samples) {
            self.constant = line.constant;
            return line;
        }
        let mean = samples.iter().map(|(_, delay)| delay).sum::<f64>() / samples.len().max(1) as f64;
        let constant = self.constant.min(0.9 * mean);
        Line { constant, slope: (mean - constant) / bytes, worst: 0.0 }
    }
}

impl Law for Progress {
    fn name(&self) -> &'static str {
        "progress"
    }

    fn pace(&self) -> f64 {
        self.pace
    }

    fn next(&mut self, ratio: f64, step: &Step) -> f64 {
        self.set_pace(step);
        let line = self.learn(step.bytes as f64, step.delay_ns as f64);
        // Nothing is known of computation after the first step.
        if step.compute_ns == 0 {
            return ratio;
        }
        let sent = planes_within(ratio * (1.0 + 1e-9)).unwrap_or(1);
        let whole = step.bytes as f64 / packet_share(sent);
        let cost = |planes: u8| {
            let error = expected_nmse(Codec::Rht, Decoding::Unbiased, &[(planes, 1.0)]);
            let seconds = step.compute_ns as f64 + line.constant + line.slope * whole * packet_share(planes);
            seconds * (1.0 + self.price * error)
        };
        let best = (1..=PLANES).min_by(|a, b| cost(*a).total_cmp(&cost(*b))).unwrap_or(sent);
        if cost(best) < cost(sent) * (1.0 - WORTH) {
            return packet_share(best);
        }
        let bytes = self.samples.back().map_or(0.0, |(bytes, _)| *bytes);
        if self.samples.len() >= self.memory.max(2) as usize && self.samples.iter().all(|(b, _)| *b == bytes)
        {
            self.probes = self.probes.wrapping_add(1);
            let other = if self.probes % 2 == 1 { sent + 1 } else { sent.saturating_sub(1) };
            return packet_share(other.clamp(1, PLANES));
        }
        ratio
    }
}
