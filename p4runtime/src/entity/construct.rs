// SPDX-License-Identifier: Apache-2.0
//! The smaller entities from names.

use super::builder::ActionBuilder;
use super::error::EntityError;
use crate::bytes::{self, Value};
use crate::p4info::{Index, Key, Named, find_element};
use crate::v1::action_profile_group::member::WatchKind;
use crate::v1::update::Type as UpdateType;
use crate::v1::{
    self, ActionProfileGroup, ActionProfileMember, CounterEntry, Entity, MeterEntry, PacketMetadata,
    RegisterEntry, Update, action_profile_group::Member,
};

/// An update that inserts `entity`.
pub fn insert(entity: impl Into<Entity>) -> Update {
    Update { r#type: UpdateType::Insert.into(), entity: Some(entity.into()) }
}

/// An update that modifies `entity`.
pub fn modify(entity: impl Into<Entity>) -> Update {
    Update { r#type: UpdateType::Modify.into(), entity: Some(entity.into()) }
}

/// An update that deletes `entity`.
pub fn delete(entity: impl Into<Entity>) -> Update {
    Update { r#type: UpdateType::Delete.into(), entity: Some(entity.into()) }
}

/// An element of a counter, or all of them (for reads).
pub fn counter<'k>(
    index: &Index,
    counter: impl Into<Key<'k>>,
    element: Option<i64>,
) -> Result<CounterEntry, EntityError> {
    let counter_id = index.counter(counter)?.id();
    Ok(CounterEntry { counter_id, index: element.map(|index| v1::Index { index }), data: None })
}

/// An element of a meter, or all of them (for reads), with no configuration.
pub fn meter<'k>(
    index: &Index,
    meter: impl Into<Key<'k>>,
    element: Option<i64>,
) -> Result<MeterEntry, EntityError> {
    let meter_id = index.meter(meter)?.id();
    Ok(MeterEntry { meter_id, index: element.map(|index| v1::Index { index }), ..MeterEntry::default() })
}

/// An element of a register, or all of them.
pub fn register<'k>(
    index: &Index,
    register: impl Into<Key<'k>>,
    element: Option<i64>,
) -> Result<RegisterEntry, EntityError> {
    let register_id = index.register(register)?.id();
    Ok(RegisterEntry { register_id, index: element.map(|index| v1::Index { index }), data: None })
}

/// A member of an action profile.
pub fn member<'k>(
    index: &Index,
    profile: impl Into<Key<'k>>,
    member_id: u32,
    action: ActionBuilder<'_>,
) -> Result<ActionProfileMember, EntityError> {
    let action_profile_id = index.action_profile(profile)?.id();
    Ok(ActionProfileMember { action_profile_id, member_id, action: Some(action.build()?) })
}

/// A group of an action selector: member ids and their weights.
pub fn member_group<'k>(
    index: &Index,
    profile: impl Into<Key<'k>>,
    group_id: u32,
    members: impl IntoIterator<Item = (u32, i32)>,
    max_size: i32,
) -> Result<ActionProfileGroup, EntityError> {
    let action_profile_id = index.action_profile(profile)?.id();
    let mut members: Vec<_> = members
        .into_iter()
        .map(|(member_id, weight)| Member { member_id, weight, watch_kind: None })
        .collect();
    members.sort_by_key(|member| member.member_id);
    Ok(ActionProfileGroup { action_profile_id, group_id, members, max_size })
}

/// The same, with the port of each member, on which it depends: while that is down, no packet is
/// sent there (P4Runtime, "Action Profile Group Programming").
pub fn watching_group<'k>(
    index: &Index,
    profile: impl Into<Key<'k>>,
    group_id: u32,
    members: impl IntoIterator<Item = (u32, i32, u16)>,
) -> Result<ActionProfileGroup, EntityError> {
    let watched: Vec<(u32, i32, u16)> = members.into_iter().collect();
    let size = watched.iter().fold(0_i32, |size, (_, weight, _)| size.saturating_add(*weight));
    let pairs = watched.iter().map(|(member, weight, _)| (*member, *weight));
    let mut group = member_group(index, profile, group_id, pairs, size)?;
    for member in &mut group.members {
        let port = watched.iter().find(|(id, ..)| *id == member.member_id).map(|(.., port)| *port);
        member.watch_kind =
            port.map(|port| WatchKind::WatchPort(bytes::shortest(&port.to_be_bytes()).to_vec()));
    }
    Ok(group)
}

/// Metadata of a packet-out or packet-in by field names, in the header's order; every field once.
pub fn packet_metadata<'f>(
    index: &Index,
    header: &str,
    fields: impl IntoIterator<Item = (&'f str, Value)>,
) -> Result<Vec<PacketMetadata>, EntityError> {
    let header = index.controller_header(header)?;
    let place = || format!("controller header {:?}", header.name());
    let mut metadata: Vec<PacketMetadata> = Vec::with_capacity(header.metadata.len());
    for (name, value) in fields {
        let field =
            find_element("field", name.into(), place, &header.metadata, |field| (field.id, &field.name))?;
        if metadata.iter().any(|given| given.metadata_id == field.id) {
            return Err(EntityError::invalid(place(), format!("field {name:?} is given twice")));
        }
        let value = value.to_canonical(field.bitwidth.unsigned_abs()).map_err(|source| {
            EntityError::Value { place: format!("field {name:?} of {}", place()), source }
        })?;
        metadata.push(PacketMetadata { metadata_id: field.id, value });
    }
    for field in &header.metadata {
        if !metadata.iter().any(|given| given.metadata_id == field.id) {
            return Err(EntityError::invalid(place(), format!("lacks field {:?}", field.name)));
        }
    }
    metadata.sort_by_key(|given| given.metadata_id);
    Ok(metadata)
}
