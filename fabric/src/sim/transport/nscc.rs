// SPDX-License-Identifier: Apache-2.0
//! A transport after Ultra Ethernet's with trimming: every packet is acknowledged with its mark, the heads of trimmed ones are answered at once, and what was trimmed goes again first. How much may
//! be on its way says [`Window`].

mod window;

use super::board::Board;
use super::{Flow, NsccConfig, Receiver, Sender, Sent};
use crate::sim::packet::{HEAD, Kind, Packet, Trimming};
use crate::sim::random::mix;
use std::collections::VecDeque;
use window::{Acknowledged, Window};

/// Beyond the idle path's round trip: more than the queues of all switches on the way hold.
const RTO_NS: u64 = 100_000;

/// The source's end.
#[derive(Debug)]
pub(super) struct NsccSender {
    flow: Flow,
    packets: u32,
    window: Window,
    in_flight: u64,
    next: u32,
    again: VecDeque<u32>,
    acknowledged: Board,
    /// Packets of which nothing was heard, by the time at which they left, and others behind the first of them.
    flying: VecDeque<(u64, u32)>,
    /// When the newest copy of a packet left, plus one; 0 when its fate is known.
    left_ns: Vec<u64>,
    rto_ns: u64,
    sent: Sent,
}

impl NsccSender {
    pub(super) fn new(flow: Flow, config: NsccConfig) -> Self {
        let packets = flow.packets();
        Self {
            packets,
            window: Window::new(flow.payload + HEAD, flow.rate_bps, flow.base_rtt_ns, config.target_ns),
            in_flight: 0,
            next: 0,
            again: VecDeque::new(),
            acknowledged: Board::new(packets),
            flying: VecDeque::new(),
            left_ns: vec![0; packets as usize],
            rto_ns: config.rto_ns.unwrap_or(flow.base_rtt_ns + RTO_NS),
            sent: Sent::default(),
            flow,
        }
    }

    fn is_flying(&self, sent_ns: u64, number: u32) -> bool {
        self.left_ns[number as usize] == sent_ns + 1
    }

    /// The fate of a packet's newest copy is known. Its bytes, if it was not.
    fn settle(&mut self, number: u32) -> Option<u32> {
        let left = self.left_ns.get_mut(number as usize)?;
        let bytes = (std::mem::take(left) != 0).then(|| self.flow.payload_of(number) + HEAD)?;
        self.in_flight = self.in_flight.saturating_sub(u64::from(bytes));
        Some(bytes)
    }

    /// Forgets the oldest packets as far as their fate is known.
    fn land(&mut self) {
        while let Some(&(sent_ns, number)) = self.flying.front()
            && !self.is_flying(sent_ns, number)
        {
            self.flying.pop_front();
        }
    }
}

impl Sender for NsccSender {
    fn handle_packet(&mut self, now_ns: u64, packet: &Packet) {
        match packet.kind {
            Kind::Ack => {
                if let Some(bytes) = self.settle(packet.number) {
                    let round_trip_ns = now_ns.saturating_sub(packet.sent_ns);
                    self.window.on_acknowledged(&Acknowledged {
                        now_ns,
                        bytes,
                        queued_ns: round_trip_ns.saturating_sub(self.flow.base_rtt_ns),
                        marked: packet.echo,
                        in_flight: self.in_flight,
                    });
                }
                self.acknowledged.insert(packet.number);
            }
            Kind::Nack => {
                if let Some(bytes) = self.settle(packet.number) {
                    self.window.on_trimmed(now_ns, bytes, self.in_flight);
                    self.again.push_back(packet.number);
                }
            }
            Kind::Final => (0..self.packets).for_each(|number| {
                self.acknowledged.insert(number);
            }),
            _ => {}
        }
        self.land();
    }

    fn handle_timeout(&mut self, now_ns: u64) {
        while let Some(&(sent_ns, number)) = self.flying.front() {
            if self.is_flying(sent_ns, number) {
                if sent_ns + self.rto_ns > now_ns {
                    break;
                }
                if let Some(bytes) = self.settle(number) {
                    self.window.on_trimmed(now_ns, bytes, self.in_flight);
                    self.again.push_back(number);
                    self.sent.timeouts += 1;
                }
            }
            self.flying.pop_front();
        }
    }

    fn next_send_ns(&self) -> Option<u64> {
        let waits = !self.again.is_empty() || self.next < self.packets;
        let whole = u64::from(self.flow.payload + HEAD);
        (waits && (self.in_flight == 0 || self.in_flight + whole <= self.window.bytes())).then_some(0)
    }

    fn poll_transmit(&mut self, now_ns: u64) -> Option<Packet> {
        self.next_send_ns()?;
        let number = if let Some(number) = self.again.pop_front() {
            self.sent.repairs += 1;
            number
        } else {
            self.next += 1;
            self.next - 1
        };
        self.flying.push_back((now_ns, number));
        self.left_ns[number as usize] = now_ns + 1;
        self.land();
        self.in_flight += u64::from(self.flow.payload_of(number) + HEAD);
        self.sent.packets += 1;
        let entropy = mix(self.flow.seed ^ self.sent.packets) as u16;
        Some(Packet { entropy, trimming: Trimming::Trimmable, ..self.flow.data(now_ns, number) })
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

/// Every packet is answered.
#[derive(Debug)]
pub(super) struct NsccReceiver(Board);

impl NsccReceiver {
    pub(super) fn new(flow: &Flow) -> Self {
        Self(Board::new(flow.packets()))
    }
}

impl Receiver for NsccReceiver {
    fn handle_packet(&mut self, _: u64, packet: &Packet, out: &mut VecDeque<Packet>) {
        if packet.kind != Kind::Data {
            return;
        }
        let kind = if packet.is_cut() { Kind::Nack } else { Kind::Ack };
        if kind == Kind::Ack {
            self.0.insert(packet.number);
        }
        out.push_back(packet.answer(kind, packet.number));
    }

    fn is_complete(&self) -> bool {
        self.0.is_full()
    }
}
