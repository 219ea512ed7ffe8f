// SPDX-License-Identifier: Apache-2.0
//! The receiver of a transfer test.

use super::flow::{Flow, Interval, Intervals, Overlap, Together, line};
use super::greeting::{self, Offer, Word};
use super::received::{self, Arrived, Received, Rows};
use super::{TransferArgs, next_look};
use crate::publish::Publisher;
use crate::report::Totals;
use crate::talk::{self, ANSWER, Line};
use crate::{Failure, bad_input, failed, print};
use anyhow::anyhow;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use trimwire_agent::driver::{Application, Driver, UdpLink, incarnation};
use trimwire_agent::endpoint::{Endpoint, Event, Expectation, Reliability};
use trimwire_agent::snapshot::PeerStats;
use trimwire_agent::transfer::{TransferError, TransferStats};
use trimwire_agent::wire::Reason;
use trimwire_encoder::{Codec, Job};

/// A sender whose STOP was lost asks again within its longest time-out, 100 ms.
const QUIET_NS: u64 = 250_000_000;
const LINGER_NS: u64 = 5_000_000_000;
/// Senders are listened to so often: for the end of a test, and for their own.
const LISTEN_NS: u64 = 50_000_000;
/// Bytes of gradients that wait to be decoded until the network is quiet; what is beyond is decoded meanwhile.
const PENDING: usize = 512 << 20;

/// A sender.
struct Client {
    rank: u16,
    line: Line,
    offer: Offer,
    data: SocketAddr,
    rows: Rows,
    /// Since its first packet.
    first_ns: Option<u64>,
    bytes_before: u64,
    /// How many messages there are, once that is known.
    messages: Option<u32>,
    delivered: u32,
    /// When the last one of them was, and the bytes of all senders by then.
    latest: (u64, u64),
    /// What its data came to, once it has ended, however it did.
    flow: Option<Flow>,
}

#[derive(Debug, Serialize)]
struct Report {
    role: &'static str,
    rank: u16,
    messages: Vec<Received>,
    flows: Vec<Flow>,
    /// All flows while all were on their way; `null` where they were one after the other, or only one.
    together: Option<Together>,
    intervals: Vec<Interval>,
    /// Transfers that were given up, in words.
    failures: Vec<String>,
    totals: Totals,
}

enum End {
    Delivered(u16, u32, TransferStats),
    Failed(u16, TransferError),
}

/// Watches what comes from everyone.
struct Receiving<'a> {
    clients: &'a mut BTreeMap<u16, Client>,
    overlap: &'a mut Overlap,
}

impl Receiving<'_> {
    fn bytes(&self, endpoint: &Endpoint) -> u64 {
        self.clients.keys().map(|&rank| stats(endpoint, rank).data_bytes_received).sum()
    }
}

fn stats(endpoint: &Endpoint, rank: u16) -> PeerStats {
    endpoint.peer_stats(rank).copied().unwrap_or_default()
}

impl Application<End> for Receiving<'_> {
    fn on_event(&mut self, now_ns: u64, event: Event, endpoint: &mut Endpoint) -> ControlFlow<End> {
        match event {
            Event::Row { from, row, .. } => {
                if let Some(client) = self.clients.get_mut(&from) {
                    client.rows.push(row);
                }
                ControlFlow::Continue(())
            }
            Event::Received { from, message, stats } => {
                let bytes = self.bytes(endpoint);
                if let Some(client) = self.clients.get_mut(&from) {
                    client.latest = (now_ns, bytes);
                }
                ControlFlow::Break(End::Delivered(from, message, stats))
            }
            Event::Failed { peer, error, .. } => ControlFlow::Break(End::Failed(peer, error)),
            _ => ControlFlow::Continue(()),
        }
    }

    fn poll(&mut self, now_ns: u64, endpoint: &mut Endpoint) -> ControlFlow<End> {
        if self.overlap.waits()
            && self.clients.keys().all(|&rank| stats(endpoint, rank).last_data_ns.is_some())
        {
            self.overlap.begin(now_ns, self.bytes(endpoint));
        }
        ControlFlow::Continue(())
    }
}

pub(super) fn run(args: &TransferArgs) -> Result<bool, Failure> {
    let mut clients = BTreeMap::new();
    let outcome = gather(args, &mut clients).and_then(|driver| serve(args, &mut clients, driver));
    if let Err(Failure { error, .. }) = &outcome {
        // Whoever is still there is told.
        for client in clients.values_mut() {
            let _ = client.line.say(&Word::Refused { why: format!("{error:#}") });
        }
    }
    outcome
}

/// Waits until all senders are there and ready. Who leaves meanwhile, or cannot be agreed with, ends the test.
fn gather(args: &TransferArgs, clients: &mut BTreeMap<u16, Client>) -> Result<Driver<UdpLink>, Failure> {
    let own = args.link.own_address()?;
    let key = args.link.seal_key()?;
    let listener = talk::listen(own, args.link.port())?;
    let world = args.senders + 1;
    tracing::info!("waits for {} on TCP port {}", args.senders, args.link.port());
    while clients.len() < usize::from(args.senders) {
        let nonce = incarnation();
        let (mut line, offer) = match greeting::answer(&listener, nonce) {
            Ok(come) => come,
            Err(error) => {
                // Somebody looks for open ports.
                tracing::warn!("no client: {error:#}");
                continue;
            }
        };
        let proof = key.as_ref().map(|key| greeting::proof(key, nonce));
        let job = clients.values().next().map(|client| client.offer.job);
        if let Err(error) = offer.check(job, proof) {
            let why = format!("{error:#}");
            let _ = line.say(&Word::Refused { why: why.clone() });
            return Err(bad_input(anyhow!("{}: {why}", line.address)));
        }
        let rank = clients.len() as u16 + 1;
        line.say(&Word::Welcome { rank, world }).map_err(failed)?;
        clients.insert(rank, Client::new(rank, line, offer));
    }
    let mut addresses = Vec::new();
    for client in clients.values_mut() {
        match client.line.hear(Some(ANSWER)).map_err(failed)? {
            Word::Ready { port } => client.data.set_port(port),
            other => return Err(failed(anyhow!("{} says {other:?}", client.line.address))),
        }
        addresses.push(client.line.local_ip().map_err(failed)?);
    }
    let mut link = args.link.clone();
    link.job = clients.values().next().map(|client| client.offer.job);
    let peers = clients.values().map(|client| (client.rank, client.data)).collect();
    let fallback = SocketAddr::new(common(&addresses), args.link.port());
    link.driver(0, world, peers, fallback, None)
}

/// The address that all clients called, or that of all interfaces.
fn common(addresses: &[IpAddr]) -> IpAddr {
    let first = addresses.first().copied().unwrap_or(std::net::Ipv4Addr::UNSPECIFIED.into());
    if addresses.iter().all(|&address| address == first) {
        first
    } else if first.is_ipv4() {
        std::net::Ipv4Addr::UNSPECIFIED.into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    }
}

fn expect(
    args: &TransferArgs,
    client: &Client,
    message: u32,
    driver: &mut Driver<UdpLink>,
) -> Result<(), Failure> {
    let offer = &client.offer;
    let expectation = Expectation {
        layout: offer.layout().map_err(bad_input)?,
        codec: Codec::Rht,
        job: Job::new(offer.seed),
        decoding: args.decoding.into(),
        reliability: offer.loss.map_or(Reliability::Full, |loss| Reliability::Bounded { loss }),
        planes: offer.planes,
        agree: false,
        until_ns: None,
        keep: None,
        origin: None,
    };
    let now_ns = driver.now_ns();
    driver.endpoint().expect(now_ns, client.rank, message, expectation).map_err(failed)
}

fn serve(
    args: &TransferArgs,
    clients: &mut BTreeMap<u16, Client>,
    mut driver: Driver<UdpLink>,
) -> Result<bool, Failure> {
    for client in clients.values_mut() {
        expect(args, client, 0, &mut driver)?;
    }
    for client in clients.values_mut() {
        client.line.say(&Word::Go).map_err(failed)?;
    }
    let human = !args.link.json;
    let mut publisher = Publisher::start(args.link.metrics)?;
    let (mut overlap, mut intervals) = (Overlap::default(), Intervals::new(driver.now_ns()));
    let mut look_ns = next_look(args, driver.now_ns());
    let (mut pending, mut messages, mut failures) = (VecDeque::new(), Vec::new(), Vec::new());
    let mut listen_ns = driver.now_ns();
    while clients.values().any(|client| !client.has_ended()) {
        let mut receiving = Receiving { clients, overlap: &mut overlap };
        let ended = publisher.run(&mut driver, look_ns.min(listen_ns), &mut receiving)?;
        if driver.now_ns() >= listen_ns {
            for client in clients.values_mut().filter(|client| !client.has_ended()) {
                if let Err(error) = client.listen(&mut driver, &mut overlap) {
                    failures.push(format!("rank {}: {error:#}", client.rank));
                }
            }
            listen_ns = driver.now_ns() + LISTEN_NS;
        }
        match ended {
            None if driver.now_ns() < look_ns => {}
            None => {
                let (now_ns, endpoint) = (driver.now_ns(), driver.endpoint());
                let peers = clients.keys().map(|&rank| (rank, stats(endpoint, rank), None));
                let interval = intervals.look(now_ns, peers, false);
                if human {
                    print(&interval.text())?;
                }
                look_ns = next_look(args, look_ns);
            }
            Some(End::Delivered(from, message, transfer)) => {
                let Some(client) = clients.get_mut(&from) else { continue };
                pending.push_back(client.delivered(args, message, transfer, &mut driver, &mut overlap)?);
                while pending.iter().map(Arrived::bytes).sum::<usize>() > PENDING
                    && let Some(oldest) = pending.pop_front()
                {
                    messages.push(oldest.measure(args)?);
                }
            }
            Some(End::Failed(peer, error)) => {
                // Who has gone has been told of.
                if let Some(client) = clients.get_mut(&peer).filter(|client| !client.has_ended()) {
                    failures.push(error.to_string());
                    client.tell(driver.endpoint());
                }
            }
        }
    }
    driver.linger(QUIET_NS, LINGER_NS).map_err(failed)?;
    let flows: Vec<Flow> = clients.values_mut().filter_map(|client| client.flow.take()).collect();
    for arrived in pending {
        messages.push(arrived.measure(args)?);
    }
    let link = driver.link_stats();
    let totals = Totals::new(driver.endpoint().stats(), link);
    let together = overlap.result().filter(|_| flows.len() > 1);
    let report = Report {
        role: "receiver",
        rank: 0,
        messages,
        flows,
        together,
        intervals: intervals.all,
        failures,
        totals,
    };
    if human {
        print(&text(&report))?;
    } else {
        print(&serde_json::to_string_pretty(&report).map_err(failed)?)?;
    }
    report.failures.iter().for_each(|failure| eprintln!("error: {failure}"));
    Ok(report.failures.is_empty())
}

impl Client {
    fn new(rank: u16, line: Line, offer: Offer) -> Self {
        let (data, messages) = (line.address, offer.messages);
        Self {
            rank,
            line,
            offer,
            data,
            rows: Rows::new(),
            first_ns: None,
            bytes_before: 0,
            messages,
            delivered: 0,
            latest: (0, 0),
            flow: None,
        }
    }

    /// Hears what it has to say, if anything: that the test is over. `Err`: it has gone, or says something else, and that is its end.
    fn listen(&mut self, driver: &mut Driver<UdpLink>, overlap: &mut Overlap) -> anyhow::Result<()> {
        if !self.line.has_word() {
            return Ok(());
        }
        let word = match self.line.hear(Some(ANSWER)) {
            Ok(Word::Over { messages }) if self.messages.is_none() && messages >= self.delivered => {
                self.messages = Some(messages);
                if messages == self.delivered {
                    // It was expected in case there was another one.
                    self.cancel(driver);
                    self.end(driver, overlap);
                }
                return Ok(());
            }
            other => other,
        };
        self.cancel(driver);
        self.tell(driver.endpoint());
        word.and_then(|word| Err(anyhow!("{} says {word:?} in the middle of a test", self.line.address)))
    }

    fn cancel(&self, driver: &mut Driver<UdpLink>) {
        let now_ns = driver.now_ns();
        driver.endpoint().abort_expect(now_ns, self.rank, self.delivered, 0, Reason::Cancelled);
    }

    /// Tells it what its data came to, whoever is still sending.
    fn tell(&mut self, endpoint: &Endpoint) {
        let stats = stats(endpoint, self.rank);
        let flow = Flow::new(self.rank, self.data.ip().to_string(), &stats, self.first_ns);
        // Who has gone does without.
        let _ = self.line.say(&Word::Result(flow.clone()));
        self.flow = Some(flow);
    }

    fn has_ended(&self) -> bool {
        self.flow.is_some()
    }

    /// Everything of it is there.
    fn end(&mut self, driver: &mut Driver<UdpLink>, overlap: &mut Overlap) {
        let (at_ns, bytes) = self.latest;
        overlap.end(at_ns, bytes);
        self.tell(driver.endpoint());
    }

    /// A message is there: expects the next one, and gives what is to be decoded.
    fn delivered(
        &mut self,
        args: &TransferArgs,
        message: u32,
        transfer: TransferStats,
        driver: &mut Driver<UdpLink>,
        overlap: &mut Overlap,
    ) -> Result<Arrived, Failure> {
        let rows = std::mem::take(&mut self.rows);
        // The next message is expected before this one is decoded, which takes longer.
        self.delivered = message + 1;
        let is_last = self.messages == Some(self.delivered);
        if !is_last {
            expect(args, self, self.delivered, driver)?;
        }
        let first_ns = driver.endpoint().take_first_data_ns(self.rank);
        self.first_ns = self.first_ns.or(first_ns);
        let PeerStats { data_bytes_received, last_data_ns, .. } = stats(driver.endpoint(), self.rank);
        let bytes = data_bytes_received - std::mem::replace(&mut self.bytes_before, data_bytes_received);
        let took_ns = first_ns.zip(last_data_ns).map_or(0, |(first, last)| last.saturating_sub(first));
        if is_last {
            self.end(driver, overlap);
        }
        Ok(Arrived { from: self.rank, message, offer: self.offer.clone(), rows, transfer, took_ns, bytes })
    }
}

fn text(report: &Report) -> String {
    let mut lines = vec![received::table(&report.messages)];
    lines.extend(report.flows.iter().map(|flow| flow.text(&flow.from.to_string())));
    match report.together {
        Some(Together { bytes, seconds, goodput_bps }) => {
            lines.push(line("SUM", 0.0, seconds, bytes, Some(goodput_bps)) + "  while all of them sent");
        }
        None if report.flows.len() > 1 => lines.push("[ SUM]  they did not send at the same time".to_owned()),
        None => {}
    }
    lines.join("\n")
}
