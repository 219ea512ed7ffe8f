// SPDX-License-Identifier: Apache-2.0
//! Draws what the rate laws do on one congested port, for docs/explanation/rates.md:
//! `cargo run --release -p trimwire-agent --example rate_laws` writes docs/figures/.
//!
//! Eight flows of 10 Gbit/s start together at a port of 10 Gbit/s, four of them leave at 20 ms, and another one joins at 30 ms.

#[path = "../tests/it/bottleneck/mod.rs"]
mod bottleneck;

use bottleneck::{Bottleneck, Flow, Port, Sample, WHOLE};
use std::fmt::Write as _;
use std::path::Path;
use trimwire_agent::rate::{DctcpConfig, RateConfig, TimelyConfig};

const MS: u64 = 1_000_000;
const INTERVAL_NS: u64 = 200_000;
const END_NS: u64 = 45 * MS;
const LINE_BPS: u64 = 10_000_000_000;

const SIZE: (f64, f64) = (860.0, 470.0);
const LEFT: f64 = 62.0;
const RIGHT: f64 = 16.0;
/// Top and height of the two drawings: rates, queue.
const RATES: (f64, f64) = (78.0, 200.0);
const QUEUE: (f64, f64) = (324.0, 110.0);
/// Okabe and Ito's, which colour-blind readers tell apart; the last is the flow that joins.
const COLOURS: [&str; 9] =
    ["#0072b2", "#56b4e9", "#009e73", "#cc79a7", "#999999", "#b3b3b3", "#8c8c8c", "#c7c7c7", "#d55e00"];

fn main() -> std::io::Result<()> {
    let timely = RateConfig::Timely(TimelyConfig::default());
    let dctcp = RateConfig::Dctcp(DctcpConfig::default());
    let (cutting, dropping) = (Port::trimming(LINE_BPS), Port::dropping(LINE_BPS));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/figures");
    std::fs::create_dir_all(&folder)?;
    for (file, heading, law, port) in [
        ("rate-timely-cut", "TIMELY-like, packets are cut", timely, cutting),
        ("rate-dctcp-cut", "DCTCP-like, packets are cut", dctcp, cutting),
        ("rate-timely-drop", "TIMELY-like, packets are dropped (baseline)", timely, dropping),
        ("rate-dctcp-drop", "DCTCP-like, packets are marked and dropped (baseline)", dctcp, dropping),
    ] {
        let path = folder.join(format!("{file}.svg"));
        std::fs::write(&path, draw(heading, &samples(law, port)))?;
        println!("{}", path.display());
    }
    Ok(())
}

fn samples(law: RateConfig, port: Port) -> Vec<Sample> {
    let mut flows: Vec<Flow> =
        (0..8).map(|index| Flow { law, start_ns: index * 1_500, stop_ns: u64::MAX }).collect();
    for flow in &mut flows[4..] {
        flow.stop_ns = 20 * MS;
    }
    flows.push(Flow { law, start_ns: 30 * MS, stop_ns: u64::MAX });
    Bottleneck::new(port, &flows, INTERVAL_NS, 1).run(END_NS)
}

fn draw(heading: &str, samples: &[Sample]) -> String {
    let (width, height) = SIZE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#333\" role=\"img\">\n<title>{heading}</title>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"16\" font-weight=\"bold\">{heading}</text>\n\
         <text x=\"{LEFT}\" y=\"44\" fill=\"#666\">8 flows at one port of 10 Gbit/s, 4 leave at 20 ms, another one (orange) joins at 30 ms</text>\n"
    );
    axes(&mut svg, RATES, "Gbit/s that arrived, by flow", &[0.0, 1.0, 2.0, 3.0, 4.0]);
    axes(&mut svg, QUEUE, "data queue, µs (mean and 99 %)", &[0.0, 20.0, 40.0]);
    for flow in 0..samples.first().map_or(0, |sample| sample.flows.len()) {
        // Means of a millisecond: a slow flow has three reports in it.
        let points = samples.chunks(5).enumerate().map(|(index, chunk)| {
            let packets: u32 = chunk.iter().map(|s| s.flows[flow].whole + s.flows[flow].cut).sum();
            let rate = f64::from(packets) * WHOLE as f64 * 8.0 / (chunk.len() as f64 * INTERVAL_NS as f64);
            (index as f64 + 0.5, rate / 4.0)
        });
        line(&mut svg, RATES, COLOURS[flow % COLOURS.len()], 1.4, points);
    }
    let queue = |quantile: Option<f64>| {
        samples.iter().enumerate().map(move |(index, sample)| {
            let mut times = sample.queue_ns.clone();
            times.sort_unstable();
            let value = match quantile {
                Some(share) => {
                    times.get((times.len() as f64 * share) as usize).copied().map_or(0.0, f64::from)
                }
                None => times.iter().map(|&time| f64::from(time)).sum::<f64>() / times.len().max(1) as f64,
            };
            ((index as f64 + 0.5) * INTERVAL_NS as f64 / MS as f64, value / 40_000.0)
        })
    };
    line(&mut svg, QUEUE, "#e69f00", 0.8, queue(Some(0.99)));
    line(&mut svg, QUEUE, "#333", 1.2, queue(None));
    svg.push_str("</svg>\n");
    svg
}

fn x(milliseconds: f64) -> f64 {
    LEFT + milliseconds * MS as f64 / END_NS as f64 * (SIZE.0 - LEFT - RIGHT)
}

fn axes(svg: &mut String, (top, height): (f64, f64), label: &str, ticks: &[f64]) {
    let most = ticks.last().copied().unwrap_or(1.0);
    let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{:.0}\" fill=\"#666\">{label}</text>", top - 6.0);
    for tick in ticks {
        let y = top + height * (1.0 - tick / most);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {y:.1}H{:.1}\" stroke=\"#ddd\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{tick}</text>",
            SIZE.0 - RIGHT,
            LEFT - 6.0,
            y + 4.0
        );
    }
    for milliseconds in [0.0, 10.0, 20.0, 30.0, 40.0] {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{milliseconds} ms</text>",
            x(milliseconds),
            top + height + 16.0
        );
    }
}

/// Points of (milliseconds, share of the drawing's height); what is above it is drawn at its edge.
fn line(
    svg: &mut String,
    (top, height): (f64, f64),
    colour: &str,
    width: f64,
    points: impl Iterator<Item = (f64, f64)>,
) {
    let _ = write!(svg, "<path fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\" d=\"");
    for (index, (milliseconds, share)) in points.enumerate() {
        let y = top + height * (1.0 - share.clamp(0.0, 1.0));
        let _ = write!(svg, "{}{:.1} {y:.1}", if index == 0 { 'M' } else { 'L' }, x(milliseconds));
    }
    svg.push_str("\"/>\n");
}
