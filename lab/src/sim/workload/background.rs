// SPDX-License-Identifier: Apache-2.0
//! Other people's flows: sizes from published distributions, arrivals by chance.

use super::Demand;
use crate::sim::random::Random;

/// A distribution of flow sizes: bytes, and the share of the flows that are no longer, from 0 to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct Sizes(Vec<(f64, f64)>);

const WEB_SEARCH: &[(f64, f64)] = &[
    (1.0, 0.0),
    (10e3, 0.15),
    (20e3, 0.2),
    (30e3, 0.3),
    (50e3, 0.4),
    (80e3, 0.53),
    (200e3, 0.6),
    (1e6, 0.7),
    (2e6, 0.8),
    (5e6, 0.9),
    (10e6, 0.97),
    (30e6, 1.0),
];

const DATA_MINING: &[(f64, f64)] = &[
    (100.0, 0.0),
    (180.0, 0.1),
    (250.0, 0.2),
    (560.0, 0.3),
    (900.0, 0.4),
    (1_100.0, 0.5),
    (1_870.0, 0.6),
    (3_160.0, 0.7),
    (10e3, 0.8),
    (400e3, 0.9),
    (3.16e6, 0.95),
    (100e6, 0.98),
    (1e9, 1.0),
];

impl Sizes {
    /// Web search (DCTCP, SIGCOMM 2010, figure 4), in the points in which PIAS's and later
    /// simulations use it.
    pub fn web_search() -> Self {
        Self(WEB_SEARCH.to_vec())
    }

    /// Data mining (VL2, SIGCOMM 2009, figure 2), likewise.
    pub fn data_mining() -> Self {
        Self(DATA_MINING.to_vec())
    }

    pub(super) fn of(points: Vec<(f64, f64)>) -> Self {
        Self(points)
    }

    /// Mean, bytes: sizes are uniform between two points.
    pub fn mean(&self) -> f64 {
        self.0.windows(2).map(|pair| (pair[1].1 - pair[0].1) * (pair[0].0 + pair[1].0) / 2.0).sum()
    }

    /// The size below which a share of the flows is.
    fn quantile(&self, share: f64) -> f64 {
        let points = &self.0;
        let above = points.iter().position(|point| point.1 > share).unwrap_or(points.len() - 1).max(1);
        let ((from, low), (to, high)) = (points[above - 1], points[above]);
        from + (to - from) * ((share - low) / (high - low)).clamp(0.0, 1.0)
    }
}

/// Flows between any two hosts, beginning as a Poisson process.
#[derive(Debug, Clone, PartialEq)]
pub struct Background {
    /// How long they are.
    pub sizes: Sizes,
    /// The share of all hosts' links that they take, on average.
    pub load: f64,
    /// They begin before this time, ns.
    pub until_ns: u64,
}

impl Background {
    /// The flows of a network of so many hosts with links of so many bit/s; when there are `most`,
    /// no more are made.
    pub fn demands(
        &self,
        hosts: u32,
        rate_bps: u64,
        foreground: bool,
        most: usize,
        seed: u64,
    ) -> Vec<Demand> {
        let mut random = Random::new(seed, 0xbac);
        let mut demands = Vec::new();
        if hosts < 2 || self.load <= 0.0 {
            return demands;
        }
        let gap_ns = self.sizes.mean() * 8e9 / (self.load * rate_bps as f64 * f64::from(hosts));
        let mut at_ns = random.exponential(gap_ns);
        while at_ns < self.until_ns as f64 && demands.len() < most {
            let source = random.below(u64::from(hosts)) as u32;
            let step = 1 + random.below(u64::from(hosts) - 1) as u32;
            let bytes = self.sizes.quantile(random.unit()).max(1.0) as u64;
            let demand = Demand::at(source, (source + step) % hosts, bytes, at_ns as u64);
            demands.push(Demand { foreground, ..demand });
            at_ns += random.exponential(gap_ns);
        }
        demands
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_sizes_have_the_distributions_mean_and_the_load_is_what_was_asked_for() {
        for sizes in [Sizes::web_search(), Sizes::data_mining()] {
            let mut random = Random::new(3, 0);
            let mean = (0..400_000).map(|_| sizes.quantile(random.unit())).sum::<f64>() / 4e5;
            assert!((mean / sizes.mean() - 1.0).abs() < 0.03, "{sizes:?}: {mean} of {}", sizes.mean());
        }
        let background = Background { sizes: Sizes::web_search(), load: 0.4, until_ns: 400_000_000 };
        let demands = background.demands(16, 10_000_000_000, false, usize::MAX, 1);
        let bytes: u64 = demands.iter().map(|demand| demand.bytes).sum();
        let load = bytes as f64 * 8.0 / (0.4 * 16.0 * 10e9);
        assert!((load - 0.4).abs() < 0.06, "{load}");
        assert!(demands.iter().all(|demand| demand.source != demand.destination && !demand.foreground));
    }
}
