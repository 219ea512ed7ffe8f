// SPDX-License-Identifier: Apache-2.0
//! What a switch holds of what this controller owns: what to read, and its canonical form.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use trimwire_p4runtime::bytes;
use trimwire_p4runtime::entity::{self, EntityError, EntityKey, Purpose};
use trimwire_p4runtime::p4info::{Index, Named, TableRef};
use trimwire_p4runtime::v1::entity::Entity as Kind;
use trimwire_p4runtime::v1::packet_replication_engine_entry::Type as Pre;
use trimwire_p4runtime::v1::replica::PortKind;
use trimwire_p4runtime::v1::{
    ActionProfileGroup, ActionProfileMember, CloneSessionEntry, Entity, Replica, TableAction, TableEntry,
    table_action,
};

use crate::program::names;
use crate::target;

/// What a switch holds of what this controller owns, in canonical form.
pub type Actual = BTreeMap<EntityKey, Entity>;

/// What to read so that [`actual`] sees everything that this controller owns.
pub fn filters(index: &Index) -> Result<Vec<Entity>, EntityError> {
    let profile = Named::id(index.action_profile(names::ECMP)?);
    let mut filters: Vec<Entity> = vec![
        ActionProfileMember { action_profile_id: profile, ..ActionProfileMember::default() }.into(),
        ActionProfileGroup { action_profile_id: profile, ..ActionProfileGroup::default() }.into(),
    ];
    for table in tables(index) {
        filters.push(TableEntry { table_id: table.id(), ..TableEntry::default() }.into());
        if table.table.const_default_action_id == 0 {
            filters.push(
                TableEntry { table_id: table.id(), is_default_action: true, ..TableEntry::default() }.into(),
            );
        }
    }
    let owned = target::owned(index);
    for meter in owned.meters {
        filters.push(entity::meter(index, *meter, None)?.into());
    }
    if owned.sessions.is_some() {
        filters.push(CloneSessionEntry::default().into());
    }
    Ok(filters)
}

/// Our tables of a program; which ones it lacks,
/// [`Compiler::compile`](crate::compile::Compiler::compile) says.
fn tables(index: &Index) -> impl Iterator<Item = TableRef<'_>> {
    names::TABLES.into_iter().filter_map(|name| index.table(name).ok())
}

/// Brings what was read into canonical form. Constant entries are the program's, not ours; a
/// default entry that a switch does not report is the program's initial one.
pub fn actual(read: Vec<Entity>, index: &Index) -> Result<Actual, EntityError> {
    let mut actual = Actual::new();
    for table in tables(index) {
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
    let sessions = target::owned(index).sessions;
    for entity in read {
        let purpose = match &entity.entity {
            Some(Kind::TableEntry(entry)) if entry.is_const => continue,
            // A meter without configuration is as if it were not there.
            Some(Kind::MeterEntry(meter)) if meter.config.is_none() => continue,
            Some(Kind::MeterEntry(_)) => Purpose::Modify,
            Some(Kind::PacketReplicationEngineEntry(_)) if !is_ours(&entity, sessions.as_ref()) => continue,
            // A default entry can only be modified, and without an action it is back at the initial
            // one.
            Some(Kind::TableEntry(entry)) if entry.is_default_action => Purpose::Modify,
            _ => Purpose::Insert,
        };
        insert(&mut actual, entity::check(&bare(entity), index, purpose)?);
    }
    Ok(actual)
}

/// Of what a switch holds, what routes consist of.
pub(crate) fn routes(mut actual: Actual, index: &Index) -> Actual {
    actual.retain(|_, entity| match &entity.entity {
        Some(Kind::ActionProfileMember(_) | Kind::ActionProfileGroup(_)) => true,
        Some(Kind::TableEntry(entry)) => is_route(entry, index) && !entry.is_default_action,
        _ => false,
    });
    actual
}

pub(super) fn is_route(entry: &TableEntry, index: &Index) -> bool {
    let name = index.table(entry.table_id).map(|table| table.name());
    matches!(name, Ok(names::IPV4_ROUTE | names::IPV6_ROUTE))
}

fn insert(actual: &mut Actual, entity: Entity) {
    let no_action = matches!(&entity.entity, Some(Kind::TableEntry(entry)) if entry.is_default_action && entry.action.is_none());
    if let (Some(key), false) = (EntityKey::of(&entity), no_action) {
        actual.insert(key, entity);
    }
}

/// Clone sessions belong to whoever made them, and only an id tells.
fn is_ours(entity: &Entity, sessions: Option<&RangeInclusive<u32>>) -> bool {
    let (Some(Kind::PacketReplicationEngineEntry(entry)), Some(sessions)) = (&entity.entity, sessions) else {
        return false;
    };
    matches!(&entry.r#type, Some(Pre::CloneSessionEntry(session)) if sessions.contains(&session.session_id))
}

/// Without what a switch adds to what was written.
fn bare(mut entity: Entity) -> Entity {
    match &mut entity.entity {
        Some(Kind::TableEntry(entry)) => {
            entry.counter_data = None;
            entry.meter_counter_data = None;
            entry.time_since_last_hit = None;
        }
        Some(Kind::MeterEntry(meter)) => meter.counter_data = None,
        Some(Kind::ActionProfileGroup(group)) => group.members.sort_by_key(|member| member.member_id),
        Some(Kind::PacketReplicationEngineEntry(entry)) => {
            if let Some(Pre::CloneSessionEntry(session)) = &mut entry.r#type {
                session.replicas.iter_mut().for_each(numeric_port);
            }
        }
        _ => {}
    }
    entity
}

/// A replica's port in the form that sessions are written in.
fn numeric_port(replica: &mut Replica) {
    if let Some(PortKind::Port(port)) = &replica.port_kind
        && let Ok(port) = bytes::decode(port, 32)
    {
        #[expect(deprecated, reason = "the only form that Stratum reads")]
        let numeric = PortKind::EgressPort(port as u32);
        replica.port_kind = Some(numeric);
    }
}
