// SPDX-License-Identifier: Apache-2.0
//! `trimwire-lab sim figures`: the scenarios of a folder as tables that documentation prints, each
//! run kept as soon as it is there.
//!
//! ```text
//!  scenario ─► key of each run and seed ─► kept results, or a run ─► tables ─► docs/*.md (--write), or compared with them (--check)
//! ```

mod keys;
mod pages;
mod tables;

use super::options::processors;
use super::page::{self, Curves};
use super::{Scenario, create, human, read, run_one, write};
use crate::failure::{Failure, Outcome};
use crate::output::print;
use anyhow::Context as _;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use trimwire_lab::sim::report::RunReport;

/// Folder of the pages, in the folder where the command is called.
const DOCS: &str = "docs";

const HELP: &str = "\
Results are kept for the same program, scenario and seed, and not run again: a command that was interrupted goes on
where it stopped.

Examples:
  trimwire-lab sim figures --quick --check               what CI does, in half a minute
  trimwire-lab sim figures --only mlt-14-whole           one figure; its runs are kept one by one
  trimwire-lab sim figures --only mlt-14-whole --write
  trimwire-lab sim figures my-scenarios/                 your own, with all seeds; into figures-results/
  trimwire-lab sim figures --check                       quick figures are made again, and slow ones begun";

/// Make the figures of a folder of scenarios, write them into the documentation, or compare them
/// with it.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP)]
pub(crate) struct Options {
    /// Folder of scenarios.
    #[arg(value_name = "DIR", default_value = "examples/figures")]
    folder: PathBuf,
    /// Folder to write results to, and to look for them.
    #[arg(long, value_name = "DIR", default_value = "figures-results")]
    results: PathBuf,
    /// Make only this figure, named as its file without .yaml; may be repeated.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Make only figures that take seconds.
    #[arg(long)]
    quick: bool,
    /// Fail where pages of docs/ differ from what runs give. Of slow figures without kept results
    /// only the beginnings of runs are compared, and differences reported.
    #[arg(long, conflicts_with = "write")]
    check: bool,
    /// Write the tables into the pages of docs/ that print them.
    #[arg(long)]
    write: bool,
}

/// One run's results, as they are kept.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// Hash of everything that the results follow from.
    key: String,
    report: RunReport,
    curves: Curves,
}

/// A scenario, and where its results are.
struct Figure {
    name: String,
    folder: PathBuf,
    scenario: Scenario,
}

/// Runs what has no results yet.
pub(super) fn run(options: &Options) -> Outcome {
    // Every mistake of every file is found before the first run.
    let figures = figures(options)?;
    let (mut differences, mut stale) = (Vec::new(), Vec::new());
    for figure in &figures {
        if options.check {
            match figure.check(options)? {
                Checked::Same => {}
                Checked::Differs(text) => differences.push(text),
                Checked::Stale(text) => stale.push(text),
            }
        } else {
            figure.make(options)?;
        }
    }
    stale.iter().for_each(|text| eprintln!("{text}"));
    if !differences.is_empty() {
        return Err(Failure::failed(anyhow::anyhow!("{}", differences.join("\n"))));
    }
    if options.check {
        let (all, old) = (figures.len(), stale.len());
        print(&format!("{all} figures: none differs, {old} are to be made again\n"))?;
    }
    Ok(())
}

fn figures(options: &Options) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    let mut names = Vec::new();
    for path in files(&options.folder).map_err(Failure::input)? {
        let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        names.push(name.clone());
        if !options.only.is_empty() && !options.only.contains(&name) {
            continue;
        }
        let scenario = Scenario::read(&path, &[])?;
        if !options.quick || scenario.file.quick {
            figures.push(Figure { folder: options.results.join(&name), name, scenario });
        }
    }
    if let Some(unknown) = options.only.iter().find(|name| !names.contains(name)) {
        let error =
            anyhow::anyhow!("--only {unknown}: there is no such figure; valid are {}", names.join(", "));
        return Err(Failure::usage(error));
    }
    Ok(figures)
}

impl Figure {
    /// All runs' results: of each run with all seeds, of what a grid made of it with the first, of
    /// the best of these with all. With `make` what is not there is made, otherwise it is `None`.
    fn all(&self, make: bool) -> Result<Option<Vec<Vec<Kept>>>, Failure> {
        let file = &self.scenario.file;
        let mut all = Vec::new();
        for number in 0..file.run_names().count() {
            let seeds = if file.settings(number).is_some() { 1 } else { file.seeds as usize };
            let Some(kept) = self.with_seeds(number, 0..seeds, make)? else { return Ok(None) };
            all.push(kept);
        }
        let reports: Vec<Vec<RunReport>> = all.iter().map(|kept| reports(kept)).collect();
        for number in (0..all.len()).filter_map(|number| tables::best(file, &reports, number)) {
            let Some(mut rest) = self.with_seeds(number, 1..file.seeds as usize, make)? else {
                return Ok(None);
            };
            all[number].append(&mut rest);
        }
        Ok(Some(all))
    }

    /// A run's results with some of the seeds.
    fn with_seeds(
        &self,
        number: usize,
        which: std::ops::Range<usize>,
        make: bool,
    ) -> Result<Option<Vec<Kept>>, Failure> {
        let name = self.scenario.file.run_names().nth(number).unwrap_or_default();
        let mut all = Vec::new();
        for seed in self.scenario.seeds().skip(which.start).take(which.len()) {
            let key = keys::of_run(&self.scenario, number, seed)?;
            let path = self.folder.join(file_name(number, name, seed));
            match kept(&path, &key) {
                Some(kept) => all.push(kept),
                None if make => all.push(self.run_and_keep(number, seed, key, &path)?),
                None => return Ok(None),
            }
        }
        Ok(Some(all))
    }

    /// Makes what is not there, writes the page of plots, and the table where pages print it.
    fn make(&self, options: &Options) -> Outcome {
        create(&self.folder)?;
        let all = self.all(true)?.unwrap_or_default();
        let firsts: Vec<&Kept> = all.iter().filter_map(|kept| kept.first()).collect();
        let results = self.scenario.results(firsts.iter().map(|kept| kept.report.clone()).collect());
        let curves: Vec<Curves> = firsts.iter().map(|kept| kept.curves.clone()).collect();
        write(&self.folder.join("index.html"), &page::html(&results, &curves, &[]))?;
        let json = serde_json::to_string_pretty(&results).context("cannot write results as JSON")?;
        write(&self.folder.join("results.json"), &(json + "\n"))?;
        let (table, picture) = self.printed(&all);
        write(&self.folder.join("table.md"), &table)?;
        print(&format!("{}\n{table}\n{}\n\n", human(&results), self.folder.join("index.html").display()))?;
        if options.write
            && let Some(printed) = pages::find(Path::new(DOCS), &self.name)?
        {
            printed.replace(&keys::of_figure(&self.scenario, processors())?, &table)?;
            if let Some(picture) = picture {
                write(&self.picture(), &picture)?;
            }
        }
        Ok(())
    }

    /// What pages print, and the picture beside it where settings were tried.
    fn printed(&self, all: &[Vec<Kept>]) -> (String, Option<String>) {
        let file = &self.scenario.file;
        let all: Vec<Vec<RunReport>> = all.iter().map(|kept| reports(kept)).collect();
        let mut table = tables::of(file, &all);
        let picture = tables::picture(file, &all);
        if picture.is_some() {
            table.extend(["\n![Error against time](../figures/", &self.name, ".svg)\n"]);
        }
        (table, picture)
    }

    fn picture(&self) -> PathBuf {
        Path::new(DOCS).join("figures").join(&self.name).with_extension("svg")
    }

    fn run_and_keep(&self, number: usize, seed: u64, key: String, path: &Path) -> Result<Kept, Failure> {
        let prepared = self.scenario.prepare(number, seed)?;
        let (report, curves) = run_one(&prepared, processors(), None)?;
        let kept = Kept { key, report, curves };
        // Nobody finds half a file.
        let half = path.with_extension(format!("{}.part", std::process::id()));
        write(&half, &serde_json::to_string(&kept).context("cannot write results as JSON")?)?;
        std::fs::rename(&half, path).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(kept)
    }

    /// What pages print and these sources do not give.
    fn check(&self, options: &Options) -> Result<Checked, Failure> {
        let Some(printed) = pages::find(Path::new(DOCS), &self.name)? else { return Ok(Checked::Same) };
        let (place, name) = (printed.place(), &self.name);
        let command = format!("trimwire-lab sim figures {} --only {name} --write", options.folder.display());
        create(&self.folder)?;
        let Some(all) = self.all(self.scenario.file.quick)? else {
            let key = keys::of_figure(&self.scenario, processors())?;
            let stale = format!(
                "{place}: {name} is of another scenario, or its runs begin otherwise (its key is {}, \
                 and theirs {key}): {command}",
                printed.key
            );
            return Ok(if printed.key == key { Checked::Same } else { Checked::Stale(stale) });
        };
        let (table, picture) = self.printed(&all);
        let differs = printed.text.lines().zip(table.lines()).enumerate().find(|(_, (old, new))| old != new);
        if let Some((at, (old, new))) = differs {
            let line = printed.line + at + 1;
            return Ok(Checked::Differs(format!(
                "{place}: {name}, line {line}:\n  printed {old}\n  is      {new}\n  {command}"
            )));
        }
        let drawn = picture.is_none_or(|picture| read(&self.picture()).is_ok_and(|there| there == picture));
        Ok(match (printed.text == table, drawn) {
            (true, true) => Checked::Same,
            (false, _) => Checked::Differs(format!("{place}: {name} has other rows: {command}")),
            _ => Checked::Differs(format!("{place}: {} is another: {command}", self.picture().display())),
        })
    }
}

fn reports(kept: &[Kept]) -> Vec<RunReport> {
    kept.iter().map(|kept| kept.report.clone()).collect()
}

/// A printed figure beside these sources.
enum Checked {
    Same,
    Differs(String),
    /// Not made here, and its runs begin otherwise than those that were printed.
    Stale(String),
}

/// Results that are there, of this key.
fn kept(path: &Path, key: &str) -> Option<Kept> {
    let text = std::fs::read_to_string(path).ok()?;
    serde_json::from_str::<Kept>(&text).ok().filter(|kept| kept.key == key)
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

fn file_name(number: usize, name: &str, seed: u64) -> String {
    let word: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).take(60).collect();
    format!("{number:02}-{word}-{seed}.run.json")
}
