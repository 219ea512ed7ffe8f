//! The sending side of a transfer.

use super::{TransferError, TransferStats, backoff};
use crate::endpoint::config::TimeoutConfig;
use crate::rtt::RttEstimator;
use crate::wire::cut_map::{CutMap, FULL};
use crate::wire::{Echo, Probe, Report, Status, Stop};
use std::collections::VecDeque;
use std::sync::Arc;
use trimwire_encoder::Message;
use trimwire_encoder::wire::Prefix;

/// No repair of the packet is queued.
const NOT_QUEUED: u8 = u8::MAX;

/// What is known of the path to a peer.
#[derive(Debug, Default)]
pub(crate) struct Path {
    /// Round trips of whole DATA packets: forth in the data queue, back in the control queue.
    pub(crate) data: RttEstimator,
    /// Round trips of control packets.
    pub(crate) control: RttEstimator,
}

impl Path {
    /// A data packet sent longer ago than this, and not there, is lost.
    pub(crate) fn loss_delay_ns(&self, timeouts: &TimeoutConfig) -> u64 {
        self.data.timeout_ns().unwrap_or(timeouts.initial_ns).max(timeouts.min_loss_delay_ns)
    }

    /// A data packet should have been answered for so long after it was sent: 9/8 of the round trip (RFC 9002 §6.1.2).
    fn expected_ns(&self) -> Option<u64> {
        self.data.smoothed_ns().map(|rtt| rtt.saturating_add(rtt / 8))
    }

    /// Packets overtake each other by no more than this (RFC 8985 §6.2 step 4 starts at a quarter of the RTT).
    fn reorder_ns(&self) -> Option<u64> {
        self.data.smoothed_ns().map(|rtt| rtt / 4)
    }

    /// Wait for the answer to a control packet that `unanswered` others went before.
    pub(crate) fn answer_timeout_ns(&self, unanswered: u32, timeouts: &TimeoutConfig) -> u64 {
        let base = self.control.timeout_ns().unwrap_or(timeouts.initial_ns).max(timeouts.min_ns);
        backoff(base, unanswered, timeouts.max_ns)
    }
}

/// What to do after something happened to a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait for the timer, which is set.
    Wait,
    /// There is data to send.
    Data,
    /// Send a PROBE.
    Probe,
    /// The receiver is content.
    Done,
    /// Give up.
    Failed(TransferError),
}

/// A datagram of data.
#[derive(Debug)]
pub(crate) struct DataPacket {
    pub(crate) payload: Vec<u8>,
    pub(crate) important: bool,
    pub(crate) repair: bool,
}

/// A message on its way to one rank.
#[derive(Debug)]
pub(crate) struct Outgoing {
    to: u16,
    id: u32,
    message: Arc<Message>,
    packets: u32,
    /// Planes that are sent of each packet.
    planes: u8,
    pub(crate) layer_class: u8,
    full_repair: bool,
    /// Messages to one peer are sent in the order of `send`.
    pub(crate) order: u64,
    /// Next packet to be sent for the first time.
    next: u32,
    stopped: bool,
    /// When each packet was sent last, and how often (saturating).
    sent_ns: Vec<u64>,
    attempts: Vec<u8>,
    repairs: VecDeque<u32>,
    repair_from: Vec<u8>,
    /// Newest time of sending of a packet that is known to have arrived whole.
    delivered_ns: u64,
    probe: u32,
    probe_sent_ns: u64,
    probe_answered: bool,
    finish: bool,
    /// Newest time of sending among packets that are missing but not lost yet, by the current probe's answer.
    pending_ns: Option<u64>,
    unanswered: u32,
    heard_ns: Option<u64>,
    progress_ns: Option<u64>,
    not_expected: u32,
    not_expected_since_ns: Option<u64>,
    acked: (u32, u32),
    map: Option<CutMap>,
    started_ns: u64,
    pub(crate) timer_ns: Option<u64>,
    pub(crate) probe_queued: bool,
    pub(crate) stats: TransferStats,
}

impl Outgoing {
    pub(crate) fn new(
        now_ns: u64,
        to: u16,
        id: u32,
        message: Arc<Message>,
        full_repair: bool,
        want_map: bool,
        order: u64,
    ) -> Self {
        let count = message.packets();
        let packets = count as u32;
        let layer_class = message.header(0).map_or(0, |header| header.prefix.layer_class);
        Self {
            to,
            id,
            packets,
            planes: message.planes(),
            layer_class,
            full_repair,
            message,
            order,
            next: 0,
            stopped: false,
            sent_ns: vec![0; count],
            attempts: vec![0; count],
            repairs: VecDeque::new(),
            repair_from: Vec::new(),
            delivered_ns: 0,
            probe: 0,
            probe_sent_ns: 0,
            probe_answered: true,
            finish: false,
            pending_ns: None,
            unanswered: 0,
            heard_ns: None,
            progress_ns: None,
            not_expected: 0,
            not_expected_since_ns: None,
            acked: (0, 0),
            map: want_map.then(|| CutMap::unknown(packets)),
            started_ns: now_ns,
            timer_ns: None,
            probe_queued: false,
            stats: TransferStats { packets, missing: packets, ..TransferStats::default() },
        }
    }

    /// Whether there is data to send.
    pub(crate) fn has_data(&self) -> bool {
        !self.stopped && (self.next < self.packets || !self.repairs.is_empty())
    }

    /// The next datagram of data; repairs go first. After the last one a PROBE is due.
    pub(crate) fn next_data(&mut self, now_ns: u64) -> Option<DataPacket> {
        if self.stopped {
            return None;
        }
        let packet = if let Some(index) = self.repairs.pop_front() {
            let from = std::mem::replace(self.repair_from.get_mut(index as usize)?, NOT_QUEUED);
            let payload = self.message.repair(index as usize, from..self.planes)?;
            self.stats.repaired += 1;
            self.stats.retransmitted_bytes += payload.len() as u64;
            self.sent(index, now_ns);
            // Contract: what is sent again is important, so that it is not the first to be dropped.
            DataPacket { payload, important: true, repair: true }
        } else {
            let index = self.next;
            if index >= self.packets {
                return None;
            }
            self.next += 1;
            self.sent(index, now_ns);
            let payload = self.message.packet(index as usize).to_vec();
            let important = Prefix::parse(&payload).is_ok_and(|prefix| prefix.important);
            DataPacket { payload, important, repair: false }
        };
        self.stats.bytes_sent += packet.payload.len() as u64;
        Some(packet)
    }

    fn sent(&mut self, index: u32, now_ns: u64) {
        if let (Some(sent_ns), Some(attempts)) =
            (self.sent_ns.get_mut(index as usize), self.attempts.get_mut(index as usize))
        {
            *sent_ns = now_ns;
            *attempts = attempts.saturating_add(1);
        }
    }

    /// The PROBE that leaves at `now_ns`.
    pub(crate) fn probe(&mut self, now_ns: u64, path: &Path, timeouts: &TimeoutConfig) -> Probe {
        self.probe = self.probe.wrapping_add(1);
        self.probe_sent_ns = now_ns;
        self.probe_answered = false;
        self.pending_ns = None;
        self.heard_ns.get_or_insert(now_ns);
        self.progress_ns.get_or_insert(now_ns);
        self.stats.probes += 1;
        let backoff = self.unanswered.max(self.not_expected);
        self.timer_ns = Some(now_ns.saturating_add(path.answer_timeout_ns(backoff, timeouts)));
        Probe {
            sequence: self.probe,
            packets: self.packets,
            planes: self.planes,
            want_map: self.map.is_some(),
            finish: self.finish,
            grace_ns: path.loss_delay_ns(timeouts).min(u64::from(u32::MAX)) as u32,
            map_offset: self.map.as_ref().map_or(0, CutMap::known_until),
        }
    }

    /// Takes the report that every packet of the receiver carries. Returns (RTT of a whole packet if it was
    /// measured, share of the packets since the last report that were cut) if there is news.
    pub(crate) fn on_report(
        &mut self,
        now_ns: u64,
        report: &Report,
        path: &mut Path,
    ) -> Option<(Option<u64>, f32)> {
        self.heard_ns = Some(now_ns);
        self.unanswered = 0;
        let rtt_ns = report.echo.and_then(|echo| self.on_echo(now_ns, echo, path));
        let received = report.received.saturating_sub(self.acked.0);
        let cut = report.cut.saturating_sub(self.acked.1).min(received);
        if received == 0 {
            return None;
        }
        self.acked = (report.received, report.cut);
        self.progress_ns = Some(now_ns);
        self.stats.missing = self.packets.saturating_sub(report.received);
        Some((rtt_ns, cut as f32 / received as f32))
    }

    fn on_echo(&mut self, now_ns: u64, echo: Echo, path: &mut Path) -> Option<u64> {
        let index = echo.packet as usize;
        let (&sent_ns, &attempts) = (self.sent_ns.get(index)?, self.attempts.get(index)?);
        if echo.cut || attempts == 0 {
            return None;
        }
        let rtt_ns = now_ns.checked_sub(sent_ns)?.checked_sub(u64::from(echo.hold_ns))?;
        if attempts > 1 {
            // It may be the first copy that arrived. RFC 8985 §6.2 step 2: not if the round trip is too short for
            // the second; and no sample either way (Karn).
            if path.data.minimum_ns().is_some_and(|minimum| rtt_ns >= minimum) {
                self.delivered_ns = self.delivered_ns.max(sent_ns);
            }
            return None;
        }
        // The same echo may come in several reports; only the first is a sample.
        let newer = sent_ns > self.delivered_ns || self.acked == (0, 0);
        self.delivered_ns = self.delivered_ns.max(sent_ns);
        newer.then(|| {
            path.data.sample(rtt_ns);
            rtt_ns
        })
    }

    fn on_answer(&mut self, now_ns: u64, sequence: u32, path: &mut Path) {
        if sequence == self.probe && !self.probe_answered {
            self.probe_answered = true;
            path.control.sample(now_ns.saturating_sub(self.probe_sent_ns));
        }
    }

    /// Takes a STATUS (its report has been taken already).
    pub(crate) fn on_status(
        &mut self,
        now_ns: u64,
        status: &Status<'_>,
        path: &mut Path,
        timeouts: &TimeoutConfig,
    ) -> Next {
        if self.stopped {
            return Next::Wait;
        }
        self.on_answer(now_ns, status.sequence, path);
        if !status.expected {
            let since_ns = *self.not_expected_since_ns.get_or_insert(now_ns);
            let waited_ns = now_ns.saturating_sub(since_ns);
            if waited_ns >= timeouts.patience_ns {
                let (peer, message, packets) = (self.to, self.id, self.packets);
                return Next::Failed(TransferError::NotExpected { peer, message, packets, waited_ns });
            }
            // The timer of the probe stays: the receiver answers by itself as soon as it is asked.
            return Next::Wait;
        }
        if self.not_expected_since_ns.take().is_some() {
            (self.not_expected, self.progress_ns) = (0, Some(now_ns));
        }
        let waited_ns = now_ns.saturating_sub(self.progress_ns.unwrap_or(now_ns));
        if waited_ns >= timeouts.patience_ns {
            let (peer, message, packets, missing) = (self.to, self.id, self.packets, status.missing);
            return Next::Failed(TransferError::Stalled { peer, message, packets, missing, waited_ns });
        }
        // An answer to an older question knows nothing of the repairs sent since.
        if status.sequence != self.probe || self.next < self.packets {
            return Next::Wait;
        }
        self.stats.missing = status.missing.min(self.packets);
        let Some(part) = status.map else { return Next::Wait };
        for run in part.runs() {
            let whole = run.planes >= if self.full_repair { self.planes } else { 1 };
            if whole {
                continue;
            }
            for index in run.start..(run.start + run.count).min(self.packets) {
                self.consider(now_ns, index, run.planes, status.bound_holds, path, timeouts);
            }
        }
        if self.has_data() {
            return Next::Data;
        }
        if part.end() < self.packets {
            return Next::Wait;
        }
        match self.pending_ns {
            Some(_) => {
                self.timer_ns = self.ask_again_ns(now_ns, path, timeouts);
                Next::Wait
            }
            None if status.bound_holds && !self.finish => {
                self.finish = true;
                Next::Probe
            }
            None => Next::Wait,
        }
    }

    /// When to ask about the packets that may still be on their way: when the last of them should be there, since then
    /// their order tells what is lost, and at last when they count as lost anyhow.
    fn ask_again_ns(&self, now_ns: u64, path: &Path, timeouts: &TimeoutConfig) -> Option<u64> {
        let sent_ns = self.pending_ns?;
        let expected_ns = path.expected_ns().map(|expected_ns| sent_ns.saturating_add(expected_ns));
        let lost_ns = sent_ns.saturating_add(path.loss_delay_ns(timeouts));
        Some(expected_ns.filter(|&at_ns| at_ns > now_ns).unwrap_or(lost_ns.max(now_ns + 1)))
    }

    /// The round trip may have become known only after the question: whether the timer is earlier for it.
    pub(crate) fn hasten(&mut self, now_ns: u64, path: &Path, timeouts: &TimeoutConfig) -> bool {
        let Some(at_ns) = self.ask_again_ns(now_ns, path, timeouts) else { return false };
        let earlier = self.probe_answered && self.timer_ns.is_some_and(|timer_ns| at_ns < timer_ns);
        if earlier {
            self.timer_ns = Some(at_ns);
        }
        earlier
    }

    /// Decides about a packet of which the receiver has only `held` planes.
    fn consider(
        &mut self,
        now_ns: u64,
        index: u32,
        held: u8,
        bound_holds: bool,
        path: &Path,
        timeouts: &TimeoutConfig,
    ) {
        let at = index as usize;
        let (Some(&sent_ns), Some(&attempts)) = (self.sent_ns.get(at), self.attempts.get(at)) else { return };
        if self.repair_from.get(at).is_some_and(|&from| from != NOT_QUEUED) {
            return;
        }
        // The tail of a packet that arrived cut will not come; that of a repair may.
        let gone = held > 0 && attempts == 1;
        let overtaken =
            path.reorder_ns().is_some_and(|window| sent_ns.saturating_add(window) < self.delivered_ns);
        let late = now_ns.saturating_sub(sent_ns) >= path.loss_delay_ns(timeouts);
        if !(gone || overtaken || late) {
            self.pending_ns = Some(self.pending_ns.map_or(sent_ns, |pending| pending.max(sent_ns)));
            return;
        }
        if bound_holds {
            return;
        }
        if self.repair_from.is_empty() {
            self.repair_from = vec![NOT_QUEUED; self.packets as usize];
        }
        self.repair_from[at] = held.min(self.planes.saturating_sub(1));
        self.repairs.push_back(index);
    }

    /// Takes a STOP (its report has been taken already).
    pub(crate) fn on_stop(
        &mut self,
        now_ns: u64,
        stop: &Stop<'_>,
        path: &mut Path,
        timeouts: &TimeoutConfig,
    ) -> Next {
        self.on_answer(now_ns, stop.sequence, path);
        self.stopped = true;
        self.repairs.clear();
        self.stats.missing = stop.missing.min(self.packets);
        if let (Some(map), Some(part)) = (&mut self.map, &stop.map) {
            map.take(part);
        }
        if self.map.as_ref().is_none_or(CutMap::is_complete) {
            self.stats.duration_ns = now_ns.saturating_sub(self.started_ns);
            return Next::Done;
        }
        if stop.map.is_none() {
            let (peer, message, packets) = (self.to, self.id, self.packets);
            return Next::Failed(TransferError::NoMap { peer, message, packets });
        }
        self.timer_ns = Some(now_ns.saturating_add(path.answer_timeout_ns(0, timeouts)));
        Next::Wait
    }

    /// The receiver's final cut map, where it was asked for.
    pub(crate) fn take_map(&mut self) -> Option<CutMap> {
        self.map.take()
    }

    /// The timer has expired.
    pub(crate) fn on_timeout(&mut self, now_ns: u64, timeouts: &TimeoutConfig) -> Next {
        self.timer_ns = None;
        if self.has_data() {
            return Next::Data;
        }
        let silent_ns = now_ns.saturating_sub(self.heard_ns.unwrap_or(now_ns));
        if !self.probe_answered {
            if silent_ns >= timeouts.give_up_ns {
                return Next::Failed(TransferError::Unanswered {
                    peer: self.to,
                    message: self.id,
                    packets: self.packets,
                    missing: self.stats.missing,
                    probes: self.unanswered.saturating_add(1),
                    silent_ns,
                });
            }
            self.unanswered = self.unanswered.saturating_add(1);
        }
        if self.not_expected_since_ns.is_some() {
            self.not_expected = self.not_expected.saturating_add(1);
        }
        Next::Probe
    }
}

const _: () = assert!(FULL < NOT_QUEUED);
