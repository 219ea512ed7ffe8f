//! Ours. The agent's rate laws, pacer, spraying and round-trip estimate as they are; around them a model of what `agent/src/transfer` does with one message: packets by number and
//! planes instead of bytes, acknowledgements that list packets instead of maps. docs/scale.md says what that leaves out.

use super::planes::{self, WHOLE};
use super::{Delivery, Flow, Receiver, Sender, Sent, TrimwireConfig};
use crate::sim::packet::{CONTROL, CONTROL_CLASS, Ecn, HEAD, Kind, Packet, Report, Trimming};
use crate::sim::random::mix;
use std::collections::VecDeque;
use std::num::NonZeroU16;
use trimwire_agent::pacing::Pacer;
use trimwire_agent::rate::{Feedback, PathModel, RateLaw};
use trimwire_agent::rtt::RttEstimator;
use trimwire_agent::spray::Spray;

/// The agent's defaults (`EndpointConfig`, `TimeoutConfig`).
const ACK_EVERY: usize = 10;
const ACK_DELAY_NS: u64 = 25_000;
const MIN_TIMEOUT_NS: u64 = 1_000_000;
const MAX_TIMEOUT_NS: u64 = 100_000_000;
/// Least part of the window that a peer has.
const LEAST_WINDOW: u64 = 24_000;
/// The queue of DATA; cut packets go in the ladder's, one above.
const DATA_CLASS: u8 = 5;
/// First of the source ports.
const PORTS: u16 = 49_152;

/// One packet of the message.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// When its newest copy left, plus one; 0 when its fate is known.
    left_ns: u64,
    /// Planes that the receiver has reported.
    planes: u8,
}

/// The sending end.
#[derive(Debug)]
pub(super) struct TrimwireSender {
    flow: Flow,
    config: TrimwireConfig,
    law: Box<dyn RateLaw>,
    pacer: Pacer,
    spray: Spray,
    rtt: RttEstimator,
    latest_rtt_ns: u64,
    /// The most by which packets that arrived had been overtaken, of late.
    overtaken_ns: u64,
    states: Vec<State>,
    next: u32,
    repairs: VecDeque<u32>,
    flying: VecDeque<(u64, u32, u16)>,
    in_flight: u64,
    window: u64,
    /// Newest departure of which a whole packet has arrived.
    newest_ns: u64,
    last_sent_ns: u64,
    /// When to ask what arrived, and after how long again.
    question_ns: Option<u64>,
    wait_ns: u64,
    asking: bool,
    /// The question's packet has yet to leave.
    due: bool,
    left: u32,
    done: bool,
    sent: Sent,
}

impl TrimwireSender {
    pub(super) fn new(flow: Flow, config: TrimwireConfig, now_ns: u64) -> Self {
        let packets = flow.packets();
        // As a rank has it whose job is on all hosts.
        let others = u64::from(flow.hosts.saturating_sub(1).max(1));
        let planned_bps = Some(flow.rate_bps / others);
        let trim_delay_ns = config.trim_delay_ns;
        let path = PathModel { trim_delay_ns, planned_bps, ..PathModel::new(flow.rate_bps) };
        let part = config.window / others;
        Self {
            law: config.law.build(&path),
            pacer: Pacer::default(),
            spray: Spray::new(config.paths, flow.seed),
            rtt: RttEstimator::default(),
            latest_rtt_ns: flow.base_rtt_ns,
            overtaken_ns: 0,
            states: vec![State::default(); packets as usize],
            next: 0,
            repairs: VecDeque::new(),
            flying: VecDeque::new(),
            in_flight: 0,
            window: part.max(LEAST_WINDOW),
            newest_ns: 0,
            last_sent_ns: now_ns,
            question_ns: None,
            wait_ns: MIN_TIMEOUT_NS,
            asking: false,
            due: false,
            left: packets,
            done: false,
            sent: Sent::default(),
            flow,
            config,
        }
    }

    fn full(&self) -> bool {
        matches!(self.config.delivery, Delivery::RepairCut | Delivery::RepairDropped)
    }

    /// What an agent has on its way to a peer that has asked for it: its part, and at least twice what the idle path holds at this rate.
    fn window_bytes(&self) -> u64 {
        let path = 2 * u128::from(self.law.rate_bps()) * u128::from(self.rtt.minimum_ns().unwrap_or(0))
            / 8_000_000_000;
        path.min(u128::from(self.config.window)).max(u128::from(self.window)) as u64
    }

    /// How long others may have been overtaken (docs/agent.md, "Loss"): a quarter of the round trip; what queues add to it on another path; half as much again as was seen.
    fn reordering_ns(&self) -> u64 {
        let least = self.rtt.minimum_ns().unwrap_or(self.flow.base_rtt_ns);
        let smoothed = self.rtt.smoothed_ns().unwrap_or(self.flow.base_rtt_ns);
        let queues = smoothed.max(self.latest_rtt_ns).saturating_sub(least);
        (smoothed / 4).max(queues).max(self.overtaken_ns + self.overtaken_ns / 2)
    }

    fn length(&self, number: u32) -> u32 {
        let whole = self.flow.payload_of(number);
        HEAD + whole - planes::bytes_of(self.states[number as usize].planes, whole)
    }

    /// Takes a report; whether its packet was waited for.
    fn take(&mut self, report: &Report) -> bool {
        let length = self.length(report.number.min(self.states.len() as u32 - 1));
        let Some(state) = self.states.get_mut(report.number as usize) else { return false };
        let awaited = std::mem::take(&mut state.left_ns) != 0;
        let before = state.planes;
        state.planes = before.max(report.planes);
        let whole = state.planes == WHOLE;
        if awaited {
            self.in_flight = self.in_flight.saturating_sub(u64::from(length));
        }
        if before < WHOLE && (whole || (before == 0 && !self.full())) {
            self.left = self.left.saturating_sub(1);
        }
        if awaited && !whole && self.full() {
            self.repairs.push_back(report.number);
        }
        awaited
    }

    /// Everything that left before `before_ns` and of which nothing was heard is lost. Gives how many.
    fn lose(&mut self, before_ns: u64) -> u32 {
        let mut lost = 0;
        while let Some(&(sent_ns, number, path)) = self.flying.front() {
            let state = &mut self.states[number as usize];
            if state.left_ns == sent_ns + 1 {
                if sent_ns >= before_ns {
                    break;
                }
                state.left_ns = 0;
                lost += 1;
                let length = u64::from(self.length(number));
                self.in_flight = self.in_flight.saturating_sub(length);
                self.spray.on_lost(path, 1);
                self.repairs.push_back(number);
            }
            self.flying.pop_front();
        }
        lost
    }

    fn on_reports(&mut self, now_ns: u64, packet: &Packet) {
        let senders = NonZeroU16::new(packet.senders);
        let mut feedback = Feedback { now_ns, senders, repaired: self.full(), ..Feedback::default() };
        let mut overtaken_ns = 0;
        let reports = packet.reports.as_deref().map_or(&[][..], Vec::as_slice);
        for report in reports {
            if !self.take(report) {
                continue;
            }
            feedback.arrived += 1;
            feedback.cut += u32::from(report.cut);
            feedback.marked += u32::from(report.marked);
            self.spray.on_arrived(report.entropy.wrapping_sub(PORTS), 1, u32::from(report.cut));
            if !report.cut {
                overtaken_ns = overtaken_ns.max(self.newest_ns.saturating_sub(report.sent_ns));
                self.newest_ns = self.newest_ns.max(report.sent_ns);
            }
        }
        self.overtaken_ns = (self.overtaken_ns - self.overtaken_ns / 64).max(overtaken_ns);
        // The newest packet of an acknowledgement caused it, unless a timer did.
        if let Some(newest) = reports.last().filter(|r| !r.cut) {
            let rtt_ns = now_ns.saturating_sub(newest.sent_ns).max(1);
            if packet.kind == Kind::Ack && !packet.echo {
                self.rtt.sample(rtt_ns);
                self.latest_rtt_ns = rtt_ns;
                feedback.rtt_ns = Some(rtt_ns);
            }
        }
        let reordering = self.reordering_ns();
        feedback.lost = self.lose(self.newest_ns.saturating_sub(reordering));
        if packet.kind == Kind::Status {
            // Only what left long enough before the question can be missing from its answer.
            feedback.lost += self.lose(packet.sent_ns.saturating_sub(reordering));
            (self.asking, self.due) = (false, false);
            self.wait_ns = MIN_TIMEOUT_NS;
            self.question_ns = None;
        }
        if feedback.arrived > 0 || feedback.lost > 0 {
            self.law.on_feedback(&feedback);
        }
        self.ask_later();
    }

    /// A question is due one round trip after the last packet; while one is open, when it has to be repeated.
    fn ask_later(&mut self) {
        let idle = self.repairs.is_empty() && self.next as usize == self.states.len();
        self.question_ns = match (idle || self.in_flight > 0, self.asking) {
            (false, _) => None,
            (true, true) => self.question_ns,
            (true, false) => {
                let rtt = self.rtt.timeout_ns().unwrap_or(self.flow.base_rtt_ns + ACK_DELAY_NS);
                // Before everything has left, only if nothing is heard for long.
                Some(self.last_sent_ns + if idle { rtt + ACK_DELAY_NS } else { rtt.max(MIN_TIMEOUT_NS) })
            }
        };
    }
}

impl Sender for TrimwireSender {
    fn handle_packet(&mut self, now_ns: u64, packet: &Packet) {
        match packet.kind {
            Kind::Ack | Kind::Status => self.on_reports(now_ns, packet),
            Kind::Final => self.done = true,
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now_ns: u64) {
        if self.question_ns.is_some_and(|at| at <= now_ns) && !self.done {
            if self.asking {
                self.sent.timeouts += 1;
                self.wait_ns = (2 * self.wait_ns).min(MAX_TIMEOUT_NS);
            }
            self.asking = true;
            self.due = true;
            self.question_ns = None;
        }
    }

    fn next_send_ns(&self) -> Option<u64> {
        if self.done {
            return None;
        }
        // A question that is due goes before data.
        if self.asking && self.due {
            return Some(0);
        }
        let waits = !self.repairs.is_empty() || (self.next as usize) < self.states.len();
        (waits && self.in_flight < self.window_bytes()).then(|| self.pacer.next_ns())
    }

    fn poll_transmit(&mut self, now_ns: u64) -> Option<Packet> {
        if self.done {
            return None;
        }
        if self.asking && std::mem::take(&mut self.due) {
            self.question_ns = Some(now_ns + self.wait_ns);
            let probe = Packet { kind: Kind::Probe, length: CONTROL, ..self.flow.data(now_ns, 0) };
            return Some(Packet { class: CONTROL_CLASS, ..probe });
        }
        if self.in_flight >= self.window_bytes() || self.pacer.next_ns() > now_ns {
            return None;
        }
        // MLT sends what is missing when everything has left once (§4.2.3).
        let new_first = matches!(self.config.delivery, Delivery::Drop { .. });
        let fresh = (self.next as usize) < self.states.len();
        let repair = if new_first && fresh { None } else { self.repairs.pop_front() };
        let number = match repair {
            Some(number) => {
                self.sent.repairs += 1;
                number
            }
            None if fresh => {
                self.next += 1;
                self.next - 1
            }
            None => return None,
        };
        let path = self.spray.choose(now_ns);
        self.spray.on_sent(path, 1, 0);
        let length = self.length(number);
        self.pacer.sent(now_ns, u64::from(length), self.law.rate_bps(), 0);
        self.states[number as usize].left_ns = now_ns + 1;
        self.flying.push_back((now_ns, number, path));
        self.in_flight += u64::from(length);
        self.last_sent_ns = now_ns;
        self.sent.packets += 1;
        if !self.asking {
            self.question_ns = None;
            self.ask_later();
        }
        let whole = self.flow.payload_of(number);
        let cut = matches!(self.config.delivery, Delivery::Cut { .. } | Delivery::RepairCut);
        // Magnitudes have no order in a message: which packets are important is drawn.
        let draw = mix(self.flow.seed ^ u64::from(number)) as f64 / u64::MAX as f64;
        Some(Packet {
            length,
            rank: whole + HEAD - length,
            entropy: PORTS.wrapping_add(path),
            class: DATA_CLASS,
            ecn: if draw < self.config.important { Ecn::Ect } else { Ecn::NotEct },
            trimming: if cut { Trimming::Trimmable } else { Trimming::Plain },
            ..self.flow.data(now_ns, number)
        })
    }

    fn poll_timeout(&self) -> Option<u64> {
        self.question_ns.filter(|_| !self.done)
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn sent(&self) -> Sent {
        self.sent
    }

    fn left(&self) -> u32 {
        self.left
    }
}

/// The receiving end.
#[derive(Debug)]
pub(super) struct TrimwireReceiver {
    flow: Flow,
    delivery: Delivery,
    planes: Vec<u8>,
    /// Packets of which something has come, and of which everything has.
    some: u32,
    whole: u32,
    reports: Vec<Report>,
    oldest: Option<Packet>,
    report_ns: u64,
    complete: bool,
}

impl TrimwireReceiver {
    pub(super) fn new(flow: Flow, delivery: Delivery) -> Self {
        let planes = vec![0; flow.packets() as usize];
        Self {
            flow,
            delivery,
            planes,
            some: 0,
            whole: 0,
            reports: Vec::new(),
            oldest: None,
            report_ns: 0,
            complete: false,
        }
    }

    fn missing(&self) -> u32 {
        self.planes.len() as u32 - self.some
    }

    fn allowed(&self, loss: f64) -> u32 {
        (loss * self.planes.len() as f64) as u32
    }

    fn on_data(&mut self, now_ns: u64, packet: &Packet) {
        let whole = self.flow.payload_of(packet.number);
        let Some(held) = self.planes.get_mut(packet.number as usize) else { return };
        // What begins behind planes that are not there is of no use.
        if packet.rank <= planes::bytes_of(*held, whole) {
            let now_held = planes::held(packet.length, packet.rank, whole).max(*held);
            self.some += u32::from(*held == 0 && now_held > 0);
            self.whole += u32::from(*held < WHOLE && now_held == WHOLE);
            *held = now_held;
        }
        if self.reports.is_empty() {
            self.report_ns = now_ns + ACK_DELAY_NS;
            self.oldest = Some(packet.answer(Kind::Ack, 0));
        }
        self.reports.push(Report {
            number: packet.number,
            planes: *held,
            cut: packet.is_cut(),
            marked: packet.ecn == Ecn::Ce,
            entropy: packet.entropy,
            sent_ns: packet.sent_ns,
        });
    }

    fn report(&mut self, kind: Kind, late: bool, out: &mut VecDeque<Packet>) {
        if let Some(answer) = self.oldest.take() {
            let reports = std::mem::take(&mut self.reports);
            // Two bytes a packet, more than a map of them takes (docs/agent.md).
            let length = CONTROL + 2 * reports.len() as u32;
            out.push_back(Packet { kind, length, echo: late, reports: Some(Box::new(reports)), ..answer });
        }
    }
}

impl Receiver for TrimwireReceiver {
    fn handle_packet(&mut self, now_ns: u64, packet: &Packet, out: &mut VecDeque<Packet>) {
        match packet.kind {
            Kind::Data => self.on_data(now_ns, packet),
            Kind::Probe => {
                self.report(Kind::Ack, true, out);
                if let Delivery::Cut { loss } = self.delivery {
                    self.complete = self.complete || self.missing() <= self.allowed(loss);
                }
                out.push_back(packet.answer(Kind::Status, 0));
            }
            _ => return,
        }
        let all = self.planes.len() as u32;
        self.complete = self.complete
            || match self.delivery {
                Delivery::Cut { .. } => self.some == all,
                Delivery::Drop { loss } => self.missing() <= self.allowed(loss),
                Delivery::RepairCut | Delivery::RepairDropped => self.whole == all,
            };
        if self.complete {
            out.push_back(packet.answer(Kind::Final, 0));
        } else if self.reports.len() >= ACK_EVERY {
            self.report(Kind::Ack, false, out);
        }
    }

    fn handle_timeout(&mut self, now_ns: u64, out: &mut VecDeque<Packet>) {
        if self.report_ns <= now_ns {
            self.report(Kind::Ack, true, out);
        }
    }

    fn poll_timeout(&self) -> Option<u64> {
        (!self.reports.is_empty()).then_some(self.report_ns)
    }

    fn is_complete(&self) -> bool {
        self.complete
    }

    fn share_kept(&self) -> f64 {
        let kept: f64 = self.planes.iter().map(|&planes| planes::share_kept(planes)).sum();
        kept / self.planes.len() as f64
    }

    fn planes(&self) -> &[u8] {
        &self.planes
    }
}
