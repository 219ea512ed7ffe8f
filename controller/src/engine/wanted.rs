// SPDX-License-Identifier: Apache-2.0
//! What a driver is told to keep its switch at; another one with every fabric file.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use trimwire_p4runtime::p4info::Index;

use crate::fleet::Shared;
use crate::fleet::places::Places;
use crate::model::PortPolicy;
use crate::report::SwitchReport;

/// What a switch should hold, and what work on it needs.
pub(crate) struct Wanted {
    /// The switch.
    pub name: String,
    /// Of the fabric file, as it was taken.
    pub number: u64,
    pub ports: BTreeMap<u16, Arc<PortPolicy>>,
    pub shared: Arc<Shared>,
    pub places: Places,
    /// How long its counters are looked at once it was changed.
    pub settle: Duration,
    /// A roll-out may write more than its routes.
    pub is_meant: bool,
    /// Where a roll-out has its reports; `None` in a `run`.
    pub once: Option<Reports>,
}

impl Wanted {
    /// Names of the program that the switch runs.
    pub(crate) fn index(&self) -> &Index {
        self.shared.index(&self.name)
    }

    /// Whether the file has a policy for the queue: a switch cannot make us remember others.
    pub(crate) fn knows(&self, port: u16, queue: u8) -> bool {
        self.ports.get(&port).is_some_and(|port| port.queues.contains_key(&queue))
    }
}

/// What was last done to each switch; clones are the same one.
#[derive(Clone, Default)]
pub(crate) struct Reports(Arc<Mutex<BTreeMap<String, SwitchReport>>>);

impl Reports {
    pub(crate) fn keep(&self, report: &SwitchReport) {
        let mut reports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reports.insert(report.switch.clone(), report.clone());
    }

    pub(crate) fn take(&self, switch: &str) -> Option<SwitchReport> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(switch)
    }
}
