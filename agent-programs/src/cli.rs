// SPDX-License-Identifier: Apache-2.0
//! The command line.

use crate::doctor::DoctorArgs;
use crate::perf::args::{PerfArgs, PushPullArgs};
use crate::serve::ServeArgs;
use crate::show::TranscriptCommand;
use crate::top::TopArgs;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

#[derive(Parser)]
#[command(
    name = "trimwire-agent",
    version,
    about = "Send gradients over a real network and measure what arrives",
    after_help = "Exit codes: 0 success, 1 an operation failed or a check found a fault, 2 usage, 3 bad input."
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Measure collectives, one process a rank.
    #[command(subcommand)]
    Perf(Perf),
    /// Run a parameter server: sum what workers push, until they leave.
    Serve(Box<ServeArgs>),
    /// Watch running ranks: rates, trims, losses and round trips, by peer and path. Without a
    /// terminal, one interval.
    Top(TopArgs),
    /// Find what slows down this host, or the path to another one.
    Doctor(Box<DoctorArgs>),
    /// Read transcripts that `perf --record` wrote.
    #[command(subcommand)]
    Transcript(TranscriptCommand),
    /// Print completions for a shell.
    Completions {
        /// Shell to print completions for.
        shell: clap_complete::Shell,
    },
    /// Write manual pages into a folder.
    Man {
        /// Existing folder to write into.
        folder: PathBuf,
    },
}

/// Measure collectives, one process a rank.
#[derive(Subcommand)]
pub(crate) enum Perf {
    /// Sum all ranks' gradients at every rank (columns as in nccl-tests).
    AllReduce(Box<PerfArgs>),
    /// Sum gradients, and leave a shard of the sum at each rank.
    ReduceScatter(Box<PerfArgs>),
    /// Gather a shard of each rank at every rank.
    AllGather(Box<PerfArgs>),
    /// Send one rank's gradient to every rank.
    Broadcast(Box<PerfArgs>),
    /// Sum all ranks' gradients at one rank.
    Reduce(Box<PerfArgs>),
    /// Sum the workers' gradients at servers, which run `trimwire-agent serve`.
    PushPull(Box<PushPullArgs>),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
