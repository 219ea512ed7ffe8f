// SPDX-License-Identifier: Apache-2.0
//! NDP (SIGCOMM 2017, §3.2): a first window at line rate, then a packet for every pull; headers
//! that switches return (§3.2.4).

use super::board::Board;
use super::{Flow, NdpConfig, Receiver, Sender, Sent};
use crate::sim::packet::{Kind, Packet, Trimming};
use crate::sim::random::mix;
use std::collections::{BTreeMap, VecDeque};

const RTO_NS: u64 = 1_000_000;

fn first_window(flow: &Flow, config: &NdpConfig) -> u32 {
    config.initial_window.unwrap_or_else(|| flow.window()).clamp(1, flow.packets())
}

/// Pulls: what the receiver asks for, and what the sender expects it to, by the same arithmetic.
#[derive(Debug)]
struct Pulls {
    /// What the sender may send and has to send: its first window and pulls; its packets, heads and
    /// returned ones once more.
    allowed: u32,
    needed: u32,
}

impl Pulls {
    /// Pulls that answer a packet: one, and one more for each time that it was returned before it
    /// came.
    fn answer(&mut self, trimmed: bool, returns: u32) -> u32 {
        self.needed += u32::from(trimmed) + returns;
        let pulls = (1 + returns).min(self.needed.saturating_sub(self.allowed));
        self.allowed += pulls;
        pulls
    }
}

/// Packets that were trimmed wait for a pull; pulls are answered by these first, then by the rest
/// of the flow.
#[derive(Debug)]
pub(super) struct NdpSender {
    flow: Flow,
    packets: u32,
    next: u32,
    /// Packets that may leave.
    credit: u32,
    again: VecDeque<u32>,
    acknowledged: Board,
    /// Packets of which nothing was heard since they were returned, and how often they were.
    returned: BTreeMap<u32, u32>,
    pulls: Pulls,
    /// Pulls that are on their way.
    expected: u32,
    /// Packets of which nothing was heard, by the time at which they left, and others behind the
    /// first of them.
    flying: VecDeque<(u64, u32)>,
    /// When the newest copy of a packet left, plus one; 0 when its fate is known.
    left_ns: Vec<u64>,
    rto_ns: u64,
    /// When something was last heard or sent.
    active_ns: u64,
    sent: Sent,
}

impl NdpSender {
    pub(super) fn new(flow: Flow, config: NdpConfig) -> Self {
        let packets = flow.packets();
        Self {
            packets,
            next: 0,
            credit: first_window(&flow, &config),
            again: VecDeque::new(),
            acknowledged: Board::new(packets),
            returned: BTreeMap::new(),
            pulls: Pulls { allowed: first_window(&flow, &config), needed: packets },
            expected: 0,
            flying: VecDeque::new(),
            left_ns: vec![0; packets as usize],
            rto_ns: config.rto_ns.unwrap_or(RTO_NS),
            active_ns: 0,
            sent: Sent::default(),
            flow,
        }
    }

    /// A pull that was lost leaves nothing on its way and nothing that may leave; pulls have no
    /// numbers here, so one packet goes after a time-out.
    fn is_stuck(&self) -> bool {
        self.credit == 0 && self.flying.is_empty() && !self.acknowledged.is_full()
    }

    /// Forgets the oldest packets as far as their fate is known.
    fn land(&mut self) {
        while let Some(&(sent_ns, number)) = self.flying.front()
            && !self.is_flying(sent_ns, number)
        {
            self.flying.pop_front();
        }
    }

    fn is_flying(&self, sent_ns: u64, number: u32) -> bool {
        self.left_ns[number as usize] == sent_ns + 1
    }

    /// A header that a switch returned: its packet leaves again, before others.
    fn take_back(&mut self, number: u32) {
        if self.settle(number) && !self.acknowledged.has(number) {
            self.again.push_front(number);
            *self.returned.entry(number).or_default() += 1;
        }
    }

    /// An answer tells of as many pulls as the receiver makes of the packet.
    fn expect(&mut self, number: u32, trimmed: bool) {
        let returns = self.returned.remove(&number).unwrap_or(0);
        self.expected += self.pulls.answer(trimmed, returns);
    }

    fn settle(&mut self, number: u32) -> bool {
        self.left_ns.get_mut(number as usize).is_some_and(|left| std::mem::take(left) != 0)
    }
}

impl Sender for NdpSender {
    fn handle_packet(&mut self, now_ns: u64, packet: &Packet) {
        self.active_ns = now_ns;
        match packet.kind {
            Kind::Ack => {
                self.settle(packet.number);
                self.acknowledged.insert(packet.number);
                self.expect(packet.number, false);
            }
            Kind::Nack => {
                let awaited = self.settle(packet.number);
                self.expect(packet.number, true);
                if awaited && !self.acknowledged.has(packet.number) {
                    self.again.push_back(packet.number);
                }
            }
            Kind::Pull => {
                self.credit += 1;
                self.expected = self.expected.saturating_sub(1);
            }
            Kind::Returned => self.take_back(packet.number),
            Kind::Final => (0..self.packets).for_each(|number| {
                self.acknowledged.insert(number);
            }),
            _ => {}
        }
        self.land();
        // §3.2.4: who resends at once makes a second incast, so what was returned waits for pulls,
        // unless none is expected any more.
        let alone = self.credit == 0 && self.expected == 0 && self.flying.is_empty();
        if alone && self.again.iter().any(|number| self.returned.contains_key(number)) {
            self.credit = 1;
        }
    }

    fn handle_timeout(&mut self, now_ns: u64) {
        if self.is_stuck() && self.active_ns + self.rto_ns <= now_ns {
            self.active_ns = now_ns;
            self.credit = 1;
            self.sent.timeouts += 1;
        }
        while let Some(&(sent_ns, number)) = self.flying.front() {
            let flies = self.is_flying(sent_ns, number);
            if flies && sent_ns + self.rto_ns > now_ns {
                break;
            }
            self.flying.pop_front();
            if flies {
                // Its pull was lost with it, so it goes without one.
                self.left_ns[number as usize] = 0;
                self.again.push_front(number);
                self.credit += 1;
                self.sent.timeouts += 1;
            }
        }
        self.land();
    }

    fn next_send_ns(&self) -> Option<u64> {
        (self.credit > 0 && (!self.again.is_empty() || self.next < self.packets)).then_some(0)
    }

    fn poll_transmit(&mut self, now_ns: u64) -> Option<Packet> {
        self.next_send_ns()?;
        self.credit -= 1;
        let number = if let Some(number) = self.again.pop_front() {
            self.sent.repairs += 1;
            number
        } else {
            self.next += 1;
            self.next - 1
        };
        self.flying.push_back((now_ns, number));
        self.left_ns[number as usize] = now_ns + 1;
        // An older copy of the packet may be the first.
        self.land();
        self.sent.packets += 1;
        // §3.1: the sender chooses a path for each packet.
        let entropy = mix(self.flow.seed ^ self.sent.packets) as u16;
        let rank = self.returned.get(&number).copied().unwrap_or(0);
        Some(Packet { entropy, rank, trimming: Trimming::Trimmable, ..self.flow.data(now_ns, number) })
    }

    fn poll_timeout(&self) -> Option<u64> {
        let stuck = self.is_stuck().then_some(self.active_ns + self.rto_ns);
        self.flying.front().map(|(sent_ns, _)| sent_ns + self.rto_ns).or(stuck)
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

/// Every packet is answered, and asks for a pull as long as the flow has packets that were not
/// pulled; the host spaces pulls by its line.
#[derive(Debug)]
pub(super) struct NdpReceiver {
    board: Board,
    pulls: Pulls,
}

impl NdpReceiver {
    pub(super) fn new(flow: &Flow, config: &NdpConfig) -> Self {
        let packets = flow.packets();
        let pulls = Pulls { allowed: first_window(flow, config), needed: packets };
        Self { board: Board::new(packets), pulls }
    }
}

impl Receiver for NdpReceiver {
    fn handle_packet(&mut self, _: u64, packet: &Packet, out: &mut VecDeque<Packet>) {
        if packet.kind != Kind::Data {
            return;
        }
        if packet.is_trimmed() {
            out.push_back(packet.answer(Kind::Nack, packet.number));
        } else {
            self.board.insert(packet.number);
            out.push_back(packet.answer(Kind::Ack, packet.number));
        }
        for _ in 0..self.pulls.answer(packet.is_trimmed(), packet.rank) {
            out.push_back(packet.answer(Kind::Pull, packet.number));
        }
    }

    fn is_complete(&self) -> bool {
        self.board.is_full()
    }
}
