// SPDX-License-Identifier: Apache-2.0
//! `trimwire-agent perf`.

pub(crate) mod args;
mod bench;
mod epochs;
mod sums;

use crate::adaptive::{self, Steering, Taken};
use crate::agreement::{Terms, agree, of_servers};
use crate::args::start;
use crate::meet::Met;
use crate::operation::Operation;
use crate::publish::Publisher;
use crate::report::{Totals, table};
use crate::transcript::{FaultShares, Recorded};
use crate::{Failure, bad_input, failed, print};
use anyhow::anyhow;
use args::{OnFailure, PerfArgs, PushPullArgs, meet};
use serde::Serialize;
use sha2::{Digest, Sha256};
use sums::Sums;
use trimwire_agent::collective::{CommunicatorConfig, Options, Replicas};
use trimwire_agent::driver::channels::split;
use trimwire_agent::driver::misbehaving::Misbehaving;
use trimwire_agent::driver::{Channels, Driver, Link};
use trimwire_agent::endpoint::EndpointConfig;
use trimwire_agent::transcript::{Filter, Header, OperationRecord};

const QUIET_NS: u64 = 300_000_000;
const LINGER_NS: u64 = 10_000_000_000;
/// While something is computed it is looked so often whether that is done.
const LOOK_NS: u64 = 200_000;
/// Number of the first operation that is measured: 0 is the ranks' agreement.
const FIRST: u32 = 1;

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
    /// Of each operation, in order: a step waits for its slowest rank.
    seconds_each: Vec<f64>,
    /// Processor time of this process, s: mean of an operation.
    cpu_seconds: f64,
    /// As nccl-tests defines them: bytes / time, and that times what a link carries of each of them
    /// at least; byte/s.
    algbw: f64,
    busbw: f64,
    packets: u64,
    trimmed_share: f64,
    missing_share: f64,
    repaired: u64,
    nmse: f64,
    /// With an algorithm, its operations in order, those of warm-up included.
    #[serde(skip_serializing_if = "Option::is_none")]
    adaptive: Option<Vec<Taken>>,
    /// Where a transcript is written or replayed: SHA-256 of those of all results, those of warm-up
    /// included.
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
}

#[derive(Debug, Serialize)]
struct Report {
    role: &'static str,
    rank: u16,
    world: u16,
    seed: u64,
    #[serde(skip)]
    redop: &'static str,
    rows: Vec<Row>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    epochs: Vec<epochs::Begun>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded: Option<Recorded>,
    totals: Totals,
}

pub(crate) fn run(operation: Operation, args: PerfArgs) -> Result<bool, Failure> {
    measure(&PerfArgs { operation, ..args })
}

pub(crate) fn push_pull(args: PushPullArgs) -> Result<bool, Failure> {
    let PushPullArgs { servers, perf } = args;
    measure(&PerfArgs { operation: Operation::PushPull, servers, ..perf })
}

/// How each operation is done.
fn options(args: &PerfArgs) -> Options {
    let settings = args.link.settings();
    args.way.apply(&Options {
        planes: args.planes,
        exact: args.exact,
        decoding: settings.decoding,
        reliability: Some(args.link.reliability()),
        layer_class: settings.layer_class,
        coordinates_per_packet: settings.coordinates_per_packet,
        ..Options::default()
    })
}

/// What a transcript says of an operation that has not begun.
fn operation(args: &PerfArgs, number: u32, coordinates: usize) -> OperationRecord {
    OperationRecord::new(number, args.operation.name(), coordinates, &options(args))
}

/// What all ranks have to be told alike.
fn told(args: &PerfArgs, seed: u64, channels: usize) -> Terms {
    let options = options(args);
    let loss = if args.link.reliable { 0.0 } else { args.link.loss };
    vec![
        ("--seed", seed),
        ("row-log2", args.link.settings().row_log2.into()),
        ("the operation's number", args.operation as u64),
        ("the sum of 2^--servers", of_servers(&args.servers)),
        ("-b", args.min_bytes),
        ("-e", args.max_bytes),
        ("-f", args.step_factor),
        ("-n", args.iters.into()),
        ("-w", args.warmup_iters.into()),
        ("--planes", args.planes.into()),
        ("--exact", args.exact.into()),
        ("--consistent", (options.replicas == Replicas::Consistent).into()),
        ("the number of --algorithm", options.algorithm as u64),
        ("--deadline, ns,", options.deadline_ns.unwrap_or(0)),
        ("--root", args.root.into()),
        ("layer-class", options.layer_class.into()),
        ("coordinates-per-packet", options.coordinates_per_packet.unwrap_or(0) as u64),
        ("--loss, in millionths,", (f64::from(loss) * 1e6).round() as u64),
        ("--channels", channels as u64),
        ("a hash of --adaptive", args.adaptive.as_deref().map_or(0, digest)),
    ]
}

/// Tells algorithms apart.
fn digest(text: &str) -> u64 {
    let hash = Sha256::digest(text.as_bytes());
    hash.iter().take(8).fold(0, |digest, byte| digest << 8 | u64::from(*byte))
}

fn measure(args: &PerfArgs) -> Result<bool, Failure> {
    if args.min_bytes > args.max_bytes {
        let (b, e) = (args.min_bytes, args.max_bytes);
        return Err(bad_input(anyhow!("-b {b} is larger than -e {e}")));
    }
    if args.on_failure == OnFailure::Shrink && args.operation == Operation::PushPull {
        return Err(bad_input(anyhow!(
            "--on-failure shrink: workers of servers start anew, and servers wait for them"
        )));
    }
    if let Some(law) = &args.adaptive {
        // Before anybody is waited for.
        Steering::new(law, args.planes, 1)?;
        if args.operation == Operation::PushPull {
            return Err(bad_input(anyhow!(
                "--adaptive: servers are told one number of planes; algorithms work without servers"
            )));
        }
    }
    if let Some(channels) = args.channels.filter(|&channels| channels > 1)
        && args.operation == Operation::PushPull
    {
        return Err(bad_input(anyhow!("--channels {channels}: servers have one channel")));
    }
    let Met { rank, world, job, seed, hosts, agreed, mtu, endpoint, links } = meet(args)?;
    let endpoints = split(&endpoint, links.len() as u16).map_err(bad_input)?;
    let channels = endpoints.into_iter().zip(links);
    if let Some(server) = args.servers.iter().find(|server| **server >= world) {
        return Err(bad_input(anyhow!("--servers {server} of {world} ranks; valid are 0 to {}", world - 1)));
    }
    if args.servers.contains(&rank) {
        return Err(bad_input(anyhow!(
            "rank {rank} is among --servers: `trimwire-agent serve` is what it runs"
        )));
    }
    let filter = args.transcript.files(1).filter(&Header { job, rank, world, seed })?;
    // Before the first packet: a run that cannot be repeated does not begin.
    let repeats = filter.with_replay(|replay| {
        let mut operations = args.numbers().zip(args.coordinates());
        operations.try_for_each(|(number, coordinates)| {
            replay.check_operation(&operation(args, number, coordinates))
        })
    });
    repeats.transpose().map_err(bad_input)?;
    let mut config = CommunicatorConfig {
        job_seed: seed,
        row_log2: args.link.settings().row_log2,
        hosts,
        ..CommunicatorConfig::new(rank, world)
    };
    if let Some(mtu) = mtu {
        config.mtu = mtu.into();
    }
    match args.link.settings().faults {
        None => bench(args, config, channels.collect(), filter, agreed),
        Some(FaultShares(faults)) => {
            let faulty = (0_u64..).zip(channels).map(|(channel, (endpoint, link))| {
                let seed = seed ^ u64::from(rank) << 32 ^ channel << 48;
                let link = Misbehaving::new(link, faults, seed, endpoint.dscp.trimmed);
                (endpoint, link)
            });
            bench(args, config, faulty.collect(), filter, agreed)
        }
    }
}

fn bench<L: Link + Send + 'static>(
    args: &PerfArgs,
    mut config: CommunicatorConfig,
    channels: Vec<(EndpointConfig, L)>,
    filter: Filter,
    agreed: bool,
) -> Result<bool, Failure> {
    let (rank, world, seed) = (config.rank, config.world, config.job_seed);
    let (count, mut channels) = (channels.len(), channels.into_iter());
    let (endpoint, link) = channels.next().ok_or_else(|| failed(anyhow!("no link")))?;
    let mut driver = start(endpoint, link);
    let mut publisher = Publisher::start(args.link.metrics)?;
    let sums = Sums { args, rank, members: (0..world).collect(), seed };
    let most = args.coordinates().max().unwrap_or(0);
    let (gradient, exact) = sums.of(most);
    // Ranks begin together: what one of them computes is in nobody else's time.
    let mtu = agree(&told(args, seed, count), &mut driver, &mut publisher)?;
    // Servers know what this has brought about, and not the rest of the rendezvous.
    if !agreed || args.operation == Operation::PushPull {
        config.mtu = mtu.map_or(config.mtu, usize::from);
    }
    // Not before the ranks have found that they have as many channels.
    let communicator =
        Channels::begin(&config, &mut driver, channels.collect(), &filter, None).map_err(failed)?;
    publisher.add(communicator.counts());
    let steering = args.adaptive.as_ref().map(|law| Steering::new(law, args.planes, world));
    let steering = steering.transpose()?;
    let mut bench = Bench {
        args,
        sums,
        gradient,
        exact,
        communicator,
        driver,
        publisher,
        filter,
        steering,
        ended_ns: 0,
        number: FIRST,
        done: 0,
        epochs: Vec::new(),
    };
    let rows: Result<Vec<Row>, Failure> = args.sizes().map(|bytes| bench.measure(bytes)).collect();
    let rows = rows.and_then(|rows| bench.leave().map(|()| rows));
    let Bench { mut driver, mut communicator, filter, epochs, .. } = bench;
    let recorded = filter.finish().and_then(|written| Recorded::new(args.transcript.files(1), rank, written));
    let rows = rows?;
    communicator.stop();
    driver.linger(QUIET_NS, LINGER_NS).map_err(failed)?;
    communicator.wait();
    let (mut told, mut link) = (driver.endpoint().snapshot(), driver.link_stats());
    communicator.counts().add(&mut told, &mut link);
    let totals = Totals::new(&told.totals, link);
    let report = Report {
        role: args.operation.name(),
        redop: args.operation.reduction(),
        rank,
        world,
        seed,
        rows,
        epochs,
        recorded,
        totals,
    };
    if args.link.json {
        print(&serde_json::to_string_pretty(&report).map_err(failed)?)?;
    } else {
        print(&text(&report))?;
    }
    Ok(true)
}

struct Bench<'a, L> {
    args: &'a PerfArgs,
    sums: Sums<'a>,
    /// This rank's part of the largest size, and what comes of it: shorter ones are its beginning.
    gradient: Vec<f32>,
    exact: Option<Vec<f32>>,
    communicator: Channels,
    driver: Driver<L>,
    publisher: Publisher,
    filter: Filter,
    steering: Option<Steering>,
    /// When the ranks had told each other of the operation before this one; 0 before the first.
    ended_ns: u64,
    number: u32,
    /// Operations that have ended well here.
    done: usize,
    epochs: Vec<epochs::Begun>,
}

impl PerfArgs {
    /// Bytes of each size.
    fn sizes(&self) -> impl Iterator<Item = u64> {
        let next = |bytes: &u64| bytes.checked_mul(self.step_factor);
        std::iter::successors(Some(self.min_bytes), next).take_while(|&bytes| bytes <= self.max_bytes)
    }

    /// Numbers of the operations that are measured, in order. A push-pull comes behind the one that
    /// tells servers of it.
    fn numbers(&self) -> impl Iterator<Item = u32> {
        let (first, step) = if self.operation == Operation::PushPull { (FIRST + 1, 2) } else { (FIRST, 1) };
        (first..).step_by(step)
    }

    /// Coordinates of each operation, in order.
    fn coordinates(&self) -> impl Iterator<Item = usize> {
        let times = self.warmup_iters as usize + self.iters as usize;
        self.sizes().flat_map(move |bytes| std::iter::repeat_n(coordinates(bytes), times))
    }
}

fn coordinates(bytes: u64) -> usize {
    (bytes as usize / 4).max(1)
}

/// Processor time that this process has used, s.
fn cpu_seconds() -> f64 {
    let usage = nix::sys::resource::getrusage(nix::sys::resource::UsageWho::RUSAGE_SELF);
    let seconds = |time: nix::sys::time::TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    usage.map_or(f64::NAN, |usage| seconds(usage.user_time()) + seconds(usage.system_time()))
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
                report.redop.to_owned(),
                format!("{:.1}", row.seconds * 1e6),
                format!("{:.3}", row.algbw / 1e9),
                format!("{:.3}", row.busbw / 1e9),
                format!("{:.2}", row.trimmed_share * 100.0),
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
        "trimmed %",
        "missing %",
        "repaired",
        "nmse",
    ];
    let title = format!("# trimwire-agent perf {}, rank {} of {}", report.role, report.rank, report.world);
    let mut lines = vec![title, table(&headings, &rows)];
    for Row { bytes, sha256, .. } in &report.rows {
        lines.extend(sha256.iter().map(|sha256| format!("# {bytes} B: SHA-256 of all results {sha256}")));
    }
    for Row { bytes, adaptive, .. } in &report.rows {
        let said = adaptive.as_ref().and_then(|taken| adaptive::text(taken));
        lines.extend(said.map(|said| format!("# {bytes} B: {said}")));
    }
    lines.extend(report.epochs.iter().map(epochs::Begun::text));
    lines.extend(report.recorded.as_ref().map(Recorded::text));
    lines.join("\n")
}
