// SPDX-License-Identifier: Apache-2.0
//! Idle time-outs of table entries: which entries has no packet hit for too long?
//!
//! Packets only note the time of their hit. A heap holds one time per entry at which it is worth
//! looking at: the deadline that its last known hit gave it. An entry found idle is reported once,
//! and looked at again one time-out later, so that a hit in between starts a new idle period
//! (BMv2's ageing monitor, which sweeps all entries, reports the same way).

use std::cmp::Reverse;

use super::super::entity::{IdleEntry, MatchValue};
use super::tables::{lacks, no_entry};
use super::timers::Timer;
use super::{Control, Result};

/// Entries that are looked at in one call, while packets wait.
const MOST_LOOKS: usize = 512;

impl Control {
    /// Sets an entry's idle time-out in ns, 0 for none, and starts its idle time at `now_ns`.
    pub fn set_idle_timeout(
        &mut self,
        table: &str,
        matches: &[MatchValue],
        priority: i32,
        timeout_ns: u64,
        now_ns: u64,
    ) -> Result<()> {
        let (index, handle) = self.locate(table, matches, priority)?;
        let state = &self.tables[index];
        if !state.info.has_idle_timeout {
            return Err(lacks(table, "idle time-out (`support_timeout` is not set)"));
        }
        self.note_entry(index, handle);
        let entry = self.tables[index].entries.get_mut(handle as usize).and_then(Option::as_mut);
        let idle = &mut entry.ok_or_else(|| no_entry(table))?.idle;
        self.timers.generations += 1;
        let generation = self.timers.generations;
        (idle.timeout_ns, idle.generation) = (timeout_ns, generation);
        (idle.last_hit_ns, idle.reported) = (now_ns, None);
        if timeout_ns != 0 {
            let at_ns = now_ns.saturating_add(timeout_ns);
            self.timers.heap.push(Reverse(Timer { at_ns, table: index as u32, handle, generation }));
        }
        Ok(())
    }

    /// When to call [`take_idle_entries`](Self::take_idle_entries) next, in ns: no entry becomes
    /// idle earlier. `None` where no entry has a time-out.
    pub fn poll_idle_timeout(&self) -> Option<u64> {
        self.timers.heap.peek().map(|Reverse(timer)| timer.at_ns)
    }

    /// The entries whose idle time-out has passed by `now_ns` and that were not reported since
    /// their last hit. They stay in their tables: removing them is the controller's business. Where
    /// very many are due, some: [`poll_idle_timeout`](Self::poll_idle_timeout) says that there are
    /// more.
    pub fn take_idle_entries(&mut self, now_ns: u64) -> Vec<IdleEntry> {
        let mut found = Vec::new();
        for _ in 0..MOST_LOOKS {
            let Some(&Reverse(timer)) = self.timers.heap.peek().filter(|timer| timer.0.at_ns <= now_ns)
            else {
                break;
            };
            self.timers.heap.pop();
            let table = &mut self.tables[timer.table as usize];
            let entry = table.entries.get_mut(timer.handle as usize).and_then(Option::as_mut);
            // A time-out that was set again, or whose entry is gone, is another timer's business or
            // nobody's.
            let Some(entry) = entry.filter(|entry| entry.idle.generation == timer.generation) else {
                continue;
            };
            let idle = &mut entry.idle;
            let mut at_ns = idle.last_hit_ns.saturating_add(idle.timeout_ns);
            if at_ns <= now_ns {
                if idle.reported != Some(idle.last_hit_ns) {
                    idle.reported = Some(idle.last_hit_ns);
                    found.push((timer.table, timer.handle));
                }
                at_ns = now_ns.saturating_add(idle.timeout_ns);
            }
            self.timers.heap.push(Reverse(Timer { at_ns, ..timer }));
        }
        let row = |(table, handle): (u32, u32)| {
            let name = self.tables[table as usize].info.name.clone();
            Some(IdleEntry { table: name, row: self.row(table as usize, handle)? })
        };
        found.into_iter().filter_map(row).collect()
    }
}
