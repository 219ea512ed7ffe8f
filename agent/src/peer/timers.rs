// SPDX-License-Identifier: Apache-2.0
//! The timers of a peer.

use std::collections::{BTreeMap, BTreeSet};

/// Whose time is up. The order is that of expiry at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The session: nobody has answered our HELLO.
    Session,
    /// What the path carries: a question about it has not been answered.
    Path,
    /// Whether a path works: a question about that has not been answered, or is due.
    Paths,
    /// A message on its way to the peer.
    Outgoing(u32),
    /// A message on its way from the peer.
    Incoming(u32),
    /// An agreement that the peer has not confirmed.
    Finals(u32),
}

/// Each timer has at most one time.
#[derive(Debug, Default)]
pub(super) struct Timers {
    queue: BTreeSet<(u64, Timer)>,
    armed: BTreeMap<Timer, u64>,
}

impl Timers {
    /// Sets a timer, or stops it.
    pub(super) fn set(&mut self, timer: Timer, at_ns: Option<u64>) {
        let before = match at_ns {
            Some(at_ns) => self.armed.insert(timer, at_ns),
            None => self.armed.remove(&timer),
        };
        if before == at_ns {
            return;
        }
        if let Some(before) = before {
            self.queue.remove(&(before, timer));
        }
        if let Some(at_ns) = at_ns {
            self.queue.insert((at_ns, timer));
        }
    }

    /// When the next one expires.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.queue.first().map(|&(at_ns, _)| at_ns)
    }

    /// Takes the next one whose time has come; it is stopped then.
    pub(super) fn expire(&mut self, now_ns: u64) -> Option<Timer> {
        let &(at_ns, timer) = self.queue.first()?;
        if at_ns > now_ns {
            return None;
        }
        self.queue.pop_first();
        self.armed.remove(&timer);
        Some(timer)
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.armed.clear();
    }
}
