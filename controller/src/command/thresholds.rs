// SPDX-License-Identifier: Apache-2.0
//! `thresholds`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};
use trimwire_controller::Fabric;
use trimwire_controller::thresholds::{LAYERS_SCHEMA, Model, answer, fragment};

use super::input;
use super::outcome::{Failure, Outcome, bad_input, failed, print, print_value};

const HELP: &str = "\
Examples:
  trimwire-controller thresholds --model layers.yaml                     what is assumed, the thresholds, what they save
  trimwire-controller thresholds --model layers.yaml --fabric fabric.yaml -o policy.yaml
  trimwire-controller thresholds --model layers.yaml --policy drop       MLT's selective dropping

The documentation explains the file and the formulas. examples/models has files to start from.";

#[derive(Args)]
#[command(after_help = HELP)]
pub(crate) struct Thresholds {
    /// Layers file: names, sizes, sensitivities, and the congested port.
    #[arg(long, value_name = "LAYERS.yaml", required_unless_present = "schema")]
    model: Option<PathBuf>,
    /// Fabric file to take classes, MTU, trim sizes and the slowest port's speed from, where the layers
    /// file has none.
    #[arg(long, value_name = "FABRIC.yaml")]
    fabric: Option<PathBuf>,
    /// Policy to write.
    #[arg(long, value_enum, default_value_t = Policy::Trim)]
    policy: Policy,
    /// Write the policy to this file as YAML [default: print it after the report].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print JSON instead of tables.
    #[arg(long)]
    json: bool,
    /// Print the JSON Schema of the layers file.
    #[arg(long, exclusive = true)]
    schema: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Policy {
    /// Trimming.
    Trim,
    /// Selective dropping.
    Drop,
}

impl Thresholds {
    pub(crate) fn run(&self) -> Outcome {
        let Some(model) = &self.model else {
            print(LAYERS_SCHEMA.trim_end())?;
            return Ok(0);
        };
        let (name, text) = read(model)?;
        // The messages name the file on every line already.
        let model = Model::from_yaml(&text, &name).map_err(bad_input)?;
        let fabric = match &self.fabric {
            None => None,
            Some(path) => {
                let (name, text) = read(path)?;
                Some(Fabric::from_yaml(&text, &name).map_err(bad_input)?)
            }
        };
        let answer = answer(&model, fabric.as_ref()).map_err(bad_input)?;
        let policy = fragment(&answer, self.policy == Policy::Trim);
        if let Some(path) = &self.output {
            write(path, &policy)?;
        }
        print_value(&answer, self.json)?;
        if !self.json && self.output.is_none() {
            print(&format!("\n{}", policy.trim_end()))?;
        }
        Ok(0)
    }
}

fn read(path: &Path) -> Result<(String, String), Failure> {
    let name = path.display().to_string();
    Ok((name, input::text(path)?))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display())).map_err(failed)
}
