// SPDX-License-Identifier: Apache-2.0
//! Replica-consistent decode (docs/reference/wire-format.md §8): the owner of a message tells a
//! receiver the precision at which every replica decodes, until the receiver confirms.

use super::path::PathEstimate;
use crate::config::TimeoutConfig;
use crate::outcome::TransferError;
use crate::wire::trim_map::{Detail, TrimMap};
use crate::wire::{MapSource, Stop, Writer};
use std::sync::Arc;

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait for the timer, which is set.
    Wait,
    /// Send FINALs.
    Send,
    /// The receiver has it all.
    Done,
    /// Give up.
    Failed(TransferError),
}

/// The merged trim map of a message on its way to one rank.
#[derive(Debug)]
pub(crate) struct Finals {
    to: u16,
    id: u32,
    map: Arc<TrimMap>,
    /// First packet of the next part.
    cursor: u32,
    sequence: u32,
    agreed: u32,
    unanswered: u32,
    heard_ns: u64,
    pub(crate) timer_ns: Option<u64>,
    pub(crate) queued: bool,
}

impl Finals {
    pub(crate) fn new(now_ns: u64, to: u16, id: u32, map: Arc<TrimMap>) -> Self {
        Self {
            to,
            id,
            map,
            cursor: 0,
            sequence: 1,
            agreed: 0,
            unanswered: 0,
            heard_ns: now_ns,
            timer_ns: None,
            queued: false,
        }
    }

    /// The next FINAL, and whether another one follows.
    pub(crate) fn next_packet(
        &mut self,
        now_ns: u64,
        writer: Writer,
        estimate: &PathEstimate,
        timeouts: &TimeoutConfig,
    ) -> Option<(Vec<u8>, bool)> {
        let packets = self.map.packets();
        if self.cursor >= packets {
            return None;
        }
        let planes = |packet| self.map.planes(packet);
        let source = MapSource { planes: &planes, packets, offset: self.cursor, detail: Detail::Planes };
        let (payload, end) = writer.agreed(self.id, self.sequence, &source);
        self.cursor = end;
        self.timer_ns = Some(now_ns.saturating_add(estimate.answer_timeout_ns(self.unanswered, timeouts)));
        Some((payload, self.cursor < packets))
    }

    /// Takes a STOP that confirms FINALs.
    pub(crate) fn on_stop(&mut self, now_ns: u64, stop: &Stop<'_>) -> Next {
        self.heard_ns = now_ns;
        self.unanswered = 0;
        self.agreed = self.agreed.max(stop.agreed.min(self.map.packets()));
        if self.agreed == self.map.packets() {
            return Next::Done;
        }
        // A gap: go back to it, once per round.
        if stop.sequence == self.sequence && self.cursor == self.map.packets() && stop.agreed > 0 {
            return self.repeat();
        }
        Next::Wait
    }

    /// The timer has expired.
    pub(crate) fn on_timeout(&mut self, now_ns: u64, timeouts: &TimeoutConfig) -> Next {
        self.timer_ns = None;
        let silent_ns = now_ns.saturating_sub(self.heard_ns);
        if silent_ns >= timeouts.give_up_ns {
            return Next::Failed(TransferError::Disagreement {
                peer: self.to,
                message: self.id,
                packets: self.map.packets(),
                agreed: self.agreed,
                silent_ns,
            });
        }
        self.unanswered = self.unanswered.saturating_add(1);
        self.repeat()
    }

    fn repeat(&mut self) -> Next {
        self.sequence = self.sequence.wrapping_add(1);
        self.cursor = self.agreed;
        Next::Send
    }
}
