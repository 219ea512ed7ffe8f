// SPDX-License-Identifier: Apache-2.0
//! `--report`: a page with the table and the distributions.

use super::{Results, human};
use crate::page::{Axis, Figure, Mark, Page, Series, Unit, cumulative};
use serde::{Deserialize, Serialize};
use trimwire_lab::sim::report::RunReport;
use trimwire_lab::sim::run::Outcome;
use trimwire_lab::sim::scenario::Prepared;

/// Points of a curve: more than a screen has dots for.
const POINTS: usize = 500;

const COLUMNS: [(&str, &str); 10] = [
    ("flows, left", "flows that the run is about; those that were not over when it ended"),
    ("FCT", "flow completion time, of those that are over"),
    ("all", "from the begin of the first flow or computation to the end of the last"),
    ("ideal", "the busiest host's payload over its link: nothing that carries all of it is faster"),
    ("trimmed", "DATA packets that switches trim, of all that were sent"),
    ("dropped", "of the same, those dropped by switches or lost on links"),
    ("again", "of the same, those that had been sent before"),
    ("NMSE", "error of the gradients by the codec's closed form; 0 where everything arrived"),
    ("hops/s", "frames handed from node to node in a second of wall-clock time"),
    ("seed", "of everything drawn; the same seed gives the same figures, but for hops/s"),
];

/// A run's curves.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Curves {
    within: Vec<(f64, f64)>,
    over_time: Vec<(f64, f64)>,
    /// Accuracy against time, where something was trained.
    #[serde(default)]
    pub(super) accuracy: Vec<(f64, f64)>,
}

impl Curves {
    pub(super) fn new(prepared: &Prepared, outcome: &Outcome) -> Self {
        let demands = &prepared.setup.demands;
        let over = || {
            outcome
                .flows
                .iter()
                .filter(|flow| demands[flow.demand].foreground && !demands[flow.demand].computes())
        };
        let seconds = |ns: u64| ns as f64 / 1e9;
        let times: Vec<f64> = over().map(|flow| seconds(flow.duration_ns)).collect();
        let ends: Vec<f64> = over().map(|flow| seconds(flow.began_ns + flow.duration_ns)).collect();
        // Flows that are not over count, or a run that was cut off would look like the others.
        let share = |points: Vec<(f64, f64)>| {
            let of = ends.len() as f64 / (ends.len() as f64 + outcome.unfinished as f64).max(1.0);
            points.into_iter().map(|(at, share)| (at, share * of)).collect()
        };
        let (within, over_time) = (share(cumulative(&times, POINTS)), share(cumulative(&ends, POINTS)));
        Self { within, over_time, accuracy: Vec::new() }
    }
}

/// The page; of a sweep over one key, each run's name and value.
pub(super) fn html(results: &Results, curves: &[Curves], swept: &[(String, f64)]) -> String {
    let ideals = results.runs.iter().map(|run| run.ideal_s);
    let (least, most) = ideals.fold((f64::INFINITY, 0.0_f64), |(a, b), ideal| (a.min(ideal), b.max(ideal)));
    let ideal = if least < most { format!("{least:.3e} to {most:.3e} s") } else { format!("{most:.3e} s") };
    let share = Axis { range: Some([0.0, 1.0]), ..Axis::linear("share of the flows", Unit::Share) };
    let mut page = Page {
        title: results.scenario.clone(),
        summary: format!(
            "A network in virtual time: {} runs, seed {}. The ideal takes {ideal}.",
            results.runs.len(),
            results.seed
        ),
        table: human(results),
        columns: COLUMNS.to_vec(),
        figures: vec![
            Figure {
                title: "Flows done within a time",
                caption: "Completion times, from a flow's begin to its end. The upper right is the tail, which a training step waits for.",
                x: Axis::logarithmic("completion time", Unit::Seconds),
                y: share.clone(),
                series: lines(results, curves, |curves| curves.within.clone()),
                levels: vec![("99 %", 0.99)],
            },
            Figure {
                title: "Flows done by a time",
                caption: "Virtual time since the run began, waits for computation included.",
                x: Axis::linear("virtual time", Unit::Seconds),
                y: share,
                series: lines(results, curves, |curves| curves.over_time.clone()),
                levels: Vec::new(),
            },
            error_against_time(
                Axis::logarithmic("99th percentile of completion times", Unit::Seconds),
                results.runs.iter().filter_map(dot).collect(),
            ),
        ],
    };
    if swept.len() == results.runs.len() {
        let mut series: Vec<Series> = Vec::new();
        for ((name, value), run) in swept.iter().zip(&results.runs) {
            let point = run.fct_p99_s.map(|p99| (*value, p99));
            match series.iter_mut().find(|series| series.name == *name) {
                Some(series) => series.points.extend(point),
                None => series.push(Series {
                    name: name.clone(),
                    points: Vec::from_iter(point),
                    mark: Mark::Line,
                }),
            }
        }
        page.figures.insert(
            0,
            Figure {
                title: "Sweep",
                caption: "The 99th percentile of completion times against the value that was set; times in ns, rates in bit/s, sizes in bytes.",
                x: Axis::linear("value", Unit::Plain),
                y: Axis::linear("99th percentile", Unit::Seconds),
                series,
                levels: Vec::new(),
            },
        );
    }
    if curves.iter().any(|curves| !curves.accuracy.is_empty()) {
        page.figures.insert(
            0,
            Figure {
                title: "Accuracy against time",
                caption: "Of held-out images, by worker 0's replica; virtual time, computation included.",
                x: Axis::linear("virtual time", Unit::Seconds),
                y: Axis::linear("accuracy", Unit::Share),
                series: lines(results, curves, |curves| curves.accuracy.clone()),
                levels: Vec::new(),
            },
        );
    }
    page.html()
}

fn lines(results: &Results, curves: &[Curves], points: impl Fn(&Curves) -> Vec<(f64, f64)>) -> Vec<Series> {
    let series = |(run, curves): (&RunReport, &Curves)| Series {
        name: run.name.clone(),
        points: points(curves),
        mark: Mark::Line,
    };
    results.runs.iter().zip(curves).map(series).collect()
}

fn dot(run: &RunReport) -> Option<(String, f64, f64)> {
    Some((run.name.clone(), run.fct_p99_s?, run.nmse?))
}

/// Error against time: a dot a run, of a name, a time and an error.
pub(super) fn error_against_time(x: Axis, dots: Vec<(String, f64, f64)>) -> Figure {
    let series = |(name, time, error)| Series { name, points: vec![(time, error)], mark: Mark::Dots };
    Figure {
        title: "Error against time",
        caption: "A dot a run, the lower and the further to the left the better.",
        x,
        y: Axis::linear("NMSE", Unit::Plain),
        series: dots.into_iter().map(series).collect(),
        levels: Vec::new(),
    }
}
