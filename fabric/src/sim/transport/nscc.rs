//! In the manner of UEC 1.0's network-signal congestion control: a window moved by marks and by the delay of queues, NACKs of heads as the sign of overload.

use super::board::Board;
use super::{Flow, NsccConfig, Sender, Sent};
use crate::sim::packet::{HEAD, Kind, Packet, Trimming};
use crate::sim::random::mix;
use std::collections::VecDeque;

/// Packets that every round trip adds to a window while delay is at its target and nothing is marked.
const FAIR_INCREASE: f64 = 1.0;
/// Share of the window that a round trip may take away.
const MOST_DECREASE: f64 = 0.5;
/// The window's most, in windows that fill the idle path.
const MOST_WINDOW: f64 = 1.5;

/// Four cases by mark and delay; after heads, the window becomes what came through in a round trip.
#[derive(Debug)]
pub(super) struct NsccSender {
    flow: Flow,
    config: NsccConfig,
    packets: u32,
    window: f64,
    most: f64,
    next: u32,
    again: VecDeque<u32>,
    acknowledged: Board,
    flying: VecDeque<(u64, u32)>,
    left_ns: Vec<u64>,
    in_flight: u32,
    /// Of the round trip that began then: packets that came whole, heads, and the mean of the delay.
    round_ns: u64,
    whole: u32,
    heads: u32,
    delay_ns: f64,
    sent: Sent,
}

impl NsccSender {
    pub(super) fn new(flow: Flow, config: NsccConfig) -> Self {
        let packets = flow.packets();
        let most = MOST_WINDOW * f64::from(flow.window());
        Self {
            packets,
            window: most,
            most,
            next: 0,
            again: VecDeque::new(),
            acknowledged: Board::new(packets),
            flying: VecDeque::new(),
            left_ns: vec![0; packets as usize],
            in_flight: 0,
            round_ns: 0,
            whole: 0,
            heads: 0,
            delay_ns: 0.0,
            sent: Sent::default(),
            flow,
            config,
        }
    }

    fn target_ns(&self) -> f64 {
        self.config.target_round_trips * self.flow.base_rtt_ns as f64
    }

    fn settle(&mut self, number: u32) -> bool {
        let settled = self.left_ns.get_mut(number as usize).is_some_and(|left| std::mem::take(left) != 0);
        self.in_flight -= u32::from(settled);
        settled
    }

    fn on_ack(&mut self, now_ns: u64, packet: &Packet) {
        let delay = now_ns.saturating_sub(packet.sent_ns).saturating_sub(self.flow.base_rtt_ns) as f64;
        self.delay_ns += (delay - self.delay_ns) / 8.0;
        self.whole += 1;
        let target = self.target_ns();
        match (packet.echo, delay < target) {
            // Proportional increase: what is missing from the target, once a round trip.
            (false, true) => {
                let most = FAIR_INCREASE.max(self.most / 8.0);
                self.window += (1.0 - delay / target) * most / self.window;
            }
            (false, false) => self.window += FAIR_INCREASE / self.window,
            // Marked and short: the queue is draining.
            (true, true) => {}
            (true, false) => {
                let excess = (1.0 - target / self.delay_ns.max(target)).min(MOST_DECREASE);
                self.window -= excess;
            }
        }
    }

    /// Once a round trip: after heads, the window is what came whole.
    fn on_round(&mut self, now_ns: u64) {
        if now_ns < self.round_ns + self.flow.base_rtt_ns + self.delay_ns as u64 {
            return;
        }
        if self.heads > self.whole / 4 {
            self.window = f64::from(self.whole);
        }
        (self.round_ns, self.whole, self.heads) = (now_ns, 0, 0);
    }
}

impl Sender for NsccSender {
    fn handle_packet(&mut self, now_ns: u64, packet: &Packet) {
        match packet.kind {
            Kind::Ack => {
                self.settle(packet.number);
                self.acknowledged.insert(packet.number);
                self.on_ack(now_ns, packet);
            }
            Kind::Nack => {
                let awaited = self.settle(packet.number);
                if awaited && !self.acknowledged.has(packet.number) {
                    self.again.push_back(packet.number);
                }
                self.heads += 1;
                self.window -= 1.0;
            }
            Kind::Final => (0..self.packets).for_each(|number| {
                self.acknowledged.insert(number);
            }),
            _ => {}
        }
        self.on_round(now_ns);
        self.window = self.window.clamp(1.0, self.most);
    }

    fn handle_timeout(&mut self, now_ns: u64) {
        while let Some(&(sent_ns, number)) = self.flying.front() {
            let flies = self.left_ns[number as usize] == sent_ns + 1;
            if flies && sent_ns + self.config.rto_ns > now_ns {
                break;
            }
            self.flying.pop_front();
            if flies {
                self.settle(number);
                self.again.push_back(number);
                self.sent.timeouts += 1;
            }
        }
    }

    fn next_send_ns(&self) -> Option<u64> {
        let room = f64::from(self.in_flight) + 1.0 <= self.window;
        (room && (!self.again.is_empty() || self.next < self.packets)).then_some(0)
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
        while let Some(&(sent_ns, number)) = self.flying.front()
            && self.left_ns[number as usize] != sent_ns + 1
        {
            self.flying.pop_front();
        }
        self.flying.push_back((now_ns, number));
        self.left_ns[number as usize] = now_ns + 1;
        self.in_flight += 1;
        self.sent.packets += 1;
        let entropy = mix(self.flow.seed ^ self.sent.packets) as u16;
        let data = self.flow.data(now_ns, number);
        debug_assert!(data.length > HEAD, "packets carry something");
        Some(Packet { entropy, class: 5, trimming: Trimming::Trimmable, ..data })
    }

    fn poll_timeout(&self) -> Option<u64> {
        let first =
            self.flying.iter().find(|(sent_ns, number)| self.left_ns[*number as usize] == sent_ns + 1);
        first.map(|(sent_ns, _)| sent_ns + self.config.rto_ns)
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
