//! A self-contained page: a table, what its columns mean, and figures that can be zoomed into.
//!
//! uPlot draws them (`page/uplot/`, with its licence); the page carries it and asks the network for nothing.

use serde::Serialize;
use std::fmt::Write as _;

const LIBRARY: &str = include_str!("page/uplot/uPlot.iife.min.js");
const LIBRARY_STYLE: &str = include_str!("page/uplot/uPlot.min.css");
const LIBRARY_LICENCE: &str = include_str!("page/uplot/LICENSE");
const SCRIPT: &str = include_str!("page/page.js");
const STYLE: &str = include_str!("page/page.css");

/// What the numbers of an axis are; ticks say it, with ms, µs, kB and %.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Unit {
    Seconds,
    Bytes,
    Share,
    Plain,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Axis {
    pub(crate) label: &'static str,
    pub(crate) unit: Unit,
    /// Points at 0 and below are not drawn.
    pub(crate) logarithmic: bool,
    /// From and to; `None` is what the points take.
    pub(crate) range: Option<[f64; 2]>,
}

impl Axis {
    pub(crate) fn linear(label: &'static str, unit: Unit) -> Self {
        Self { label, unit, logarithmic: false, range: None }
    }

    pub(crate) fn logarithmic(label: &'static str, unit: Unit) -> Self {
        Self { logarithmic: true, ..Self::linear(label, unit) }
    }
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    /// Dots instead of a line.
    pub(crate) dots: bool,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    #[serde(skip)]
    pub(crate) title: &'static str,
    /// What to see in it.
    #[serde(skip)]
    pub(crate) caption: &'static str,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
    /// Lines across at values of y.
    pub(crate) levels: Vec<(&'static str, f64)>,
}

#[derive(Debug, Clone)]
pub(crate) struct Page {
    pub(crate) title: String,
    pub(crate) summary: String,
    /// Columns of equal width.
    pub(crate) table: String,
    /// Its columns, and what they mean.
    pub(crate) columns: Vec<(&'static str, &'static str)>,
    pub(crate) figures: Vec<Figure>,
}

impl Page {
    pub(crate) fn html(&self) -> String {
        let title = escape(&self.title);
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
             <title>{title}</title>\n<style>{LIBRARY_STYLE}\n{STYLE}</style></head><body>\n<h1>{title}</h1>\n<p>{}</p>\n<pre>{}</pre>\n<dl>\n",
            escape(&self.summary),
            escape(&self.table),
        );
        for (name, meaning) in &self.columns {
            let _ = writeln!(page, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(meaning));
        }
        page.push_str(
            "</dl>\n<noscript><p>The figures need JavaScript; the table does not.</p></noscript>\n",
        );
        for (at, figure) in self.figures.iter().enumerate() {
            let _ = write!(
                page,
                "<h2>{}</h2>\n<p>{}</p>\n<div class=\"plot\" id=\"figure-{at}\" role=\"img\" aria-label=\"{}\"></div>\n",
                escape(figure.title),
                escape(figure.caption),
                escape(figure.title),
            );
        }
        let figures: Vec<Figure> = self.figures.iter().map(Figure::drawable).collect();
        // No name can end the script that it stands in.
        let json = serde_json::to_string(&figures).unwrap_or_default().replace('<', "\\u003c");
        let _ = write!(
            page,
            "<footer><p>Drag over a figure to look closer, click twice to go back; a click on a name takes its curve away.</p>\n\
             <p>trimwire {}: <code>{}</code></p></footer>\n<script type=\"application/json\" id=\"figures\">{json}</script>\n\
             <script>/*! uPlot, {}*/\n{LIBRARY}</script>\n<script>{SCRIPT}</script>\n</body></html>\n",
            env!("CARGO_PKG_VERSION"),
            escape(&command_line()),
            LIBRARY_LICENCE.replace("*/", "* /"),
        );
        page
    }
}

impl Figure {
    /// Without what no axis can show, and one point at each x, which is what the library takes.
    fn drawable(&self) -> Self {
        let mut figure = self.clone();
        for series in &mut figure.series {
            series.points.retain(|&(x, y)| {
                let fits = |axis: &Axis, value: f64| value.is_finite() && (!axis.logarithmic || value > 0.0);
                fits(&self.x, x) && fits(&self.y, y)
            });
            series.points.sort_by(|a, b| a.0.total_cmp(&b.0));
            series.points.reverse();
            series.points.dedup_by(|a, b| a.0 == b.0);
            series.points.reverse();
        }
        figure.series.retain(|series| !series.points.is_empty());
        figure
    }
}

/// At most `most` points of a distribution: the share of the samples that is not above each.
pub(crate) fn cumulative(samples: &[f64], most: usize) -> Vec<(f64, f64)> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let every = sorted.len().div_ceil(most.max(1)).max(1);
    let count = sorted.len();
    let keep = |at: &usize| at.is_multiple_of(every) || at + 1 == count;
    (0..count).filter(keep).map(|at| (sorted[at], (at + 1) as f64 / count as f64)).collect()
}

/// What was typed, as a shell would take it again.
fn command_line() -> String {
    let mut line = "trimwire".to_owned();
    for word in std::env::args().skip(1) {
        let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./,:=+%@".contains(c));
        let quoted =
            if plain && !word.is_empty() { word } else { format!("'{}'", word.replace('\'', "'\\''")) };
        let _ = write!(line, " {quoted}");
    }
    line
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(name: &str) -> Page {
        let points = vec![(2.0, 1.0), (1.0, 0.5), (1.0, 0.25), (f64::NAN, 1.0), (0.0, 3.0)];
        Page {
            title: name.into(),
            summary: name.into(),
            table: name.into(),
            columns: vec![("FCT", "flow completion time")],
            figures: vec![Figure {
                title: "times",
                caption: "all of them",
                x: Axis::logarithmic("time", Unit::Seconds),
                y: Axis::linear("share", Unit::Share),
                series: vec![Series { name: name.into(), points, dots: false }],
                levels: Vec::new(),
            }],
        }
    }

    #[test]
    fn a_name_cannot_break_out_of_the_page() {
        let html = page("</script></pre><b>\"").html();
        assert!(!html.contains("</script></pre>") && !html.contains("<b>"));
        assert!(html.contains("&lt;/script&gt;") && html.contains("\\u003c/script>\\u003c/pre>"));
    }

    #[test]
    fn a_page_asks_the_network_for_nothing() {
        let html = page("a").html();
        for reference in ["src=", "href=", "@import", "url(", "fetch(", "XMLHttpRequest"] {
            assert!(!html.contains(reference), "{reference}");
        }
        assert!(html.contains("Permission is hereby granted"), "the library's licence goes with it");
    }

    #[test]
    fn points_that_an_axis_cannot_show_are_left_out_and_one_stands_at_each_x() {
        let figure = page("a").figures[0].drawable();
        assert_eq!(figure.series[0].points, [(1.0, 0.25), (2.0, 1.0)]);
    }

    #[test]
    fn a_distribution_ends_at_one_however_few_points_it_keeps() {
        let samples: Vec<f64> = (1..=1_000).rev().map(f64::from).collect();
        let points = cumulative(&samples, 100);
        assert!(points.len() <= 101 && points.last() == Some(&(1_000.0, 1.0)));
        assert_eq!(cumulative(&[], 10), []);
    }
}
