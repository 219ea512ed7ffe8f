//! `trimwire-agent all-reduce`.

use crate::args::AllReduceArgs;
use crate::report::{Totals, table};
use crate::{Failure, bad_input, failed, gradient, print};
use anyhow::anyhow;
use serde::Serialize;
use std::net::SocketAddr;
use trimwire_agent::collective::{AllReduce, AllReduceConfig, Outcome, OutcomeStats, Replicas};
use trimwire_agent::driver::{Driver, UdpLink};
use trimwire_encoder::{Codec, Decoding, nmse};

/// What packets are made to fit, bytes.
const MTU: usize = 1_500;
const QUIET_NS: u64 = 300_000_000;
const LINGER_NS: u64 = 10_000_000_000;

/// One size.
#[derive(Debug, Serialize)]
struct Row {
    bytes: u64,
    coordinates: usize,
    iters: u32,
    planes: u8,
    /// Mean, median and 99th percentile, s.
    seconds: f64,
    seconds_p50: f64,
    seconds_p99: f64,
    /// Processor time of this process, s: mean of an all-reduce.
    cpu_seconds: f64,
    /// As nccl-tests defines them: bytes / time, and that times 2(n−1)/n; byte/s.
    algbw: f64,
    busbw: f64,
    packets: u64,
    cut_share: f64,
    missing_share: f64,
    repaired: u64,
    nmse: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    role: &'static str,
    rank: u16,
    world: u16,
    seed: u64,
    rows: Vec<Row>,
    totals: Totals,
}

pub(crate) fn run(args: &AllReduceArgs) -> Result<bool, Failure> {
    let (rank, world) = (args.rank, args.world);
    if rank >= world {
        return Err(bad_input(anyhow!("rank {rank} of {world} ranks; valid are 0 to {}", world - 1)));
    }
    if args.peers.len() != usize::from(world) {
        let got = args.peers.len();
        return Err(bad_input(anyhow!(
            "--peers names {got} addresses for {world} ranks (all ranks, this one included)"
        )));
    }
    if args.min_bytes > args.max_bytes {
        let (b, e) = (args.min_bytes, args.max_bytes);
        return Err(bad_input(anyhow!("-b {b} is larger than -e {e}")));
    }
    let mut peers: std::collections::BTreeMap<u16, SocketAddr> =
        (0..).zip(args.peers.iter().map(|peer| peer.or_port(args.link.port))).collect();
    let own = peers.remove(&rank).ok_or_else(|| bad_input(anyhow!("--peers lacks rank {rank}")))?;
    let mut driver = args.link.driver(rank, world, peers, own, Some((&args.rate, args.rate_law)))?;
    let config = AllReduceConfig {
        job_seed: args.link.seed,
        coordinates_per_packet: args.codec.coordinates_per_packet.unwrap_or_else(|| {
            Codec::Rht.coordinates_per_packet(MTU, args.codec.planes, args.link.seal_key.is_some())
        }),
        row_log2: args.codec.row_log2,
        planes: args.codec.planes,
        decoding: Decoding::from(args.decoding),
        layer_class: args.codec.layer_class,
        replicas: if args.consistent { Replicas::Consistent } else { Replicas::Free },
        ..AllReduceConfig::new(rank, world)
    };
    let mut collective = AllReduce::new(config);
    let mut rows = Vec::new();
    let mut step = 0;
    let mut bytes = args.min_bytes;
    while bytes <= args.max_bytes {
        rows.push(measure(args, bytes, &mut step, &mut collective, &mut driver)?);
        bytes = bytes.saturating_mul(args.step_factor);
    }
    driver.linger(QUIET_NS, LINGER_NS).map_err(failed)?;
    let link = driver.link_stats();
    let totals = Totals::new(driver.endpoint().stats(), link);
    let report = Report { role: "all-reduce", rank, world, seed: args.link.seed, rows, totals };
    if args.link.json {
        print(&serde_json::to_string_pretty(&report).map_err(failed)?)?;
    } else {
        print(&text(&report))?;
    }
    Ok(true)
}

fn measure(
    args: &AllReduceArgs,
    bytes: u64,
    step: &mut u32,
    collective: &mut AllReduce,
    driver: &mut Driver<UdpLink>,
) -> Result<Row, Failure> {
    let coordinates = (bytes as usize / 4).max(1);
    let seed = args.link.seed;
    let gradient = gradient::gaussian(coordinates, seed, args.rank, 0);
    let mut exact = vec![0.0_f32; coordinates];
    for rank in 0..args.world {
        let other;
        let part = if rank == args.rank {
            &gradient
        } else {
            other = gradient::gaussian(coordinates, seed, rank, 0);
            &other
        };
        exact.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
    }
    let mut total = OutcomeStats::default();
    let mut error = 0.0;
    let mut durations_ns = Vec::new();
    let (mut cpu, mut cpu_before) = (0.0, cpu_seconds());
    for iteration in 0..args.warmup_iters + args.iters {
        let outcome = one(*step, gradient.clone(), collective, driver)?;
        *step += 1;
        if iteration < args.warmup_iters {
            cpu_before = cpu_seconds();
            continue;
        }
        cpu += cpu_seconds() - cpu_before;
        error += nmse(&outcome.sum, &exact);
        durations_ns.push(outcome.duration_ns);
        total.packets += outcome.stats.packets;
        total.cut += outcome.stats.cut;
        total.missing += outcome.stats.missing;
        total.repaired += outcome.stats.repaired;
        cpu_before = cpu_seconds();
    }
    let iters = f64::from(args.iters);
    durations_ns.sort_unstable();
    let seconds = durations_ns.iter().sum::<u64>() as f64 / 1e9 / iters;
    // Nearest rank, as nccl-tests' users expect of few samples.
    let quantile = |q: f64| {
        let at = ((durations_ns.len() as f64 * q).ceil() as usize).clamp(1, durations_ns.len().max(1)) - 1;
        durations_ns.get(at).map_or(0.0, |&ns| ns as f64 / 1e9)
    };
    let algbw = (coordinates * 4) as f64 / seconds.max(1e-9);
    let world = f64::from(args.world);
    let share = |count: u64| count as f64 / (total.packets.max(1)) as f64;
    Ok(Row {
        bytes: coordinates as u64 * 4,
        coordinates,
        iters: args.iters,
        planes: args.codec.planes,
        seconds,
        seconds_p50: quantile(0.5),
        seconds_p99: quantile(0.99),
        cpu_seconds: cpu / iters,
        algbw,
        busbw: algbw * 2.0 * (world - 1.0) / world,
        packets: total.packets,
        cut_share: share(total.cut),
        missing_share: share(total.missing),
        repaired: total.repaired,
        nmse: error / iters,
    })
}

/// Processor time that this process has used, s.
fn cpu_seconds() -> f64 {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF);
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    usage.map_or(f64::NAN, |usage| seconds(usage.user_time()) + seconds(usage.system_time()))
}

fn one(
    step: u32,
    gradient: Vec<f32>,
    collective: &mut AllReduce,
    driver: &mut Driver<UdpLink>,
) -> Result<Outcome, Failure> {
    let now_ns = driver.now_ns();
    if let Some(outcome) = collective.start(now_ns, step, gradient, driver.endpoint()).map_err(failed)? {
        return Ok(outcome);
    }
    let outcome = driver.run(u64::MAX, collective).map_err(failed)?;
    let outcome = outcome.ok_or_else(|| failed(anyhow!("step {step} did not end")))?;
    outcome.map(|outcome| *outcome).map_err(failed)
}

fn text(report: &Report) -> String {
    let rows: Vec<Vec<String>> = report
        .rows
        .iter()
        .map(|row| {
            vec![
                row.bytes.to_string(),
                row.coordinates.to_string(),
                "float".to_owned(),
                "sum".to_owned(),
                format!("{:.1}", row.seconds * 1e6),
                format!("{:.3}", row.algbw / 1e9),
                format!("{:.3}", row.busbw / 1e9),
                format!("{:.2}", row.cut_share * 100.0),
                format!("{:.2}", row.missing_share * 100.0),
                row.repaired.to_string(),
                format!("{:.3e}", row.nmse),
            ]
        })
        .collect();
    let headings = [
        "size (B)",
        "count",
        "type",
        "redop",
        "time (us)",
        "algbw (GB/s)",
        "busbw (GB/s)",
        "cut %",
        "missing %",
        "repaired",
        "nmse",
    ];
    format!(
        "# trimwire-agent all-reduce, rank {} of {}\n{}",
        report.rank,
        report.world,
        table(&headings, &rows)
    )
}
