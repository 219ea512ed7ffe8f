// SPDX-License-Identifier: Apache-2.0
//! `trimwire-lab sim`: a scenario file's runs in virtual time, as a table or as JSON.
//!
//! ```text
//! SCENARIO.yaml, model files ─► trimwire_lab::sim ─► table, JSON, page
//! ```

mod figures;
mod flows;
mod options;
mod page;
mod program;
mod topology;
mod training;
mod watch;

use crate::failure::{Failure, Outcome};
use crate::output::{print, print_json, table};
use anyhow::Context as _;
use options::Command;
pub(crate) use options::Options;
use page::Curves;
use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trimwire_controller::Fabric;
use trimwire_lab::espresso::Model;
use trimwire_lab::sim::program::Programs;
use trimwire_lab::sim::report::{RunReport, report};
use trimwire_lab::sim::run::{begin, run as simulate};
use trimwire_lab::sim::scenario::{File, Files, Prepared, Programmed, number as quantity};
use trimwire_lab::sim::topology::Topology;
use watch::Watch;

#[derive(Debug, Serialize)]
struct Results {
    scenario: String,
    seed: u64,
    runs: Vec<RunReport>,
}

/// A scenario's file, checked. Runs are prepared one by one: a large one's flows take gigabytes.
#[derive(Debug)]
struct Scenario {
    file: File,
    text: String,
    path: PathBuf,
    made: Made,
}

/// Runs a scenario, or all of a folder.
pub(crate) fn run(options: &Options) -> Outcome {
    if let Some(Command::Figures(figures)) = &options.command {
        return figures::run(figures);
    }
    let path = options.scenario.as_ref().context("no scenario was given").map_err(Failure::usage)?;
    let sets = combinations(&options.set).map_err(Failure::usage)?;
    let scenarios: Vec<Scenario> =
        sets.iter().map(|set| Scenario::read(path, set)).collect::<Result<_, _>>()?;
    let chosen = choose(&scenarios[0].file, &options.run).map_err(Failure::usage)?;
    if let Some(folder) = &options.report {
        // Found out before the runs, and not after them.
        create(folder)?;
    }
    let threads = options.threads.map_or_else(options::processors, std::num::NonZeroUsize::get);
    let (mut runs, mut curves, mut swept) = (Vec::new(), Vec::new(), Vec::new());
    let mut flows = options.report.as_ref().map(|_| flows::Flows::default());
    for (scenario, set) in scenarios.iter().zip(&sets) {
        // What differs from one combination to another.
        let differs = |at: &usize| sets.iter().any(|other| other[*at] != set[*at]);
        let settings: Vec<(&str, &str)> = (0..set.len()).filter(differs).map(|at| set[at]).collect();
        for &number in &chosen {
            let mut prepared = scenario.prepare(number, scenario.file.seed)?;
            let name = prepared.name.clone();
            for (key, value) in &settings {
                let last = key.rsplit('.').next().unwrap_or(key);
                prepared.name.extend([", ", last, " ", value]);
            }
            let (report, drawn) = run_one(&prepared, threads, flows.as_mut())?;
            runs.push(report);
            curves.push(drawn);
            if let [(_, value)] = settings[..] {
                swept.extend(quantity(value).map(|value| (name, value)));
            }
        }
    }
    let results = scenarios[0].results(runs);
    if let (Some(folder), Some(flows)) = (&options.report, flows) {
        let file = folder.join("index.html");
        write(&file, &page::html(&results, &curves, &swept))?;
        flows.write(folder)?;
        eprintln!("Report: {}", file.display());
    }
    if options.json { Ok(print_json(&results)?) } else { Ok(print(&human(&results))?) }
}

/// Each combination of the values that keys were given.
fn combinations(set: &[String]) -> anyhow::Result<Vec<Vec<(&str, &str)>>> {
    let mut keys: Vec<(&str, Vec<&str>)> = Vec::new();
    for one in set {
        let (key, value) = one.split_once('=').with_context(|| format!("--set {one}: valid is KEY=VALUE"))?;
        match keys.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => keys.push((key, vec![value])),
        }
    }
    let mut all = vec![Vec::new()];
    for (key, values) in keys {
        let with = |set: &Vec<(_, _)>, value| set.iter().copied().chain([(key, value)]).collect();
        all = all.iter().flat_map(|set| values.iter().map(move |&value| with(set, value))).collect();
    }
    Ok(all)
}

impl Scenario {
    fn read(path: &Path, set: &[(&str, &str)]) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let text = read(path).map_err(Failure::input)?;
        let file = File::from_yaml(&text, &name, set).map_err(Failure::input)?;
        let scenario = Self { file, text, path: path.to_owned(), made: Made::default() };
        for number in 0..scenario.file.run_names().count() {
            scenario.prepare(number, scenario.file.seed)?;
        }
        Ok(scenario)
    }

    fn prepare(&self, number: usize, seed: u64) -> Result<Prepared, Failure> {
        let name = self.path.display().to_string();
        let mut beside = Beside { path: &self.path, made: &self.made };
        self.file.prepare_run(number, seed, &self.text, &name, &mut beside).map_err(Failure::input)
    }

    /// Where a file is that it names.
    fn beside(&self, name: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new(".")).join(name)
    }

    /// Seeds of its figure.
    fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        (0..self.file.seeds).map({
            let seed = self.file.seed;
            move |number| seed.wrapping_add(number)
        })
    }

    fn results(&self, runs: Vec<RunReport>) -> Results {
        Results { scenario: self.file.scenario.clone(), seed: self.file.seed, runs }
    }
}

/// Makes a run; `flows` keeps its flows, but for a training's.
fn run_one(
    prepared: &Prepared,
    threads: usize,
    flows: Option<&mut flows::Flows>,
) -> anyhow::Result<(RunReport, Curves)> {
    let mut watch = Watch::new(&prepared.name);
    if let Some(training) = &prepared.training {
        return training::run(prepared, training, threads, &mut watch);
    }
    let outcome = simulate(&prepared.setup, threads, |progress| watch.tell(progress));
    if let Some(flows) = flows {
        flows.add(prepared, &outcome)?;
    }
    Ok((report(prepared, &outcome, watch.finish()), Curves::new(prepared, &outcome)))
}

/// A run's figures when so many frames were handed from node to node.
fn simulate_beginning(prepared: &Prepared, threads: usize, hops: u64) -> RunReport {
    report(prepared, &begin(&prepared.setup, threads, hops, |_| {}), 0.0)
}

fn create(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// What P4 programs were made for, and they: all runs of a scenario, and all seeds, mostly have one
/// network.
type Made = RefCell<BTreeMap<String, Programs>>;

/// Files that a scenario names stand beside it, or where the way from its folder leads.
struct Beside<'a> {
    path: &'a Path,
    made: &'a Made,
}

impl Beside<'_> {
    fn text(&self, name: &str) -> Result<String, String> {
        let path = self.path.parent().unwrap_or(Path::new(".")).join(name);
        read(&path).map_err(|error| format!("{error:#}"))
    }
}

impl Files for Beside<'_> {
    fn model(&mut self, name: &str) -> Result<Model, String> {
        Model::from_yaml(&self.text(name)?, name).map_err(|error| error.to_string())
    }

    fn trace(&mut self, name: &str) -> Result<String, String> {
        self.text(name)
    }

    fn parameters(&mut self, hidden: u32) -> Result<usize, String> {
        Ok(training::network(hidden).parameters())
    }

    fn fabric(&mut self, name: &str) -> Result<Topology, String> {
        let fabric = Fabric::from_yaml(&self.text(name)?, name).map_err(|error| error.to_string())?;
        topology::of(&fabric)
    }

    fn programs(&mut self, network: &Programmed<'_>) -> Result<Programs, String> {
        let key = format!("{network:?}");
        if let Some(known) = self.made.borrow().get(&key) {
            return Ok(known.clone());
        }
        let made = match *network {
            Programmed::Generated { topology, rungs, payload, switches } => {
                program::generated(topology, rungs, payload, switches)
            }
            Programmed::Fabric { name } => {
                let folder = self.path.parent().unwrap_or(Path::new(".")).join(name);
                program::of_fabric(&self.text(name)?, name, folder.parent().unwrap_or(Path::new(".")))
            }
        };
        let made = made.map_err(|error| format!("{error:#}"))?;
        self.made.borrow_mut().insert(key, made.clone());
        Ok(made)
    }
}

/// Numbers of the runs of these names, or of all.
fn choose(file: &File, names: &[String]) -> anyhow::Result<Vec<usize>> {
    let runs: Vec<&str> = file.run_names().collect();
    if let Some(name) = names.iter().find(|name| !runs.contains(&name.as_str())) {
        anyhow::bail!("--run {name}: the scenario has no such run; valid are {}", runs.join("; "));
    }
    // A grid's are made where they are named.
    let chosen = |number: &usize| {
        let all = names.is_empty() && file.settings(*number).is_none();
        all || names.iter().any(|name| name == runs[*number])
    };
    Ok((0..runs.len()).filter(chosen).collect())
}

const TITLES: [&str; 13] = [
    "run", "flows", "left", "FCT mean", "p99", "max", "all", "ideal", "trimmed", "dropped", "again", "NMSE",
    "hops/s",
];

fn human(results: &Results) -> String {
    let rows: Vec<Vec<String>> = results.runs.iter().map(row).collect();
    let left: Vec<String> = results.runs.iter().filter_map(left).collect();
    let table = table(&TITLES, &rows, 1);
    let text = format!("{} (seed {})\n\n{table}{}", results.scenario, results.seed, left.concat());
    match training::human(&results.runs) {
        Some(trained) => format!("{text}\n{trained}"),
        None => text,
    }
}

/// A line about flows that did not finish: without it the times of the others would pass for the
/// run's.
fn left(run: &RunReport) -> Option<String> {
    let RunReport { name, unfinished, .. } = run;
    let flows = if *unfinished == 1 { "flow" } else { "flows" };
    (*unfinished > 0)
        .then(|| format!("\n{name}: {unfinished} {flows} did not finish; times are of the others.\n"))
}

fn row(run: &RunReport) -> Vec<String> {
    let none = || "–".to_owned();
    let percent = |share: f64| format!("{:.2} %", share * 100.0);
    vec![
        run.name.clone(),
        run.flows.to_string(),
        run.unfinished.to_string(),
        run.fct_mean_s.map_or_else(none, time),
        run.fct_p99_s.map_or_else(none, time),
        run.fct_max_s.map_or_else(none, time),
        run.completion_s.map_or_else(none, time),
        time(run.ideal_s),
        percent(run.trimmed_share),
        percent(run.dropped_share),
        percent(run.repaired_share),
        run.nmse.map_or_else(none, |nmse| format!("{nmse:.1e}")),
        format!("{:.2} M", run.packet_hops_per_second / 1e6),
    ]
}

fn time(seconds: f64) -> String {
    if seconds < 1e-3 { format!("{:.1} us", seconds * 1e6) } else { format!("{:.3} ms", seconds * 1e3) }
}
