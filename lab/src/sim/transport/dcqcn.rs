// SPDX-License-Identifier: Apache-2.0
//! DCQCN (Zhu et al., SIGCOMM 2015), the congestion control of RoCEv2 cards, over their go-back-N.
//!
//! The congestion point, a switch's marks, is [`Marks`](crate::sim::discipline::Marks); here are
//! the notification point, at the receiver, and the sender around its [`ReactionPoint`]. There is
//! no window: a flow begins at line rate (§3.1), and what keeps packets from being lost is PFC.
//! Packets of a flow keep to one path, as go-back-N wants.

mod reaction;

use super::{Flow, Receiver, Sender, Sent};
use crate::sim::packet::{CONTROL_CLASS, Ecn, Kind, Packet};
use reaction::ReactionPoint;
use std::collections::VecDeque;

/// Parameters, under the paper's names where it has one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DcqcnConfig {
    /// N: time between two notifications of a flow at least, ns (§3.1: 50 µs).
    pub cnp_interval_ns: u64,
    /// g: weight of a notification in α (§5: 1/256).
    pub gain: f64,
    /// K: time without a notification after which α is lowered, ns (§3.1: 55 µs).
    pub alpha_timer_ns: u64,
    /// T: time between two increases by the timer, ns (§5: 55 µs).
    pub timer_ns: u64,
    /// B: bytes between two increases by the byte counter (§5: 10 MB).
    pub byte_counter: u64,
    /// F: increases of fast recovery (§3.1: 5).
    pub fast_recovery: u32,
    /// `R_AI`: step of the additive increase, bit/s (§5: 40 Mbit/s).
    pub increase_bps: u64,
    /// `R_HAI`: step of the hyper increase, bit/s (the paper prints none; 200 Mbit/s in its
    /// authors' simulator).
    pub hyper_increase_bps: u64,
    /// Least rate, bit/s (ours: the paper has none).
    pub min_rate_bps: u64,
    /// Time without an acknowledgement after which the sender goes back, ns (InfiniBand's local ACK
    /// time-out, 4.096 µs · 2^14, usual in cards).
    pub rto_ns: u64,
    /// Whether flows have PFC's priorities by their layers; else all have one.
    pub by_layer: bool,
}

impl Default for DcqcnConfig {
    fn default() -> Self {
        Self {
            cnp_interval_ns: 50_000,
            gain: 1.0 / 256.0,
            alpha_timer_ns: 55_000,
            timer_ns: 55_000,
            byte_counter: 10_000_000,
            fast_recovery: 5,
            increase_bps: 40_000_000,
            hyper_increase_bps: 200_000_000,
            min_rate_bps: 10_000_000,
            rto_ns: 67_108_864,
            by_layer: false,
        }
    }
}

/// The source's end: paced at the reaction point's rate, and sent from the first missing packet on
/// when the receiver says so.
#[derive(Debug)]
pub(super) struct DcqcnSender {
    flow: Flow,
    point: ReactionPoint,
    class: u8,
    packets: u32,
    /// First packet that is not acknowledged, next to send, one behind the last ever sent.
    una: u32,
    next: u32,
    highest: u32,
    pace_ns: u64,
    rto_ns: u64,
    deadline_ns: Option<u64>,
    sent: Sent,
}

impl DcqcnSender {
    pub(super) fn new(flow: Flow, config: DcqcnConfig) -> Self {
        Self {
            point: ReactionPoint::new(flow.rate_bps, config),
            class: if config.by_layer { flow.priority.min(CONTROL_CLASS - 1) } else { 0 },
            packets: flow.packets(),
            una: 0,
            next: 0,
            highest: 0,
            pace_ns: 0,
            rto_ns: config.rto_ns.max(1),
            deadline_ns: None,
            sent: Sent::default(),
            flow,
        }
    }

    /// The receiver has all packets below.
    fn acknowledge(&mut self, now_ns: u64, below: u32) {
        if below > self.una {
            self.una = below.min(self.packets);
            self.next = self.next.max(self.una);
            self.deadline_ns = (self.una < self.next).then(|| now_ns + self.rto_ns);
        }
    }
}

impl Sender for DcqcnSender {
    fn handle_packet(&mut self, now_ns: u64, packet: &Packet) {
        match packet.kind {
            Kind::Cnp => self.point.on_cnp(now_ns),
            Kind::Ack => self.acknowledge(now_ns, packet.number),
            // Go back, unless more is acknowledged by now.
            Kind::Nack => {
                self.acknowledge(now_ns, packet.number);
                if packet.number == self.una {
                    self.next = self.una;
                }
            }
            Kind::Final => self.acknowledge(now_ns, self.packets),
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now_ns: u64) {
        self.point.handle_timeout(now_ns);
        if self.deadline_ns.is_some_and(|deadline| deadline <= now_ns) {
            self.sent.timeouts += 1;
            self.next = self.una;
            self.deadline_ns = Some(now_ns + self.rto_ns);
        }
    }

    fn next_send_ns(&self) -> Option<u64> {
        (self.next < self.packets).then_some(self.pace_ns)
    }

    fn poll_transmit(&mut self, now_ns: u64) -> Option<Packet> {
        if self.next_send_ns()? > now_ns {
            return None;
        }
        let packet = Packet { class: self.class, ..self.flow.data(now_ns, self.next) };
        self.next += 1;
        self.sent.packets += 1;
        self.sent.repairs += u64::from(packet.number < self.highest);
        self.highest = self.highest.max(self.next);
        self.pace_ns = now_ns.max(self.pace_ns) + self.point.time_of_ns(packet.length);
        self.point.on_sent(packet.length);
        if self.deadline_ns.is_none() {
            self.deadline_ns = Some(now_ns + self.rto_ns);
        }
        Some(packet)
    }

    fn poll_timeout(&self) -> Option<u64> {
        [self.deadline_ns, self.point.poll_timeout()].into_iter().flatten().min()
    }

    fn is_done(&self) -> bool {
        self.una >= self.packets
    }

    fn sent(&self) -> Sent {
        self.sent
    }

    fn class(&self) -> u8 {
        self.class
    }

    fn left(&self) -> u32 {
        self.packets - self.una
    }
}

/// The destination's end: packets in their order or not at all, and the notification point (§3.1,
/// fig. 6).
#[derive(Debug)]
pub(super) struct DcqcnReceiver {
    packets: u32,
    expected: u32,
    /// The sender was told to go back, and has not.
    told: bool,
    cnp_interval_ns: u64,
    /// No notification before.
    quiet_until_ns: u64,
}

impl DcqcnReceiver {
    pub(super) fn new(flow: &Flow, config: &DcqcnConfig) -> Self {
        let cnp_interval_ns = config.cnp_interval_ns;
        Self { packets: flow.packets(), expected: 0, told: false, cnp_interval_ns, quiet_until_ns: 0 }
    }
}

impl Receiver for DcqcnReceiver {
    fn handle_packet(&mut self, now_ns: u64, packet: &Packet, out: &mut VecDeque<Packet>) {
        if packet.kind != Kind::Data || packet.is_trimmed() {
            return;
        }
        if packet.ecn == Ecn::Ce && now_ns >= self.quiet_until_ns {
            self.quiet_until_ns = now_ns + self.cnp_interval_ns;
            out.push_back(packet.answer(Kind::Cnp, packet.number));
        }
        if packet.number > self.expected {
            // One request to go back for each gap (InfiniBand, 9.7.5): what follows the gap has
            // left already.
            if !std::mem::replace(&mut self.told, true) {
                out.push_back(packet.answer(Kind::Nack, self.expected));
            }
            return;
        }
        if packet.number == self.expected {
            (self.expected, self.told) = (self.expected + 1, false);
        }
        out.push_back(packet.answer(Kind::Ack, self.expected));
    }

    fn is_complete(&self) -> bool {
        self.expected >= self.packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: u64 = 100_000_000_000;

    fn flow(packets: u64) -> Flow {
        Flow {
            number: 0,
            source: 0,
            destination: 1,
            bytes: packets * 1_000,
            payload: 1_000,
            base_rtt_ns: 10_000,
            rate_bps: LINE,
            hosts: 2,
            foreground: true,
            priority: 3,
            seed: 1,
        }
    }

    fn receive(receiver: &mut DcqcnReceiver, now_ns: u64, number: u32, ecn: Ecn) -> Vec<(Kind, u32)> {
        let mut out = VecDeque::new();
        receiver.handle_packet(now_ns, &Packet { ecn, ..Packet::data(0, number, 1_062) }, &mut out);
        out.iter().map(|packet| (packet.kind, packet.number)).collect()
    }

    #[test]
    fn marks_of_50_us_make_one_notification() {
        let mut receiver = DcqcnReceiver::new(&flow(1_000), &DcqcnConfig::default());
        // A marked packet every 1 µs from 7 µs on.
        let times = (0..200_u32).filter(|&number| {
            let came = receive(&mut receiver, u64::from(number) * 1_000 + 7_000, number, Ecn::Ce);
            came.iter().any(|(kind, _)| *kind == Kind::Cnp)
        });
        assert_eq!(times.collect::<Vec<u32>>(), [0, 50, 100, 150]);
    }

    #[test]
    fn packets_behind_a_gap_are_lost_and_told_once() {
        let mut receiver = DcqcnReceiver::new(&flow(10), &DcqcnConfig::default());
        let mut came = |number| receive(&mut receiver, 0, number, Ecn::Ect);
        assert_eq!(came(0), [(Kind::Ack, 1)]);
        assert_eq!((came(2), came(3)), (vec![(Kind::Nack, 1)], vec![]));
        assert_eq!((came(1), came(3)), (vec![(Kind::Ack, 2)], vec![(Kind::Nack, 2)]));
        // What came twice is acknowledged again.
        assert_eq!(came(0), [(Kind::Ack, 2)]);
        assert!(!receiver.is_complete());
    }

    #[test]
    fn a_sender_goes_back_to_what_is_missing_and_by_itself_after_its_time_out() {
        let mut sender = DcqcnSender::new(flow(10), DcqcnConfig::default());
        let send = |sender: &mut DcqcnSender| {
            let packet = sender.poll_transmit(sender.next_send_ns()?);
            packet.map(|packet| packet.number)
        };
        assert_eq!([0; 4].map(|_| send(&mut sender)), [Some(0), Some(1), Some(2), Some(3)]);
        let answer = |kind, number| Packet::data(0, 0, 1_062).answer(kind, number);
        sender.handle_packet(5_000, &answer(Kind::Nack, 1));
        assert_eq!((send(&mut sender), sender.left()), (Some(1), 9));
        // An older request says nothing new.
        sender.handle_packet(5_100, &answer(Kind::Ack, 3));
        sender.handle_packet(5_200, &answer(Kind::Nack, 1));
        assert_eq!(send(&mut sender), Some(3));
        let timeout = sender.poll_timeout().unwrap();
        // It left when five frames of 85 ns had.
        assert_eq!(timeout, 5 * 85 + 67_108_864);
        sender.handle_timeout(timeout);
        assert_eq!((send(&mut sender), sender.sent().timeouts), (Some(3), 1));
        // 1, 3 and 3 again.
        assert_eq!(sender.sent().repairs, 3);
    }

    #[test]
    fn packets_leave_as_far_apart_as_the_rate_says() {
        let mut sender = DcqcnSender::new(flow(10), DcqcnConfig::default());
        sender.handle_packet(0, &Packet::data(0, 0, 1_062).answer(Kind::Cnp, 0));
        // α is 1 at first: half of the line rate.
        sender.poll_transmit(1_000).unwrap();
        assert_eq!(sender.next_send_ns(), Some(1_000 + 1_062 * 8 / 50 + 1));
        assert!(sender.poll_transmit(1_100).is_none());
    }

    #[test]
    fn layers_have_priorities_where_they_are_asked_for() {
        let classes = [false, true].map(|by_layer| {
            let mut sender = DcqcnSender::new(flow(1), DcqcnConfig { by_layer, ..DcqcnConfig::default() });
            (sender.class(), sender.poll_transmit(0).unwrap().class)
        });
        assert_eq!(classes, [(0, 0), (3, 3)]);
    }
}
