//! Data is on its way, and nothing is heard of it.
//!
//! Switches that drop may take all packets of one rank and none of another. Who is locked out hears of no loss, as losses are told by what arrives later; it asks early, as a tail loss probe does
//! (RFC 8985 §7, RFC 9002 §6.2), and less often each time that it was for nothing.

use super::backoff;
use super::path::PathEstimate;
use crate::config::TimeoutConfig;

/// Of one message.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// When something was heard last, or the first packet of what is on its way left.
    since_ns: u64,
    /// Questions since.
    asked: u32,
}

impl Silence {
    /// A packet leaves, and nothing else is on its way.
    pub(super) fn begin(&mut self, now_ns: u64) {
        self.since_ns = self.since_ns.max(now_ns);
    }

    /// Packets have arrived.
    pub(super) fn end(&mut self, now_ns: u64) {
        (self.since_ns, self.asked) = (now_ns, 0);
    }

    /// A question is due.
    pub(super) fn asked(&mut self) {
        self.asked = self.asked.saturating_add(1);
    }

    pub(super) fn since_ns(&self) -> u64 {
        self.since_ns
    }

    /// How long to wait for news before asking, from now on.
    pub(super) fn ask_after_ns(&self, estimate: &PathEstimate, timeouts: &TimeoutConfig) -> u64 {
        let most_ns = estimate.answer_timeout_ns(0, timeouts);
        estimate.silence_ns(timeouts).map_or(most_ns, |silence_ns| backoff(silence_ns, self.asked, most_ns))
    }
}
