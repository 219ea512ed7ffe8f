// SPDX-License-Identifier: Apache-2.0
//! `--report`: one self-contained page with the table and the curves.

use super::outcome::{Outcome, Run};
use super::table;
use crate::page::{Axis, Figure, Mark, Page, Series, Unit, cumulative};

/// Points of a distribution: more than a screen has dots for.
const POINTS: usize = 2_000;

/// The runs, then the table's columns.
const MEANINGS: [(&str, &str); 12] = [
    ("idle", "run without other traffic; the switch drops when full, hosts repair every byte: the baseline"),
    ("repair", "run beside bursts; the switch marks, then drops when full; hosts repair every byte"),
    (
        "trim-paper",
        "run beside the same bursts; the switch trims to the sign plane; the HotNets'24 paper's decoder",
    ),
    (
        "trim",
        "run beside the same bursts; the switch trims to eight planes, then to the sign plane; the unbiased decoder",
    ),
    ("final accuracy", "held-out images classified rightly after the last step"),
    ("time to baseline", "virtual time until the accuracy first reached the idle run's last one"),
    ("all-reduce p50, p99", "over the steps, the time until the slowest rank had its sum"),
    ("trimmed", "DATA packets that arrived trimmed, of all that were sent"),
    ("dropped", "of the same, those that never arrived"),
    ("repaired", "of the same, those that were sent again"),
    ("NMSE", "error of the averaged gradient, |got - exact|^2 / |exact|^2, mean over steps and ranks"),
    ("drift", "how far two ranks' weights have moved apart, relative"),
];

/// The page.
pub(super) fn html(outcome: &Outcome) -> String {
    let page = Page {
        title: "Training through a congested switch".into(),
        summary: format!(
            "{} workers, {} steps, links of {} Gbit/s, {}:1 bursts, {} parameters, seed {}. Times are virtual.",
            outcome.workers,
            outcome.steps,
            outcome.link_bps as f64 / 1e9,
            outcome.congestion,
            outcome.parameters,
            outcome.seed,
        ),
        table: format!("{}\n{}", table::render(outcome), table::verdict(outcome)),
        columns: MEANINGS.to_vec(),
        figures: vec![
            Figure {
                title: "Accuracy on held-out images",
                caption: "Over virtual time: what congestion costs is how much later a curve rises.",
                x: Axis::linear("virtual time", Unit::Seconds),
                y: Axis::linear("accuracy", Unit::Share),
                series: lines(outcome, |run| run.curves.accuracy.clone()),
                levels: vec![("baseline", outcome.baseline_accuracy)],
            },
            Figure {
                title: "Bytes waiting in the fullest worker port",
                caption: "The first 10 ms.",
                x: Axis::linear("virtual time", Unit::Seconds),
                y: Axis::linear("waiting", Unit::Bytes),
                series: lines(outcome, |run| run.curves.occupancy.clone()),
                levels: Vec::new(),
            },
            Figure {
                title: "All-reduces done within a time",
                caption: "Share of the steps whose slowest rank had its sum.",
                x: Axis::logarithmic("all-reduce time", Unit::Seconds),
                y: Axis { range: Some([0.0, 1.0]), ..Axis::linear("share", Unit::Share) },
                series: lines(outcome, |run| cumulative(&run.curves.allreduce_s, POINTS)),
                levels: Vec::new(),
            },
        ],
    };
    page.html()
}

fn lines(outcome: &Outcome, points: impl Fn(&Run) -> Vec<(f64, f64)>) -> Vec<Series> {
    let series = |run: &Run| Series { name: run.name.to_owned(), points: points(run), mark: Mark::Line };
    outcome.runs.iter().map(series).collect()
}
