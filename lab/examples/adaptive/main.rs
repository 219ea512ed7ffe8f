// SPDX-License-Identifier: Apache-2.0
//! Planes algorithms on the real agent in virtual time: `cargo run --release -p trimwire-lab
//! --example adaptive -- docs/figures` writes `adaptive.md` and `adaptive.csv` there, and
//! `packaging/plots.py adaptive` draws the latter.
//!
//! Four ranks around one switch, which runs the compiled P4 program; its ports have what the
//! scenario's link has at a time. Everything is a hundredth of the paper's job: 462 kB of gradient,
//! half a millisecond of computation; a second of the scenario takes five milliseconds.

#[path = "../../../fabric/tests/it/fabric_program/mod.rs"]
mod fabric_program;
mod job;

use job::Job;
use std::error::Error;
use std::fmt::Write as _;
use trimwire_agent::rate::{DctcpConfig, RateConfig};
use trimwire_lab::scenarios::{Profile, profiles};

/// A way to send, and its name.
pub(crate) struct Contender {
    name: &'static str,
    algorithm: &'static str,
    /// Switches trim; otherwise they drop, and everything is sent again.
    trims: bool,
    rate: RateConfig,
}

fn contenders() -> Vec<Contender> {
    let dctcp = RateConfig::Dctcp(DctcpConfig::default());
    let with = |name, algorithm, trims, rate| Contender { name, algorithm, trims, rate };
    vec![
        with("everything", "fixed:first=1", false, dctcp),
        with("a tenth", "fixed:first=0.1", false, dctcp),
        with("NetSenseML", "netsense", false, dctcp),
        with("DA2", "da2", false, dctcp),
        with("DA3", "da3", false, dctcp),
        with("DA4", "da4", false, dctcp),
        with("DA5", "da5", false, dctcp),
        with("trimmed, no algorithm", "fixed:first=1", true, dctcp),
        with("trim feedback, DCTCP", "trim-feedback", true, dctcp),
        with("trim feedback", "trim-feedback", true, RateConfig::Fixed(None)),
        with("progress", "progress", true, RateConfig::Fixed(None)),
        with("trim feedback, 2 ms", "trim-feedback:budget_ms=2", true, RateConfig::Fixed(None)),
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
        "| scenario | algorithm | steps/s | planes | kB a step | trimmed | NMSE | progress/s | slowest hundredth, ms |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut csv =
        String::from("scenario,algorithm,at_ms,planes,pace,step_ms,kilobytes,trimmed,nmse,link_mbps\n");
    for profile in scenarios() {
        if only.as_ref().is_some_and(|only| !profile.name.contains(only.as_str())) {
            continue;
        }
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
        }
    }
    std::fs::write(format!("{folder}/adaptive.md"), &text)?;
    std::fs::write(format!("{folder}/adaptive.csv"), &csv)?;
    Ok(())
}
