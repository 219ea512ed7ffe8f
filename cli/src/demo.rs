// SPDX-License-Identifier: Apache-2.0
//! `trimwire demo`: a model trains through a congested, trimming switch, next to the same without
//! trimming.

mod options;
mod outcome;
mod report;
mod run;
mod scenario;
mod table;

pub(crate) use options::Options;

use crate::output::print;
use crate::progress::Progress;
use anyhow::{Context, Result};
use outcome::{Outcome, Run};
use scenario::Scenario;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Runs the demo, whose options have been checked, and prints its table; writes JSON and report
/// where the options ask for them.
pub(crate) fn demo(options: &Options) -> Result<()> {
    if let Some(folder) = &options.report {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create --report {}", folder.display()))?;
    }
    if let Some(file) = &options.json {
        // Known before the runs, not after.
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(file);
        opened.with_context(|| format!("cannot write --json {}", file.display()))?;
    }
    let runs = run_all(options)?;
    let outcome = assemble(options, runs)?;
    print(&format!("{}\n{}", table::render(&outcome), table::verdict(&outcome)))?;
    if let Some(file) = &options.json {
        let text = serde_json::to_string_pretty(&outcome)? + "\n";
        std::fs::write(file, text).with_context(|| format!("cannot write --json {}", file.display()))?;
    }
    if let Some(folder) = &options.report {
        let file = folder.join("index.html");
        std::fs::write(&file, report::html(&outcome))
            .with_context(|| format!("cannot write {}", file.display()))?;
        print(&format!("Report: {}\n", file.display()))?;
    }
    Ok(())
}

/// Runs the scenarios on as many threads as there are cores. They share nothing, so their figures
/// do not depend on that.
fn run_all(options: &Options) -> Result<Vec<Run>> {
    let progress = Progress::new(u64::from(options.steps) * Scenario::ALL.len() as u64, "training steps");
    let next = AtomicUsize::new(0);
    let results: Mutex<BTreeMap<&str, Result<Run>>> = Mutex::default();
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(Scenario::ALL.len());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(&scenario) = Scenario::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let result = run::run(scenario, options, || progress.step())
                        .with_context(|| format!("run '{}'", scenario.name()));
                    progress.line(&format!("run '{}' is done", scenario.name()));
                    results.lock().unwrap_or_else(PoisonError::into_inner).insert(scenario.name(), result);
                }
            });
        }
    });
    progress.finish();
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    Scenario::ALL.iter().filter_map(|scenario| results.remove(scenario.name())).collect()
}

fn assemble(options: &Options, mut runs: Vec<Run>) -> Result<Outcome> {
    let baseline = runs.first().context("no run has finished")?;
    let baseline_accuracy = baseline.final_accuracy;
    let parameters = baseline.parameters;
    runs.iter_mut().for_each(|run| run.wait_for(baseline_accuracy));
    Ok(Outcome {
        runs,
        seed: options.seed,
        workers: options.workers,
        steps: options.steps,
        link_bps: run::LINK_BPS,
        congestion: options.congestion,
        parameters,
        baseline_accuracy,
    })
}
