// SPDX-License-Identifier: Apache-2.0
//! The drawing: a panel for each depth, in it the kinds of rows from left to right.

use super::super::svg::{SIZE, begin, path};
use super::{BAND, Point, name};
use std::fmt::Write as _;

const LEFT: f64 = 76.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 92.0;
const BOTTOM: f64 = 32.0;
/// Panels side by side.
const COLUMNS: usize = 4;
/// Room between panels that are side by side.
const GAP: f64 = 14.0;
/// Room for the names of rows below a panel, and for the title of the panel below those.
const NAMES: f64 = 66.0;
const TITLE: f64 = 24.0;
/// The least that a panel's height spans to either side of 1.
const LEAST_SPAN: f64 = 1.5 * BAND;
const COLOUR: &str = "#0072b2";

/// Where the points of a depth are drawn.
struct Panel {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
    /// What the height spans to either side of 1.
    span: f64,
}

/// Draws all points.
pub(super) fn draw(points: &[Point], subtitle: &str) -> String {
    let mut svg = begin(
        "Projection of trimmed packets",
        "Projection of the decoded row on the exact one",
        subtitle,
        LEFT,
    );
    let depths = points.iter().map(|point| point.planes).max().unwrap_or(1);
    let rows = usize::from(depths).div_ceil(COLUMNS);
    let farthest = points.iter().map(|point| (point.projection - 1.0).abs() + error(point));
    let span = farthest.fold(LEAST_SPAN, f64::max) * 1.02;
    let width = (SIZE.0 - LEFT - RIGHT - GAP * (COLUMNS - 1) as f64) / COLUMNS as f64;
    let height = (SIZE.1 - TOP - BOTTOM + TITLE) / rows as f64 - NAMES - TITLE;
    for planes in 1..=depths {
        let nth = usize::from(planes - 1);
        let (column, row) = ((nth % COLUMNS) as f64, (nth / COLUMNS) as f64);
        let left = LEFT + column * (width + GAP);
        let top = TOP + row * (height + NAMES + TITLE);
        let panel = Panel { left, top, width, height, span };
        let here: Vec<Point> = points.iter().filter(|point| point.planes == planes).copied().collect();
        panel.axes(&mut svg, planes, &here, nth % COLUMNS == 0);
        panel.points(&mut svg, &here);
    }
    let middle = LEFT.midpoint(SIZE.0 - RIGHT);
    let _ = writeln!(
        svg,
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">coordinates of the row that are not zero, all ±1 (Gaussian: all, from N(0, 1))</text>",
        SIZE.1 - 14.0
    );
    let _ = writeln!(
        svg,
        "<text transform=\"translate(20 {}) rotate(-90)\" text-anchor=\"middle\">projection: ⟨decoded, exact⟩ / ‖exact‖²</text>",
        TOP.midpoint(SIZE.1 - BOTTOM)
    );
    legend(&mut svg);
    svg.push_str("</svg>\n");
    svg
}

/// Two standard errors, in which the true mean lies nineteen times of twenty.
fn error(point: &Point) -> f64 {
    2.0 * point.standard_error.unwrap_or(0.0)
}

impl Panel {
    fn x(&self, place: usize, count: usize) -> f64 {
        self.left + (place as f64 + 0.5) / count.max(1) as f64 * self.width
    }

    fn y(&self, projection: f64) -> f64 {
        let share = (projection - 1.0 + self.span) / (2.0 * self.span);
        self.top + (1.0 - share.clamp(0.0, 1.0)) * self.height
    }

    fn axes(&self, svg: &mut String, planes: u8, points: &[Point], first: bool) {
        let Self { left, top, width, height, span } = *self;
        let (right, bottom) = (left + width, top + height);
        let (high, low) = (self.y(1.0 + BAND), self.y(1.0 - BAND));
        let _ = writeln!(
            svg,
            "<rect x=\"{left:.1}\" y=\"{high:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"#e9f1e4\"/>",
            low - high
        );
        let step = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0].into_iter().find(|step| span / step <= 4.0);
        let step = step.unwrap_or(span / 2.0);
        let ticks = (span / step) as i32;
        for tick in -ticks..=ticks {
            let (value, one) = (1.0 + f64::from(tick) * step, tick == 0);
            let (at, colour) = (self.y(value), if one { "#333" } else { "#ddd" });
            let _ = writeln!(svg, "<path d=\"M{left:.1} {at:.1}H{right:.1}\" stroke=\"{colour}\"/>");
            if first {
                let weight = if one { " font-weight=\"bold\"" } else { "" };
                let _ = writeln!(
                    svg,
                    "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" font-size=\"12\"{weight}>{value:.3}</text>",
                    left - 7.0,
                    at + 4.0
                );
            }
        }
        let plural = if planes == 1 { "" } else { "s" };
        let _ = writeln!(
            svg,
            "<text x=\"{left:.1}\" y=\"{:.1}\" font-weight=\"bold\">{planes} plane{plural}</text>",
            top - 7.0
        );
        for (place, point) in points.iter().enumerate() {
            let (x, y) = (self.x(place, points.len()) + 4.0, bottom + 8.0);
            let _ = writeln!(
                svg,
                "<text transform=\"translate({x:.1} {y:.1}) rotate(-90)\" text-anchor=\"end\" font-size=\"11\">{}</text>",
                name(point.non_zeros)
            );
        }
        let _ = writeln!(
            svg,
            "<path d=\"M{left:.1} {top:.1}V{bottom:.1}H{right:.1}\" fill=\"none\" stroke=\"#999\"/>"
        );
    }

    /// The mean of every kind, and the band of its error around it.
    fn points(&self, svg: &mut String, points: &[Point]) {
        let at = |shift: fn(&Point) -> f64| {
            let place = move |(place, point): (usize, &Point)| {
                (self.x(place, points.len()), self.y(point.projection + shift(point)))
            };
            points.iter().enumerate().map(place).collect::<Vec<_>>()
        };
        let (means, upper, lower) = (at(|_| 0.0), at(error), at(|point| -error(point)));
        let band = path(upper.into_iter().chain(lower.into_iter().rev()));
        let _ = writeln!(svg, "<path d=\"{band}Z\" fill=\"{COLOUR}\" fill-opacity=\"0.28\"/>");
        let line = path(means.iter().copied());
        let _ = writeln!(svg, "<path d=\"{line}\" fill=\"none\" stroke=\"{COLOUR}\" stroke-width=\"1.5\"/>");
        for (x, y) in means {
            let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.6\" fill=\"{COLOUR}\"/>");
        }
    }
}

fn legend(svg: &mut String) {
    let level = 66.0;
    let mut left = LEFT;
    let mut entry = |mark: String, text: &str, length: f64| {
        let _ = writeln!(
            svg,
            "{mark}<text x=\"{:.1}\" y=\"{level}\" font-size=\"12\" fill=\"#666\">{text}</text>",
            left + 34.0
        );
        left += length;
        left
    };
    let y = level - 4.0;
    let dot = format!(
        "<path d=\"M{LEFT} {y}h26\" stroke=\"{COLOUR}\" stroke-width=\"1.5\"/><circle cx=\"{}\" cy=\"{y}\" r=\"2.6\" fill=\"{COLOUR}\"/>",
        LEFT + 13.0
    );
    let next = entry(dot, "mean", 90.0);
    let band = |left: f64, fill: &str| {
        format!("<rect x=\"{left}\" y=\"{}\" width=\"26\" height=\"10\" fill=\"{fill}\"/>", level - 9.0)
    };
    let next = entry(band(next, "#bcdcee"), "± 2 standard errors", 180.0);
    let next = entry(band(next, "#e9f1e4"), "± 1 %", 100.0);
    entry(format!("<path d=\"M{next} {y}h26\" stroke=\"#333\"/>"), "1: unbiased", 0.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panel_holds_its_points_wherever_they_are() {
        let panel = Panel { left: 0.0, top: 10.0, width: 100.0, height: 50.0, span: 0.02 };
        assert!((panel.y(1.0) - 35.0).abs() < 1e-9 && panel.y(1.01) < panel.y(1.0));
        for value in [-1e300, 0.0, f64::INFINITY] {
            assert!((10.0..=60.0).contains(&panel.y(value)), "{value}");
        }
        assert!(draw(&[], "").ends_with("</svg>\n"));
    }
}
