//! Pacing with exact integer arithmetic.
#![forbid(unsafe_code)]

/// Bits times nanoseconds in a second: bytes · this / rate is a duration in ns.
const BIT_NS_PER_BYTE: u64 = 8 * 1_000_000_000;

/// Releases frames at a rate. The fraction of a nanosecond that a frame's duration leaves over is carried to
/// the next frame, so that the long-run rate is exact.
#[derive(Debug, Clone, Default)]
pub struct Pacer {
    next_ns: u64,
    remainder: u64,
    rate_bps: u64,
}

impl Pacer {
    /// The earliest time at which the next frame may leave.
    pub fn next_ns(&self) -> u64 {
        self.next_ns
    }

    /// Accounts for a frame of `bytes` that leaves at `now_ns` at `rate_bps` (0 counts as 1 bit/s). Up to
    /// `burst_ns` of time in which nothing was sent may be made up for.
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
        // 1,468 bytes at 7 Gbit/s take 1,677.71… ns; a million of them must take 1,677,714,285 ns exactly.
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
    fn zero_rate_does_not_divide_by_zero() {
        let mut pacer = Pacer::default();
        pacer.sent(0, 1, 0, 0);
        assert_eq!(pacer.next_ns(), 8_000_000_000);
    }
}
