// SPDX-License-Identifier: Apache-2.0
//! One congested port in virtual time: senders with a pacer and a rate algorithm each, a FIFO with
//! the ladder of thresholds (mark, trim, drop) and a trim queue served first, and receivers that
//! report the first packet and every sixteenth. Same seed, same figures, on every machine.
#![allow(dead_code, reason = "each program uses a part")]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::num::NonZeroU16;
use trimwire_agent::pacing::Pacer;
use trimwire_agent::rate::{Feedback, PathModel, RateAlgorithm, RateConfig};

/// Frame bytes of a whole packet of ten planes at an MTU of 1500, of one trimmed to eight planes,
/// and of one trimmed to a single one (docs/reference/fabric-file.md).
pub(crate) const WHOLE: u64 = 1_406;
pub(crate) const SHALLOW: u64 = 510;
pub(crate) const DEEP: u64 = 118;
/// Packets of a report.
const REPORT: u32 = 16;
/// The receiver looks for lost packets after so long without a report.
const TAIL_NS: u64 = 500_000;

/// What receivers tell of who sends to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    Nothing,
    /// How many do just now: the port leads to one receiver.
    Number,
    /// That nobody else does: the port is somewhere in the fabric, and behind it each flow has its
    /// own receiver.
    Alone,
}

/// The port and what is around it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Port {
    pub(crate) rate_bps: u64,
    /// Round trip without queues: half of it from a sender to its receiver, half back.
    pub(crate) base_rtt_ns: u64,
    /// Whether packets may be trimmed; where they may not they are marked instead.
    pub(crate) trimming: bool,
    pub(crate) mark_at_ns: u64,
    /// Of less important packets, and of important ones.
    pub(crate) shallow_at_ns: [u64; 2],
    pub(crate) deep_at_ns: [u64; 2],
    pub(crate) drop_at_ns: u64,
    /// The trim queue holds so much, and takes this share of the line once it has used up as large
    /// a burst.
    pub(crate) trim_limit_ns: u64,
    pub(crate) trim_cap: f64,
    /// Each packet is late by up to this on its way to the port, in order: other traffic in other
    /// switches. Without any, flows that send as regularly as the port does lock into each other's
    /// phases.
    pub(crate) jitter_ns: u64,
    /// Bursts have at least so many packets, whatever the pacer advises.
    pub(crate) least_burst: usize,
    /// Share of the packets lost at random on the way to the port.
    pub(crate) random_loss: f64,
    /// What receivers tell senders of who else sends to them.
    pub(crate) told: Told,
    /// Receivers want every plane. (Senders have always something to send, so that repairs are
    /// packets as any.)
    pub(crate) repaired: bool,
    /// Each sender's part of the line as the algorithms are told it ([`PathModel::planned_bps`]).
    pub(crate) planned_bps: Option<u64>,
}

impl Port {
    /// The fabric file's defaults; `mark_at` and `drop_at` are important packets'.
    pub(crate) fn trimming(rate_bps: u64) -> Self {
        Self {
            rate_bps,
            base_rtt_ns: 20_000,
            trimming: true,
            mark_at_ns: 20_000,
            shallow_at_ns: [20_000, 40_000],
            deep_at_ns: [40_000, 80_000],
            drop_at_ns: 400_000,
            trim_limit_ns: 100_000,
            trim_cap: 0.5,
            jitter_ns: 2 * WHOLE * 8_000_000_000 / rate_bps,
            least_burst: 1,
            random_loss: 0.0,
            told: Told::Nothing,
            repaired: false,
            planned_bps: None,
        }
    }

    /// The same with `policy.trim: off`: packets are marked, and dropped where the queue is full.
    pub(crate) fn dropping(rate_bps: u64) -> Self {
        Self { trimming: false, ..Self::trimming(rate_bps) }
    }

    /// What an algorithm is told of it.
    pub(crate) fn path(&self) -> PathModel {
        PathModel {
            trim_delay_ns: self.shallow_at_ns[0],
            planned_bps: self.planned_bps,
            ..PathModel::new(self.rate_bps)
        }
    }
}

/// A sender with something to send from `start_ns` to `stop_ns`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flow {
    pub(crate) algorithm: RateConfig,
    pub(crate) start_ns: u64,
    pub(crate) stop_ns: u64,
}

/// What happened in one interval of time.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample {
    /// By flow: packets that arrived whole, that arrived trimmed, that were lost, and the rate at
    /// the interval's end, bit/s.
    pub(crate) flows: Vec<FlowSample>,
    /// Times that arriving packets found in the data queue, ns.
    pub(crate) queue_ns: Vec<u32>,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FlowSample {
    pub(crate) whole: u32,
    pub(crate) trimmed: u32,
    pub(crate) lost: u32,
    pub(crate) rate_bps: u64,
}

#[derive(Debug, Clone, Copy)]
struct Packet {
    flow: usize,
    sent_ns: u64,
    bytes: u64,
    marked: bool,
    important: bool,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Send(usize),
    ToPort(Packet),
    PortFree,
    Receive(Packet),
    Lost(usize),
    Tail(usize),
    Report(usize, Feedback, Option<u64>),
}

struct Sender {
    algorithm: Box<dyn RateAlgorithm>,
    pacer: Pacer,
    nic: Pacer,
    flow: Flow,
    /// Since the last report.
    news: Feedback,
    /// Sending and arrival of the newest whole packet since then.
    whole: Option<(u64, u64)>,
    reported_ns: u64,
    /// When its last packet gets to the port.
    at_port_ns: u64,
}

/// The port and its senders.
pub(crate) struct Bottleneck {
    port: Port,
    senders: Vec<Sender>,
    events: BinaryHeap<Reverse<(u64, u64, usize)>>,
    slots: Vec<Option<Event>>,
    free: Vec<usize>,
    order: u64,
    now_ns: u64,
    random: u64,
    data: VecDeque<Packet>,
    data_bytes: u64,
    trimmed: VecDeque<Packet>,
    trimmed_bytes: u64,
    /// What the trim queue may send ahead of the data, bytes, and when that was counted.
    credit: f64,
    credit_ns: u64,
    busy: bool,
    interval_ns: u64,
    samples: Vec<Sample>,
}

impl Bottleneck {
    /// Nothing sent yet; samples are of `interval_ns`.
    pub(crate) fn new(port: Port, flows: &[Flow], interval_ns: u64, seed: u64) -> Self {
        let senders: Vec<Sender> = flows
            .iter()
            .map(|&flow| Sender {
                algorithm: flow.algorithm.build(&port.path()),
                pacer: Pacer::default(),
                nic: Pacer::default(),
                flow,
                news: Feedback::default(),
                whole: None,
                reported_ns: 0,
                at_port_ns: 0,
            })
            .collect();
        let mut this = Self {
            port,
            senders,
            events: BinaryHeap::new(),
            slots: Vec::new(),
            free: Vec::new(),
            order: 0,
            now_ns: 0,
            random: seed,
            data: VecDeque::new(),
            data_bytes: 0,
            trimmed: VecDeque::new(),
            trimmed_bytes: 0,
            credit: 0.0,
            credit_ns: 0,
            busy: false,
            interval_ns,
            samples: Vec::new(),
        };
        for (index, flow) in flows.iter().enumerate() {
            this.at(flow.start_ns, Event::Send(index));
            this.at(flow.start_ns + TAIL_NS, Event::Tail(index));
        }
        this
    }

    /// Runs up to a time and gives the samples.
    pub(crate) fn run(mut self, end_ns: u64) -> Vec<Sample> {
        while let Some(&Reverse((at_ns, _, slot))) = self.events.peek()
            && at_ns < end_ns
        {
            self.events.pop();
            self.now_ns = at_ns;
            self.free.push(slot);
            if let Some(event) = self.slots[slot].take() {
                self.handle(event);
            }
        }
        self.now_ns = end_ns - 1;
        self.sample();
        self.samples
    }

    fn at(&mut self, at_ns: u64, event: Event) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(event);
        self.order += 1;
        self.events.push(Reverse((at_ns, self.order, slot)));
    }

    /// SplitMix64.
    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && ((self.draw() >> 11) as f64) < share * (1_u64 << 53) as f64
    }

    /// The interval of this moment; those that passed without an event have the rates of the one
    /// before.
    fn sample(&mut self) -> &mut Sample {
        let index = (self.now_ns / self.interval_ns) as usize;
        while self.samples.len() <= index {
            self.samples.push(Sample {
                flows: vec![FlowSample::default(); self.senders.len()],
                queue_ns: Vec::new(),
            });
        }
        for (flow, sender) in self.samples[index].flows.iter_mut().zip(&self.senders) {
            let active = sender.flow.start_ns <= self.now_ns && self.now_ns < sender.flow.stop_ns;
            flow.rate_bps = if active { sender.algorithm.rate_bps() } else { 0 };
        }
        &mut self.samples[index]
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Send(index) => self.send(index),
            Event::ToPort(packet) => self.enqueue(packet),
            Event::PortFree => {
                self.busy = false;
                self.serve();
            }
            Event::Receive(packet) => self.receive(packet),
            Event::Lost(index) => {
                self.sample().flows[index].lost += 1;
                self.senders[index].news.lost += 1;
                self.report_if_due(index, REPORT);
            }
            Event::Tail(index) => {
                let now_ns = self.now_ns;
                if now_ns >= self.senders[index].reported_ns + TAIL_NS {
                    self.report_if_due(index, 1);
                }
                if now_ns < self.senders[index].flow.stop_ns {
                    self.at(now_ns + TAIL_NS, Event::Tail(index));
                }
            }
            Event::Report(index, mut feedback, hold) => {
                feedback.now_ns = self.now_ns;
                feedback.rtt_ns = feedback.rtt_ns.map(|sent_ns| self.now_ns - sent_ns - hold.unwrap_or(0));
                self.senders[index].algorithm.on_feedback(&feedback);
            }
        }
    }

    /// A burst leaves a sender back to back, and the next one when the pacer says, with the jitter
    /// of up to one packet's time.
    fn send(&mut self, index: usize) {
        let (now_ns, port) = (self.now_ns, self.port);
        let jitter_most_ns = self.time_of(WHOLE);
        if now_ns >= self.senders[index].flow.stop_ns {
            return;
        }
        let sender = &self.senders[index];
        let burst = sender.pacer.burst_limit(sender.algorithm.rate_bps(), WHOLE).clamp(port.least_burst, 16);
        for _ in 0..burst {
            let important = self.draw() & 1 == 0;
            let sender = &mut self.senders[index];
            let rate_bps = sender.algorithm.rate_bps();
            sender.pacer.sent(now_ns, WHOLE, rate_bps, jitter_most_ns);
            sender.nic.sent(now_ns, WHOLE, port.rate_bps, 0);
            let left_ns = sender.nic.next_ns();
            let packet = Packet { flow: index, sent_ns: left_ns, bytes: WHOLE, marked: false, important };
            if self.chance(port.random_loss) {
                self.at(left_ns + port.base_rtt_ns / 2, Event::Lost(index));
            } else {
                let late_ns = self.draw() % (port.jitter_ns + 1);
                let sender = &mut self.senders[index];
                sender.at_port_ns = sender.at_port_ns.max(left_ns + port.base_rtt_ns / 4 + late_ns);
                let at_ns = sender.at_port_ns;
                self.at(at_ns, Event::ToPort(packet));
            }
        }
        let next_ns = self.senders[index].pacer.next_ns();
        let jitter_ns = self.draw() % jitter_most_ns;
        self.at(next_ns.max(now_ns + 1) + jitter_ns, Event::Send(index));
    }

    fn time_of(&self, bytes: u64) -> u64 {
        bytes * 8_000_000_000 / self.port.rate_bps
    }

    fn enqueue(&mut self, mut packet: Packet) {
        let port = self.port;
        let waits_ns = self.time_of(self.data_bytes);
        self.sample().queue_ns.push(waits_ns as u32);
        if port.trimming && waits_ns >= port.shallow_at_ns[usize::from(packet.important)] {
            let deep = waits_ns >= port.deep_at_ns[usize::from(packet.important)];
            packet.bytes = if deep { DEEP } else { SHALLOW };
            if self.time_of(self.trimmed_bytes) >= port.trim_limit_ns {
                // Its place is known to be empty once those before it are through.
                let through_ns = (port.trim_limit_ns as f64 / port.trim_cap) as u64;
                return self.at(self.now_ns + through_ns + port.base_rtt_ns / 4, Event::Lost(packet.flow));
            }
            self.trimmed_bytes += packet.bytes;
            self.trimmed.push_back(packet);
        } else if waits_ns >= port.drop_at_ns {
            return self.at(self.now_ns + waits_ns + port.base_rtt_ns / 4, Event::Lost(packet.flow));
        } else {
            packet.marked = !port.trimming && waits_ns >= port.mark_at_ns;
            self.data_bytes += WHOLE;
            self.data.push_back(packet);
        }
        self.serve();
    }

    fn serve(&mut self) {
        if self.busy {
            return;
        }
        let per_ns = self.port.rate_bps as f64 / 8e9;
        let most = self.port.trim_limit_ns as f64 * per_ns;
        let earned = (self.now_ns - self.credit_ns) as f64 * per_ns * self.port.trim_cap;
        (self.credit, self.credit_ns) = ((self.credit + earned).min(most), self.now_ns);
        let trimmed_bytes = self.trimmed.front().map_or(0, |packet| packet.bytes);
        let packet = if trimmed_bytes > 0 && (self.credit >= trimmed_bytes as f64 || self.data.is_empty()) {
            self.credit = (self.credit - trimmed_bytes as f64).max(0.0);
            self.trimmed_bytes -= trimmed_bytes;
            self.trimmed.pop_front()
        } else {
            let packet = self.data.pop_front();
            self.data_bytes -= packet.map_or(0, |_| WHOLE);
            packet
        };
        let Some(packet) = packet else { return };
        self.busy = true;
        let free_ns = self.now_ns + self.time_of(packet.bytes);
        self.at(free_ns, Event::PortFree);
        self.at(free_ns + self.port.base_rtt_ns / 4, Event::Receive(packet));
    }

    fn receive(&mut self, packet: Packet) {
        let (index, now_ns) = (packet.flow, self.now_ns);
        let flow = &mut self.sample().flows[index];
        *(if packet.bytes < WHOLE { &mut flow.trimmed } else { &mut flow.whole }) += 1;
        let sender = &mut self.senders[index];
        sender.news.arrived += 1;
        sender.news.trimmed += u32::from(packet.bytes < WHOLE);
        sender.news.marked += u32::from(packet.marked);
        if packet.bytes == WHOLE {
            sender.whole = Some((packet.sent_ns, now_ns));
        }
        self.report_if_due(index, REPORT);
    }

    /// Sends a report if so many packets arrived or were lost, and about a flow's very first packet
    /// at once: it tells the round trip before there is a queue. The round trip travels as the time
    /// of sending and the time that the receiver held it.
    fn report_if_due(&mut self, index: usize, packets: u32) {
        let now_ns = self.now_ns;
        let sender = &mut self.senders[index];
        let packets = if sender.reported_ns == 0 { 1 } else { packets };
        if sender.news.arrived + sender.news.lost < packets {
            return;
        }
        let mut feedback = std::mem::take(&mut sender.news);
        feedback.bytes = WHOLE * u64::from(feedback.arrived + feedback.lost);
        let whole = sender.whole.take();
        feedback.rtt_ns = whole.map(|(sent_ns, _)| sent_ns);
        let hold = whole.map(|(_, arrived_ns)| now_ns - arrived_ns);
        sender.reported_ns = now_ns;
        feedback.repaired = self.port.repaired;
        let sends = |sender: &&Sender| sender.flow.start_ns <= now_ns && now_ns < sender.flow.stop_ns;
        feedback.senders = NonZeroU16::new(match self.port.told {
            Told::Nothing => 0,
            Told::Number => self.senders.iter().filter(sends).count() as u16,
            Told::Alone => 1,
        });
        self.at(now_ns + self.port.base_rtt_ns / 2, Event::Report(index, feedback, hold));
    }
}

/// What samples come to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    /// Of the line: frames that arrived whole.
    pub(crate) whole_share: f64,
    /// Of the line: all frames that arrived, each at its size before the trim; every one brought
    /// its coordinates.
    pub(crate) coordinates_share: f64,
    /// Jain's index of the flows' arrivals in the whole time, and its least value in 5 ms.
    pub(crate) jain: f64,
    /// Times that arriving packets found in the data queue, ns.
    pub(crate) queue_p50_ns: u32,
    pub(crate) queue_p99_ns: u32,
    /// Of the packets.
    pub(crate) trimmed_share: f64,
    pub(crate) loss: f64,
}

impl Figures {
    /// Of these samples, each `interval_ns` long, over the given flows.
    pub(crate) fn of(
        samples: &[Sample],
        flows: std::ops::Range<usize>,
        port: &Port,
        interval_ns: u64,
    ) -> Self {
        let mut by_flow = vec![0.0; flows.len()];
        let (mut whole, mut trimmed, mut lost) = (0.0, 0.0, 0.0);
        let mut queue: Vec<u32> = Vec::new();
        for sample in samples {
            queue.extend(&sample.queue_ns);
            for (sum, flow) in by_flow.iter_mut().zip(&sample.flows[flows.clone()]) {
                *sum += f64::from(flow.whole + flow.trimmed);
            }
            for flow in &sample.flows {
                whole += f64::from(flow.whole);
                trimmed += f64::from(flow.trimmed);
                lost += f64::from(flow.lost);
            }
        }
        queue.sort_unstable();
        let quantile = |share: f64| {
            queue
                .get(((queue.len() as f64 * share) as usize).min(queue.len().saturating_sub(1)))
                .copied()
                .unwrap_or(0)
        };
        let line = samples.len() as f64 * interval_ns as f64 * port.rate_bps as f64 / 8e9;
        Self {
            whole_share: whole * WHOLE as f64 / line,
            coordinates_share: (whole + trimmed) * WHOLE as f64 / line,
            jain: jain(&by_flow),
            queue_p50_ns: quantile(0.5),
            queue_p99_ns: quantile(0.99),
            trimmed_share: trimmed / (whole + trimmed + lost).max(1.0),
            loss: lost / (whole + trimmed + lost).max(1.0),
        }
    }
}

/// Jain's index: 1 where all have the same, 1/n where one has all (Jain, Chiu and Hawe, DEC-TR-301,
/// 1984).
pub(crate) fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}
