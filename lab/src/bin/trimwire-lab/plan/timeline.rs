// SPDX-License-Identifier: Apache-2.0
//! A plan as a page: when every resource works on which tensor, like Espresso's figure 2.

use super::report;
use crate::page::{Axis, Figure, Mark, Page, Series, Unit};
use trimwire_lab::espresso::{Plan, Resource, Schedule, Span};

/// Rows, from the top down.
const ROWS: [(Resource, &str); 4] = [
    (Resource::Gpu, "GPU"),
    (Resource::Cpu, "processors"),
    (Resource::Intra, "inside machines"),
    (Resource::Inter, "between machines"),
];
const WORK: [&str; 3] = ["computation", "compression", "communication"];

/// `forward_ns` comes before the backward pass.
pub(super) fn page(schedule: &Schedule, plan: &Plan, forward_ns: f64, table: String) -> Page {
    let used = |row: Resource| schedule.spans.iter().any(|span| span.resource == row);
    let rows: Vec<(Resource, &str)> = ROWS.into_iter().filter(|(row, _)| used(*row)).collect();
    let height = |row: Resource| {
        let place = rows.iter().position(|(other, _)| *other == row).unwrap_or(0);
        (rows.len() - place) as f64
    };
    let bars = |name: &str, spans: Vec<(Resource, f64, f64, String)>| {
        let ends = |(row, from, to, _): &(Resource, f64, f64, String)| {
            [(from / 1e9, height(*row)), (to / 1e9, height(*row))]
        };
        let points = spans.iter().flat_map(ends).collect();
        let words = spans.into_iter().map(|(.., word)| word).collect();
        Series { name: name.to_owned(), points, mark: Mark::Bars(words) }
    };
    let work = |what: &str| {
        let spans = schedule.spans.iter().filter(|span| span.end > span.start && work_of(span) == what);
        let bar = |span: &Span| {
            let (from, to) = (forward_ns + span.start, forward_ns + span.end);
            (span.resource, from, to, format!("T{}", span.tensor))
        };
        bars(what, spans.map(bar).collect())
    };
    let forward = vec![(Resource::Gpu, 0.0, forward_ns, "forward pass and optimiser".to_owned())];
    let names = rows.iter().map(|(row, name)| (height(*row), (*name).to_owned())).collect();
    let range = Some([0.5, rows.len() as f64 + 0.5]);
    Page {
        title: format!("{} on {}", plan.model, plan.cluster),
        summary: report::summary(plan),
        table,
        columns: Vec::new(),
        figures: vec![Figure {
            title: "Timeline",
            caption: "Who works on which tensor when: a tensor's name stands at its bar.",
            x: Axis::linear("time", Unit::Seconds),
            y: Axis { range, names, ..Axis::linear("", Unit::Plain) },
            series: WORK.into_iter().map(work).chain([bars("forward pass", forward)]).collect(),
            levels: Vec::new(),
        }],
    }
}

fn work_of(span: &Span) -> &'static str {
    let [computation, compression, communication] = WORK;
    match (span.operation, span.resource) {
        (None, _) => computation,
        (_, Resource::Gpu | Resource::Cpu) => compression,
        _ => communication,
    }
}
