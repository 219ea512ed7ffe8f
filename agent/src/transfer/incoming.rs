// SPDX-License-Identifier: Apache-2.0
//! The receiving side of a transfer: each row is handed over as soon as it is there.

use super::received::Received;
use crate::config::{Reliability, TimeoutConfig};
use crate::interface::Expectation;
use crate::outcome::{TransferError, TransferStats, Way};
use crate::wire::trim_map::{Detail, FULL, TrimMap};
use crate::wire::{Echo, Final, Forward, MapSource, Probe, Progress, Report, Stop, Wanted, Writer, shape};
use std::collections::VecDeque;
use std::num::NonZeroU16;
use std::ops::Range;
use trimwire_encoder::{Envelope, PacketView, RowReceiver, Sealer};

/// Peers from which messages are arriving, as reports tell it.
pub(crate) type Senders = Option<NonZeroU16>;

/// What a receiver counts of a message, whether or not the application expects it already.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    received: u32,
    trimmed: u32,
    marked: u32,
    since_ack: u32,
    /// Newest packet since the last report, and when it came; a whole one is preferred.
    newest: Option<(u32, bool, u64)>,
}

/// How a DATA datagram came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// When it came to this host.
    pub(crate) at_ns: u64,
    /// Its DSCP says that a switch trimmed it.
    pub(crate) marked_trimmed: bool,
    /// Congestion experienced.
    pub(crate) congested: bool,
}

impl Tally {
    /// Counts a DATA datagram that brought something. Returns whether an ACK is due: for the first
    /// one, so that the sender has a round trip early, and for every `ack_every`-th after it.
    pub(crate) fn count(&mut self, arrival: Arrival, packet: u32, trimmed: bool, ack_every: u32) -> bool {
        self.received = self.received.saturating_add(1);
        self.trimmed = self.trimmed.saturating_add(u32::from(trimmed));
        self.marked = self.marked.saturating_add(u32::from(arrival.congested));
        if !trimmed || self.newest.is_none_or(|(_, was_trimmed, _)| was_trimmed) {
            self.newest = Some((packet, trimmed, arrival.at_ns));
        }
        if self.since_ack == 0 {
            self.since_ack = ack_every.max(1);
        }
        self.since_ack -= 1;
        self.since_ack + 1 == ack_every.max(1)
    }

    /// What to tell the sender at `now_ns`. The echo is consumed: each is a round trip only once.
    pub(crate) fn report(&mut self, now_ns: u64) -> Report {
        let echo = self.newest.take().map(|(packet, trimmed, at_ns)| Echo {
            packet,
            trimmed,
            hold_ns: now_ns.saturating_sub(at_ns).min(u64::from(u32::MAX)) as u32,
        });
        Report { echo, received: self.received, trimmed: self.trimmed, marked: self.marked, senders: None }
    }
}

/// A row.
#[derive(Debug)]
enum Slot {
    /// Nothing has arrived of it.
    Empty,
    /// Packets are missing.
    Receiving(Box<RowReceiver>),
    /// The application has it.
    HandedOver,
}

/// How far a transfer is.
#[derive(Debug)]
enum Phase {
    /// Packets are missing.
    Receiving,
    /// The application has the message; the replicas have not agreed on its precision yet.
    Agreeing { map: TrimMap, agreed: TrimMap },
}

/// What became of a DATA datagram.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// An ACK is due.
    pub(crate) ack: bool,
    /// It brought something, but not all that was sent.
    pub(crate) trimmed: bool,
}

/// A DATA datagram that is none of the message's: damaged, forged, or of one that is divided
/// otherwise.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Misfit;

/// A message on its way from one rank.
#[derive(Debug)]
pub(crate) struct Incoming {
    from: u16,
    id: u32,
    envelope: Envelope,
    expectation: Expectation,
    sealer: Option<Sealer>,
    phase: Phase,
    received: Received,
    shape: u16,
    slots: Vec<Slot>,
    /// Packets of each row that are not satisfied.
    wants: Vec<u32>,
    /// Rows that are there, for the application.
    pub(crate) ready: VecDeque<Box<RowReceiver>>,
    /// `None`: every plane of every packet. Else this many packets may be missing.
    may_miss: Option<u32>,
    pub(crate) tally: Tally,
    /// The last PROBE or FINAL seen.
    sequence: u32,
    /// First packet of the next map part to send.
    cursor: u32,
    started_ns: u64,
    heard_ns: u64,
    /// With the loss bound holding, finish then.
    deadline_ns: Option<u64>,
    /// Something has arrived that no ACK has told of: one is due then.
    ack_due_ns: Option<u64>,
    pub(crate) timer_ns: Option<u64>,
    pub(crate) ack_queued: bool,
    /// ACKs written on this occasion.
    acks: u8,
    pub(crate) status_queued: bool,
    pub(crate) stop_queued: bool,
    stats: TransferStats,
}

impl Incoming {
    pub(crate) fn new(
        now_ns: u64,
        envelope: Envelope,
        expectation: Expectation,
        sealer: Option<Sealer>,
        timeouts: &TimeoutConfig,
    ) -> Self {
        let layout = &expectation.layout;
        let packets = layout.packets() as u32;
        let planes = expectation.planes.clamp(1, FULL);
        let may_miss = match expectation.reliability {
            Reliability::Full => None,
            Reliability::Bounded { loss } => {
                let share = if loss.is_finite() { f64::from(loss).clamp(0.0, 1.0) } else { 0.0 };
                // A bound below 1 never allows a message to be missing altogether.
                Some(((share * f64::from(packets)) as u32).min(packets.saturating_sub(1)))
            }
        };
        let wants = (0..layout.rows()).map(|row| layout.row_packets(row).len() as u32).collect();
        let slots = (0..layout.rows()).map(|_| Slot::Empty).collect();
        let silence_ns = now_ns.saturating_add(timeouts.keep_alive_ns);
        let timer_ns = Some(expectation.until_ns.map_or(silence_ns, |until_ns| until_ns.min(silence_ns)));
        Self {
            from: envelope.stream.rank(),
            id: envelope.message,
            envelope,
            sealer,
            phase: Phase::Receiving,
            // Tails may still be fetched until the replicas agree: rows that lack some are kept.
            received: Received::new(packets, planes, may_miss.is_none() || expectation.agree),
            shape: shape(layout),
            slots,
            wants,
            ready: VecDeque::new(),
            may_miss,
            tally: Tally::default(),
            sequence: 0,
            cursor: 0,
            started_ns: now_ns,
            heard_ns: now_ns,
            deadline_ns: None,
            ack_due_ns: None,
            timer_ns,
            ack_queued: false,
            acks: 0,
            status_queued: false,
            stop_queued: false,
            stats: TransferStats { packets, ..TransferStats::default() },
            expectation,
        }
    }

    /// What the sender seals its packets with, once it is known who it is.
    pub(crate) fn set_sealer(&mut self, sealer: Option<Sealer>) {
        self.sealer = sealer;
    }

    /// Whether packets are still wanted.
    pub(crate) fn is_receiving(&self) -> bool {
        matches!(self.phase, Phase::Receiving)
    }

    /// Whether the replicas' agreement is waited for.
    pub(crate) fn agrees(&self) -> bool {
        self.expectation.agree
    }

    /// Whether everything that is wanted is there.
    pub(crate) fn all_there(&self) -> bool {
        self.received.unsatisfied() == 0
    }

    fn bound_holds(&self) -> bool {
        self.may_miss.map_or(self.all_there(), |may_miss| self.received.missing() <= may_miss)
    }

    fn receiver(&self, row: usize) -> RowReceiver {
        let Expectation { layout, codec, job, decoding, origin, keep, .. } = &self.expectation;
        // Where a sealed packet's tags are follows from the planes that were sent.
        let receiver = RowReceiver::new(layout, row, *job, self.envelope, *decoding);
        let receiver = receiver.with_codec(*codec).with_planes(self.received.planes());
        let mut receiver = receiver.with_origin(origin.unwrap_or(self.envelope));
        if let Some(sealer) = &self.sealer {
            receiver = receiver.sealed(sealer.clone());
        }
        match keep {
            Some(keep) => receiver.keeping(keep.place(row), keep.planes()),
            None => receiver,
        }
    }

    /// Takes a DATA datagram. `count`: how often an ACK is due; `None` where it was counted when it
    /// came. `spent` are rows whose memory may be used.
    pub(crate) fn on_data(
        &mut self,
        arrival: Arrival,
        packet: &PacketView<'_>,
        payload: &[u8],
        count: Option<u32>,
        spent: &mut Vec<RowReceiver>,
    ) -> Result<Taken, Misfit> {
        let header = packet.header();
        let (index, packets) = (header.index, self.received.packets());
        if !self.is_receiving() {
            return Ok(Taken { ack: false, trimmed: false });
        }
        // The front of a longer message would be taken for all of it.
        if index >= packets || header.prefix.last != (index + 1 == packets) {
            return Err(Misfit);
        }
        let row = self.expectation.layout.packet_row(index as usize);
        let (held, first) = match &mut self.slots[row] {
            Slot::HandedOver => {
                self.heard_ns = arrival.at_ns;
                self.stats.duplicates += 1;
                return Ok(Taken { ack: false, trimmed: false });
            }
            Slot::Receiving(receiver) => {
                let receipt = receiver.receive_parsed(payload, packet).map_err(|_| Misfit)?;
                if receipt.duplicate {
                    self.heard_ns = arrival.at_ns;
                    self.stats.duplicates += 1;
                    // What was trimmed as deeply before brings nothing, but says that the path
                    // carries packets, and how full it is.
                    let trimmed = arrival.marked_trimmed || receipt.planes_now < self.received.planes();
                    let ack =
                        trimmed && count.is_some_and(|every| self.tally.count(arrival, index, true, every));
                    return Ok(Taken { ack, trimmed });
                }
                (receipt.planes_now, None)
            }
            Slot::Empty => {
                let mut receiver = self.receiver(row);
                if self.expectation.keep.is_none()
                    && let Some(memory) = spent.pop()
                {
                    receiver = receiver.reusing(memory);
                }
                let receipt = receiver.receive_parsed(payload, packet).map_err(|_| Misfit)?;
                (receipt.planes_now, Some(receiver))
            }
        };
        if let Some(receiver) = first {
            self.slots[row] = Slot::Receiving(Box::new(receiver));
        }
        self.heard_ns = arrival.at_ns;
        self.stats.bytes_received += payload.len() as u64;
        self.stats.last_ns = Some(arrival.at_ns.saturating_sub(self.started_ns));
        self.stats.first_ns = self.stats.first_ns.or(self.stats.last_ns);
        let satisfied = self.received.set(index, held);
        let trimmed = arrival.marked_trimmed || held < self.received.planes();
        let mut ack = count.is_some_and(|ack_every| self.tally.count(arrival, index, trimmed, ack_every));
        if satisfied {
            // A row's end is news to its sender: its memory is free.
            ack |= self.satisfied(row);
        }
        Ok(Taken { ack, trimmed })
    }

    /// A packet of a row is satisfied. Whether the row is, too.
    fn satisfied(&mut self, row: usize) -> bool {
        self.wants[row] -= 1;
        if self.wants[row] == 0 {
            self.hand_over(row);
        }
        self.wants[row] == 0
    }

    fn hand_over(&mut self, row: usize) {
        match std::mem::replace(&mut self.slots[row], Slot::HandedOver) {
            Slot::Receiving(receiver) => self.ready.push_back(receiver),
            Slot::Empty => {
                let empty = self.receiver(row);
                self.ready.push_back(Box::new(empty));
            }
            Slot::HandedOver => {}
        }
    }

    /// Takes a PROBE. `false`: it is about a message of another shape, and this one will never be
    /// there. Otherwise a STATUS is due unless everything is there, and the timer may have changed.
    pub(crate) fn on_probe(&mut self, now_ns: u64, probe: &Probe, timeouts: &TimeoutConfig) -> bool {
        if probe.packets != self.received.packets() || ![0, self.shape].contains(&probe.shape) {
            return false;
        }
        self.heard_ns = now_ns;
        self.sequence = probe.sequence;
        self.stats.probes += 1;
        if !self.is_receiving() {
            self.cursor = probe.map_offset;
            return true;
        }
        if probe.planes < self.received.planes() {
            for index in self.received.set_planes(probe.planes) {
                let row = self.expectation.layout.packet_row(index as usize);
                self.satisfied(row);
            }
        }
        self.cursor = self.received.span().0;
        if self.bound_holds() && probe.grace_ns > 0 {
            let grace_ns = if probe.finish { 0 } else { u64::from(probe.grace_ns) };
            let deadline_ns = now_ns.saturating_add(grace_ns);
            self.deadline_ns = Some(self.deadline_ns.map_or(deadline_ns, |old| old.min(deadline_ns)));
            self.set_timer(timeouts);
        }
        true
    }

    /// Takes a FORWARD: rows that lack nothing else are there. `false`: it is about a message of
    /// another shape. Who wants every plane waits for it, or until the time is up.
    pub(crate) fn on_forward(&mut self, now_ns: u64, forward: &Forward<'_>) -> bool {
        if forward.packets != self.received.packets() {
            return false;
        }
        self.heard_ns = now_ns;
        let most = self.may_miss.filter(|_| self.is_receiving() && !self.agrees()).unwrap_or(0);
        for run in forward.map.runs().filter(|run| run.planes == 0) {
            for index in run.start..run.start + run.count {
                if self.received.waive(index, most) {
                    let row = self.expectation.layout.packet_row(index as usize);
                    self.satisfied(row);
                }
            }
        }
        true
    }

    /// What is wrong with a PROBE that was not taken.
    pub(crate) fn mismatch(&self, probe: &Probe) -> TransferError {
        let (peer, message) = (self.from, self.id);
        TransferError::Mismatch { peer, message, packets: probe.packets, expected: self.received.packets() }
    }

    /// Whether enough is there, and nothing more to be waited for.
    pub(crate) fn is_over(&self, now_ns: u64) -> bool {
        let past = |at_ns: Option<u64>| at_ns.is_some_and(|at_ns| at_ns <= now_ns);
        let enough = self.bound_holds() && (past(self.deadline_ns) || self.received.is_all_waived());
        self.all_there() || past(self.expectation.until_ns) || enough
    }

    fn set_timer(&mut self, timeouts: &TimeoutConfig) {
        let silence_ns = self.heard_ns.saturating_add(timeouts.keep_alive_ns);
        let until_ns = self.expectation.until_ns.filter(|_| self.is_receiving());
        self.timer_ns =
            [self.deadline_ns, until_ns, self.ack_due_ns, Some(silence_ns)].into_iter().flatten().min();
    }

    /// Data has come that is not reported at once: it will be, however slowly more comes.
    pub(crate) fn report_later(&mut self, now_ns: u64, timeouts: &TimeoutConfig) {
        if self.ack_due_ns.is_none() && self.is_receiving() {
            self.ack_due_ns = Some(now_ns.saturating_add(timeouts.ack_delay_ns));
            self.set_timer(timeouts);
        }
    }

    /// Whether an ACK is due because of the time.
    pub(crate) fn take_ack_due(&mut self, now_ns: u64) -> bool {
        self.ack_due_ns.take_if(|at_ns| *at_ns <= now_ns).is_some()
    }

    /// The timer has expired. `Ok(true)`: nothing has been heard for a while.
    pub(crate) fn on_timeout(
        &mut self,
        now_ns: u64,
        timeouts: &TimeoutConfig,
    ) -> Result<bool, TransferError> {
        let silent_ns = now_ns.saturating_sub(self.heard_ns);
        if silent_ns >= timeouts.patience_ns {
            return Err(self.silent(now_ns));
        }
        let silent = silent_ns >= timeouts.keep_alive_ns;
        self.set_timer(timeouts);
        if let Some(timer_ns) = self.timer_ns.filter(|&at_ns| at_ns <= now_ns) {
            self.timer_ns = Some(timer_ns.max(now_ns.saturating_add(timeouts.keep_alive_ns)));
        }
        Ok(silent)
    }

    /// What is to be said when the sender is gone.
    pub(crate) fn silent(&self, now_ns: u64) -> TransferError {
        let silent_ns = now_ns.saturating_sub(self.heard_ns);
        TransferError::Silent {
            peer: self.from,
            message: self.id,
            packets: self.received.packets(),
            missing: self.received.missing(),
            trimmed: self.received.unfinished().saturating_sub(self.received.missing()),
            silent_ns,
            way: Way::default(),
        }
    }

    /// Hands all that is left over, and goes on to the agreement, if there is to be one. `None`
    /// when that has happened already.
    pub(crate) fn finish(&mut self, now_ns: u64, timeouts: &TimeoutConfig) -> Option<TransferStats> {
        if !self.is_receiving() {
            return None;
        }
        for row in 0..self.slots.len() {
            self.hand_over(row);
        }
        let (missing, unfinished) = (self.received.missing(), self.received.unfinished());
        self.stats.missing = missing;
        self.stats.trimmed = unfinished.saturating_sub(missing);
        self.stats.full = self.received.packets().saturating_sub(unfinished);
        self.stats.duration_ns = now_ns.saturating_sub(self.started_ns);
        self.cursor = 0;
        (self.deadline_ns, self.ack_due_ns) = (None, None);
        self.set_timer(timeouts);
        let (map, agreed) = if self.agrees() {
            (self.received.map(), TrimMap::unknown(self.received.packets()))
        } else {
            (TrimMap::unknown(0), TrimMap::unknown(0))
        };
        self.phase = Phase::Agreeing { map, agreed };
        Some(self.stats)
    }

    /// Takes a FINAL. Returns (the agreed map if it is complete, whether a confirmation is due).
    pub(crate) fn on_final(&mut self, now_ns: u64, agreed: &Final<'_>) -> (Option<TrimMap>, bool) {
        let agrees = self.agrees();
        let Phase::Agreeing { agreed: map, .. } = &mut self.phase else { return (None, false) };
        if agreed.packets != self.received.packets() || !agrees {
            return (None, false);
        }
        self.heard_ns = now_ns;
        self.sequence = agreed.sequence;
        map.take(&agreed.map);
        if map.is_complete() {
            return (Some(std::mem::replace(map, TrimMap::unknown(0))), true);
        }
        (None, agreed.map.end() >= self.received.packets())
    }

    /// The next ACK, of what no report has told, and whether another one is to follow at once.
    pub(crate) fn ack(&mut self, now_ns: u64, senders: Senders, writer: Writer) -> Option<(Vec<u8>, bool)> {
        if !self.is_receiving() {
            return None;
        }
        let news = self.received.untold().next().unwrap_or(0..0);
        let (payload, _) = self.progress(now_ns, senders, writer, false, news);
        self.acks += 1;
        let more = self.acks < ACKS_MOST && !self.received.untold().is_empty();
        if !more {
            self.acks = 0;
        }
        Some((payload, more))
    }

    /// The next STATUS, and whether another one follows. Behind the last packet of which anything
    /// has arrived there is nothing to tell.
    pub(crate) fn status(
        &mut self,
        now_ns: u64,
        senders: Senders,
        writer: Writer,
    ) -> Option<(Vec<u8>, bool)> {
        if !self.is_receiving() {
            return None;
        }
        let high = self.received.span().1;
        let (payload, end) = self.progress(now_ns, senders, writer, true, self.cursor..high);
        let wanting =
            (self.cursor..end).filter(|&packet| !self.received.satisfies(self.received.held(packet)));
        let behind = if end < high { 0 } else { self.received.packets() - high };
        self.stats.asked = self.stats.asked.saturating_add(wanting.count() as u32 + behind);
        self.cursor = end;
        Some((payload, end < high))
    }

    fn progress(
        &mut self,
        now_ns: u64,
        senders: Senders,
        writer: Writer,
        answer: bool,
        packets: Range<u32>,
    ) -> (Vec<u8>, u32) {
        self.ack_due_ns = None;
        let progress = Progress {
            sequence: self.sequence,
            report: Report { senders, ..self.tally.report(now_ns) },
            missing: self.received.missing(),
            wanted: self.may_miss.map_or(Wanted::EveryPlane, Wanted::AllBut),
            expected: true,
            bound_holds: self.bound_holds(),
            low: self.received.span().0,
            map: None,
        };
        let coarse = self.may_miss.is_some() && !self.agrees();
        let detail = if coarse { Detail::Coarse } else { Detail::Planes };
        let received = &self.received;
        let planes = |packet: u32| received.state(packet);
        let source = MapSource { planes: &planes, packets: packets.end, offset: packets.start, detail };
        let (payload, end) =
            writer.progress(self.id, answer, &progress, (!packets.is_empty()).then_some(&source));
        let told = packets.start..end.max(packets.start);
        self.received.untold().told(told.clone());
        (payload, told.end)
    }

    /// The next STOP, and whether another one follows.
    pub(crate) fn stop(&mut self, now_ns: u64, writer: Writer) -> Option<(Vec<u8>, bool)> {
        let report = self.tally.report(now_ns);
        let Phase::Agreeing { map, agreed } = &self.phase else { return None };
        let stop = Stop {
            sequence: self.sequence,
            report,
            missing: self.received.missing(),
            agreed: agreed.known_until(),
            map: None,
        };
        let packets = map.packets();
        if self.cursor >= packets {
            return Some((writer.stop(self.id, &stop, None).0, false));
        }
        let planes = |packet| map.planes(packet);
        let source = MapSource { planes: &planes, packets, offset: self.cursor, detail: Detail::Planes };
        let (payload, end) = writer.stop(self.id, &stop, Some(&source));
        self.cursor = end;
        Some((payload, end < packets))
    }

    /// The next STOP has the map from its beginning: whoever is silent may have lost the one
    /// before.
    pub(crate) fn tell_again(&mut self) {
        self.cursor = 0;
    }

    /// No map parts in the next STOP: it confirms FINALs.
    pub(crate) fn confirm_only(&mut self) {
        self.cursor = self.received.packets();
    }

    /// Number of the newest PROBE or FINAL seen.
    pub(crate) fn sequence(&self) -> u32 {
        self.sequence
    }

    /// What is remembered of the transfer when it is over.
    pub(crate) fn epitaph(&self) -> Epitaph {
        Epitaph {
            tally: self.tally,
            missing: self.received.missing(),
            agreed: if self.agrees() { self.received.packets() } else { 0 },
        }
    }
}

/// ACKs that are sent on one occasion, at most: what has arrived since the one before is mostly in
/// one place, and in few where packets are sent again.
const ACKS_MOST: u8 = 4;

/// A transfer that is over: enough to answer STOP again.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Epitaph {
    /// With the newest packet: a message that is over with its first report tells its round trip by
    /// that.
    tally: Tally,
    missing: u32,
    agreed: u32,
}

impl Epitaph {
    /// Of a message of which nothing is remembered but that it is over: the agreement on it, where
    /// there was one, is, too.
    pub(crate) const RETIRED: Self = Self {
        tally: Tally { received: 0, trimmed: 0, marked: 0, since_ack: 0, newest: None },
        missing: 0,
        agreed: u32::MAX,
    };

    /// A STOP that leaves at `now_ns`.
    pub(crate) fn stop(&self, now_ns: u64, id: u32, sequence: u32, writer: Writer) -> Vec<u8> {
        let Self { mut tally, missing, agreed } = *self;
        let report = tally.report(now_ns);
        writer.stop(id, &Stop { sequence, report, missing, agreed, map: None }, None).0
    }
}
