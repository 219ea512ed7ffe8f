//! MLT's minimal rate control (NSDI 2024, §4.2.3) as it is printed. The agent's own TIMELY-like law differs: it answers to losses and cuts, and takes its thresholds from the path.

use trimwire_agent::rate::{Feedback, PathModel, RateLaw};

/// The paper's constants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MltConfig {
    /// Below this round-trip time the rate rises, ns.
    pub t_low_ns: u64,
    /// Above this one it falls, ns.
    pub t_high_ns: u64,
    /// What a rise adds, bit/s.
    pub increase_bps: u64,
    /// Strength of a fall.
    pub beta: f64,
}

impl Default for MltConfig {
    fn default() -> Self {
        Self { t_low_ns: 12_500, t_high_ns: 125_000, increase_bps: 40_000_000, beta: 0.8 }
    }
}

/// The rate begins at the line's; every acknowledgement that tells a round trip changes it. Losses do not.
#[derive(Debug)]
pub(super) struct Mlt {
    config: MltConfig,
    line_bps: f64,
    bps: f64,
    before_ns: Option<u64>,
}

impl Mlt {
    pub(super) fn new(config: MltConfig, path: &PathModel) -> Self {
        let line_bps = path.line_rate_bps.max(1) as f64;
        Self { config, line_bps, bps: line_bps, before_ns: None }
    }
}

impl RateLaw for Mlt {
    fn on_feedback(&mut self, feedback: &Feedback) {
        let Some(rtt_ns) = feedback.rtt_ns else { return };
        let falls = self.before_ns.replace(rtt_ns).is_some_and(|before_ns| rtt_ns < before_ns);
        let MltConfig { t_low_ns, t_high_ns, increase_bps, beta } = self.config;
        if rtt_ns < t_low_ns || falls {
            self.bps += increase_bps as f64;
        } else if rtt_ns > t_high_ns {
            self.bps *= 1.0 - beta * (1.0 - t_high_ns as f64 / rtt_ns as f64);
        }
        // The paper has no least rate; one rise is the least that a flow can come back from.
        self.bps = self.bps.clamp((increase_bps as f64).min(self.line_bps), self.line_bps);
    }

    fn rate_bps(&self) -> u64 {
        self.bps as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_is_the_papers() {
        let mut law = Mlt::new(MltConfig::default(), &PathModel::new(10_000_000_000));
        let mut hear = |rtt_us: u64, lost: u32| {
            law.on_feedback(&Feedback { rtt_ns: Some(rtt_us * 1_000), lost, ..Feedback::default() });
            law.rate_bps()
        };
        assert_eq!(hear(10, 100), 10_000_000_000);
        // 1 − 0.8 (1 − 125 / 250) = 0.6.
        assert_eq!(hear(250, 0), 6_000_000_000);
        assert_eq!(hear(100, 0), 6_040_000_000);
        assert_eq!(hear(110, 0), 6_040_000_000);
        assert_eq!(hear(10, 0), 6_080_000_000);
    }
}
