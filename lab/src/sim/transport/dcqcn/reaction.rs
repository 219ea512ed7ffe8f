// SPDX-License-Identifier: Apache-2.0
//! DCQCN's reaction point (SIGCOMM 2015, §3.1, fig. 7): a rate that notifications lower, and a
//! timer and a byte counter raise.

use super::DcqcnConfig;

/// The rate of one flow. Without a notification it is the line's, and no timer runs.
#[derive(Debug)]
pub(super) struct ReactionPoint {
    config: DcqcnConfig,
    line_bps: f64,
    /// `R_C`, bit/s.
    current_bps: f64,
    /// `R_T`, bit/s.
    target_bps: f64,
    alpha: f64,
    /// When α is lowered next, and when the timer of increases ends; none before the first
    /// notification.
    due_ns: Option<(u64, u64)>,
    /// Bytes since the byte counter's last end.
    bytes: u64,
    /// How often the timer (T in fig. 7) and the byte counter (BC) have ended since the last
    /// notification.
    timer_stage: u32,
    byte_stage: u32,
}

impl ReactionPoint {
    pub(super) fn new(line_bps: u64, config: DcqcnConfig) -> Self {
        Self {
            config,
            line_bps: line_bps as f64,
            current_bps: line_bps as f64,
            target_bps: line_bps as f64,
            alpha: 1.0,
            due_ns: None,
            bytes: 0,
            timer_stage: 0,
            byte_stage: 0,
        }
    }

    /// Equation 1, and everything begins anew.
    pub(super) fn on_cnp(&mut self, now_ns: u64) {
        self.target_bps = self.current_bps;
        self.set_current(self.current_bps * (1.0 - self.alpha / 2.0));
        self.alpha = (1.0 - self.config.gain) * self.alpha + self.config.gain;
        (self.bytes, self.timer_stage, self.byte_stage) = (0, 0, 0);
        self.due_ns = Some((now_ns + self.alpha_timer_ns(), now_ns + self.timer_ns()));
    }

    /// So many bytes have left.
    pub(super) fn on_sent(&mut self, bytes: u32) {
        if self.due_ns.is_none() {
            return;
        }
        self.bytes += u64::from(bytes);
        if self.bytes >= self.config.byte_counter {
            self.bytes -= self.config.byte_counter;
            self.byte_stage += 1;
            self.increase();
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<u64> {
        self.due_ns.map(|(alpha, timer)| alpha.min(timer))
    }

    pub(super) fn handle_timeout(&mut self, now_ns: u64) {
        let Some((mut alpha_ns, mut timer_ns)) = self.due_ns else { return };
        if alpha_ns <= now_ns {
            // Equation 2.
            self.alpha *= 1.0 - self.config.gain;
            alpha_ns = now_ns + self.alpha_timer_ns();
        }
        if timer_ns <= now_ns {
            self.timer_stage += 1;
            self.increase();
            timer_ns = now_ns + self.timer_ns();
        }
        self.due_ns = Some((alpha_ns, timer_ns));
    }

    /// Time that a frame takes at the rate, ns.
    pub(super) fn time_of_ns(&self, bytes: u32) -> u64 {
        (f64::from(bytes) * 8e9 / self.current_bps).ceil() as u64
    }

    /// Fig. 7: fast recovery (equation 3) until one of the two has ended F times, hyper increase
    /// once both have more often, as QCN has it (802.1Qau), additive increase (equation 4) in
    /// between.
    fn increase(&mut self) {
        let (most, least) = (self.timer_stage.max(self.byte_stage), self.timer_stage.min(self.byte_stage));
        let step = match self.config.fast_recovery {
            first if most <= first => 0.0,
            first if least > first => f64::from(least - first) * self.config.hyper_increase_bps as f64,
            _ => self.config.increase_bps as f64,
        };
        self.target_bps = (self.target_bps + step).min(self.line_bps);
        self.set_current(f64::midpoint(self.target_bps, self.current_bps));
    }

    fn set_current(&mut self, bps: f64) {
        self.current_bps = bps.max(self.config.min_rate_bps as f64).min(self.line_bps);
    }

    fn alpha_timer_ns(&self) -> u64 {
        self.config.alpha_timer_ns.max(1)
    }

    fn timer_ns(&self) -> u64 {
        self.config.timer_ns.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: f64 = 40e9;
    const K: u64 = 55_000;

    fn point(config: DcqcnConfig) -> ReactionPoint {
        ReactionPoint::new(LINE as u64, config)
    }

    /// Timers up to a time.
    fn pass(point: &mut ReactionPoint, until_ns: u64) {
        while let Some(due) = point.poll_timeout().filter(|&due| due <= until_ns) {
            point.handle_timeout(due);
        }
    }

    #[track_caller]
    fn assert_near(is: f64, wanted: f64) {
        assert!((is / wanted - 1.0).abs() < 1e-9, "{is}, and not {wanted}");
    }

    #[test]
    fn rates_after_notifications_and_between_them_are_the_papers_step_by_step() {
        let mut point = point(DcqcnConfig::default());
        assert_eq!(point.poll_timeout(), None);
        // α = 1: half. Then α = (1 − g) + g = 1.
        point.on_cnp(0);
        assert_near(point.current_bps, 20e9);
        assert_near(point.target_bps, 40e9);
        assert_near(point.alpha, 1.0);
        // 55 µs: α falls to 1 − g, fast recovery goes half of the way back.
        pass(&mut point, K);
        let alpha = 255.0 / 256.0;
        assert_near(point.alpha, alpha);
        assert_near(point.current_bps, 30e9);
        // The next one: R_T = R_C, R_C (1 − α/2), and α by g toward 1.
        point.on_cnp(K + 5_000);
        assert_near(point.target_bps, 30e9);
        assert_near(point.current_bps, 30e9 * (1.0 - alpha / 2.0));
        assert_near(point.alpha, alpha * 255.0 / 256.0 + 1.0 / 256.0);
        // Both timers began anew.
        assert_eq!(point.poll_timeout(), Some(2 * K + 5_000));
    }

    #[test]
    fn five_recoveries_come_before_the_additive_increase() {
        let mut point = point(DcqcnConfig::default());
        // Far below the line, so that the target may rise.
        (0..4).for_each(|_| point.on_cnp(0));
        let (target, low) = (point.target_bps, point.current_bps);
        pass(&mut point, 5 * K);
        // Half of the distance each: 1/32 of it is left.
        assert_near(point.current_bps, target - (target - low) / 32.0);
        assert_near(point.target_bps, target);
        pass(&mut point, 7 * K);
        assert_near(point.target_bps, target + 2.0 * 40e6);
    }

    #[test]
    fn the_hyper_increase_needs_timer_and_bytes_and_grows() {
        let mut point = point(DcqcnConfig { byte_counter: 1_000, ..DcqcnConfig::default() });
        (0..6).for_each(|_| point.on_cnp(0));
        let target = point.target_bps;
        // Bytes alone: additive after five.
        (0..7).for_each(|_| point.on_sent(1_000));
        assert_near(point.target_bps, target + 2.0 * 40e6);
        // The timer's first to fifth end are beyond bytes' five: additive. Its sixth and seventh: i
        // = 1, 2.
        pass(&mut point, 5 * K);
        assert_near(point.target_bps, target + 7.0 * 40e6);
        pass(&mut point, 7 * K);
        assert_near(point.target_bps, target + 7.0 * 40e6 + (1.0 + 2.0) * 200e6);
    }

    #[test]
    fn a_rate_stays_between_its_floor_and_the_line() {
        let mut point = point(DcqcnConfig::default());
        (0..100).for_each(|at| point.on_cnp(at));
        assert_near(point.current_bps, 10e6);
        pass(&mut point, 1_000_000_000);
        point.on_sent(1_500);
        assert!(point.current_bps <= LINE && point.target_bps <= LINE);
        assert!(point.alpha > 0.0 && point.alpha < 1.0);
    }
}
