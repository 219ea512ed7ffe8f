// SPDX-License-Identifier: Apache-2.0
//! What a switch may rely on once an entity is checked.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message as _;

use super::error::{EntityError, Purpose};
use super::table::{check_action, check_match, check_sizes, check_table_entry, check_watch, check_weight};
use crate::bytes;
use crate::config;
use crate::p4info::{Index, Named};
use crate::v1::entity::Entity as Kind;
use crate::v1::packet_replication_engine_entry::Type as Pre;
use crate::v1::replica::PortKind;
use crate::v1::update::Type as UpdateType;
use crate::v1::{
    ActionProfileGroup, ActionProfileMember, CloneSessionEntry, CounterData, DigestEntry, Entity,
    MeterConfig, MeterCounterData, MulticastGroupEntry, PacketReplicationEngineEntry, RegisterEntry, Replica,
    TableEntry, Update, ValueSetEntry,
};

/// Checks an update of a Write against the program and gives its canonical form.
pub fn check_update(update: &Update, index: &Index) -> Result<Update, EntityError> {
    let purpose = match UpdateType::try_from(update.r#type) {
        Ok(UpdateType::Insert) => Purpose::Insert,
        Ok(UpdateType::Modify) => Purpose::Modify,
        Ok(UpdateType::Delete) => Purpose::Delete,
        Ok(UpdateType::Unspecified) | Err(_) => {
            return Err(EntityError::invalid(
                "update",
                format!("type {} is none of INSERT (1), MODIFY (2), DELETE (3)", update.r#type),
            ));
        }
    };
    let entity = update.entity.as_ref().ok_or_else(|| EntityError::invalid("update", "has no entity"))?;
    Ok(Update { r#type: update.r#type, entity: Some(check(entity, index, purpose)?) })
}

/// Checks an entity against the program and gives its canonical form: two entities with the same
/// meaning come out equal.
///
/// Everything that P4Info tells is checked. What depends on the switch's state is not: whether an
/// entry, member or group exists, whether there is room, which ports there are.
pub fn check(entity: &Entity, index: &Index, purpose: Purpose) -> Result<Entity, EntityError> {
    let kind = entity
        .entity
        .as_ref()
        .ok_or_else(|| EntityError::invalid("entity", "is empty, or of an unknown kind"))?;
    let checked = match kind {
        Kind::TableEntry(entry) => Kind::TableEntry(check_table_entry(entry, index, purpose)?),
        Kind::ActionProfileMember(member) => Kind::ActionProfileMember(check_member(member, index, purpose)?),
        Kind::ActionProfileGroup(group) => Kind::ActionProfileGroup(check_group(group, index, purpose)?),
        Kind::CounterEntry(entry) => {
            only_modify("counter entries", purpose)?;
            if !is_wildcard(entry.counter_id, purpose) {
                let counter = index.counter(entry.counter_id)?;
                check_index(counter, counter.size, entry.index)?;
            }
            kind.clone()
        }
        Kind::MeterEntry(entry) => {
            only_modify("meter entries", purpose)?;
            if !is_wildcard(entry.meter_id, purpose) {
                let meter = index.meter(entry.meter_id)?;
                check_colors(entry.counter_data.as_ref(), purpose, || format!("meter {:?}", meter.name()))?;
                check_index(meter, meter.size, entry.index)?;
                check_meter(entry.config.as_ref(), meter.spec.as_ref(), || {
                    format!("meter {:?}", meter.name())
                })?;
            }
            kind.clone()
        }
        Kind::RegisterEntry(entry) => Kind::RegisterEntry(check_register(entry, index, purpose)?),
        Kind::DirectCounterEntry(entry) => {
            only_modify("direct counter entries", purpose)?;
            let table_entry = check_direct(entry.table_entry.as_ref(), index, purpose, "direct counter")?;
            let mut checked = entry.clone();
            checked.table_entry = Some(table_entry);
            Kind::DirectCounterEntry(checked)
        }
        Kind::DirectMeterEntry(entry) => {
            only_modify("direct meter entries", purpose)?;
            let table_entry = check_direct(entry.table_entry.as_ref(), index, purpose, "direct meter")?;
            if let Ok(table) = index.table(table_entry.table_id) {
                let spec = table.direct_meter().and_then(|meter| meter.spec.as_ref());
                let place = || format!("meter of table {:?}", table.name());
                check_meter(entry.config.as_ref(), spec, place)?;
                check_colors(entry.counter_data.as_ref(), purpose, place)?;
            }
            let mut checked = entry.clone();
            checked.table_entry = Some(table_entry);
            Kind::DirectMeterEntry(checked)
        }
        Kind::PacketReplicationEngineEntry(entry) => {
            Kind::PacketReplicationEngineEntry(check_replication(entry, purpose)?)
        }
        Kind::ValueSetEntry(entry) => Kind::ValueSetEntry(check_value_set(entry, index, purpose)?),
        Kind::DigestEntry(entry) => Kind::DigestEntry(check_digest(entry, index, purpose)?),
        Kind::ExternEntry(entry) => {
            if !is_wildcard(entry.extern_id, purpose) {
                index.extern_instance(entry.extern_id)?;
            }
            kind.clone()
        }
    };
    Ok(Entity { entity: Some(checked) })
}

fn is_wildcard(id: u32, purpose: Purpose) -> bool {
    id == 0 && purpose == Purpose::Read
}

fn only_modify(what: &str, purpose: Purpose) -> Result<(), EntityError> {
    match purpose {
        Purpose::Modify | Purpose::Read => Ok(()),
        Purpose::Insert | Purpose::Delete => {
            Err(EntityError::invalid(what, "always exist; the only update they take is MODIFY"))
        }
    }
}

fn check_index<T: Named>(object: &T, size: i64, index: Option<crate::v1::Index>) -> Result<(), EntityError> {
    let Some(crate::v1::Index { index }) = index else { return Ok(()) };
    let place = || format!("{} {:?}", T::KIND, object.name());
    if index < 0 {
        return Err(EntityError::invalid(place(), format!("index {index} is negative")));
    }
    if index >= size {
        return Err(EntityError::Index { place: place(), index, size });
    }
    Ok(())
}

/// "Direct Resources": a meter's counters per colour are only ever reset.
pub(super) fn check_colors(
    colors: Option<&MeterCounterData>,
    purpose: Purpose,
    place: impl Fn() -> String,
) -> Result<(), EntityError> {
    let Some(MeterCounterData { green, yellow, red }) = colors.filter(|_| purpose != Purpose::Read) else {
        return Ok(());
    };
    for (color, count) in [("green", green), ("yellow", yellow), ("red", red)] {
        if let Some(CounterData { packet_count, byte_count }) = count
            && (*packet_count, *byte_count) != (0, 0)
        {
            return Err(EntityError::invalid(
                place(),
                format!(
                    "{color} counters may only be set to 0, not to {packet_count} packets, {byte_count} bytes"
                ),
            ));
        }
    }
    Ok(())
}

/// "MeterEntry & DirectMeterEntry": what each type of meter takes.
pub(super) fn check_meter(
    config: Option<&MeterConfig>,
    spec: Option<&config::MeterSpec>,
    place: impl Fn() -> String,
) -> Result<(), EntityError> {
    use crate::config::meter_spec::Type;
    let Some(&MeterConfig { cir, cburst, pir, pburst, eburst }) = config else { return Ok(()) };
    let invalid = |reason: String| Err(EntityError::invalid(place(), reason));
    for (name, value) in
        [("cir", cir), ("cburst", cburst), ("pir", pir), ("pburst", pburst), ("eburst", eburst)]
    {
        if value < 0 {
            return invalid(format!("{name} {value} is negative"));
        }
    }
    let kind = spec.map_or(Type::TwoRateThreeColor, config::MeterSpec::r#type);
    let single_rate = kind != Type::TwoRateThreeColor;
    if single_rate && (pir, pburst) != (cir, cburst) {
        return invalid(format!(
            "pir {pir} and pburst {pburst} are not cir {cir} and cburst {cburst}, as single-rate meters have it"
        ));
    }
    if eburst != 0 && kind != Type::SingleRateThreeColor {
        return invalid(format!("eburst {eburst} is for single-rate three-colour meters; leave it 0"));
    }
    if cir > pir {
        return invalid(format!("cir {cir} is above pir {pir}"));
    }
    Ok(())
}

/// "DigestEntry".
fn check_digest(entry: &DigestEntry, index: &Index, purpose: Purpose) -> Result<DigestEntry, EntityError> {
    if is_wildcard(entry.digest_id, purpose) {
        return Ok(*entry);
    }
    let digest = index.digest(entry.digest_id)?;
    let invalid = |reason: String| Err(EntityError::invalid(format!("digest {:?}", digest.name()), reason));
    if matches!(purpose, Purpose::Read | Purpose::Delete) {
        return Ok(DigestEntry { config: None, ..*entry });
    }
    // No config means that all of it is 0, as finsy writes it.
    let config = entry.config.unwrap_or_default();
    for (name, value) in [
        ("max_timeout_ns", config.max_timeout_ns),
        ("max_list_size", config.max_list_size.into()),
        ("ack_timeout_ns", config.ack_timeout_ns),
    ] {
        if value < 0 {
            return invalid(format!("{name} {value} is negative"));
        }
    }
    Ok(*entry)
}

fn check_register(
    entry: &RegisterEntry,
    index: &Index,
    purpose: Purpose,
) -> Result<RegisterEntry, EntityError> {
    use crate::config::p4_bitstring_like_type_spec::TypeSpec as Bits;
    use crate::config::p4_data_type_spec::TypeSpec;
    use crate::v1::p4_data::Data;

    only_modify("register entries", purpose)?;
    let mut checked = entry.clone();
    if is_wildcard(entry.register_id, purpose) {
        return Ok(checked);
    }
    let register = index.register(entry.register_id)?;
    check_index(register, register.size.into(), entry.index)?;
    if purpose == Purpose::Read {
        return Ok(checked);
    }
    let place = || format!("register {:?}", register.name());
    let type_spec = register.type_spec.as_ref().and_then(|spec| spec.type_spec.as_ref());
    let Some(TypeSpec::Bitstring(config::P4BitstringLikeTypeSpec { type_spec: Some(bits), .. })) = type_spec
    else {
        // Structured registers: the switch knows their layout.
        return Ok(checked);
    };
    let Some(Data::Bitstring(value)) = entry.data.as_ref().and_then(|data| data.data.as_ref()) else {
        return Err(EntityError::invalid(place(), "takes a bitstring as its data"));
    };
    let canonical = match bits {
        Bits::Bit(bit) => bytes::check(value, bit.bitwidth.unsigned_abs()),
        Bits::Int(int) => bytes::check_signed(value, int.bitwidth.unsigned_abs()),
        Bits::Varbit(_) => Ok(value.as_slice()),
    }
    .map_err(|source| EntityError::Value { place: place(), source })?;
    checked.data = Some(crate::v1::P4Data { data: Some(Data::Bitstring(canonical.to_vec())) });
    Ok(checked)
}

fn check_direct(
    entry: Option<&TableEntry>,
    index: &Index,
    purpose: Purpose,
    resource: &str,
) -> Result<TableEntry, EntityError> {
    let all = TableEntry::default();
    let entry = match (entry, purpose) {
        (Some(entry), _) => entry,
        // As finsy asks for all of them.
        (None, Purpose::Read) => &all,
        (None, _) => return Err(EntityError::invalid(resource, "has no table_entry to belong to")),
    };
    // Only the key counts here, as for a delete, except that the default entry is allowed.
    let key = TableEntry {
        table_id: entry.table_id,
        r#match: entry.r#match.clone(),
        priority: entry.priority,
        is_default_action: entry.is_default_action,
        ..TableEntry::default()
    };
    let purpose = if entry.is_default_action { Purpose::Read } else { purpose };
    let checked = check_table_entry(&key, index, purpose)?;
    if checked.table_id != 0 {
        let table = index.table(checked.table_id)?;
        let has = match resource {
            "direct counter" => table.direct_counter().is_some(),
            _ => table.direct_meter().is_some(),
        };
        if !has {
            return Err(EntityError::invalid(
                format!("table {:?}", table.name()),
                format!("has no {resource}"),
            ));
        }
    }
    Ok(checked)
}

fn check_member(
    member: &ActionProfileMember,
    index: &Index,
    purpose: Purpose,
) -> Result<ActionProfileMember, EntityError> {
    if is_wildcard(member.action_profile_id, purpose) {
        return Ok(member.clone());
    }
    let profile = index.action_profile(member.action_profile_id)?;
    let place = || format!("member {} of action profile {:?}", member.member_id, profile.name());
    if purpose == Purpose::Read {
        return Ok(member.clone());
    }
    if member.member_id == 0 {
        return Err(EntityError::invalid(place(), "0 is the wildcard of reads; ids start at 1"));
    }
    if purpose == Purpose::Delete {
        return Ok(ActionProfileMember { action: None, ..member.clone() });
    }
    let action = member.action.as_ref().ok_or_else(|| EntityError::invalid(place(), "has no action"))?;
    // The profile's tables have the same actions; those of the first that has this one decide.
    let tables = profile.table_ids.iter().filter_map(|id| index.table(*id).ok());
    let mut last = None;
    for table in tables {
        match table.action(action.action_id) {
            Ok(reference) => {
                let action = Some(check_action(action, reference)?);
                return Ok(ActionProfileMember { action, ..member.clone() });
            }
            Err(error) => last = Some(error),
        }
    }
    if let Some(error) = last {
        return Err(error.into());
    }
    let action = Some(check_action(action, index.action(action.action_id)?)?);
    Ok(ActionProfileMember { action, ..member.clone() })
}

fn check_group(
    group: &ActionProfileGroup,
    index: &Index,
    purpose: Purpose,
) -> Result<ActionProfileGroup, EntityError> {
    if is_wildcard(group.action_profile_id, purpose) {
        return Ok(group.clone());
    }
    let profile = index.action_profile(group.action_profile_id)?;
    let place = || format!("group {} of action profile {:?}", group.group_id, profile.name());
    if !profile.with_selector {
        return Err(EntityError::invalid(place(), "the profile has no selector, so it has no groups"));
    }
    if purpose == Purpose::Read {
        return Ok(group.clone());
    }
    if group.group_id == 0 {
        return Err(EntityError::invalid(place(), "0 is the wildcard of reads; ids start at 1"));
    }
    let mut checked = group.clone();
    if purpose == Purpose::Delete {
        checked.members.clear();
        checked.max_size = 0;
        return Ok(checked);
    }
    let mut seen = BTreeSet::new();
    for member in &group.members {
        check_weight(member.weight, profile, &format!("member {} of {}", member.member_id, place()))?;
        check_watch(member.watch_kind.as_ref(), &place())?;
        if !seen.insert(member.member_id) {
            return Err(EntityError::invalid(
                place(),
                format!("has member {} twice; use its weight instead", member.member_id),
            ));
        }
    }
    check_sizes(group.members.iter().map(|member| member.weight), group.max_size, profile, &place())?;
    if group.max_size < 0 || (profile.max_group_size > 0 && group.max_size > profile.max_group_size) {
        return Err(EntityError::invalid(
            place(),
            format!("max_size {} is not in 0..={}", group.max_size, profile.max_group_size),
        ));
    }
    checked.members.sort_by_key(|member| member.member_id);
    Ok(checked)
}

fn check_replication(
    entry: &PacketReplicationEngineEntry,
    purpose: Purpose,
) -> Result<PacketReplicationEngineEntry, EntityError> {
    let invalid = |place: String, reason: &str| Err(EntityError::invalid(place, reason));
    let mut checked = entry.clone();
    let (place, id, replicas) = match &mut checked.r#type {
        None => {
            return invalid("packet replication engine entry".to_owned(), "is empty, or of an unknown kind");
        }
        Some(Pre::MulticastGroupEntry(MulticastGroupEntry { multicast_group_id: id, replicas, .. })) => {
            (format!("multicast group {id}"), *id, replicas)
        }
        Some(Pre::CloneSessionEntry(CloneSessionEntry {
            session_id: id,
            replicas,
            packet_length_bytes,
            ..
        })) => {
            if *packet_length_bytes < 0 {
                return invalid(format!("clone session {id}"), "packet_length_bytes is negative");
            }
            (format!("clone session {id}"), *id, replicas)
        }
    };
    if purpose == Purpose::Read {
        return Ok(checked);
    }
    if id == 0 {
        return invalid(place, "0 is the wildcard of reads; ids start at 1");
    }
    if purpose == Purpose::Delete {
        replicas.clear();
        return Ok(checked);
    }
    let mut seen = BTreeSet::new();
    for replica in replicas.iter_mut() {
        let port = check_port(replica, &place)?;
        if !seen.insert((port.clone(), replica.instance)) {
            return invalid(
                place,
                &format!("has port {} with instance {} twice", bytes::hex(&port), replica.instance),
            );
        }
        for backup in &mut replica.backup_replicas {
            backup.port = bytes::shortest(&backup.port).to_vec();
            if backup.port == port {
                return invalid(place, &format!("backs port {} with itself", bytes::hex(&port)));
            }
            if !seen.insert((backup.port.clone(), backup.instance)) {
                return invalid(
                    place,
                    &format!("has port {} with instance {} twice", bytes::hex(&backup.port), backup.instance),
                );
            }
        }
    }
    replicas.sort_by_key(|replica| (port_of(replica), replica.instance));
    Ok(checked)
}

/// The replica's port in canonical form; the deprecated numeric form stays as the client wrote it.
fn check_port(replica: &mut Replica, place: &str) -> Result<Vec<u8>, EntityError> {
    match &mut replica.port_kind {
        Some(PortKind::Port(port)) if !port.is_empty() => {
            *port = bytes::shortest(port).to_vec();
            Ok(port.clone())
        }
        #[expect(deprecated, reason = "still sent by clients written for P4Runtime before 1.4")]
        Some(PortKind::EgressPort(port)) => Ok(bytes::encode((*port).into())),
        Some(PortKind::Port(_)) | None => Err(EntityError::invalid(place, "has a replica without port")),
    }
}

/// The port of a replica whatever form it is given in; canonical if the replica is. Empty for none.
pub(super) fn port_of(replica: &Replica) -> Vec<u8> {
    match &replica.port_kind {
        Some(PortKind::Port(port)) => bytes::shortest(port).to_vec(),
        #[expect(deprecated, reason = "still sent by clients written for P4Runtime before 1.4")]
        Some(PortKind::EgressPort(port)) => bytes::encode((*port).into()),
        None => Vec::new(),
    }
}

fn check_value_set(
    entry: &ValueSetEntry,
    index: &Index,
    purpose: Purpose,
) -> Result<ValueSetEntry, EntityError> {
    only_modify("value sets", purpose)?;
    let mut checked = entry.clone();
    if is_wildcard(entry.value_set_id, purpose) {
        return Ok(checked);
    }
    let set = index.value_set(entry.value_set_id)?;
    let place = format!("value set {:?}", set.name());
    if purpose == Purpose::Read {
        return Ok(checked);
    }
    if set.size >= 0 && entry.members.len() > set.size.unsigned_abs() as usize {
        let reason = format!("{} members do not fit its size of {}", entry.members.len(), set.size);
        return Err(EntityError::Exhausted { place, reason });
    }
    for member in &mut checked.members {
        member.r#match = check_match(&member.r#match, &set.r#match, &place)?;
    }
    let mut seen = BTreeMap::new();
    for (at, member) in checked.members.iter().enumerate() {
        if let Some(before) = seen.insert(member.encode_to_vec(), at) {
            let reason = format!("members {before} and {at} are the same");
            return Err(EntityError::Duplicate { place, reason });
        }
    }
    Ok(checked)
}
