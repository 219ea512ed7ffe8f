// SPDX-License-Identifier: Apache-2.0
//! `trimwire plan train`: what laws of how much to send, and compressors, do to the time to accuracy (NetSenseML's figures 5 and 6, DC2's 4 to 8).
//!
//! ```text
//!  replicas ─► gradients ─► compressor at the law's ratio ─► sum ─► replicas
//!                              ▲ ratio, share cut    │ bytes, as of the scenario's model
//!                              └─── law ◄─── trimwire_planner::scenarios
//! ```

mod contender;
mod recurrent;
mod scenario;

use crate::failure::{EXIT_CODES, Failure, Outcome};
use crate::output::{print, print_json, table};
use crate::page::{Axis, Figure, Mark, Page, Series, Unit};
use anyhow::Context as _;
use clap::Args;
use scenario::{SCENARIOS, Scenario};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;

/// Of everything that a training's times and accuracies follow from (`build.rs`).
pub(crate) const SOURCES: &str = env!("TRIMWIRE_SOURCES_LAWS");

const HELP: &str = "\
Examples:
  trimwire plan train                                   all scenarios, a table each: a few minutes
  trimwire plan train --scenario resnet18-200 --json
  trimwire plan train --seeds 5 --markdown              the tables of the documentation
  trimwire plan train --report algorithms/              a page with accuracy against time

Times are of a job on one link in virtual time; the scenario gives its gradient's bytes. Accuracy is that of a
small network on images of digits. Its gradients are compressed as the algorithm says.";

/// Train a small network under algorithms that choose how much to send, and print the time to an accuracy.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP, after_long_help = format!("{HELP}\n\n{EXIT_CODES}"))]
pub(crate) struct TrainOptions {
    /// Run only this scenario; may be repeated.
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(SCENARIOS.iter().map(|s| s.name)))]
    scenario: Vec<String>,
    /// Number of workers.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: u16,
    /// Units of both hidden layers; the LSTM's have 48.
    #[arg(long, default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=4096))]
    hidden: u16,
    /// Stop after this many steps.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    steps: u32,
    /// Accuracy to reach.
    #[arg(long, default_value_t = 0.9, value_name = "SHARE")]
    target: f64,
    /// Seed of everything random.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Train with this many seeds, from --seed on; tables show the median, the least and the most.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    seeds: u16,
    /// Print the table of times as the documentation has it, with a hash of its sources.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
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
    seed: u64,
    algorithm: &'static str,
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
            for seed in (0..u64::from(options.seeds)).map(|more| options.seed.wrapping_add(more)) {
                trained.push(scenario.train(contender, options, seed)?);
            }
        }
        results.push(Results { scenario: scenario.name, what: scenario.what, trained });
    }
    if let Some(folder) = &options.report {
        let file = folder.join("index.html");
        std::fs::write(&file, page(&results)).with_context(|| format!("cannot write {}", file.display()))?;
        eprintln!("Report: {}", file.display());
    }
    if options.markdown {
        return Ok(print(&markdown(&results, options))?);
    }
    if options.json { Ok(print_json(&results)?) } else { Ok(print(&human(&results, options.target))?) }
}

fn human(results: &[Results], target: f64) -> String {
    let to_target = format!("s to {:.0} %", target * 100.0);
    let titles = ["contender", "seed", "algorithm", &to_target, "accuracy", "steps", "steps/s", "ratio"];
    let mut text = String::new();
    for result in results {
        let row = |one: &Trained| {
            vec![
                one.contender.to_owned(),
                one.seed.to_string(),
                one.algorithm.to_owned(),
                one.seconds_to_target.map_or_else(|| "never".to_owned(), |seconds| format!("{seconds:.1}")),
                format!("{:.1} %", one.accuracy * 100.0),
                one.steps.to_string(),
                format!("{:.2}", one.steps_per_second),
                format!("{:.4}", one.ratio),
            ]
        };
        let rows: Vec<Vec<String>> = result.trained.iter().map(row).collect();
        let _ = writeln!(text, "{}: {}\n\n{}", result.scenario, result.what, table(&titles, &rows, 3));
    }
    text
}

/// A contender's, and its seed where there are several.
fn series_name(one: &Trained, result: &Results) -> String {
    let several =
        result.trained.iter().any(|other| other.contender == one.contender && other.seed != one.seed);
    if several { format!("{}, seed {}", one.contender, one.seed) } else { one.contender.to_owned() }
}

/// A table a set of contenders: a row a contender, a column a scenario.
fn markdown(results: &[Results], options: &TrainOptions) -> String {
    let contenders = |result: &Results| {
        let mut names: Vec<&'static str> = result.trained.iter().map(|one| one.contender).collect();
        names.dedup();
        names
    };
    let mut text = format!("<!-- generated: plan-train {SOURCES} -->\n");
    let _ = writeln!(
        text,
        "Seconds to {:.0} %, of {} steps; median of {} seeds (least to most), and the accuracy at the end.",
        options.target * 100.0,
        options.steps,
        options.seeds
    );
    for together in results.chunk_by(|a, b| contenders(a) == contenders(b)) {
        let titles: Vec<&str> = together.iter().map(|result| result.scenario).collect();
        let _ = write!(text, "\n| | {} |\n|---|{}\n", titles.join(" | "), "---|".repeat(titles.len()));
        for name in together.first().map(contenders).unwrap_or_default() {
            let cells: Vec<String> = together.iter().map(|result| cell(name, &result.trained)).collect();
            let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
        }
    }
    text + "<!-- end -->\n"
}

fn cell(contender: &str, trained: &[Trained]) -> String {
    let of: Vec<&Trained> = trained.iter().filter(|one| one.contender == contender).collect();
    let middle = |mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        let at = |place: usize| values.get(place).copied().unwrap_or(f64::INFINITY);
        [at(0), at(values.len() / 2), at(values.len().saturating_sub(1))]
    };
    // Who never gets there comes last.
    let times = middle(of.iter().map(|one| one.seconds_to_target.unwrap_or(f64::INFINITY)).collect());
    let [least, time, most] =
        times.map(|seconds| if seconds.is_finite() { format!("{seconds:.1}") } else { "never".to_owned() });
    let [_, accuracy, _] = middle(of.iter().map(|one| one.accuracy * 100.0).collect());
    let range = if least == most { String::new() } else { format!(" ({least} to {most})") };
    format!("{time}{range}, {accuracy:.1} %")
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
            .map(|one| Series { name: series_name(one, result), points: one.curve.clone(), mark: Mark::Line })
            .collect(),
        levels: Vec::new(),
    };
    Page {
        title: "Algorithms that choose how much to send, in training".to_owned(),
        summary: "Real gradients of a small network, compressed as each algorithm says; times of the scenario's model on one simulated link.".to_owned(),
        table: human(results, 0.9),
        columns: vec![
            ("ratio", "mean share of the f32s' bytes that was sent; of sparse gradients the share of the values, as the papers count"),
            ("steps", "until the end of the run, which is a number of steps or of virtual seconds"),
        ],
        figures: results.iter().map(figure).collect(),
    }
    .html()
}
