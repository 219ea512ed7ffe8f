// SPDX-License-Identifier: Apache-2.0
//! SplitMix64 (Steele et al., OOPSLA 2014): one word of state for each of the many places that toss
//! a coin.

/// A stream of numbers; the same seed, the same numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    /// A stream of its own for every (seed, place).
    pub(crate) fn new(seed: u64, place: u64) -> Self {
        Self(mix(seed ^ mix(place)))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// In [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Exponentially distributed.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        // 1 − u lies in (0, 1], so the logarithm is finite.
        -(1.0 - self.unit()).ln() * mean
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// SplitMix64's finaliser: a hash of one word.
pub(crate) fn mix(word: u64) -> u64 {
    let mut z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_those_that_are_asked_for() {
        let mut random = Random::new(7, 3);
        let mean = (0..100_000).map(|_| random.exponential(5.0)).sum::<f64>() / 1e5;
        assert!((mean - 5.0).abs() < 0.05, "{mean}");
        let mean = (0..100_000).map(|_| random.below(11) as f64).sum::<f64>() / 1e5;
        assert!((mean - 5.0).abs() < 0.05, "{mean}");
    }
}
