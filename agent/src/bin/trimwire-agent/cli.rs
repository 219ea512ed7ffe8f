//! The command line.

use crate::doctor::DoctorArgs;
use crate::perf::args::{PerfArgs, PushPullArgs};
use crate::serve::ServeArgs;
use crate::show::TranscriptCommand;
use crate::top::TopArgs;
use crate::transfer::TransferArgs;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

#[derive(Parser)]
#[command(
    name = "trimwire-agent",
    version,
    about = "Send gradients over a real network and measure what arrives"
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Measure, one process a rank.
    #[command(subcommand)]
    Perf(Perf),
    /// Be a parameter server: sum what workers push, until they leave.
    Serve(Box<ServeArgs>),
    /// Look at running ranks: rates, cuts, losses and round trips, by peer and path.
    Top(TopArgs),
    /// Say what would keep this host, and the way to another, from their best.
    Doctor(Box<DoctorArgs>),
    /// Look into transcripts that `perf --record` wrote.
    #[command(subcommand)]
    Transcript(TranscriptCommand),
    /// Print completions for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write manual pages into a folder.
    Man {
        /// The folder, which has to be there.
        folder: PathBuf,
    },
}

/// What is measured.
#[derive(Subcommand)]
pub(crate) enum Perf {
    /// Gradients one way, from one or several clients to a server, in iperf3's manner.
    Transfer(Box<TransferArgs>),
    /// The sum of all ranks' gradients, for all (columns as in nccl-tests).
    AllReduce(Box<PerfArgs>),
    /// The sum, a shard for each rank.
    ReduceScatter(Box<PerfArgs>),
    /// A shard of each rank, for all.
    AllGather(Box<PerfArgs>),
    /// One rank's gradient, for all.
    Broadcast(Box<PerfArgs>),
    /// The sum, for one rank.
    Reduce(Box<PerfArgs>),
    /// The workers' sum, by way of servers, which run `trimwire-agent serve`.
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
