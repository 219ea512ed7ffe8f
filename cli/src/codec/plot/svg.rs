// SPDX-License-Identifier: Apache-2.0
//! What drawings have in common.

use std::fmt::Write as _;

/// Width and height of every drawing.
pub(super) const SIZE: (f64, f64) = (960.0, 600.0);

/// A drawing's beginning: what it is called, a heading, and what was measured.
pub(super) fn begin(name: &str, heading: &str, subtitle: &str, left: f64) -> String {
    let (width, height) = SIZE;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#333\" role=\"img\">\n\
         <title>{}</title>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"{left}\" y=\"26\" font-size=\"17\" font-weight=\"bold\">{}</text>\n\
         <text x=\"{left}\" y=\"46\" fill=\"#666\">{}</text>\n",
        escaped(name),
        escaped(heading),
        escaped(subtitle)
    )
}

/// A line through points, as a path's `d`.
pub(super) fn path(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut d = String::new();
    for (i, (x, y)) in points.enumerate() {
        let _ = write!(d, "{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' });
    }
    d
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_title_cannot_break_the_drawing() {
        let svg = begin("a", "a<b>", "a<b>&c", 8.0);
        assert!(svg.contains("a&lt;b&gt;&amp;c") && !svg.contains("a<b>"), "{svg}");
    }
}
