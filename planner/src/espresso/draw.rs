// SPDX-License-Identifier: Apache-2.0
//! A timeline as a picture, like Espresso's figure 2.

use std::fmt::Write as _;

use super::chain::Resource;
use super::timeline::Schedule;

const WIDTH: f64 = 1080.0;
const LEFT: f64 = 120.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 84.0;
const ROW: f64 = 54.0;
const BOX: f64 = 34.0;
/// Okabe and Ito's, which colour-blind readers tell apart.
const COMPUTATION: &str = "#56b4e9";
const COMPRESSION: &str = "#e69f00";
const COMMUNICATION: &str = "#009e73";
/// Narrower boxes are not labelled, and their edges are not drawn.
const LABELLED: f64 = 22.0;

/// Draws a schedule as SVG. `title` and `subtitle` say of what; `forward_ns` comes before the backward pass.
pub fn draw(schedule: &Schedule, title: &str, subtitle: &str, forward_ns: f64) -> String {
    let rows = [
        (Resource::Gpu, "GPU"),
        (Resource::Cpu, "processors"),
        (Resource::Intra, "inside machines"),
        (Resource::Inter, "between machines"),
    ];
    let rows: Vec<_> =
        rows.into_iter().filter(|(row, _)| schedule.spans.iter().any(|span| span.resource == *row)).collect();
    let total = (forward_ns + schedule.end).max(1.0);
    let x = |at: f64| LEFT + (WIDTH - LEFT - RIGHT) * at / total;
    let bottom = TOP + ROW * rows.len() as f64;
    let height = bottom + 52.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#333\" role=\"img\">\n\
         <title>{}</title>\n<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"26\" font-size=\"17\" font-weight=\"bold\">{}</text>\n\
         <text x=\"{LEFT}\" y=\"46\" fill=\"#666\">{}</text>\n",
        escaped(title),
        escaped(title),
        escaped(subtitle)
    );
    let legend =
        [(COMPUTATION, "computation"), (COMPRESSION, "compression"), (COMMUNICATION, "communication")];
    for (i, (colour, name)) in legend.into_iter().enumerate() {
        let left = LEFT + 130.0 * i as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{left}\" y=\"58\" width=\"12\" height=\"12\" fill=\"{colour}\"/><text x=\"{}\" y=\"69\">{name}</text>",
            left + 18.0
        );
    }
    for (i, (row, name)) in rows.iter().enumerate() {
        let top = TOP + ROW * i as f64 + (ROW - BOX) / 2.0;
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{name}</text>",
            LEFT - 10.0,
            top + 22.0
        );
        if *row == Resource::Gpu && forward_ns > 0.0 {
            let _ = writeln!(
                svg,
                "<rect x=\"{LEFT}\" y=\"{top}\" width=\"{:.2}\" height=\"{BOX}\" fill=\"#ddd\"><title>forward pass and optimiser</title></rect>",
                x(forward_ns) - LEFT
            );
        }
        for span in schedule.spans.iter().filter(|span| span.resource == *row && span.end > span.start) {
            let (from, to) = (x(forward_ns + span.start), x(forward_ns + span.end));
            let colour = match (span.operation, row) {
                (None, _) => COMPUTATION,
                (_, Resource::Gpu | Resource::Cpu) => COMPRESSION,
                _ => COMMUNICATION,
            };
            let edge = if to - from >= 3.0 { " stroke=\"#fff\" stroke-width=\"0.6\"" } else { "" };
            let _ = writeln!(
                svg,
                "<rect x=\"{from:.2}\" y=\"{top}\" width=\"{:.2}\" height=\"{BOX}\" fill=\"{colour}\"{edge}><title>T{}: {:.3} to {:.3} ms</title></rect>",
                to - from,
                span.tensor,
                (forward_ns + span.start) / 1e6,
                (forward_ns + span.end) / 1e6
            );
            if to - from >= LABELLED {
                let _ = writeln!(
                    svg,
                    "<text x=\"{:.2}\" y=\"{}\" text-anchor=\"middle\" font-size=\"11\" fill=\"#fff\">T{}</text>",
                    from.midpoint(to),
                    top + 21.0,
                    span.tensor
                );
            }
        }
    }
    let right = WIDTH - RIGHT;
    let _ = writeln!(svg, "<path d=\"M{LEFT} {bottom}H{right}\" stroke=\"#333\"/>");
    for i in 0..=5 {
        let at = total * f64::from(i) / 5.0;
        let _ = writeln!(
            svg,
            "<path d=\"M{0:.1} {bottom}v5\" stroke=\"#333\"/><text x=\"{0:.1}\" y=\"{1}\" text-anchor=\"middle\">{2:.1} ms</text>",
            x(at),
            bottom + 22.0,
            at / 1e6
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
