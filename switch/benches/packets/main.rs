// SPDX-License-Identifier: Apache-2.0
//! Packets a second of our trimming program with 1,000 routes and 64 queue policies, on one core,
//! and over veth pairs beside another switch. Prints JSON.
//!
//! ```sh
//! cargo bench -p trimwire-switch --features native --bench packets -- --help
//! ```

mod engine;
mod veth;
mod workload;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Parser;
use engine::{EngineResult, Load};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use veth::{Steady, SwitchUnderTest, VethResult};
use workload::PACKET_BYTES;

/// Measure packets a second with 1,000 routes, 64 queue policies and entries in all other tables.
///
/// Without further options: one core, no sockets, the time of each stage. --veth measures this
/// switch as a process between two veth pairs as well. --against measures another switch beside it,
/// with the same program, tables and frames. With --routes, frames pass steadily, and the time that
/// each spent in the switch is reported. These need root, and run in a network namespace of their
/// own.
#[derive(Debug, Parser)]
#[command(name = "packets")]
struct Arguments {
    /// Measure each frame length and each switch for this many seconds.
    #[arg(long, value_name = "S", default_value_t = 4.0)]
    seconds: f64,
    /// Lengths of frames in bytes.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_values_t = PACKET_BYTES)]
    packet_bytes: Vec<usize>,
    /// Numbers of flows that the frames belong to, in turn.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [256])]
    flows: Vec<u32>,
    /// Trim every packet that may be trimmed, as behind a full queue.
    #[arg(long)]
    trim: bool,
    /// Interpret the program on one core, though there may be machine code.
    #[arg(long)]
    interpret: bool,
    /// Pass this many packets of each length and number of flows on one core, without a clock, for
    /// counting instructions.
    #[arg(long, value_name = "N")]
    packets: Option<usize>,
    /// Measure over veth pairs as well.
    #[arg(long)]
    veth: bool,
    /// Measure another switch over veth pairs, such as simple_switch_grpc.
    #[arg(long, value_name = "BINARY")]
    against: Option<PathBuf>,
    /// Send a frame each 100 µs over veth pairs, beside nothing, beside a busy thread, and while so
    /// many routes are written, in place of as many frames as pass.
    #[arg(long, value_name = "N")]
    routes: Option<u32>,
    /// Measure over four veth pairs how fast so many threads send what waits at all of them, while
    /// no other process works, in place of as many frames as pass.
    #[arg(long, value_name = "N", value_delimiter = ',', conflicts_with_all = ["routes", "against"])]
    threads: Vec<u16>,
    /// This process is in a namespace of its own.
    #[arg(long, hide = true)]
    inside: bool,
    /// Cargo says so.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    if arguments.inside {
        println!("{}", json!(inside(&arguments)?));
        return Ok(());
    }
    let mut results = Vec::new();
    let only_veth = arguments.routes.is_some() || !arguments.threads.is_empty();
    let lengths = if only_veth { &[][..] } else { &arguments.packet_bytes };
    for &packet_bytes in lengths {
        for &flows in &arguments.flows {
            let load = Load { packet_bytes, flows, trim: arguments.trim, interpret: arguments.interpret };
            if let Some(packets) = arguments.packets {
                engine::pass(load, packets).map_err(|error| anyhow!(error))?;
            } else {
                let measured = engine::measure(load, arguments.seconds).map_err(|error| anyhow!(error))?;
                results.push(engine_json(&measured));
            }
        }
    }
    let veth = arguments.veth || arguments.against.is_some() || only_veth;
    let veth = if veth { namespace()? } else { json!([]) };
    println!("{:#}", json!({ "results": results, "veth": veth }));
    Ok(())
}

/// The same command in a network namespace that ends with it.
fn namespace() -> Result<Value> {
    let output = Command::new("unshare")
        .args(["--net", "--"])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .arg("--inside")
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("`unshare` (util-linux) cannot be run")?;
    if !output.status.success() {
        bail!("no measurement over veth pairs (see above); it needs root");
    }
    serde_json::from_slice(&output.stdout).context("the measurement in the namespace gave no JSON")
}

fn inside(arguments: &Arguments) -> Result<Vec<Value>> {
    let binary = env!("CARGO_BIN_EXE_trimwire-switch").into();
    let own = SwitchUnderTest { name: "trimwire-switch".to_owned(), binary };
    let other = arguments.against.as_ref().map(|binary| SwitchUnderTest {
        name: binary.file_name().unwrap_or(binary.as_os_str()).to_string_lossy().into_owned(),
        binary: binary.clone(),
    });
    let mut results = Vec::new();
    for &threads in &arguments.threads {
        let bench = veth::start(&own, 1..5, threads).map_err(|error| anyhow!(error))?;
        for &length in &arguments.packet_bytes {
            let measured = bench.bursts(length, arguments.seconds).map_err(|error| anyhow!(error))?;
            results.push(json!({
                "switch": own.name,
                "packet_bytes": length,
                "threads": threads,
                "bursts": measured.len(),
                "packets_per_second": middle(measured).round(),
            }));
        }
    }
    if !arguments.threads.is_empty() {
        return Ok(results);
    }
    for switch in std::iter::once(own).chain(other) {
        let failed = |error| anyhow!("{}: {error}", switch.name);
        let start = || veth::start(&switch, 0..2, 1).map_err(failed);
        if let Some(routes) = arguments.routes {
            for &length in &arguments.packet_bytes {
                let measured = start()?.steady(length, routes).map_err(failed)?;
                results.extend(measured.iter().map(|steady| steady_json(&switch.name, length, steady)));
            }
        } else {
            let measured = start()?.rates(&arguments.packet_bytes, arguments.seconds).map_err(failed)?;
            results.extend(measured.iter().map(veth_json));
        }
    }
    Ok(results)
}

/// The median.
fn middle(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

fn engine_json(result: &EngineResult) -> Value {
    let tenths = |ns: f64| (ns * 10.0).round() / 10.0;
    let stages = &result.stages;
    json!({
        "packet_bytes": result.load.packet_bytes,
        "flows": result.load.flows,
        "trimmed": result.load.trim,
        "runs_as": result.runs_as,
        "packets_per_second": result.packets_per_second.round(),
        "nanoseconds_per_packet": {
            "parse": tenths(stages.parse), "match": tenths(stages.matching),
            "actions": tenths(stages.actions), "deparse": tenths(stages.deparse),
            "tm": tenths(stages.tm), "total": tenths(stages.total),
        },
    })
}

fn veth_json(result: &VethResult) -> Value {
    json!({
        "switch": result.switch,
        "packet_bytes": result.packet_bytes,
        "offered_packets_per_second": result.offered_per_second.round(),
        "packets_per_second": result.packets_per_second.round(),
        "packets_per_cpu_second": result.packets_per_cpu_second.round(),
    })
}

fn steady_json(switch: &str, packet_bytes: usize, steady: &Steady) -> Value {
    let Steady { beside, seconds, sent, lost, late, longest_ms } = steady;
    json!({
        "switch": switch,
        "packet_bytes": packet_bytes,
        "beside": beside,
        "seconds": seconds,
        "packets": sent,
        "lost": lost,
        "over_1_ms": late,
        "longest_ms": longest_ms,
    })
}
