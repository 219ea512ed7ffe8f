// SPDX-License-Identifier: Apache-2.0
//! Swift's window (SIGCOMM 2020, algorithm 1) and the delay that it aims at (§3.5).

use super::SwiftConfig;

/// The congestion window of one flow, in packets; below one it is a pace.
#[derive(Debug)]
pub(super) struct Window {
    config: SwiftConfig,
    /// Switches on the way.
    hops: u32,
    packets: f64,
    /// When it was lowered last.
    decreased_ns: Option<u64>,
    /// Time-outs in a row.
    timeouts: u32,
}

impl Window {
    pub(super) fn new(config: SwiftConfig, hops: u32) -> Self {
        let packets = f64::from(config.initial_window);
        Self {
            packets: packets.clamp(config.min_window, config.max_window),
            config,
            hops,
            decreased_ns: None,
            timeouts: 0,
        }
    }

    pub(super) fn packets(&self) -> f64 {
        self.packets
    }

    /// §3.5: base, a step a hop, and more for small windows: many flows share the queue then, and their sum fluctuates as the square root of their number.
    pub(super) fn target_ns(&self) -> f64 {
        let SwiftConfig { base_target_ns, hop_ns, scaling_ns, scaling_windows: [least, most], .. } =
            self.config;
        let range = scaling_ns as f64;
        let alpha = range / (1.0 / least.sqrt() - 1.0 / most.sqrt());
        let scaled = alpha / self.packets.sqrt() - alpha / most.sqrt();
        base_target_ns as f64 + f64::from(self.hops) * hop_ns as f64 + scaled.clamp(0.0, range)
    }

    /// An acknowledgement of one packet, with its delay; `rtt_ns` is what a decrease waits for.
    pub(super) fn on_ack(&mut self, now_ns: u64, delay_ns: u64, rtt_ns: u64) {
        self.timeouts = 0;
        let (delay, target) = (delay_ns as f64, self.target_ns());
        if delay < target {
            // A packet a round trip: one in a window of acknowledgements, or one in each where the window is below one.
            self.packets += self.config.increase / self.packets.max(1.0);
            self.clamp();
        } else {
            let factor = 1.0 - self.config.beta * (delay - target) / delay;
            self.decrease(now_ns, rtt_ns, factor.max(1.0 - self.config.max_decrease));
        }
    }

    /// Later packets have arrived and one has not.
    pub(super) fn on_loss(&mut self, now_ns: u64, rtt_ns: u64) {
        self.timeouts = 0;
        self.decrease(now_ns, rtt_ns, 1.0 - self.config.max_decrease);
    }

    /// Nothing was heard.
    pub(super) fn on_timeout(&mut self, now_ns: u64, rtt_ns: u64) {
        self.timeouts += 1;
        if self.timeouts >= self.config.reset_after {
            self.packets = self.config.min_window;
            self.decreased_ns = Some(now_ns);
        } else {
            self.decrease(now_ns, rtt_ns, 1.0 - self.config.max_decrease);
        }
    }

    /// Time between two packets where the window is below one, ns.
    pub(super) fn pace_ns(&self, rtt_ns: u64) -> Option<u64> {
        (self.packets < 1.0).then(|| (rtt_ns as f64 / self.packets) as u64)
    }

    /// Once in a round trip.
    fn decrease(&mut self, now_ns: u64, rtt_ns: u64, factor: f64) {
        if self.decreased_ns.is_some_and(|before| now_ns < before.saturating_add(rtt_ns)) {
            return;
        }
        let before = self.packets;
        self.packets *= factor;
        self.clamp();
        if self.packets < before {
            self.decreased_ns = Some(now_ns);
        }
    }

    fn clamp(&mut self) {
        self.packets = self.packets.clamp(self.config.min_window, self.config.max_window);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RTT: u64 = 10_000;

    fn window(packets: u32) -> Window {
        Window::new(SwiftConfig { initial_window: packets, ..SwiftConfig::default() }, 3)
    }

    #[track_caller]
    fn assert_near(is: f64, wanted: f64) {
        assert!((is / wanted - 1.0).abs() < 1e-9, "{is}, and not {wanted}");
    }

    #[test]
    fn the_target_is_base_hops_and_a_share_of_the_range_by_one_over_the_root_of_the_window() {
        // Windows of 100 and more have none of the range, of 0.1 and less all: 20 µs, 3 hops of 3 µs, 100 µs.
        let of = |packets| Window { packets, ..window(1) }.target_ns();
        assert_near(of(100.0), 29_000.0);
        assert_near(of(400.0), 29_000.0);
        assert_near(of(0.1), 129_000.0);
        assert_near(of(0.05), 129_000.0);
        // In between: (1/√4 − 1/10) / (1/√0.1 − 1/10).
        assert_near(of(4.0), 29_000.0 + 100_000.0 * 0.4 / (0.1_f64.powf(-0.5) - 0.1));
    }

    #[test]
    fn below_the_target_a_window_of_acknowledgements_adds_one_packet() {
        let mut open = window(10);
        (0..10).for_each(|at| open.on_ack(at, 1_000, RTT));
        // Each adds ai over the window as it is: less than one in all.
        let expected = (0..10).fold(10.0, |window, _| window + 1.0 / window);
        assert_near(open.packets(), expected);
        let mut paced = Window { packets: 0.25, ..window(1) };
        paced.on_ack(0, 1_000, RTT);
        assert_near(paced.packets(), 1.25);
    }

    #[test]
    fn above_the_target_it_falls_in_proportion_once_a_round_trip_and_by_half_at_most() {
        let mut window = window(100);
        // 29 µs is the target: 40 µs is a quarter and a bit above.
        window.on_ack(0, 40_000, RTT);
        let first = 100.0 * (1.0 - 0.8 * 11.0 / 40.0);
        assert_near(window.packets(), first);
        window.on_ack(RTT - 1, 40_000, RTT);
        assert_near(window.packets(), first);
        window.on_ack(RTT, 10_000_000, RTT);
        assert_near(window.packets(), first / 2.0);
        window.on_loss(2 * RTT, RTT);
        assert_near(window.packets(), first / 4.0);
    }

    #[test]
    fn the_fifth_time_out_in_a_row_leaves_the_least_window() {
        let mut lost = window(1_000);
        (0..4).for_each(|at| lost.on_timeout(at * RTT, RTT));
        assert_near(lost.packets(), 1_000.0 / 16.0);
        lost.on_timeout(4 * RTT, RTT);
        assert_near(lost.packets(), SwiftConfig::default().min_window);
        // And one packet in a round trip over the window.
        assert_eq!(lost.pace_ns(RTT), Some(1_000 * RTT));
        assert_eq!(window(1).pace_ns(RTT), None);
    }
}
