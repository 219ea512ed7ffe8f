//! What the user asks for.

use super::measure::MeasureOptions;
use super::train::TrainOptions;
use crate::failure::EXIT_CODES;
use clap::Args;
use std::path::PathBuf;

const HELP: &str = "\
Examples:
  trimwire plan examples/plans/vgg16.yaml examples/plans/nvlink-100g.yaml
  trimwire plan examples/plans/lstm.yaml examples/plans/pcie-25g.yaml -o timeline.svg
  trimwire plan MODEL.yaml CLUSTER.yaml --json > plan.json
  trimwire plan measure > cluster.yaml                      what compression and collectives take here
  trimwire plan train                                       what laws of how much to send do to a training
  trimwire plan MODEL.yaml CLUSTER.yaml --plan plan.json    what the plan takes on this cluster; refused for another model

docs/explanation/planner.md explains both files and how options are written.";

/// Plan which tensors of a model to compress, how, and on which device (Espresso), and predict the iteration time.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = HELP, after_long_help = format!("{HELP}\n\n{EXIT_CODES}"))]
pub(crate) struct Options {
    #[command(subcommand)]
    pub command: Option<Subcommand>,
    /// The model: tensors, sizes, computation times.
    #[arg(value_name = "MODEL.yaml", required = true)]
    pub model: Option<PathBuf>,
    /// The cluster: machines, links, devices, compressor.
    #[arg(value_name = "CLUSTER.yaml", required = true)]
    pub cluster: Option<PathBuf>,
    /// Try every strategy, too, and plan the best of them: for models of up to three tensors or so.
    #[arg(long, conflicts_with = "plan")]
    pub brute_force: bool,
    /// A plan made earlier: says what it takes here, instead of making one.
    #[arg(long, value_name = "PLAN.json")]
    pub plan: Option<PathBuf>,
    /// SVG file for the timeline.
    #[arg(short, long, value_name = "FILE", conflicts_with = "plan")]
    pub output: Option<PathBuf>,
    /// List every tensor, not only those that are compressed.
    #[arg(long)]
    pub all: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Beside planning.
#[derive(Debug, Clone, clap::Subcommand)]
pub(crate) enum Subcommand {
    Measure(MeasureOptions),
    Train(TrainOptions),
}
