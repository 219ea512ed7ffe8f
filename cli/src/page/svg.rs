// SPDX-License-Identifier: Apache-2.0
//! A figure as SVG. Colours are classes of the page's style sheet, which has two sets of them.

use super::scale::Scale;
use super::{Figure, Mark, Series, escape};
use std::fmt::Write as _;

/// The drawing and the margins around its axes, in units of about a pixel.
const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 360.0;
const LEFT: f64 = 130.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 16.0;
/// For ticks and the name of the axis.
const BELOW: f64 = 50.0;
const ROW: f64 = 20.0;
/// Width of a letter, about.
const LETTER: f64 = 7.5;
/// Colours of the style sheet, and patterns of dashes by which curves on each other are told apart.
const COLOURS: usize = 7;
const DASHES: [&str; 6] = ["none", "8 4", "2 3", "8 3 2 3", "14 5", "14 4 2 4"];

/// The figure as one `<svg>`.
pub(super) fn draw(figure: &Figure) -> String {
    let Figure { x, y, series, levels, .. } = figure;
    let shown = |series: &Series| -> Vec<(f64, f64)> {
        series.points.iter().filter(|(at, value)| x.shows(*at) && y.shows(*value)).copied().collect()
    };
    let drawn: Vec<(&Series, Vec<(f64, f64)>)> = series
        .iter()
        .map(|series| (series, shown(series)))
        .filter(|(_, points)| !points.is_empty())
        .collect();
    let points = || drawn.iter().flat_map(|(_, points)| points);
    let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BELOW);
    let across = Scale::new(x, points().map(|point| point.0), width);
    let up = Scale::new(y, points().map(|point| point.1).chain(levels.iter().map(|level| level.1)), height);
    let place = |(at, value): (f64, f64)| (LEFT + across.place(at), TOP + height - up.place(value));

    let mut names: Vec<&str> = Vec::new();
    for (series, _) in &drawn {
        if !names.contains(&series.name.as_str()) {
            names.push(&series.name);
        }
    }
    // Dots, which have no pattern, have numbers.
    let numbered = drawn.iter().any(|(series, _)| matches!(series.mark, Mark::Dots));
    let words: Vec<String> = names
        .iter()
        .enumerate()
        .map(|(at, name)| if numbered { format!("{} {name}", at + 1) } else { (*name).to_owned() })
        .collect();
    let (keys, rows) = legend(&words);
    let mut svg = String::new();
    let _ = writeln!(
        svg,
        "<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"{}\">",
        HEIGHT + ROW * rows as f64,
        escape(figure.title)
    );
    let (bottom, right) = (TOP + height, WIDTH - RIGHT);
    for (value, words) in across.ticks(x) {
        let at = LEFT + across.place(value);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{at:.1} {TOP}V{bottom}\"/><text class=\"tick\" x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            bottom + 17.0,
            escape(&words)
        );
    }
    for (value, words) in up.ticks(y) {
        let at = bottom - up.place(value);
        let _ = writeln!(
            svg,
            "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/><text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 6.0,
            at + 4.0,
            escape(&words)
        );
    }
    let _ = writeln!(
        svg,
        "<text class=\"name\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
         <text class=\"name\" transform=\"translate(14 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
        LEFT + width / 2.0,
        bottom + 38.0,
        escape(x.label),
        TOP + height / 2.0,
        escape(y.label)
    );
    for (name, value) in levels {
        let at = bottom - up.place(*value);
        let _ = writeln!(
            svg,
            "<path class=\"level\" d=\"M{LEFT} {at:.1}H{right}\"/><text class=\"tick\" x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            at - 4.0,
            escape(name)
        );
    }
    for (series, points) in &drawn {
        let number = names.iter().position(|name| *name == series.name).unwrap_or(0);
        let places: Vec<(f64, f64)> = points.iter().map(|point| place(*point)).collect();
        mark(&mut svg, series, number, &places);
    }
    svg + &keys + "</svg>"
}

fn mark(svg: &mut String, series: &Series, number: usize, places: &[(f64, f64)]) {
    let (colour, name) = (number % COLOURS, escape(&series.name));
    match &series.mark {
        Mark::Line => {
            let mut words: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            // Points that fall on each other say nothing more.
            words.dedup();
            let dashes = DASHES[number % DASHES.len()];
            let _ = writeln!(
                svg,
                "<polyline class=\"line s{colour}\" stroke-dasharray=\"{dashes}\" points=\"{}\"><title>{name}</title></polyline>",
                words.join(" ")
            );
        }
        Mark::Dots => {
            for (x, y) in places {
                let _ = writeln!(
                    svg,
                    "<circle class=\"dot s{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"><title>{name}</title></circle>\
                     <text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                    x + 5.0,
                    // Dots on one line have their numbers at different heights.
                    y - 4.0 - 11.0 * (number % 3) as f64,
                    number + 1
                );
            }
        }
        Mark::Bars(words) => {
            for (ends, says) in places.chunks_exact(2).zip(words) {
                let ((from, y), (to, _)) = (ends[0], ends[1]);
                let _ = writeln!(
                    svg,
                    "<rect class=\"bar s{colour}\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"26\"><title>{}</title></rect>",
                    y - 13.0,
                    (to - from).max(0.1),
                    escape(says)
                );
            }
        }
    }
}

/// Names of series with their colours, below the axes, and the rows that they take.
fn legend(names: &[String]) -> (String, usize) {
    let (mut svg, mut x, mut row) = (String::new(), LEFT, 0_u32);
    for (number, name) in names.iter().enumerate() {
        let width = 40.0 + LETTER * name.chars().count() as f64;
        if x > LEFT && x + width > WIDTH {
            (x, row) = (LEFT, row + 1);
        }
        let y = HEIGHT + ROW * f64::from(row) + 8.0;
        let (colour, dashes) = (number % COLOURS, DASHES[number % DASHES.len()]);
        let _ = writeln!(
            svg,
            "<path class=\"line s{colour}\" stroke-dasharray=\"{dashes}\" d=\"M{x} {y}h24\"/>\
             <text class=\"key\" x=\"{}\" y=\"{}\">{}</text>",
            x + 30.0,
            y + 4.0,
            escape(name)
        );
        x += width;
    }
    (svg, row as usize + 1)
}
