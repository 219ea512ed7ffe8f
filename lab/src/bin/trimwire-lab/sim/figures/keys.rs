// SPDX-License-Identifier: Apache-2.0
//! Keys of kept results, and of printed figures.
//!
//! A kept result is of one program, bit for bit. A printed figure outlives programs: its key is a
//! hash of its scenario, and of what the beginning of each of its runs gives. So a rewritten
//! simulator that simulates the same leaves keys as they are, and one that differs changes them,
//! unless it differs only later in a run.

use super::super::{Scenario, read, simulate_beginning, training};
use crate::failure::Failure;
use crate::sim::watch::Watch;
use anyhow::Context as _;
use sha2::{Digest as _, Sha256};
use std::sync::OnceLock;
use trimwire_agent::transcript::hex;

/// Digits of a key: enough to tell a project's figures apart.
const DIGITS: usize = 16;

/// Frames from node to node that the beginning of a run has: some tenths of a second.
const BEGINNING_HOPS: u64 = 300_000;

/// Of one run's results with one seed: this program, and all that it reads.
pub(super) fn of_run(scenario: &Scenario, number: usize, seed: u64) -> anyhow::Result<String> {
    let (words, files) = scenario.file.input(number).context("there is no such run")?;
    let mut hash = Sha256::new();
    hash.update(program()?);
    hash.update(format!("{seed} {words}"));
    for file in files {
        hash.update(read(&scenario.beside(file))?);
    }
    Ok(digits(hash))
}

/// A hash of this program, which is read once.
fn program() -> anyhow::Result<[u8; 32]> {
    static PROGRAM: OnceLock<[u8; 32]> = OnceLock::new();
    if let Some(known) = PROGRAM.get() {
        return Ok(*known);
    }
    let path = std::env::current_exe().context("this program does not know its own file")?;
    let bytes = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(*PROGRAM.get_or_init(|| Sha256::digest(bytes).into()))
}

/// Of a printed figure: its scenario, and how its runs begin with the first seed.
pub(super) fn of_figure(scenario: &Scenario, threads: usize) -> anyhow::Result<String> {
    let mut hash = Sha256::new();
    for line in scenario.text.lines().filter(|line| !line.trim_start().starts_with('#')) {
        hash.update(line.trim_end());
        hash.update("\n");
    }
    for number in 0..scenario.file.run_names().count() {
        let (_, files) = scenario.file.input(number).context("there is no such run")?;
        for file in files {
            hash.update(read(&scenario.beside(file))?);
        }
        hash.update(beginning(scenario, number, threads)?);
    }
    Ok(digits(hash))
}

/// What the beginning of a run gives, as JSON: of a training, its first step.
fn beginning(scenario: &Scenario, number: usize, threads: usize) -> anyhow::Result<String> {
    let prepared = scenario.prepare(number, scenario.file.seed).map_err(Failure::into_error)?;
    let mut report = if let Some(training) = &prepared.training {
        let first = training.first_step();
        training::run(&prepared, &first, threads, &mut Watch::new(&prepared.name))?.0
    } else {
        simulate_beginning(&prepared, threads, BEGINNING_HOPS)
    };
    report.packet_hops_per_second = 0.0;
    serde_json::to_string(&report).context("cannot write a report as JSON")
}

fn digits(hash: Sha256) -> String {
    let mut text = hex(&hash.finalize().into());
    text.truncate(DIGITS);
    text
}
