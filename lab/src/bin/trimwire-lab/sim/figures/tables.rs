// SPDX-License-Identifier: Apache-2.0
//! A figure as documentation prints it: a row a run, and what its paper claims beside ours.

use std::fmt::Write as _;
use trimwire_lab::sim::report::RunReport;
use trimwire_lab::sim::scenario::{Claim, File, Measure, Unit};

/// A run's reports, one a seed.
pub(super) type Seeded = Vec<RunReport>;

/// The tables of a scenario whose runs are there with all seeds.
pub(super) fn of(file: &File, runs: &[Seeded]) -> String {
    let titles: Vec<&str> = file.columns.iter().map(|column| column.title()).collect();
    let mut text = format!("| run | {} |\n|---|{}\n", titles.join(" | "), "---|".repeat(titles.len()));
    for reports in runs {
        let name = reports.first().map_or("", |report| report.name.as_str());
        let left: u64 = reports.iter().map(|report| report.unfinished).sum();
        let cells: Vec<String> = file.columns.iter().map(|&column| cell(column, reports)).collect();
        let open = if left > 0 { format!(" ({left} flows not over)") } else { String::new() };
        let _ = writeln!(text, "| {name}{open} | {} |", cells.join(" | "));
    }
    if file.seeds > 1 {
        let _ = writeln!(text, "\nMedian of {} seeds (least to most).", file.seeds);
    }
    if !file.claims.is_empty() {
        text.push_str("\n| the paper's claim | theirs | ours |\n|---|---|---|\n");
        // Misses first.
        let mut claims: Vec<(f64, String)> = file.claims.iter().map(|claim| row(claim, runs)).collect();
        claims.sort_by(|a, b| b.0.total_cmp(&a.0));
        claims.into_iter().for_each(|(_, row)| text.push_str(&row));
    }
    text
}

/// A claim's row, and how far it is missed.
fn row(claim: &Claim, runs: &[Seeded]) -> (f64, String) {
    let of =
        |name: &str| runs.iter().find(|reports| reports.first().is_some_and(|report| report.name == name));
    let (Some(run), Some(beside)) = (of(&claim.run), of(&claim.beside)) else { return (0.0, String::new()) };
    // Seed by seed: the same draws for both.
    let differences: Option<Vec<f64>> = run
        .iter()
        .zip(beside)
        .map(|(run, beside)| Some((claim.of.of(run)? / claim.of.of(beside)? - 1.0) * 100.0))
        .collect();
    let ours = differences
        .map_or_else(|| "never".to_owned(), |found| spread(&found, |value| format!("{value:+.1}")));
    let missed = middle_of(claim, run, beside).map_or(f64::INFINITY, |middle| (middle - claim.paper).abs());
    (missed, format!("| {} | {:+.1} % | {ours} % |\n", claim.says, claim.paper))
}

fn middle_of(claim: &Claim, run: &Seeded, beside: &Seeded) -> Option<f64> {
    let mut found: Vec<f64> = run
        .iter()
        .zip(beside)
        .filter_map(|(run, beside)| Some((claim.of.of(run)? / claim.of.of(beside)? - 1.0) * 100.0))
        .collect();
    found.sort_by(f64::total_cmp);
    found.get(found.len() / 2).copied()
}

fn cell(column: Measure, reports: &Seeded) -> String {
    let values: Option<Vec<f64>> = reports.iter().map(|report| column.of(report)).collect();
    let Some(values) = values else { return "never".to_owned() };
    spread(&values, |value| match column.unit() {
        Unit::Time => digits(value * 1e3),
        Unit::Number => format!("{value:.0}"),
        Unit::Ratio => format!("{value:.3}"),
        Unit::Share => format!("{:.1} %", value * 100.0),
        Unit::Error if value == 0.0 => "0".to_owned(),
        Unit::Error => format!("{value:.1e}"),
    })
}

/// Median, and least and most where those are written differently. Of five draws they hold the
/// median of all draws in 94 of 100 cases.
fn spread(values: &[f64], write: impl Fn(f64) -> String) -> String {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (Some(&least), Some(&most), Some(&middle)) =
        (sorted.first(), sorted.last(), sorted.get(sorted.len() / 2))
    else {
        return String::new();
    };
    let [least, middle, most] = [least, middle, most].map(write);
    if least == most { middle } else { format!("{middle} ({least} to {most})") }
}

/// Three digits that count, four from a thousand on.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_the_median_and_the_ends_where_they_differ() {
        assert_eq!(spread(&[3.0, 1.0, 2.0, 9.0, 2.5], digits), "2.50 (1.00 to 9.00)");
        assert_eq!(spread(&[2.0, 2.0001, 2.0002], digits), "2.00");
    }

    #[test]
    fn digits_are_three_at_least() {
        assert_eq!([0.0123, 1.0, 12.34, 123.4, 5678.9].map(digits), ["0.012", "1.00", "12.3", "123", "5679"]);
    }
}
