//! `trimwire sim figures`: all scenarios of a folder, run by run, each kept as soon as it is there.

use super::options::Threads;
use super::page::{self, Curves};
use super::{Scenario, create, human, run_one, write};
use crate::failure::{Failure, Outcome};
use crate::output::print;
use anyhow::Context as _;
use clap::Args;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use trimwire_agent::transcript::hex;
use trimwire_fabric::sim::report::RunReport;
use trimwire_fabric::sim::scenario::Prepared;

/// Make all figures of a folder of scenarios, with a table, JSON and a page of plots for each.
///
/// What was run before with the same input, by the same version, is not run again: a run of the command that was ended goes on where it was.
#[derive(Debug, Clone, Args)]
pub(crate) struct Options {
    /// The scenarios' folder.
    #[arg(value_name = "DIR", default_value = "examples/figures")]
    folder: PathBuf,
    /// Where results are written, and looked for.
    #[arg(long, value_name = "DIR", default_value = "figures-results")]
    results: PathBuf,
    /// Only the runs that scenarios list under `short`: half a minute instead of a night.
    #[arg(long)]
    short: bool,
    #[command(flatten)]
    threads: Threads,
}

/// One run's results, as they are kept.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// Hash of everything that the results follow from.
    input: String,
    report: RunReport,
    curves: Curves,
}

/// Runs what has no results yet.
pub(super) fn run(options: &Options) -> Outcome {
    // Every mistake of every file is found before the first run.
    let mut scenarios = Vec::new();
    for path in files(&options.folder).map_err(Failure::input)? {
        let scenario = Scenario::read(&path)?;
        if !options.short || !scenario.file.short.is_empty() {
            let stem = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
            scenarios.push((options.results.join(stem), scenario));
        }
    }
    for (folder, scenario) in &scenarios {
        create(folder)?;
        let (mut runs, mut curves) = (Vec::new(), Vec::new());
        for (number, prepared) in scenario.runs.iter().enumerate() {
            if options.short && !scenario.file.short.contains(&prepared.name) {
                continue;
            }
            let kept = keep(&folder.join(file_name(number, &prepared.name)), prepared, options)?;
            runs.push(kept.report);
            curves.push(kept.curves);
        }
        let results = scenario.results(runs);
        write(&folder.join("index.html"), &page::html(&results, &curves))?;
        let json = serde_json::to_string_pretty(&results).context("cannot write results as JSON")?;
        write(&folder.join("results.json"), &(json + "\n"))?;
        print(&format!("{}\n{}\n\n", human(&results), folder.join("index.html").display()))?;
    }
    Ok(())
}

/// Results that are there, or those of a run.
fn keep(path: &Path, prepared: &Prepared, options: &Options) -> anyhow::Result<Kept> {
    let input = hash(prepared);
    let there = std::fs::read_to_string(path).ok().and_then(|text| serde_json::from_str::<Kept>(&text).ok());
    if let Some(kept) = there.filter(|kept| kept.input == input) {
        return Ok(kept);
    }
    let (report, curves) = run_one(prepared, options.threads.count())?;
    let kept = Kept { input, report, curves };
    // Nobody finds half a file.
    let half = path.with_extension(format!("{}.part", std::process::id()));
    write(&half, &serde_json::to_string(&kept).context("cannot write results as JSON")?)?;
    std::fs::rename(&half, path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(kept)
}

fn files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let unreadable = || format!("cannot read the folder {}", folder.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(unreadable)? {
        let path = entry.with_context(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "yaml") {
            paths.push(path);
        }
    }
    paths.sort();
    anyhow::ensure!(!paths.is_empty(), "{}: there are no scenarios (*.yaml)", folder.display());
    Ok(paths)
}

fn file_name(number: usize, name: &str) -> String {
    let word: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(60).collect();
    format!("{number:02}-{word}.run.json")
}

/// Of the version and all of the set-up.
fn hash(prepared: &Prepared) -> String {
    let mut hash = Hash(Sha256::new());
    let _ = write!(hash, "{} {prepared:?}", env!("CARGO_PKG_VERSION"));
    hex(&hash.0.finalize().into())
}

struct Hash(Sha256);

impl std::fmt::Write for Hash {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.update(text.as_bytes());
        Ok(())
    }
}
