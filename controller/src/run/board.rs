// SPDX-License-Identifier: Apache-2.0
//! What a running controller knows of each switch: written by the switches' tasks, read by metrics and tests.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::faults::Fault;
use super::replacing::Replacing;
use super::task::Tally;
use crate::counters::Counters;

/// One switch.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct SwitchStatus {
    /// Connected.
    pub up: bool,
    /// We are its primary controller.
    pub primary: bool,
    /// It holds what it should, when last seen; `None` before that.
    pub in_place: Option<bool>,
    /// The number of the fabric file that it was last found or brought in place of, by us; 0 before that.
    pub file: u64,
    /// Failures since the last success.
    pub failures: u32,
    /// Until the next attempt, as of when the last one failed, in seconds; 0 when all is well.
    pub backoff_seconds: f64,
    /// When it was last found or brought in place, in seconds since 1970.
    pub last_success: Option<f64>,
    /// What has been done to it.
    pub tally: Tally,
    /// By port and queue.
    pub trimming: BTreeMap<(u16, u8), TrimmingStatus>,
    /// Counters and occupancy, as last read; of the last connection.
    pub counters: Counters,
}

impl SwitchStatus {
    /// Whether it holds what the fabric file of this number says, when last seen.
    pub fn is_in_place_of(&self, file: u64) -> bool {
        self.up && self.in_place == Some(true) && self.file == file
    }
}

/// What a queue told by digests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TrimmingStatus {
    /// It trims, as far as it told.
    pub is_trimming: bool,
    /// Times it started.
    pub starts: u64,
    /// Times it stopped.
    pub stops: u64,
}

/// Who leads a fabric, of the controllers that run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Leader {
    /// This one: it writes.
    #[default]
    This,
    /// Another one is primary of most switches. This one writes nothing.
    Another,
    /// Nobody: who led had another file, and is gone. Nothing is written until a person says so (SIGHUP).
    Nobody,
}

/// What a running controller knows.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Status {
    /// Fabric files are numbered as they are taken. That of the last one.
    pub file: u64,
    /// By name in the fabric.
    pub switches: BTreeMap<String, SwitchStatus>,
    /// Who leads the fabric.
    pub leader: Leader,
    /// Switches that hold something else than our file says, because the leader's says so.
    pub another_file: Vec<String>,
    /// What routes leave out.
    pub faults: Vec<Fault>,
    /// How far programs are replaced.
    pub replacing: Replacing,
    /// Fabric files taken after the first.
    pub reloads: u64,
    /// Fabric files that were wrong and not taken.
    pub refused_reloads: u64,
}

impl Status {
    /// Whether all switches hold what the fabric file says, and none waits for anything.
    pub fn is_in_place(&self) -> bool {
        self.switches.values().all(|switch| switch.is_in_place_of(self.file)) && self.replacing.is_over()
    }
}

/// A [`Status`] that many may write to; clones are the same one.
#[derive(Debug, Clone, Default)]
pub(super) struct Board(Arc<Mutex<Status>>);

impl Board {
    pub(super) fn status(&self) -> Status {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut Status) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn change_switch(&self, name: &str, change: impl FnOnce(&mut SwitchStatus)) {
        self.change(|status| {
            if let Some(switch) = status.switches.get_mut(name) {
                change(switch);
            }
        });
    }
}
