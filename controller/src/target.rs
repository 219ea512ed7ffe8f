// SPDX-License-Identifier: Apache-2.0
//! Kinds of switches: what each takes, in its own units, and what one has to know about it.
//!
//! Tables, keys, actions and their parameters are the same everywhere (`p4/README.md`). What
//! differs: in what thresholds are counted, how a packet is trimmed (v1model truncates it, Tofino
//! mirrors it through a session that does), how trimmed packets are held below their cap, which
//! ports there are, and what the program is wrapped in when it is pushed.

mod bmv2;
mod start;
mod stratum;
mod stratum_tofino;
mod stratum_tofino2;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;

use trimwire_p4runtime::entity::EntityError;
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::v1::Entity;

pub use self::start::start_commands;
pub(crate) use self::stratum::device_config as stratum_device_config;
use crate::model::PortPolicy;
use crate::model::{End, Fabric, QueuePlan, Switch, Target};
use crate::yaml::problem::Problems;

/// Ports of a switch in its linked order, with what their queues do.
pub(crate) type Ports = BTreeMap<u16, Arc<PortPolicy>>;

/// What a kind of switch is like; unless it says otherwise, as the v1model program in
/// `trimwire-switch`.
trait Rules: Sync {
    fn ports(&self) -> RangeInclusive<u16> {
        V1MODEL_PORTS
    }

    /// What thresholds are counted in.
    fn unit(&self) -> &'static str {
        "bytes"
    }

    /// From bytes to the target's unit, and to the sizes that it can trim to.
    fn convert(&self, policy: &PortPolicy, _: &QueuePlan) -> PortPolicy {
        policy.clone()
    }

    /// Whether the program caps trimmed packets, by table; if not, the traffic manager does.
    fn caps_by_table(&self) -> bool {
        true
    }

    /// Entities beside those of the tables, with what each is for. `ports` are converted.
    fn extras(
        &self,
        _switch: &str,
        _ports: &Ports,
        _: &QueuePlan,
        _: &Index,
    ) -> Result<Vec<(Entity, String)>, EntityError> {
        Ok(Vec::new())
    }

    /// What is allowed but will not do what one might think: a kind, to tell repetitions, and
    /// words. `ports` are in bytes.
    fn doubts(&self, _switch: &str, _ports: &Ports, _: &Fabric) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// What nobody but a person can do. `ports` are in bytes.
    fn manual_steps(&self, _switch: &str, _ports: &Ports, _: &Fabric) -> Vec<String> {
        Vec::new()
    }
}

/// `bit<9>` without v1model's drop port (511) and the CPU port (510).
const V1MODEL_PORTS: RangeInclusive<u16> = 0..=509;

/// `trimwire-switch` counts bytes, truncates, and its traffic manager's limits are far above any
/// threshold.
struct Trimwire;

impl Rules for Trimwire {}

impl Target {
    /// The architecture that the P4Info of its program names.
    pub(crate) fn architecture(self) -> &'static str {
        match self {
            Self::Trimwire | Self::Bmv2 => "v1model",
            Self::StratumTofino => stratum_tofino::ARCHITECTURE,
            Self::StratumTofino2 => stratum_tofino2::ARCHITECTURE,
        }
    }

    fn rules(self) -> &'static dyn Rules {
        match self {
            Self::Trimwire => &Trimwire,
            Self::Bmv2 => &bmv2::Bmv2,
            Self::StratumTofino => &stratum_tofino::StratumTofino,
            Self::StratumTofino2 => &stratum_tofino2::StratumTofino2,
        }
    }

    /// Numbers that a linked port may have.
    pub fn ports(self) -> RangeInclusive<u16> {
        self.rules().ports()
    }

    /// What thresholds are counted in: `bytes`, `176-byte cells`.
    pub fn unit(self) -> &'static str {
        self.rules().unit()
    }

    /// Whether members of groups can depend on a port. Stratum's Tofino targets take no watch port,
    /// and tell of none when they are read.
    pub(crate) fn watches_ports(self) -> bool {
        matches!(self, Self::Trimwire | Self::Bmv2)
    }

    /// Whether tables of a saved program can be written before it runs (VERIFY_AND_SAVE, COMMIT).
    /// BMv2's server and Stratum write those of the running one.
    pub fn saves_programs(self) -> bool {
        matches!(self, Self::Trimwire)
    }

    pub(crate) fn caps_by_table(self) -> bool {
        self.rules().caps_by_table()
    }

    /// A switch's policies in its own units.
    pub(crate) fn convert(self, ports: &Ports, plan: &QueuePlan) -> Ports {
        // Ports that share a policy share the converted one.
        let mut converted: Vec<(&Arc<PortPolicy>, Arc<PortPolicy>)> = Vec::new();
        let mut one = |policy| {
            let known = converted
                .iter()
                .find(|(other, _)| Arc::ptr_eq(other, policy))
                .map(|(_, new)| Arc::clone(new));
            known.unwrap_or_else(|| {
                let new = Arc::new(self.rules().convert(policy, plan));
                converted.push((policy, Arc::clone(&new)));
                new
            })
        };
        ports.iter().map(|(port, policy)| (*port, one(policy))).collect()
    }

    pub(crate) fn extras(
        self,
        switch: &str,
        ports: &Ports,
        plan: &QueuePlan,
        index: &Index,
    ) -> Result<Vec<(Entity, String)>, EntityError> {
        self.rules().extras(switch, ports, plan, index)
    }
}

/// What a program has beside tables that this controller owns; the architecture tells.
pub(crate) struct Owned {
    /// Ids of clone sessions: others are somebody else's.
    pub sessions: Option<RangeInclusive<u32>>,
    /// Names of meters.
    pub meters: &'static [&'static str],
}

/// What of `index`'s program is ours beside the tables.
pub(crate) fn owned(index: &Index) -> Owned {
    let architecture = index.p4info().pkg_info.as_ref().map_or("", |package| package.arch.as_str());
    match architecture {
        stratum_tofino::ARCHITECTURE => {
            Owned { sessions: Some(stratum_tofino::SESSIONS), meters: &stratum_tofino::METERS }
        }
        stratum_tofino2::ARCHITECTURE => Owned { sessions: Some(stratum_tofino2::SESSIONS), meters: &[] },
        _ => Owned { sessions: None, meters: &[] },
    }
}

/// Whether a cell of an array costs less to read than the array.
pub(crate) fn reads_cells(index: &Index) -> bool {
    let architecture = index.p4info().pkg_info.as_ref().map_or("", |package| package.arch.as_str());
    ![stratum_tofino::ARCHITECTURE, stratum_tofino2::ARCHITECTURE].contains(&architecture)
}

/// Adds what the file asks of switches that they will not do, at the line that names the switch.
pub(crate) fn doubts(fabric: &Fabric, lines: &BTreeMap<String, usize>, warnings: &mut Problems) {
    // A generated fabric is one line: its first switch says it for all.
    let mut found: BTreeMap<(usize, &'static str), (String, String, usize)> = BTreeMap::new();
    for (name, switch) in &fabric.switches {
        let (Some(ports), Some(line)) = (fabric.policies.get(name), lines.get(name)) else { continue };
        for (kind, message) in switch.target.rules().doubts(name, ports, fabric) {
            let path = format!("switches.{name}");
            found.entry((*line, kind)).or_insert((path, message, 0)).2 += 1;
        }
    }
    for ((line, _), (path, message, places)) in found {
        let more = if places > 1 { format!(" (and {} more switches)", places - 1) } else { String::new() };
        warnings.add(line, path, format!("{message}{more}"));
    }
}

/// Adds the ports that a switch's target does not have, at the lines of their links.
pub(crate) fn check_ports(fabric: &Fabric, lines: &[(usize, String)], problems: &mut Problems) {
    let mut reported: BTreeSet<(usize, &str)> = BTreeSet::new();
    for (link, (line, path)) in fabric.links.iter().zip(lines) {
        for end in [&link.a, &link.b] {
            let End::Port(name, port) = end else { continue };
            let Some(Switch { target, .. }) = fabric.switches.get(name) else { continue };
            let ports = target.ports();
            // A generated fabric is one line: one of its ports says it all.
            if !ports.contains(port) && reported.insert((*line, name)) {
                let (first, last) = (ports.start(), ports.end());
                let message = format!("{end} is no port of a {}: they are {first} to {last}", target.word());
                problems.add(*line, path, message);
            }
        }
    }
}

/// What a person has to do on some switches, as P4Runtime cannot.
pub fn manual_steps(fabric: &Fabric) -> Vec<String> {
    let steps = fabric.switches.iter().filter_map(|(name, switch)| {
        Some(switch.target.rules().manual_steps(name, fabric.policies.get(name)?, fabric))
    });
    steps.flatten().collect()
}

#[cfg(test)]
mod tests;
