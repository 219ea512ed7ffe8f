// SPDX-License-Identifier: Apache-2.0
//! Ours. The agent's rate laws, pacer, spraying, estimate of the way and of silence as they are;
//! around them a model of what `agent/src/transfer` does with one message: packets by number and
//! planes instead of bytes, acknowledgements that list packets instead of maps.
//! docs/reference/scenario.md says what that leaves out.

mod flight;
mod peers;
mod receiver;

use super::planes;
use super::{Delivery, Flow, Sender, Sent, TrimwireConfig};
use crate::sim::packet::{CONTROL, CONTROL_CLASS, Ecn, HEAD, Kind, Packet, Trimming};
use crate::sim::random::mix;
use flight::{Flight, Late};
pub use peers::Peers;
use peers::Way;
pub(super) use receiver::TrimwireReceiver;
use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use trimwire_agent::config::TimeoutConfig;
use trimwire_agent::pacing::Pacer;
use trimwire_agent::rate::Feedback;
use trimwire_agent::transfer::{Overtaken, PathEstimate, Silence};

/// Least part of the window that a peer has (`EndpointConfig::window_bytes`).
const LEAST_WINDOW: u64 = 24_000;
/// The queue of DATA; trimmed packets go in the ladder's, one above.
const DATA_CLASS: u8 = 5;
/// First of the source ports.
const PORTS: u16 = 49_152;

/// What a sender asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    /// Nothing.
    None,
    /// Its packet has yet to leave.
    Due,
    /// There is no answer yet.
    Open,
}

/// The sending end.
#[derive(Debug)]
pub(super) struct TrimwireSender {
    flow: Flow,
    config: TrimwireConfig,
    timeouts: TimeoutConfig,
    way: Arc<Mutex<Way>>,
    pacer: Pacer,
    silence: Silence,
    flight: Flight,
    next: u32,
    repairs: BTreeSet<u32>,
    window: u64,
    question: Question,
    /// When the next one is due.
    question_ns: Option<u64>,
    /// Questions since the last answer.
    unanswered: u32,
    left: u32,
    done: bool,
    sent: Sent,
}

/// Other hosts.
fn others(flow: &Flow) -> u64 {
    u64::from(flow.hosts.saturating_sub(1).max(1))
}

fn lock(way: &Mutex<Way>) -> MutexGuard<'_, Way> {
    way.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TrimwireSender {
    /// `peers`: what the ranks of a job know of each other.
    pub(super) fn new(flow: Flow, config: TrimwireConfig, now_ns: u64, peers: Option<&Peers>) -> Self {
        let packets = flow.packets();
        // As a rank has it whose job is on all hosts.
        let part = config.window / others(&flow);
        let fresh = || Way::new(&flow, &config);
        let known = peers.filter(|_| flow.foreground);
        let way = known.map_or_else(|| Arc::new(Mutex::new(fresh())), |peers| peers.way(&flow, fresh));
        let mut silence = Silence::default();
        silence.begin(now_ns);
        Self {
            way,
            timeouts: TimeoutConfig::default(),
            pacer: Pacer::default(),
            silence,
            flight: Flight::new(packets, config.paths),
            next: 0,
            repairs: BTreeSet::new(),
            window: part.max(LEAST_WINDOW),
            question: Question::None,
            question_ns: None,
            unanswered: 0,
            left: packets,
            done: false,
            sent: Sent::default(),
            flow,
            config,
        }
    }

    fn way(&self) -> MutexGuard<'_, Way> {
        lock(&self.way)
    }

    fn full(&self) -> bool {
        matches!(self.config.delivery, Delivery::RepairTrimmed | Delivery::RepairDropped)
    }

    /// What an agent has on its way to a peer that has asked for it: its part, and at least twice
    /// what the idle path holds at this rate.
    fn window_bytes(&self) -> u64 {
        let way = self.way();
        let least_ns = way.estimate.data.minimum_ns().unwrap_or(0);
        let path = 2 * u128::from(way.law.rate_bps()) * u128::from(least_ns) / 8_000_000_000;
        path.min(u128::from(self.config.window)).max(u128::from(self.window)) as u64
    }

    /// The rate at which packets leave now.
    fn rate_bps(&self, now_ns: u64, way: &Way) -> u64 {
        let silent_ns = now_ns.saturating_sub(self.silence.since_ns());
        way.estimate.rate_in_silence_bps(way.law.rate_bps(), silent_ns, &self.timeouts)
    }

    fn whole_length(&self, number: u32) -> u32 {
        HEAD + self.flow.payload_of(number)
    }

    fn length(&self, number: u32) -> u32 {
        let whole = self.flow.payload_of(number);
        HEAD + whole - planes::bytes_of(self.flight.planes(number), whole, self.config.planes)
    }

    fn all_sent(&self) -> bool {
        self.repairs.is_empty() && self.next == self.flight.packets()
    }

    fn on_reports(&mut self, now_ns: u64, packet: &Packet) {
        let senders = NonZeroU16::new(packet.senders);
        let mut feedback = Feedback { now_ns, senders, repaired: self.full(), ..Feedback::default() };
        let mut overtaken = Overtaken::default();
        let reports = packet.reports.as_deref().map_or(&[][..], Vec::as_slice);
        self.flight.begin_reports();
        let handle = Arc::clone(&self.way);
        let mut way = lock(&handle);
        for report in reports {
            let path = report.entropy.wrapping_sub(PORTS);
            let Some(taken) = self.flight.take(report, path) else { continue };
            let whole = taken.planes == self.config.planes;
            if taken.before < self.config.planes && (whole || (taken.before == 0 && !self.full())) {
                self.left = self.left.saturating_sub(1);
            }
            if taken.awaited && !whole && self.full() {
                self.repairs.insert(report.number);
            }
            // What came twice, or was trimmed again, brought nothing.
            if taken.planes == taken.before {
                continue;
            }
            feedback.arrived += 1;
            feedback.bytes += u64::from(self.whole_length(report.number));
            feedback.trimmed += u32::from(report.trimmed);
            feedback.marked += u32::from(report.marked);
            way.spray.on_arrived(path, 1, u32::from(report.trimmed));
            overtaken = overtaken.max(taken.overtaken);
            if !report.trimmed {
                // The newest is echoed, and of one that left twice no round trip is known.
                let rtt_ns = now_ns.checked_sub(report.sent_ns + u64::from(report.held_ns));
                feedback.rtt_ns = rtt_ns.filter(|_| taken.once);
            }
        }
        if let Some(rtt_ns) = feedback.rtt_ns {
            way.estimate.data.sample(rtt_ns);
        }
        if !reports.is_empty() {
            way.estimate.overtook(overtaken);
        }
        if feedback.arrived > 0 {
            self.silence.end(now_ns);
        }
        self.lose(now_ns, packet, &mut feedback, &mut way);
        if packet.kind == Kind::Status {
            way.estimate.control.sample(now_ns.saturating_sub(packet.sent_ns));
            self.question = Question::None;
        }
        self.unanswered = 0;
        self.ask_later(now_ns, &way.estimate);
    }

    /// Finds out what is lost, and tells the law of it all.
    fn lose(&mut self, now_ns: u64, packet: &Packet, feedback: &mut Feedback, way: &mut Way) {
        let late = (packet.kind == Kind::Status).then(|| Late {
            now_ns,
            asked_ns: packet.sent_ns,
            delay_ns: way.estimate.loss_delay_ns(&self.timeouts),
        });
        let lost = self.flight.lost(&way.estimate, late);
        if !lost.is_empty() {
            way.estimate.gave_up();
        }
        let mut answered = 0;
        for lost in &lost {
            way.spray.on_lost(lost.path, 1);
            self.repairs.insert(lost.number);
            feedback.bytes += u64::from(self.whole_length(lost.number));
            answered += u32::from(lost.sent_ns < way.slowdown.at_ns());
        }
        feedback.lost = lost.len() as u32;
        if feedback.arrived == 0 && feedback.lost == 0 {
            return;
        }
        way.slowdown.tell(way.law.as_mut(), feedback, answered);
    }

    /// Something was heard: when to ask what is there.
    fn ask_later(&mut self, now_ns: u64, estimate: &PathEstimate) {
        if self.question == Question::Due {
            return;
        }
        let later_ns = now_ns + estimate.answer_timeout_ns(0, &self.timeouts);
        let open = self.question == Question::Open;
        self.question_ns = match (self.all_sent(), self.flight.newest_in_flight_ns()) {
            (false, None) if !open => None,
            (false, _) => Some(self.ask_in_silence_ns(now_ns, estimate)),
            (true, Some(sent_ns)) if !open => {
                Some(later_ns.min(estimate.ask_again_ns(now_ns, sent_ns, &self.timeouts)))
            }
            _ => Some(later_ns),
        };
    }

    fn ask_in_silence_ns(&self, now_ns: u64, estimate: &PathEstimate) -> u64 {
        now_ns + self.silence.ask_after_ns(estimate, &self.timeouts)
    }

    /// A packet has left: when to ask, if nothing is heard.
    fn after_data(&mut self, now_ns: u64, estimate: &PathEstimate) {
        if !self.all_sent() {
            if self.question_ns.is_none() && self.question == Question::None {
                self.question_ns = Some(self.ask_in_silence_ns(now_ns, estimate));
            }
        } else if self.full() {
            self.question = Question::Due;
        } else {
            // The receiver is content when it is asked and its bound holds; an agent's waits until
            // nothing can be on its way any more.
            let rtt_ns = estimate.data.timeout_ns().unwrap_or(self.flow.base_rtt_ns);
            self.question_ns = Some(now_ns + rtt_ns + self.timeouts.ack_delay_ns);
        }
    }

    fn question(&mut self, now_ns: u64) -> Packet {
        self.question = Question::Open;
        let wait_ns = self.way().estimate.answer_timeout_ns(self.unanswered, &self.timeouts);
        self.question_ns = Some(now_ns + wait_ns);
        let probe = Packet { kind: Kind::Probe, length: CONTROL, ..self.flow.data(now_ns, 0) };
        Packet { class: CONTROL_CLASS, ..probe }
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
            self.silence.asked();
            if self.question == Question::Open {
                self.sent.timeouts += 1;
                self.unanswered = self.unanswered.saturating_add(1);
            }
            self.question = Question::Due;
            self.question_ns = None;
        }
    }

    fn next_send_ns(&self) -> Option<u64> {
        if self.done {
            return None;
        }
        // A question that is due goes before data.
        if self.question == Question::Due {
            return Some(0);
        }
        (!self.all_sent() && self.flight.in_flight() < self.window_bytes()).then(|| self.pacer.next_ns())
    }

    fn poll_transmit(&mut self, now_ns: u64) -> Option<Packet> {
        if self.done {
            return None;
        }
        if self.question == Question::Due {
            return Some(self.question(now_ns));
        }
        if self.flight.in_flight() >= self.window_bytes() || self.pacer.next_ns() > now_ns {
            return None;
        }
        let fresh = self.next < self.flight.packets();
        let number = match self.repairs.pop_first() {
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
        if self.flight.in_flight() == 0 {
            self.silence.begin(now_ns);
        }
        let handle = Arc::clone(&self.way);
        let mut way = lock(&handle);
        let path = way.spray.choose(now_ns);
        way.spray.on_sent(path, 1, 0);
        let length = self.length(number);
        self.pacer.sent(now_ns, u64::from(length), self.rate_bps(now_ns, &way), 0);
        self.flight.sent(now_ns, number, path, length);
        self.sent.packets += 1;
        self.after_data(now_ns, &way.estimate);
        let whole = self.flow.payload_of(number);
        let trimmed = matches!(self.config.delivery, Delivery::Trim { .. } | Delivery::RepairTrimmed);
        // Magnitudes have no order in a message: which packets are important is drawn.
        let draw = mix(self.flow.seed ^ u64::from(number)) as f64 / u64::MAX as f64;
        Some(Packet {
            length,
            rank: whole + HEAD - length,
            entropy: PORTS.wrapping_add(path),
            class: DATA_CLASS,
            ecn: if draw < self.config.important { Ecn::Ect } else { Ecn::NotEct },
            trimming: if trimmed { Trimming::Trimmable } else { Trimming::Plain },
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
