// SPDX-License-Identifier: Apache-2.0
//! The demo's flags.

use anyhow::{Result, ensure};
use clap::Args;
use std::path::PathBuf;

/// Train a small network through one congested, trimming switch, and compare with drop +
/// retransmit.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// Data-parallel workers, 2 to 64.
    #[arg(long, default_value_t = 8)]
    pub workers: u16,
    /// Training steps of each run.
    #[arg(long, default_value_t = 200)]
    pub steps: u32,
    /// Offered load on a worker's link during a burst, as a multiple of its speed, 1 to 16.
    #[arg(long, default_value_t = 3)]
    pub congestion: u16,
    /// Seed of data order, weights, rotations and cross-traffic: the same seed gives the same
    /// numbers.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the figures as JSON to this file.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a self-contained HTML page with the curves into this folder.
    #[arg(long, value_name = "DIR")]
    pub report: Option<PathBuf>,
}

impl Options {
    /// Refuses combinations that the fabric cannot be built from.
    pub(crate) fn check(&self) -> Result<()> {
        ensure!((2..=64).contains(&self.workers), "--workers {}: valid are 2 to 64", self.workers);
        ensure!((1..=100_000).contains(&self.steps), "--steps {}: valid are 1 to 100000", self.steps);
        ensure!((1..=16).contains(&self.congestion), "--congestion {}: valid are 1 to 16", self.congestion);
        Ok(())
    }
}
