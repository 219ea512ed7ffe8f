// SPDX-License-Identifier: Apache-2.0
//! The demo's flags.

use anyhow::{Error, Result, ensure};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Train a small network through one congested, trimming switch, and compare with drop + retransmit.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Data-parallel workers, 2 to 64.
    #[arg(long, default_value_t = 8)]
    pub workers: u16,
    /// Training steps of each run.
    #[arg(long, default_value_t = 200)]
    pub steps: u32,
    /// Speed of every link, such as 10Gbps or 400Mbps.
    #[arg(long, default_value = "10Gbps", value_parser = parse_rate)]
    pub link_speed: u64,
    /// Offered load on a worker's link during a burst, as a multiple of its speed, 1 to 16.
    #[arg(long, default_value_t = 3)]
    pub congestion: u16,
    /// How deep the switch trims in the run `trim`.
    #[arg(long, value_enum, default_value_t = Policy::Ladder)]
    pub policy: Policy,
    /// How to keep replicas together in the run `trim`.
    #[arg(long, value_enum, default_value_t = Replicas::Free)]
    pub replicas: Replicas,
    /// Virtual time that a rank computes before each all-reduce, µs.
    #[arg(long, default_value_t = 500)]
    pub compute: u64,
    /// Seed of data order, weights, rotations and cross-traffic: the same seed gives the same numbers.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the figures as JSON to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a self-contained HTML page with the curves into this folder.
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
}

/// What a congested queue does to a trimmable packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// Trim to eight planes first, to the sign plane while the queue keeps growing.
    Ladder,
    /// Trim to the sign plane at once.
    Deep,
    /// Never trim below eight planes.
    Shallow,
}

/// Whether replicas may drift apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Replicas {
    /// Let every rank decode what reached it.
    Free,
    /// Let all ranks decode at the lowest precision of any: bit-identical replicas for one more round trip.
    Consistent,
}

impl Options {
    /// Refuses combinations that the fabric cannot be built from.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!((2..=64).contains(&self.workers), "--workers {}: valid are 2 to 64", self.workers);
        ensure!((1..=100_000).contains(&self.steps), "--steps {}: valid are 1 to 100000", self.steps);
        ensure!((1..=16).contains(&self.congestion), "--congestion {}: valid are 1 to 16", self.congestion);
        ensure!(self.compute <= 10_000_000, "--compute {}: valid are 0 to 10000000 µs", self.compute);
        Ok(())
    }
}

/// Parses a rate such as `10Gbps` into bit/s.
fn parse_rate(text: &str) -> Result<u64> {
    let rate = trimwire_controller::units::rate(text).map_err(Error::msg)?;
    ensure!((1_000_000..=1_000_000_000_000).contains(&rate), "{text} is out of range (1Mbps to 1000Gbps)");
    Ok(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_with_their_units_and_bad_ones_are_named() {
        assert_eq!(parse_rate("10Gbps").unwrap(), 10_000_000_000);
        assert_eq!(parse_rate("2.5Gbps").unwrap(), 2_500_000_000);
        assert_eq!(parse_rate("400 Mbps").unwrap(), 400_000_000);
        for bad in ["", "10", "ten Gbps", "10Tbps", "-1Gbps", "NaN Gbps", "0.1Mbps"] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
        assert!(parse_rate("3parsec").unwrap_err().to_string().contains("'parsec'"));
    }
}
