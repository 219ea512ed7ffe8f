// SPDX-License-Identifier: Apache-2.0
//! The difference between what a switch holds and what it should hold, and the order in which to
//! remove it.

mod actual;

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;
use trimwire_p4runtime::bytes;
use trimwire_p4runtime::entity;
use trimwire_p4runtime::p4info::{Index, Named};
use trimwire_p4runtime::v1::action_profile_group::Member;
use trimwire_p4runtime::v1::entity::Entity as Kind;
use trimwire_p4runtime::v1::field_match::FieldMatchType;
use trimwire_p4runtime::v1::packet_replication_engine_entry::Type as Pre;
use trimwire_p4runtime::v1::replica::PortKind;
use trimwire_p4runtime::v1::{Entity, MeterConfig, MeterEntry, TableEntry, Update, table_action};

use self::actual::is_route;
pub(crate) use self::actual::routes;
pub use self::actual::{Actual, actual, filters};
use crate::compile::{Desired, DesiredEntity};
use crate::model::TrimCap;
use crate::program::names;
use crate::units;

/// What is done to an entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// It is not there.
    Insert,
    /// It is there with other contents.
    Modify,
    /// It should not be there.
    Delete,
}

/// A parameter of an entry's action that changes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ParameterChange {
    /// As the program names it.
    pub name: String,
    /// What it is.
    pub before: String,
    /// What it will be.
    pub after: String,
}

impl fmt::Display for ParameterChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, before, after } = self;
        write!(f, "{name} {before} -> {after}")
    }
}

/// One entity that is to change.
#[derive(Debug, Clone)]
pub struct Change {
    /// What is done.
    pub operation: Operation,
    /// To what; for deletions as it is on the switch.
    pub entity: Entity,
    /// The entity in the program's words, `Ingress.ipv4_route{dst_addr=10.0.0.1/32} -> member 2`.
    pub text: String,
    /// What a modified entity is now; empty otherwise.
    pub before: String,
    /// Its table, or what stands for one.
    pub table: String,
    /// What of a modified entry changes, where its action stays the same.
    pub parameters: Vec<ParameterChange>,
    /// What it is for in the fabric's words; "foreign" for deletions.
    pub purpose: String,
    /// Changes of one phase do not depend on each other; phases are written in order.
    phase: u8,
    /// The port whose changes of this phase one Write has to hold.
    port: Option<u16>,
}

impl Change {
    /// As P4Runtime has it.
    pub fn update(&self) -> Update {
        update(self.operation, self.entity.clone())
    }
}

/// What to change, in the order of writing.
pub fn difference(desired: &Desired, actual: &Actual, index: &Index) -> Vec<Change> {
    let mut changes = Vec::new();
    for (key, wanted) in desired {
        let change = |operation, entity: &Entity, found: Option<&Entity>| Change {
            operation,
            text: text(entity, found, index),
            entity: entity.clone(),
            before: found.map_or_else(String::new, |found| text(found, Some(entity), index)),
            table: table_of(entity, index),
            parameters: found.map_or_else(Vec::new, |found| parameters(found, entity, index)),
            purpose: wanted.purpose.clone(),
            phase: phase(operation, entity, index),
            port: None,
        };
        match actual.get(key) {
            None => changes.push(change(operation_without(&wanted.entity), &wanted.entity, None)),
            Some(found) if same(&wanted.entity, found) => {}
            Some(found) => {
                changes.push(change(Operation::Modify, &modified(&wanted.entity, found), Some(found)));
            }
        }
    }
    for (key, found) in actual {
        let default = matches!(&found.entity, Some(Kind::TableEntry(entry)) if entry.is_default_action);
        if !desired.contains_key(key) && !default {
            changes.push(Change {
                operation: Operation::Delete,
                text: entity::describe(found, Some(index)),
                entity: found.clone(),
                before: String::new(),
                table: table_of(found, index),
                parameters: Vec::new(),
                purpose: "foreign".to_owned(),
                phase: phase(Operation::Delete, found, index),
                port: None,
            });
        }
    }
    join(&mut changes, index);
    // Stable: within a phase and port the order of keys stays.
    changes.sort_by_key(|change| (change.phase, change.port));
    changes
}

/// What makes a switch that holds nothing hold `desired`, in the order of writing: the updates of
/// [`difference`], without their words.
pub fn writes(desired: Desired, index: &Index) -> Vec<Update> {
    let mut updates: Vec<(u8, Update)> = desired
        .into_values()
        .map(|DesiredEntity { entity, .. }| {
            let operation = operation_without(&entity);
            (phase(operation, &entity, index), update(operation, entity))
        })
        .collect();
    updates.sort_by_key(|(phase, _)| *phase);
    updates.into_iter().map(|(_, update)| update).collect()
}

/// What is done to an entity that a switch does not tell of. Default entries are always there: they
/// can only be modified (P4Runtime §9.1.3).
fn operation_without(entity: &Entity) -> Operation {
    match &entity.entity {
        Some(Kind::TableEntry(entry)) if entry.is_default_action => Operation::Modify,
        _ => Operation::Insert,
    }
}

/// As P4Runtime has it.
fn update(operation: Operation, entity: Entity) -> Update {
    match (operation, entity.entity) {
        // Meters are always there; without a configuration they do nothing (P4Runtime, "MeterEntry
        // & DirectMeterEntry").
        (Operation::Delete, Some(Kind::MeterEntry(meter))) => {
            entity::modify(MeterEntry { config: None, ..meter })
        }
        (Operation::Insert, Some(Kind::MeterEntry(meter))) => entity::modify(meter),
        (Operation::Insert, entity) => entity::insert(Entity { entity }),
        (Operation::Modify, entity) => entity::modify(Entity { entity }),
        (Operation::Delete, entity) => entity::delete(Entity { entity }),
    }
}

/// An entity in words. Ports that members of a group watch are worth a word where they are not
/// those of `other`.
fn text(entity: &Entity, other: Option<&Entity>, index: &Index) -> String {
    let group_of = |entity: &Entity| match &entity.entity {
        Some(Kind::ActionProfileGroup(group)) => Some(group.clone()),
        _ => None,
    };
    if let Some((group, other)) = group_of(entity).zip(other.and_then(group_of)) {
        let moved = |member: &Member| {
            let same = other.members.iter().find(|same| same.member_id == member.member_id);
            same.is_some_and(|same| same.watch_kind != member.watch_kind)
        };
        if group.members.iter().any(moved) {
            return entity::describe_watching(&group, Some(index));
        }
    }
    entity::describe(entity, Some(index))
}

/// A policy writes the length that its port's session trims to into headers: both change in one
/// Write.
fn join(changes: &mut [Change], index: &Index) {
    let is_session = |change: &&Change| {
        change.phase == POLICIES
            && matches!(change.entity.entity, Some(Kind::PacketReplicationEngineEntry(_)))
    };
    let sessions = changes.iter().filter(is_session);
    let ports: BTreeSet<u16> = sessions.filter_map(|change| port_of(&change.entity, index)).collect();
    if ports.is_empty() {
        return;
    }
    for change in changes.iter_mut().filter(|change| change.phase == POLICIES) {
        change.port = port_of(&change.entity, index).filter(|port| ports.contains(port));
    }
}

/// The port that a policy is of, or a session sends to.
fn port_of(entity: &Entity, index: &Index) -> Option<u16> {
    match &entity.entity {
        Some(Kind::TableEntry(entry)) => {
            let table = index.table(entry.table_id).ok().filter(|table| table.name() == names::POLICY)?;
            let field = table.match_field("egress_port").ok()?.id;
            let found = entry.r#match.iter().find(|found| found.field_id == field)?;
            let Some(FieldMatchType::Exact(exact)) = &found.field_match_type else { return None };
            u16::try_from(bytes::decode(&exact.value, 16).ok()?).ok()
        }
        Some(Kind::PacketReplicationEngineEntry(entry)) => {
            let Some(Pre::CloneSessionEntry(session)) = &entry.r#type else { return None };
            match session.replicas.first()?.port_kind.as_ref()? {
                #[expect(deprecated, reason = "the only form that Stratum reads")]
                PortKind::EgressPort(port) => u16::try_from(*port).ok(),
                PortKind::Port(_) => None,
            }
        }
        _ => None,
    }
}

/// The table of an entry, or what else an entity is of, in words.
fn table_of(entity: &Entity, index: &Index) -> String {
    let profile = |id| index.action_profile(id).map_or("action profile", |profile| profile.name());
    match &entity.entity {
        Some(Kind::TableEntry(entry)) => index
            .table(entry.table_id)
            .map_or_else(|_| "unknown table".to_owned(), |table| table.name().to_owned()),
        Some(Kind::ActionProfileMember(member)) => format!("{} members", profile(member.action_profile_id)),
        Some(Kind::ActionProfileGroup(group)) => format!("{} groups", profile(group.action_profile_id)),
        Some(Kind::MeterEntry(meter)) => {
            index.meter(meter.meter_id).map_or_else(|_| "meter".to_owned(), |meter| meter.name().to_owned())
        }
        Some(Kind::PacketReplicationEngineEntry(_)) => "clone sessions".to_owned(),
        _ => "other entities".to_owned(),
    }
}

/// What differs between two entries with the same action.
fn parameters(before: &Entity, after: &Entity, index: &Index) -> Vec<ParameterChange> {
    let action = |entity: &Entity| match &entity.entity {
        Some(Kind::TableEntry(TableEntry { action: Some(action), .. })) => match &action.r#type {
            Some(table_action::Type::Action(action)) => Some(action.clone()),
            _ => None,
        },
        _ => None,
    };
    let (Some(before), Some(after)) = (action(before), action(after)) else { return Vec::new() };
    let Ok(known) = index.action(before.action_id) else { return Vec::new() };
    if before.action_id != after.action_id {
        return Vec::new();
    }
    let changed = after.params.iter().filter_map(|param| {
        let old = before.params.iter().find(|old| old.param_id == param.param_id)?;
        let named = known.param(param.param_id).ok()?;
        let text = |value: &[u8]| {
            cap_text(known.action.name(), &named.name, value)
                .unwrap_or_else(|| entity::describe_value(value, named.bitwidth, &named.name))
        };
        (old.value != param.value).then(|| ParameterChange {
            name: named.name.clone(),
            before: text(&old.value),
            after: text(&param.value),
        })
    });
    changed.collect()
}

/// The cap of trimmed packets as fabric files write it: the table has bytes per 1,024 µs, which
/// nobody compares with a line's rate.
fn cap_text(action: &str, parameter: &str, value: &[u8]) -> Option<String> {
    let number = bytes::decode(value, 32).ok().filter(|_| action == names::SET_CAP)? as u32;
    match parameter {
        "rate" => Some(units::rate_text(TrimCap::rate_of_table(number))),
        "burst" => Some(format!("{number}B")),
        _ => None,
    }
}

/// A group's `max_size` is fixed at its creation, and switches may report their own.
fn same(wanted: &Entity, found: &Entity) -> bool {
    match (&wanted.entity, &found.entity) {
        (Some(Kind::ActionProfileGroup(wanted)), Some(Kind::ActionProfileGroup(found))) => {
            wanted.members == found.members || is_told_with_one_watch(&wanted.members, &found.members)
        }
        (Some(Kind::MeterEntry(wanted)), Some(Kind::MeterEntry(found))) => {
            wanted.config.zip(found.config).is_some_and(|(wanted, found)| same_meter(wanted, found))
        }
        _ => wanted == found,
    }
}

/// BMv2 keeps the port that each member watches, and tells one member's for all of them
/// (simple_switch_grpc 1.15.5 with its PI; `action_profile_group_read`). Writing them again would
/// not change what it tells.
fn is_told_with_one_watch(wanted: &[Member], found: &[Member]) -> bool {
    let Some(one) = found.first().and_then(|member| member.watch_kind.as_ref()) else { return false };
    let watches = |member: &Member| member.watch_kind.as_ref() == Some(one);
    let is_alike = |(wanted, found): (&Member, &Member)| {
        (wanted.member_id, wanted.weight) == (found.member_id, found.weight)
    };
    wanted.len() == found.len()
        && wanted.iter().zip(found).all(is_alike)
        && found.iter().all(watches)
        && wanted.iter().any(watches)
}

/// Meters keep rates and bursts as a mantissa and an exponent, and the SDE tells what was made of
/// them: a 64th to either side is the same.
fn same_meter(wanted: MeterConfig, found: MeterConfig) -> bool {
    let pairs = [
        (wanted.cir, found.cir),
        (wanted.cburst, found.cburst),
        (wanted.pir, found.pir),
        (wanted.pburst, found.pburst),
        (wanted.eburst, found.eburst),
    ];
    pairs.into_iter().all(|(wanted, found)| wanted.abs_diff(found) <= wanted.unsigned_abs() / 64)
}

fn modified(wanted: &Entity, found: &Entity) -> Entity {
    let mut entity = wanted.clone();
    if let (Some(Kind::ActionProfileGroup(group)), Some(Kind::ActionProfileGroup(found))) =
        (&mut entity.entity, &found.entity)
    {
        group.max_size = found.max_size;
    }
    entity
}

/// The phase of policies, and of sessions that change with them.
const POLICIES: u8 = 3;

/// Members, sessions and meters, then groups, then entries, and the reverse for deletions. Foreign
/// entries go first among the entries, to make room; routes come last, so that packets flow only
/// where a policy waits for them.
fn phase(operation: Operation, entity: &Entity, index: &Index) -> u8 {
    match (&entity.entity, operation) {
        (Some(Kind::PacketReplicationEngineEntry(_)), Operation::Modify) => POLICIES,
        (
            Some(Kind::ActionProfileMember(_) | Kind::PacketReplicationEngineEntry(_) | Kind::MeterEntry(_)),
            Operation::Insert | Operation::Modify,
        ) => 0,
        (Some(Kind::ActionProfileGroup(_)), Operation::Insert | Operation::Modify) => 1,
        (Some(Kind::TableEntry(_)), Operation::Delete) => 2,
        (Some(Kind::TableEntry(entry)), _) if is_route(entry, index) => 4,
        (Some(Kind::TableEntry(_)), _) => POLICIES,
        (Some(Kind::ActionProfileGroup(_)), Operation::Delete) => 5,
        _ => 6,
    }
}

/// How many of the entities that a switch should hold are there as they should be.
pub(crate) fn in_place(desired: &Desired, changes: &[Change]) -> usize {
    let missing = changes.iter().filter(|change| change.operation != Operation::Delete).count();
    desired.len().saturating_sub(missing)
}

/// Splits changes into Writes: each of one phase, none longer than `limit` but for what has to be
/// in one Write. P4Runtime promises no order within a Write.
pub fn batches(changes: &[Change], limit: usize) -> Vec<&[Change]> {
    let mut batches = Vec::new();
    for mut rest in changes.chunk_by(|a, b| a.phase == b.phase) {
        while !rest.is_empty() {
            let mut length = 0;
            for together in rest.chunk_by(|a, b| a.port.is_some() && a.port == b.port) {
                if length > 0 && length + together.len() > limit {
                    break;
                }
                length += together.len();
            }
            let (batch, others) = rest.split_at(length);
            batches.push(batch);
            rest = others;
        }
    }
    batches
}

#[cfg(test)]
mod tests;
