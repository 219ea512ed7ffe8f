// SPDX-License-Identifier: Apache-2.0
//! DCTCP over NewReno, in packets as ns-2 has it; PIAS is the same with tags.

use super::board::Board;
use super::{DctcpConfig, Flow, Receiver, Sender, Sent};
use crate::sim::packet::{CONTROL_CLASS, Kind, Packet};
use std::collections::VecDeque;
use trimwire_agent::rtt::RttEstimator;

/// Waits double up to this.
const MOST_RTO_NS: u64 = 60_000_000_000;

/// A window that grows by packets acknowledged (RFC 5681), shrinks by the share of marks (RFC 8257
/// §3.3), and repairs by NewReno.
#[derive(Debug)]
pub(super) struct DctcpSender {
    flow: Flow,
    config: DctcpConfig,
    packets: u32,
    window: f64,
    threshold: f64,
    /// First packet that is not acknowledged, next to send, one behind the last ever sent.
    una: u32,
    next: u32,
    highest: u32,
    duplicates: u32,
    /// In fast recovery until this is acknowledged (RFC 6582's `recover`).
    recover: Option<u32>,
    /// The first missing packet has to go again.
    again: bool,
    alpha: f64,
    acknowledged: u32,
    marked: u32,
    /// The window of observation, and the last reduction's window, end here.
    observed: u32,
    reduced: u32,
    rtt: RttEstimator,
    backoff: u32,
    deadline_ns: Option<u64>,
    sent: Sent,
}

impl DctcpSender {
    pub(super) fn new(flow: Flow, config: DctcpConfig) -> Self {
        let mut rtt = RttEstimator::default();
        rtt.sample(flow.base_rtt_ns);
        Self {
            packets: flow.packets(),
            window: f64::from(config.initial_window.max(1)),
            threshold: f64::INFINITY,
            una: 0,
            next: 0,
            highest: 0,
            duplicates: 0,
            recover: None,
            again: false,
            alpha: 1.0,
            acknowledged: 0,
            marked: 0,
            observed: 0,
            reduced: 0,
            rtt,
            backoff: 0,
            deadline_ns: None,
            sent: Sent::default(),
            flow,
            config,
        }
    }

    fn rto_ns(&self) -> u64 {
        let measured = self.rtt.timeout_ns().unwrap_or(self.config.rto_min_ns);
        let rto = measured.max(self.config.rto_min_ns).max(1);
        rto.saturating_mul(1 << self.backoff.min(20)).min(MOST_RTO_NS)
    }

    /// PIAS §3.2: the queue by what the flow has sent; acknowledgements go in the highest.
    fn class(&self, number: u32) -> u8 {
        let sent = u64::from(number) * u64::from(self.flow.payload);
        let demoted = self.config.demote_after.iter().filter(|&&after| sent >= after).count();
        CONTROL_CLASS.saturating_sub(demoted as u8)
    }

    fn reduce(&mut self) {
        self.window = (self.window * (1.0 - self.alpha / 2.0)).max(1.0);
        self.threshold = self.window.max(2.0);
        self.reduced = self.next;
    }

    /// RFC 8257 §3.3: α after each window of data.
    fn observe(&mut self, newly: u32, echo: bool) {
        self.acknowledged += newly;
        self.marked += if echo { newly } else { 0 };
        if self.una < self.observed {
            return;
        }
        if self.acknowledged > 0 {
            let share = f64::from(self.marked) / f64::from(self.acknowledged);
            self.alpha = (1.0 - self.config.gain) * self.alpha + self.config.gain * share;
        }
        (self.acknowledged, self.marked) = (0, 0);
        self.observed = self.next;
    }

    fn on_new(&mut self, now_ns: u64, ack: u32, echo: bool) {
        let newly = ack - self.una;
        self.una = ack;
        self.next = self.next.max(ack);
        self.duplicates = 0;
        self.backoff = 0;
        self.observe(newly, echo);
        match self.recover {
            // A partial acknowledgement: the next hole goes at once, the window shrinks by what was
            // acknowledged.
            Some(recover) if ack < recover => {
                self.again = true;
                self.window = (self.window - f64::from(newly) + 1.0).max(1.0);
            }
            Some(_) => {
                self.recover = None;
                self.window = self.threshold;
            }
            None if echo => {
                if self.una > self.reduced {
                    self.reduce();
                }
            }
            None if self.window < self.threshold => self.window += f64::from(newly),
            None => self.window += f64::from(newly) / self.window,
        }
        self.deadline_ns = (self.una < self.next).then(|| now_ns + self.rto_ns());
    }

    fn on_duplicate(&mut self, echo: bool) {
        self.duplicates += 1;
        if self.recover.is_some() {
            self.window += 1.0;
        } else if self.duplicates == self.config.duplicates && self.una >= self.reduced_by_timeout() {
            self.threshold = (f64::from(self.next - self.una) / 2.0).max(2.0);
            self.window = self.threshold + f64::from(self.config.duplicates);
            self.recover = Some(self.next);
            self.again = true;
        } else if echo && self.una > self.reduced {
            self.reduce();
        }
    }

    /// After a time-out, duplicates of what was sent before it say nothing (RFC 6582 §4): packets
    /// below the highest are being sent again.
    fn reduced_by_timeout(&self) -> u32 {
        if self.next < self.highest { u32::MAX } else { 0 }
    }
}

impl Sender for DctcpSender {
    fn handle_packet(&mut self, now_ns: u64, packet: &Packet) {
        match packet.kind {
            Kind::Ack => {
                self.rtt.sample(now_ns.saturating_sub(packet.sent_ns));
                let ack = packet.number.min(self.packets);
                if ack > self.una {
                    self.on_new(now_ns, ack, packet.echo);
                } else if self.next > self.una {
                    self.on_duplicate(packet.echo);
                }
            }
            Kind::Final => {
                self.una = self.packets;
                self.next = self.packets;
                self.deadline_ns = None;
            }
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now_ns: u64) {
        if self.deadline_ns.is_none_or(|deadline| deadline > now_ns) {
            return;
        }
        self.sent.timeouts += 1;
        self.threshold = (f64::from(self.next - self.una) / 2.0).max(2.0);
        self.window = 1.0;
        self.next = self.una;
        self.duplicates = 0;
        self.recover = None;
        self.again = false;
        self.observed = self.una;
        self.backoff += 1;
        self.deadline_ns = Some(now_ns + self.rto_ns());
    }

    fn next_send_ns(&self) -> Option<u64> {
        let room = f64::from(self.next - self.una) + 1.0 <= self.window + 1e-9;
        (self.again || (self.next < self.packets && room)).then_some(0)
    }

    fn poll_transmit(&mut self, now_ns: u64) -> Option<Packet> {
        self.next_send_ns()?;
        let number = if std::mem::take(&mut self.again) { self.una } else { self.next };
        if number == self.next {
            self.next += 1;
        }
        self.sent.packets += 1;
        self.sent.repairs += u64::from(number < self.highest);
        self.highest = self.highest.max(number + 1);
        if self.deadline_ns.is_none() {
            self.deadline_ns = Some(now_ns + self.rto_ns());
        }
        let entropy = if self.config.spray { number as u16 } else { 0 };
        Some(Packet { class: self.class(number), entropy, ..self.flow.data(now_ns, number) })
    }

    fn poll_timeout(&self) -> Option<u64> {
        self.deadline_ns
    }

    fn is_done(&self) -> bool {
        self.una >= self.packets
    }

    fn sent(&self) -> Sent {
        self.sent
    }

    fn left(&self) -> u32 {
        self.packets - self.una
    }
}

/// Acknowledges every packet with the first number that is missing, and echoes its mark (RFC 8257
/// §3.2 without delayed acknowledgements).
#[derive(Debug)]
pub(super) struct DctcpReceiver {
    board: Board,
}

impl DctcpReceiver {
    pub(super) fn new(flow: &Flow) -> Self {
        Self { board: Board::new(flow.packets()) }
    }
}

impl Receiver for DctcpReceiver {
    fn handle_packet(&mut self, _: u64, packet: &Packet, out: &mut VecDeque<Packet>) {
        if packet.kind == Kind::Data && !packet.is_trimmed() {
            self.board.insert(packet.number);
            out.push_back(packet.answer(Kind::Ack, self.board.next()));
        }
    }

    fn is_complete(&self) -> bool {
        self.board.is_full()
    }
}
