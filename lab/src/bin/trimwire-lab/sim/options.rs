// SPDX-License-Identifier: Apache-2.0
//! What the user asks for.

use super::figures;
use crate::failure::EXIT_CODES;
use clap::{Args, Subcommand};
use std::num::NonZeroUsize;
use std::path::PathBuf;

const HELP: &str = "\
Examples:
  trimwire-lab sim examples/figures/incast-15.yaml
  trimwire-lab sim examples/figures/incast-15.yaml --json > incast.json
  trimwire-lab sim examples/figures/incast-15.yaml --report incast/
  trimwire-lab sim examples/figures/incast-15.yaml --set seed=7 --set workload.incast.bytes=1MB
  trimwire-lab sim examples/figures/incast-15.yaml --set workload.incast.senders=3 --set workload.incast.senders=15
  trimwire-lab sim examples/figures/mlt-14-whole.yaml --run trim --run NDP --threads 2
  trimwire-lab sim figures my-scenarios/
  trimwire-lab sim figures --quick --check

The documentation explains the scenario file, what is real and what is modelled.";

/// Simulate a cluster's network in virtual time: hosts, switches and transports of a scenario file.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP, after_long_help = format!("{HELP}\n\n{EXIT_CODES}"))]
#[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(super) command: Option<Command>,
    /// Scenario file. Runs have its first seed; `trimwire-lab sim figures DIR` makes them with all.
    #[arg(value_name = "SCENARIO.yaml", required = true)]
    pub(super) scenario: Option<PathBuf>,
    /// Print the figures as JSON. The same seed gives the same bytes, except
    /// packet_hops_per_second.
    #[arg(long)]
    pub(super) json: bool,
    /// Run only the run of this name; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub(super) run: Vec<String>,
    /// Set a key of the scenario, such as seed=2 or workload.incast.bytes=1MB; given again, the key
    /// makes a sweep: all runs with each value.
    #[arg(long, value_name = "KEY=VALUE")]
    pub(super) set: Vec<String>,
    /// Write a self-contained page with plots to this folder; flows.csv, each flow; slowdown.csv,
    /// slowdowns by size as HPCC prints them.
    #[arg(long, value_name = "DIR")]
    pub(super) report: Option<PathBuf>,
    /// Use at most this many threads; results do not depend on them [default: one a processor].
    #[arg(long)]
    pub(super) threads: Option<NonZeroUsize>,
}

#[derive(Debug, Clone, Subcommand)]
pub(super) enum Command {
    Figures(figures::Options),
}

/// Threads that the machine has processors for.
pub(super) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, NonZeroUsize::get)
}
