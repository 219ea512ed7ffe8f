// SPDX-License-Identifier: Apache-2.0
//! `trimwire-switch bench`: packets a second of our trimming program with 1,000 routes and 64 queue policies, on one core, and over
//! veth pairs beside another switch.

mod engine;
mod veth;
mod workload;

use anyhow::{Context as _, Result, anyhow, bail};
use clap::Args;
use engine::{EngineResult, Load};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use veth::{Steady, SwitchUnderTest, VethResult};
use workload::{PACKET_BYTES, Program};

/// Measure packets a second with 1,000 routes, 64 queue policies and entries in all other tables.
///
/// Without further options: one core, no sockets, the time of each stage. --veth measures this switch as a process
/// between two veth pairs as well. --against puts another switch in its place, with the same program, tables and
/// frames. With --routes, frames pass steadily, and how long the switch had them is told. These need root, and run in a
/// network namespace of their own.
#[derive(Debug, Args)]
pub(crate) struct BenchArguments {
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Measure each frame length and each switch for this many seconds.
    #[arg(long, value_name = "S", default_value_t = 4.0, value_parser = seconds)]
    seconds: f64,
    /// Lengths of frames in bytes.
    #[arg(long, value_name = "BYTES", value_delimiter = ',', default_values_t = PACKET_BYTES,
        value_parser = length)]
    packet_bytes: Vec<usize>,
    /// Numbers of flows that the frames belong to, in turn.
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [256], value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    flows: Vec<u32>,
    /// Trim every packet that may be trimmed, as behind a full queue.
    #[arg(long)]
    trim: bool,
    /// Carry instructions out one by one on one core, though there may be machine code.
    #[arg(long)]
    interpret: bool,
    /// Pass this many packets of each length and number of flows on one core, without a clock, for counting instructions.
    #[arg(long, value_name = "N")]
    packets: Option<usize>,
    /// Program with our tables, p4c's BMv2 JSON [default: the committed one].
    #[arg(long, value_name = "FILE", requires = "p4info")]
    program: Option<PathBuf>,
    /// P4Info of the program, as text.
    #[arg(long, value_name = "FILE", requires = "program")]
    p4info: Option<PathBuf>,
    /// Measure over veth pairs as well.
    #[arg(long)]
    veth: bool,
    /// Measure another switch over veth pairs, such as simple_switch_grpc.
    #[arg(long, value_name = "BINARY")]
    against: Option<PathBuf>,
    /// Send a frame each 100 µs over veth pairs, beside nothing, beside a busy thread, and while so many routes are
    /// written, in place of as many frames as pass.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    routes: Option<u32>,
    /// Measure over four veth pairs how fast so many threads send what waits at all of them, nobody else being busy, in place of as
    /// many frames as pass.
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=64),
        conflicts_with_all = ["routes", "against"])]
    threads: Vec<u16>,
    /// This process is in a namespace of its own.
    #[arg(long, hide = true)]
    inside: bool,
}

fn length(text: &str) -> Result<usize, String> {
    let length = text.parse().ok().filter(|length| (60..=9_000).contains(length));
    length.ok_or_else(|| format!("'{text}': expected 60 to 9000 bytes"))
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=600.0).contains(seconds));
    seconds.ok_or_else(|| format!("'{text}': expected 0.1 to 600 seconds"))
}

/// Measures and gives what goes to stdout.
pub(crate) fn run(arguments: &BenchArguments) -> Result<String> {
    let program = program(arguments)?;
    if arguments.inside {
        return inside(arguments, &program);
    }
    let mut results = Vec::new();
    let only_veth = arguments.routes.is_some() || !arguments.threads.is_empty();
    let lengths = if only_veth { &[][..] } else { &arguments.packet_bytes };
    for &packet_bytes in lengths {
        for &flows in &arguments.flows {
            let load = Load { packet_bytes, flows, trim: arguments.trim, interpret: arguments.interpret };
            if let Some(packets) = arguments.packets {
                engine::pass(&program, load, packets).map_err(|error| anyhow!(error))?;
                continue;
            }
            let measured = engine::measure(&program, load, arguments.seconds);
            results.push(measured.map_err(|error| anyhow!(error))?);
        }
    }
    if arguments.packets.is_some() {
        return Ok(String::new());
    }
    let veth = arguments.veth || arguments.against.is_some() || only_veth;
    let veth = if veth { namespace()? } else { Value::Null };
    let veth = veth["veth"].as_array().cloned().unwrap_or_default();
    Ok(match (arguments.json, arguments.routes) {
        (true, _) => document(&results, &veth),
        (false, Some(routes)) => gaps(&veth, routes),
        (false, None) if !arguments.threads.is_empty() => bursts(&veth),
        (false, None) => table(&results, &veth),
    })
}

fn program(arguments: &BenchArguments) -> Result<Program> {
    let (Some(json), Some(p4info)) = (&arguments.program, &arguments.p4info) else {
        return Ok(Program::default());
    };
    let reading = |path: &PathBuf| format!("cannot read '{}'", path.display());
    Ok(Program {
        json: std::fs::read(json).with_context(|| reading(json))?,
        p4info: std::fs::read_to_string(p4info).with_context(|| reading(p4info))?,
    })
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

fn inside(arguments: &BenchArguments, program: &Program) -> Result<String> {
    let own = SwitchUnderTest { name: "trimwire-switch".to_owned(), binary: std::env::current_exe()? };
    let other = arguments.against.as_ref().map(|binary| SwitchUnderTest {
        name: binary.file_name().unwrap_or(binary.as_os_str()).to_string_lossy().into_owned(),
        binary: binary.clone(),
    });
    let mut results = Vec::new();
    for &threads in &arguments.threads {
        let bench = veth::start(&own, program, 1..5, threads).map_err(|error| anyhow!(error))?;
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
        return Ok(json!({ "veth": results }).to_string());
    }
    for switch in std::iter::once(own).chain(other) {
        let failed = |error| anyhow!("{}: {error}", switch.name);
        let start = || veth::start(&switch, program, 0..2, 1).map_err(failed);
        if let Some(routes) = arguments.routes {
            for &length in &arguments.packet_bytes {
                let bench = start()?;
                let measured = bench.steady(program, length, routes).map_err(failed)?;
                results.extend(measured.iter().map(|steady| steady_json(&switch.name, length, steady)));
            }
        } else {
            let measured = start()?.rates(&arguments.packet_bytes, arguments.seconds).map_err(failed)?;
            results.extend(measured.iter().map(veth_json));
        }
    }
    Ok(json!({ "veth": results }).to_string())
}

/// The median.
fn middle(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

fn bursts(veth: &[Value]) -> String {
    use std::fmt::Write as _;
    let mut text = String::from("veth pairs            bytes  threads  bursts  packets/s\n");
    for row in veth {
        let number = |key: &str| row[key].as_f64().unwrap_or_default();
        let _ = writeln!(
            text,
            "{:<20} {:>6} {:>8} {:>7} {:>10}",
            row["switch"].as_str().unwrap_or_default(),
            number("packet_bytes"),
            number("threads"),
            number("bursts"),
            number("packets_per_second"),
        );
    }
    text
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

fn gaps(veth: &[Value], routes: u32) -> String {
    use std::fmt::Write as _;
    let mut text = format!(
        "a frame each 100 µs, {routes} routes\nveth pairs            bytes  beside           seconds   packets   lost  over 1 ms  longest (ms)\n"
    );
    for row in veth {
        let number = |key: &str| row[key].as_f64().unwrap_or_default();
        let word = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
        let _ = writeln!(
            text,
            "{:<20} {:>6}  {:<14} {:>9.1} {:>9.0} {:>6.0} {:>10.0} {:>13.2}",
            word("switch"),
            number("packet_bytes"),
            word("beside"),
            number("seconds"),
            number("packets"),
            number("lost"),
            number("over_1_ms"),
            number("longest_ms"),
        );
    }
    text
}

fn document(results: &[EngineResult], veth: &[Value]) -> String {
    let tenths = |ns: f64| (ns * 10.0).round() / 10.0;
    let results: Vec<_> = results
        .iter()
        .map(|result| {
            let stages = &result.stages;
            json!({
                "packet_bytes": result.load.packet_bytes,
                "flows": result.load.flows,
                "trimmed": result.load.trim,
                "interpreted": result.load.interpret,
                "packets_per_second": result.packets_per_second.round(),
                "nanoseconds_per_packet": {
                    "parse": tenths(stages.parse), "match": tenths(stages.matching),
                    "actions": tenths(stages.actions), "deparse": tenths(stages.deparse),
                    "tm": tenths(stages.tm), "total": tenths(stages.total),
                },
            })
        })
        .collect();
    format!("{:#}\n", json!({ "results": results, "veth": veth }))
}

fn table(results: &[EngineResult], veth: &[Value]) -> String {
    use std::fmt::Write as _;
    let mut text = String::from(
        "one core   flows     packets/s    parse   match actions deparse      tm   total (ns)\n",
    );
    for EngineResult { load: Load { packet_bytes, flows, .. }, packets_per_second, stages } in results {
        let _ = writeln!(
            text,
            "{packet_bytes:>6} B {flows:>7} {packets_per_second:>13.0} {:>8.0}{:>8.0}{:>8.0}{:>8.0}{:>8.0}{:>8.0}",
            stages.parse, stages.matching, stages.actions, stages.deparse, stages.tm, stages.total
        );
    }
    if !veth.is_empty() {
        text.push_str("\nveth pairs            bytes    offered/s  packets/s   per CPU second\n");
    }
    for result in veth {
        let number = |key: &str| result[key].as_f64().unwrap_or_default();
        let _ = writeln!(
            text,
            "{:<20} {:>6} {:>12.0} {:>10.0} {:>16.0}",
            result["switch"].as_str().unwrap_or_default(),
            number("packet_bytes"),
            number("offered_packets_per_second"),
            number("packets_per_second"),
            number("packets_per_cpu_second"),
        );
    }
    text
}
