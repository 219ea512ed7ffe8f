// SPDX-License-Identifier: Apache-2.0
//! Network-signaled congestion control of the Ultra Ethernet specification 1.0: bytes that may be on their way, by each acknowledgement's mark and queueing delay.
//!
//! | | below the target | above |
//! |---|---|---|
//! | **no mark** | grows in proportion to what is missing of the target; faster after a window without any queue | a fair share is added: the queue is going |
//! | **mark** | nothing: the queue is only coming | shrinks by how far the mean delay is above, once a round trip |
//!
//! What is trimmed is taken off at once; and where a round trip brought hardly anything but heads the window becomes what it did bring (quick adapt). Written from the public description and from what is
//! known of the authors' simulator, whose constants these are; not held against another implementation.

/// Constants are for this path, and scale with a path's product of rate and round trip, and its target.
const REFERENCE_BYTES: f64 = 150_000.0;
const REFERENCE_RTT_NS: f64 = 12_000.0;
/// Of the round trip: the queueing delay that is aimed at where switches trim.
const TARGET: f64 = 0.75;
/// Of what the path holds: the first window, and the longest.
const MOST: f64 = 1.5;
/// Packets that a window gains in a round trip: without any queue; for the share of all that is missing of the target.
const PROPORTIONAL: f64 = 4.0;
/// The same: while a queue goes away.
const FAIR: f64 = 5.0;
/// The same: whatever is heard.
const ALWAYS: f64 = 0.15;
/// Share of what is acknowledged that is gained after a window without a queue, and the delay below which there is none.
const FAST: f64 = 0.25;
const NO_QUEUE_NS: u64 = 1_000;
/// What a decrease takes at most, and its gain.
const LEAST_LEFT: f64 = 0.5;
const DECREASE: f64 = 0.8;
/// Weight of the newest delay in the mean.
const DELAY_GAIN: f64 = 0.0125;
/// A round trip that brought less than this share of the longest window is one for quick adapt.
const HARDLY: f64 = 1.0 / 8.0;
/// Delays of so many targets are, too.
const LATE_TARGETS: u64 = 4;
/// Gains take effect after so many packets.
const ADJUST_PACKETS: f64 = 8.0;

/// A packet that arrived whole.
#[derive(Debug, Clone, Copy)]
pub(super) struct Acknowledged {
    pub(super) now_ns: u64,
    pub(super) bytes: u32,
    /// Its round trip without the idle path's.
    pub(super) queued_ns: u64,
    pub(super) marked: bool,
    /// Bytes that are still on their way.
    pub(super) in_flight: u64,
}

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Window {
    packet: f64,
    bytes: f64,
    most: f64,
    base_rtt_ns: u64,
    target_ns: u64,
    /// The path's bytes over the reference's.
    scale: f64,
    mean_queued_ns: f64,
    /// Bytes acknowledged without a queue, in a row.
    calm: f64,
    /// Bytes² that take effect with the next adjustment: gains a window times bytes acknowledged.
    gained: f64,
    since_adjusted: f64,
    adjusted_ns: u64,
    added_ns: u64,
    decreased_ns: Option<u64>,
    /// Of quick adapt's round trip: when it ends, what arrived in it, whether anything was trimmed.
    ends_ns: Option<u64>,
    arrived: f64,
    trimmed: bool,
    /// Answers to so many bytes speak of the window before.
    ignored: f64,
}

impl Window {
    /// Of packets of so many bytes, on a path of a rate and an idle round trip.
    pub(super) fn new(packet: u32, rate_bps: u64, base_rtt_ns: u64, target_ns: Option<u64>) -> Self {
        let path = (rate_bps as f64 * base_rtt_ns as f64 / 8e9).max(f64::from(packet));
        let most = MOST * path;
        Self {
            packet: f64::from(packet),
            bytes: most,
            most,
            base_rtt_ns,
            target_ns: target_ns.unwrap_or((TARGET * base_rtt_ns as f64) as u64).max(1),
            scale: path / REFERENCE_BYTES,
            mean_queued_ns: 0.0,
            calm: 0.0,
            gained: 0.0,
            since_adjusted: 0.0,
            adjusted_ns: 0,
            added_ns: 0,
            decreased_ns: None,
            ends_ns: None,
            arrived: 0.0,
            trimmed: false,
            ignored: 0.0,
        }
    }

    /// Bytes that may be on their way, at least one packet's.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    fn set(&mut self, bytes: f64) {
        self.bytes = bytes.clamp(self.packet, self.most.max(self.packet));
    }

    /// A packet arrived whole.
    pub(super) fn on_acknowledged(&mut self, ack: &Acknowledged) {
        let bytes = f64::from(ack.bytes);
        self.arrived += bytes;
        self.measure(ack);
        let before = self.ignore(bytes);
        let late = ack.queued_ns > LATE_TARGETS * self.target_ns;
        if self.quick_adapt(ack.now_ns, late, ack.in_flight) || before {
            return;
        }
        match (ack.marked, ack.queued_ns >= self.target_ns) {
            (false, false) => self.increase_in_proportion(bytes, ack.queued_ns),
            (false, true) => {
                self.calm = 0.0;
                self.gained += FAIR * self.packet * self.scale * bytes;
            }
            (true, false) => self.calm = 0.0,
            (true, true) => self.decrease(ack.now_ns),
        }
        self.since_adjusted += bytes;
        let due = self.since_adjusted >= ADJUST_PACKETS * self.packet;
        if due || ack.now_ns.saturating_sub(self.adjusted_ns) >= self.base_rtt_ns {
            self.adjust(ack.now_ns);
        }
    }

    /// A packet's head arrived, or nothing of it did.
    pub(super) fn on_trimmed(&mut self, now_ns: u64, bytes: u32, in_flight: u64) {
        self.trimmed = true;
        self.calm = 0.0;
        let before = self.ignore(f64::from(bytes));
        if !self.quick_adapt(now_ns, false, in_flight) && !before {
            self.set(self.bytes - f64::from(bytes));
        }
    }

    /// A long delay without a mark is of a queue that has gone since.
    fn measure(&mut self, ack: &Acknowledged) {
        let gone = !ack.marked && ack.queued_ns > self.target_ns;
        let queued_ns = if gone { self.base_rtt_ns as f64 / 4.0 } else { ack.queued_ns as f64 };
        self.mean_queued_ns += DELAY_GAIN * (queued_ns - self.mean_queued_ns);
    }

    /// Whether an answer speaks of what left before quick adapt.
    fn ignore(&mut self, bytes: f64) -> bool {
        let before = self.ignored > 0.0;
        self.ignored = (self.ignored - bytes).max(0.0);
        before
    }

    /// At the end of a round trip in which something was trimmed, or came very late, and hardly anything arrived: that is what the path has for this flow.
    fn quick_adapt(&mut self, now_ns: u64, late: bool, in_flight: u64) -> bool {
        if self.ends_ns.is_some_and(|ends_ns| now_ns <= ends_ns) {
            return false;
        }
        let hardly = self.ends_ns.is_some() && self.arrived < HARDLY * self.most;
        let adapts = hardly && self.ignored == 0.0 && (self.trimmed || late);
        if adapts {
            self.set(self.arrived);
            self.ignored = in_flight as f64;
            (self.trimmed, self.gained, self.calm) = (false, 0.0, 0.0);
        }
        self.arrived = 0.0;
        self.ends_ns = Some(now_ns + self.base_rtt_ns + self.target_ns);
        adapts
    }

    fn increase_in_proportion(&mut self, bytes: f64, queued_ns: u64) {
        if queued_ns < NO_QUEUE_NS {
            self.calm += bytes;
            if self.calm > self.bytes {
                return self.set(self.bytes + FAST * self.scale * bytes);
            }
        } else {
            self.calm = 0.0;
        }
        let missing = 1.0 - queued_ns as f64 / self.target_ns as f64;
        self.gained += PROPORTIONAL * self.packet * self.scale * self.target_scale() * missing * bytes;
    }

    /// The target over the reference's round trip.
    fn target_scale(&self) -> f64 {
        self.target_ns as f64 / REFERENCE_RTT_NS
    }

    fn decrease(&mut self, now_ns: u64) {
        self.calm = 0.0;
        let target_ns = self.target_ns as f64;
        let waits = self.decreased_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) <= self.base_rtt_ns);
        if self.mean_queued_ns <= target_ns || waits {
            return;
        }
        let above = (self.mean_queued_ns - target_ns) / self.mean_queued_ns;
        self.set(self.bytes * (1.0 - DECREASE * above).max(LEAST_LEFT));
        self.decreased_ns = Some(now_ns);
    }

    fn adjust(&mut self, now_ns: u64) {
        let mut bytes = self.bytes + self.gained / self.bytes;
        if now_ns.saturating_sub(self.added_ns) >= self.base_rtt_ns {
            bytes += ALWAYS * self.packet * self.scale;
            self.added_ns = now_ns;
        }
        self.set(bytes);
        (self.gained, self.since_adjusted, self.adjusted_ns) = (0.0, 0.0, now_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u32 = 4_000;
    /// The reference path, so that both scales are 1 but for the target's 0.75.
    const RTT_NS: u64 = 12_000;
    const TARGET_NS: u64 = 9_000;

    fn window(packets: u32) -> Window {
        let mut window = Window::new(PACKET, 100_000_000_000, RTT_NS, None);
        window.bytes = f64::from(packets * PACKET);
        window
    }

    /// A window's packets, spread over a round trip.
    fn round(window: &mut Window, from_ns: u64, queued_ns: u64, marked: bool) {
        let packets = window.bytes() / u64::from(PACKET);
        for nth in 0..packets {
            let now_ns = from_ns + RTT_NS * nth / packets;
            window.on_acknowledged(&Acknowledged { now_ns, bytes: PACKET, queued_ns, marked, in_flight: 0 });
        }
    }

    #[test]
    fn half_of_the_target_without_marks_adds_half_of_the_gain_a_round_trip() {
        let mut window = window(24);
        let before = window.bytes;
        for nth in 1..=4 {
            round(&mut window, nth * RTT_NS, TARGET_NS / 2, false);
        }
        let packets = (window.bytes - before) / f64::from(PACKET) / 4.0;
        // Gains are by the window when they take effect, which has grown by then: a little less.
        let expected = PROPORTIONAL * 0.75 / 2.0 + ALWAYS;
        assert!((0.85 * expected..1.01 * expected).contains(&packets), "{packets} for {expected}");
    }

    #[test]
    fn marks_and_delay_take_off_in_proportion_once_a_round_trip() {
        let mut window = window(30);
        window.mean_queued_ns = 12_000.0;
        let before = window.bytes;
        let ack =
            Acknowledged { now_ns: RTT_NS, bytes: PACKET, queued_ns: 12_000, marked: true, in_flight: 0 };
        window.decrease(ack.now_ns);
        window.decrease(ack.now_ns + RTT_NS / 2);
        // 0.8 · (12 − 9) / 12.
        assert!((window.bytes / before - 0.8).abs() < 1e-9, "{}", window.bytes / before);
        window.mean_queued_ns = 1e9;
        let before = window.bytes;
        window.decrease(3 * RTT_NS);
        assert!((window.bytes / before - LEAST_LEFT).abs() < 1e-9);
    }

    #[test]
    fn a_mark_below_the_target_changes_nothing_and_delay_without_one_adds() {
        let mut marked = window(24);
        marked.adjusted_ns = RTT_NS;
        marked.added_ns = RTT_NS;
        let before = marked.bytes;
        round(&mut marked, RTT_NS, TARGET_NS / 2, true);
        assert!((marked.bytes - before).abs() < 1e-9);
        let mut late = marked.clone();
        round(&mut late, RTT_NS, TARGET_NS + 1, false);
        let packets = (late.bytes - before) / f64::from(PACKET);
        assert!((0.8 * FAIR..=FAIR).contains(&packets), "{packets}");
    }

    #[test]
    fn a_round_trip_of_heads_leaves_what_arrived_in_it() {
        let mut window = window(37);
        // The first answer begins the round trip.
        window.on_trimmed(0, PACKET, 0);
        for nth in 1..=3 {
            let now_ns = nth * 1_000;
            window.on_acknowledged(&Acknowledged {
                now_ns,
                bytes: PACKET,
                queued_ns: 9_000,
                marked: true,
                in_flight: 0,
            });
            window.on_trimmed(now_ns, PACKET, 0);
        }
        window.on_trimmed(RTT_NS + TARGET_NS + 1, PACKET, u64::from(5 * PACKET));
        assert_eq!(window.bytes(), u64::from(3 * PACKET));
        // Five packets of the window before come back as heads, and are no news.
        for _ in 0..5 {
            window.on_trimmed(RTT_NS + TARGET_NS + 2, PACKET, 0);
        }
        assert_eq!(window.bytes(), u64::from(3 * PACKET));
        window.on_trimmed(RTT_NS + TARGET_NS + 3, PACKET, 0);
        assert_eq!(window.bytes(), u64::from(2 * PACKET));
    }

    #[test]
    fn a_window_without_a_queue_is_followed_by_a_quarter_more_a_round_trip() {
        let mut window = window(8);
        let most = window.most;
        for nth in 1..=20 {
            let before = window.bytes;
            round(&mut window, nth * RTT_NS, 0, false);
            assert!(window.bytes >= before.min(most));
            if nth > 3 && before < most / 1.4 {
                let grown = window.bytes / before;
                assert!((1.1..1.4).contains(&grown), "{grown}");
            }
        }
        assert!((window.bytes - most).abs() < 1.0);
    }
}
