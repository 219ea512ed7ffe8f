// SPDX-License-Identifier: Apache-2.0
//! Which peer is next: for control packets, for data, and for timers.

use std::collections::{BTreeSet, VecDeque};

#[derive(Debug, Clone, Default)]
struct Entry {
    /// Among those with control packets due.
    control: bool,
    /// Time at which data may leave.
    data_ns: Option<u64>,
    /// Its turn among those of one time.
    turn: u64,
    timeout_ns: Option<u64>,
}

/// What the peers want, by urgency. Each change costs the logarithm of the number of peers.
#[derive(Debug)]
pub(super) struct Schedule {
    entries: Vec<Entry>,
    control: VecDeque<u16>,
    data: BTreeSet<(u64, u64, u16)>,
    timeouts: BTreeSet<(u64, u16)>,
    turn: u64,
}

impl Schedule {
    pub(super) fn new(peers: usize) -> Self {
        Self {
            entries: vec![Entry::default(); peers],
            control: VecDeque::new(),
            data: BTreeSet::new(),
            timeouts: BTreeSet::new(),
            turn: 0,
        }
    }

    /// Takes whether a peer has control packets, and when its next timer expires.
    pub(super) fn update(&mut self, rank: u16, control: bool, timeout_ns: Option<u64>) {
        let Some(entry) = self.entries.get_mut(usize::from(rank)) else { return };
        if control && !std::mem::replace(&mut entry.control, true) {
            self.control.push_back(rank);
        }
        if entry.timeout_ns != timeout_ns {
            if let Some(before) = std::mem::replace(&mut entry.timeout_ns, timeout_ns) {
                self.timeouts.remove(&(before, rank));
            }
            if let Some(at_ns) = timeout_ns {
                self.timeouts.insert((at_ns, rank));
            }
        }
    }

    /// Takes when a peer's data may leave.
    pub(super) fn update_data(&mut self, rank: u16, data_ns: Option<u64>) {
        let Some(entry) = self.entries.get_mut(usize::from(rank)) else { return };
        if entry.data_ns == data_ns {
            return;
        }
        if let Some(before) = entry.data_ns {
            self.data.remove(&(before, entry.turn, rank));
        } else {
            entry.turn = self.turn;
            self.turn += 1;
        }
        entry.data_ns = data_ns;
        if let Some(at_ns) = data_ns {
            self.data.insert((at_ns, entry.turn, rank));
        }
    }

    pub(super) fn has_control(&self) -> bool {
        !self.control.is_empty()
    }

    /// The peer whose control packets have waited longest; it goes to the end when it has more.
    pub(super) fn next_control(&mut self) -> Option<u16> {
        let rank = self.control.pop_front()?;
        self.entries[usize::from(rank)].control = false;
        Some(rank)
    }

    /// When data may leave.
    pub(super) fn data_ns(&self) -> Option<u64> {
        self.data.first().map(|&(at_ns, ..)| at_ns)
    }

    /// The peer whose data may leave by `until_ns`, and from when on; its next turn comes behind
    /// the others'.
    pub(super) fn next_data(&mut self, until_ns: u64) -> Option<(u64, u16)> {
        let &(at_ns, _, rank) = self.data.first()?;
        if at_ns > until_ns {
            return None;
        }
        self.data.pop_first();
        self.entries[usize::from(rank)].data_ns = None;
        Some((at_ns, rank))
    }

    /// When the next timer expires.
    pub(super) fn timeout_ns(&self) -> Option<u64> {
        self.timeouts.first().map(|&(at_ns, _)| at_ns)
    }

    /// A peer with a timer that expires by `now_ns`.
    pub(super) fn expired(&mut self, now_ns: u64) -> Option<u16> {
        let &(at_ns, rank) = self.timeouts.first()?;
        if at_ns > now_ns {
            return None;
        }
        self.timeouts.pop_first();
        self.entries[usize::from(rank)].timeout_ns = None;
        Some(rank)
    }
}
