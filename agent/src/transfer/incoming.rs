//! The receiving side of a transfer.

use super::{TransferError, TransferStats};
use crate::endpoint::Expectation;
use crate::endpoint::config::{Reliability, TimeoutConfig};
use crate::wire::cut_map::{CutMap, Detail, FULL};
use crate::wire::{Echo, Final, MapSource, Probe, Report, Status, Stop, Writer};
use trimwire_encoder::Decoder;
use trimwire_encoder::wire::PacketError;

/// Progress of a message, counted whether or not the application expects it already.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    received: u32,
    cut: u32,
    since_ack: u32,
    /// Newest packet since the last report, and when it came; a whole one is preferred.
    newest: Option<(u32, bool, u64)>,
}

impl Progress {
    /// Counts a DATA datagram that brought something. Returns whether an ACK is due: for the first one, so that the
    /// sender has a round trip early, and for every `ack_every`-th after it.
    pub(crate) fn count(&mut self, now_ns: u64, packet: u32, cut: bool, ack_every: u32) -> bool {
        self.received = self.received.saturating_add(1);
        self.cut = self.cut.saturating_add(u32::from(cut));
        if !cut || self.newest.is_none_or(|(_, was_cut, _)| was_cut) {
            self.newest = Some((packet, cut, now_ns));
        }
        if self.since_ack == 0 {
            self.since_ack = ack_every.max(1);
        }
        self.since_ack -= 1;
        self.since_ack + 1 == ack_every.max(1)
    }

    /// What to tell the sender at `now_ns`. The echo is consumed: each is a round trip only once.
    pub(crate) fn report(&mut self, now_ns: u64) -> Report {
        let echo = self.newest.take().map(|(packet, cut, at_ns)| Echo {
            packet,
            cut,
            hold_ns: now_ns.saturating_sub(at_ns).min(u64::from(u32::MAX)) as u32,
        });
        Report { echo, received: self.received, cut: self.cut }
    }
}

/// How far a transfer is.
#[derive(Debug)]
enum Phase {
    /// Packets are missing.
    Receiving(Box<Decoder>),
    /// The application has the message; the replicas have not agreed on its precision yet.
    Agreeing { map: CutMap, agreed: CutMap },
}

/// What became of a DATA datagram.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Taken {
    /// An ACK is due.
    pub(crate) ack: bool,
    /// It brought something, but not all that was sent.
    pub(crate) cut: bool,
    /// The message is delivered.
    pub(crate) finished: bool,
}

/// A message on its way from one rank.
#[derive(Debug)]
pub(crate) struct Incoming {
    from: u16,
    id: u32,
    phase: Phase,
    packets: u32,
    planes: u8,
    /// `None`: every plane of every packet. Else this many packets may be missing.
    may_miss: Option<u32>,
    missing: u32,
    /// Packets of which not every plane is there.
    unfinished: u32,
    pub(crate) progress: Progress,
    /// The last PROBE or FINAL seen.
    sequence: u32,
    /// First packet of the next map part to send.
    cursor: u32,
    started_ns: u64,
    heard_ns: u64,
    /// With the loss bound holding, finish then.
    deadline_ns: Option<u64>,
    pub(crate) timer_ns: Option<u64>,
    pub(crate) ack_queued: bool,
    pub(crate) status_queued: bool,
    pub(crate) stop_queued: bool,
    agree: bool,
    stats: TransferStats,
}

impl Incoming {
    pub(crate) fn new(
        now_ns: u64,
        from: u16,
        id: u32,
        decoder: Decoder,
        expectation: Expectation,
        timeouts: &TimeoutConfig,
    ) -> Self {
        let packets = decoder.layout().packets() as u32;
        let Expectation { reliability, planes, agree } = expectation;
        let planes = planes.clamp(1, FULL);
        // A decoder may have been fed already, from a file say.
        let held = |packet: u32| decoder.coverage(packet as usize);
        let missing = (0..packets).filter(|&p| held(p) == 0).count() as u32;
        let unfinished = (0..packets).filter(|&p| held(p) < planes).count() as u32;
        let may_miss = match reliability {
            Reliability::Full => None,
            Reliability::Bounded { loss } => {
                let share = if loss.is_finite() { f64::from(loss).clamp(0.0, 1.0) } else { 0.0 };
                // A bound below 1 never allows a message to be missing altogether.
                Some(((share * f64::from(packets)) as u32).min(packets.saturating_sub(1)))
            }
        };
        Self {
            from,
            id,
            phase: Phase::Receiving(Box::new(decoder)),
            packets,
            planes,
            may_miss,
            missing,
            unfinished,
            progress: Progress::default(),
            sequence: 0,
            cursor: 0,
            started_ns: now_ns,
            heard_ns: now_ns,
            deadline_ns: None,
            timer_ns: Some(now_ns.saturating_add(timeouts.patience_ns)),
            ack_queued: false,
            status_queued: false,
            stop_queued: false,
            agree,
            stats: TransferStats { packets, ..TransferStats::default() },
        }
    }

    /// Whether packets are still wanted.
    pub(crate) fn is_receiving(&self) -> bool {
        matches!(self.phase, Phase::Receiving(_))
    }

    /// Whether the replicas' agreement is waited for.
    pub(crate) fn agrees(&self) -> bool {
        self.agree
    }

    fn all_there(&self) -> bool {
        if self.may_miss.is_some() { self.missing == 0 } else { self.unfinished == 0 }
    }

    fn bound_holds(&self) -> bool {
        self.may_miss.map_or(self.unfinished == 0, |may_miss| self.missing <= may_miss)
    }

    /// Takes a DATA datagram; `marked_cut` when its DSCP says that a switch cut it.
    pub(crate) fn on_data(
        &mut self,
        now_ns: u64,
        payload: &[u8],
        marked_cut: bool,
        ack_every: u32,
        counted: bool,
    ) -> Result<Taken, PacketError> {
        let Phase::Receiving(decoder) = &mut self.phase else {
            return Ok(Taken { ack: false, cut: false, finished: false });
        };
        let receipt = decoder.receive(payload)?;
        self.heard_ns = now_ns;
        if receipt.planes_before == 0 && receipt.planes_now > 0 {
            self.missing = self.missing.saturating_sub(1);
        }
        if receipt.planes_before < self.planes && receipt.planes_now >= self.planes {
            self.unfinished = self.unfinished.saturating_sub(1);
        }
        let mut ack = false;
        let cut = !receipt.duplicate && (marked_cut || receipt.planes_now < self.planes);
        if receipt.duplicate {
            self.stats.duplicates += 1;
        } else if counted {
            ack = self.progress.count(now_ns, receipt.index as u32, cut, ack_every);
        }
        Ok(Taken { ack, cut, finished: self.all_there() })
    }

    /// Takes a PROBE. `None`: it is about a message of another shape. Otherwise whether the message is delivered; if
    /// not, a STATUS is due, and the timer may have changed.
    pub(crate) fn on_probe(&mut self, now_ns: u64, probe: &Probe, timeouts: &TimeoutConfig) -> Option<bool> {
        if probe.packets != self.packets {
            return None;
        }
        self.heard_ns = now_ns;
        self.sequence = probe.sequence;
        self.stats.probes += 1;
        if !self.is_receiving() {
            self.cursor = probe.map_offset;
            return Some(false);
        }
        if probe.planes < self.planes {
            self.set_planes(probe.planes);
        }
        self.cursor = 0;
        if self.all_there() || (probe.finish && self.bound_holds()) {
            return Some(true);
        }
        if self.bound_holds() {
            let deadline_ns = now_ns.saturating_add(u64::from(probe.grace_ns));
            self.deadline_ns = Some(self.deadline_ns.map_or(deadline_ns, |old| old.min(deadline_ns)));
            self.set_timer(timeouts);
        }
        Some(false)
    }

    /// The sender sends fewer planes than the application thought.
    fn set_planes(&mut self, planes: u8) {
        self.planes = planes;
        if let Phase::Receiving(decoder) = &self.phase {
            let short = (0..self.packets).filter(|&packet| decoder.coverage(packet as usize) < planes);
            self.unfinished = short.count() as u32;
        }
    }

    fn set_timer(&mut self, timeouts: &TimeoutConfig) {
        let silence_ns = self.heard_ns.saturating_add(timeouts.patience_ns);
        self.timer_ns = Some(self.deadline_ns.map_or(silence_ns, |deadline| deadline.min(silence_ns)));
    }

    /// The timer has expired: `Ok(true)` when the message is delivered.
    pub(crate) fn on_timeout(
        &mut self,
        now_ns: u64,
        timeouts: &TimeoutConfig,
    ) -> Result<bool, TransferError> {
        if self.deadline_ns.is_some_and(|deadline| deadline <= now_ns) {
            self.deadline_ns = None;
            if self.is_receiving() && self.bound_holds() {
                return Ok(true);
            }
        }
        let silent_ns = now_ns.saturating_sub(self.heard_ns);
        if silent_ns >= timeouts.patience_ns {
            return Err(TransferError::Silent {
                peer: self.from,
                message: self.id,
                packets: self.packets,
                missing: self.missing,
                cut: self.unfinished.saturating_sub(self.missing),
                silent_ns,
            });
        }
        self.set_timer(timeouts);
        Ok(false)
    }

    /// Hands the decoder over and goes on to the agreement, if there is to be one.
    pub(crate) fn finish(
        &mut self,
        now_ns: u64,
        timeouts: &TimeoutConfig,
    ) -> Option<(Box<Decoder>, TransferStats)> {
        self.stats.missing = self.missing;
        self.stats.cut = self.unfinished.saturating_sub(self.missing);
        self.stats.full = self.packets.saturating_sub(self.unfinished);
        self.stats.duration_ns = now_ns.saturating_sub(self.started_ns);
        let map = match &self.phase {
            Phase::Receiving(decoder) if self.agree => {
                let state = |p| match decoder.coverage(p) {
                    planes if planes >= self.planes => FULL,
                    planes => planes,
                };
                CutMap::from_planes((0..self.packets as usize).map(state).collect())
            }
            Phase::Receiving(_) => CutMap::unknown(0),
            Phase::Agreeing { .. } => return None,
        };
        self.cursor = 0;
        self.deadline_ns = None;
        self.set_timer(timeouts);
        let agreed = CutMap::unknown(if self.agree { self.packets } else { 0 });
        match std::mem::replace(&mut self.phase, Phase::Agreeing { map, agreed }) {
            Phase::Receiving(decoder) => Some((decoder, self.stats)),
            Phase::Agreeing { .. } => None,
        }
    }

    /// Takes a FINAL. Returns (the agreed map if it is complete, whether a confirmation is due).
    pub(crate) fn on_final(&mut self, now_ns: u64, agreed: &Final<'_>) -> (Option<CutMap>, bool) {
        let Phase::Agreeing { agreed: map, .. } = &mut self.phase else { return (None, false) };
        if agreed.packets != self.packets || !self.agree {
            return (None, false);
        }
        self.heard_ns = now_ns;
        self.sequence = agreed.sequence;
        map.take(&agreed.map);
        if map.is_complete() {
            return (Some(std::mem::replace(map, CutMap::unknown(0))), true);
        }
        (None, agreed.map.end() >= self.packets)
    }

    /// The next STATUS, and whether another one follows.
    pub(crate) fn status(&mut self, now_ns: u64, writer: Writer) -> Option<(Vec<u8>, bool)> {
        let report = self.progress.report(now_ns);
        let Phase::Receiving(decoder) = &self.phase else { return None };
        let all = self.planes;
        let planes = |packet: u32| match decoder.coverage(packet as usize) {
            planes if planes >= all => FULL,
            planes => planes,
        };
        let detail = if self.may_miss.is_some() { Detail::Coarse } else { Detail::Planes };
        let source = MapSource { planes: &planes, packets: self.packets, offset: self.cursor, detail };
        let status = Status {
            sequence: self.sequence,
            report,
            missing: self.missing,
            expected: true,
            bound_holds: self.bound_holds(),
            map: None,
        };
        let (payload, end) = writer.status(self.id, &status, Some(&source));
        self.cursor = end;
        Some((payload, end < self.packets))
    }

    /// The next STOP, and whether another one follows.
    pub(crate) fn stop(&mut self, now_ns: u64, writer: Writer) -> Option<(Vec<u8>, bool)> {
        let report = self.progress.report(now_ns);
        let Phase::Agreeing { map, agreed } = &self.phase else { return None };
        let stop = Stop {
            sequence: self.sequence,
            report,
            missing: self.missing,
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

    /// No map parts in the next STOP: it confirms FINALs.
    pub(crate) fn confirm_only(&mut self) {
        self.cursor = self.packets;
    }

    /// What is remembered of the transfer when it is over.
    pub(crate) fn epitaph(&self) -> Finished {
        Finished {
            report: Report { echo: None, ..self.progress.clone().report(0) },
            missing: self.missing,
            agreed: if self.agree { self.packets } else { 0 },
            sequence: self.sequence,
            late: 0,
            stop_queued: false,
        }
    }
}

/// A transfer that is over: enough to answer STOP again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finished {
    report: Report,
    missing: u32,
    agreed: u32,
    pub(crate) sequence: u32,
    /// Late DATA datagrams seen.
    pub(crate) late: u32,
    pub(crate) stop_queued: bool,
}

impl Finished {
    /// A STOP.
    pub(crate) fn stop(&self, id: u32, writer: Writer) -> Vec<u8> {
        let (report, missing, agreed, sequence) = (self.report, self.missing, self.agreed, self.sequence);
        writer.stop(id, &Stop { sequence, report, missing, agreed, map: None }, None).0
    }
}
