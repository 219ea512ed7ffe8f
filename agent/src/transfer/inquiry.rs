//! Asking until there is an answer: number, time-out, back-off.

use super::path::PathEstimate;
use crate::config::TimeoutConfig;
use std::collections::VecDeque;

/// So many questions are remembered. On a long way the first answer comes after many of them, asked every 100 ms.
const REMEMBERED: usize = 256;

/// A question that is repeated until it is answered, each time with another number.
#[derive(Debug, Default)]
pub(super) struct Inquiry {
    sequence: u32,
    /// (number, when) of those without an answer, oldest first.
    asked: VecDeque<(u32, u64)>,
    answered: bool,
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

    /// The answer to question `sequence` came; it counts once. Gives when that was asked. (Numbers tell answers apart, so that Karn's algorithm is not needed, and a way
    /// on which many questions are under way at once can be measured.)
    pub(super) fn on_answer(
        &mut self,
        now_ns: u64,
        sequence: u32,
        estimate: &mut PathEstimate,
    ) -> Option<u64> {
        self.heard();
        let at = self.asked.iter().position(|&(number, _)| number == sequence)?;
        // What was asked before it will hardly be answered, and would say nothing new.
        let (_, asked_ns) = self.asked.drain(..=at).next_back()?;
        self.answered |= sequence == self.sequence;
        // Before it was to leave: whoever was to hold it until then did not, and nobody knows when it left.
        if let Some(rtt_ns) = now_ns.checked_sub(asked_ns) {
            estimate.control.sample(rtt_ns);
        }
        Some(asked_ns)
    }

    /// Whether the newest question is open.
    pub(super) fn is_open(&self) -> bool {
        self.sequence > 0 && !self.answered
    }

    /// Whether time was up for a question, and nothing has come since.
    pub(super) fn is_unanswered(&self) -> bool {
        self.unanswered > 0
    }

    /// Time is up. Gives how long nothing has been heard, and the questions since.
    pub(super) fn on_timeout(&mut self, now_ns: u64) -> (u64, u32) {
        if self.is_open() {
            self.unanswered = self.unanswered.saturating_add(1);
        }
        (self.since_ns.map_or(0, |since| now_ns.saturating_sub(since)), self.unanswered)
    }
}
