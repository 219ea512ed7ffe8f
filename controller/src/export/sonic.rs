// SPDX-License-Identifier: Apache-2.0
//! SONiC: the nearest equivalent of a switch's policy in CONFIG_DB's tables, and what is missing of
//! it.
//!
//! SONiC trims what its shared buffer does not admit: one threshold per queue, one size and one
//! action per switch. Tables and fields are those of
//! `doc/packet_trimming/packet-trimming-design.md` (sonic-net/SONiC) and of the YANG models in
//! `src/sonic-yang-models` (sonic-net/sonic-buildimage), against which the tests check them.
//! `docs/how-to/sonic.md` says how to load the result.

mod acl;
mod asic;
mod buffers;
mod notes;
mod patch;
mod present;
mod qos;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

pub use self::asic::Asic;
pub use self::notes::{Fidelity, Note};
pub use self::patch::PatchOperation;
pub use self::present::{Present, PresentError};
use crate::model::{Fabric, Overload, PortPolicy};
use crate::yaml::problem::hint;

/// CONFIG_DB: table, key, field, value. All values are text or lists of it.
pub type ConfigDb = BTreeMap<String, BTreeMap<String, BTreeMap<String, Field>>>;

/// A field's value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Field {
    /// One value.
    Text(String),
    /// A leaf-list.
    List(Vec<String>),
}

/// How thresholds are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thresholds {
    /// `static_th`, in bytes.
    Static,
    /// `dynamic_th`, the power of two nearest to what gives a queue that is alone in a pool of so
    /// many bytes the same limit.
    Dynamic {
        /// Bytes of the pool.
        pool_size: u64,
    },
}

/// What the fabric file does not know about the switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    /// SONiC's name of each port; ports without one are `Ethernet` and their number.
    pub ports: BTreeMap<u16, String>,
    /// The switch's chip.
    pub asic: Asic,
    /// Name of the egress buffer pool that its queues draw from.
    pub pool: String,
    /// How to write thresholds.
    pub thresholds: Thresholds,
    /// Mark trimmable queues with WRED, too, at the price that their not-ECT packets are dropped
    /// there instead of trimmed.
    pub mark_trimmable: bool,
    /// What the switch has already; then the export comes with a patch.
    pub present: Option<Present>,
    /// Turn PFC off in the queues of the fabric file. Without it, queues that PFC pauses are an
    /// error.
    pub disable_pfc: bool,
}

impl Default for Platform {
    fn default() -> Self {
        Self {
            ports: BTreeMap::new(),
            asic: Asic::Unknown,
            pool: "egress_lossy_pool".to_owned(),
            thresholds: Thresholds::Static,
            mark_trimmable: false,
            present: None,
            disable_pfc: false,
        }
    }
}

/// A configuration and what is to be known about it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Export {
    /// Name of the switch in the fabric file.
    pub switch: String,
    /// What is to hold in the switch's CONFIG_DB.
    pub config_db: ConfigDb,
    /// The way there from what the switch has, where that is known: a JSON patch (RFC 6902) for
    /// `config apply-patch`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patch: Option<Vec<PatchOperation>>,
    /// One for each knob of the fabric file.
    pub notes: Vec<Note>,
}

/// Why there is nothing to export.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// No such switch.
    #[error("no switch '{0}' in {1}{2}")]
    UnknownSwitch(String, String, String),
    /// A port that the fabric does not link.
    #[error("--platform-ports: no link of the file ends at port {0} of {1}; linked are {2}")]
    UnknownPort(u16, String, String),
    /// Two ports with one name.
    #[error("ports {0} and {1} are both named {2}; name them with --platform-ports")]
    SameName(u16, u16, String),
    /// It does not fit what the switch has.
    #[error(transparent)]
    Present(#[from] PresentError),
}

/// Exports one switch.
pub fn export(fabric: &Fabric, switch: &str, platform: &Platform) -> Result<Export, ExportError> {
    let moved = platform.asic.moved(fabric, switch);
    let fabric = moved.as_ref().unwrap_or(fabric);
    let (Some(_), Some(policies)) = (fabric.switches.get(switch), fabric.policies.get(switch)) else {
        let names: Vec<&String> = fabric.policies.keys().collect();
        return Err(ExportError::UnknownSwitch(switch.to_owned(), fabric.file.clone(), hint(switch, &names)));
    };
    let mut names: BTreeMap<u16, String> = BTreeMap::new();
    for port in policies.keys() {
        let name = platform.ports.get(port).cloned().unwrap_or_else(|| format!("Ethernet{port}"));
        if let Some((other, _)) = names.iter().find(|(_, taken)| **taken == name) {
            return Err(ExportError::SameName(*other, *port, name));
        }
        names.insert(*port, name);
    }
    if let Some(unknown) = platform.ports.keys().find(|port| !policies.contains_key(port)) {
        let linked: Vec<String> = policies.keys().map(u16::to_string).collect();
        return Err(ExportError::UnknownPort(*unknown, switch.to_owned(), linked.join(", ")));
    }
    if let Some(present) = &platform.present {
        present.check(&names, policies, platform.disable_pfc)?;
    }
    let mut writer =
        Writer { fabric, switch, platform, policies, names, config_db: ConfigDb::new(), notes: Vec::new() };
    writer.maps();
    writer.trimming();
    writer.buffers();
    writer.schedulers();
    writer.marking();
    writer.opt_outs();
    writer.merging();
    writer.rest();
    let patch =
        platform.present.as_ref().map(|present| patch::patch(present, &writer.config_db, &writer.scope()));
    let Writer { mut notes, config_db, .. } = writer;
    notes.sort_by_key(|note| note.fidelity);
    Ok(Export { switch: switch.to_owned(), config_db, patch, notes })
}

struct Writer<'f> {
    fabric: &'f Fabric,
    switch: &'f str,
    platform: &'f Platform,
    /// By port.
    policies: &'f BTreeMap<u16, Arc<PortPolicy>>,
    names: BTreeMap<u16, String>,
    config_db: ConfigDb,
    notes: Vec<Note>,
}

impl Writer<'_> {
    #[expect(
        clippy::needless_pass_by_value,
        reason = "numbers, words and names alike, most of them made for the call"
    )]
    fn set(&mut self, table: &str, key: &str, field: &str, value: impl ToString) {
        self.put(table, key, field, Field::Text(value.to_string()));
    }

    fn list(&mut self, table: &str, key: &str, field: &str, values: impl IntoIterator<Item = impl ToString>) {
        let values = values.into_iter().map(|value| value.to_string()).collect();
        self.put(table, key, field, Field::List(values));
    }

    fn put(&mut self, table: &str, key: &str, field: &str, value: Field) {
        let key = self.config_db.entry(table.to_owned()).or_default().entry(key.to_owned()).or_default();
        key.insert(field.to_owned(), value);
    }

    fn note(&mut self, fidelity: Fidelity, knob: &str, sonic: &str, message: impl Into<String>) {
        self.notes.push(Note {
            fidelity,
            knob: knob.to_owned(),
            sonic: sonic.to_owned(),
            message: message.into(),
        });
    }

    /// Queues of the file, and those that trim or hold what was trimmed.
    fn scope(&self) -> patch::Scope<'_> {
        let plan = &self.fabric.queues;
        let queues = self
            .policies
            .iter()
            .map(|(port, policy)| (self.names[port].as_str(), policy.queues.keys().copied().collect()));
        let trims = plan.classes.iter().copied().chain([plan.trimmed]);
        let trims = trims.filter(|_| self.fabric.overload == Overload::Trim);
        patch::Scope { queues: queues.collect(), trims: trims.collect() }
    }

    /// Ports with their SONiC names and policies.
    fn ports(&self) -> Vec<(String, PortPolicy)> {
        let named = |(port, policy): (&u16, &Arc<PortPolicy>)| (self.names[port].clone(), (**policy).clone());
        self.policies.iter().map(named).collect()
    }

    /// The different values that ports have of something.
    fn distinct<T: Ord>(&self, pick: impl Fn(&PortPolicy) -> T) -> BTreeSet<T> {
        self.policies.values().map(|policy| pick(policy)).collect()
    }
}

#[cfg(test)]
mod merge_tests;
#[cfg(test)]
mod tests;
