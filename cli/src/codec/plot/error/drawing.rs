// SPDX-License-Identifier: Apache-2.0
//! The drawing: logarithmic axes, a curve and marks for each codec, a legend.

use super::super::svg::{SIZE, begin, path};
use super::Series;
use std::fmt::Write as _;
use trimwire_encoder::Codec;
use trimwire_encoder::papers::{PaperCodec, Scheme};

const WIDTH: f64 = SIZE.0;
const HEIGHT: f64 = SIZE.1;
const LEFT: f64 = 86.0;
const RIGHT: f64 = 170.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 70.0;
/// Frames, bytes.
const BYTES: (f64, f64) = (56.0, 1640.0);
/// NMSE. What is smaller is rounding, and stands on the lower edge.
const ERRORS: (f64, f64) = (1e-12, 20.0);
/// What switches cut to out of the box (docs/how-to/sonic.md has SONiC's).
const TRIM_SIZES: [(f64, &str); 2] = [(128.0, "SONiC 128 B"), (256.0, "Spectrum 256 B")];

/// Draws all series.
pub(super) fn draw(all: &[Series], title: &str) -> String {
    let heading = "Error against bytes kept of a packet";
    let mut svg = begin("Error of trimmed packets", heading, title, LEFT);
    axes(&mut svg);
    for series in all {
        lines(&mut svg, series);
    }
    for series in all {
        for point in &series.points {
            mark(&mut svg, series.codec, x(point.frame_bytes as f64), y(point.nmse));
        }
    }
    legend(&mut svg, all);
    svg.push_str("</svg>\n");
    svg
}

fn axes(svg: &mut String) {
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    for decade in -12..=1 {
        let at = y(10f64.powi(decade));
        let _ = writeln!(svg, "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#e4e4e4\"/>");
        if decade % 2 == 0 {
            let (left, level) = (LEFT - 8.0, at + 4.5);
            let power = superscript(decade);
            let _ = writeln!(svg, "<text x=\"{left}\" y=\"{level:.1}\" text-anchor=\"end\">10{power}</text>");
        }
    }
    for bytes in [64, 96, 128, 192, 256, 384, 512, 768, 1024, 1500] {
        let at = x(f64::from(bytes));
        let _ = writeln!(svg, "<path d=\"M{at:.1} {TOP}V{bottom}\" stroke=\"#f0f0f0\"/>");
        let level = bottom + 19.0;
        let _ = writeln!(svg, "<text x=\"{at:.1}\" y=\"{level}\" text-anchor=\"middle\">{bytes}</text>");
    }
    for (bytes, name) in TRIM_SIZES {
        let (at, level) = (x(bytes), bottom - 8.0);
        let _ = writeln!(
            svg,
            "<path d=\"M{at:.1} {TOP}V{bottom}\" stroke=\"#999\" stroke-dasharray=\"5 4\"/>\
             <text transform=\"translate({:.1} {level}) rotate(-90)\" fill=\"#777\" font-size=\"12\">{name}</text>",
            at - 5.0
        );
    }
    let _ = writeln!(svg, "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#333\"/>");
    let (middle, level) = (LEFT.midpoint(right), HEIGHT - 24.0);
    let _ = writeln!(
        svg,
        "<text x=\"{middle}\" y=\"{level}\" text-anchor=\"middle\">bytes kept of each trimmed packet \
         (Ethernet frame without checksum, log scale)</text>"
    );
    let centre = TOP.midpoint(bottom);
    let _ = writeln!(
        svg,
        "<text transform=\"translate(26 {centre}) rotate(-90)\" text-anchor=\"middle\">NMSE: ‖decoded − exact‖² / \
         ‖exact‖² (log scale)</text>"
    );
}

/// Closed forms solid; dotted from point to point where there is none.
fn lines(svg: &mut String, series: &Series) {
    let (colour, _) = style(series.codec);
    let mut runs: Vec<Vec<(f64, f64)>> = vec![Vec::new()];
    for (bytes, expected) in &series.curve {
        match (expected, runs.last_mut()) {
            (Some(error), Some(run)) if *error <= ERRORS.1 => run.push((x(*bytes as f64), y(*error))),
            _ => runs.push(Vec::new()),
        }
    }
    for run in runs.iter().filter(|run| run.len() > 1) {
        let _ = writeln!(
            svg,
            "<path d=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
            path(run.iter().copied())
        );
    }
    for pair in series.points.windows(2) {
        if pair.iter().any(|point| point.expected.is_none()) {
            let ends = pair.iter().map(|point| (x(point.frame_bytes as f64), y(point.nmse)));
            let _ = writeln!(
                svg,
                "<path d=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" stroke-dasharray=\"2 4\"/>",
                path(ends)
            );
        }
    }
}

/// A codec's colour (Okabe and Ito's, which colour-blind readers tell apart) and what its marks look like around the origin.
fn style(codec: Scheme) -> (&'static str, &'static str) {
    match codec {
        Scheme::Wire(Codec::Rht) => ("#0072b2", "M-4.5 0A4.5 4.5 0 1 0 4.5 0A4.5 4.5 0 1 0 -4.5 0Z"),
        Scheme::Paper(PaperCodec::Rht) => ("#56b4e9", "M-4 -4H4V4H-4Z"),
        Scheme::Paper(PaperCodec::SignMagnitude) => ("#e69f00", "M0 -5.5L5 4H-5Z"),
        Scheme::Paper(PaperCodec::StochasticQuantisation) => ("#d55e00", "M0 -5.5L5.5 0L0 5.5L-5.5 0Z"),
        Scheme::Paper(PaperCodec::SubtractiveDithering) => ("#cc79a7", "M0 5.5L5 -4H-5Z"),
        Scheme::Wire(Codec::Raw) => ("#555555", "M-4 -4L4 4M4 -4L-4 4"),
    }
}

fn mark(svg: &mut String, codec: Scheme, x: f64, y: f64) {
    let (colour, shape) = style(codec);
    let _ = writeln!(
        svg,
        "<path transform=\"translate({x:.1} {y:.1})\" d=\"{shape}\" fill=\"#fff\" stroke=\"{colour}\" stroke-width=\"1.8\"/>"
    );
}

fn legend(svg: &mut String, all: &[Series]) {
    let left = WIDTH - RIGHT + 18.0;
    for (i, series) in all.iter().enumerate() {
        let level = TOP + 14.0 + 24.0 * i as f64;
        let (colour, _) = style(series.codec);
        let end = left + 30.0;
        let _ = writeln!(svg, "<path d=\"M{left} {level}H{end}\" stroke=\"{colour}\" stroke-width=\"2\"/>");
        mark(svg, series.codec, left + 15.0, level);
        let (text, base) = (end + 8.0, level + 4.5);
        let _ = writeln!(svg, "<text x=\"{text}\" y=\"{base}\">{}</text>", series.codec);
    }
    let mut level = TOP + 14.0 + 24.0 * all.len() as f64 + 12.0;
    for line in ["marks: measured", "lines: closed form", "dotted: none known", "lower edge: ≤ 10⁻¹²"] {
        let _ =
            writeln!(svg, "<text x=\"{left}\" y=\"{level}\" font-size=\"12\" fill=\"#666\">{line}</text>");
        level += 18.0;
    }
}

fn x(bytes: f64) -> f64 {
    let share = (bytes / BYTES.0).ln() / (BYTES.1 / BYTES.0).ln();
    LEFT + share.clamp(0.0, 1.0) * (WIDTH - RIGHT - LEFT)
}

fn y(error: f64) -> f64 {
    let share = (error.max(ERRORS.0) / ERRORS.0).ln() / (ERRORS.1 / ERRORS.0).ln();
    HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - BOTTOM - TOP)
}

fn superscript(exponent: i32) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let raise = |c: char| c.to_digit(10).map_or('⁻', |digit| DIGITS[digit as usize]);
    exponent.to_string().chars().map(raise).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_logarithmic_and_hold_every_point() {
        assert!((x(128.0) - x(64.0) - (x(256.0) - x(128.0))).abs() < 1e-9);
        assert!((y(1e-2) - y(1e-1) - (y(1e-3) - y(1e-2))).abs() < 1e-9);
        for error in [0.0, 1e-300, 1.0, 1e9, f64::INFINITY] {
            assert!((TOP..=HEIGHT - BOTTOM).contains(&y(error)), "{error}");
        }
    }
}
