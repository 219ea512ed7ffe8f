// SPDX-License-Identifier: Apache-2.0
//! What the rate algorithms do on one congested port, for docs/results/rate-algorithms.md: `cargo
//! run --release -p trimwire-agent --example rate_algorithms` writes
//! docs/figures/rate-algorithms.csv, and `packaging/plots.py rate-algorithms` draws it.
//!
//! Eight flows of 10 Gbit/s start together at a port of 10 Gbit/s, four of them leave at 20 ms, and
//! another one joins at 30 ms.

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

fn main() -> std::io::Result<()> {
    let timely = RateConfig::Timely(TimelyConfig::default());
    let dctcp = RateConfig::Dctcp(DctcpConfig::default());
    let (trimming, dropping) = (Port::trimming(LINE_BPS), Port::dropping(LINE_BPS));
    let mut text = String::from("run,series,at_ms,value\n");
    for (run, algorithm, port) in [
        ("timely-trim", timely, trimming),
        ("dctcp-trim", dctcp, trimming),
        ("timely-drop", timely, dropping),
        ("dctcp-drop", dctcp, dropping),
    ] {
        write(&mut text, run, &samples(algorithm, port));
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/figures/rate-algorithms.csv");
    std::fs::write(&path, text)?;
    println!("{}", path.display());
    Ok(())
}

fn samples(algorithm: RateConfig, port: Port) -> Vec<Sample> {
    let mut flows: Vec<Flow> =
        (0..8).map(|index| Flow { algorithm, start_ns: index * 1_500, stop_ns: u64::MAX }).collect();
    for flow in &mut flows[4..] {
        flow.stop_ns = 20 * MS;
    }
    flows.push(Flow { algorithm, start_ns: 30 * MS, stop_ns: u64::MAX });
    Bottleneck::new(port, &flows, INTERVAL_NS, 1).run(END_NS)
}

/// Gbit/s that arrived of each flow, and mean and 99 % of the data queue in µs; means over a
/// millisecond, in which a slow flow has three reports.
fn write(text: &mut String, run: &str, samples: &[Sample]) {
    let flows = samples.first().map_or(0, |sample| sample.flows.len());
    for (index, chunk) in samples.chunks(5).enumerate() {
        let at = index as f64 + 0.5;
        for flow in 0..flows {
            let packets: u32 = chunk.iter().map(|s| s.flows[flow].whole + s.flows[flow].trimmed).sum();
            let rate = f64::from(packets) * WHOLE as f64 * 8.0 / (chunk.len() as f64 * INTERVAL_NS as f64);
            let _ = writeln!(text, "{run},flow {},{at},{rate:.4}", flow + 1);
        }
        let mut times: Vec<u32> = chunk.iter().flat_map(|sample| sample.queue_ns.iter().copied()).collect();
        times.sort_unstable();
        let high = times.get(times.len() * 99 / 100).copied().map_or(0.0, f64::from);
        let mean = times.iter().map(|&time| f64::from(time)).sum::<f64>() / times.len().max(1) as f64;
        let _ = writeln!(text, "{run},queue mean,{at},{:.2}", mean / 1e3);
        let _ = writeln!(text, "{run},queue 99 %,{at},{:.2}", high / 1e3);
    }
}
