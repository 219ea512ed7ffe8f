// SPDX-License-Identifier: Apache-2.0
//! What arrives from a peer. Nothing here panics, whatever the bytes: what does not fit is counted
//! and ignored.

use super::over::Ending;
use super::session::{Greeting, Verdict};
use super::timers::Timer;
use super::{Context, DataArrival, Due, Peer};
use crate::interface::Event;
use crate::transfer::TransferError;
use crate::transfer::incoming::Epitaph;
use crate::wire::{Abort, Control, Final, Forward, Hello, Identity, Probe, Progress, Reason, Stop};
use std::net::SocketAddr;
use trimwire_encoder::{HeaderMask, PacketView};

/// Control packets that may wait to be sent to one peer. Beyond it, answers are left out: they will
/// be asked for again.
const DUE_MAX: usize = 4_096;

impl Peer {
    /// Takes a control packet.
    pub(crate) fn on_control(
        &mut self,
        cx: &mut Context<'_>,
        source: SocketAddr,
        message: u32,
        identity: Identity,
        control: &Control<'_>,
    ) {
        if let Control::Hello(hello) = control {
            return self.on_hello(cx, source, identity, hello);
        }
        // A question about a path comes the way of its data.
        let asks = matches!(control, Control::Path(path) if !path.answer);
        match self.session.judge(source, identity, asks) {
            Verdict::Foreign => {
                cx.stats.foreign += 1;
                return;
            }
            Verdict::Strange => {
                cx.stats.foreign += 1;
                return self.answer_hello(source, identity.from, false);
            }
            Verdict::Ours => {}
        }
        cx.stats.control_received += 1;
        self.stats.control_received += 1;
        self.asked_since_ns = None;
        self.unheard &= matches!(control, Control::Path(_));
        self.confirm();
        match control {
            Control::Ack(progress) => self.on_progress(cx, message, progress, false),
            Control::Status(progress) => self.on_progress(cx, message, progress, true),
            Control::Probe(probe) => self.on_probe(cx, message, probe),
            Control::Stop(stop) => self.on_stop(cx, message, stop),
            Control::Final(agreed) => self.on_final(cx, message, agreed),
            Control::Forward(forward) => self.on_forward(cx, message, forward),
            Control::Abort(abort) => self.on_abort(cx, message, *abort),
            Control::Path(path) => self.on_path(cx, path),
            Control::Vote(vote) => {
                let incarnation = identity.from;
                cx.votes.push_back((self.rank, incarnation, vote.to_vote()));
            }
            Control::Hello(_) => {}
        }
    }

    fn on_hello(&mut self, cx: &mut Context<'_>, source: SocketAddr, identity: Identity, hello: &Hello<'_>) {
        match self.session.on_hello(source, identity, hello) {
            Greeting::Foreign => {
                cx.stats.foreign += 1;
                return;
            }
            // Nothing is kept of it.
            Greeting::Unconfirmed => {
                cx.stats.control_received += 1;
                self.stats.control_received += 1;
                return self.answer_hello(source, identity.from, false);
            }
            Greeting::Known => {}
            Greeting::Restarted => {
                self.restarted(cx);
                self.begin(cx, hello.answer);
            }
            Greeting::Begun => self.begin(cx, hello.answer),
        }
        cx.stats.control_received += 1;
        self.stats.control_received += 1;
        self.asked_since_ns = None;
        if hello.answer {
            if !self.session.is_confirmed()
                && let Some(rtt_ns) = self.greeted.round_trip_ns(cx.now_ns.saturating_sub(cx.age_ns))
            {
                self.estimate.control.sample(rtt_ns);
            }
            self.confirm();
        } else {
            self.answer_hello(source, identity.from, true);
        }
    }

    /// We know the peer. Who has something to send asks whether the peer knows us, unless it has
    /// said so.
    fn begin(&mut self, cx: &mut Context<'_>, known: bool) {
        self.hellos = None;
        self.mask = cx.config.mask_of(self.session.peer().unwrap_or(0));
        if !known && !self.sends.is_empty() {
            self.greet(cx);
        }
        self.explore(cx);
        let sealer = self.sealer(cx.config);
        for transfer in self.receives.values_mut() {
            transfer.set_sealer(sealer.clone());
        }
    }

    /// The peer knows us: what waited for that goes on.
    fn confirm(&mut self) {
        if !self.session.confirm() {
            return;
        }
        self.hellos = None;
        self.timers.set(Timer::Session, None);
        let waiting: Vec<(u32, u8)> =
            self.sends.iter().map(|(&id, transfer)| (id, transfer.planes())).collect();
        for (message, planes) in waiting {
            self.announce(message, planes);
        }
    }

    fn answer_hello(&mut self, to: SocketAddr, incarnation: u32, answer: bool) {
        if self.control.len() < DUE_MAX {
            // Before everything else: without it nothing else is believed.
            self.control.push_front(Due::Hello { answer, to: Some((to, incarnation)) });
        }
    }

    /// What is over the headers of this peer's DATA.
    pub(crate) fn mask(&self) -> HeaderMask {
        self.mask
    }

    /// Whether DATA from there is this peer's.
    pub(crate) fn sends_data_from(&self, source: SocketAddr) -> bool {
        self.session.sends_data_from(source)
    }

    /// Takes a DATA packet.
    pub(crate) fn on_data(&mut self, cx: &mut Context<'_>, data: &DataArrival<'_>) {
        let message = data.packet.header().prefix.message;
        self.asked_since_ns = None;
        let Some(transfer) = self.receives.get_mut(&message) else { return self.on_other_data(cx, data) };
        if !transfer.is_receiving() {
            cx.stats.stray += 1;
            return;
        }
        let ack_every = cx.config.ack_every;
        let Ok(taken) = transfer.on_data(data.arrival, data.packet, data.payload, Some(ack_every), cx.spent)
        else {
            cx.stats.malformed += 1;
            return;
        };
        cx.stats.data_received += 1;
        cx.stats.trimmed_received += u64::from(taken.trimmed && !data.arrival.marked_trimmed);
        let over = transfer.is_over(cx.now_ns);
        if !over {
            self.arriving.insert(message);
            if !taken.ack {
                transfer.report_later(cx.now_ns, &cx.config.timeouts);
                self.timers.set(Timer::Incoming(message), transfer.timer_ns);
            }
            for row in transfer.ready.drain(..) {
                cx.events.push_back(Event::Row { from: self.rank, message, row });
            }
        }
        self.count_data(data.payload.len(), taken.trimmed || data.arrival.marked_trimmed);
        if over {
            return self.deliver(cx, message);
        }
        if taken.ack {
            self.queue_ack(message);
        }
    }

    /// DATA of a message that is over, or not expected yet.
    fn on_other_data(&mut self, cx: &mut Context<'_>, data: &DataArrival<'_>) {
        let (header, ack_every) = (data.packet.header(), cx.config.ack_every.max(1));
        let message = header.prefix.message;
        if let Some(ending) = self.received.ending(message) {
            cx.stats.stray += 1;
            // The sender goes on: it has not heard. Repeated now and then, not for every packet.
            self.late = self.late.wrapping_add(1);
            if self.late.is_multiple_of(ack_every) {
                self.answer_ended(message, ending, 0);
            }
            return;
        }
        let Some(early) = self.early.keep(message, data.arrival, data.payload, self.mask) else {
            cx.stats.early_dropped += 1;
            return;
        };
        cx.stats.data_received += 1;
        // How many planes the sender sends is not known before it says so.
        let trimmed = data.arrival.marked_trimmed;
        let ack = early.tally.count(data.arrival, header.index, trimmed, ack_every);
        if ack && !std::mem::replace(&mut early.ack_queued, true) {
            self.control.push_back(Due::EarlyAck { message });
        }
        self.count_data(data.payload.len(), trimmed);
    }

    /// Queues an answer, unless too many wait.
    pub(super) fn answer(&mut self, due: Due) {
        if self.control.len() < DUE_MAX {
            self.control.push_back(due);
        }
    }

    fn answer_ended(&mut self, message: u32, ending: Ending, sequence: u32) {
        let due = match ending {
            Ending::Delivered(_) => Due::Stop { message, sequence },
            Ending::Aborted(_) | Ending::Forgotten => Due::Abort(message),
        };
        if self.control.len() < DUE_MAX {
            self.control.push_back(due);
        }
    }

    /// Takes in what arrived of a message before it was expected.
    pub(super) fn replay_early(&mut self, cx: &mut Context<'_>, message: u32) {
        let Some(early) = self.early.take(message) else { return };
        let Some(transfer) = self.receives.get_mut(&message) else { return };
        transfer.tally = early.tally;
        for (arrival, payload) in &early.packets {
            let Ok(packet) = PacketView::parse(payload) else { continue };
            let arrival = crate::transfer::incoming::Arrival { at_ns: cx.now_ns, ..*arrival };
            if transfer.on_data(arrival, &packet, payload, None, cx.spent).is_err() {
                cx.stats.malformed += 1;
            }
        }
        if transfer.is_over(cx.now_ns) {
            return self.deliver(cx, message);
        }
        if !early.packets.is_empty() {
            self.arriving.insert(message);
        }
        self.hand_over(cx, message);
        self.queue_ack(message);
        if let Some(probe) = early.probe {
            self.on_probe(cx, message, &probe);
        }
    }

    fn on_progress(&mut self, cx: &mut Context<'_>, message: u32, progress: &Progress<'_>, answer: bool) {
        let Some(transfer) = self.sends.get_mut(&message) else {
            cx.stats.stray += 1;
            // It waits for what will not come.
            if let Some(ending @ (Ending::Aborted(_) | Ending::Forgotten)) = self.sent.ending(message) {
                self.answer_ended(message, ending, 0);
            }
            return;
        };
        let (estimate, paths, timeouts) = (&mut self.estimate, &mut self.paths, &cx.config.timeouts);
        let when = cx.when(self.slowdown.at_ns());
        let (heard, next) = transfer.on_progress(when, progress, answer, estimate, paths, timeouts);
        if transfer.has_forward() && !std::mem::replace(&mut transfer.forward_queued, true) {
            self.control.push_back(Due::Forward(message));
        }
        self.silent_since_ns = self.silent_since_ns.max(transfer.silent_since_ns());
        if let Some(heard) = heard {
            self.take_feedback(&heard, cx.config.overhead_bytes);
        }
        self.ask_paths(cx);
        self.apply(cx, message, next);
    }

    fn on_probe(&mut self, cx: &mut Context<'_>, message: u32, probe: &Probe) {
        let Some(transfer) = self.receives.get_mut(&message) else {
            if let Some(ending) = self.received.ending(message) {
                return self.answer_ended(message, ending, probe.sequence);
            }
            // Answered without having to keep anything; kept, if there is room, to be answered
            // again when the application asks.
            self.early.keep_probe(message, *probe);
            if self.control.len() < DUE_MAX {
                let due = Due::EarlyStatus { message, sequence: probe.sequence };
                self.control.push_back(due);
            }
            return;
        };
        if !transfer.on_probe(cx.now_ns, probe, &cx.config.timeouts) {
            cx.stats.malformed += 1;
            let error = transfer.mismatch(probe);
            return self.fail_receive(cx, message, error);
        }
        if !transfer.is_receiving() {
            return self.queue_stop(message);
        }
        if transfer.is_over(cx.now_ns) {
            return self.deliver(cx, message);
        }
        let timer_ns = transfer.timer_ns;
        if !std::mem::replace(&mut transfer.status_queued, true) {
            self.control.push_back(Due::Status(message));
        }
        self.timers.set(Timer::Incoming(message), timer_ns);
        self.hand_over(cx, message);
    }

    fn on_forward(&mut self, cx: &mut Context<'_>, message: u32, forward: &Forward<'_>) {
        let Some(transfer) = self.receives.get_mut(&message) else {
            cx.stats.stray += 1;
            return;
        };
        if !transfer.on_forward(cx.now_ns, forward) {
            cx.stats.malformed += 1;
            return;
        }
        if transfer.is_receiving() && transfer.is_over(cx.now_ns) {
            return self.deliver(cx, message);
        }
        self.hand_over(cx, message);
    }

    fn on_stop(&mut self, cx: &mut Context<'_>, message: u32, stop: &Stop<'_>) {
        if let Some(transfer) = self.sends.get_mut(&message) {
            let when = cx.when(self.slowdown.at_ns());
            let (heard, next) =
                transfer.on_stop(when, stop, &mut self.estimate, &mut self.paths, &cx.config.timeouts);
            self.silent_since_ns = cx.now_ns;
            if let Some(heard) = heard {
                self.take_feedback(&heard, cx.config.overhead_bytes);
            }
            self.apply(cx, message, next);
        } else if let Some(agreement) = self.finals.get_mut(&message) {
            let next = agreement.on_stop(cx.now_ns, stop);
            self.apply_agreement(cx, message, next);
        } else {
            cx.stats.stray += 1;
            // It waits for an agreement that will not come.
            if let Some(ending @ (Ending::Aborted(_) | Ending::Forgotten)) = self.sent.ending(message) {
                self.answer_ended(message, ending, 0);
            }
        }
    }

    fn on_final(&mut self, cx: &mut Context<'_>, message: u32, agreed: &Final<'_>) {
        let Some(transfer) = self.receives.get_mut(&message) else {
            match self.received.ending(message) {
                Some(ending) => self.answer_ended(message, ending, agreed.sequence),
                None => cx.stats.stray += 1,
            }
            return;
        };
        let (map, confirm) = transfer.on_final(cx.now_ns, agreed);
        if let Some(map) = map {
            cx.events.push_back(Event::Agreed { from: self.rank, message, map });
            self.bury(message);
        } else if confirm {
            transfer.confirm_only();
            self.queue_stop(message);
        } else {
            cx.stats.stray += 1;
        }
    }

    /// The peer has given a message up; in which direction, it does not say: messages of both have
    /// different numbers or the same fate.
    fn on_abort(&mut self, cx: &mut Context<'_>, message: u32, abort: Abort) {
        let peer = self.rank;
        let error = TransferError::Aborted { peer, message, culprit: abort.culprit, reason: abort.reason };
        let mut known = false;
        if self.sends.contains_key(&message) || self.finals.contains_key(&message) {
            self.end_send(message, Ending::Aborted(abort));
            self.fail(cx, message, error);
            known = true;
        }
        if self.receives.contains_key(&message) {
            self.end_receive(message, Ending::Aborted(abort));
            self.fail(cx, message, error);
            known = true;
        }
        if !known && self.received.ending(message).is_none() {
            // Not expected yet: it never will be.
            self.early.take(message);
            self.received.end(message, Ending::Aborted(abort));
        }
        if !known {
            cx.stats.stray += 1;
        }
    }

    /// How a received message ended.
    pub(super) fn epitaph(&self, message: u32) -> Option<Epitaph> {
        match self.received.ending(message)? {
            Ending::Delivered(epitaph) => Some(epitaph),
            Ending::Aborted(_) | Ending::Forgotten => None,
        }
    }

    /// Why a message was given up, in either direction.
    pub(super) fn abortion(&self, message: u32) -> Option<Abort> {
        let endings = [self.received.ending(message), self.sent.ending(message)].into_iter().flatten();
        let told = endings.clone().find_map(|ending| match ending {
            Ending::Aborted(abort) => Some(abort),
            Ending::Delivered(_) | Ending::Forgotten => None,
        });
        let forgotten = Abort { reason: Reason::Mismatch, culprit: self.stream.rank() };
        told.or_else(|| {
            endings.into_iter().any(|ending| matches!(ending, Ending::Forgotten)).then_some(forgotten)
        })
    }
}
