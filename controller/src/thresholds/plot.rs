// SPDX-License-Identifier: Apache-2.0
//! The trade-off as a drawing: weighted loss against the buffer, with and without trimming.

use std::fmt::Write as _;

use super::report::{Answer, Curve, figure};
use crate::units;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 520.0;
const LEFT: f64 = 86.0;
const RIGHT: f64 = 200.0;
const TOP: f64 = 64.0;
const BOTTOM: f64 = 70.0;
/// Losses below are rounding, and stand on the lower edge.
const LEAST: f64 = 1e-15;
/// Okabe and Ito's, which colour-blind readers tell apart.
const DROPPING: &str = "#d55e00";
const TRIMMING: &str = "#0072b2";

/// Logarithmic axes around the points.
struct Axes {
    buffers: (f64, f64),
    /// Powers of ten.
    decades: (i32, i32),
}

/// Draws an answer's curve as SVG.
pub fn draw(answer: &Answer) -> String {
    let curve = &answer.curve;
    let losses =
        || curve.iter().flat_map(|point| [point.dropping, point.trimming]).map(|loss| loss.max(LEAST));
    let least = losses().fold(1.0, f64::min);
    let most = losses().fold(LEAST, f64::max);
    let first = curve.first().map_or(1, |point| point.buffer) as f64;
    let last = curve.last().map_or(2, |point| point.buffer) as f64;
    let (low, high) = (least.log10().floor() as i32, most.log10().ceil() as i32);
    let axes = Axes { buffers: (first, last.max(first * 1.01)), decades: (low.min(high - 1), high) };

    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#333\" role=\"img\">\n\
         <title>Weighted loss against buffer</title>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"26\" font-size=\"17\" font-weight=\"bold\">Weighted loss against buffer</text>\n\
         <text x=\"{LEFT}\" y=\"46\" fill=\"#666\">{}, load {} of {}, best thresholds for each buffer</text>\n",
        escaped(&answer.model),
        answer.settings.load,
        units::rate_text(answer.settings.line_rate)
    );
    axes.grid(&mut svg, answer.settings.buffer as f64);
    for (colour, pick) in series() {
        axes.line(&mut svg, curve, colour, pick);
    }
    legend(&mut svg, answer);
    svg.push_str("</svg>\n");
    svg
}

type Pick = fn(&Curve) -> f64;

fn series() -> [(&'static str, Pick); 2] {
    [(DROPPING, |point| point.dropping), (TRIMMING, |point| point.trimming)]
}

impl Axes {
    fn x(&self, buffer: f64) -> f64 {
        let (first, last) = self.buffers;
        let share = (buffer.max(1.0) / first.max(1.0)).ln() / (last / first.max(1.0)).ln();
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - RIGHT - LEFT)
    }

    fn y(&self, loss: f64) -> f64 {
        let (low, high) = (f64::from(self.decades.0), f64::from(self.decades.1));
        let share = (loss.max(LEAST).log10() - low) / (high - low);
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - BOTTOM - TOP)
    }

    fn grid(&self, svg: &mut String, chosen: f64) {
        let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
        let (low, high) = self.decades;
        for decade in low..=high {
            let at = self.y(10_f64.powi(decade));
            let (left, level) = (LEFT - 8.0, at + 4.5);
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {at:.1}H{right}\" stroke=\"#e4e4e4\"/>\
                 <text x=\"{left}\" y=\"{level:.1}\" text-anchor=\"end\">10<tspan dy=\"-5\" font-size=\"10\">{decade}</tspan></text>"
            );
        }
        let mut tick = 1024.0;
        while tick <= self.buffers.1 {
            if tick >= self.buffers.0 {
                let (at, level) = (self.x(tick), bottom + 19.0);
                let _ = writeln!(
                    svg,
                    "<path d=\"M{at:.1} {TOP}V{bottom}\" stroke=\"#f0f0f0\"/>\
                     <text x=\"{at:.1}\" y=\"{level}\" text-anchor=\"middle\">{}</text>",
                    units::bytes_text(tick as u64)
                );
            }
            tick *= 2.0;
        }
        let at = self.x(chosen);
        let level = bottom - 8.0;
        let _ = writeln!(
            svg,
            "<path d=\"M{at:.1} {TOP}V{bottom}\" stroke=\"#999\" stroke-dasharray=\"5 4\"/>\
             <text transform=\"translate({:.1} {level}) rotate(-90)\" fill=\"#777\" font-size=\"12\">this port</text>",
            at - 5.0
        );
        let _ = writeln!(svg, "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#333\"/>");
        let (middle, level, centre) = (LEFT.midpoint(right), HEIGHT - 24.0, TOP.midpoint(bottom));
        let _ = writeln!(
            svg,
            "<text x=\"{middle}\" y=\"{level}\" text-anchor=\"middle\">buffer of the port (log scale)</text>\
             <text transform=\"translate(26 {centre}) rotate(-90)\" text-anchor=\"middle\">weighted loss (log scale)</text>"
        );
    }

    fn line(&self, svg: &mut String, curve: &[Curve], colour: &str, pick: Pick) {
        let mut path = String::new();
        for (position, point) in curve.iter().enumerate() {
            let (x, y) = (self.x(point.buffer as f64), self.y(pick(point)));
            let _ = write!(path, "{}{x:.1} {y:.1}", if position == 0 { 'M' } else { 'L' });
            let _ = writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"#fff\" stroke=\"{colour}\" stroke-width=\"1.8\"/>"
            );
        }
        let _ = writeln!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
    }
}

fn legend(svg: &mut String, answer: &Answer) {
    let left = WIDTH - RIGHT + 18.0;
    let losses = [answer.dropping.weighted_loss, answer.trimming.weighted_loss];
    for (position, ((colour, _), name)) in series().into_iter().zip(["dropping", "trimming"]).enumerate() {
        let level = TOP + 14.0 + 44.0 * position as f64;
        let (end, text, base, below) = (left + 30.0, left + 38.0, level + 4.5, level + 21.0);
        let _ = writeln!(
            svg,
            "<path d=\"M{left} {level}H{end}\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <text x=\"{text}\" y=\"{base}\">{name}</text>\
             <text x=\"{text}\" y=\"{below}\" font-size=\"12\" fill=\"#666\">{} here</text>",
            figure(losses[position])
        );
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_lies_within_the_axes() {
        let axes = Axes { buffers: (1000.0, 64_000.0), decades: (-6, 0) };
        assert!((axes.x(8000.0) - axes.x(1000.0) - (axes.x(64_000.0) - axes.x(8000.0))).abs() < 1e-9);
        for loss in [0.0, 1e-300, 1e-3, 1.0, f64::INFINITY] {
            assert!((TOP..=HEIGHT - BOTTOM).contains(&axes.y(loss)), "{loss}");
        }
        assert_eq!(escaped("a<b>&c"), "a&lt;b&gt;&amp;c");
    }
}
