// SPDX-License-Identifier: Apache-2.0
//! Compares the planes algorithms on one link: `cargo run -p trimwire-lab --example
//! planes_algorithms -- docs/figures` writes `planes-algorithms.md` and `planes-algorithms.csv`
//! there, and `packaging/plots.py planes-algorithms` draws the latter.
//!
//! Virtual time: the same on every machine.

use std::fmt::Write as _;
use trimwire_agent::planes::parse;
use trimwire_lab::scenarios::{Job, Link, Outcome, Profile, Transfer, profiles, run};

/// Name, algorithm, whether switches trim. A budget is the computation that hides communication.
const ALGORITHMS: [(&str, &str, bool); 9] = [
    ("everything", "fixed:first=1", false),
    ("a tenth", "fixed:first=0.1", false),
    ("NetSenseML", "netsense", false),
    ("DA2", "da2", false),
    ("DA3", "da3", false),
    ("DA4", "da4", false),
    ("DA5", "da5", false),
    ("trim feedback", "trim-feedback", true),
    ("budget, nothing trimmed", "trim-feedback:budget_ms=50", false),
];

/// ResNet18 on CIFAR-100: 46.2 MB (NetSenseML §5.3); 50 ms a step.
const JOB: Job = Job { gradient: 46.2e6, compute_ns: 50_000_000, transfer: Transfer::Once };
const SEED: u64 = 1;
/// Of each curve.
const POINTS: u64 = 200;

fn outcome(profile: &Profile, algorithm: &str, trims: bool) -> Result<Outcome, Box<dyn std::error::Error>> {
    // A millisecond without queues; a shallow buffer of 1 MB.
    let link = Link { line_bps: profile.line_bps(), propagation_ns: 1e6, buffer: 1e6, trims };
    Ok(run(JOB, link, profile, &mut parse(algorithm)?, SEED))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "docs/figures".to_owned());
    let mut text = String::from(
        "| scenario | algorithm | steps/s | sent | arrived | arrived, MB/s | slowest hundredth, ms |\n|---|---|---|---|---|---|---|\n",
    );
    for profile in profiles(SEED) {
        for (name, algorithm, trims) in ALGORITHMS {
            let outcome = outcome(&profile, algorithm, trims)?;
            let (steps, arrived) = (outcome.throughput(), outcome.arrived());
            let _ = writeln!(
                text,
                "| {} | {name} | {steps:.2} | {:.4} | {arrived:.4} | {:.1} | {:.1} |",
                profile.name,
                outcome.sent(),
                steps * arrived * JOB.gradient / 1e6,
                outcome.slowest() as f64 / 1e6
            );
        }
    }
    std::fs::write(format!("{folder}/planes-algorithms.md"), &text)?;
    print!("{text}");
    let mut csv = String::from("scenario,series,at_s,share\n");
    for profile in profiles(SEED).iter().filter(|p| ["degrading", "DC2, dynamic"].contains(&p.name)) {
        let scenario = profile.name.replace(',', "");
        for i in 0..POINTS {
            let at = profile.end_ns * i / POINTS;
            let share = profile.at(at) / profile.line_bps();
            let _ = writeln!(csv, "{scenario},link,{:.3},{share:.5}", at as f64 / 1e9);
        }
        for (name, algorithm, trims) in ALGORITHMS.into_iter().skip(2) {
            let outcome = outcome(profile, algorithm, trims)?;
            let every = (outcome.samples.len() / POINTS as usize).max(1);
            for sample in outcome.samples.iter().step_by(every) {
                let at = sample.at_ns.min(profile.end_ns) as f64 / 1e9;
                let _ = writeln!(csv, "{scenario},{},{at:.3},{:.5}", name.replace(',', ""), sample.ratio);
            }
        }
    }
    std::fs::write(format!("{folder}/planes-algorithms.csv"), &csv)?;
    Ok(())
}
