// SPDX-License-Identifier: Apache-2.0
//! Rate algorithms: what the receivers' reports say about the path, turned into a sending rate per
//! peer.
//!
//! ```text
//!  report (ACK, STATUS, STOP) ─► Feedback ─► Rounds: one round trip's reports taken together ─► an algorithm's step ─► bit/s
//! ```
//!
//! Every algorithm takes one step per round trip, or per [`ROUND_PACKETS`] packets where a round
//! trip has fewer, so that the number of reports does not change what it does.
//! docs/explanation/rates.md says which algorithm is for what, and shows them in virtual time.
#![forbid(unsafe_code)]

mod dctcp;
mod loss;
mod round;
mod share;
#[cfg(test)]
mod tests;
mod timely;

pub use dctcp::{Dctcp, DctcpConfig};
pub use round::ROUND_PACKETS;
pub use timely::{Between, Timely, TimelyConfig};

use std::num::NonZeroU16;

/// What the receiver's report (ACK, STATUS or STOP) tells about the packets since the one before.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Feedback {
    /// When the report arrived.
    pub now_ns: u64,
    /// Round trip of the newest whole packet, if one arrived whole and its time is unambiguous
    /// (Karn). Trimmed packets travel in the trim queue: their delay says nothing about the data
    /// queue.
    pub rtt_ns: Option<u64>,
    /// Packets newly known to have arrived (trimmed ones included).
    pub arrived: u32,
    /// Of these, trimmed by the network (planes that the sender left out do not count).
    pub trimmed: u32,
    /// Of these, with CE in the IP header.
    pub marked: u32,
    /// Packets newly found to be lost.
    pub lost: u32,
    /// Frames of the packets that arrived or were lost, as long as they left, bytes; 0 where the
    /// sender does not count them. Algorithms tell by it whether the rate was used.
    pub bytes: u64,
    /// Peers from which messages are arriving at the receiver, this one among them; `None` where it
    /// does not tell.
    pub senders: Option<NonZeroU16>,
    /// The receiver wants every plane: what is trimmed is sent again.
    pub repaired: bool,
}

/// An algorithm that sets the sending rate to one peer.
pub trait RateAlgorithm: std::fmt::Debug + Send {
    /// Takes one report. Any values are taken: counts that contradict each other are clamped, times
    /// that run backwards count as none.
    fn on_feedback(&mut self, feedback: &Feedback);

    /// The rate at which data may leave, bit/s of whole frames; at least 1.
    fn rate_bps(&self) -> u64;
}

/// What an algorithm may know of the path in advance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathModel {
    /// Speed of the slowest link on an idle path, bit/s. No algorithm goes above it.
    pub line_rate_bps: u64,
    /// Time that a full queue takes below which nothing is trimmed, ns: the ladder's `shallow_at` /
    /// line rate. Without trimming: from where a queue is too long, as `mark_at`.
    pub trim_delay_ns: u64,
    /// What the host adds to a round trip, ns: timers, scheduler (0 on hardware and in virtual
    /// time).
    pub host_jitter_ns: u64,
    /// This sender's part of the receiver's link when all who may send to it at once do, bit/s: of
    /// W ranks the W − 1st part of its speed. `None` where nobody knows.
    pub planned_bps: Option<u64>,
}

/// The fabric file's default `shallow_at` of packets that are less important
/// (docs/reference/fabric-file.md).
const DEFAULT_TRIM_DELAY_NS: u64 = 20_000;

impl PathModel {
    /// A path with the fabric file's default ladder, and hosts without jitter.
    pub fn new(line_rate_bps: u64) -> Self {
        Self { line_rate_bps, trim_delay_ns: DEFAULT_TRIM_DELAY_NS, host_jitter_ns: 0, planned_bps: None }
    }
}

/// Which algorithm to use, with its parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RateConfig {
    /// A constant rate in bit/s; `None` is the line rate.
    Fixed(Option<u64>),
    /// Delay: [`Timely`].
    Timely(TimelyConfig),
    /// ECN marks: [`Dctcp`].
    Dctcp(DctcpConfig),
}

impl RateConfig {
    /// An algorithm for one peer.
    pub fn build(&self, path: &PathModel) -> Box<dyn RateAlgorithm> {
        match *self {
            Self::Fixed(rate) => Box::new(Fixed::new(rate, path)),
            Self::Timely(config) => Box::new(Timely::new(config, path)),
            Self::Dctcp(config) => Box::new(Dctcp::new(config, path)),
        }
    }
}

/// A constant rate.
#[derive(Debug, Clone)]
pub struct Fixed {
    rate_bps: u64,
}

impl Fixed {
    /// `None` is the path's line rate; 0 counts as 1 bit/s.
    pub fn new(rate_bps: Option<u64>, path: &PathModel) -> Self {
        Self { rate_bps: rate_bps.unwrap_or(path.line_rate_bps).max(1) }
    }
}

impl RateAlgorithm for Fixed {
    fn on_feedback(&mut self, _: &Feedback) {}

    fn rate_bps(&self) -> u64 {
        self.rate_bps
    }
}

/// Where an algorithm starts, what it adds and what it never leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// First rate, bit/s; `None`: the line rate. A gradient of few packets is through before the
    /// first report: what does not fit is trimmed (Homa and NDP start so too).
    pub start_bps: Option<u64>,
    /// Increase per round at line rate, bit/s; `None`: 1/250 of the line rate, at 10 Gbit/s MLT
    /// §4.2.3's 40 Mbit/s. At the rate r it is √(r / line) of that.
    pub increase_bps: Option<u64>,
    /// Least rate, bit/s; `None`: 1/1000 of the line rate. A flow that sends nothing hears nothing
    /// either.
    pub min_rate_bps: Option<u64>,
}

/// A rate within its limits.
#[derive(Debug, Clone, Copy)]
struct Rate {
    bps: f64,
    min_bps: f64,
    line_bps: f64,
    increase_bps: f64,
    /// Rounds and time without congestion.
    calm: u32,
    calm_ns: u64,
    /// The rate at which the last congestion began.
    congested_bps: f64,
}

/// Increases grow after so many rounds and so many round trips without congestion, up to so many
/// times (TIMELY, Mittal et al., SIGCOMM 2015, §5.2: hyperactive increase), as far as the increase
/// stays below this share of the rate: many slow flows would overshoot together, a round before
/// they hear of it. Rounds alone would favour fast flows: theirs are short, and five of them fit
/// where a queue is briefly empty.
const HYPERACTIVE_AFTER: u32 = 5;
const HYPERACTIVE_ROUND_TRIPS: u64 = 50;
/// And only above this much of the rate that was congested last: below, the capacity is known.
const HYPERACTIVE_ABOVE: f64 = 1.05;
const HYPERACTIVE_MOST: f64 = 5.0;
const HYPERACTIVE_SHARE: f64 = 1.0 / 8.0;

/// What a round leaves of the way back, where the last congestion was others' and they have gone.
const RECOVERY: f64 = 0.5;

impl Rate {
    fn new(limits: &Limits, path: &PathModel) -> Self {
        let line = path.line_rate_bps.max(1);
        let min = limits.min_rate_bps.unwrap_or(line / 1_000).clamp(1, line);
        let start = limits.start_bps.unwrap_or(line).clamp(min, line);
        let increase = limits.increase_bps.unwrap_or(line / 250).max(1);
        Self {
            bps: start as f64,
            min_bps: min as f64,
            line_bps: line as f64,
            increase_bps: increase as f64,
            calm: 0,
            calm_ns: 0,
            congested_bps: 0.0,
        }
    }

    /// The increase of one round, bit/s. A constant one is too much for many flows on a link, and
    /// too little for few; one in proportion to the rate never makes rates equal. With the square
    /// root, slow flows gain on fast ones, and the link's flows together add √n of what one would.
    fn increase(&self) -> f64 {
        self.increase_bps * (self.bps / self.line_bps).sqrt()
    }

    /// The increase of one more round (all of it) without congestion, bit/s.
    fn calm_increase(&mut self, round: &round::Round) -> f64 {
        self.calm = self.calm.saturating_add(1);
        self.calm_ns = self.calm_ns.saturating_add(round.used_ns);
        let long = self.calm_ns / HYPERACTIVE_ROUND_TRIPS >= round.newest_rtt_ns
            && self.bps >= HYPERACTIVE_ABOVE * self.congested_bps;
        let more = if long { self.calm.saturating_sub(HYPERACTIVE_AFTER) } else { 0 };
        let times = (1.0 + f64::from(more)).min(HYPERACTIVE_MOST);
        let once = self.increase();
        round.increase_weight
            * (times * once).min(HYPERACTIVE_SHARE * self.bps / round.increase_weight).max(once)
    }

    /// What a round without congestion gives back of what is missing of a rate, bit/s: half of it
    /// (DCQCN's fast recovery, Zhu et al., *Congestion Control for Large-Scale RDMA Deployments*,
    /// SIGCOMM 2015, §3.1). For algorithms to use where they know that its cause has gone: among
    /// flows that answer to each other unequal rates would stay unequal.
    fn recovery(&self, round: &round::Round, target_bps: f64) -> f64 {
        let kept = RECOVERY.powf(round.increase_weight);
        (target_bps - self.bps).max(0.0) * (1.0 - kept)
    }

    /// Keeps the rate a number within its limits, whatever was computed.
    fn set(&mut self, bps: f64) {
        if !bps.is_nan() {
            self.bps = bps.clamp(self.min_bps, self.line_bps);
        }
    }

    /// Whether the last round was without congestion.
    fn is_calm(&self) -> bool {
        self.calm > 0
    }

    fn congested(&mut self) {
        if self.calm > 0 {
            self.congested_bps = self.bps;
        }
        (self.calm, self.calm_ns) = (0, 0);
    }

    /// Takes a share in [0, 1) off, `weight` rounds at once: 1 − share for one, and less than its
    /// power for many.
    fn reduce(&mut self, share: f64, weight: f64) {
        self.congested();
        let share = share.clamp(0.0, 0.99);
        self.set(self.bps / (1.0 + weight * share / (1.0 - share)));
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
