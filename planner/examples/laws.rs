// SPDX-License-Identifier: Apache-2.0
//! Compares the laws on one link: `cargo run -p trimwire-planner --example laws -- docs/figures` writes `laws.md` and `laws.svg` there.
//!
//! Virtual time: the same on every machine.

use std::fmt::Write as _;
use trimwire_planner::scenarios::{Job, Link, Outcome, Profile, Transfer, profiles, run};
use trimwire_planner::sensing::parse;

/// Name, law, whether switches cut. A budget is the computation that hides communication.
const LAWS: [(&str, &str, bool, &str); 9] = [
    ("everything", "fixed:first=1", false, "#999999"),
    ("a tenth", "fixed:first=0.1", false, "#555555"),
    ("NetSenseML", "netsense", false, "#e69f00"),
    ("DA2", "da2", false, "#d55e00"),
    ("DA3", "da3", false, "#cc79a7"),
    ("DA4", "da4", false, "#f0e442"),
    ("DA5", "da5", false, "#56b4e9"),
    ("trim feedback", "trim-feedback", true, "#0072b2"),
    ("budget, nothing cut", "trim-feedback:budget_ms=50", false, "#009e73"),
];

/// ResNet18 on CIFAR-100: 46.2 MB (NetSenseML §5.3); 50 ms a step.
const JOB: Job = Job { gradient: 46.2e6, compute_ns: 50_000_000, transfer: Transfer::Once };
const SEED: u64 = 1;

fn outcome(profile: &Profile, law: &str, trims: bool) -> Result<Outcome, Box<dyn std::error::Error>> {
    // A millisecond without queues; a shallow buffer of 1 MB.
    let link = Link { line_bps: profile.line_bps(), propagation_ns: 1e6, buffer: 1e6, trims };
    Ok(run(JOB, link, profile, &mut parse(law)?, SEED))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "docs/figures".to_owned());
    let mut text = String::from(
        "| scenario | law | steps/s | sent | arrived | arrived, MB/s | slowest hundredth, ms |\n|---|---|---|---|---|---|---|\n",
    );
    for profile in profiles(SEED) {
        for (name, law, trims, _) in LAWS {
            let outcome = outcome(&profile, law, trims)?;
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
    std::fs::write(format!("{folder}/laws.md"), &text)?;
    print!("{text}");
    let all = profiles(SEED);
    let shown: Vec<&Profile> =
        all.iter().filter(|p| ["degrading", "DC2, dynamic"].contains(&p.name)).collect();
    std::fs::write(format!("{folder}/laws.svg"), drawing(&shown)?)?;
    Ok(())
}

const WIDTH: f64 = 960.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 170.0;
const PANEL: f64 = 250.0;
const GAP: f64 = 60.0;
const TOP: f64 = 84.0;

/// The share of the gradient that is sent, against time, a panel a scenario.
fn drawing(profiles: &[&Profile]) -> Result<String, Box<dyn std::error::Error>> {
    let height = TOP + (PANEL + GAP) * profiles.len() as f64;
    let right = WIDTH - RIGHT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#333\" role=\"img\">\n\
         <title>What laws send</title>\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"26\" font-size=\"17\" font-weight=\"bold\">Share of the gradient that is sent</text>\n\
         <text x=\"{LEFT}\" y=\"46\" fill=\"#666\">46.2 MB a step, one link in virtual time; dashed: the link's bandwidth over its greatest</text>\n"
    );
    for (panel, profile) in profiles.iter().enumerate() {
        let top = TOP + (PANEL + GAP) * panel as f64;
        let bottom = top + PANEL;
        let x = |at: f64| LEFT + (right - LEFT) * at / profile.end_ns as f64;
        let y =
            |ratio: f64| bottom - PANEL * ((ratio.clamp(0.003, 1.0) / 0.003).ln() / (1.0_f64 / 0.003).ln());
        let _ = writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{}</text>",
            top - 8.0,
            profile.name
        );
        for ratio in [0.003, 0.01, 0.03, 0.1, 0.3, 1.0] {
            let at = y(ratio);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#e4e4e4\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{ratio}</text>",
                LEFT - 8.0,
                at + 4.5
            );
        }
        for i in 0..=4_u64 {
            let at = profile.end_ns * i / 4;
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{} s</text>",
                x(at as f64),
                bottom + 18.0,
                at / 1_000_000_000
            );
        }
        let mut path = String::new();
        for i in 0..400_u64 {
            let at = profile.end_ns * i / 400;
            let mark = if i == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{mark}{:.1} {:.1}", x(at as f64), y(profile.at(at) / profile.line_bps()));
        }
        let _ = writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"#333\" stroke-dasharray=\"4 4\"/>");
        for (i, (name, law, trims, colour)) in LAWS.into_iter().enumerate().skip(2) {
            let outcome = outcome(profile, law, trims)?;
            let every = (outcome.samples.len() / 400).max(1);
            let mut path = String::new();
            for (j, sample) in outcome.samples.iter().step_by(every).enumerate() {
                let mark = if j == 0 { 'M' } else { 'L' };
                let _ = write!(
                    path,
                    "{mark}{:.1} {:.1}",
                    x((sample.at_ns as f64).min(profile.end_ns as f64)),
                    y(sample.ratio)
                );
            }
            let _ =
                writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\"/>");
            let level = top + 24.0 * (i as f64 - 1.5);
            let left = right + 16.0;
            let _ = writeln!(
                svg,
                "<path d=\"M{left} {level}h24\" stroke=\"{colour}\" stroke-width=\"2\"/><text x=\"{}\" y=\"{}\">{name}</text>",
                left + 30.0,
                level + 4.5
            );
        }
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}
