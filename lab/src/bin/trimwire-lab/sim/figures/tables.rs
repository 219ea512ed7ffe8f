// SPDX-License-Identifier: Apache-2.0
//! A figure as documentation prints it: a row a run, and what its paper claims beside ours.

use super::super::page;
use crate::page::{Axis, Unit as Marks};
use std::fmt::Write as _;
use trimwire_lab::sim::report::RunReport;
use trimwire_lab::sim::scenario::{Claim, File, Measure, Unit};

/// A run's reports, one a seed.
pub(super) type Seeded = Vec<RunReport>;

/// The tables of a scenario whose runs are there with all seeds.
pub(super) fn of(file: &File, runs: &[Seeded]) -> String {
    let titles: Vec<&str> = file.columns.iter().map(|column| column.title()).collect();
    let mut text = format!("| run | {} |\n|---|{}\n", titles.join(" | "), "---|".repeat(titles.len()));
    for (name, reports) in rows(file, runs) {
        let left: u64 = reports.iter().map(|report| report.unfinished).sum();
        let cells: Vec<String> = file.columns.iter().map(|&column| cell(column, reports)).collect();
        let open = if left > 0 { format!(" ({left} flows not over)") } else { String::new() };
        let _ = writeln!(text, "| {name}{open} | {} |", cells.join(" | "));
    }
    if file.seeds > 1 {
        let _ = writeln!(text, "\nMedian of {} seeds (least to most).", file.seeds);
    }
    text += &tried(file, runs);
    if !file.claims.is_empty() {
        text.push_str("\n| the paper's claim | theirs | ours |\n|---|---|---|\n");
        // Misses first.
        let mut claims: Vec<(f64, String)> = file.claims.iter().map(|claim| row(claim, runs)).collect();
        claims.sort_by(|a, b| b.0.total_cmp(&a.0));
        claims.into_iter().for_each(|(_, row)| text.push_str(&row));
    }
    text
}

/// What a table has a row of: each run, and the best that its grid made of it.
fn rows<'a>(file: &File, runs: &'a [Seeded]) -> Vec<(String, &'a Seeded)> {
    let mut rows = Vec::new();
    for (number, (name, reports)) in file.run_names().zip(runs).enumerate() {
        if file.settings(number).is_none() {
            rows.push((name.to_owned(), reports));
        }
        if let (Some((_, count)), Some(best)) = (file.grid(number), best(file, runs, number)) {
            let settings = file.settings(best).unwrap_or_default();
            rows.push((format!("{name}, best of {count}: {settings}"), &runs[best]));
        }
    }
    rows
}

/// The run that is the best of a run's grid, with the first seed: of those in which most flows
/// ended, the first with the least of what it is tuned by.
pub(super) fn best(file: &File, runs: &[Seeded], number: usize) -> Option<usize> {
    let (by, count) = file.grid(number)?;
    let rank = |number: usize| {
        let report = runs.get(number)?.first()?;
        Some((report.unfinished, by.of(report)?))
    };
    let ranked = (number + 1..=number + count).filter_map(|number| Some((rank(number)?, number)));
    let least = ranked.min_by(|((left, a), _), ((other, b), _)| left.cmp(other).then(a.total_cmp(b)));
    least.map(|(_, number)| number)
}

/// All settings that were tried, in the order of what they are tuned by.
fn tried(file: &File, runs: &[Seeded]) -> String {
    let error = error(file);
    let mut tried: Vec<(usize, f64, String)> = Vec::new();
    let mut counts = Vec::new();
    let mut titles = Vec::new();
    for (number, name) in file.run_names().enumerate() {
        let Some((by, count)) = file.grid(number) else { continue };
        counts.push(format!("{name} {count}"));
        titles.push(by.title());
        for (at, reports) in runs.iter().enumerate().skip(number + 1).take(count) {
            let Some(first) = reports.get(..1).map(<[RunReport]>::to_vec) else { continue };
            let value = by.of(&first[0]).unwrap_or(f64::INFINITY);
            let cells = [by, error].map(|column| cell(column, &first)).join(" | ");
            let settings = file.settings(at).unwrap_or_default();
            tried.push((number, value, format!("| {name} | {settings} | {cells} |\n")));
        }
    }
    if tried.is_empty() {
        return String::new();
    }
    tried.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    titles.dedup();
    let rows: String = tried.into_iter().map(|(_, _, row)| row).collect();
    format!(
        "\n<details><summary>Settings tried with the first seed: {}</summary>\n\n\
         | run | settings | {} | {} |\n|---|---|---|---|\n{rows}\n</details>\n",
        counts.join(", "),
        titles.join(" or "),
        error.title()
    )
}

/// The error that a scenario's table has.
fn error(file: &File) -> Measure {
    if file.columns.contains(&Measure::SumsNmse) { Measure::SumsNmse } else { Measure::Nmse }
}

/// Error against what the first grid is tuned by, where there is one: a dot a row, the median.
pub(super) fn picture(file: &File, runs: &[Seeded]) -> Option<String> {
    let (by, _) = (0..runs.len()).find_map(|number| file.grid(number))?;
    let median = |column: Measure, reports: &Seeded| {
        let values: Option<Vec<f64>> = reports.iter().map(|report| column.of(report)).collect();
        middle(values?)
    };
    let dots = rows(file, runs).into_iter().filter_map(|(name, reports)| {
        // Settings stand in the table.
        let name = name.split_once(": ").map_or(name.clone(), |(name, _)| name.to_owned());
        Some((name, median(by, reports)?, median(error(file), reports)?))
    });
    let unit = if by.unit() == Unit::Time { Marks::Seconds } else { Marks::Plain };
    let title = by.title();
    let axis = Axis::logarithmic(title.strip_suffix(", ms").unwrap_or(title), unit);
    Some(page::error_against_time(axis, dots.collect()).picture())
}

fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
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
    let found = run
        .iter()
        .zip(beside)
        .filter_map(|(run, beside)| Some((claim.of.of(run)? / claim.of.of(beside)? - 1.0) * 100.0));
    middle(found.collect())
}

fn cell(column: Measure, reports: &Seeded) -> String {
    let values: Option<Vec<f64>> = reports.iter().map(|report| column.of(report)).collect();
    let never = if column == Measure::ToTarget { "never" } else { "–" };
    let Some(values) = values else { return never.to_owned() };
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
