//! `trimwire plan train`: what laws of how much to send, and compressors, do to the time to accuracy (NetSenseML's figures 5 and 6, DC2's 4 to 6).
//!
//! ```text
//!  replicas ─► gradients ─► compressor at the law's ratio ─► sum ─► replicas
//!                              ▲ ratio, share cut    │ bytes, as of the scenario's model
//!                              └─── law ◄─── trimwire_planner::scenarios
//! ```

mod contender;
mod scenario;

use crate::failure::{EXIT_CODES, Failure, Outcome};
use crate::output::{print, print_json, table};
use crate::page::{Axis, Figure, Page, Series, Unit};
use anyhow::Context as _;
use clap::Args;
use scenario::{SCENARIOS, Scenario};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;

const HELP: &str = "\
Examples:
  trimwire plan train                                   all scenarios, a table each: a few minutes
  trimwire plan train --scenario resnet18-200 --json
  trimwire plan train --report laws/                    a page with accuracy against time

Times are of a job whose gradient has the scenario's bytes, on one link in virtual time; accuracy is that of a small network on images of digits, whose gradients are
compressed as the law says. docs/planner.md has what came out, beside the papers' numbers.";

/// Train a small network under laws of how much to send, and tell the time to an accuracy.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP, after_long_help = format!("{HELP}\n\n{EXIT_CODES}"))]
pub(crate) struct TrainOptions {
    /// Only this scenario; may be given several times.
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(SCENARIOS.iter().map(|s| s.name)))]
    scenario: Vec<String>,
    /// Workers.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: u16,
    /// Units of both hidden layers.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=4096))]
    hidden: u16,
    /// Steps at most.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: u32,
    /// The accuracy the time to which is told.
    #[arg(long, default_value_t = 0.9, value_name = "SHARE")]
    target: f64,
    /// Of everything drawn.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write a self-contained page with plots to this folder.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A contender's training.
#[derive(Debug, Serialize)]
struct Trained {
    contender: &'static str,
    law: &'static str,
    steps: usize,
    /// Virtual time until the target; `None` if it was not reached.
    seconds_to_target: Option<f64>,
    /// At the end, of held-out images.
    accuracy: f64,
    steps_per_second: f64,
    /// Mean share of the f32s' bytes that was sent.
    ratio: f64,
    /// Virtual seconds, accuracy.
    curve: Vec<(f64, f64)>,
}

#[derive(Debug, Serialize)]
struct Results {
    scenario: &'static str,
    what: &'static str,
    trained: Vec<Trained>,
}

/// Trains, and tells.
pub(crate) fn run(options: &TrainOptions) -> Outcome {
    if !(0.0..=1.0).contains(&options.target) {
        let error = anyhow::anyhow!("--target {}: valid are 0 to 1", options.target);
        return Err(Failure::usage(error));
    }
    if let Some(folder) = &options.report {
        // Found out before the runs, and not after them.
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create --report {}", folder.display()))?;
    }
    let wanted = |scenario: &&Scenario| {
        options.scenario.is_empty() || options.scenario.iter().any(|name| name == scenario.name)
    };
    let mut results = Vec::new();
    for scenario in SCENARIOS.iter().filter(wanted) {
        let mut trained = Vec::new();
        for contender in scenario.contenders {
            eprintln!("{}: {}", scenario.name, contender.name);
            trained.push(scenario.train(contender, options)?);
        }
        results.push(Results { scenario: scenario.name, what: scenario.what, trained });
    }
    if let Some(folder) = &options.report {
        let file = folder.join("index.html");
        std::fs::write(&file, page(&results)).with_context(|| format!("cannot write {}", file.display()))?;
        eprintln!("Report: {}", file.display());
    }
    if options.json { Ok(print_json(&results)?) } else { Ok(print(&human(&results, options.target))?) }
}

fn human(results: &[Results], target: f64) -> String {
    let to_target = format!("s to {:.0} %", target * 100.0);
    let titles = ["contender", "law", &to_target, "accuracy", "steps", "steps/s", "ratio"];
    let mut text = String::new();
    for result in results {
        let row = |one: &Trained| {
            vec![
                one.contender.to_owned(),
                one.law.to_owned(),
                one.seconds_to_target.map_or_else(|| "never".to_owned(), |seconds| format!("{seconds:.1}")),
                format!("{:.1} %", one.accuracy * 100.0),
                one.steps.to_string(),
                format!("{:.2}", one.steps_per_second),
                format!("{:.4}", one.ratio),
            ]
        };
        let rows: Vec<Vec<String>> = result.trained.iter().map(row).collect();
        let _ = writeln!(text, "{}: {}\n\n{}", result.scenario, result.what, table(&titles, &rows, 2));
    }
    text
}

fn page(results: &[Results]) -> String {
    let figure = |result: &Results| Figure {
        title: result.what,
        caption: "Held-out accuracy against virtual time.",
        x: Axis::linear("virtual time", Unit::Seconds),
        y: Axis::linear("accuracy", Unit::Share),
        series: result
            .trained
            .iter()
            .map(|one| Series { name: one.contender.to_owned(), points: one.curve.clone(), dots: false })
            .collect(),
        levels: Vec::new(),
    };
    Page {
        title: "Laws of how much to send, in training".to_owned(),
        summary: "Real gradients of a small network, compressed as each law says; times of the scenario's model on one simulated link.".to_owned(),
        table: human(results, 0.9),
        columns: vec![
            ("ratio", "mean share of the f32s' bytes that was sent; of sparse gradients the share of the values, as the papers count"),
            ("steps", "until the end of the run, which is a number of steps or of virtual seconds"),
        ],
        figures: results.iter().map(figure).collect(),
    }
    .html()
}
