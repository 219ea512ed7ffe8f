//! `trimwire-agent perf`.

pub(crate) mod args;
mod epochs;

use crate::adaptive::{self, Steering, Taken};
use crate::agreement::{Terms, agree};
use crate::args::start;
use crate::meet::Met;
use crate::operation::Operation;
use crate::publish::Publisher;
use crate::report::{Totals, table};
use crate::transcript::{FaultShares, Recorded, ended, hash, notice, over};
use crate::{Failure, bad_input, failed, gradient, print};
use anyhow::anyhow;
use args::{OnFailure, PerfArgs, PushPullArgs, meet};
use serde::Serialize;
use sha2::{Digest, Sha256};
use trimwire_agent::collective::{
    Collective, Communicator, CommunicatorConfig, Memory, Options, Outcome, OutcomeStats, Replicas,
    StartError, shard_range,
};
use trimwire_agent::driver::misbehaving::Misbehaving;
use trimwire_agent::driver::{Driver, Link, default_threads};
use trimwire_agent::serve::{Notice, PushPull};
use trimwire_agent::transcript::{Filter, Filtered, Header, OperationRecord};
use trimwire_encoder::{Decoding, nmse};

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
    /// As nccl-tests defines them: bytes / time, and that times what a link carries of each of them at least; byte/s.
    algbw: f64,
    busbw: f64,
    packets: u64,
    cut_share: f64,
    missing_share: f64,
    repaired: u64,
    nmse: f64,
    /// With a law, its operations in order, those of warm-up included.
    #[serde(skip_serializing_if = "Option::is_none")]
    adaptive: Option<Vec<Taken>>,
    /// Where a transcript is written or replayed: SHA-256 of those of all results, those of warm-up included.
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
    args.way.apply(&Options {
        planes: args.codec.planes,
        exact: args.exact,
        decoding: Decoding::from(args.decoding),
        reliability: Some(args.link.reliability()),
        layer_class: args.codec.layer_class,
        coordinates_per_packet: args.codec.coordinates_per_packet,
        ..Options::default()
    })
}

/// What a transcript says of an operation that has not begun.
fn operation(args: &PerfArgs, number: u32, coordinates: usize) -> OperationRecord {
    OperationRecord::new(number, args.operation.name(), coordinates, &options(args))
}

/// What all ranks have to be told alike.
fn told(args: &PerfArgs, seed: u64) -> Terms {
    let options = options(args);
    let loss = if args.link.reliable { 0.0 } else { args.link.loss };
    let servers = args.servers.iter().fold(0, |set, &server| set ^ 1_u64.rotate_left(server.into()));
    vec![
        ("--seed", seed),
        ("--row-log2", args.codec.row_log2.into()),
        ("the operation's number", args.operation as u64),
        ("-b", args.min_bytes),
        ("-e", args.max_bytes),
        ("-f", args.step_factor),
        ("-n", args.iters.into()),
        ("-w", args.warmup_iters.into()),
        ("--planes", args.codec.planes.into()),
        ("--exact", args.exact.into()),
        ("--consistent", (options.replicas == Replicas::Consistent).into()),
        ("the number of --algorithm", options.algorithm as u64),
        ("--deadline, ns,", options.deadline_ns.unwrap_or(0)),
        ("--root", args.root.into()),
        ("--layer-class", args.codec.layer_class.into()),
        ("--coordinates-per-packet", args.codec.coordinates_per_packet.unwrap_or(0) as u64),
        ("--loss, in millionths,", (f64::from(loss) * 1e6).round() as u64),
        ("the sum of 2^--servers", servers),
        ("a hash of --adaptive", args.adaptive.as_deref().map_or(0, digest)),
    ]
}

/// Tells laws apart.
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
        Steering::new(law, args.codec.planes, 1)?;
        if args.operation == Operation::PushPull {
            return Err(bad_input(anyhow!(
                "--adaptive: servers are told one number of planes; laws work without servers"
            )));
        }
    }
    let Met { rank, world, job, seed, hosts, agreed, mtu, endpoint, link } = meet(args)?;
    if let Some(server) = args.servers.iter().find(|server| **server >= world) {
        return Err(bad_input(anyhow!("--servers {server} of {world} ranks; valid are 0 to {}", world - 1)));
    }
    if args.servers.contains(&rank) {
        return Err(bad_input(anyhow!(
            "rank {rank} is among --servers: `trimwire-agent serve` is what it runs"
        )));
    }
    let mut filter = args.transcript.files().filter(&Header { job, rank, world, seed })?;
    if let Some(replay) = filter.replay() {
        // Before the first packet: a run that cannot be repeated does not begin.
        for (number, coordinates) in args.numbers().zip(args.coordinates()) {
            replay.check_operation(&operation(args, number, coordinates)).map_err(bad_input)?;
        }
    }
    let mut config = CommunicatorConfig {
        job_seed: seed,
        row_log2: args.codec.row_log2,
        hosts,
        ..CommunicatorConfig::new(rank, world)
    };
    if let Some(mtu) = mtu {
        config.mtu = mtu.into();
    }
    match args.transcript.faults {
        None => bench(args, config, start(endpoint, link), filter, agreed),
        Some(FaultShares(faults)) => {
            let trimmed = endpoint.dscp.trimmed;
            let link = Misbehaving::new(link, faults, seed ^ u64::from(rank) << 32, trimmed);
            bench(args, config, start(endpoint, link), filter, agreed)
        }
    }
}

fn bench<L: Link>(
    args: &PerfArgs,
    mut config: CommunicatorConfig,
    mut driver: Driver<L>,
    filter: Filter,
    agreed: bool,
) -> Result<bool, Failure> {
    let (rank, world, seed) = (config.rank, config.world, config.job_seed);
    driver.set_threads(args.threads.unwrap_or_else(default_threads)).map_err(failed)?;
    let mut publisher = Publisher::start(args.link.metrics)?;
    let sums = Sums { args, rank, members: (0..world).collect(), seed };
    let most = args.coordinates().max().unwrap_or(0);
    let (gradient, exact) = sums.of(most);
    // Ranks begin together: what one of them computes is in nobody else's time.
    let mtu = agree(&told(args, seed), &mut driver, &mut publisher)?;
    // Servers know what this has brought about, and not the rest of the rendezvous.
    if !agreed || args.operation == Operation::PushPull {
        config.mtu = mtu.map_or(config.mtu, usize::from);
    }
    let communicator = Communicator::new(config);
    let steering = args.adaptive.as_ref().map(|law| Steering::new(law, args.codec.planes, world));
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
    let Bench { mut driver, filter, epochs, .. } = bench;
    let recorded = filter.finish().and_then(|written| Recorded::new(args.transcript.files(), rank, written));
    let rows = rows?;
    driver.linger(QUIET_NS, LINGER_NS).map_err(failed)?;
    let link = driver.link_stats();
    let totals = Totals::new(driver.endpoint().stats(), link);
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
    communicator: Communicator,
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

    /// Numbers of the operations that are measured, in order. A push-pull comes behind the one that tells servers of it.
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

/// What ranks put in, and what is to come of it.
#[derive(Clone)]
struct Sums<'a> {
    args: &'a PerfArgs,
    /// As it was started.
    rank: u16,
    /// Ranks of this epoch, likewise.
    members: Vec<u16>,
    seed: u64,
}

impl Sums<'_> {
    fn gradient(&self, coordinates: usize, rank: u16) -> Vec<f32> {
        gradient::gaussian(coordinates, self.seed, rank, 0)
    }

    /// This rank's gradient, and what comes of all of them at any rank, exactly; `None` where that depends on how many coordinates are each rank's.
    fn of(&self, coordinates: usize) -> (Vec<f32>, Option<Vec<f32>>) {
        (self.gradient(coordinates, self.rank), self.sum(coordinates))
    }

    fn sum(&self, coordinates: usize) -> Option<Vec<f32>> {
        match self.args.operation {
            Operation::AllGather => None,
            Operation::Broadcast => Some(self.gradient(coordinates, self.args.root)),
            _ => {
                let mut exact = vec![0.0_f32; coordinates];
                for &rank in self.members.iter().filter(|rank| !self.args.servers.contains(rank)) {
                    let part = self.gradient(coordinates, rank);
                    exact.iter_mut().zip(&part).for_each(|(sum, value)| *sum += value);
                }
                Some(exact)
            }
        }
    }

    /// What is gathered.
    fn gathered(&self, coordinates: usize) -> Vec<f32> {
        let world = self.members.len() as u16;
        let shard = |(place, &rank)| {
            let range = shard_range(coordinates, world, place);
            self.gradient(range.end, rank).get(range).map(<[f32]>::to_vec)
        };
        (0..).zip(&self.members).filter_map(shard).flatten().collect()
    }
}

impl<L: Link> Bench<'_, L> {
    /// Which of the tensor is this rank's.
    fn own(&self, coordinates: usize) -> std::ops::Range<usize> {
        let config = self.communicator.config();
        shard_range(coordinates, config.world, config.rank)
    }

    /// What this rank is to have after the operation, exactly; `None` where it is to have nothing.
    fn expected(&mut self, coordinates: usize) -> Result<Option<Vec<f32>>, Failure> {
        let args = self.args;
        let range = match args.operation {
            Operation::ReduceScatter => self.own(coordinates),
            Operation::Reduce if self.sums.rank != args.root => return Ok(None),
            _ => 0..coordinates,
        };
        if let Some(exact) = &self.exact {
            return Ok(exact.get(range).map(<[f32]>::to_vec));
        }
        let sums = self.sums.clone();
        self.meanwhile(|| sums.gathered(coordinates)).map(Some)
    }

    /// Other ranks sum than before.
    fn reckon(&mut self) -> Result<(), Failure> {
        let (sums, most) = (self.sums.clone(), self.gradient.len());
        self.exact = self.meanwhile(|| sums.sum(most))?;
        Ok(())
    }

    /// Computes something on another thread while this one looks after the network: others may not have heard yet that they are done.
    fn meanwhile<R: Send>(&mut self, compute: impl FnOnce() -> R + Send) -> Result<R, Failure> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(compute);
            while !thread.is_finished() {
                let until_ns = self.driver.now_ns().saturating_add(LOOK_NS);
                if let Some(ended) = self.drive(until_ns)? {
                    self.note(&ended)?;
                }
            }
            thread.join().map_err(|_| failed(anyhow!("the thread that works out what is right panicked")))
        })
    }

    fn collective(&self, gradient: &[f32]) -> Collective {
        let args = self.args;
        let own = self.own(gradient.len());
        // A root that has died ends the job before this.
        let root = self.communicator.epoch().place(args.root).unwrap_or(u16::MAX);
        let tensor = Memory::from_vec(gradient.to_vec());
        match args.operation {
            Operation::AllReduce => Collective::AllReduce { tensor },
            Operation::ReduceScatter => Collective::ReduceScatter {
                input: tensor,
                output: Memory::from_vec(vec![0.0_f32; own.len()]),
            },
            Operation::AllGather => Collective::AllGather {
                input: Memory::from_vec(gradient.get(own).unwrap_or_default().to_vec()),
                output: Memory::from_vec(vec![0.0_f32; gradient.len()]),
            },
            Operation::Broadcast => Collective::Broadcast { tensor, root },
            Operation::Reduce => Collective::Reduce { tensor, root },
            Operation::PushPull => {
                let (length, servers) = (tensor.len(), args.servers.clone());
                Collective::PushPull { tensor: Some(tensor), length, servers }
            }
        }
    }

    fn measure(&mut self, bytes: u64) -> Result<Row, Failure> {
        let args = self.args;
        let coordinates = coordinates(bytes);
        let mut results = Sha256::new();
        let mut exact = self.expected(coordinates)?;
        let mut total = OutcomeStats::default();
        let mut error = 0.0;
        let mut durations_ns = Vec::new();
        let (mut cpu, mut cpu_before) = (0.0, cpu_seconds());
        let mut iteration = 0;
        while iteration < args.warmup_iters + args.iters {
            let collective = self.collective(self.gradient.get(..coordinates).unwrap_or_default());
            let Some((outcome, told)) = self.one(collective, coordinates, &mut results)? else {
                self.reckon()?;
                exact = self.expected(coordinates)?;
                cpu_before = cpu_seconds();
                continue;
            };
            iteration += 1;
            if let (Some(steering), Some(told)) = (&mut self.steering, told) {
                let law = steering.law();
                self.publisher.operations().steered(law.law(), law.ratio(), law.planes(), law.pace());
                steering.take(told, None)?;
            }
            if iteration <= args.warmup_iters {
                cpu_before = cpu_seconds();
                continue;
            }
            cpu += cpu_seconds() - cpu_before;
            durations_ns.push(outcome.duration_ns);
            total.packets += outcome.stats.packets;
            total.cut += outcome.stats.cut;
            total.missing += outcome.stats.missing;
            total.repaired += outcome.stats.repaired;
            if let Some((result, exact)) = outcome.into_f32().zip(exact.as_ref()) {
                let err = self.meanwhile(|| nmse(&result, exact))?;
                error += err;
                let taken = self.steering.as_mut().and_then(|steering| steering.taken.last_mut());
                taken.into_iter().for_each(|taken| taken.nmse = Some(err));
            }
            cpu_before = cpu_seconds();
        }
        let iters = f64::from(args.iters);
        let seconds_each = durations_ns.iter().map(|&ns| ns as f64 / 1e9).collect();
        durations_ns.sort_unstable();
        let seconds = durations_ns.iter().sum::<u64>() as f64 / 1e9 / iters;
        // Nearest rank, as nccl-tests' users expect of few samples.
        let quantile = |q: f64| {
            let at =
                ((durations_ns.len() as f64 * q).ceil() as usize).clamp(1, durations_ns.len().max(1)) - 1;
            durations_ns.get(at).map_or(0.0, |&ns| ns as f64 / 1e9)
        };
        let algbw = (coordinates * 4) as f64 / seconds.max(1e-9);
        let share = |count: u64| count as f64 / (total.packets.max(1)) as f64;
        Ok(Row {
            bytes: coordinates as u64 * 4,
            coordinates,
            iters: args.iters,
            planes: if args.exact { 1 } else { args.codec.planes },
            seconds,
            seconds_p50: quantile(0.5),
            seconds_p99: quantile(0.99),
            seconds_each,
            cpu_seconds: cpu / iters,
            algbw,
            busbw: algbw * args.operation.bus_factor(self.sums.members.len() as u16),
            packets: total.packets,
            cut_share: share(total.cut),
            missing_share: share(total.missing),
            repaired: total.repaired,
            nmse: error / iters,
            adaptive: self.steering.as_mut().map(|steering| std::mem::take(&mut steering.taken)),
            sha256: self.filter.is_used().then(|| hash(results)),
        })
    }

    /// One operation, and what ranks have told each other of it; `None` where it failed and the ranks that are left go on without it.
    fn one(
        &mut self,
        collective: Collective,
        coordinates: usize,
        results: &mut Sha256,
    ) -> Result<Option<(Outcome, Option<Outcome>)>, Failure> {
        let options = options(self.args);
        let options = match &self.steering {
            Some(steering) => steering.apply(&options),
            None => options,
        };
        if let Collective::PushPull { length, .. } = &collective {
            self.tell(&Notice::PushPull(PushPull { length: *length, options: options.clone() }))?;
        }
        let number = self.number;
        self.number += 1;
        let now_ns = self.driver.now_ns();
        let shrinks = self.args.on_failure == OnFailure::Shrink;
        let begun = self.communicator.start(now_ns, number, collective, options, self.driver.endpoint());
        match begun {
            // What else keeps an operation from beginning is here, and here to stay.
            Err(error @ (StartError::Epoch { .. } | StartError::Send { .. } | StartError::Expect { .. }))
                if shrinks =>
            {
                return self.recover(&error.to_string()).map(|()| None);
            }
            begun => begun.map_err(failed)?,
        }
        let mut outcome = self.finish(number)?;
        if self.filter.is_used() {
            let now_ns = self.driver.now_ns();
            let record = over(operation(self.args, number, coordinates), now_ns, &outcome, results);
            self.filter.on_operation(now_ns, record).map_err(failed)?;
        }
        let operations = self.publisher.operations();
        match outcome.result {
            Ok(()) => operations.took(self.args.operation.name(), outcome.duration_ns),
            Err(_) => operations.failed(self.args.operation.name()),
        }
        match std::mem::replace(&mut outcome.result, Ok(())) {
            Err(error) if shrinks => return self.recover(&error.to_string()).map(|()| None),
            result => result.map_err(failed)?,
        }
        self.done += 1;
        let idle_ns = if self.ended_ns == 0 { 0 } else { now_ns.saturating_sub(self.ended_ns) };
        let told = self.exchange(&outcome, idle_ns)?;
        self.ended_ns = self.driver.now_ns();
        Ok(Some((outcome, told)))
    }

    /// Has all ranks hear what each counted of an operation, where a law wants to know.
    fn exchange(&mut self, outcome: &Outcome, idle_ns: u64) -> Result<Option<Outcome>, Failure> {
        let Some((collective, options)) =
            self.steering.as_ref().map(|steering| steering.exchange(outcome, idle_ns))
        else {
            return Ok(None);
        };
        let number = self.number;
        self.number += 1;
        let now_ns = self.driver.now_ns();
        let begun = self.communicator.start(now_ns, number, collective, options, self.driver.endpoint());
        begun.map_err(failed)?;
        self.finish(number).map(Some)
    }

    /// Begins to tell servers something.
    fn tell(&mut self, notice: &Notice) -> Result<(), Failure> {
        let Self { args, communicator, driver, number, .. } = self;
        let now_ns = driver.now_ns();
        notice.tell(now_ns, *number, &args.servers, communicator, driver.endpoint()).map_err(failed)?;
        *number += 1;
        Ok(())
    }

    /// Runs until an operation has ended. Others, which tell servers, may end well meanwhile; one that does not is what is wrong with this one.
    fn finish(&mut self, wanted: u32) -> Result<Outcome, Failure> {
        loop {
            let outcome = self.drive(u64::MAX).inspect_err(|_| {
                // The others are told, rather than left to wait.
                let now_ns = self.driver.now_ns();
                self.communicator.cancel(now_ns, wanted, self.driver.endpoint());
                let _ = self.driver.linger(QUIET_NS, LINGER_NS);
            })?;
            let outcome = outcome.ok_or_else(|| failed(anyhow!("operation {wanted} did not end")))?;
            if outcome.number == wanted || outcome.result.is_err() {
                return Ok(outcome);
            }
            self.note(&outcome)?;
        }
    }

    /// Looks after the network until an operation has ended, or that time has come.
    fn drive(&mut self, until_ns: u64) -> Result<Option<Outcome>, Failure> {
        let Self { communicator, driver, publisher, filter, .. } = self;
        let mut filtered = Filtered { application: communicator, filter };
        publisher.run(driver, until_ns, &mut filtered)?.transpose().map_err(failed)
    }

    /// Takes note of an operation that has told servers something.
    fn note(&mut self, outcome: &Outcome) -> Result<(), Failure> {
        let now_ns = self.driver.now_ns();
        self.filter.on_operation(now_ns, ended(notice(outcome), now_ns, outcome)).map_err(failed)?;
        outcome.result.map_err(failed)
    }

    /// Tells servers that nothing more comes.
    fn leave(&mut self) -> Result<(), Failure> {
        if self.args.on_failure == OnFailure::Shrink {
            self.part();
        }
        if self.args.servers.is_empty() {
            return Ok(());
        }
        self.tell(&Notice::Leave)?;
        // Earlier notices may be on their way still, to workers who had no need of them.
        loop {
            let next = self.communicator.active().next();
            let Some(number) = next else { return Ok(()) };
            let outcome = self.finish(number)?;
            self.note(&outcome)?;
        }
    }
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
