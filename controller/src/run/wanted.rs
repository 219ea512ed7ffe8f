// SPDX-License-Identifier: Apache-2.0
//! What a driver is told to keep its switch at; another one with every fabric file.

use std::collections::BTreeMap;
use std::sync::Arc;

use trimwire_p4runtime::p4info::Index;

use crate::model::PortPolicy;
use crate::rollout::fleet::Shared;
use crate::rollout::places::Places;

/// What a switch should hold, and what work on it needs.
pub(super) struct Wanted {
    /// The switch.
    pub name: String,
    /// Of the fabric file, as it was taken.
    pub number: u64,
    pub ports: BTreeMap<u16, Arc<PortPolicy>>,
    pub shared: Arc<Shared>,
    pub places: Places,
}

impl Wanted {
    /// Names of the program that the switch runs.
    pub(super) fn index(&self) -> &Index {
        self.shared.index(&self.name)
    }

    /// Whether the file has a policy for the queue: a switch cannot make us remember others.
    pub(super) fn knows(&self, port: u16, queue: u8) -> bool {
        self.ports.get(&port).is_some_and(|port| port.queues.contains_key(&queue))
    }
}
