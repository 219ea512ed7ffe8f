//! The difference between what a switch holds and what it should hold, and the order in which to remove it.

use std::collections::BTreeMap;

use serde::Serialize;
use trimwire_p4runtime::entity::{self, EntityError, EntityKey, Purpose};
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::v1::entity::Entity as Kind;
use trimwire_p4runtime::v1::{
    ActionProfileGroup, ActionProfileMember, Entity, TableAction, TableEntry, Update, table_action,
};

use crate::desired::{Desired, names};

/// What a switch holds of what this controller owns, in canonical form.
pub type Actual = BTreeMap<EntityKey, Entity>;

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
    /// What it is for in the fabric's words; "foreign" for deletions.
    pub purpose: String,
    /// Changes of one phase do not depend on each other; phases are written in order.
    phase: u8,
}

impl Change {
    /// As P4Runtime has it.
    pub fn update(&self) -> Update {
        let entity = self.entity.clone();
        match self.operation {
            Operation::Insert => entity::insert(entity),
            Operation::Modify => entity::modify(entity),
            Operation::Delete => entity::delete(entity),
        }
    }
}

/// What to read so that [`actual`] sees everything that this controller owns.
pub fn filters(index: &Index) -> Result<Vec<Entity>, EntityError> {
    let profile = trimwire_p4runtime::p4info::Named::id(index.action_profile(names::ECMP)?);
    let mut filters: Vec<Entity> = vec![
        ActionProfileMember { action_profile_id: profile, ..ActionProfileMember::default() }.into(),
        ActionProfileGroup { action_profile_id: profile, ..ActionProfileGroup::default() }.into(),
    ];
    for name in names::TABLES {
        let table = index.table(name)?;
        filters.push(TableEntry { table_id: table.id(), ..TableEntry::default() }.into());
        if table.table.const_default_action_id == 0 {
            filters.push(
                TableEntry { table_id: table.id(), is_default_action: true, ..TableEntry::default() }.into(),
            );
        }
    }
    Ok(filters)
}

/// Brings what was read into canonical form. Constant entries are the program's, not ours; a default entry that a switch does
/// not report is the program's initial one.
pub fn actual(read: Vec<Entity>, index: &Index) -> Result<Actual, EntityError> {
    let mut actual = Actual::new();
    for name in names::TABLES {
        let table = index.table(name)?;
        let Some(call) = &table.table.initial_default_action else { continue };
        if table.table.const_default_action_id != 0 {
            continue;
        }
        let params = call.arguments.iter().map(|argument| trimwire_p4runtime::v1::action::Param {
            param_id: argument.param_id,
            value: argument.value.clone(),
        });
        let action = trimwire_p4runtime::v1::Action { action_id: call.action_id, params: params.collect() };
        let entry = TableEntry {
            table_id: table.id(),
            action: Some(TableAction { r#type: Some(table_action::Type::Action(action)) }),
            is_default_action: true,
            ..TableEntry::default()
        };
        insert(&mut actual, entity::check(&entry.into(), index, Purpose::Modify)?);
    }
    for entity in read {
        if matches!(&entity.entity, Some(Kind::TableEntry(entry)) if entry.is_const) {
            continue;
        }
        let purpose = match &entity.entity {
            // A default entry can only be modified, and without an action it is back at the initial one.
            Some(Kind::TableEntry(entry)) if entry.is_default_action => Purpose::Modify,
            _ => Purpose::Insert,
        };
        insert(&mut actual, entity::check(&bare(entity), index, purpose)?);
    }
    Ok(actual)
}

fn insert(actual: &mut Actual, entity: Entity) {
    let no_action = matches!(&entity.entity, Some(Kind::TableEntry(entry)) if entry.is_default_action && entry.action.is_none());
    if let (Some(key), false) = (EntityKey::of(&entity), no_action) {
        actual.insert(key, entity);
    }
}

/// Without what a switch adds to what was written.
fn bare(mut entity: Entity) -> Entity {
    match &mut entity.entity {
        Some(Kind::TableEntry(entry)) => {
            entry.counter_data = None;
            entry.meter_counter_data = None;
            entry.time_since_last_hit = None;
        }
        Some(Kind::ActionProfileGroup(group)) => group.members.sort_by_key(|member| member.member_id),
        _ => {}
    }
    entity
}

/// What to change, in the order of writing.
pub fn difference(desired: &Desired, actual: &Actual, index: &Index) -> Vec<Change> {
    let mut changes = Vec::new();
    for (key, wanted) in desired {
        let change = |operation, entity: &Entity, before: String| Change {
            operation,
            text: entity::describe(entity, Some(index)),
            entity: entity.clone(),
            before,
            purpose: wanted.purpose.clone(),
            phase: phase(operation, entity, index),
        };
        match actual.get(key) {
            None => {
                // Default entries are always there: they can only be modified (P4Runtime §9.1.3).
                let default =
                    matches!(&wanted.entity.entity, Some(Kind::TableEntry(entry)) if entry.is_default_action);
                let operation = if default { Operation::Modify } else { Operation::Insert };
                changes.push(change(operation, &wanted.entity, String::new()));
            }
            Some(found) if same(&wanted.entity, found) => {}
            Some(found) => {
                let before = entity::describe(found, Some(index));
                changes.push(change(Operation::Modify, &modified(&wanted.entity, found), before));
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
                purpose: "foreign".to_owned(),
                phase: phase(Operation::Delete, found, index),
            });
        }
    }
    // Stable: within a phase the order of keys stays.
    changes.sort_by_key(|change| change.phase);
    changes
}

/// A group's `max_size` is fixed at its creation, and switches may report their own.
fn same(wanted: &Entity, found: &Entity) -> bool {
    match (&wanted.entity, &found.entity) {
        (Some(Kind::ActionProfileGroup(wanted)), Some(Kind::ActionProfileGroup(found))) => {
            wanted.members == found.members
        }
        _ => wanted == found,
    }
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

/// Members, then groups, then entries, and the reverse for deletions. Foreign entries go first among the entries, to make
/// room; routes come last, so that packets flow only where a policy waits for them.
fn phase(operation: Operation, entity: &Entity, index: &Index) -> u8 {
    match (&entity.entity, operation) {
        (Some(Kind::ActionProfileMember(_)), Operation::Insert | Operation::Modify) => 0,
        (Some(Kind::ActionProfileGroup(_)), Operation::Insert | Operation::Modify) => 1,
        (Some(Kind::TableEntry(_)), Operation::Delete) => 2,
        (Some(Kind::TableEntry(entry)), _) => {
            let name = index.table(entry.table_id).map(|table| table.name());
            if matches!(name, Ok(names::IPV4_ROUTE | names::IPV6_ROUTE)) { 4 } else { 3 }
        }
        (Some(Kind::ActionProfileGroup(_)), Operation::Delete) => 5,
        _ => 6,
    }
}

/// Splits changes into Writes: each of one phase, none longer than `limit`. P4Runtime promises no order within a Write.
pub fn batches(changes: &[Change], limit: usize) -> Vec<&[Change]> {
    changes.chunk_by(|a, b| a.phase == b.phase).flat_map(|phase| phase.chunks(limit.max(1))).collect()
}

#[cfg(test)]
mod tests;
