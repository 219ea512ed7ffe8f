// SPDX-License-Identifier: Apache-2.0
//! `trimwire-lab plan measure`: what compression and collectives take on this machine, as a
//! cluster's file.

mod codec;
mod network;

use crate::failure::{EXIT_CODES, Failure, Outcome};
use crate::output::{print, print_json};
use anyhow::{Context as _, anyhow};
use clap::Args;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::PathBuf;
use trimwire_agent::planes::fit::{Line, fit};
use trimwire_encoder::{Codec, DEFAULT_COORDINATES_PER_PACKET};
use trimwire_lab::espresso::Cluster;

/// Planes that the compressor sends.
const PLANES_SENT: u8 = 4;
/// Each size is measured this often; the median counts.
const ROUNDS: u32 = 7;

const HELP: &str = "\
Examples:
  trimwire-lab plan measure > cluster.yaml                          codec on this processor, collectives between two ranks on loopback
  torchrun … trimwire-agent perf all-reduce --json > perf.json  on the job's ranks, then:
  trimwire-lab plan measure --perf perf.json --machines 8 > cluster.yaml

A constant and a slope are fitted to the times by least relative squares. A comment in the file has the worst
sample's error.";

/// Measure compression and collectives here, and write the cluster file for `trimwire-lab plan`.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP, after_long_help = format!("{HELP}\n\n{EXIT_CODES}"))]
pub(crate) struct MeasureOptions {
    /// Take the output of `trimwire-agent perf all-reduce --json` on the job's ranks, instead of
    /// measuring two ranks on loopback.
    #[arg(long, value_name = "FILE")]
    pub perf: Option<PathBuf>,
    /// Machines of the cluster [default: the ranks that were measured].
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub machines: Option<u32>,
    /// Print JSON, samples included.
    #[arg(long)]
    pub json: bool,
}

/// Sizes and what they took, and the model of it.
#[derive(Debug, Serialize)]
struct Fitted {
    /// What a call takes whatever its size, µs.
    launch_us: f64,
    /// 1e9 bytes a second: of f32 for a codec, of what is on the wire for a collective.
    gbytes_per_s: f64,
    /// Greatest relative distance of a sample from the model.
    worst: f64,
    /// (Bytes, seconds).
    samples: codec::Samples,
}

impl Fitted {
    fn new(samples: codec::Samples) -> anyhow::Result<Self> {
        let Line { constant, slope, worst } =
            fit(&samples).ok_or_else(|| anyhow!("{} samples of one size are no line", samples.len()))?;
        Ok(Self { launch_us: constant * 1e6, gbytes_per_s: 1e-9 / slope.max(1e-15), worst, samples })
    }

    fn yaml(&self) -> String {
        // The file's format has no launch of nothing, nor rates beyond any memory's.
        let (launch, rate) = (self.launch_us.max(0.01), self.gbytes_per_s.min(10_000.0));
        format!("{{ launch_us: {launch:.2}, gbytes_per_s: {rate:.3} }}")
    }
}

#[derive(Debug, Serialize)]
struct Report {
    planes: u8,
    share: f64,
    compress: Fitted,
    decompress: Fitted,
    ranks: u32,
    over: String,
    all_reduce: Fitted,
    /// α and β of a message: what the cluster's file has.
    latency_us: f64,
    gbps: f64,
    yaml: String,
}

/// Measures and prints.
pub(crate) fn run(options: &MeasureOptions) -> Outcome {
    let (ranks, over, samples) = if let Some(file) = &options.perf {
        let text = super::read(file)?;
        let (ranks, samples) =
            network::of_perf(&text).with_context(|| super::name(file)).map_err(Failure::input)?;
        (ranks, format!("{ranks} ranks of a perf"), samples)
    } else {
        let samples = network::on_loopback(ROUNDS).context("collectives on loopback")?;
        (2, "two ranks on loopback".to_owned(), samples)
    };
    let [compress, decompress] = codec::times(PLANES_SENT, ROUNDS)?;
    let (compress, decompress) = (Fitted::new(compress)?, Fitted::new(decompress)?);
    let all_reduce = Fitted::new(samples).context("all-reduces")?;
    let n = f64::from(ranks);
    // An all-reduce takes 2 ((n − 1) α + (n − 1)/n · bytes / β): espresso's model of it.
    let latency_us = (all_reduce.launch_us / (2.0 * (n - 1.0))).max(0.01);
    let gbps = 8.0 * all_reduce.gbytes_per_s * 2.0 * (n - 1.0) / n;
    let share = Codec::Rht.packet_len(PLANES_SENT, DEFAULT_COORDINATES_PER_PACKET, false) as f64
        / (4 * DEFAULT_COORDINATES_PER_PACKET) as f64;
    let machines = options.machines.unwrap_or(ranks);
    let mut report = Report {
        planes: PLANES_SENT,
        share,
        compress,
        decompress,
        ranks,
        over,
        all_reduce,
        latency_us,
        gbps,
        yaml: String::new(),
    };
    report.yaml = yaml(&report, machines);
    // What is written is to be read.
    Cluster::from_yaml(&report.yaml, "what was measured").map_err(Failure::failed)?;
    if options.json { Ok(print_json(&report)?) } else { Ok(print(&report.yaml)?) }
}

fn yaml(report: &Report, machines: u32) -> String {
    let Report { planes, share, compress, decompress, over, all_reduce, latency_us, gbps, .. } = report;
    let off = |fitted: &Fitted| format!("worst sample {:.0} % off", fitted.worst * 100.0);
    let mut text = String::new();
    let _ = writeln!(text, "# Measured by trimwire-lab plan measure: {over}; codec with one thread.");
    let _ = writeln!(text, "cluster: measured, {machines} machines");
    let _ = writeln!(text, "machines: {machines}\ngpus: 1");
    let _ = writeln!(
        text,
        "intra: {{ gbps: {gbps:.3}, latency_us: {latency_us:.2} }}    # one device a machine: not used"
    );
    let _ =
        writeln!(text, "inter: {{ gbps: {gbps:.3}, latency_us: {latency_us:.2} }}    # {}", off(all_reduce));
    let _ = writeln!(text, "compressor:\n  name: rht with {planes} planes\n  share: {share:.6}");
    let _ = writeln!(text, "  # gpu: none was measured here, and none is planned for");
    let _ = writeln!(text, "  cpu:");
    let _ = writeln!(text, "    compress: {}    # {}", compress.yaml(), off(compress));
    let _ = writeln!(text, "    decompress: {}    # {}", decompress.yaml(), off(decompress));
    text
}
