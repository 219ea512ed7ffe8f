// SPDX-License-Identifier: Apache-2.0
//! Pacing with exact integer arithmetic: bursts that leave back to back, at a rate that is exact in
//! the long run.
#![forbid(unsafe_code)]

use std::num::NonZeroU16;

/// Bits times nanoseconds in a second: bytes · this / rate is a duration in ns.
const BIT_NS_PER_BYTE: u64 = 8 * 1_000_000_000;

/// Longest burst unless told otherwise, ns on the wire: half the fabric file's least `shallow_at`,
/// so that a burst that meets an empty queue is not trimmed, nor one that meets another.
pub const BURST_TIME_NS: u64 = 10_000;
/// Most packets of a burst: what a kernel segments in one piece (Linux's UDP_MAX_SEGMENTS was 64 up
/// to 6.8).
const BURST_MOST: u64 = 64;
/// So many packets that arrive one behind the other, none of them trimmed, marked or lost, say that
/// nobody else is in the way: 6 MB.
const CALM_PACKETS: u32 = 4_096;
/// Bursts are so many times as long then, up to so many ns. What a host's kernel costs, it costs by
/// the burst; and a burst alone leaves a port as fast as it comes, whatever its length. Where a few
/// packets take longer than that, the kernel has time.
const CALM_BURSTS: u64 = 8;
const CALM_BURST_NS: u64 = 80_000;

/// A share of the line's rate, in thousandths: at which a message's data leaves at most, all peers'
/// together.
///
/// Whoever leaves planes out so that others' traffic fits keeps the spacing of packets by it:
/// shorter packets that left the faster would take as much of a queue as before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pace(NonZeroU16);

impl Pace {
    /// All of it.
    pub const LINE: Self = Self(NonZeroU16::new(1_000).unwrap());

    /// The nearest thousandth; what is no number above 0 is the least, what is above 1 all of it.
    pub fn of_share(share: f64) -> Self {
        let thousandths = (share * 1_000.0).round().clamp(1.0, 1_000.0) as u16;
        Self(NonZeroU16::new(thousandths).unwrap_or(NonZeroU16::MIN))
    }

    /// As a share, above 0, up to 1.
    pub fn share(self) -> f64 {
        f64::from(self.0.get()) / 1_000.0
    }

    /// Bytes that leave in the same time at the line's rate.
    pub fn at_line(self, bytes: u64) -> u64 {
        bytes.saturating_mul(1_000) / u64::from(self.0.get())
    }
}

/// Releases frames at a rate. The fraction of a nanosecond that a frame's duration leaves over is
/// carried to the next frame, so that the long-run rate is exact.
///
/// A burst: ask [`burst_limit`](Pacer::burst_limit) how many frames may leave at
/// [`next_ns`](Pacer::next_ns), send them, and call [`sent`](Pacer::sent) once with the bytes of
/// all.
#[derive(Debug, Clone)]
pub struct Pacer {
    next_ns: u64,
    remainder: u64,
    rate_bps: u64,
    burst_time_ns: u64,
    /// Packets that arrived since the last trouble.
    calm: u32,
}

impl Default for Pacer {
    fn default() -> Self {
        Self::with_burst_time(BURST_TIME_NS)
    }
}

impl Pacer {
    /// A pacer whose bursts take up to `burst_time_ns` on the wire.
    pub fn with_burst_time(burst_time_ns: u64) -> Self {
        Self { next_ns: 0, remainder: 0, rate_bps: 0, burst_time_ns, calm: 0 }
    }

    /// How many frames of `bytes` may leave back to back at a rate: what it sends in the time of a
    /// burst, at least 1 and at most 64. With the line rate this is the burst's time on the wire.
    /// With a peer's own rate slow peers send single packets, and that is what to ask for: a burst
    /// meets the queue that it builds itself, so with bursts of one size the slow flows' packets
    /// are trimmed and marked more often than the fast ones', and stay slow
    /// (docs/explanation/rates.md). Up to eight times as many, in up to 80 µs, on a path that has
    /// been calm for 4,096 packets ([`heard`](Pacer::heard)).
    pub fn burst_limit(&self, rate_bps: u64, bytes: u64) -> usize {
        let frame = u128::from(bytes.max(1)) * u128::from(BIT_NS_PER_BYTE);
        let longer = self.burst_time_ns.saturating_mul(CALM_BURSTS).min(CALM_BURST_NS);
        let longer = if self.calm >= CALM_PACKETS { longer } else { 0 };
        let frames = u128::from(self.burst_time_ns.max(longer)) * u128::from(rate_bps) / frame;
        frames.clamp(1, u128::from(BURST_MOST)) as usize
    }

    /// Takes what the receiver tells: so many packets arrived, so many of all were in somebody's
    /// way (trimmed, marked or lost). One of these is enough for short bursts again.
    pub fn heard(&mut self, arrived: u32, in_the_way: u32) {
        self.calm = if in_the_way > 0 { 0 } else { self.calm.saturating_add(arrived) };
    }

    /// The earliest time at which the next frame may leave.
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Accounts for a frame of `bytes` that leaves at `now_ns` at `rate_bps` (0 counts as 1 bit/s).
    /// Up to `burst_ns` of time in which nothing was sent may be made up for.
    pub fn sent(&mut self, now_ns: u64, bytes: u64, rate_bps: u64, burst_ns: u64) {
        let rate_bps = rate_bps.max(1);
        if rate_bps != self.rate_bps {
            self.rate_bps = rate_bps;
            self.remainder = 0;
        }
        let earliest = now_ns.saturating_sub(burst_ns);
        if self.next_ns < earliest {
            self.next_ns = earliest;
            self.remainder = 0;
        }
        let work = bytes.saturating_mul(BIT_NS_PER_BYTE).saturating_add(self.remainder);
        self.next_ns = self.next_ns.saturating_add(work / rate_bps);
        self.remainder = work % rate_bps;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_run_rate_is_exact_at_an_awkward_rate() {
        // 1,468 bytes at 7 Gbit/s take 1,677.71… ns; a million of them must take 1,677,714,285 ns
        // exactly.
        let mut pacer = Pacer::default();
        for _ in 0..1_000_000 {
            let now_ns = pacer.next_ns();
            pacer.sent(now_ns, 1_468, 7_000_000_000, 0);
        }
        assert_eq!(u128::from(pacer.next_ns()), 1_000_000 * 1_468 * 8 * 1_000_000_000_u128 / 7_000_000_000);
    }

    #[test]
    fn idle_time_earns_no_more_than_the_burst() {
        let mut pacer = Pacer::default();
        pacer.sent(1_000_000, 125, 1_000_000_000, 0);
        assert_eq!(pacer.next_ns(), 1_001_000);
        pacer.sent(5_000_000, 125, 1_000_000_000, 2_500);
        assert_eq!(pacer.next_ns(), 5_000_000 - 2_500 + 1_000);
    }

    #[test]
    fn bursts_take_at_most_their_time_on_the_wire() {
        let pacer = Pacer::default();
        // 1,406 bytes take 1,124.8 ns at 10 Gbit/s: eight fit 10 µs, nine do not.
        assert_eq!(pacer.burst_limit(10_000_000_000, 1_406), 8);
        assert_eq!(pacer.burst_limit(100_000_000_000, 1_406), 64, "88 would fit; a kernel takes 64");
        assert_eq!(pacer.burst_limit(1_000_000_000, 1_406), 1, "one takes 11 µs");
        assert_eq!(Pacer::with_burst_time(20_000).burst_limit(10_000_000_000, 1_406), 17);
        for (rate, bytes) in [(0, 0), (0, u64::MAX), (u64::MAX, 0), (u64::MAX, u64::MAX)] {
            assert!((1..=64).contains(&pacer.burst_limit(rate, bytes)));
        }
    }

    #[test]
    fn bursts_grow_where_nobody_is_in_the_way_and_the_first_who_is_shortens_them() {
        let mut pacer = Pacer::default();
        let limit = |pacer: &Pacer| pacer.burst_limit(10_000_000_000, 1_406);
        for _ in 0..4_095 {
            pacer.heard(1, 0);
        }
        assert_eq!(limit(&pacer), 8);
        pacer.heard(1, 0);
        assert_eq!(limit(&pacer), 64, "80 µs would be 71");
        pacer.heard(u32::MAX, 0);
        assert_eq!((limit(&pacer), pacer.burst_limit(100_000_000_000, 1_406)), (64, 64));
        assert_eq!(pacer.burst_limit(5_000_000_000, 1_406), 35, "80 µs at half the rate");
        for (short_ns, at_10_gbps) in [(0, 1), (5_000, 35), (960_000, 64)] {
            let mut pacer = Pacer::with_burst_time(short_ns);
            pacer.heard(4_096, 0);
            assert_eq!(limit(&pacer), at_10_gbps, "{short_ns} ns");
        }
        let mut slow = Pacer::with_burst_time(960_000);
        slow.heard(4_096, 0);
        assert_eq!(slow.burst_limit(50_000_000, 1_500), 4, "four packets take longer than 80 µs");
        pacer.heard(64, 1);
        assert_eq!(limit(&pacer), 8);
        pacer.heard(4_095, 0);
        assert_eq!(limit(&pacer), 8, "counted anew");
    }

    #[test]
    fn a_burst_is_paid_for_before_the_next() {
        let mut pacer = Pacer::default();
        pacer.sent(1_000_000, 8 * 1_250, 1_000_000_000, 0);
        assert_eq!(pacer.next_ns(), 1_000_000 + 80_000);
    }

    #[test]
    fn a_pace_is_a_share_of_the_line_whatever_is_asked_for() {
        assert_eq!(Pace::of_share(1.0), Pace::LINE);
        assert_eq!(Pace::of_share(0.25).at_line(1_000), 4_000);
        for share in [f64::NAN, f64::NEG_INFINITY, -1.0, 0.0, 1e-9, 0.5, 7.0, f64::INFINITY] {
            let pace = Pace::of_share(share);
            assert!((0.001..=1.0).contains(&pace.share()) && pace.at_line(1_500) >= 1_500, "{share}");
        }
        assert_eq!(Pace::of_share(0.001).at_line(u64::MAX), u64::MAX);
    }

    #[test]
    fn zero_rate_does_not_divide_by_zero() {
        let mut pacer = Pacer::default();
        pacer.sent(0, 1, 0, 0);
        assert_eq!(pacer.next_ns(), 8_000_000_000);
    }
}
