//! What the user asks for.

use crate::failure::EXIT_CODES;
use clap::Args;
use std::num::NonZeroUsize;
use std::path::PathBuf;

const HELP: &str = "\
Examples:
  trimwire sim examples/figures/incast-15.yaml
  trimwire sim examples/figures/incast-15.yaml --json > incast.json
  trimwire sim examples/figures/incast-15.yaml --report incast/
  trimwire sim examples/figures/mlt-14-googlenet.yaml --run trim-48 --run ndp-48 --threads 2

docs/scale.md explains the file, what is real and what is modelled, and what came out.";

/// Simulate a cluster's network: hosts, switches and transports of a scenario file, in virtual time.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP, after_long_help = format!("{HELP}\n\n{EXIT_CODES}"))]
pub(crate) struct Options {
    /// The scenario file.
    #[arg(value_name = "SCENARIO.yaml")]
    pub(crate) scenario: PathBuf,
    /// Print the figures as JSON; the same seed gives the same bytes, but for packet_hops_per_second.
    #[arg(long)]
    pub(crate) json: bool,
    /// Only the run of this name; may be given several times.
    #[arg(long, value_name = "NAME")]
    pub(crate) run: Vec<String>,
    /// Write a self-contained page with plots to this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// Threads at most; results do not depend on them [default: one a processor].
    #[arg(long)]
    threads: Option<NonZeroUsize>,
}

impl Options {
    pub(crate) fn threads(&self) -> usize {
        let all = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        self.threads.map_or_else(all, NonZeroUsize::get)
    }
}
