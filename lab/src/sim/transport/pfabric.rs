// SPDX-License-Identifier: Apache-2.0
//! pFabric's hosts (SIGCOMM 2013, §4.3): line rate at first, time-outs in a few round trips, probes
//! when all else fails.

use super::board::Board;
use super::{Flow, PFabricConfig, Sender, Sent};
use crate::sim::packet::{CONTROL, Kind, Packet};
use std::collections::VecDeque;

/// A window of the bandwidth-delay product, selective acknowledgements, no fast retransmission.
#[derive(Debug)]
pub(super) struct PFabricSender {
    flow: Flow,
    packets: u32,
    window: f64,
    threshold: f64,
    next: u32,
    again: VecDeque<u32>,
    acknowledged: Board,
    flying: VecDeque<(u64, u32)>,
    left_ns: Vec<u64>,
    in_flight: u32,
    rto_ns: u64,
    probe_after: u32,
    timeouts_in_a_row: u32,
    /// Only probes are sent; when the next one is due.
    probe_ns: Option<u64>,
    sent: Sent,
}

impl PFabricSender {
    pub(super) fn new(flow: Flow, config: PFabricConfig) -> Self {
        let packets = flow.packets();
        Self {
            packets,
            window: f64::from(flow.window()),
            threshold: f64::INFINITY,
            next: 0,
            again: VecDeque::new(),
            acknowledged: Board::new(packets),
            flying: VecDeque::new(),
            left_ns: vec![0; packets as usize],
            in_flight: 0,
            rto_ns: ((config.rto_round_trips * flow.base_rtt_ns as f64) as u64).max(config.rto_min_ns).max(1),
            probe_after: config.probe_after.max(1),
            timeouts_in_a_row: 0,
            probe_ns: None,
            sent: Sent::default(),
            flow,
        }
    }

    fn forget_known(&mut self) {
        while let Some(&(sent_ns, number)) = self.flying.front()
            && self.left_ns[number as usize] != sent_ns + 1
        {
            self.flying.pop_front();
        }
    }
}

impl Sender for PFabricSender {
    fn handle_packet(&mut self, _: u64, packet: &Packet) {
        match packet.kind {
            Kind::Ack => {
                self.timeouts_in_a_row = 0;
                self.probe_ns = None;
                if let Some(left) = self.left_ns.get_mut(packet.number as usize)
                    && std::mem::take(left) != 0
                {
                    self.in_flight -= 1;
                }
                if self.acknowledged.insert(packet.number) {
                    let slow_start = self.window < self.threshold;
                    self.window += if slow_start { 1.0 } else { 1.0 / self.window };
                    // More than the path holds is of no use: the first window is that.
                    self.window = self.window.min(f64::from(self.flow.window()));
                }
                self.forget_known();
            }
            // A probe came back: slow start (§4.3).
            Kind::Status => {
                self.timeouts_in_a_row = 0;
                self.probe_ns = None;
            }
            Kind::Final => (0..self.packets).for_each(|number| {
                self.acknowledged.insert(number);
            }),
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now_ns: u64) {
        let before = self.sent.timeouts;
        while let Some(&(sent_ns, number)) = self.flying.front() {
            if sent_ns + self.rto_ns > now_ns {
                break;
            }
            self.flying.pop_front();
            if self.left_ns[number as usize] == sent_ns + 1 {
                self.left_ns[number as usize] = 0;
                self.in_flight -= 1;
                self.again.push_back(number);
                self.sent.timeouts = before + 1;
            }
        }
        if self.sent.timeouts > before {
            self.timeouts_in_a_row += 1;
            self.threshold = (self.window / 2.0).max(1.0);
            self.window = 1.0;
            if self.timeouts_in_a_row >= self.probe_after {
                self.probe_ns = Some(now_ns);
            }
        }
        self.forget_known();
    }

    fn next_send_ns(&self) -> Option<u64> {
        if self.probe_ns.is_some() {
            return self.probe_ns;
        }
        let room = f64::from(self.in_flight) + 1.0 <= self.window;
        (room && (!self.again.is_empty() || self.next < self.packets)).then_some(0)
    }

    fn poll_transmit(&mut self, now_ns: u64) -> Option<Packet> {
        if self.next_send_ns()? > now_ns {
            return None;
        }
        let rank = self.left();
        if self.probe_ns.is_some() {
            self.probe_ns = Some(now_ns + self.flow.base_rtt_ns);
            self.sent.packets += 1;
            let probe = Packet { kind: Kind::Probe, length: CONTROL, rank, ..self.flow.data(now_ns, 0) };
            return Some(Packet { entropy: self.sent.packets as u16, ..probe });
        }
        let mut number = None;
        while let Some(again) = self.again.pop_front() {
            if !self.acknowledged.has(again) {
                self.sent.repairs += 1;
                number = Some(again);
                break;
            }
        }
        let number = match number {
            Some(number) => number,
            None if self.next < self.packets => {
                self.next += 1;
                self.next - 1
            }
            None => return None,
        };
        self.flying.push_back((now_ns, number));
        self.left_ns[number as usize] = now_ns + 1;
        self.in_flight += 1;
        self.sent.packets += 1;
        // MLT §6.2.1: paths are chosen per packet.
        let entropy = self.sent.packets as u16;
        Some(Packet { rank, entropy, ..self.flow.data(now_ns, number) })
    }

    fn poll_timeout(&self) -> Option<u64> {
        self.flying.front().map(|(sent_ns, _)| sent_ns + self.rto_ns)
    }

    fn is_done(&self) -> bool {
        self.acknowledged.is_full()
    }

    fn sent(&self) -> Sent {
        self.sent
    }

    fn left(&self) -> u32 {
        self.packets - self.acknowledged.held()
    }
}
