//! `--report`: one self-contained HTML page with the table and the curves as inline SVG.

use super::outcome::{Outcome, Run};
use super::table;
use std::fmt::Write as _;

const COLOURS: [&str; 4] = ["#555555", "#c0392b", "#e08e0b", "#1f6fb2"];
const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 72.0;
const BOTTOM: f64 = 42.0;
const TOP: f64 = 12.0;

/// The page.
pub(super) fn html(outcome: &Outcome) -> String {
    let mut page = String::from(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Trimwire demo</title>\n<style>\
         body{font:15px/1.5 system-ui,sans-serif;max-width:880px;margin:2em auto;padding:0 1em;color:#222}\
         pre{overflow-x:auto;background:#f6f6f6;padding:1em;font-size:12px}svg{width:100%;height:auto}\
         svg text{font:11px system-ui,sans-serif;fill:#444}h2{margin-top:2em}</style></head><body>\n",
    );
    let _ = write!(
        page,
        "<h1>Training through a congested switch</h1>\n<p>{} workers, {} steps, links of {} Gbit/s, {}:1 bursts, \
         {} parameters, seed {}. Times are virtual.</p>\n<pre>{}\n{}</pre>\n",
        outcome.workers,
        outcome.steps,
        outcome.link_bps as f64 / 1e9,
        outcome.congestion,
        outcome.parameters,
        outcome.seed,
        escape(&table::render(outcome)),
        escape(&table::verdict(outcome)),
    );
    let figures = [
        Figure {
            title: "Test accuracy over virtual time",
            x: "virtual time, s",
            y: "accuracy",
            log_x: false,
            series: lines(outcome, |run| run.curves.accuracy.clone()),
        },
        Figure {
            title: "Bytes waiting in the fullest worker port, first 10 ms",
            x: "virtual time, s",
            y: "bytes",
            log_x: false,
            series: lines(outcome, |run| run.curves.occupancy.clone()),
        },
        Figure {
            title: "Share of all-reduces done within a time",
            x: "all-reduce time, s (logarithmic)",
            y: "share",
            log_x: true,
            series: lines(outcome, |run| cumulative(&run.curves.allreduce_s)),
        },
    ];
    for figure in &figures {
        page.push_str(&figure.svg());
    }
    page.push_str("</body></html>\n");
    page
}

fn lines(
    outcome: &Outcome,
    points: impl Fn(&Run) -> Vec<(f64, f64)>,
) -> Vec<(&'static str, Vec<(f64, f64)>)> {
    outcome.runs.iter().map(|run| (run.name, points(run))).collect()
}

fn cumulative(samples: &[f64]) -> Vec<(f64, f64)> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    sorted.into_iter().enumerate().map(|(i, v)| (v, (i + 1) as f64 / count)).collect()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

struct Figure {
    title: &'static str,
    x: &'static str,
    y: &'static str,
    log_x: bool,
    series: Vec<(&'static str, Vec<(f64, f64)>)>,
}

impl Figure {
    fn svg(&self) -> String {
        let place = |x: f64| if self.log_x { x.max(1e-9).log10() } else { x };
        let all = || self.series.iter().flat_map(|(_, points)| points);
        let bound = |f: fn(f64, f64) -> f64, of: &dyn Fn(&(f64, f64)) -> f64, start: f64| {
            all().map(of).fold(start, f)
        };
        let x_high = bound(f64::max, &|p| place(p.0), f64::NEG_INFINITY);
        let x_low = if self.log_x { bound(f64::min, &|p| place(p.0), f64::INFINITY) } else { 0.0 };
        let y_high = bound(f64::max, &|p| p.1, 0.0);
        let (x_span, y_span) = (span(x_high - x_low), span(y_high));
        let to_x = |x: f64| LEFT + (place(x) - x_low) / x_span * (WIDTH - LEFT - 12.0);
        let to_y = |y: f64| HEIGHT - BOTTOM - y / y_span * (HEIGHT - BOTTOM - TOP);

        let mut svg = format!(
            "<h2>{}</h2>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">\n",
            self.title, self.title
        );
        for tick in 0..=4 {
            let share = f64::from(tick) / 4.0;
            let (y, value) = (to_y(share * y_span), share * y_span);
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                WIDTH - 12.0,
                LEFT - 6.0,
                y + 4.0,
                number(value)
            );
            let x = x_low + share * x_span;
            let value = if self.log_x { 10f64.powf(x) } else { x };
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                LEFT + share * (WIDTH - LEFT - 12.0),
                HEIGHT - BOTTOM + 16.0,
                number(value)
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text><text x=\"{}\" y=\"{}\">{}</text>",
            f64::midpoint(LEFT, WIDTH),
            HEIGHT - 8.0,
            self.x,
            LEFT + 8.0,
            TOP + 12.0,
            self.y
        );
        for (index, (name, points)) in self.series.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let mut path = String::new();
            for &(x, y) in points {
                let _ = write!(path, "{:.1},{:.1} ", to_x(x), to_y(y));
            }
            let _ = writeln!(
                svg,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\" points=\"{}\"/>\
                 <text x=\"{}\" y=\"{}\" style=\"fill:{colour};font-weight:600\">{name}</text>",
                path.trim_end(),
                WIDTH - 110.0,
                HEIGHT - BOTTOM - 12.0 - 15.0 * (self.series.len() - 1 - index) as f64
            );
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn span(value: f64) -> f64 {
    if value.is_finite() && value > 0.0 { value } else { 1.0 }
}

fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v >= 1000.0 => format!("{:.0} k", value / 1000.0),
        v if v >= 10.0 => format!("{value:.0}"),
        v if v >= 0.1 => format!("{value:.2}"),
        v if v >= 1e-3 => format!("{value:.4}"),
        _ => format!("{value:.1e}"),
    }
}
