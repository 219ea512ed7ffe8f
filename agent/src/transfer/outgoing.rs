// SPDX-License-Identifier: Apache-2.0
//! The sending side of a transfer: rows as the application supplies them, repairs of what is lost,
//! and questions at the end.

use super::loss::{Asking, Flight, Late, Load, Lost, Now, Repair};
use super::path::PathEstimate;
use super::repairs::{Forward, Repairs, worth};
use crate::config::TimeoutConfig;
use crate::interface::{Outbound, SupplyError};
use crate::outcome::{TransferError, TransferStats, Way};
use crate::pacing::Pace;
use crate::paths::Paths;
use crate::rate::Feedback;
use crate::row::{Row, Run};
use crate::wire::trim_map::TrimMap;
use crate::wire::{Probe, Progress, Report, Stop, Wanted, Writer, shape};
use trimwire_encoder::Layout;

/// What to do after something happened to a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait for the timer, which is set.
    Wait,
    /// There is data to send.
    Data,
    /// Send a PROBE.
    Probe,
    /// Consistent replicas: everything was sent once, and the receiver has said what it has of it.
    Passed,
    /// The receiver is content.
    Done,
    /// Give up.
    Failed(TransferError),
}

/// When a control packet is taken, and when it came to this host: what it has waited between is no
/// part of a round trip.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "all are times")]
pub(crate) struct When {
    pub(crate) now_ns: u64,
    pub(crate) arrived_ns: u64,
    /// And when the rate was reduced last.
    pub(crate) slowed_ns: u64,
}

/// What a report says that is news.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Heard {
    pub(crate) feedback: Feedback,
    /// Of the lost packets, those that left before the rate was reduced last: that was the answer
    /// to what took them (RFC 9002 §7.3.2).
    pub(crate) answered: u32,
}

/// Datagrams of data that leave together.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) run: Run,
    pub(crate) important: bool,
    pub(crate) repair: bool,
}

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
    asking: Asking,
    /// `Some`: the receiver's application has not asked for it, since then; so often asked.
    not_expected: Option<(u64, u32)>,
    /// It has: what is on its way goes to rows, and not to where early data waits.
    asked_for: bool,
    finish: bool,
    stopped: bool,
    progress_ns: u64,
    /// When trimmed packets were reported last.
    trimmed_ns: u64,
    reported: Report,
    map: Option<TrimMap>,
    pass: Pass,
    started_ns: u64,
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
            asking: Asking::default(),
            not_expected: None,
            asked_for: false,
            finish: false,
            stopped: false,
            progress_ns: now_ns,
            trimmed_ns: 0,
            reported: Report::default(),
            map: outbound.want_map.then(|| TrimMap::unknown(packets)),
            pass: if outbound.want_map { Pass::Sending } else { Pass::Settled },
            started_ns: now_ns,
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
        !self.stopped && self.asking.may_send() && (!self.repairs.is_empty() || self.has_first())
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
        if self.stopped || !self.asking.may_send() {
            return None;
        }
        let (chunk, first) = if self.best_effort {
            self.next_first(most).or_else(|| self.next_repair())
        } else {
            self.next_repair().or_else(|| self.next_first(most))
        }?;
        self.asking.sent(now_ns, self.flight.in_flight().bytes == 0);
        let before = if chunk.repair { self.flight.path(first) } else { None };
        let path = paths.choose(now_ns, before);
        paths.on_sent(path, chunk.run.packets, chunk.run.payload.len() as u64);
        for (nth, packet) in chunk.run.payload.chunks(chunk.run.segment).enumerate() {
            self.flight.sent(now_ns, first + nth as u32, path, packet.len());
        }
        self.stats.bytes_sent += chunk.run.payload.len() as u64;
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
        self.asking.heard();
        let asked_ns =
            if answer { self.asking.on_answer(arrived_ns, progress.sequence, estimate) } else { None };
        if self.stopped {
            return (None, Next::Wait);
        }
        let mut heard = self.take_report(when, &progress.report, estimate);
        if let Some(heard) = heard {
            let trimmed = heard.feedback.trimmed > 0;
            self.asking.arrived(now_ns, trimmed);
            if trimmed {
                self.trimmed_ns = now_ns;
            }
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
                self.asking.improved(now_ns);
            }
        }
        self.flight.satisfy_below(progress.low, paths, satisfied);
        self.asking.clear(now_ns, self.flight.knows_all(progress));
        let told = self.flight.told(progress);
        let late = asked_ns.map(|asked_ns| Late { asked_ns, delay_ns: estimate.loss_delay_ns(timeouts) });
        let lost = self.flight.lost(now_ns, &told, estimate, late, paths);
        // Packets have come trimmed since it was sent: it will be one of them, and was not given up
        // too early.
        let trimmed_ns = self.trimmed_ns;
        let trimmed = |lost: &Lost| trimmed_ns > lost.sent_ns;
        if !lost.iter().all(trimmed) {
            estimate.gave_up();
        }
        let gone = || lost.iter().filter(|lost| lost.repair.from_plane == 0);
        if gone().next().is_some() {
            let repaired = self.flight.wants_every_plane();
            let quiet = Feedback { now_ns, repaired, ..Feedback::default() };
            let heard = heard.get_or_insert(Heard { feedback: quiet, answered: 0 });
            heard.feedback.lost = gone().count() as u32;
            heard.feedback.bytes += self.bytes_of(heard.feedback.lost);
            heard.answered = gone().filter(|lost| lost.sent_ns < slowed_ns).count() as u32;
        }
        for lost in lost {
            if lost.repair.from_plane > 0 && progress.wanted != Wanted::EveryPlane {
                // A tail that was fetched once is not worth more.
                continue;
            }
            // Of what is trimmed again and again something does get through; that is the rate
            // algorithm's.
            if lost.repair.from_plane == 0 && lost.sent_ns > self.progress_ns {
                self.asking.lost_in_vain(lost.attempts, trimmed(&lost));
            }
            self.repair(lost.repair);
        }
        let waited_ns = now_ns.saturating_sub(self.progress_ns);
        if self.asking.in_vain().is_some() && waited_ns >= timeouts.give_up_ns.min(timeouts.patience_ns) {
            return (heard, Next::Failed(self.stalled(progress.missing, waited_ns)));
        }
        let all_sent = self.all_sent().then_some(self.pass == Pass::Sending);
        let now = Now { ns: now_ns, estimate, timeouts };
        self.asking.rest(now, all_sent, &self.flight);
        if all_sent.is_none() || !answer || !self.asking.is_newest(progress.sequence) {
            return (heard, self.ready());
        }
        (heard, self.on_last_answer(now, progress))
    }

    fn stalled(&self, missing: u32, waited_ns: u64) -> TransferError {
        let trimmed = self.asking.in_vain() == Some(true);
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

    /// Data has left: when to ask, if nobody says anything. `true`: at once, because it was the
    /// last of it.
    pub(crate) fn after_data(
        &mut self,
        now_ns: u64,
        estimate: &PathEstimate,
        timeouts: &TimeoutConfig,
    ) -> bool {
        let all_sent = self.all_sent();
        self.asking.after_data(Now { ns: now_ns, estimate, timeouts }, all_sent)
    }

    /// When to call [`on_timeout`](Self::on_timeout).
    pub(crate) fn timer_ns(&self) -> Option<u64> {
        self.asking.timer_ns
    }

    /// Since when nothing has been heard of what is on its way.
    pub(crate) fn silent_since_ns(&self) -> u64 {
        self.asking.silent_since_ns()
    }

    /// The PROBE that leaves at `now_ns`.
    pub(crate) fn probe(&mut self, now_ns: u64, estimate: &PathEstimate, timeouts: &TimeoutConfig) -> Probe {
        let patience = self.not_expected.map_or(0, |(_, times)| times);
        let all_sent = self.all_sent();
        let sequence = self.asking.ask(Now { ns: now_ns, estimate, timeouts }, all_sent, patience);
        self.stats.probes += 1;
        let settled = all_sent && self.pass == Pass::Settled;
        let grace_ns = if settled { estimate.loss_delay_ns(timeouts).max(1) } else { 0 };
        Probe {
            sequence,
            packets: self.packets,
            shape: self.shape,
            planes: self.planes,
            want_map: self.map.is_some(),
            finish: self.finish && all_sent,
            grace_ns: grace_ns.min(u64::from(u32::MAX)) as u32,
            map_offset: self.map.as_ref().map_or(0, TrimMap::known_until),
        }
    }

    /// The answer to the newest question, when everything was sent before it.
    fn on_last_answer(&mut self, now: Now<'_>, progress: &Progress<'_>) -> Next {
        let (now_ns, timeouts) = (now.ns, now.timeouts);
        let waited_ns = now_ns.saturating_sub(self.progress_ns);
        if waited_ns >= timeouts.patience_ns {
            return Next::Failed(self.stalled(progress.missing, waited_ns));
        }
        // Another part of the answer is to come, or was lost.
        if !self.flight.knows_all(progress) {
            return Next::Wait;
        }
        if self.asking.waits_for_flight(now, &self.flight) {
            return Next::Wait;
        }
        if progress.bound_holds {
            match self.pass {
                Pass::Sending => {
                    self.pass = Pass::Over;
                    return Next::Passed;
                }
                Pass::Over => {
                    self.asking.timer_ns = Some(now_ns.saturating_add(timeouts.keep_alive_ns));
                    return Next::Wait;
                }
                Pass::Settled => {}
            }
            if std::mem::replace(&mut self.finish, true) {
                return Next::Wait;
            }
            return Next::Probe;
        }
        self.forward.clear();
        for repair in self.flight.take_left_out() {
            self.queue(repair);
        }
        self.ready()
    }

    fn on_not_expected(&mut self, now_ns: u64, timeouts: &TimeoutConfig) -> Next {
        let (since_ns, _) = *self.not_expected.get_or_insert((now_ns, 0));
        let waited_ns = now_ns.saturating_sub(since_ns);
        if waited_ns >= timeouts.patience_ns {
            let (peer, message, packets) = (self.to, self.id, self.packets);
            return Next::Failed(TransferError::NotExpected { peer, message, packets, waited_ns });
        }
        // The timer of the probe stays: the receiver answers by itself as soon as it is asked.
        self.ready()
    }

    fn ready(&self) -> Next {
        if self.has_data() { Next::Data } else { Next::Wait }
    }

    /// Questions for which time was up, and nothing has come since.
    pub(crate) fn unanswered(&self) -> u32 {
        self.asking.unanswered
    }

    /// The timer has expired.
    pub(crate) fn on_timeout(&mut self, now_ns: u64, timeouts: &TimeoutConfig) -> Next {
        let silent_ns = self.asking.on_timeout(now_ns);
        if silent_ns >= timeouts.give_up_ns {
            return Next::Failed(TransferError::Unanswered {
                peer: self.to,
                message: self.id,
                packets: self.packets,
                missing: self.stats.missing,
                probes: self.asking.unanswered,
                silent_ns,
                way: Way::default(),
            });
        }
        if let Some((_, times)) = &mut self.not_expected {
            *times = times.saturating_add(1);
        }
        Next::Probe
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
        self.asking.on_answer(when.arrived_ns, stop.sequence, estimate);
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
        self.asking.timer_ns = Some(now_ns.saturating_add(estimate.answer_timeout_ns(0, timeouts)));
        (heard, Next::Wait)
    }

    /// The receiver's final trim map, where it was asked for.
    pub(crate) fn take_map(&mut self) -> Option<TrimMap> {
        self.map.take()
    }
}
