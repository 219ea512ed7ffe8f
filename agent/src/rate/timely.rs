// SPDX-License-Identifier: Apache-2.0
//! Delay: TIMELY as MLT uses it, with what a trimmed packet says about the queue.

use super::loss::Losses;
use super::round::{Round, Rounds};
use super::{Feedback, Limits, PathModel, Rate, RateAlgorithm};

/// Parameters of [`Timely`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimelyConfig {
    /// Below this round-trip time the rate always rises, ns. `None`: the least round trip, plus a
    /// quarter of the path's trim delay, plus the hosts' jitter.
    pub t_low_ns: Option<u64>,
    /// Above this round-trip time the rate always falls, ns. `None`: likewise, with three quarters.
    pub t_high_ns: Option<u64>,
    /// Strength of the decrease above `T_high` and for trimmed and lost packets, in [0, 1] (MLT
    /// §4.2.3).
    pub beta: f64,
    /// What the rate does between the thresholds.
    pub between: Between,
    /// Share of packets that may vanish without being taken for congestion while the delay is low.
    /// Links with gray failures lose 0.01 to 1 % at random (MLT §6.3); slowing down does not help
    /// against that.
    pub loss_tolerance: f64,
    /// Start, increase, least rate.
    pub limits: Limits,
}

/// What [`Timely`] does between its thresholds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Between {
    /// Rises by the increase and falls by so much of how far the delay has gone from `T_low` to
    /// `T_high`, in [0, 1]: at rest at one rate only.
    Position(f64),
    /// TIMELY's gradient (Mittal et al., SIGCOMM 2015, Algorithm 1): rises while the delay falls or
    /// stays, falls by β times the gradient while it rises.
    Gradient,
}

impl Default for TimelyConfig {
    fn default() -> Self {
        Self {
            t_low_ns: None,
            t_high_ns: None,
            beta: 0.8,
            between: Between::Position(0.25),
            loss_tolerance: 0.01,
            limits: Limits::default(),
        }
    }
}

/// MLT §4.2.3 per round: + α below `T_low`, · (1 − β (1 − `T_high` / RTT)) above `T_high`. In
/// between TIMELY goes by the gradient alone ([`Between::Gradient`]), and any division of the link
/// is at rest there; so that only equal rates are, the default is patched TIMELY's rule (Zhu et
/// al., ECN or Delay, CoNEXT 2016, Algorithm 2): with w from 0 (delay falls) to 1 (rises), + α (1 −
/// w), and · (1 − β' w e), e being how far the delay has gone from `T_low` (0) to `T_high` (1). It
/// rests where α = β' r e, so the queue grows with the number of flows.
///
/// A trimmed packet has met a queue of at least the trim delay, and a lost one a full one, whatever
/// the others' round trips: their share x of a round takes it · (1 − β x), if that is the stronger.
#[derive(Debug, Clone)]
pub struct Timely {
    config: TimelyConfig,
    trim_delay_ns: f64,
    jitter_ns: f64,
    rate: Rate,
    rounds: Rounds,
    losses: Losses,
    gradient: Gradient,
}

/// How the delay changes (TIMELY §4.2).
#[derive(Debug, Clone, Copy, Default)]
struct Gradient {
    before_ns: Option<f64>,
    /// Smoothed difference of round trips.
    difference_ns: f64,
    /// Rounds in which it has not been above 0, one behind the other.
    falling: u32,
}

/// Weight of the newest difference (Zhu et al., CoNEXT 2016, Table 2: the published
/// implementation's).
const NEWEST: f64 = 0.875;
/// So many rounds without a rising delay make the increase five times as large (TIMELY §4.3.2).
const FALLING: u32 = 5;

impl Gradient {
    /// Takes a round's delay. The difference to the one before, smoothed, in parts of the least
    /// round trip.
    fn take(&mut self, rtt_ns: f64, least_ns: f64) -> f64 {
        let newest_ns = rtt_ns - self.before_ns.replace(rtt_ns).unwrap_or(rtt_ns);
        self.difference_ns = (1.0 - NEWEST) * self.difference_ns + NEWEST * newest_ns;
        let gradient = self.difference_ns / least_ns.max(1.0);
        self.falling = if gradient <= 0.0 { self.falling.saturating_add(1) } else { 0 };
        gradient
    }

    fn increases(&self) -> f64 {
        if self.falling >= FALLING { 5.0 } else { 1.0 }
    }
}

/// Of the trim delay, where the default thresholds lie.
const LOW: f64 = 0.5;
const HIGH: f64 = 1.0;
/// Reductions below this are answered round by round.
const WAIT_FROM: f64 = 0.1;

impl Timely {
    /// An algorithm for one path.
    pub fn new(config: TimelyConfig, path: &PathModel) -> Self {
        Self {
            config,
            trim_delay_ns: path.trim_delay_ns as f64,
            jitter_ns: path.host_jitter_ns as f64,
            rate: Rate::new(&config.limits, path),
            rounds: Rounds::new(path),
            losses: Losses::new(path),
            gradient: Gradient::default(),
        }
    }

    /// `T_low` and `T_high` as they stand, ns; `None` before a round trip was measured, unless both
    /// were given.
    pub fn thresholds_ns(&self) -> Option<(f64, f64)> {
        let by_path = |given: Option<u64>, share: f64| {
            let least = self.rounds.least_rtt_ns().map(|least| least as f64);
            given.map_or_else(
                || least.map(|least| least + share * self.trim_delay_ns + self.jitter_ns),
                |given| Some(given as f64),
            )
        };
        let low = by_path(self.config.t_low_ns, LOW)?;
        let high = by_path(self.config.t_high_ns, HIGH)?;
        Some((low, high.max(low + 1.0)))
    }

    fn on_round(&mut self, now_ns: u64, round: &Round) {
        let judged = self.losses.judge(now_ns, round, &mut self.rate);
        if judged.trial {
            return self.rounds.wait_for_effect(now_ns, 0.0);
        }
        let round = &judged.round;
        let weight = round.weight;
        let mut queueing = 0.0;
        let mut low_delay = false;
        if let (Some(rtt_ns), Some((low, high))) = (round.rtt_ns, self.thresholds_ns()) {
            low_delay = rtt_ns < low;
            let gradient =
                self.gradient.take(rtt_ns, self.rounds.least_rtt_ns().map_or(rtt_ns, |least| least as f64));
            let increase = round.increase_weight * self.rate.increase();
            if rtt_ns > high {
                queueing = self.config.beta * (1.0 - high / rtt_ns);
            } else if !low_delay {
                match self.config.between {
                    Between::Position(strength) => {
                        queueing = strength * (rtt_ns - low) / (high - low);
                        self.rate.set(self.rate.bps + increase);
                    }
                    Between::Gradient if gradient <= 0.0 => {
                        self.rate.set(self.rate.bps + self.gradient.increases() * increase);
                    }
                    Between::Gradient => queueing = self.config.beta * gradient.min(1.0),
                }
            }
        }
        let tolerated = if low_delay || round.rtt_ns.is_none() {
            self.config.loss_tolerance * round.packets
        } else {
            0.0
        };
        let share = (round.trimmed + (round.lost - tolerated).max(0.0)) / round.packets;
        if low_delay && share == 0.0 {
            let increase = self.rate.calm_increase(round);
            self.rate.set(self.rate.bps + increase);
            return;
        }
        let reduction = queueing.max(self.config.beta * share);
        // The gradient let it rise.
        if reduction == 0.0 && self.config.between == Between::Gradient {
            return;
        }
        self.rate.reduce(reduction, weight);
        if reduction >= WAIT_FROM {
            self.rounds.wait_for_effect(now_ns, share);
        }
    }
}

impl RateAlgorithm for Timely {
    fn on_feedback(&mut self, feedback: &Feedback) {
        self.losses.told(feedback.senders);
        if let Some(round) = self.rounds.take(feedback, self.rate.bps) {
            self.on_round(feedback.now_ns, &round);
        }
    }

    fn rate_bps(&self) -> u64 {
        self.rate.bps as u64
    }
}
