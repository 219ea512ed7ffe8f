//! Rate laws: what an acknowledgement says about the path, turned into a sending rate per peer.
#![forbid(unsafe_code)]

/// What one ACK tells the sender.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Feedback {
    /// When the ACK arrived.
    pub now_ns: u64,
    /// Round-trip time of the newest *whole* packet the receiver has. `None` where every packet since the last
    /// ACK was cut (cut packets travel in the trim queue, so their delay says nothing about the data queue) or
    /// where the echoed packet had been sent twice (Karn's algorithm).
    pub rtt_ns: Option<u64>,
    /// Share of the packets since the last ACK that arrived cut, in [0, 1].
    pub trimmed_share: f32,
}

/// A law that sets the sending rate to one peer.
pub trait RateLaw: std::fmt::Debug + Send {
    /// Takes the feedback of one ACK.
    fn on_ack(&mut self, feedback: Feedback);

    /// The rate at which data may leave, bit/s of whole frames.
    fn rate_bps(&self) -> u64;
}

/// Which law to use, with its parameters.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RateConfig {
    /// A constant rate in bit/s; `None` is the line rate.
    Fixed(Option<u64>),
    /// Delay gradient: [`Timely`].
    Timely(TimelyConfig),
    /// Steady slight over-sending: [`TrimTarget`].
    TrimTarget(TrimTargetConfig),
}

impl RateConfig {
    /// A law for one peer that starts at `line_rate_bps`.
    pub fn build(&self, line_rate_bps: u64) -> Box<dyn RateLaw> {
        match *self {
            Self::Fixed(rate) => Box::new(Fixed { rate_bps: rate.unwrap_or(line_rate_bps) }),
            Self::Timely(config) => Box::new(Timely::new(config, line_rate_bps)),
            Self::TrimTarget(config) => Box::new(TrimTarget::new(config, line_rate_bps)),
        }
    }
}

/// A constant rate.
#[derive(Debug, Clone)]
pub struct Fixed {
    /// The rate, bit/s.
    pub rate_bps: u64,
}

impl RateLaw for Fixed {
    fn on_ack(&mut self, _: Feedback) {}

    fn rate_bps(&self) -> u64 {
        self.rate_bps
    }
}

/// Parameters of [`Timely`]. The defaults are MLT §4.2.3's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimelyConfig {
    /// Below this round-trip time the rate always rises, ns.
    pub t_low_ns: u64,
    /// Above this round-trip time the rate always falls, ns.
    pub t_high_ns: u64,
    /// Additive increase per ACK, bit/s.
    pub alpha_bps: u64,
    /// Strength of the multiplicative decrease, in [0, 1].
    pub beta: f64,
    /// The rate never falls below this, bit/s: a flow that sends nothing hears nothing either.
    pub min_rate_bps: u64,
}

impl Default for TimelyConfig {
    fn default() -> Self {
        Self {
            t_low_ns: 12_500,
            t_high_ns: 125_000,
            alpha_bps: 40_000_000,
            beta: 0.8,
            min_rate_bps: 40_000_000,
        }
    }
}

/// Weight of the newest difference in the smoothed RTT difference (TIMELY, Algorithm 1: `α`, evaluated at 0.875).
const GRADIENT_WEIGHT: f64 = 0.875;

/// MLT §4.2.3: starts at line rate; per ACK, `rate + α` if the RTT is below `T_low` or its gradient negative, and
/// `rate · (1 − β · (1 − T_high / RTT))` if the RTT is above `T_high`. Where both hold (a long queue that
/// shrinks) the paper does not say which wins; the decrease does, as in TIMELY's own Algorithm 1.
#[derive(Debug, Clone)]
pub struct Timely {
    config: TimelyConfig,
    line_rate_bps: u64,
    rate_bps: f64,
    previous_rtt_ns: Option<u64>,
    smoothed_difference_ns: f64,
}

impl Timely {
    /// A law at line rate.
    pub fn new(config: TimelyConfig, line_rate_bps: u64) -> Self {
        Self {
            config,
            line_rate_bps,
            rate_bps: line_rate_bps as f64,
            previous_rtt_ns: None,
            smoothed_difference_ns: 0.0,
        }
    }
}

impl RateLaw for Timely {
    fn on_ack(&mut self, feedback: Feedback) {
        let Some(rtt_ns) = feedback.rtt_ns.filter(|&rtt| rtt > 0) else { return };
        let config = &self.config;
        let difference = self.previous_rtt_ns.map_or(0.0, |previous| rtt_ns as f64 - previous as f64);
        self.previous_rtt_ns = Some(rtt_ns);
        self.smoothed_difference_ns =
            (1.0 - GRADIENT_WEIGHT) * self.smoothed_difference_ns + GRADIENT_WEIGHT * difference;
        if rtt_ns > config.t_high_ns && rtt_ns >= config.t_low_ns {
            self.rate_bps *= 1.0 - config.beta * (1.0 - config.t_high_ns as f64 / rtt_ns as f64);
        } else if rtt_ns < config.t_low_ns || self.smoothed_difference_ns < 0.0 {
            self.rate_bps += config.alpha_bps as f64;
        }
        self.rate_bps = within(self.rate_bps, config.min_rate_bps, self.line_rate_bps);
    }

    fn rate_bps(&self) -> u64 {
        self.rate_bps as u64
    }
}

/// Parameters of [`TrimTarget`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TrimTargetConfig {
    /// The share of packets that should arrive cut, in [0, 1].
    pub target: f64,
    /// Additive increase per ACK while fewer are cut, bit/s.
    pub alpha_bps: u64,
    /// Strength of the decrease when more are cut, in [0, 1].
    pub beta: f64,
    /// Weight of the newest ACK in the smoothed share, in (0, 1].
    pub weight: f64,
    /// The rate never falls below this, bit/s.
    pub min_rate_bps: u64,
}

impl Default for TrimTargetConfig {
    fn default() -> Self {
        Self { target: 0.03, alpha_bps: 40_000_000, beta: 0.5, weight: 0.125, min_rate_bps: 40_000_000 }
    }
}

/// Trimmable-gradients §5.3: "always slightly under-compress and over-send", so that the link is always full. The
/// rate rises by α per ACK while the smoothed share of cut packets is below the target, and falls in proportion
/// to the excess, `rate · (1 − β · weight · (share − target))`, above it. (The paper gives the goal, not a law.)
#[derive(Debug, Clone)]
pub struct TrimTarget {
    config: TrimTargetConfig,
    line_rate_bps: u64,
    rate_bps: f64,
    share: f64,
}

impl TrimTarget {
    /// A law at line rate.
    pub fn new(config: TrimTargetConfig, line_rate_bps: u64) -> Self {
        Self { config, line_rate_bps, rate_bps: line_rate_bps as f64, share: 0.0 }
    }
}

impl RateLaw for TrimTarget {
    fn on_ack(&mut self, feedback: Feedback) {
        let config = &self.config;
        let newest = f64::from(feedback.trimmed_share).clamp(0.0, 1.0);
        let newest = if newest.is_nan() { 0.0 } else { newest };
        self.share += config.weight * (newest - self.share);
        if self.share < config.target {
            self.rate_bps += config.alpha_bps as f64;
        } else {
            self.rate_bps *= 1.0 - config.beta * config.weight * (self.share - config.target);
        }
        self.rate_bps = within(self.rate_bps, config.min_rate_bps, self.line_rate_bps);
    }

    fn rate_bps(&self) -> u64 {
        self.rate_bps as u64
    }
}

/// Clamps to [min, max]; a minimum above the line rate is the line rate, and a rate that is not a number (from
/// parameters that are not) is the line rate too.
fn within(rate_bps: f64, min_bps: u64, max_bps: u64) -> f64 {
    if rate_bps.is_nan() {
        return max_bps as f64;
    }
    rate_bps.max(min_bps as f64).min(max_bps as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: u64 = 10_000_000_000;

    fn feed(law: &mut dyn RateLaw, rtts_ns: &[u64]) -> u64 {
        for &rtt_ns in rtts_ns {
            law.on_ack(Feedback { now_ns: 0, rtt_ns: Some(rtt_ns), trimmed_share: 0.0 });
        }
        law.rate_bps()
    }

    #[test]
    fn timely_starts_at_line_rate_and_never_exceeds_it() {
        let mut law = Timely::new(TimelyConfig::default(), LINE);
        assert_eq!(law.rate_bps(), LINE);
        assert_eq!(feed(&mut law, &[1_000; 50]), LINE);
    }

    #[test]
    fn timely_decreases_as_the_paper_prints_it() {
        // RTT = 250 µs: rate · (1 − 0.8 · (1 − 125/250)) = 0.6 · rate, every ACK, even while the delay shrinks.
        let mut law = Timely::new(TimelyConfig::default(), LINE);
        assert_eq!(feed(&mut law, &[250_000]), 6_000_000_000);
        let after = feed(&mut law, &[200_000]);
        assert_eq!(after, (6e9_f64 * (1.0 - 0.8 * (1.0 - 125.0 / 200.0))) as u64);
    }

    #[test]
    fn timely_increases_below_t_low_and_on_a_falling_delay_and_holds_otherwise() {
        let mut law = Timely::new(TimelyConfig::default(), LINE);
        feed(&mut law, &[250_000]);
        assert_eq!(feed(&mut law, &[10_000]), 6_040_000_000, "below T_low");
        let mut law = Timely::new(TimelyConfig::default(), LINE);
        feed(&mut law, &[250_000]);
        assert_eq!(feed(&mut law, &[100_000]), 6_040_000_000, "gradient < 0");
        let risen = feed(&mut law, &[110_000, 120_000]);
        assert_eq!(feed(&mut law, &[121_000, 122_000, 123_000]), risen, "rising between the thresholds");
    }

    #[test]
    fn timely_keeps_a_minimum() {
        let mut law = Timely::new(TimelyConfig::default(), LINE);
        assert_eq!(feed(&mut law, &[1_000_000_000; 500]), TimelyConfig::default().min_rate_bps);
    }

    #[test]
    fn trim_target_settles_where_a_few_percent_are_cut() {
        // A path that carries 4 Gbit/s and cuts the excess: share = 1 − 4/rate.
        let mut law = TrimTarget::new(TrimTargetConfig::default(), LINE);
        let mut sum = 0.0;
        for round in 0..60_000 {
            let share = (1.0 - 4e9 / law.rate_bps() as f64).max(0.0);
            law.on_ack(Feedback { now_ns: 0, rtt_ns: None, trimmed_share: share as f32 });
            if round >= 40_000 {
                sum += share / 20_000.0;
            }
        }
        assert!((0.01..0.10).contains(&sum), "{sum}");
    }

    #[test]
    fn nonsense_feedback_leaves_a_finite_rate() {
        let mut law = TrimTarget::new(TrimTargetConfig::default(), LINE);
        law.on_ack(Feedback { now_ns: 0, rtt_ns: Some(0), trimmed_share: f32::NAN });
        law.on_ack(Feedback { now_ns: 0, rtt_ns: Some(u64::MAX), trimmed_share: f32::INFINITY });
        assert!(law.rate_bps() >= TrimTargetConfig::default().min_rate_bps && law.rate_bps() <= LINE);
    }
}
