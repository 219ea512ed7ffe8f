// SPDX-License-Identifier: Apache-2.0
//! `trimwire-agent serve`: a parameter server.

use crate::agreement;
use crate::args::{LinkArgs, start};
use crate::meet::{Caller, Met, RendezvousArgs};
use crate::operation::Operation;
use crate::publish::Publisher;
use crate::report::Totals;
use crate::settings::RateAlgorithm;
use crate::transcript::{FaultShares, Files, Recorded, TranscriptArgs, ended, notice, served};
use crate::units::bytes_text;
use crate::{Failure, bad_input, failed, print};
use anyhow::anyhow;
use clap::Args;
use nix::sys::signal::{SigSet, Signal};
use serde::Serialize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use trimwire_agent::collective::{Communicator, CommunicatorConfig, Done, Outcome, Task};
use trimwire_agent::driver::misbehaving::Misbehaving;
use trimwire_agent::driver::{Application, Driver, Link, UdpLink, Wake};
use trimwire_agent::endpoint::{Endpoint, EndpointConfig, Event};
use trimwire_agent::serve::{Server, lowest_worker};
use trimwire_agent::transcript::{Filter, Filtered, Header};

const QUIET_NS: u64 = 300_000_000;
const LINGER_NS: u64 = 10_000_000_000;
/// A server waits for its workers, who write checkpoints, for as long as they are alive.
const IDLE_NS: u64 = 30 * 86_400 * 1_000_000_000;

#[derive(Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    rendezvous: RendezvousArgs,
    /// Ranks of the servers, the same on all ranks.
    #[arg(long, value_delimiter = ',', required = true, value_name = "RANK,…")]
    servers: Vec<u16>,
    #[command(flatten)]
    link: LinkArgs,
    #[command(flatten)]
    transcript: TranscriptArgs,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    role: &'static str,
    rank: u16,
    /// Push-pulls served.
    operations: u64,
    /// Packets received of them.
    packets: u64,
    trimmed: u64,
    missing: u64,
    /// Jobs that ended because a rank died, in words.
    failures: Vec<String>,
    /// A transcript for each job, where they are written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    recorded: Vec<Recorded>,
    totals: Option<Totals>,
}

/// Ends the server from outside.
#[derive(Debug, Default)]
struct Stop {
    asked: AtomicBool,
    wake: Mutex<Option<Arc<Wake>>>,
}

impl Stop {
    /// SIGTERM and SIGINT ask for it from now on. Before other threads are made, which inherit the
    /// mask.
    fn on_signals() -> Result<Arc<Self>, Failure> {
        let stop = Arc::new(Self::default());
        let signals: SigSet = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
        signals.thread_block().map_err(failed)?;
        let asked = Arc::clone(&stop);
        let wait = move || {
            let _ = signals.wait();
            asked.asked.store(true, Ordering::SeqCst);
            if let Some(wake) = &*asked.wake.lock().unwrap_or_else(PoisonError::into_inner) {
                wake.wake();
            }
        };
        std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map_err(failed)?;
        Ok(stop)
    }
}

/// A communicator until somebody asks the process to stop.
struct UntilStopped<'a> {
    communicator: &'a mut Communicator,
    stop: &'a Stop,
}

impl Application<Option<Outcome>> for UntilStopped<'_> {
    fn on_event(
        &mut self,
        now_ns: u64,
        event: Event,
        endpoint: &mut Endpoint,
    ) -> ControlFlow<Option<Outcome>> {
        self.communicator.handle_event(now_ns, event, endpoint);
        ControlFlow::Continue(())
    }

    fn poll_task(&mut self, endpoint: &Endpoint) -> Option<Task> {
        self.communicator.poll_task(endpoint)
    }

    fn complete(&mut self, now_ns: u64, done: Done, endpoint: &mut Endpoint) {
        self.communicator.complete(now_ns, done, endpoint);
    }

    fn poll(&mut self, now_ns: u64, endpoint: &mut Endpoint) -> ControlFlow<Option<Outcome>> {
        if self.stop.asked.load(Ordering::SeqCst) {
            return ControlFlow::Break(None);
        }
        let outcome = self.communicator.poll_outcome(now_ns, endpoint);
        outcome.map_or(ControlFlow::Continue(()), |outcome| ControlFlow::Break(Some(outcome)))
    }
}

/// How a job ended at the server.
enum End {
    /// The workers have left.
    Left,
    Stopped,
    /// A rank died, or said what cannot be served.
    Failed(String),
}

pub(crate) fn run(args: &ServeArgs) -> Result<bool, Failure> {
    let stop = Stop::on_signals()?;
    let publisher = Publisher::start(args.link.metrics)?;
    let report = Report { role: "serve", ..Report::default() };
    let mut serving = Serving { args, publisher, stop: &stop, report };
    let mut jobs = 1..;
    let end = loop {
        // Another incarnation for each job: nothing of the one before gets into it.
        let files = args.transcript.files(jobs.next().unwrap_or(u32::MAX));
        let end = serving.job(files)?;
        match end {
            End::Failed(why) => {
                let repeats = files.replays();
                eprintln!(
                    "error: {why}{}",
                    if repeats { "" } else { "; waits for the workers to start anew" }
                );
                serving.report.failures.push(why);
                if repeats {
                    break End::Stopped;
                }
            }
            End::Left | End::Stopped => break end,
        }
    };
    let report = serving.report;
    if args.link.json {
        print(&serde_json::to_string_pretty(&report).map_err(failed)?)?;
    } else {
        print(&text(&report, &end))?;
    }
    Ok(report.failures.is_empty())
}

fn text(report: &Report, end: &End) -> String {
    let how = if matches!(end, End::Left) { "the workers have left" } else { "stopped" };
    let bytes = bytes_text(report.totals.as_ref().map_or(0, |totals| totals.payload_bytes_received));
    let Report { operations, packets, trimmed, missing, .. } = report;
    let served = format!(
        "{how}: {operations} operations served, {packets} packets ({bytes}), {trimmed} trimmed, {missing} missing"
    );
    let recorded = report.recorded.iter().map(Recorded::text);
    std::iter::once(served).chain(recorded).collect::<Vec<_>>().join("\n")
}

/// A server that knows where the others are.
struct Begun {
    rank: u16,
    world: u16,
    job: u8,
    endpoint: EndpointConfig,
    link: UdpLink,
    /// `None`: the lowest worker tells.
    agreed_seed: Option<u64>,
}

fn begin(args: &ServeArgs, files: Files<'_>) -> Result<Begun, Failure> {
    let link = LinkArgs { idle_timeout: Some(IDLE_NS), ..args.link.clone() };
    let repeats = |rank| Ok(files.repeated(rank)?.map(|header| (header.job, header.seed)));
    let Met { rank, world, job, seed, agreed, endpoint, links, .. } = Caller {
        channels: Some(1),
        by_cores: false,
        rendezvous: &args.rendezvous,
        link: &link,
        usual_rate: RateAlgorithm::Dctcp,
        root: 0,
        repeats: &repeats,
    }
    .meet()?;
    if !args.servers.contains(&rank) {
        return Err(bad_input(anyhow!("rank {rank} serves, but is not among --servers {:?}", args.servers)));
    }
    if lowest_worker(world, &args.servers).is_none() {
        return Err(bad_input(anyhow!("--servers names all of {world} ranks; who works?")));
    }
    // Where addresses are written out nobody has asked for what is repeated.
    repeats(rank)?;
    files.check_writable(rank)?;
    let link = links.into_iter().next().ok_or_else(|| failed(anyhow!("no link")))?;
    Ok(Begun { rank, world, job, endpoint, link, agreed_seed: agreed.then_some(seed) })
}

/// What one job has of the process.
struct Serving<'a> {
    args: &'a ServeArgs,
    publisher: Publisher,
    stop: &'a Stop,
    report: Report,
}

impl Serving<'_> {
    /// One job, from the rendezvous on.
    fn job(&mut self, files: Files<'_>) -> Result<End, Failure> {
        let Begun { rank, world, job, endpoint, link, agreed_seed } = begin(self.args, files)?;
        let header = Header { job, rank, world, seed: agreed_seed.unwrap_or(0) };
        match self.args.link.settings().faults {
            None => self.drive(start(endpoint, link), header, agreed_seed, files),
            Some(FaultShares(faults)) => {
                let trimmed = endpoint.dscp.trimmed;
                let link = Misbehaving::new(link, faults, u64::from(rank) << 32, trimmed);
                self.drive(start(endpoint, link), header, agreed_seed, files)
            }
        }
    }

    fn drive<L: Link>(
        &mut self,
        mut driver: Driver<L>,
        header: Header,
        agreed_seed: Option<u64>,
        files: Files<'_>,
    ) -> Result<End, Failure> {
        self.report.rank = header.rank;
        let wake = driver.wake().map_err(failed)?;
        *self.stop.wake.lock().unwrap_or_else(PoisonError::into_inner) = Some(wake);
        let mut filter = Filter::default();
        let end = self.serve(&mut driver, header, agreed_seed, files, &mut filter);
        let written = filter.finish().and_then(|written| Recorded::new(files, header.rank, written));
        self.report.recorded.extend(written);
        self.publisher.publish(&mut driver);
        // Also where it cannot go on: the others are told, rather than left to wait.
        let lingered = driver.linger(QUIET_NS, LINGER_NS).map_err(failed);
        let link = driver.link_stats();
        self.report.totals = Some(Totals::new(driver.endpoint().stats(), link));
        // What ended the job says more than what came after it.
        end.and_then(|end| lingered.map(|()| end))
    }

    /// From when the workers come to when they leave.
    fn serve<L: Link>(
        &mut self,
        driver: &mut Driver<L>,
        header: Header,
        agreed_seed: Option<u64>,
        files: Files<'_>,
        filter: &mut Filter,
    ) -> Result<End, Failure> {
        let Self { args, publisher, stop, report } = self;
        let mut meeting = agreement::Exchange::start(None, driver)?;
        let communicator = meeting.communicator();
        let met = publisher.run(driver, u64::MAX, &mut UntilStopped { communicator, stop })?;
        let Some(Some(outcome)) = met else { return Ok(End::Stopped) };
        let told = match agreement::Exchange::told(outcome) {
            Ok(told) => told,
            Err(error) => return Ok(End::Failed(error.to_string())),
        };
        let Header { rank, world, .. } = header;
        let root = lowest_worker(world, &args.servers).unwrap_or(0);
        let terms = told.terms.get(usize::from(root)).cloned().flatten().unwrap_or_default();
        let term = |at: usize| terms.get(at).copied().unwrap_or(0);
        let (operation, servers) = (term(agreement::OPERATION), term(agreement::SERVERS));
        if operation != Operation::PushPull as u64 || servers != agreement::of_servers(&args.servers) {
            return Ok(End::Failed(format!(
                "rank {root} does not push and pull with --servers {:?}",
                args.servers
            )));
        }
        let seed = agreed_seed.unwrap_or(term(agreement::SEED));
        let config = CommunicatorConfig {
            job_seed: seed,
            row_log2: term(agreement::ROW_LOG2).min(u64::from(u8::MAX)) as u8,
            ..CommunicatorConfig::new(rank, world)
        };
        let mtu = told.mtu.map_or(config.mtu, usize::from);
        let config = CommunicatorConfig { mtu, ..config };
        let mut communicator = Communicator::new(config);
        let now_ns = driver.now_ns();
        let servers = args.servers.clone();
        let begun = Server::begin(now_ns, 1, servers, &mut communicator, driver.endpoint());
        let mut server = match begun {
            Ok(server) => server,
            Err(error) => return Ok(End::Failed(error.to_string())),
        };
        // Only now that the seed is known.
        match files.filter(&Header { seed, ..header }) {
            Ok(opened) => *filter = opened,
            Err(error) => {
                cancel(&mut communicator, driver);
                return Err(error);
            }
        }
        while !server.is_done() {
            let mut application = UntilStopped { communicator: &mut communicator, stop };
            let mut filtered = Filtered { application: &mut application, filter };
            let ended = publisher.run(driver, u64::MAX, &mut filtered)?;
            let outcome = match ended {
                Some(Ok(Some(outcome))) => outcome,
                Some(Err(error)) => {
                    cancel(&mut communicator, driver);
                    return Ok(End::Failed(error.to_string()));
                }
                Some(Ok(None)) | None => {
                    cancel(&mut communicator, driver);
                    return Ok(End::Stopped);
                }
            };
            match take(outcome, &mut server, &mut communicator, driver, filter) {
                Ok(Some(outcome)) => {
                    report.operations += 1;
                    report.packets += outcome.stats.packets;
                    report.trimmed += outcome.stats.trimmed;
                    report.missing += outcome.stats.missing;
                    publisher.operations().took("push-pull", outcome.duration_ns);
                }
                Ok(None) => {}
                Err(error) => {
                    publisher.operations().failed("push-pull");
                    cancel(&mut communicator, driver);
                    if stop.asked.load(Ordering::SeqCst) {
                        return Ok(End::Stopped);
                    }
                    return Ok(End::Failed(error.to_string()));
                }
            }
        }
        Ok(End::Left)
    }
}

/// Takes an outcome, and down what it was; gives that of a push-pull back.
fn take<L: Link>(
    outcome: Outcome,
    server: &mut Server,
    communicator: &mut Communicator,
    driver: &mut Driver<L>,
    filter: &mut Filter,
) -> anyhow::Result<Option<Outcome>> {
    let (number, now_ns) = (outcome.number, driver.now_ns());
    if filter.is_used() {
        let push_pull = server.push_pull(number).map(|push_pull| served(number, push_pull));
        let operation = push_pull.unwrap_or_else(|| notice(&outcome));
        filter.on_operation(now_ns, ended(operation, now_ns, &outcome))?;
    }
    let outcome = server.on_outcome(now_ns, outcome, communicator, driver.endpoint())?;
    let follows = number.wrapping_add(1);
    if let (None, Some(push_pull)) = (&outcome, server.push_pull(follows)) {
        filter.with_replay(|replay| replay.check_operation(&served(follows, push_pull))).transpose()?;
    }
    Ok(outcome)
}

/// Tells the workers that nothing comes of what is on its way.
fn cancel<L: Link>(communicator: &mut Communicator, driver: &mut Driver<L>) {
    let now_ns = driver.now_ns();
    let numbers: Vec<u32> = communicator.active().collect();
    for number in numbers {
        communicator.cancel(now_ns, number, driver.endpoint());
    }
}
