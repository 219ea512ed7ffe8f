// SPDX-License-Identifier: Apache-2.0
//! A sender of a transfer test.

use super::flow::{Flow, Interval, Intervals};
use super::greeting::{self, Offer, Word};
use super::{TransferArgs, next_look};
use crate::publish::Publisher;
use crate::report::{Totals, table};
use crate::talk::{self, ANSWER, Line};
use crate::units::rate_text;
use crate::{Failure, bad_input, failed, gradient, print};
use anyhow::anyhow;
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::sync::mpsc::sync_channel;
use std::time::Duration;
use trimwire_agent::driver::interfaces::mtu_of;
use trimwire_agent::driver::{Driver, Link as _, UdpLink};
use trimwire_agent::endpoint::{Endpoint, Event};
use trimwire_agent::transfer::{TransferError, TransferStats};
use trimwire_encoder::{EncodeError, Encoder, Envelope, Job, Message};

/// A message at its sender.
#[derive(Debug, Serialize)]
struct Sent {
    to: u16,
    message: u32,
    packets: u32,
    missing: u32,
    repaired: u32,
    probes: u32,
    payload_bytes: u64,
    retransmitted_bytes: u64,
    seconds: f64,
    /// Bits of DATA payloads sent, per second.
    bitrate_bps: f64,
}

#[derive(Debug, Serialize)]
struct Report {
    role: &'static str,
    rank: u16,
    seed: u64,
    coordinates: usize,
    messages: Vec<Sent>,
    /// What the server says of it.
    flow: Option<Flow>,
    intervals: Vec<Interval>,
    /// Transfers that were given up, in words.
    failures: Vec<String>,
    totals: Totals,
}

pub(super) fn run(args: &TransferArgs, host: &str) -> Result<bool, Failure> {
    let (file, coordinates) = args.gradient.load()?;
    // What is wrong with it is said before anybody is called.
    args.codec.layout(coordinates, None)?;
    let (own, key) = (args.link.own_address()?, args.link.seal_key()?);
    let to = talk::resolve(host, args.link.port())?;
    let (mut line, nonce) = greeting::call(to, own, Duration::from_nanos(args.link.timeout))?;
    let own_ip = own.map_or_else(|| line.local_ip(), Ok).map_err(failed)?;
    let mtu = mtu_of(&[own_ip]).into_iter().chain(args.link.mtu.map(u32::from)).min();
    let layout = args.codec.layout(coordinates, mtu)?;
    line.say(&Word::Offer(Offer {
        coordinates,
        messages: args.gradient.messages(),
        seed: args.link.seed(),
        made: file.is_none(),
        job: args.link.job.unwrap_or(0),
        planes: args.codec.planes,
        layer_class: args.codec.layer_class,
        row_log2: args.codec.row_log2,
        coordinates_per_packet: layout.coordinates_per_packet(),
        loss: (!args.link.reliable).then_some(args.link.loss),
        proof: key.as_ref().map(|key| greeting::proof(key, nonce)),
    }))
    .map_err(failed)?;
    let Word::Welcome { rank, world } = hear(&mut line, Some(ANSWER))? else {
        return Err(failed(anyhow!("{to} does not welcome")));
    };
    let mut link = args.link.clone();
    link.port = Some(0);
    let fallback = SocketAddr::new(line.local_ip().map_err(failed)?, 0);
    let rate = Some((&args.rate, args.rate_algorithm));
    let driver = link.driver(rank, world, BTreeMap::from([(0, to)]), fallback, rate)?;
    let port = driver.link().local_address().port();
    line.say(&Word::Ready { port }).map_err(failed)?;
    // Others may take their time.
    let Word::Go = hear(&mut line, None)? else { return Err(failed(anyhow!("{to} does not let go"))) };

    let now_ns = driver.now_ns();
    let (look_ns, intervals) = (next_look(args, now_ns), Intervals::new(now_ns));
    let publisher = Publisher::start(args.link.metrics)?;
    let mut sending = Sending { args, driver, publisher, look_ns, messages: Vec::new(), intervals };
    let encoder = Encoder::new(layout, Job::new(args.link.seed()));
    let encoder = match sending.driver.endpoint().sealer() {
        Some(sealer) => encoder.sealed(sealer),
        None => encoder,
    };
    let stream = sending.driver.endpoint().stream();
    let failures = std::thread::scope(|scope| {
        // The next one is encoded while one is on its way.
        let (encoded, next) = sync_channel::<Result<Message, EncodeError>>(1);
        scope.spawn(move || {
            for id in 0..args.gradient.messages().unwrap_or(u32::MAX) {
                let made;
                let values = if let Some(values) = &file {
                    values
                } else {
                    made = gradient::gaussian(coordinates, args.link.seed(), rank, id);
                    &made
                };
                let (mut message, envelope) = (Message::default(), Envelope { stream, message: id });
                let done =
                    encoder.encode(values, envelope, args.codec.planes, &mut message).map(|()| message);
                if encoded.send(done).is_err() {
                    return;
                }
            }
        });
        let end_ns = args.gradient.time.map_or(u64::MAX, |time_ns| now_ns.saturating_add(time_ns));
        for message in next {
            if let Err(error) = sending.send(&message.map_err(bad_input)?)? {
                return Ok(vec![error.to_string()]);
            }
            // The encoder ends when nobody takes what it encodes.
            if sending.driver.now_ns() >= end_ns {
                break;
            }
        }
        Ok(Vec::new())
    })?;
    let flow = if failures.is_empty() {
        if args.gradient.time.is_some() {
            line.say(&Word::Over { messages: sending.messages.len() as u32 }).map_err(failed)?;
        }
        match hear(&mut line, Some(Duration::from_nanos(args.link.timeout)))? {
            Word::Result(flow) => Some(flow),
            _ => None,
        }
    } else {
        None
    };
    let Sending { mut driver, messages, intervals, .. } = sending;
    let link = driver.link_stats();
    let totals = Totals::new(driver.endpoint().stats(), link);
    let (seed, intervals) = (args.link.seed(), intervals.all);
    let report =
        Report { role: "sender", rank, seed, coordinates, messages, flow, intervals, failures, totals };
    if args.link.json {
        print(&serde_json::to_string_pretty(&report).map_err(failed)?)?;
    } else {
        print(&text(&report))?;
    }
    report.failures.iter().for_each(|failure| eprintln!("error: {failure}"));
    Ok(report.failures.is_empty())
}

/// The server's next word; its refusal is the error.
fn hear(line: &mut Line, patience: Option<Duration>) -> Result<Word, Failure> {
    match line.hear(patience).map_err(failed)? {
        Word::Refused { why } => Err(failed(anyhow!("{} refuses: {why}", line.address))),
        word => Ok(word),
    }
}

struct Sending<'a> {
    args: &'a TransferArgs,
    driver: Driver<UdpLink>,
    publisher: Publisher,
    look_ns: u64,
    messages: Vec<Sent>,
    intervals: Intervals,
}

impl Sending<'_> {
    /// Sends a message to its end; the inner error is the transfer's.
    fn send(&mut self, message: &Message) -> Result<Result<(), TransferError>, Failure> {
        let Self { driver, .. } = self;
        let now_ns = driver.now_ns();
        driver.endpoint().send(now_ns, 0, message).map_err(failed)?;
        // The endpoint's own time-outs end it earlier.
        loop {
            let mut until_over = |_, event, _: &mut Endpoint| match event {
                Event::Sent { message, stats, .. } => ControlFlow::Break(Ok((message, stats))),
                Event::Failed { error, .. } => ControlFlow::Break(Err(error)),
                _ => ControlFlow::Continue(()),
            };
            match self.publisher.run(&mut self.driver, self.look_ns, &mut until_over)? {
                None => self.look()?,
                Some(Ok((message, stats))) => {
                    self.publisher.operations().took("transfer", stats.duration_ns);
                    self.messages.push(Sent::new(message, stats));
                    return Ok(Ok(()));
                }
                Some(Err(error)) => return Ok(Err(error)),
            }
        }
    }

    fn look(&mut self) -> Result<(), Failure> {
        let (now_ns, endpoint) = (self.driver.now_ns(), self.driver.endpoint());
        let stats = endpoint.peer_stats(0).copied().unwrap_or_default();
        let interval = self.intervals.look(now_ns, [(0, stats, endpoint.rtt_ns(0))].into_iter(), true);
        if !self.args.link.json {
            print(&interval.text())?;
        }
        self.look_ns = next_look(self.args, self.look_ns);
        Ok(())
    }
}

impl Sent {
    fn new(message: u32, stats: TransferStats) -> Self {
        let seconds = stats.duration_ns as f64 / 1e9;
        Self {
            to: 0,
            message,
            packets: stats.packets,
            missing: stats.missing,
            repaired: stats.repaired,
            probes: stats.probes,
            payload_bytes: stats.bytes_sent,
            retransmitted_bytes: stats.retransmitted_bytes,
            seconds,
            bitrate_bps: stats.bytes_sent as f64 * 8.0 / seconds.max(1e-9),
        }
    }
}

fn text(report: &Report) -> String {
    let told = if report.messages.len() > super::LINES {
        let count = report.messages.len();
        let sum =
            |what: fn(&Sent) -> u32| report.messages.iter().map(|sent| u64::from(what(sent))).sum::<u64>();
        let (packets, repaired, missing) =
            (sum(|sent| sent.packets), sum(|sent| sent.repaired), sum(|sent| sent.missing));
        format!(
            "{count} messages: {packets} packets, {repaired} repaired, {missing} missing (--json has each)"
        )
    } else {
        each(&report.messages)
    };
    match &report.flow {
        Some(flow) => format!("{told}\n{}  (at the server)", flow.text(&report.rank.to_string())),
        None => told,
    }
}

/// A line a message.
fn each(messages: &[Sent]) -> String {
    let rows: Vec<Vec<String>> = messages
        .iter()
        .map(|sent| {
            vec![
                sent.message.to_string(),
                sent.packets.to_string(),
                sent.repaired.to_string(),
                sent.missing.to_string(),
                sent.probes.to_string(),
                format!("{:.3}", sent.seconds * 1e3),
                rate_text(sent.bitrate_bps),
            ]
        })
        .collect();
    table(&["message", "packets", "repaired", "missing", "probes", "time ms", "bitrate"], &rows)
}
