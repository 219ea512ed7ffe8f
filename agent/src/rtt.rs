// SPDX-License-Identifier: Apache-2.0
//! Round-trip time estimation after RFC 6298.
#![forbid(unsafe_code)]

/// Smoothed round-trip time and its variation, ns.
#[derive(Debug, Clone, Default)]
pub struct RttEstimator {
    smoothed_ns: u64,
    variation_ns: u64,
    latest_ns: u64,
    minimum_ns: u64,
    /// The newest measurements, in a ring.
    recent_ns: [u64; RECENT],
    samples: u64,
}

/// Measurements that tell a long way from a host that stood still.
const RECENT: usize = 8;

impl RttEstimator {
    /// Takes one measurement (RFC 6298 §2.2, §2.3; α = 1/8, β = 1/4). The caller leaves
    /// retransmitted packets out (Karn's algorithm, §3).
    pub fn sample(&mut self, rtt_ns: u64) {
        let rtt_ns = rtt_ns.max(1);
        if self.samples == 0 {
            self.smoothed_ns = rtt_ns;
            self.variation_ns = rtt_ns / 2;
            self.minimum_ns = rtt_ns;
        } else {
            let error = self.smoothed_ns.abs_diff(rtt_ns);
            self.variation_ns = self.variation_ns - self.variation_ns / 4 + error / 4;
            self.smoothed_ns = self.smoothed_ns - self.smoothed_ns / 8 + rtt_ns / 8;
            self.minimum_ns = self.minimum_ns.min(rtt_ns);
        }
        self.latest_ns = rtt_ns;
        self.recent_ns[(self.samples % RECENT as u64) as usize] = rtt_ns;
        self.samples = self.samples.saturating_add(1);
    }

    /// The smoothed round-trip time; `None` before the first sample.
    pub fn smoothed_ns(&self) -> Option<u64> {
        (self.samples > 0).then_some(self.smoothed_ns)
    }

    /// The shortest round-trip time seen; `None` before the first sample.
    pub fn minimum_ns(&self) -> Option<u64> {
        (self.samples > 0).then_some(self.minimum_ns)
    }

    /// The shortest of the last eight; `None` before there are as many.
    pub fn recent_minimum_ns(&self) -> Option<u64> {
        self.recent_ns.iter().min().copied().filter(|_| self.samples >= RECENT as u64)
    }

    /// After this time without an answer something is presumably lost: SRTT + 4·RTTVAR (RFC 6298
    /// §2.3), and not less than 5/4 of the latest sample: a queue that fills up outruns the
    /// smoothed values (RFC 9002 §6.1.2 takes 9/8 of the larger of the two).
    pub fn timeout_ns(&self) -> Option<u64> {
        let timeout = self.smoothed_ns.saturating_add(self.variation_ns.saturating_mul(4));
        (self.samples > 0).then_some(timeout.max(self.latest_ns.saturating_add(self.latest_ns / 4)))
    }
}

/// Exponential backoff: `base` doubled `times` times, at most `most`.
pub(crate) fn backoff(base_ns: u64, times: u32, most_ns: u64) -> u64 {
    base_ns.saturating_mul(1 << times.min(20)).min(most_ns.max(base_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_sample_gives_three_times_itself() {
        let mut rtt = RttEstimator::default();
        assert_eq!(rtt.timeout_ns(), None);
        rtt.sample(8_000);
        assert_eq!((rtt.smoothed_ns(), rtt.timeout_ns()), (Some(8_000), Some(24_000)));
    }

    #[test]
    fn steady_path_converges_to_its_delay() {
        let mut rtt = RttEstimator::default();
        rtt.sample(80_000);
        for _ in 0..200 {
            rtt.sample(40_000);
        }
        let timeout = rtt.timeout_ns().unwrap_or(0);
        assert!((50_000..52_000).contains(&timeout), "{timeout}");
        assert_eq!(rtt.minimum_ns(), Some(40_000));
    }
}
