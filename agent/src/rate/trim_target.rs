//! Steady slight over-sending: a share of the packets is to be cut.

use super::round::{Round, Rounds};
use super::{Feedback, Limits, PathModel, Rate, RateLaw};

/// Parameters of [`TrimTarget`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrimTargetConfig {
    /// The share of packets that are cut while a flow rests close to line rate, in (0, 1]; at an nth of it √n times as much.
    pub target: f64,
    /// Strength of the decrease for cut and lost packets, in (0, 1].
    pub beta: f64,
    /// Start, increase (default: β · target of the line rate), least rate.
    pub limits: Limits,
}

impl Default for TrimTargetConfig {
    fn default() -> Self {
        Self { target: 0.01, beta: 0.8, limits: Limits::default() }
    }
}

/// Trimmable-gradients §5.3: "always slightly under-compress and over-send so that the gradient traffic always saturates the link".
/// The paper gives the goal, not a law. Steering every flow to one share of cut packets would not do: flows in one queue all see about
/// the same share, so that any division of the link is at rest, and the smallest difference between them decides. This is
/// per round, x being the share that was cut or lost:
///
/// r ← r + β · target · √(r · line) − β x r
///
/// It rests where x = target · √(line / r), which for one x is one rate. Rounds of slow flows last longer than a round trip and add more
/// ([`ROUND_PACKETS`](super::ROUND_PACKETS)), so that many flows are cut more than that.
#[derive(Debug, Clone)]
pub struct TrimTarget {
    config: TrimTargetConfig,
    rate: Rate,
    rounds: Rounds,
}

/// Reductions below this are answered round by round.
const WAIT_FROM: f64 = 0.1;

impl TrimTarget {
    /// A law for one path.
    pub fn new(config: TrimTargetConfig, path: &PathModel) -> Self {
        let increase = config.beta * config.target * path.line_rate_bps as f64;
        let increase_bps = config.limits.increase_bps.or(Some(increase as u64));
        let limits = Limits { increase_bps, ..config.limits };
        Self { config, rate: Rate::new(&limits, path), rounds: Rounds::new(path) }
    }

    fn on_round(&mut self, now_ns: u64, round: &Round) {
        let share = (round.cut + round.lost).min(round.packets) / round.packets;
        if share == 0.0 {
            let increase = self.rate.calm_increase(round);
            return self.rate.set(self.rate.bps + increase);
        }
        let increase = round.increase_weight * self.rate.increase() / self.rate.bps;
        let decrease = self.config.beta * share;
        if increase >= round.weight * decrease {
            self.rate.congested();
            self.rate.set(self.rate.bps * (1.0 + increase - round.weight * decrease));
        } else {
            self.rate.reduce(decrease - increase / round.weight, round.weight);
            if decrease >= WAIT_FROM {
                self.rounds.wait_for_effect(now_ns, share);
            }
        }
    }
}

impl RateLaw for TrimTarget {
    fn on_feedback(&mut self, feedback: &Feedback) {
        if let Some(round) = self.rounds.take(feedback) {
            self.on_round(feedback.now_ns, &round);
        }
    }

    fn rate_bps(&self) -> u64 {
        self.rate.bps as u64
    }
}
