// SPDX-License-Identifier: Apache-2.0
//! What a peer does when a timer has expired.

use super::timers::Timer;
use super::{Context, Due, Peer};
use crate::transfer::incoming::Incoming;

/// Questions in a row without an answer before answers may be too long for the way back: losses of
/// a fifth each way leave one in twenty so many (RFC 8899 §5.1.2: MAX_PROBES).
const UNANSWERED: u32 = 3;

impl Peer {
    /// When to call [`Self::on_timeout`] next.
    pub(crate) fn timeout_ns(&self) -> Option<u64> {
        self.timers.next_ns()
    }

    /// Lets every timer expire whose time has come.
    pub(crate) fn on_timeout(&mut self, cx: &mut Context<'_>) {
        while let Some(timer) = self.timers.expire(cx.now_ns) {
            match timer {
                Timer::Session => self.on_session_timeout(cx),
                Timer::Path => self.on_path_timeout(cx),
                Timer::Paths => self.ask_paths(cx),
                Timer::Outgoing(message) => {
                    if let Some(transfer) = self.sends.get_mut(&message) {
                        let next = transfer.on_timeout(cx.now_ns, &cx.config.timeouts);
                        let unanswered = transfer.unanswered();
                        if unanswered > 0 {
                            self.session.turn();
                        }
                        if unanswered >= UNANSWERED {
                            self.suspect_both_ways(cx);
                        }
                        self.apply(cx, message, next);
                    }
                }
                Timer::Incoming(message) => self.on_incoming_timeout(cx, message),
                Timer::Finals(message) => {
                    if let Some(agreement) = self.finals.get_mut(&message) {
                        let next = agreement.on_timeout(cx.now_ns, &cx.config.timeouts);
                        self.session.turn();
                        self.suspect_both_ways(cx);
                        self.apply_agreement(cx, message, next);
                    }
                }
            }
        }
    }

    pub(super) fn on_incoming_timeout(&mut self, cx: &mut Context<'_>, message: u32) {
        let Some(transfer) = self.receives.get_mut(&message) else { return };
        if transfer.is_receiving() && transfer.is_over(cx.now_ns) {
            return self.deliver(cx, message);
        }
        let ack = transfer.take_ack_due(cx.now_ns);
        match transfer.on_timeout(cx.now_ns, &cx.config.timeouts) {
            Err(error) => self.fail_receive(cx, message, error),
            Ok(silent) => {
                let timer_ns = transfer.timer_ns;
                self.timers.set(Timer::Incoming(message), timer_ns);
                if ack {
                    self.queue_ack(message);
                }
                if silent {
                    self.ask_for_life(cx, message);
                }
            }
        }
    }

    /// Nothing has come of an expected message for a while: is its sender alive, and does it know
    /// that it is waited for?
    pub(super) fn ask_for_life(&mut self, cx: &mut Context<'_>, message: u32) {
        if !self.session.is_open() {
            return self.greet(cx);
        }
        if self.asked_since_ns.is_some() {
            self.session.turn();
        }
        let since_ns = *self.asked_since_ns.get_or_insert(cx.now_ns);
        if cx.now_ns.saturating_sub(since_ns) >= cx.config.timeouts.give_up_ns {
            if let Some(error) = self.receives.get(&message).map(|transfer| transfer.silent(cx.now_ns)) {
                self.fail_receive(cx, message, error);
            }
            return;
        }
        self.control.push_back(Due::Hello { answer: false, to: None });
        // A sender that has given the message up says so again. Who waits for the precision to
        // decode at has nothing to acknowledge.
        if self.receives.get(&message).is_some_and(Incoming::is_receiving) {
            self.queue_ack(message);
        } else {
            if let Some(transfer) = self.receives.get_mut(&message) {
                transfer.tell_again();
            }
            self.queue_stop(message);
        }
    }
}
