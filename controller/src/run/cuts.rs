// SPDX-License-Identifier: Apache-2.0
//! The talkers of all switches' trimming queues: written by the switches' tasks, told over HTTP.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use crate::talkers::{CutSample, QueueTalkers, SwitchTalkers, Trimmed};

/// Talkers of a queue that are told.
const MOST: usize = 16;
/// Talkers of a queue that a log's line has room for.
const LOGGED: usize = 3;

/// Clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct Cuts {
    /// Where its clock begins.
    started: Instant,
    switches: Arc<Mutex<BTreeMap<String, SwitchTalkers>>>,
}

impl Cuts {
    pub(super) fn new() -> Self {
        Self { started: Instant::now(), switches: Arc::default() }
    }

    fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<String, SwitchTalkers>, u64) -> T) -> T {
        let now_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        change(&mut self.switches.lock().unwrap_or_else(PoisonError::into_inner), now_ns)
    }

    /// A connection to a switch begins.
    pub(super) fn begin(&self, switch: &str) {
        self.change(|switches, _| switches.entry(switch.to_owned()).or_default().begin());
    }

    /// Switches that are not in the fabric any more are forgotten.
    pub(super) fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.change(|switches, _| switches.retain(|name, _| is_there(name)));
    }

    /// Counts what a switch has told, and gives how many samples that makes in all.
    pub(super) fn add(&self, switch: &str, samples: &[CutSample]) -> u64 {
        self.change(|switches, now_ns| {
            // A driver that is about to end may tell of a switch that has gone.
            let Some(talkers) = switches.get_mut(switch) else { return 0 };
            samples.iter().for_each(|sample| talkers.add(now_ns, sample));
            talkers.samples()
        })
    }

    /// The first talkers of a queue, for a log.
    pub(super) fn of_queue(&self, switch: &str, port: u16, queue: u8) -> Option<QueueTalkers> {
        let queues =
            self.change(|switches, now_ns| Some(switches.get_mut(switch)?.told(now_ns, switch, LOGGED)));
        queues?.into_iter().find(|told| (told.port, told.queue) == (port, queue))
    }

    /// All of it, as JSON.
    pub(super) fn json(&self) -> String {
        let queues = self.change(|switches, now_ns| {
            switches.iter_mut().flat_map(|(name, talkers)| talkers.told(now_ns, name, MOST)).collect()
        });
        // Nothing in it can fail to be written.
        serde_json::to_string(&Trimmed { queues }).unwrap_or_default() + "\n"
    }
}
