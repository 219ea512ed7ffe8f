// SPDX-License-Identifier: Apache-2.0
//! HELLOs that this rank sends by itself, votes on epochs, and ranks that start anew.

use super::timers::Timer;
use super::{Context, Due, Peer};
use crate::epoch::Vote;
use crate::outcome::{TransferError, Way};
use crate::rtt::backoff;
use std::net::SocketAddr;

/// Votes that wait for one peer: more are said again anyway.
const VOTES: usize = 16;

/// Whether this peer was greeted in this session. The answer to the only HELLO gives a first round
/// trip, as a handshake does (RFC 9002 §6.2.2; Karn's algorithm).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Greeted {
    Never,
    /// At this time. Another HELLO may have followed within its round trip. The answer does not say
    /// to which it belongs, so the time counts from the first.
    Once(u64),
    /// And again, since there was no answer for long.
    Again,
}

impl Greeted {
    /// A HELLO that is not repeated.
    pub(super) fn first(&mut self, now_ns: u64) {
        if *self == Self::Never {
            *self = Self::Once(now_ns);
        }
    }

    /// The answer has come.
    pub(super) fn round_trip_ns(self, now_ns: u64) -> Option<u64> {
        if let Self::Once(at_ns) = self { now_ns.checked_sub(at_ns) } else { None }
    }
}

impl Peer {
    /// Whether it has answered a HELLO.
    pub(crate) fn is_met(&self) -> bool {
        self.session.is_open()
    }

    /// Its process runs.
    pub(crate) fn runs(&mut self, now_ns: u64) {
        self.runs_since_ns.get_or_insert(now_ns);
    }

    /// Sends a HELLO, and more until the peer shows that it knows us.
    pub(super) fn greet(&mut self, cx: &mut Context<'_>) {
        if self.hellos.is_none() && self.session.address().is_some() {
            self.hellos = Some((cx.now_ns, 0));
            self.greeted.first(cx.now_ns);
            self.control.push_back(Due::Hello { answer: false, to: None });
            self.arm_hello(cx);
            if self.session.identity().to != 0 {
                // Who is known to be there can be asked at once.
                self.explore(cx);
            }
        }
    }

    fn arm_hello(&mut self, cx: &Context<'_>) {
        let timeouts = &cx.config.timeouts;
        let times = self.hellos.map_or(0, |(_, times)| times);
        let wait_ns = backoff(timeouts.initial_ns.max(timeouts.min_ns), times, timeouts.max_ns);
        self.timers.set(Timer::Session, Some(cx.now_ns.saturating_add(wait_ns)));
    }

    pub(super) fn on_session_timeout(&mut self, cx: &mut Context<'_>) {
        let Some((since_ns, times)) = self.hellos else { return };
        // Who only receives need not be known.
        let content = self.session.is_open() && self.sends.is_empty();
        if self.session.is_confirmed() || content || self.is_idle() {
            self.hellos = None;
            return;
        }
        let silent_ns = cx.now_ns.saturating_sub(since_ns);
        let timeouts = &cx.config.timeouts;
        // One that may not have started yet is waited for; one that runs would have answered.
        let is_dead = self.runs_since_ns.is_some_and(|runs_since_ns| {
            cx.now_ns.saturating_sub(runs_since_ns.max(since_ns)) >= timeouts.give_up_ns
        });
        if is_dead || silent_ns >= timeouts.patience_ns {
            self.hellos = None;
            if is_dead && !self.session.is_open() {
                // What is waited for comes no more than answers do. Of one that may start yet each
                // message has its own patience.
                let ids: Vec<u32> = self.receives.keys().copied().collect();
                for message in ids {
                    if let Some(error) =
                        self.receives.get(&message).map(|transfer| transfer.silent(cx.now_ns))
                    {
                        self.fail_receive(cx, message, error);
                    }
                }
            }
            let probes = times + 1;
            let ids: Vec<u32> = self.sends.keys().copied().collect();
            for message in ids {
                let (peer, stats) =
                    (self.rank, self.sends.get(&message).map(|t| t.stats).unwrap_or_default());
                let (packets, missing, way) = (stats.packets, stats.missing, Way::default());
                let error =
                    TransferError::Unanswered { peer, message, packets, missing, probes, silent_ns, way };
                self.fail_send(cx, message, error);
            }
            return;
        }
        self.hellos = Some((since_ns, times.saturating_add(1)));
        self.greeted = Greeted::Again;
        self.control.push_back(Due::Hello { answer: false, to: None });
        self.arm_hello(cx);
    }

    /// Sends a vote, once there is a session. It may get lost, and is said again by who sends it.
    pub(crate) fn vote(&mut self, cx: &mut Context<'_>, vote: Vote) {
        if !self.session.is_open() {
            return self.greet(cx);
        }
        if self.votes.len() < VOTES {
            self.votes.push_back(vote);
            self.control.push_back(Due::Vote);
        }
    }

    /// The peer's incarnation, where it is known.
    pub(crate) fn incarnation(&self) -> Option<u32> {
        self.session.peer()
    }

    /// The peer has started anew as this incarnation, as the ranks have agreed: what is of the one
    /// before is void.
    pub(crate) fn renew(&mut self, cx: &mut Context<'_>, incarnation: u32) {
        if self.session.renew(incarnation) {
            self.restarted(cx);
        }
    }

    /// The peer has started anew: it listens there, and whatever incarnation it has is believed, or
    /// this one alone.
    pub(crate) fn admit(&mut self, address: SocketAddr, incarnation: Option<u32>) {
        self.session.admit(address, incarnation);
        // What was known of the process that was there before says nothing of this one.
        self.runs_since_ns = None;
    }
}
