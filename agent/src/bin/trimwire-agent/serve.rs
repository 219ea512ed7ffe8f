//! `trimwire-agent serve`: a parameter server.

use crate::agreement;
use crate::args::{LinkArgs, RateArgs, RateLaw, start};
use crate::meet::{Caller, Met, RendezvousArgs, with_servers};
use crate::publish::Publisher;
use crate::report::Totals;
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
use trimwire_agent::driver::{Application, Driver, UdpLink, Wake, default_threads};
use trimwire_agent::endpoint::{Endpoint, Event};
use trimwire_agent::serve::{Server, lowest_worker};

const QUIET_NS: u64 = 300_000_000;
const LINGER_NS: u64 = 10_000_000_000;
/// A server waits for its workers, who write checkpoints, for as long as they are alive.
const PATIENCE_NS: u64 = 30 * 86_400 * 1_000_000_000;

#[derive(Args)]
pub(crate) struct ServeArgs {
    #[command(flatten)]
    rendezvous: RendezvousArgs,
    /// Ranks of the servers, the same on all ranks.
    #[arg(long, value_delimiter = ',', required = true, value_name = "RANK,…")]
    servers: Vec<u16>,
    /// Threads that encode and decode [default: the processors of this process but one, at most 4].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    #[command(flatten)]
    link: LinkArgs,
    #[command(flatten)]
    rate: RateArgs,
    /// How a rate is found.
    #[arg(long, value_enum, default_value = "dctcp")]
    rate_law: RateLaw,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    role: &'static str,
    rank: u16,
    /// Push-pulls served.
    operations: u64,
    /// Packets received of them.
    packets: u64,
    cut: u64,
    missing: u64,
    /// Jobs that ended because a rank died, in words.
    failures: Vec<String>,
    totals: Option<Totals>,
}

/// Ends the server from outside.
#[derive(Debug, Default)]
struct Stop {
    asked: AtomicBool,
    wake: Mutex<Option<Arc<Wake>>>,
}

impl Stop {
    /// SIGTERM and SIGINT ask for it from now on. Before other threads are made, which inherit the mask.
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
    let mut publisher = Publisher::start(args.link.metrics)?;
    let mut report = Report { role: "serve", ..Report::default() };
    let end = loop {
        // Another incarnation for each job: nothing of the one before gets into it.
        let Begun { mut driver, agreed_seed } = begin(args)?;
        report.rank = driver.endpoint().config().rank;
        *stop.wake.lock().unwrap_or_else(PoisonError::into_inner) = Some(driver.wake().map_err(failed)?);
        let end = serve(args, &mut driver, agreed_seed, &mut publisher, &stop, &mut report)?;
        publisher.publish(&mut driver);
        driver.linger(QUIET_NS, LINGER_NS).map_err(failed)?;
        let link = driver.link_stats();
        report.totals = Some(Totals::new(driver.endpoint().stats(), link));
        match end {
            End::Failed(why) => {
                eprintln!("error: {why}; waits for the workers to start anew");
                report.failures.push(why);
            }
            end => break end,
        }
    };
    if args.link.json {
        print(&serde_json::to_string_pretty(&report).map_err(failed)?)?;
    } else {
        let how = if matches!(end, End::Left) { "the workers have left" } else { "stopped" };
        let bytes = report.totals.as_ref().map_or(0, |totals| totals.payload_bytes_received);
        let Report { operations, packets, cut, missing, .. } = &report;
        print(&format!(
            "{how}: {operations} operations served, {packets} packets ({}), {cut} cut, {missing} missing",
            bytes_text(bytes)
        ))?;
    }
    Ok(report.failures.is_empty())
}

/// A server that knows where the others are.
struct Begun {
    driver: Driver<UdpLink>,
    /// `None`: the lowest worker tells.
    agreed_seed: Option<u64>,
}

fn begin(args: &ServeArgs) -> Result<Begun, Failure> {
    let link = LinkArgs { patience: Some(PATIENCE_NS), ..args.link.clone() };
    let Met { rank, world, seed, agreed, endpoint, link, .. } = Caller {
        rendezvous: &args.rendezvous,
        link: &link,
        rate: (&args.rate, args.rate_law),
        root: 0,
        repeats: &|_| Ok(None),
        terms: &|offer| with_servers(offer, &args.servers),
    }
    .meet()?;
    if !args.servers.contains(&rank) {
        return Err(bad_input(anyhow!("rank {rank} serves, but is not among --servers {:?}", args.servers)));
    }
    if lowest_worker(world, &args.servers).is_none() {
        return Err(bad_input(anyhow!("--servers names all of {world} ranks; who works?")));
    }
    let mut driver = start(endpoint, link);
    driver.set_threads(args.threads.unwrap_or_else(default_threads)).map_err(failed)?;
    Ok(Begun { driver, agreed_seed: agreed.then_some(seed) })
}

/// One job, from when its workers come to when they leave.
fn serve(
    args: &ServeArgs,
    driver: &mut Driver<UdpLink>,
    agreed_seed: Option<u64>,
    publisher: &mut Publisher,
    stop: &Stop,
    report: &mut Report,
) -> Result<End, Failure> {
    let stopped = || stop.asked.load(Ordering::SeqCst);
    let mut meeting = agreement::Exchange::start(None, driver)?;
    let communicator = meeting.communicator();
    let met = publisher.run(driver, u64::MAX, &mut UntilStopped { communicator, stop })?;
    let Some(Some(outcome)) = met else { return Ok(End::Stopped) };
    let told = match agreement::Exchange::told(outcome) {
        Ok(told) => told,
        Err(error) => return Ok(End::Failed(error.to_string())),
    };
    let (rank, world) = (driver.endpoint().config().rank, driver.endpoint().config().world);
    let root = lowest_worker(world, &args.servers).unwrap_or(0);
    let terms = told.get(usize::from(root)).cloned().flatten().unwrap_or_default();
    let term = |at: usize| terms.get(at).copied().unwrap_or(0);
    let config = CommunicatorConfig {
        job_seed: agreed_seed.unwrap_or(term(agreement::SEED)),
        row_log2: term(agreement::ROW_LOG2).min(u64::from(u8::MAX)) as u8,
        ..CommunicatorConfig::new(rank, world)
    };
    let mut communicator = Communicator::new(config);
    let now_ns = driver.now_ns();
    let servers = args.servers.clone();
    let begun = Server::begin(now_ns, 1, servers, &mut communicator, driver.endpoint());
    let mut server = match begun {
        Ok(server) => server,
        Err(error) => return Ok(End::Failed(error.to_string())),
    };
    while !server.is_done() {
        let mut application = UntilStopped { communicator: &mut communicator, stop };
        let Some(Some(outcome)) = publisher.run(driver, u64::MAX, &mut application)? else {
            cancel(&mut communicator, driver);
            return Ok(End::Stopped);
        };
        let now_ns = driver.now_ns();
        match server.on_outcome(now_ns, outcome, &mut communicator, driver.endpoint()) {
            Ok(Some(outcome)) => {
                report.operations += 1;
                report.packets += outcome.stats.packets;
                report.cut += outcome.stats.cut;
                report.missing += outcome.stats.missing;
                publisher.operations().took("push-pull", outcome.duration_ns);
            }
            Ok(None) => {}
            Err(error) => {
                publisher.operations().failed("push-pull");
                cancel(&mut communicator, driver);
                if stopped() {
                    return Ok(End::Stopped);
                }
                return Ok(End::Failed(error.to_string()));
            }
        }
    }
    Ok(End::Left)
}

/// Tells the workers that nothing comes of what is on its way.
fn cancel(communicator: &mut Communicator, driver: &mut Driver<UdpLink>) {
    let now_ns = driver.now_ns();
    let numbers: Vec<u32> = communicator.active().collect();
    for number in numbers {
        communicator.cancel(now_ns, number, driver.endpoint());
    }
}
