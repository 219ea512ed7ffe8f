// SPDX-License-Identifier: Apache-2.0
//! The table that the demo ends with.

use super::outcome::{Outcome, Run};
use crate::output::table;

/// Title of a column and the cell it shows of a run.
type Column = (&'static str, fn(&Run) -> String);

const COLUMNS: [Column; 10] = [
    ("run", |r| r.name.to_owned()),
    ("final accuracy", |r| format!("{:.2} %", 100.0 * r.final_accuracy)),
    ("time to baseline", |r| r.seconds_to_baseline_accuracy.map_or_else(|| "never".to_owned(), seconds)),
    ("all-reduce p50", |r| seconds(r.allreduce_p50_s)),
    ("p99", |r| seconds(r.allreduce_p99_s)),
    ("trimmed", |r| percent(r.trimmed_share)),
    ("dropped", |r| percent(r.dropped_share)),
    ("repaired", |r| percent(r.repaired_share)),
    ("NMSE", |r| format!("{:.1e}", r.nmse)),
    ("drift", |r| format!("{:.1e}", r.replica_drift)),
];

/// Renders the outcome for a terminal.
pub(super) fn render(outcome: &Outcome) -> String {
    let cells = |run: &Run| COLUMNS.iter().map(|(_, cell)| cell(run)).collect();
    let rows: Vec<Vec<String>> = outcome.runs.iter().map(cells).collect();
    table(&COLUMNS.map(|(title, _)| title), &rows, 1)
}

/// The sentences below the table: each run's p99 against the two it has to be held against.
pub(super) fn verdict(outcome: &Outcome) -> String {
    let find = |name| outcome.runs.iter().find(|run| run.name == name);
    let (Some(idle), Some(repair), Some(trim)) = (find("idle"), find("repair"), find("trim")) else {
        return String::new();
    };
    format!(
        "p99 all-reduce with trimming: {:.2} × the idle fabric's, {:.2} × drop + retransmit's.\n\
         Baseline accuracy (the idle run's last): {:.2} % on held-out images.\n",
        trim.allreduce_p99_s / idle.allreduce_p99_s,
        trim.allreduce_p99_s / repair.allreduce_p99_s,
        100.0 * outcome.baseline_accuracy,
    )
}

fn percent(share: f64) -> String {
    format!("{:.2} %", 100.0 * share)
}

/// Seconds with a unit that keeps three digits in front of the reader.
pub(super) fn seconds(value: f64) -> String {
    match value {
        v if v >= 1.0 => format!("{v:.2} s"),
        v if v >= 1e-3 => format!("{:.2} ms", v * 1e3),
        v => format!("{:.1} µs", v * 1e6),
    }
}
