// SPDX-License-Identifier: Apache-2.0
//! What the user asks for.

use super::thresholds::ThresholdsOptions;
use crate::failure::EXIT_CODES;
use clap::Args;
use std::path::PathBuf;

const HELP: &str = "\
Examples:
  trimwire-lab plan examples/plans/vgg16.yaml examples/plans/pcie-25g.yaml
  trimwire-lab plan examples/plans/lstm.yaml examples/plans/pcie-25g.yaml --report timeline.html
  trimwire-lab plan MODEL.yaml CLUSTER.yaml --json > plan.json
  trimwire-lab plan thresholds examples/models/resnet-50.yaml   where switches trim, for the least weighted loss
  trimwire-lab plan MODEL.yaml CLUSTER.yaml --plan plan.json    what the plan takes on this cluster; refused for another model

The planner pages of the documentation explain both files and how options are written.";

/// Plan which tensors of a model to compress, how, and on which device (Espresso), and predict the
/// iteration time.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = HELP, after_long_help = format!("{HELP}\n\n{EXIT_CODES}"))]
pub(crate) struct Options {
    #[command(subcommand)]
    pub command: Option<Subcommand>,
    /// Model file: tensors, sizes, computation times.
    #[arg(value_name = "MODEL.yaml", required = true)]
    pub model: Option<PathBuf>,
    /// Cluster file: machines, links, devices, compressor.
    #[arg(value_name = "CLUSTER.yaml", required = true)]
    pub cluster: Option<PathBuf>,
    /// Predict the iteration time of this earlier plan, instead of making one.
    #[arg(long, value_name = "PLAN.json")]
    pub plan: Option<PathBuf>,
    /// Write a page (HTML) with the timeline to this file.
    #[arg(long, value_name = "FILE", conflicts_with = "plan")]
    pub report: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Beside planning.
#[derive(Debug, Clone, clap::Subcommand)]
pub(crate) enum Subcommand {
    Thresholds(ThresholdsOptions),
}
