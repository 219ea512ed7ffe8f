// SPDX-License-Identifier: Apache-2.0
//! Laws of how much to send, on the real agent in virtual time: `cargo run --release -p trimwire-fabric --example adaptive -- docs/figures` writes
//! `adaptive.md`, `adaptive.csv` and `adaptive.svg` there.
//!
//! Four ranks around one switch, which runs the compiled P4 program; its ports have what the scenario's link has at a time. Everything is a hundredth of the paper's job: 462 kB of
//! gradient, half a millisecond of computation; a second of the scenario takes five milliseconds.

mod drawing;
#[path = "../../tests/it/fabric_program/mod.rs"]
mod fabric_program;
mod job;

use job::{Job, Run};
use std::error::Error;
use std::fmt::Write as _;
use trimwire_agent::rate::{DctcpConfig, RateConfig};
use trimwire_planner::scenarios::{Profile, profiles};

/// A way to send, and its name.
pub(crate) struct Contender {
    name: &'static str,
    law: &'static str,
    /// Switches cut; otherwise they drop, and everything is sent again.
    trims: bool,
    rate: RateConfig,
    colour: &'static str,
}

fn contenders() -> Vec<Contender> {
    let dctcp = RateConfig::Dctcp(DctcpConfig::default());
    let with = |name, law, trims, rate, colour| Contender { name, law, trims, rate, colour };
    vec![
        with("everything", "fixed:first=1", false, dctcp, "#999999"),
        with("a tenth", "fixed:first=0.1", false, dctcp, "#555555"),
        with("NetSenseML", "netsense", false, dctcp, "#e69f00"),
        with("DA2", "da2", false, dctcp, "#d55e00"),
        with("DA3", "da3", false, dctcp, "#cc79a7"),
        with("DA4", "da4", false, dctcp, "#b8a800"),
        with("DA5", "da5", false, dctcp, "#56b4e9"),
        with("cut, no law", "fixed:first=1", true, dctcp, "#444444"),
        with("trim feedback, DCTCP", "trim-feedback", true, dctcp, "#009e73"),
        with("trim feedback", "trim-feedback", true, RateConfig::Fixed(None), "#0072b2"),
        with("progress", "progress", true, RateConfig::Fixed(None), "#d4007f"),
        with("trim feedback, 2 ms", "trim-feedback:budget_ms=2", true, RateConfig::Fixed(None), "#6a3d9a"),
    ]
}

/// Seconds of a scenario that are run.
const LONGEST: u64 = 60_000_000_000;
/// Of a second of the papers' scenarios, what passes here.
const SCALE: u64 = 200;

fn scenarios() -> Vec<Profile> {
    let mut all = profiles(1);
    for profile in &mut all {
        if profile.name.starts_with("constrained") {
            profile.end_ns = LONGEST / 4;
        } else if profile.name != "degrading" {
            profile.end_ns = LONGEST;
        }
        profile.end_ns /= SCALE;
        profile.pieces.iter_mut().for_each(|piece| piece.0 /= SCALE);
    }
    all
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "docs/figures".to_owned());
    let only = std::env::args().nth(2);
    let mut text = String::from(
        "| scenario | law | steps/s | planes | kB a step | cut | NMSE | progress/s | slowest hundredth, ms |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut csv = String::from("scenario,law,at_ms,planes,pace,step_ms,kilobytes,cut,nmse,link_mbps\n");
    let mut runs: Vec<(Profile, Vec<Run>)> = Vec::new();
    for profile in scenarios() {
        if only.as_ref().is_some_and(|only| !profile.name.contains(only.as_str())) {
            continue;
        }
        let mut of_profile = Vec::new();
        for contender in contenders() {
            let run = Job::new(&profile, &contender)?.run()?;
            let line = format!("| {} | {} | {} |", profile.name, contender.name, run.figures());
            println!("{line}");
            let _ = writeln!(text, "{line}");
            // Some forty steps of a run say how it went.
            for sample in run.samples.iter().step_by((run.samples.len() / 40).max(1)) {
                let _ = writeln!(
                    csv,
                    "{},{},{}",
                    profile.name.replace(',', ""),
                    contender.name.replace(',', ""),
                    sample.csv(&profile)
                );
            }
            of_profile.push(run);
        }
        runs.push((profile, of_profile));
    }
    std::fs::write(format!("{folder}/adaptive.md"), &text)?;
    std::fs::write(format!("{folder}/adaptive.csv"), &csv)?;
    std::fs::write(format!("{folder}/adaptive.svg"), drawing::drawing(&runs, &contenders()))?;
    Ok(())
}
