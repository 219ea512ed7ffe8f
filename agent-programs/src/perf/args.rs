// SPDX-License-Identifier: Apache-2.0
//! Options of `perf`.

use crate::Failure;
use crate::args::LinkArgs;
use crate::meet::{Caller, Met, RendezvousArgs};
use crate::operation::Operation;
use crate::settings::RateAlgorithm;
use crate::transcript::TranscriptArgs;
use crate::units::bytes;
use clap::{Args, ValueEnum};
use trimwire_agent::driver::channels::CHANNELS_MOST;
use trimwire_encoder::PLANES;

#[derive(Args)]
#[command(mut_arg("replay", |arg| arg.requires("reliable")))]
pub(crate) struct PerfArgs {
    /// What is measured: the subcommand.
    #[arg(skip)]
    pub(crate) operation: Operation,
    /// Of a push-pull.
    #[arg(skip)]
    pub(crate) servers: Vec<u16>,
    #[command(flatten)]
    pub(crate) rendezvous: RendezvousArgs,
    /// Smallest gradient in bytes, four a coordinate.
    #[arg(short = 'b', long, default_value = "64K", value_parser = bytes)]
    pub(crate) min_bytes: u64,
    /// Largest gradient in bytes.
    #[arg(short = 'e', long, default_value = "16M", value_parser = bytes)]
    pub(crate) max_bytes: u64,
    /// Multiply the size by this from one row to the next.
    #[arg(short = 'f', long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(2..=1024))]
    pub(crate) step_factor: u64,
    /// Measure this many operations of each size.
    #[arg(short = 'n', long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) iters: u32,
    /// Run this many operations of each size first.
    #[arg(short = 'w', long, default_value_t = 1)]
    pub(crate) warmup_iters: u32,
    #[command(flatten)]
    pub(crate) way: crate::way::WayArgs,
    /// Send every bit (four bytes a coordinate), and repair what switches trim.
    #[arg(long)]
    pub(crate) exact: bool,
    /// Rank that broadcasts, or that gets the sum of a reduce.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=1023))]
    pub(crate) root: u16,
    /// Move and code each operation with this many threads, on UDP ports from the rank's own
    /// upwards; the same on all ranks [default: as many as each rank has processors, up to 4; with
    /// --peers, --port or a transcript 1].
    #[arg(long, env = "TRIMWIRE_CHANNELS", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(CHANNELS_MOST)))]
    pub(crate) channels: Option<u16>,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
    /// Choose the planes of each operation, up to --planes, from how the one before fared.
    /// Algorithms: netsense, da1 to da5, trim-feedback, progress, fixed; with parameters,
    /// da5:k_min=0.1,alpha=1.5.
    #[arg(long, value_name = "ALGORITHM", conflicts_with_all = ["exact", "record", "replay"])]
    pub(crate) adaptive: Option<String>,
    /// What to do when an operation fails. `shrink` goes on with the remaining ranks while they are
    /// more than half.
    #[arg(long, value_enum, default_value = "stop", conflicts_with_all = ["adaptive", "record", "replay"])]
    pub(crate) on_failure: OnFailure,
    /// Send this many planes of each packet. Fewer than 10 compress ahead of time.
    #[arg(long, default_value_t = PLANES, value_parser = clap::value_parser!(u8).range(1..=i64::from(PLANES)))]
    pub(crate) planes: u8,
    #[command(flatten)]
    pub(crate) transcript: TranscriptArgs,
}

/// What becomes of a job whose operation has failed.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnFailure {
    /// End the job.
    Stop,
    /// Go on with the remaining ranks.
    Shrink,
}

#[derive(Args)]
pub(crate) struct PushPullArgs {
    /// Ranks of the servers, the same on all ranks.
    #[arg(long, value_delimiter = ',', required = true, value_name = "RANK,…")]
    pub(crate) servers: Vec<u16>,
    #[command(flatten)]
    pub(crate) perf: PerfArgs,
}

impl PerfArgs {
    /// An algorithm that says how fast data leaves is not to be second-guessed by another one.
    fn usual_rate(&self) -> RateAlgorithm {
        let paces = |law: &String| law.starts_with("trim-feedback") || law.starts_with("progress");
        let paces = self.adaptive.as_ref().is_some_and(paces);
        if paces { RateAlgorithm::Fixed } else { RateAlgorithm::Dctcp }
    }
}

/// Meets the other ranks of a measurement, unless their addresses are given.
pub(crate) fn meet(args: &PerfArgs) -> Result<Met, Failure> {
    let repeats = |rank| Ok(args.transcript.files(1).repeated(rank)?.map(|header| (header.job, header.seed)));
    Caller {
        rendezvous: &args.rendezvous,
        link: &args.link,
        // Servers have one. What is recorded is to be repeated with other processors, too.
        channels: args.channels.or((args.operation == Operation::PushPull).then_some(1)),
        by_cores: args.transcript.is_empty(),
        usual_rate: args.usual_rate(),
        root: args.root,
        repeats: &repeats,
    }
    .meet()
}
