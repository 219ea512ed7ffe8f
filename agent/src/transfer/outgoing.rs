// SPDX-License-Identifier: Apache-2.0
//! The sending side of a transfer: rows as the application supplies them, repairs of what is lost,
//! and questions at the end.

mod asking;

pub(crate) use super::flight::Load;
use super::flight::{Flight, Late, Repair};
use super::forward::Forward;
use super::inquiry::Inquiry;
use super::path::PathEstimate;
use super::repairs::{Repairs, worth};
use super::silence::Silence;
use super::trial::Trial;
use super::{Chunk, Heard, Next, TransferError, TransferStats, Way, When};
use crate::config::TimeoutConfig;
use crate::interface::{Outbound, SupplyError};
use crate::pacing::Pace;
use crate::paths::Paths;
use crate::rate::Feedback;
use crate::row::{Row, Run};
use crate::wire::trim_map::TrimMap;
use crate::wire::{Progress, Report, Stop, Wanted, Writer, shape};
use trimwire_encoder::Layout;

/// Consistent replicas: how far a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// What there is to send is sent, and told of.
    Sending,
    /// Its caller considers which tails are worth fetching.
    Over,
    /// What was to be fetched is; the receiver may be content.
    Settled,
}

/// A message on its way to one rank.
#[derive(Debug)]
pub(crate) struct Outgoing {
    to: u16,
    id: u32,
    layout: Layout,
    shape: u16,
    planes: u8,
    /// Layer class of its packets, 0 to 7.
    pub(crate) class: u8,
    /// Share of the line's rate at which its data leaves at most.
    pub(crate) pace: Pace,
    /// Rows supplied so far; `None` where the receiver has what it wants.
    rows: Vec<Option<Row>>,
    /// Of these, packets that the receiver still wants.
    wants: Vec<u32>,
    packets: u32,
    /// Packets of the rows supplied so far.
    supplied: u32,
    /// Next packet to be sent for the first time, and its row.
    next: u32,
    next_row: usize,
    flight: Flight,
    repairs: Repairs,
    forward: Forward,
    /// What is sent for the first time goes before repairs, and these by what they are worth.
    best_effort: bool,
    inquiry: Inquiry,
    silence: Silence,
    trial: Trial,
    /// `Some`: the receiver's application has not asked for it, since then; so often asked.
    not_expected: Option<(u64, u32)>,
    /// It has: what is on its way goes to rows, and not to where early data waits.
    asked_for: bool,
    finish: bool,
    stopped: bool,
    /// Since when reports have spoken of packets that no map has told of: those that had them are
    /// lost, or on another way.
    unclear_since_ns: Option<u64>,
    progress_ns: u64,
    /// When trimmed packets were reported last.
    trimmed_ns: u64,
    reported: Report,
    map: Option<TrimMap>,
    pass: Pass,
    started_ns: u64,
    pub(crate) timer_ns: Option<u64>,
    pub(crate) probe_queued: bool,
    pub(crate) forward_queued: bool,
    pub(crate) stats: TransferStats,
}

impl Outgoing {
    pub(crate) fn new(now_ns: u64, to: u16, outbound: &Outbound) -> Self {
        let packets = outbound.layout.packets() as u32;
        Self {
            to,
            id: outbound.message,
            layout: outbound.layout.clone(),
            shape: shape(&outbound.layout),
            planes: outbound.planes,
            class: outbound.layout.layer_class(0),
            pace: outbound.pace,
            rows: Vec::with_capacity(outbound.layout.rows()),
            wants: Vec::with_capacity(outbound.layout.rows()),
            packets,
            supplied: 0,
            next: 0,
            next_row: 0,
            flight: Flight::new(packets, outbound.planes, outbound.want_map),
            repairs: Repairs::default(),
            forward: Forward::default(),
            best_effort: outbound.best_effort,
            inquiry: Inquiry::default(),
            silence: Silence::default(),
            trial: Trial::default(),
            not_expected: None,
            asked_for: false,
            finish: false,
            stopped: false,
            unclear_since_ns: None,
            progress_ns: now_ns,
            trimmed_ns: 0,
            reported: Report::default(),
            map: outbound.want_map.then(|| TrimMap::unknown(packets)),
            pass: if outbound.want_map { Pass::Sending } else { Pass::Settled },
            started_ns: now_ns,
            timer_ns: None,
            probe_queued: false,
            forward_queued: false,
            stats: TransferStats { packets, missing: packets, ..TransferStats::default() },
        }
    }

    /// Takes the next row.
    pub(crate) fn supply(&mut self, now_ns: u64, number: usize, row: Row) -> Result<(), SupplyError> {
        let (to, message, expected) = (self.to, self.id, self.rows.len());
        if number != expected || expected >= self.layout.rows() {
            let rows = self.layout.rows();
            return Err(SupplyError::Order { message, to, got: number, expected, rows });
        }
        let range = self.layout.row_packets(number);
        self.rows.push(Some(row));
        self.wants.push(range.len() as u32);
        self.supplied = range.end as u32;
        self.progress_ns = self.progress_ns.max(now_ns);
        Ok(())
    }

    /// Whether there is data that may be sent.
    pub(crate) fn has_data(&self) -> bool {
        !self.stopped && self.trial.may_send() && (!self.repairs.is_empty() || self.has_first())
    }

    fn has_first(&self) -> bool {
        // Of a message that nobody asks for, what is kept for later has been sent.
        self.next < self.supplied
    }

    fn all_sent(&self) -> bool {
        self.next >= self.packets && self.repairs.is_empty()
    }

    /// What is on its way.
    pub(crate) fn in_flight(&self) -> Load {
        self.flight.in_flight()
    }

    /// Payload bytes of the next packet that was not sent yet.
    pub(crate) fn next_len(&self) -> usize {
        let row = self.rows.get(self.next_row).and_then(Option::as_ref);
        row.map_or(0, |row| row.len_of(self.next as usize - self.layout.row_packets(self.next_row).start))
    }

    /// Bytes of its longest packet, as far as its rows were supplied.
    pub(crate) fn longest_packet(&self) -> u32 {
        self.rows.iter().flatten().map(|row| row.packet(0).len() as u32).max().unwrap_or(0)
    }

    /// Planes that are sent of each packet.
    pub(crate) fn planes(&self) -> u8 {
        self.planes
    }

    /// Whether the receiver's application has asked for it; `None` while nothing has been heard of
    /// that.
    pub(crate) fn asked_for(&self) -> Option<bool> {
        if self.not_expected.is_some() { Some(false) } else { self.asked_for.then_some(true) }
    }

    /// Packets supplied and not sent.
    pub(crate) fn backlog(&self) -> u32 {
        self.supplied.saturating_sub(self.next)
    }

    /// The next data, at most `most` packets, which leave at `now_ns`, and its path: a repair's is
    /// another one than before. Repairs go first. After the last one a PROBE is due.
    pub(crate) fn next_data(&mut self, now_ns: u64, most: usize, paths: &mut Paths) -> Option<(Chunk, u16)> {
        if self.stopped || !self.trial.may_send() {
            return None;
        }
        let (chunk, first) = if self.best_effort {
            self.next_first(most).or_else(|| self.next_repair())
        } else {
            self.next_repair().or_else(|| self.next_first(most))
        }?;
        if self.flight.in_flight().bytes == 0 {
            self.silence.begin(now_ns);
        }
        let before = if chunk.repair { self.flight.path(first) } else { None };
        let path = paths.choose(now_ns, before);
        paths.on_sent(path, chunk.run.packets, chunk.run.payload.len() as u64);
        for (nth, packet) in chunk.run.payload.chunks(chunk.run.segment).enumerate() {
            self.flight.sent(now_ns, first + nth as u32, path, packet.len());
        }
        self.stats.bytes_sent += chunk.run.payload.len() as u64;
        self.trial.sent();
        if !chunk.repair {
            self.progress_ns = self.progress_ns.max(now_ns);
        }
        Some((chunk, path))
    }

    fn next_first(&mut self, most: usize) -> Option<(Chunk, u32)> {
        if self.next >= self.supplied {
            return None;
        }
        let range = self.layout.row_packets(self.next_row);
        let row = self.rows.get(self.next_row)?.as_ref()?;
        let first = self.next;
        let run = row.run(first as usize - range.start, most)?;
        let important = row.important();
        self.next += run.packets;
        if self.next as usize >= range.end {
            self.next_row += 1;
        }
        Some((Chunk { run, important, repair: false }, first))
    }

    fn next_repair(&mut self) -> Option<(Chunk, u32)> {
        loop {
            let Repair { index, from_plane } = self.repairs.pop()?;
            // Tails are asked for where every plane is wanted, or fetched.
            let enough = if from_plane > 0 { self.flight.whole(index) } else { self.flight.satisfied(index) };
            if enough {
                continue;
            }
            let number = self.layout.packet_row(index as usize);
            let Some(Some(row)) = self.rows.get(number) else { continue };
            let nth = index as usize - self.layout.row_packets(number).start;
            let payload = row.repair(nth, from_plane, self.planes);
            self.stats.repaired += 1;
            self.stats.retransmitted_bytes += payload.len() as u64;
            let run = Run { segment: payload.len().max(1), payload, packets: 1 };
            // Contract: what is sent again is important, so that it is not the first to be dropped.
            return Some((Chunk { run, important: true, repair: true }, index));
        }
    }

    /// Takes what an ACK or STATUS says.
    pub(crate) fn on_progress(
        &mut self,
        when: When,
        progress: &Progress<'_>,
        answer: bool,
        estimate: &mut PathEstimate,
        paths: &mut Paths,
        timeouts: &TimeoutConfig,
    ) -> (Option<Heard>, Next) {
        let When { now_ns, arrived_ns, slowed_ns } = when;
        self.inquiry.heard();
        let asked_ns =
            if answer { self.inquiry.on_answer(arrived_ns, progress.sequence, estimate) } else { None };
        if self.stopped {
            return (None, Next::Wait);
        }
        let mut heard = self.take_report(when, &progress.report, estimate);
        if heard.is_some() {
            self.silence.end(now_ns);
        }
        if heard.is_some_and(|heard| heard.feedback.trimmed > 0) {
            self.trimmed_ns = now_ns;
            self.trial.trimmed();
        }
        let echoed = progress.report.echo.and_then(|echo| self.flight.path(echo.packet));
        if let (Some(path), Some(rtt_ns)) = (echoed, heard.and_then(|heard| heard.feedback.rtt_ns)) {
            paths.spray().on_round_trip(path, rtt_ns);
        }
        if !progress.expected {
            return (heard, self.on_not_expected(now_ns, timeouts));
        }
        self.asked_for = true;
        if self.not_expected.take().is_some() {
            self.progress_ns = now_ns;
        }
        self.flight.set_wanted(progress.wanted);
        self.stats.missing = progress.missing.min(self.packets);
        let (rows, wants, layout) = (&mut self.rows, &mut self.wants, &self.layout);
        // Tails may be fetched until the receiver is content.
        let keeps = self.map.is_some();
        let (mut at, mut row) = (0..0, 0);
        let mut satisfied = |index: u32| {
            if !at.contains(&(index as usize)) {
                row = layout.packet_row(index as usize);
                at = layout.row_packets(row);
            }
            if let Some(left) = wants.get_mut(row) {
                *left = left.saturating_sub(1);
                if *left == 0 && !keeps {
                    rows[row] = None;
                }
            }
        };
        if let Some(part) = &progress.map {
            let news = self.flight.learn(now_ns, part, estimate, paths, &mut satisfied);
            estimate.overtook(news.overtaken);
            if news.improved {
                self.progress_ns = now_ns;
                self.silence.end(now_ns);
                self.trial.improved();
                self.inquiry.news();
            }
        }
        self.flight.satisfy_below(progress.low, paths, satisfied);
        if self.flight.knows_all(progress) {
            self.unclear_since_ns = None;
        } else {
            self.unclear_since_ns.get_or_insert(now_ns);
        }
        let told = self.flight.told(progress);
        let late = asked_ns.map(|asked_ns| Late { asked_ns, delay_ns: estimate.loss_delay_ns(timeouts) });
        let lost = self.flight.lost(now_ns, &told, estimate, late, paths);
        if lost.iter().any(|repair| !self.trimmed_since(repair.index)) {
            estimate.gave_up();
        }
        let gone = || lost.iter().filter(|repair| repair.from_plane == 0);
        if gone().next().is_some() {
            let repaired = self.flight.wants_every_plane();
            let quiet = Feedback { now_ns, repaired, ..Feedback::default() };
            let heard = heard.get_or_insert(Heard { feedback: quiet, answered: 0 });
            heard.feedback.lost = gone().count() as u32;
            heard.feedback.bytes += self.bytes_of(heard.feedback.lost);
            let before = |repair: &&Repair| self.flight.sent_ns(repair.index) < slowed_ns;
            heard.answered = gone().filter(before).count() as u32;
        }
        let every_plane = progress.wanted == Wanted::EveryPlane;
        for repair in lost {
            if repair.from_plane > 0 && !every_plane {
                // A tail that was fetched once is not worth more.
                continue;
            }
            // Of what is trimmed again and again something does get through; that is the rate
            // algorithm's.
            if repair.from_plane == 0
                && let Some(attempts) = self.flight.attempts_since(repair.index, self.progress_ns)
            {
                let trimmed = self.trimmed_since(repair.index);
                self.trial.lost_in_vain(attempts, trimmed);
            }
            self.repair(repair);
        }
        let waited_ns = now_ns.saturating_sub(self.progress_ns);
        if self.trial.is_on() && waited_ns >= timeouts.give_up_ns.min(timeouts.patience_ns) {
            return (heard, Next::Failed(self.stalled(progress.missing, waited_ns)));
        }
        self.rest(now_ns, estimate, timeouts);
        if !self.all_sent() || !answer || progress.sequence != self.inquiry.sequence() {
            return (heard, self.ready());
        }
        (heard, self.on_last_answer(now_ns, progress, estimate, timeouts))
    }

    /// Whether packets have come trimmed since a lost one was sent: it will be one of them, and was
    /// not given up too early.
    fn trimmed_since(&self, index: u32) -> bool {
        self.trimmed_ns > self.flight.sent_ns(index)
    }

    fn stalled(&self, missing: u32, waited_ns: u64) -> TransferError {
        let trimmed = self.trial.is_trimmed();
        let (peer, message, packets) = (self.to, self.id, self.packets);
        let way = Way::default();
        TransferError::Stalled { peer, message, packets, missing, trimmed, waited_ns, way }
    }

    fn repair(&mut self, repair: Repair) {
        if !self.flight.leave_out(repair.index) {
            self.queue(repair);
        } else if self.map.is_none() {
            self.forward.add(repair.index);
        }
    }

    /// Whether the receiver is to be told of packets that are left out.
    pub(crate) fn has_forward(&self) -> bool {
        !self.forward.is_empty()
    }

    /// The next FORWARD.
    pub(crate) fn forward(&mut self, writer: Writer) -> Option<Vec<u8>> {
        self.forward.write(self.id, self.packets, writer)
    }

    fn queue(&mut self, repair: Repair) {
        let row = self.rows.get(self.layout.packet_row(repair.index as usize)).and_then(Option::as_ref);
        let worth = row.filter(|_| self.best_effort).map(|row| {
            let (codec, energy) = row.codec_and_energy();
            worth(codec, energy, repair.from_plane, self.planes)
        });
        self.repairs.push(repair, worth.unwrap_or(0.0));
    }

    /// What the receiver is known to have.
    pub(crate) fn reported(&self) -> TrimMap {
        self.flight.map()
    }

    /// Consistent replicas: sends the trimmed tails of these packets and asks again what arrived.
    /// Without any the receiver may be content.
    pub(crate) fn settle(&mut self, packets: &[u32]) -> Next {
        if self.pass != Pass::Over {
            return Next::Wait;
        }
        let known = self.packets;
        for &index in packets.iter().filter(|&&index| index < known) {
            self.queue(Repair { index, from_plane: self.flight.held(index) });
        }
        if self.has_data() {
            self.pass = Pass::Sending;
            return Next::Data;
        }
        (self.pass, self.finish) = (Pass::Settled, true);
        Next::Probe
    }

    /// Takes the counts that every packet of the receiver carries.
    fn take_report(&mut self, when: When, report: &Report, estimate: &mut PathEstimate) -> Option<Heard> {
        let now_ns = when.now_ns;
        let rtt_ns = report.echo.and_then(|echo| self.flight.round_trip_ns(when.arrived_ns, echo));
        if let Some(rtt_ns) = rtt_ns {
            estimate.data.sample(rtt_ns);
        }
        let before = self.reported;
        let arrived = report.received.saturating_sub(before.received);
        if arrived == 0 {
            return None;
        }
        let trimmed = report.trimmed.saturating_sub(before.trimmed).min(arrived);
        let marked = report.marked.saturating_sub(before.marked).min(arrived);
        self.reported = *report;
        let repaired = self.flight.wants_every_plane();
        let feedback = Feedback {
            now_ns,
            rtt_ns,
            arrived,
            trimmed,
            marked,
            lost: 0,
            bytes: self.bytes_of(arrived),
            senders: report.senders,
            repaired,
        };
        Some(Heard { feedback, answered: 0 })
    }

    /// So many of its packets as they left, bytes of payload: as many as they have on average.
    fn bytes_of(&self, packets: u32) -> u64 {
        let sent = u64::from(self.next) + u64::from(self.stats.repaired);
        self.stats.bytes_sent / sent.max(1) * u64::from(packets)
    }

    /// Takes a STOP.
    pub(crate) fn on_stop(
        &mut self,
        when: When,
        stop: &Stop<'_>,
        estimate: &mut PathEstimate,
        paths: &mut Paths,
        timeouts: &TimeoutConfig,
    ) -> (Option<Heard>, Next) {
        let now_ns = when.now_ns;
        if stop.missing == 0 && !self.stopped {
            self.flight.all_arrived(paths);
        }
        self.inquiry.on_answer(when.arrived_ns, stop.sequence, estimate);
        let heard = self.take_report(when, &stop.report, estimate);
        self.stopped = true;
        self.repairs.clear();
        self.forward.clear();
        self.rows.clear();
        self.stats.missing = stop.missing.min(self.packets);
        if let (Some(map), Some(part)) = (&mut self.map, &stop.map) {
            map.take(part);
        }
        if self.map.as_ref().is_none_or(TrimMap::is_complete) {
            self.stats.duration_ns = now_ns.saturating_sub(self.started_ns);
            return (heard, Next::Done);
        }
        if stop.map.is_none() {
            let (peer, message, packets) = (self.to, self.id, self.packets);
            return (heard, Next::Failed(TransferError::NoMap { peer, message, packets }));
        }
        self.timer_ns = Some(now_ns.saturating_add(estimate.answer_timeout_ns(0, timeouts)));
        (heard, Next::Wait)
    }

    /// The receiver's final trim map, where it was asked for.
    pub(crate) fn take_map(&mut self) -> Option<TrimMap> {
        self.map.take()
    }
}
