// SPDX-License-Identifier: Apache-2.0
//! MLT (NSDI 2024, §4.2.3): a bound on what may be lost, a probe when everything has left, and what
//! the answer lacks again at once.
//!
//! ```text
//!  sender    all packets, paced ─► probe ─────► what the bitmap lacks ─► probe ─► …
//!  receiver  an ACK every ten packets           bitmap                   stop, as soon as 1 − p of the packets are there
//! ```
//!
//! Stops, probes and bitmaps go over a reliable channel in a queue of their own (§5.1), so a probe
//! may overtake data that still waits in switches: that is resent, too.

use super::board::Board;
use super::planes::WHOLE;
use super::{Flow, Receiver, Sender, Sent};
use crate::sim::packet::{CONTROL, CONTROL_CLASS, Ecn, Kind, Packet, Report};
use crate::sim::random::mix;
use std::collections::VecDeque;

/// §4.2.3: the receiver sends one ACK for every ten data packets that arrive.
const ACK_EVERY: u32 = 10;
/// TIMELY's weight of the newest difference of round trips (SIGCOMM 2015, §4.3).
const GRADIENT_WEIGHT: f64 = 0.875;

/// The paper's constants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MltConfig {
    /// The loss-tolerant bound p (§6.1.1: 10 %).
    pub loss: f64,
    /// Below this round-trip time the rate rises, ns.
    pub t_low_ns: u64,
    /// Above this one it falls, ns.
    pub t_high_ns: u64,
    /// What a rise adds, bit/s.
    pub increase_bps: u64,
    /// Strength of a fall.
    pub beta: f64,
    /// TIMELY's algorithm 1 as a whole: between the two times the rate falls by the gradient, and
    /// above the second one it does so whatever the gradient.
    pub gradient: bool,
    /// Share of the packets that carry large gradients, tagged ECN-capable (§5.2).
    pub important: f64,
    /// A path for each packet (§4.2.1), and not for each flow.
    pub spray: bool,
    /// A control packet of which nothing was heard is sent again after this, ns (§6.1.1: the
    /// testbed's time-out of TCP).
    pub control_rto_ns: u64,
}

impl Default for MltConfig {
    fn default() -> Self {
        Self {
            loss: 0.1,
            t_low_ns: 12_500,
            t_high_ns: 125_000,
            increase_bps: 40_000_000,
            beta: 0.8,
            gradient: false,
            important: 0.5,
            spray: true,
            control_rto_ns: 1_000_000,
        }
    }
}

/// Minimal rate control: the rate begins at the line's, and every ACK changes it. Losses do not.
#[derive(Debug)]
struct Rate {
    config: MltConfig,
    line_bps: f64,
    bps: f64,
    least_ns: f64,
    before_ns: Option<u64>,
    difference_ns: f64,
}

impl Rate {
    fn new(config: MltConfig, line_bps: u64, base_rtt_ns: u64) -> Self {
        let line_bps = line_bps.max(1) as f64;
        let least_ns = base_rtt_ns.max(1) as f64;
        Self { config, line_bps, bps: line_bps, least_ns, before_ns: None, difference_ns: 0.0 }
    }

    fn on_rtt(&mut self, rtt_ns: u64) {
        let MltConfig { t_low_ns, t_high_ns, increase_bps, beta, gradient, .. } = self.config;
        let newest_ns = self.before_ns.replace(rtt_ns).map_or(0.0, |before| rtt_ns as f64 - before as f64);
        self.difference_ns += GRADIENT_WEIGHT * (newest_ns - self.difference_ns);
        let excess = beta * (1.0 - t_high_ns as f64 / rtt_ns.max(1) as f64);
        if gradient {
            // TIMELY's order of the four cases.
            let gradient = self.difference_ns / self.least_ns;
            if rtt_ns < t_low_ns {
                self.bps += increase_bps as f64;
            } else if rtt_ns > t_high_ns {
                self.bps *= 1.0 - excess;
            } else if gradient <= 0.0 {
                self.bps += increase_bps as f64;
            } else {
                self.bps *= 1.0 - (beta * gradient).min(beta);
            }
        } else if rtt_ns < t_low_ns || newest_ns < 0.0 {
            self.bps += increase_bps as f64;
        } else if rtt_ns > t_high_ns {
            self.bps *= 1.0 - excess;
        }
        // The paper has no least rate; one rise is the least that a flow can come back from.
        self.bps = self.bps.clamp((increase_bps as f64).min(self.line_bps), self.line_bps);
    }

    fn time_of_ns(&self, bytes: u32) -> u64 {
        (f64::from(bytes) * 8e9 / self.bps) as u64
    }
}

/// What the sender has asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Probe {
    /// Nothing: this round's packets have yet to leave.
    None,
    /// It leaves next.
    Due,
    /// There is no answer; it is asked again at this time.
    Open(u64),
}

/// The source's end.
#[derive(Debug)]
pub(super) struct MltSender {
    flow: Flow,
    config: MltConfig,
    rate: Rate,
    /// When the pacer lets the next packet go.
    pace_ns: u64,
    /// Packets that leave in this round: all that did not yet, then those that an answer lacked.
    next: u32,
    missing: VecDeque<u32>,
    /// Of the probe: an answer to an earlier one is stale.
    round: u32,
    probe: Probe,
    done: bool,
    sent: Sent,
}

impl MltSender {
    pub(super) fn new(flow: Flow, config: MltConfig) -> Self {
        Self {
            rate: Rate::new(config, flow.rate_bps, flow.base_rtt_ns),
            pace_ns: 0,
            next: 0,
            missing: VecDeque::new(),
            round: 0,
            probe: Probe::None,
            done: false,
            sent: Sent::default(),
            flow,
            config,
        }
    }

    fn round_is_over(&self) -> bool {
        self.next == self.flow.packets() && self.missing.is_empty()
    }

    fn ask(&mut self, now_ns: u64) -> Packet {
        self.probe = Probe::Open(now_ns + self.config.control_rto_ns);
        let probe = Packet { kind: Kind::Probe, length: CONTROL, ..self.flow.data(now_ns, self.round) };
        Packet { class: CONTROL_CLASS, ..probe }
    }
}

impl Sender for MltSender {
    fn handle_packet(&mut self, now_ns: u64, packet: &Packet) {
        match packet.kind {
            Kind::Ack => self.rate.on_rtt(now_ns.saturating_sub(packet.sent_ns)),
            Kind::Status if matches!(self.probe, Probe::Open(_)) && packet.number == self.round => {
                let missing = packet.reports.as_deref().map_or(&[][..], Vec::as_slice);
                self.missing = missing.iter().map(|report| report.number).collect();
                self.round = self.round.wrapping_add(1);
                self.probe = if self.missing.is_empty() { Probe::Due } else { Probe::None };
            }
            Kind::Final => self.done = true,
            _ => {}
        }
    }

    fn handle_timeout(&mut self, now_ns: u64) {
        if matches!(self.probe, Probe::Open(again_ns) if again_ns <= now_ns) {
            self.probe = Probe::Due;
            self.sent.timeouts += 1;
        }
    }

    fn next_send_ns(&self) -> Option<u64> {
        match self.probe {
            _ if self.done => None,
            Probe::Due => Some(0),
            Probe::Open(_) => None,
            Probe::None => Some(self.pace_ns),
        }
    }

    fn poll_transmit(&mut self, now_ns: u64) -> Option<Packet> {
        if self.next_send_ns()? > now_ns {
            return None;
        }
        if self.probe == Probe::Due {
            return Some(self.ask(now_ns));
        }
        let number = if self.next < self.flow.packets() {
            self.next += 1;
            self.next - 1
        } else {
            self.sent.repairs += 1;
            self.missing.pop_front()?
        };
        self.sent.packets += 1;
        let packet = self.flow.data(now_ns, number);
        self.pace_ns = now_ns.max(self.pace_ns) + self.rate.time_of_ns(packet.length);
        if self.round_is_over() {
            self.probe = Probe::Due;
        }
        // Magnitudes have no order in a message: which packets are important is drawn.
        let draw = mix(self.flow.seed ^ u64::from(number)) as f64 / u64::MAX as f64;
        let entropy = if self.config.spray { mix(self.flow.seed ^ self.sent.packets) as u16 } else { 0 };
        Some(Packet {
            entropy,
            class: self.flow.priority.min(CONTROL_CLASS - 1),
            ecn: if draw < self.config.important { Ecn::Ect } else { Ecn::NotEct },
            ..packet
        })
    }

    fn poll_timeout(&self) -> Option<u64> {
        match self.probe {
            Probe::Open(again_ns) if !self.done => Some(again_ns),
            _ => None,
        }
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn sent(&self) -> Sent {
        self.sent
    }

    fn left(&self) -> u32 {
        self.flow.packets() - self.next + self.missing.len() as u32
    }
}

/// The destination's end.
#[derive(Debug)]
pub(super) struct MltReceiver {
    board: Board,
    packets: u32,
    /// Packets that may be missing.
    bound: u32,
    arrived: u32,
    planes: Vec<u8>,
}

impl MltReceiver {
    pub(super) fn new(flow: &Flow, config: &MltConfig) -> Self {
        let packets = flow.packets();
        let bound = (config.loss * f64::from(packets)) as u32;
        Self { board: Board::new(packets), packets, bound, arrived: 0, planes: vec![0; packets as usize] }
    }

    /// The bitmap: a bit a packet on the line; here, a list of those that are missing.
    fn status(&self, probe: &Packet) -> Packet {
        let missing = (0..self.packets).filter(|&number| !self.board.has(number));
        let reports = missing.map(|number| Report {
            number,
            planes: 0,
            trimmed: false,
            marked: false,
            entropy: 0,
            held_ns: 0,
            sent_ns: 0,
        });
        let length = CONTROL + self.packets.div_ceil(8);
        Packet {
            length,
            reports: Some(Box::new(reports.collect())),
            ..probe.answer(Kind::Status, probe.number)
        }
    }
}

impl Receiver for MltReceiver {
    fn handle_packet(&mut self, _: u64, packet: &Packet, out: &mut VecDeque<Packet>) {
        match packet.kind {
            Kind::Data => {
                self.arrived += 1;
                if self.board.insert(packet.number) {
                    self.planes[packet.number as usize] = WHOLE;
                }
                if self.is_complete() {
                    out.push_back(packet.answer(Kind::Final, packet.number));
                } else if self.arrived.is_multiple_of(ACK_EVERY) {
                    out.push_back(packet.answer(Kind::Ack, packet.number));
                }
            }
            Kind::Probe => out.push_back(self.status(packet)),
            _ => {}
        }
    }

    fn is_complete(&self) -> bool {
        self.packets - self.board.held() <= self.bound
    }

    fn share_kept(&self) -> f64 {
        f64::from(self.board.held()) / f64::from(self.packets)
    }

    fn planes(&self) -> &[u8] {
        &self.planes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAYLOAD: u32 = 1_000;

    fn flow(packets: u32) -> Flow {
        Flow {
            number: 0,
            source: 0,
            destination: 1,
            bytes: u64::from(packets * PAYLOAD),
            payload: PAYLOAD,
            base_rtt_ns: 10_000,
            rate_bps: 10_000_000_000,
            hosts: 2,
            foreground: true,
            priority: 0,
            seed: 1,
        }
    }

    #[test]
    fn the_rule_is_the_papers() {
        let mut rate = Rate::new(MltConfig::default(), 10_000_000_000, 10_000);
        let mut hear = |rtt_us: u64| {
            rate.on_rtt(rtt_us * 1_000);
            rate.bps.round() as u64
        };
        assert_eq!(hear(10), 10_000_000_000);
        // 1 − 0.8 (1 − 125 / 250) = 0.6.
        assert_eq!(hear(250), 6_000_000_000);
        assert_eq!(hear(100), 6_040_000_000);
        assert_eq!(hear(110), 6_040_000_000);
        assert_eq!(hear(10), 6_080_000_000);
    }

    #[test]
    fn with_timelys_gradient_the_rate_falls_as_round_trips_rise() {
        let config = MltConfig { gradient: true, ..MltConfig::default() };
        let mut rate = Rate::new(config, 10_000_000_000, 20_000);
        rate.on_rtt(40_000);
        assert_eq!(rate.bps, 1e10, "one round trip has no gradient");
        rate.on_rtt(44_000);
        // 0.875 · 4 µs over the least round trip of 20 µs; 1 − 0.8 · 0.175.
        assert!((rate.bps / 1e10 - 0.86).abs() < 1e-9, "{}", rate.bps);
        // TIMELY falls above T_high even as round trips get shorter; the printed rule rises there.
        rate.on_rtt(250_000);
        let before = rate.bps;
        rate.on_rtt(240_000);
        assert!(rate.bps < before);
    }

    /// Packets that leave until there is nothing to send, 1 µs apart at most.
    fn leave(sender: &mut MltSender, now_ns: &mut u64) -> Vec<Packet> {
        let mut left = Vec::new();
        while let Some(at_ns) = sender.next_send_ns() {
            *now_ns = (*now_ns).max(at_ns);
            left.extend(sender.poll_transmit(*now_ns));
        }
        left
    }

    #[test]
    fn a_probe_follows_the_last_packet_and_what_its_answer_lacks_leaves_at_once() {
        let (flow, config) = (flow(40), MltConfig::default());
        let (mut sender, mut receiver) = (MltSender::new(flow, config), MltReceiver::new(&flow, &config));
        let (mut now_ns, mut out) = (0, VecDeque::new());
        let first = leave(&mut sender, &mut now_ns);
        assert_eq!((first.len(), first[40].kind), (41, Kind::Probe));
        // Five of forty are lost, and four may be.
        let lost = [3, 11, 12, 30, 39];
        for packet in
            first.iter().filter(|packet| packet.kind == Kind::Probe || !lost.contains(&packet.number))
        {
            receiver.handle_packet(now_ns, packet, &mut out);
        }
        // An ACK of every ten of 35, and the bitmap.
        let kinds: Vec<Kind> = out.iter().map(|packet| packet.kind).collect();
        assert_eq!(kinds, [Kind::Ack, Kind::Ack, Kind::Ack, Kind::Status]);
        assert_eq!(out[3].length, CONTROL + 5);
        assert!(sender.next_send_ns().is_none() && !receiver.is_complete());
        out.drain(..).for_each(|packet| sender.handle_packet(now_ns, &packet));
        let at_ns = now_ns;
        let again = leave(&mut sender, &mut now_ns);
        assert_eq!(again[..5].iter().map(|packet| packet.number).collect::<Vec<_>>(), lost);
        assert_eq!(again[5].kind, Kind::Probe);
        // Paced at the line's rate, and nothing is waited for.
        assert!(now_ns - at_ns < 5 * 1_000, "{} ns", now_ns - at_ns);
        // The first of them is enough.
        receiver.handle_packet(now_ns, &again[0], &mut out);
        assert!(receiver.is_complete() && out[0].kind == Kind::Final);
        assert_eq!(receiver.share_kept(), 0.9);
        sender.handle_packet(now_ns, &out[0]);
        assert!(sender.is_done() && sender.sent().repairs == 5);
    }

    #[test]
    fn a_lost_probe_or_a_lost_answer_is_asked_for_again_and_a_stale_answer_is_not_taken() {
        let (flow, config) = (flow(10), MltConfig { loss: 0.0, ..MltConfig::default() });
        let (mut sender, mut receiver) = (MltSender::new(flow, config), MltReceiver::new(&flow, &config));
        let (mut now_ns, mut out) = (0, VecDeque::new());
        let first = leave(&mut sender, &mut now_ns);
        first[1..10].iter().for_each(|packet| receiver.handle_packet(now_ns, packet, &mut out));
        out.clear();
        let again_ns = sender.poll_timeout().unwrap();
        assert_eq!(again_ns, now_ns + config.control_rto_ns);
        sender.handle_timeout(again_ns);
        let probe = leave(&mut sender, &mut now_ns).remove(0);
        assert_eq!(probe.kind, Kind::Probe);
        receiver.handle_packet(now_ns, &probe, &mut out);
        receiver.handle_packet(now_ns, &first[10], &mut out);
        for answer in &out {
            sender.handle_packet(now_ns, answer);
        }
        // Both answers list packet 0; it leaves once.
        let numbers: Vec<u32> = leave(&mut sender, &mut now_ns)
            .iter()
            .filter(|p| p.kind == Kind::Data)
            .map(|p| p.number)
            .collect();
        assert_eq!((numbers, sender.sent().timeouts), (vec![0], 1));
    }
}
