// SPDX-License-Identifier: Apache-2.0
//! `thresholds`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use trimwire_controller::Fabric;
use trimwire_controller::follow::{Measured, measured};
use trimwire_controller::run::thresholds_page;
use trimwire_controller::thresholds::{LAYERS_SCHEMA, Model, answer, fragment};

use super::input;
use super::outcome::{Failure, Outcome, bad_input, failed, print, print_value, say};

const HELP: &str = "\
Examples:
  trimwire-controller thresholds --model layers.yaml                     what is assumed, the thresholds, what they save
  trimwire-controller thresholds --model layers.yaml --fabric fabric.yaml -o policy.yaml
  trimwire-controller thresholds --model layers.yaml --from-run 127.0.0.1:9550
                                                                         load and burst as a `run` has measured them
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
    /// Take load and burst from what a `run` has measured: its address (ADDRESS:PORT or a URL), or a copy
    /// of its page /thresholds.
    #[arg(long, value_name = "FILE|URL")]
    from_run: Option<String>,
    /// Ports whose measurement is taken, as the `run` names them [default: those that refuse most packets].
    #[arg(long, value_name = "PORTS", requires = "from_run")]
    ports: Option<String>,
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
        let measured = self.from_run.as_deref().map(|run| self.measured(run)).transpose()?;
        let model =
            Model::with_measured(&text, &name, measured.map(|measured| (measured.load, measured.burst)))
                .map_err(bad_input)?;
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

impl Thresholds {
    fn measured(&self, run: &str) -> Result<Measured, Failure> {
        let wrong = |why: String| bad_input(anyhow!("--from-run {run}: {why}"));
        let url = run.strip_prefix("http://");
        let host = url.map_or(run, |rest| rest.split('/').next().unwrap_or_default());
        let page = match host.parse::<SocketAddr>() {
            Ok(address) => {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let asked = async { tokio::time::timeout(PATIENCE, thresholds_page(address)).await };
                let answer = runtime.map_err(failed)?.block_on(asked);
                answer.unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}"))).map_err(wrong)?
            }
            Err(_) if url.is_some() => {
                return Err(wrong(format!("'{host}' is no ADDRESS:PORT, as in 127.0.0.1:9550")));
            }
            Err(_) => input::text(Path::new(run))?,
        };
        let measured = measured(&page, self.ports.as_deref()).map_err(wrong)?;
        say(format_args!("measured: {measured}"));
        if measured.burst.is_none() {
            say(format_args!("too few packets were refused to tell bursts: the layers file's are taken"));
        }
        Ok(measured)
    }
}

/// How long a `run` may take to answer.
const PATIENCE: Duration = Duration::from_secs(10);

fn read(path: &Path) -> Result<(String, String), Failure> {
    let name = path.display().to_string();
    Ok((name, input::text(path)?))
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display())).map_err(failed)
}
