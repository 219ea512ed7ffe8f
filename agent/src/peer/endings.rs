// SPDX-License-Identifier: Apache-2.0
//! How messages end: delivered, aborted, failed, or void because the other side started anew.

use super::greeting::Greeted;
use super::over::{Ending, Over, before};
use super::timers::Timer;
use super::{Context, Due, Peer};
use crate::interface::Event;
use crate::transfer::TransferError;
use crate::wire::{Abort, Reason};

impl Peer {
    /// Ends a message on its way to the peer, and tells the peer.
    pub(crate) fn abort_send(&mut self, message: u32, abort: Abort) {
        let undecided = self.undecided.contains(&message);
        if undecided || self.sends.contains_key(&message) || self.finals.contains_key(&message) {
            self.end_send(message, Ending::Aborted(abort));
            self.control.push_back(Due::Abort(message));
        }
    }

    /// Ends a message on its way from the peer, and tells the peer.
    pub(crate) fn abort_expect(&mut self, message: u32, abort: Abort) {
        if self.receives.contains_key(&message) {
            self.end_receive(message, Ending::Aborted(abort));
            self.control.push_back(Due::Abort(message));
        }
    }

    /// Nothing below is used any more, in either direction.
    pub(crate) fn retire(&mut self, below: u32) {
        let live = self.sends.keys().chain(self.receives.keys()).chain(self.finals.keys());
        let live = live.chain(&self.undecided);
        let below = live.copied().fold(below, |below, id| if before(id, below) { id } else { below });
        self.sent.retire(below);
        self.received.retire(below);
        self.early.forget(|id| before(id, below));
    }

    pub(super) fn end_send(&mut self, message: u32, ending: Ending) {
        if let Some(transfer) = self.sends.remove(&message) {
            let order = self.orders.remove(&message).unwrap_or(0);
            self.sending.remove(&(transfer.class, order, message));
        }
        self.finals.remove(&message);
        self.undecided.remove(&message);
        self.timers.set(Timer::Outgoing(message), None);
        self.timers.set(Timer::Finals(message), None);
        self.sent.end(message, ending);
    }

    pub(super) fn end_receive(&mut self, message: u32, ending: Ending) {
        self.receives.remove(&message);
        self.arriving.remove(&message);
        self.timers.set(Timer::Incoming(message), None);
        self.received.end(message, ending);
    }

    pub(super) fn fail(&mut self, cx: &mut Context<'_>, message: u32, error: TransferError) {
        cx.stats.failed += 1;
        self.stats.failed += 1;
        cx.events.push_back(Event::Failed { peer: self.rank, message, error });
    }

    pub(super) fn fail_send(&mut self, cx: &mut Context<'_>, message: u32, error: TransferError) {
        let error = self.cause(cx, error);
        let (culprit, reason) = error.blame();
        self.abort_send(message, Abort { reason, culprit });
        self.fail(cx, message, error);
    }

    pub(super) fn fail_receive(&mut self, cx: &mut Context<'_>, message: u32, error: TransferError) {
        let error = self.cause(cx, error);
        let (culprit, reason) = error.blame();
        self.abort_expect(message, Abort { reason, culprit });
        self.fail(cx, message, error);
    }

    /// The peer has started anew: all that was between us is void.
    pub(super) fn restarted(&mut self, cx: &mut Context<'_>) {
        let peer = self.rank;
        let mut ids: Vec<u32> = std::mem::take(&mut self.sends).into_keys().collect();
        ids.extend(std::mem::take(&mut self.finals).into_keys());
        ids.extend(std::mem::take(&mut self.undecided));
        // Numbers are used once in an incarnation: our packets of before may still be on their way,
        // and say nothing of whom they are for.
        for &message in &ids {
            self.sent.end(message, Ending::Aborted(Abort { reason: Reason::Restarted, culprit: peer }));
        }
        for message in ids.into_iter().chain(std::mem::take(&mut self.receives).into_keys()) {
            self.fail(cx, message, TransferError::Restarted { peer, message });
        }
        self.sending.clear();
        self.arriving.clear();
        self.orders.clear();
        self.timers.clear();
        self.control.clear();
        self.votes.clear();
        self.early.forget(|_| true);
        self.mtu.forget();
        self.pieces.forget();
        self.received = Over::default();
        (self.hellos, self.greeted, self.asked_since_ns) = (None, Greeted::Never, None);
    }

    /// Hands a message to the application and tells the sender.
    pub(super) fn deliver(&mut self, cx: &mut Context<'_>, message: u32) {
        let Some(transfer) = self.receives.get_mut(&message) else { return };
        let Some(stats) = transfer.finish(cx.now_ns, &cx.config.timeouts) else { return };
        let agrees = transfer.agrees();
        self.arriving.remove(&message);
        self.stats.messages_received += 1;
        self.stats.packets_delivered += u64::from(stats.packets);
        self.stats.missing += u64::from(stats.missing);
        self.hand_over(cx, message);
        cx.events.push_back(Event::Received { from: self.rank, message, stats });
        if agrees {
            self.queue_stop(message);
        } else {
            self.bury(message);
        }
    }

    /// Hands rows that are there to the application.
    pub(super) fn hand_over(&mut self, cx: &mut Context<'_>, message: u32) {
        let Some(transfer) = self.receives.get_mut(&message) else { return };
        for row in transfer.ready.drain(..) {
            cx.events.push_back(Event::Row { from: self.rank, message, row });
        }
    }

    pub(super) fn queue_stop(&mut self, message: u32) {
        let Some(transfer) = self.receives.get_mut(&message) else { return };
        if !std::mem::replace(&mut transfer.stop_queued, true) {
            self.control.push_back(Due::Stop { message, sequence: 0 });
        }
        self.timers.set(Timer::Incoming(message), transfer.timer_ns);
    }

    /// Ends a message that was received, remembering enough to answer late questions.
    pub(super) fn bury(&mut self, message: u32) {
        let Some(transfer) = self.receives.get(&message) else { return };
        let (epitaph, sequence) = (transfer.epitaph(), transfer.sequence());
        self.end_receive(message, Ending::Delivered(epitaph));
        self.control.push_back(Due::Stop { message, sequence });
    }
}
