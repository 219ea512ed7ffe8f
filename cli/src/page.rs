// SPDX-License-Identifier: Apache-2.0
//! A self-contained page: a table, what its columns mean, and figures that can be zoomed into.
//!
//! plotly.js draws them; the page carries it, nearly five megabytes, and asks the network for nothing.

use plotly::common::{DashType, Line, Marker, Mode};
use plotly::layout::{Annotation, AxisType, Legend, Margin, Shape, ShapeLine, ShapeType};
use plotly::{Configuration, Layout, Plot, Scatter};
use std::fmt::Write as _;

const SCRIPT: &str = include_str!("page/page.js");
const STYLE: &str = include_str!("page/page.css");

/// What the numbers of an axis are; ticks say it, with ms, µs, kB and %.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Unit {
    Seconds,
    Bytes,
    Share,
    Plain,
}

impl Unit {
    /// How ticks are written (d3-format's words), and what stands behind them. The library's steps are 1, 2 and 5.
    fn format(self) -> (&'static str, &'static str) {
        match self {
            Self::Seconds => ("~s", "s"),
            Self::Bytes => ("~s", "B"),
            Self::Share => ("~%", ""),
            Self::Plain => ("~g", ""),
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Axis {
    pub(crate) label: &'static str,
    pub(crate) unit: Unit,
    /// Points at 0 and below are not drawn.
    pub(crate) logarithmic: bool,
    /// From and to; `None` is what the points take.
    pub(crate) range: Option<[f64; 2]>,
    /// Values that have names instead of numbers.
    pub(crate) names: Vec<(f64, String)>,
}

impl Axis {
    pub(crate) fn linear(label: &'static str, unit: Unit) -> Self {
        Self { label, unit, logarithmic: false, range: None, names: Vec::new() }
    }

    pub(crate) fn logarithmic(label: &'static str, unit: Unit) -> Self {
        Self { logarithmic: true, ..Self::linear(label, unit) }
    }

    fn shows(&self, value: f64) -> bool {
        value.is_finite() && (!self.logarithmic || value > 0.0)
    }

    fn drawable(&self) -> plotly::layout::Axis {
        let (format, suffix) = self.unit.format();
        let kind = if self.logarithmic { AxisType::Log } else { AxisType::Linear };
        let axis = plotly::layout::Axis::new().title(self.label).type_(kind).tick_format(format);
        let axis = axis.tick_suffix(suffix).hover_format(format).auto_margin(true).zero_line(false);
        let axis = match self.range {
            Some([from, to]) => axis.range(vec![from, to]),
            None => axis,
        };
        if self.names.is_empty() {
            return axis;
        }
        let (values, names) = self.names.iter().cloned().unzip();
        axis.tick_values(values).tick_text(names)
    }
}

/// How points are drawn.
#[derive(Debug, Clone)]
pub(crate) enum Mark {
    Line,
    Dots,
    /// A bar between each two points, and what it says.
    Bars(Vec<String>),
}

/// Those of one name share a colour and a line of the legend.
#[derive(Debug, Clone)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) mark: Mark,
}

#[derive(Debug, Clone)]
pub(crate) struct Figure {
    pub(crate) title: &'static str,
    /// What to see in it.
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
             <title>{title}</title>\n<style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n<p>{}</p>\n<pre>{}</pre>\n<dl>\n",
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
        // No name can end the script that it stands in.
        let figures: Vec<String> = self.figures.iter().map(|figure| figure.drawable().to_json()).collect();
        let json = format!("[{}]", figures.join(",")).replace('<', "\\u003c");
        let _ = write!(
            page,
            "<footer><p>Drag over a figure to look closer, click twice to go back; a click on a name takes its curve away.</p>\n\
             <p>trimwire {}: <code>{}</code></p></footer>\n<script type=\"application/json\" id=\"figures\">{json}</script>\n\
             {}\n<script>{SCRIPT}</script>\n</body></html>\n",
            env!("CARGO_PKG_VERSION"),
            escape(&command_line()),
            library(),
        );
        page
    }
}

/// plotly.js as its crate has it; what it brings along for formulas stays behind.
fn library() -> String {
    const END: &str = "</script>";
    let mut sources = Plot::offline_js_sources();
    if let Some(end) = sources.find(END) {
        sources.truncate(end + END.len());
    }
    sources
}

/// Okabe and Ito's, which colour-blind readers tell apart.
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9", "#555555"];
/// Curves that lie on each other are told apart by their dashes.
const DASHES: [DashType; 6] = [
    DashType::Solid,
    DashType::Dash,
    DashType::Dot,
    DashType::DashDot,
    DashType::LongDash,
    DashType::LongDashDot,
];

impl Figure {
    fn drawable(&self) -> Plot {
        let mut plot = Plot::new();
        let mut names: Vec<&str> = Vec::new();
        for series in &self.series {
            let shows = |(x, y): &&(f64, f64)| self.x.shows(*x) && self.y.shows(*y);
            let mut shown: Vec<(f64, f64)> = series.points.iter().filter(shows).copied().collect();
            if shown.is_empty() {
                continue;
            }
            let known = names.iter().position(|name| *name == series.name);
            let nth = known.unwrap_or(names.len());
            if known.is_none() {
                names.push(&series.name);
            }
            let (colour, dash) = (COLOURS[nth % COLOURS.len()], DASHES[nth % DASHES.len()].clone());
            if matches!(series.mark, Mark::Bars(_)) {
                // A point that is none ends a line.
                shown = shown.chunks(2).flat_map(|bar| [bar, &[(f64::NAN, f64::NAN)]].concat()).collect();
            }
            let (x, y): (Vec<f64>, Vec<f64>) = shown.into_iter().unzip();
            let trace = Scatter::new(x, y).name(&series.name).legend_group(&series.name);
            let trace = trace.show_legend(known.is_none());
            let dots = Marker::new().size(9).color(colour);
            plot.add_trace(match &series.mark {
                Mark::Line => trace.mode(Mode::Lines).line(Line::new().color(colour).dash(dash)),
                Mark::Dots => trace.mode(Mode::Markers).marker(dots),
                Mark::Bars(words) => {
                    let words = words.iter().flat_map(|word| [word.clone(), word.clone(), String::new()]);
                    trace
                        .mode(Mode::Lines)
                        .line(Line::new().color(colour).width(26.0))
                        .text_array(words.collect())
                }
            });
        }
        let mut layout = Layout::new()
            .x_axis(self.x.drawable())
            .y_axis(self.y.drawable())
            .height(400)
            .margin(Margin::new().top(20).right(20))
            .legend(Legend::new().orientation(plotly::common::Orientation::Horizontal).y(-0.25));
        for &(name, value) in &self.levels {
            let line = ShapeLine::new().dash(DashType::Dot).width(1.0);
            let across = Shape::new().shape_type(ShapeType::Line).x_ref("paper").x0(0).x1(1);
            layout.add_shape(across.y0(value).y1(value).line(line));
            let at = if self.y.logarithmic { value.log10() } else { value };
            let note = Annotation::new().text(name).show_arrow(false).x_ref("paper").x(1.0).y(at);
            layout.add_annotation(
                note.x_anchor(plotly::common::Anchor::Right).y_anchor(plotly::common::Anchor::Bottom),
            );
        }
        plot.set_layout(layout);
        plot.set_configuration(Configuration::new().responsive(true).display_logo(false));
        plot
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
        let points = vec![(2.0, 1.0), (1.0, 0.25), (f64::NAN, 1.0), (0.0, 3.0)];
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
                series: vec![Series { name: name.into(), points, mark: Mark::Line }],
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
        let library = library();
        assert!(library.contains("Plotly, Inc.") && library.contains("MIT"), "its licence goes with it");
        let html = page("a").html().replace(&library, "");
        for reference in ["src=", "href=", "@import", "url(", "fetch(", "XMLHttpRequest", "https:"] {
            assert!(!html.contains(reference), "{reference}");
        }
    }

    #[test]
    fn points_that_an_axis_cannot_show_are_left_out() {
        let figure: serde_json::Value =
            serde_json::from_str(&page("a").figures[0].drawable().to_json()).expect("JSON");
        assert_eq!(figure["data"][0]["x"], serde_json::json!([2.0, 1.0]), "{figure}");
        assert_eq!(figure["layout"]["xaxis"]["ticksuffix"], "s");
    }

    #[test]
    fn what_has_one_name_has_one_colour_and_bars_are_apart() {
        let mut figure = page("a").figures.remove(0);
        figure.x = Axis::linear("time", Unit::Seconds);
        let points = vec![(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (3.0, 1.0)];
        let bars = Mark::Bars(vec!["first".to_owned(), "second".to_owned()]);
        figure.series.push(Series { name: "a".to_owned(), points, mark: bars });
        let drawn: serde_json::Value = serde_json::from_str(&figure.drawable().to_json()).expect("JSON");
        let [line, bars] = [&drawn["data"][0], &drawn["data"][1]];
        assert_eq!(line["line"]["color"], bars["line"]["color"]);
        assert_eq!(bars["x"], serde_json::json!([0.0, 1.0, null, 2.0, 3.0, null]), "{bars}");
        assert_eq!(bars["text"], serde_json::json!(["first", "first", "", "second", "second", ""]));
    }

    #[test]
    fn a_distribution_ends_at_one_however_few_points_it_keeps() {
        let samples: Vec<f64> = (1..=1_000).rev().map(f64::from).collect();
        let points = cumulative(&samples, 100);
        assert!(points.len() <= 101 && points.last() == Some(&(1_000.0, 1.0)));
        assert_eq!(cumulative(&[], 10), []);
    }
}
