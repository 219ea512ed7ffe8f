// SPDX-License-Identifier: Apache-2.0
//! How long to wait before the next attempt at a switch.

/// The first wait, before jitter.
const FIRST_NS: u64 = 200_000_000;
/// The longest wait.
const LONGEST_NS: u64 = 30_000_000_000;

/// Exponential, with a jitter that depends on the switch's name and the attempt alone: the switches
/// of a rack that loses power do not come back all at once, and a run can be repeated.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    seed: u64,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(name: &str) -> Self {
        // FNV-1a.
        let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self { seed, failures: 0 }
    }

    /// Failures since the last success.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Counts a failure and gives the wait until the next attempt: doubled each time, and of that
    /// between a half and all.
    pub(crate) fn failed(&mut self) -> u64 {
        let doubled = FIRST_NS.checked_shl(self.failures.min(16)).unwrap_or(LONGEST_NS).min(LONGEST_NS);
        self.failures = self.failures.saturating_add(1);
        doubled / 2 + self.share(u64::from(self.failures), doubled / 2)
    }

    /// A share of `most` that is the same for the same switch and `number`.
    pub(crate) fn share(&self, number: u64, most: u64) -> u64 {
        // SplitMix64's finalizer.
        let mut x = self.seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^= x >> 31;
        ((u128::from(x) * u128::from(most)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_half_a_minute_and_never_leave_their_half() {
        let mut backoff = Backoff::new("s1");
        for attempt in 0..40_u32 {
            let doubled = (FIRST_NS << attempt.min(20)).min(LONGEST_NS);
            let wait = backoff.failed();
            assert!((doubled / 2..=doubled).contains(&wait), "{attempt}: {wait}");
        }
        backoff.succeeded();
        assert!(backoff.failed() <= FIRST_NS);
    }

    #[test]
    fn the_same_switch_waits_the_same_and_others_otherwise() {
        let waits = |name: &str| {
            let mut backoff = Backoff::new(name);
            [(); 6].map(|()| backoff.failed())
        };
        assert_eq!(waits("s1"), waits("s1"));
        let distinct: std::collections::BTreeSet<_> = (0..64).map(|n| waits(&format!("s{n}"))[5]).collect();
        assert_eq!(distinct.len(), 64);
    }
}
