// SPDX-License-Identifier: Apache-2.0
//! A self-contained page: a table, what its columns mean, and figures as SVG, without a script.

mod scale;
mod svg;

use std::fmt::Write as _;

const STYLE: &str = include_str!("page/page.css");

/// What the numbers of an axis are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Times.
    Seconds,
    /// Sizes.
    Bytes,
    /// Written in per cent.
    Share,
    /// Numbers of no unit.
    Plain,
}

/// An axis of a figure.
#[derive(Debug, Clone)]
pub struct Axis {
    /// What stands along it.
    pub label: &'static str,
    /// Unit of its values.
    pub unit: Unit,
    /// Points at 0 and below are not drawn.
    pub logarithmic: bool,
    /// From and to; `None` is what the points take.
    pub range: Option<[f64; 2]>,
    /// Values that have names instead of numbers.
    pub names: Vec<(f64, String)>,
}

impl Axis {
    /// An axis of equal steps.
    pub fn linear(label: &'static str, unit: Unit) -> Self {
        Self { label, unit, logarithmic: false, range: None, names: Vec::new() }
    }

    /// An axis of equal factors.
    pub fn logarithmic(label: &'static str, unit: Unit) -> Self {
        Self { logarithmic: true, ..Self::linear(label, unit) }
    }

    fn shows(&self, value: f64) -> bool {
        value.is_finite() && (!self.logarithmic || value > 0.0)
    }
}

/// How points are drawn.
#[derive(Debug, Clone)]
pub enum Mark {
    /// Points joined by a line.
    Line,
    /// A dot each.
    Dots,
    /// A bar between each two points, and what it says.
    Bars(Vec<String>),
}

/// Series of one name share a colour and a line of the legend.
#[derive(Debug, Clone)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Points in order.
    pub points: Vec<(f64, f64)>,
    /// How they are drawn.
    pub mark: Mark,
}

/// A figure of a page.
#[derive(Debug, Clone)]
pub struct Figure {
    /// Its heading.
    pub title: &'static str,
    /// What to see in it.
    pub caption: &'static str,
    /// Axis across.
    pub x: Axis,
    /// Axis upwards.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
    /// Lines across at values of y.
    pub levels: Vec<(&'static str, f64)>,
}

/// A page, which is one file.
#[derive(Debug, Clone)]
pub struct Page {
    /// Its heading.
    pub title: String,
    /// A sentence below it.
    pub summary: String,
    /// Columns of equal width.
    pub table: String,
    /// Its columns, and what they mean.
    pub columns: Vec<(&'static str, &'static str)>,
    /// In order.
    pub figures: Vec<Figure>,
}

impl Page {
    /// The page as HTML, without references to other files.
    pub fn html(&self) -> String {
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
        page.push_str("</dl>\n");
        for figure in &self.figures {
            let (title, caption) = (escape(figure.title), escape(figure.caption));
            let _ = writeln!(page, "<h2>{title}</h2>\n<p>{caption}</p>\n{}", svg::draw(figure));
        }
        let _ = write!(
            page,
            "<footer><p>trimwire {}: <code>{}</code></p></footer>\n</body></html>\n",
            env!("CARGO_PKG_VERSION"),
            escape(&command_line()),
        );
        page
    }
}

impl Figure {
    /// The figure alone, as a file of SVG with its colours.
    pub fn picture(&self) -> String {
        let alone = "<svg xmlns=\"http://www.w3.org/2000/svg\" style=\"background: var(--paper)\" ";
        svg::draw(self).replacen("<svg ", alone, 1).replacen(
            ">\n",
            &format!(">\n<style>{STYLE}</style>\n"),
            1,
        ) + "\n"
    }
}

/// At most `most` points of a distribution: the share of the samples that is not above each.
pub fn cumulative(samples: &[f64], most: usize) -> Vec<(f64, f64)> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let every = sorted.len().div_ceil(most.max(1)).max(1);
    let count = sorted.len();
    let keep = |at: &usize| at.is_multiple_of(every) || at + 1 == count;
    (0..count).filter(keep).map(|at| (sorted[at], (at + 1) as f64 / count as f64)).collect()
}

/// What was typed, as a shell would take it again.
fn command_line() -> String {
    let mut words = std::env::args();
    let program = words.next().unwrap_or_default();
    let name = std::path::Path::new(&program).file_name();
    let mut line = name.unwrap_or_default().to_string_lossy().into_owned();
    for word in words {
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
                levels: vec![("half", 0.5)],
            }],
        }
    }

    #[test]
    fn a_name_cannot_break_out_of_the_page() {
        let html = page("</svg></pre><b>\"").html();
        assert!(!html.contains("</svg></pre>") && !html.contains("<b>"));
        assert!(html.matches("&lt;/svg&gt;&lt;/pre&gt;").count() > 3, "{html}");
    }

    #[test]
    fn a_page_asks_the_network_for_nothing_and_runs_nothing() {
        let html = page("a").html();
        for reference in ["<script", "src=", "href=", "@import", "url(", "https:"] {
            assert!(!html.contains(reference), "{reference}");
        }
    }

    #[test]
    fn colours_are_the_style_sheets_so_that_dark_pages_have_their_own() {
        let html = page("a").html();
        let body = html.split("</style>").nth(1).expect("a style sheet");
        assert!(body.contains("class=\"level\"") && !body.contains('#'), "{body}");
        for class in ["level", "s0", "s6"] {
            assert!(STYLE.contains(&format!(".{class} ")), "{class} has a colour");
        }
    }

    #[test]
    fn a_picture_alone_has_its_colours_and_numbers_at_its_dots() {
        let mut figure = page("a").figures.remove(0);
        figure.series[0].mark = Mark::Dots;
        let picture = figure.picture();
        assert!(picture.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""), "{picture}");
        assert!(
            picture.contains("<style>") && picture.contains(">1</text>") && picture.contains(">1 a</text>")
        );
    }

    #[test]
    fn points_that_an_axis_cannot_show_are_left_out() {
        let drawn = svg::draw(&page("a").figures[0]);
        let line = drawn.split("<polyline").nth(1).and_then(|rest| rest.split("points=\"").nth(1));
        let points = line.and_then(|rest| rest.split('"').next()).expect("a line");
        assert_eq!(points.split(' ').count(), 2, "{points}");
    }

    #[test]
    fn series_of_one_name_have_one_colour_and_one_line_of_the_legend() {
        let mut figure = page("a").figures.remove(0);
        figure.x = Axis::linear("time", Unit::Seconds);
        let points = vec![(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (3.0, 1.0)];
        let bars = Mark::Bars(vec!["first".to_owned(), "second".to_owned()]);
        figure.series.push(Series { name: "a".to_owned(), points, mark: bars });
        figure.series.push(Series { name: "b".to_owned(), points: vec![(1.0, 1.0)], mark: Mark::Dots });
        let drawn = svg::draw(&figure);
        assert_eq!(drawn.matches("<rect class=\"bar s0\"").count(), 2, "{drawn}");
        assert!(drawn.contains("<title>first</title>") && drawn.contains("<title>second</title>"));
        assert_eq!(drawn.matches("<text class=\"key\"").count(), 2, "{drawn}");
        assert!(drawn.contains("<circle class=\"dot s1\""), "{drawn}");
    }

    #[test]
    fn a_distribution_ends_at_one_however_few_points_it_keeps() {
        let samples: Vec<f64> = (1..=1_000).rev().map(f64::from).collect();
        let points = cumulative(&samples, 100);
        assert!(points.len() <= 101 && points.last() == Some(&(1_000.0, 1.0)));
        assert_eq!(cumulative(&[], 10), []);
    }
}
