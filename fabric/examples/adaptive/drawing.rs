// SPDX-License-Identifier: Apache-2.0
//! Planes against time, a panel a scenario.

use crate::Contender;
use crate::job::{Run, Sample};
use std::fmt::Write as _;
use trimwire_planner::scenarios::Profile;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 190.0;
const PANEL: f64 = 200.0;
const GAP: f64 = 56.0;
const TOP: f64 = 84.0;
const SHOWN: [&str; 3] = ["degrading", "fluctuating", "DC2, dynamic"];
const LAWS: [&str; 5] = ["NetSenseML", "DA2", "DA5", "trim feedback", "progress"];

/// Progress over the last steps, a second.
fn progress(samples: &[Sample], at: usize) -> f64 {
    let first = at.saturating_sub(9);
    let span = samples[at].at_ns - if first == 0 { 0 } else { samples[first - 1].at_ns };
    samples[first..=at].iter().map(|sample| 1.0 / (1.0 + sample.nmse)).sum::<f64>() * 1e9 / span.max(1) as f64
}

pub(crate) fn drawing(runs: &[(Profile, Vec<Run>)], contenders: &[Contender]) -> String {
    let shown: Vec<_> = runs.iter().filter(|(profile, _)| SHOWN.contains(&profile.name)).collect();
    let height = TOP + (PANEL + GAP) * shown.len() as f64;
    let right = WIDTH - RIGHT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#333\" role=\"img\">\n\
         <title>Progress under laws, real agent in virtual time</title>\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"26\" font-size=\"17\" font-weight=\"bold\">Steps a second over 1 + NMSE</text>\n\
         <text x=\"{LEFT}\" y=\"46\" fill=\"#666\">four ranks, 462 kB a step, real agent in virtual time; dashed: the link's bandwidth over its greatest</text>\n"
    );
    for (panel, (profile, runs)) in shown.iter().enumerate() {
        let top = TOP + (PANEL + GAP) * panel as f64;
        let bottom = top + PANEL;
        let most = 1e9 / 500_000.0;
        let x = |at: u64| LEFT + (right - LEFT) * (at as f64 / profile.end_ns as f64).min(1.0);
        let y = |value: f64| bottom - PANEL * (value / most).clamp(0.0, 1.0);
        let _ = writeln!(
            svg,
            "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{}</text>",
            top - 8.0,
            profile.name
        );
        for value in [0.0, 500.0, 1_000.0, 1_500.0, 2_000.0] {
            let at = y(value);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#e4e4e4\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{value}</text>",
                LEFT - 8.0,
                at + 4.5
            );
        }
        for i in 0..=4_u64 {
            let at = profile.end_ns * i / 4;
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{} ms</text>",
                x(at),
                bottom + 18.0,
                at / 1_000_000
            );
        }
        let path = |points: &mut dyn Iterator<Item = (f64, f64)>| {
            let mut path = String::new();
            for (i, (x, y)) in points.enumerate() {
                let _ = write!(path, "{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' });
            }
            path
        };
        let link = path(
            &mut (0..400_u64)
                .map(|i| profile.end_ns * i / 400)
                .map(|at| (x(at), y(most * profile.at(at) / profile.line_bps()))),
        );
        let _ = writeln!(svg, "<path d=\"{link}\" fill=\"none\" stroke=\"#333\" stroke-dasharray=\"4 4\"/>");
        let mut level = top;
        for (contender, run) in
            contenders.iter().zip(runs).filter(|(contender, _)| LAWS.contains(&contender.name))
        {
            let every = (run.samples.len() / 300).max(1);
            let curve = path(
                &mut (0..run.samples.len())
                    .step_by(every)
                    .map(|i| (x(run.samples[i].at_ns), y(progress(&run.samples, i)))),
            );
            let _ = writeln!(
                svg,
                "<path d=\"{curve}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.6\"/>",
                contender.colour
            );
            level += 24.0;
            let left = right + 16.0;
            let _ = writeln!(
                svg,
                "<path d=\"M{left} {level}h24\" stroke=\"{}\" stroke-width=\"2\"/><text x=\"{}\" y=\"{}\">{}</text>",
                contender.colour,
                left + 30.0,
                level + 4.5,
                contender.name
            );
        }
    }
    svg.push_str("</svg>\n");
    svg
}
