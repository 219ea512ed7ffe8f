// SPDX-License-Identifier: Apache-2.0
//! Swift (Kumar et al., SIGCOMM 2020): a window that aims at a delay.
//!
//! Each packet is acknowledged with the time at which it left, so that its delay is exact, as cards' timestamps have it. Hosts here take no time of their own: there is no endpoint
//! delay, and no second window for it (§3.3). A packet is lost when three that left after it have arrived, as its path keeps their order, or after a time-out.

mod window;

use super::board::Board;
use super::{Flow, Sender, Sent};
use crate::sim::packet::{Kind, Packet};
use std::collections::VecDeque;
use trimwire_agent::rtt::RttEstimator;
use window::Window;

/// Later packets that tell a loss.
const REORDERING: u64 = 3;

/// Parameters. The paper prints few values; where none is named, the default is the one of Broadcom's htsim, which calls them guesses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SwiftConfig {
    /// ai: packets added in a round trip.
    pub increase: f64,
    /// β: how much of the excess delay lowers the window.
    pub beta: f64,
    /// `max_mdf`: share of the window that a decrease takes at most.
    pub max_decrease: f64,
    /// Base of the target delay, ns.
    pub base_target_ns: u64,
    /// ħ: added for every switch on the way, ns.
    pub hop_ns: u64,
    /// `fs_range`: added for the smallest windows, ns.
    pub scaling_ns: u64,
    /// `fs_min_cwnd` and `fs_max_cwnd`: windows that get all of it and none, packets (§3.5: 0.1 and 100).
    pub scaling_windows: [f64; 2],
    /// First window, packets (ours: DCTCP's).
    pub initial_window: u32,
    /// Least and most, packets (ours for the least: a packet in a thousand round trips).
    pub min_window: f64,
    /// See the least.
    pub max_window: f64,
    /// `RETX_RESET_THRESHOLD`: time-outs in a row after which the window is the least.
    pub reset_after: u32,
    /// Least time-out, ns (ours).
    pub rto_min_ns: u64,
}

impl Default for SwiftConfig {
    fn default() -> Self {
        Self {
            increase: 1.0,
            beta: 0.8,
            max_decrease: 0.5,
            base_target_ns: 20_000,
            hop_ns: 3_000,
            scaling_ns: 100_000,
            scaling_windows: [0.1, 100.0],
            initial_window: 10,
            min_window: 0.001,
            max_window: 1_000.0,
            reset_after: 5,
            rto_min_ns: 1_000_000,
        }
    }
}

/// A packet's newest copy: how many packets had left when it did, from 1, and when that was. Zeros: its fate is known.
type Departure = (u64, u64);

/// The source's end.
#[derive(Debug)]
pub(super) struct SwiftSender {
    flow: Flow,
    window: Window,
    rto_min_ns: u64,
    packets: u32,
    next: u32,
    again: VecDeque<u32>,
    acknowledged: Board,
    in_flight: u32,
    copies: Vec<Departure>,
    /// In the order in which they left; some are known.
    flying: VecDeque<(Departure, u32)>,
    /// The latest copy that has arrived.
    newest: u64,
    rtt: RttEstimator,
    left_ns: u64,
    /// The last time-out.
    timed_out_ns: u64,
    sent: Sent,
}

impl SwiftSender {
    pub(super) fn new(flow: Flow, config: SwiftConfig) -> Self {
        let packets = flow.packets();
        let mut rtt = RttEstimator::default();
        rtt.sample(flow.base_rtt_ns);
        Self {
            window: Window::new(config, flow.hops),
            rto_min_ns: config.rto_min_ns.max(1),
            packets,
            next: 0,
            again: VecDeque::new(),
            acknowledged: Board::new(packets),
            in_flight: 0,
            copies: vec![(0, 0); packets as usize],
            flying: VecDeque::new(),
            newest: 0,
            rtt,
            left_ns: 0,
            timed_out_ns: 0,
            sent: Sent::default(),
            flow,
        }
    }

    fn rtt_ns(&self) -> u64 {
        self.rtt.smoothed_ns().unwrap_or(self.flow.base_rtt_ns)
    }

    fn rto_ns(&self) -> u64 {
        self.rtt.timeout_ns().unwrap_or(0).max(self.rto_min_ns)
    }

    /// Forgets the oldest packets as far as their fate is known.
    fn land(&mut self) {
        while let Some(&(copy, number)) = self.flying.front()
            && self.copies[number as usize] != copy
        {
            self.flying.pop_front();
        }
    }

    /// The oldest packet of which nothing is known is lost.
    fn lose(&mut self) {
        if let Some((_, number)) = self.flying.pop_front() {
            self.copies[number as usize] = (0, 0);
            self.in_flight -= 1;
            self.again.push_back(number);
        }
        self.land();
    }

    fn acknowledge(&mut self, now_ns: u64, packet: &Packet) {
        let Some(copy) = self.copies.get_mut(packet.number as usize) else { return };
        let delay_ns = now_ns.saturating_sub(packet.sent_ns);
        self.rtt.sample(delay_ns);
        if copy.0 != 0 {
            // An older copy tells nothing of the order of this one.
            if copy.1 == packet.sent_ns {
                self.newest = self.newest.max(copy.0);
            }
            *copy = (0, 0);
            self.in_flight -= 1;
        }
        self.acknowledged.insert(packet.number);
        self.again.retain(|&number| number != packet.number);
        let rtt_ns = self.rtt_ns();
        self.window.on_ack(now_ns, delay_ns, rtt_ns);
        self.land();
        while self.flying.front().is_some_and(|((order, _), _)| order + REORDERING <= self.newest) {
            self.lose();
            self.window.on_loss(now_ns, rtt_ns);
        }
    }
}

impl Sender for SwiftSender {
    fn handle_packet(&mut self, now_ns: u64, packet: &Packet) {
        match packet.kind {
            Kind::Ack => self.acknowledge(now_ns, packet),
            Kind::Final => (0..self.packets).for_each(|number| {
                self.acknowledged.insert(number);
            }),
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now_ns: u64) {
        if self.poll_timeout().is_none_or(|timeout| timeout > now_ns) {
            return;
        }
        self.sent.timeouts += 1;
        let (rtt_ns, rto_ns) = (self.rtt_ns(), self.rto_ns());
        while self.flying.front().is_some_and(|((_, sent_ns), _)| sent_ns + rto_ns <= now_ns) {
            self.lose();
        }
        // One time-out of a flow, however many packets it has lost.
        self.timed_out_ns = now_ns;
        self.window.on_timeout(now_ns, rtt_ns);
    }

    fn next_send_ns(&self) -> Option<u64> {
        if self.again.is_empty() && self.next >= self.packets {
            return None;
        }
        match self.window.pace_ns(self.rtt_ns()) {
            Some(pace_ns) => Some(self.left_ns.saturating_add(pace_ns)),
            None => (f64::from(self.in_flight) + 1.0 <= self.window.packets()).then_some(0),
        }
    }

    fn poll_transmit(&mut self, now_ns: u64) -> Option<Packet> {
        if self.next_send_ns()? > now_ns {
            return None;
        }
        let number = if let Some(number) = self.again.pop_front() {
            self.sent.repairs += 1;
            number
        } else {
            self.next += 1;
            self.next - 1
        };
        self.sent.packets += 1;
        let copy = (self.sent.packets, now_ns);
        self.copies[number as usize] = copy;
        self.flying.push_back((copy, number));
        self.land();
        self.in_flight += 1;
        self.left_ns = now_ns;
        Some(self.flow.data(now_ns, number))
    }

    fn poll_timeout(&self) -> Option<u64> {
        self.flying.front().map(|((_, sent_ns), _)| (*sent_ns).max(self.timed_out_ns) + self.rto_ns())
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

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 10_000;

    fn sender(packets: u64, initial_window: u32) -> SwiftSender {
        let flow = Flow {
            number: 0,
            source: 0,
            destination: 1,
            bytes: packets * 1_000,
            payload: 1_000,
            base_rtt_ns: BASE,
            hops: 1,
            rate_bps: 100_000_000_000,
            hosts: 2,
            foreground: true,
            priority: 0,
            seed: 1,
        };
        SwiftSender::new(flow, SwiftConfig { initial_window, ..SwiftConfig::default() })
    }

    /// All that the window lets out, a microsecond apart.
    fn send(sender: &mut SwiftSender, mut now_ns: u64) -> Vec<Packet> {
        let mut sent = Vec::new();
        while sender.next_send_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            sent.extend(sender.poll_transmit(now_ns));
            now_ns += 1_000;
        }
        sent
    }

    #[test]
    fn a_window_of_packets_leaves_and_each_acknowledgement_lets_one_out() {
        let mut sender = sender(100, 4);
        let first = send(&mut sender, 0);
        assert_eq!(first.len(), 4);
        sender.handle_packet(BASE, &first[0].answer(Kind::Ack, 0));
        assert_eq!(send(&mut sender, BASE).len(), 1);
    }

    #[test]
    fn a_packet_is_lost_when_three_later_ones_have_arrived_and_the_window_halves_once() {
        let mut sender = sender(100, 8);
        let first = send(&mut sender, 0);
        // 0 and 1 are missing.
        for (at, acknowledged) in first.iter().enumerate().skip(2) {
            let before = sender.again.len();
            sender.handle_packet(BASE + at as u64, &acknowledged.answer(Kind::Ack, acknowledged.number));
            assert_eq!(sender.again.len() - before, usize::from(at == 3 || at == 4), "{at}");
        }
        assert!((4.0..5.5).contains(&sender.window.packets()), "{}", sender.window.packets());
        let again: Vec<u32> = send(&mut sender, 2 * BASE).iter().map(|packet| packet.number).collect();
        assert_eq!(again[..2], [0, 1]);
    }

    #[test]
    fn windows_below_one_are_paced_by_a_round_trip_over_the_window() {
        let mut sender = sender(100, 1);
        let first = send(&mut sender, 0);
        // 2 ms are far beyond any target: half of a packet.
        sender.handle_packet(2_000_000, &first[0].answer(Kind::Ack, 0));
        assert!((sender.window.packets() - 0.5).abs() < 1e-9);
        let due = sender.next_send_ns().unwrap();
        assert_eq!(due, 2 * sender.rtt_ns());
        assert!(sender.poll_transmit(due - 1).is_none() && sender.poll_transmit(due).is_some());
    }

    #[test]
    fn what_nobody_acknowledges_goes_again_after_the_time_out() {
        let mut sender = sender(1, 1);
        send(&mut sender, 0);
        let timeout = sender.poll_timeout().unwrap();
        assert_eq!(timeout, 1_000_000);
        sender.handle_timeout(timeout);
        let sent = send(&mut sender, timeout + 1_000_000);
        assert_eq!((sent.len(), sender.sent().timeouts, sender.sent().repairs), (1, 1, 1));
        sender.handle_packet(timeout + 2_000_000, &sent[0].answer(Kind::Ack, 0));
        assert!(sender.is_done());
    }
}
