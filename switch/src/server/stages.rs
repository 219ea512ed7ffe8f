// SPDX-License-Identifier: Apache-2.0
//! Which of a program's tables ingress looks at, and which egress: a batch is atomic for packets
//! between the two only if it changes one side.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::v1::entity::Entity as Kind;
use trimwire_p4runtime::v1::packet_replication_engine_entry::Type as Pre;

/// Part of a packet's way through the switch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// Parser and ingress, up to the queues.
    Ingress,
    /// Behind the queues.
    Egress,
}

/// A program's tables by stage.
#[derive(Debug, Default)]
pub(super) struct Stages {
    tables: BTreeMap<String, Stage>,
    /// Packets may pass through ingress more than once, with queues in between.
    recirculates: bool,
}

const BOTH: [Stage; 2] = [Stage::Ingress, Stage::Egress];

impl Stages {
    /// Reads p4c's BMv2 JSON, which the engine has accepted.
    pub(super) fn of(json: &[u8]) -> Self {
        let root: Value = serde_json::from_slice(json).unwrap_or_default();
        let mut stages = Self { recirculates: calls_recirculate(&root["actions"]), ..Self::default() };
        for pipeline in root["pipelines"].as_array().into_iter().flatten() {
            let stage = if pipeline["name"] == "egress" { Stage::Egress } else { Stage::Ingress };
            for table in pipeline["tables"].as_array().into_iter().flatten() {
                stages.tables.extend(table["name"].as_str().map(|name| (name.to_owned(), stage)));
            }
        }
        stages
    }

    /// Whether a batch of these entities can be seen half done by a packet that is in a queue now.
    pub(super) fn splits<'e>(&self, index: &Index, entities: impl Iterator<Item = &'e Kind>) -> bool {
        let touched: BTreeSet<Stage> = entities.flat_map(|entity| self.touched(index, entity)).collect();
        touched.len() > 1 || self.recirculates && !touched.is_empty()
    }

    fn touched(&self, index: &Index, entity: &Kind) -> Vec<Stage> {
        let table = |id: u32| {
            let stage = index.table(id).ok().and_then(|table| self.tables.get(table.name()).copied());
            stage.map_or(BOTH.to_vec(), |stage| vec![stage])
        };
        let direct = |entry: &Option<trimwire_p4runtime::v1::TableEntry>| {
            table(entry.as_ref().map_or(0, |entry| entry.table_id))
        };
        let profile = |id: u32| {
            let profile = index.action_profile(id);
            let tables = profile.map(|profile| profile.table_ids.clone()).unwrap_or_default();
            tables.into_iter().flat_map(table).collect()
        };
        match entity {
            Kind::TableEntry(entry) => table(entry.table_id),
            Kind::DirectMeterEntry(entry) => direct(&entry.table_entry),
            Kind::ActionProfileMember(member) => profile(member.action_profile_id),
            Kind::ActionProfileGroup(group) => profile(group.action_profile_id),
            Kind::ValueSetEntry(_) => vec![Stage::Ingress],
            Kind::PacketReplicationEngineEntry(entry) => match entry.r#type {
                Some(Pre::MulticastGroupEntry(_)) => vec![Stage::Ingress],
                _ => BOTH.to_vec(),
            },
            // Which control uses them is not written down anywhere.
            Kind::MeterEntry(_) | Kind::RegisterEntry(_) | Kind::ExternEntry(_) => BOTH.to_vec(),
            // The data plane does not look at these.
            Kind::CounterEntry(_) | Kind::DirectCounterEntry(_) | Kind::DigestEntry(_) => Vec::new(),
        }
    }
}

fn calls_recirculate(actions: &Value) -> bool {
    let primitives =
        actions.as_array().into_iter().flatten().filter_map(|action| action["primitives"].as_array());
    primitives
        .flatten()
        .any(|primitive| primitive["op"].as_str().is_some_and(|op| op.starts_with("recirculate")))
}
