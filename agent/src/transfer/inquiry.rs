// SPDX-License-Identifier: Apache-2.0
//! Asking until there is an answer: number, time-out, back-off.

use super::backoff;
use super::path::PathEstimate;
use crate::config::TimeoutConfig;
use std::collections::VecDeque;

/// Questions that are remembered. On a long path the first answer comes after many of them, asked
/// every 100 ms.
const REMEMBERED: usize = 256;

/// Without news a question is asked every so many round trips: behind a burst that took all
/// packets, the next question is the way back.
const RARELY: u64 = 8;

/// A question that is repeated until it is answered, each time with another number.
#[derive(Debug, Default)]
pub(super) struct Inquiry {
    sequence: u32,
    /// (number, when) of those without an answer, oldest first.
    asked: VecDeque<(u32, u64)>,
    answered: bool,
    /// The newest question that has an answer, and when it was asked: the answer comes in as many
    /// packets as its map has parts.
    answering: Option<(u32, u64)>,
    /// Questions about everything, since there was news of any packet, and when the newest of them
    /// was asked.
    repeated: (u32, u64),
    /// Questions since the last sign of life.
    unanswered: u32,
    /// Since when there has been none, though asked.
    since_ns: Option<u64>,
}

impl Inquiry {
    /// Number of the newest question, from 1; 0 before the first.
    pub(super) fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Asks at `now_ns`. Gives the number and when to ask again.
    pub(super) fn ask(
        &mut self,
        now_ns: u64,
        patience: u32,
        estimate: &PathEstimate,
        timeouts: &TimeoutConfig,
    ) -> (u32, u64) {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        self.asked.push_back((self.sequence, now_ns));
        if self.asked.len() > REMEMBERED {
            self.asked.pop_front();
        }
        self.answered = false;
        self.since_ns.get_or_insert(now_ns);
        let wait_ns = estimate.answer_timeout_ns(self.unanswered.max(patience), timeouts);
        (self.sequence, now_ns.saturating_add(wait_ns))
    }

    /// Something came from the peer.
    pub(super) fn heard(&mut self) {
        self.unanswered = 0;
        self.since_ns = None;
    }

    /// The question that was just asked is about all that there is to send.
    pub(super) fn about_everything(&mut self, now_ns: u64) {
        self.repeated = (self.repeated.0.saturating_add(1), now_ns);
    }

    /// There is news of packets.
    pub(super) fn news(&mut self) {
        self.repeated.0 = self.repeated.0.min(1);
    }

    /// When to ask about everything again, at the earliest: after a round trip, and less often the
    /// longer there is no news.
    pub(super) fn earliest_ns(&self, estimate: &PathEstimate, timeouts: &TimeoutConfig) -> u64 {
        let (times, asked_ns) = self.repeated;
        let Some(doublings) = times.checked_sub(1) else { return 0 };
        // The shortest: a peer that stood still for seconds has made all others long.
        let known = estimate.control.minimum_ns().or_else(|| estimate.data.minimum_ns());
        let round_trip_ns = known.unwrap_or(timeouts.initial_ns);
        let most_ns = round_trip_ns.saturating_mul(RARELY).max(timeouts.min_ns);
        asked_ns.saturating_add(backoff(round_trip_ns, doublings, most_ns))
    }

    /// An answer to question `sequence`, or another part of it, came; a round trip counts once.
    /// Gives when the question was asked. (Numbers tell answers apart: Karn's algorithm is not
    /// needed, and paths with many open questions can be measured.)
    pub(super) fn on_answer(
        &mut self,
        now_ns: u64,
        sequence: u32,
        estimate: &mut PathEstimate,
    ) -> Option<u64> {
        self.heard();
        if let Some((_, asked_ns)) = self.answering.filter(|&(number, _)| number == sequence) {
            return Some(asked_ns);
        }
        let at = self.asked.iter().position(|&(number, _)| number == sequence)?;
        // What was asked before it will hardly be answered, and would say nothing new.
        let (_, asked_ns) = self.asked.drain(..=at).next_back()?;
        self.answered |= sequence == self.sequence;
        self.answering = Some((sequence, asked_ns));
        // Before it was to leave: whoever was to hold it until then did not, and nobody knows when
        // it left.
        if let Some(rtt_ns) = now_ns.checked_sub(asked_ns) {
            estimate.control.sample(rtt_ns);
        }
        Some(asked_ns)
    }

    /// Whether the newest question is open.
    pub(super) fn is_open(&self) -> bool {
        self.sequence > 0 && !self.answered
    }

    /// Questions for which time was up, and nothing has come since.
    pub(super) fn unanswered(&self) -> u32 {
        self.unanswered
    }

    /// Time is up. Gives how long nothing has been heard, and the questions since.
    pub(super) fn on_timeout(&mut self, now_ns: u64) -> (u64, u32) {
        if self.is_open() {
            self.unanswered = self.unanswered.saturating_add(1);
        }
        (self.since_ns.map_or(0, |since| now_ns.saturating_sub(since)), self.unanswered)
    }
}
