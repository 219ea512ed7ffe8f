//! P4Runtime's entities, by id, to and from the engine's, by name.

use super::{meters, replication};
use crate::engine::entity::{
    ActionCall, ActionSpec, CounterValue, Group, GroupMember, MatchValue, Member, TableEntry, TableRow, Value,
};
use crate::engine::{Code as EngineCode, Control, ControlError};
use tonic::{Code, Status};
use trimwire_p4runtime::config::match_field::MatchType;
use trimwire_p4runtime::entity::EntityError;
use trimwire_p4runtime::p4info::{Index, LookupError, TableRef};
use trimwire_p4runtime::v1;
use trimwire_p4runtime::v1::entity::Entity as Kind;
use trimwire_p4runtime::v1::field_match::FieldMatchType;
use trimwire_p4runtime::v1::table_action::Type as ActionType;
use trimwire_p4runtime::v1::update::Type;

/// Why one entity was not written or read.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) code: Code,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    pub(super) fn unsupported(what: &str) -> Self {
        Self::new(Code::Unimplemented, format!("this switch does not support {what}"))
    }
}

impl From<ControlError> for Refusal {
    fn from(error: ControlError) -> Self {
        let code = match error.code {
            EngineCode::InvalidArgument => Code::InvalidArgument,
            EngineCode::NotFound => Code::NotFound,
            EngineCode::AlreadyExists => Code::AlreadyExists,
            EngineCode::PermissionDenied => Code::PermissionDenied,
            EngineCode::ResourceExhausted => Code::ResourceExhausted,
            EngineCode::FailedPrecondition => Code::FailedPrecondition,
            EngineCode::OutOfRange => Code::OutOfRange,
            EngineCode::Unimplemented => Code::Unimplemented,
        };
        Self::new(code, error.message)
    }
}

impl From<LookupError> for Refusal {
    fn from(error: LookupError) -> Self {
        Self::new(Code::NotFound, error.to_string())
    }
}

impl From<EntityError> for Refusal {
    fn from(error: EntityError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        Status::new(refusal.code, refusal.message)
    }
}

pub(super) type Result<T> = std::result::Result<T, Refusal>;

/// Carries out an update that [`trimwire_p4runtime::entity::check_update`] has accepted.
pub(super) fn write(control: &mut Control, index: &Index, kind: Type, entity: Kind) -> Result<()> {
    match (entity, kind) {
        (Kind::TableEntry(entry), _) => write_table(control, index, kind, &entry),
        (Kind::ActionProfileMember(member), _) => {
            let profile = index.action_profile(member.action_profile_id)?;
            let name = profile.preamble.as_ref().map_or("", |p| &p.name);
            if kind == Type::Delete {
                return Ok(control.member_delete(name, member.member_id)?);
            }
            let call = action_call(index, member.action.as_ref())?;
            if kind == Type::Insert {
                control.member_insert(name, member.member_id, &call)?;
            } else {
                control.member_modify(name, member.member_id, &call)?;
            }
            Ok(())
        }
        (Kind::ActionProfileGroup(group), _) => {
            let profile = index.action_profile(group.action_profile_id)?;
            let name = profile.preamble.as_ref().map_or("", |p| &p.name);
            if group.members.iter().any(|member| member.watch_kind.is_some()) {
                return Err(Refusal::unsupported("watch ports of group members"));
            }
            let members = group.members.iter();
            let wanted = Group {
                id: group.group_id,
                max_size: group.max_size.max(0) as u32,
                members: members
                    .map(|m| GroupMember { id: m.member_id, weight: m.weight.max(0) as u32 })
                    .collect(),
            };
            match kind {
                Type::Insert => control.group_insert(name, &wanted)?,
                Type::Delete => control.group_delete(name, group.group_id)?,
                _ => control.group_modify(name, &wanted)?,
            }
            Ok(())
        }
        (Kind::CounterEntry(entry), Type::Modify) => {
            let name = counter_name(index, entry.counter_id)?;
            let data = entry.data.unwrap_or_default();
            for cell in cells(control, &name, entry.index.as_ref())? {
                control.set_counter(&name, cell, counter_value(&data))?;
            }
            Ok(())
        }
        (Kind::DirectCounterEntry(entry), Type::Modify) => {
            let row = entry.table_entry.unwrap_or_default();
            let table = index.table(row.table_id)?;
            let matches = direct_matches(table, &row)?;
            let data = counter_value(&entry.data.unwrap_or_default());
            Ok(control.set_direct_counter(table.name(), &matches, row.priority, data)?)
        }
        (Kind::RegisterEntry(entry), Type::Modify) => {
            let name = register_name(index, entry.register_id)?;
            let Some(v1::p4_data::Data::Bitstring(value)) = entry.data.and_then(|data| data.data) else {
                return Err(Refusal::new(
                    Code::InvalidArgument,
                    format!("register {name}: data is not a bitstring"),
                ));
            };
            for cell in register_cells(control, &name, entry.index.as_ref())? {
                control.set_register(&name, cell, &value)?;
            }
            Ok(())
        }
        (Kind::MeterEntry(entry), Type::Modify) => meters::write(control, index, &entry),
        (Kind::DirectMeterEntry(entry), Type::Modify) => {
            let row = entry.table_entry.unwrap_or_default();
            let table = index.table(row.table_id)?;
            let config = entry.config.map(|config| meters::config_in(&config, table.name())).transpose()?;
            let matches = direct_matches(table, &row)?;
            Ok(control.set_direct_meter(table.name(), &matches, row.priority, config)?)
        }
        (
            Kind::CounterEntry(_)
            | Kind::DirectCounterEntry(_)
            | Kind::RegisterEntry(_)
            | Kind::MeterEntry(_)
            | Kind::DirectMeterEntry(_),
            _,
        ) => Err(Refusal::invalid(
            "counters, meters and registers can be modified only: they are neither inserted nor deleted",
        )),
        (Kind::PacketReplicationEngineEntry(entry), _) => replication::write(control, kind, &entry),
        (Kind::ValueSetEntry(_), _) => Err(Refusal::unsupported("value sets over P4Runtime")),
        (Kind::DigestEntry(_), _) => Err(Refusal::unsupported("digests over P4Runtime")),
        (Kind::ExternEntry(_), _) => Err(Refusal::unsupported("externs of its own")),
    }
}

fn write_table(control: &mut Control, index: &Index, kind: Type, entry: &v1::TableEntry) -> Result<()> {
    let table = index.table(entry.table_id)?;
    if entry.idle_timeout_ns != 0 {
        return Err(Refusal::unsupported("idle timeouts"));
    }
    if entry.is_default_action {
        let action = match &entry.action {
            Some(action) => Some(action_spec(index, action)?),
            None => None,
        };
        return Ok(control.set_default_action(table.name(), action.as_ref())?);
    }
    let matches = matches(table, entry)?;
    if kind == Type::Delete {
        return Ok(control.table_delete(table.name(), &matches, entry.priority)?);
    }
    let Some(action) = &entry.action else {
        return Err(Refusal::new(
            Code::InvalidArgument,
            format!("entry of table {} has no action", table.name()),
        ));
    };
    let meter = entry.meter_config.map(|config| meters::config_in(&config, table.name())).transpose()?;
    let wanted = TableEntry {
        matches,
        priority: entry.priority,
        action: action_spec(index, action)?,
        metadata: entry.metadata.clone(),
    };
    match kind {
        Type::Insert => control.table_insert(table.name(), &wanted)?,
        _ => control.table_modify(table.name(), &wanted)?,
    }
    // The entry is there and, by P4Info, has these resources.
    if meter.is_some() {
        control.set_direct_meter(table.name(), &wanted.matches, wanted.priority, meter)?;
    }
    if let Some(data) = &entry.counter_data {
        let data = counter_value(data);
        control.set_direct_counter(table.name(), &wanted.matches, wanted.priority, data)?;
    }
    Ok(())
}

/// The key of the entry that a direct resource belongs to.
fn direct_matches(table: TableRef<'_>, row: &v1::TableEntry) -> Result<Vec<MatchValue>> {
    if row.is_default_action {
        return Err(Refusal::unsupported("counters and meters of default entries"));
    }
    matches(table, row)
}

/// The key in the table's order, "don't care" elements filled in.
fn matches(table: TableRef<'_>, entry: &v1::TableEntry) -> Result<Vec<MatchValue>> {
    let given =
        |id| entry.r#match.iter().find(|m| m.field_id == id).and_then(|m| m.field_match_type.as_ref());
    table
        .table
        .match_fields
        .iter()
        .map(|field| {
            Ok(match given(field.id) {
                Some(FieldMatchType::Exact(m)) => MatchValue::Exact(m.value.clone()),
                Some(FieldMatchType::Lpm(m)) => MatchValue::Lpm {
                    value: m.value.clone(),
                    prefix_len: m.prefix_len.clamp(0, 0xffff) as u16,
                },
                Some(FieldMatchType::Ternary(m)) => {
                    MatchValue::Ternary { value: m.value.clone(), mask: m.mask.clone() }
                }
                Some(FieldMatchType::Range(m)) => {
                    MatchValue::Range { low: m.low.clone(), high: m.high.clone() }
                }
                Some(FieldMatchType::Optional(m)) => MatchValue::Optional(Some(m.value.clone())),
                Some(FieldMatchType::Other(_)) => return Err(Refusal::unsupported("match kinds of its own")),
                None => match field.kind() {
                    MatchType::Lpm => MatchValue::Lpm { value: vec![0], prefix_len: 0 },
                    MatchType::Ternary => MatchValue::Ternary { value: vec![0], mask: vec![0] },
                    MatchType::Optional => MatchValue::Optional(None),
                    MatchType::Range => {
                        MatchValue::Range { low: vec![0], high: ones(field.bitwidth.max(0) as usize) }
                    }
                    _ => {
                        let name = &field.name;
                        let message = format!("table {}: exact match field {name} is missing", table.name());
                        return Err(Refusal::new(Code::InvalidArgument, message));
                    }
                },
            })
        })
        .collect()
}

fn ones(bits: usize) -> Value {
    let mut bytes = vec![0xff; bits.div_ceil(8)];
    if let Some(first) = bytes.first_mut().filter(|_| !bits.is_multiple_of(8)) {
        *first = (1 << (bits % 8)) - 1;
    }
    bytes
}

fn action_spec(index: &Index, action: &v1::TableAction) -> Result<ActionSpec> {
    match &action.r#type {
        Some(ActionType::Action(action)) => Ok(ActionSpec::Direct(action_call(index, Some(action))?)),
        Some(ActionType::ActionProfileMemberId(id)) => Ok(ActionSpec::Member(*id)),
        Some(ActionType::ActionProfileGroupId(id)) => Ok(ActionSpec::Group(*id)),
        Some(ActionType::ActionProfileActionSet(_)) => {
            Err(Refusal::unsupported("one-shot action sets; write members and groups"))
        }
        None => Err(Refusal::new(Code::InvalidArgument, "a table action without a type")),
    }
}

fn action_call(index: &Index, action: Option<&v1::Action>) -> Result<ActionCall> {
    let Some(action) = action else {
        return Err(Refusal::new(Code::InvalidArgument, "an action is missing"));
    };
    let known = index.action(action.action_id)?;
    let params = known
        .action
        .params
        .iter()
        .map(|param| {
            action
                .params
                .iter()
                .find(|given| given.param_id == param.id)
                .map(|given| given.value.clone())
                .ok_or_else(|| {
                    Refusal::new(
                        Code::InvalidArgument,
                        format!("action {}: {} is missing", known.name(), param.name),
                    )
                })
        })
        .collect::<Result<_>>()?;
    Ok(ActionCall { action: known.name().to_owned(), params })
}

/// Everything that a filter of a Read asks for.
pub(super) fn read(control: &Control, index: &Index, filter: &Kind, out: &mut Vec<v1::Entity>) -> Result<()> {
    let mut push = |kind: Kind| out.push(v1::Entity { entity: Some(kind) });
    match filter {
        Kind::TableEntry(filter) => {
            for table in index.tables().filter(|t| filter.table_id == 0 || t.id() == filter.table_id) {
                if filter.is_default_action {
                    if let Some(entry) = default_entry(control, index, table)? {
                        push(Kind::TableEntry(entry));
                    }
                    continue;
                }
                for row in selected(control, table, filter)? {
                    push(Kind::TableEntry(table_entry(index, table, &row, filter)?));
                }
            }
            if filter.table_id != 0 {
                index.table(filter.table_id)?;
            }
        }
        Kind::DirectCounterEntry(filter) => {
            let filter = filter.table_entry.clone().unwrap_or_default();
            for table in index.tables().filter(|t| filter.table_id == 0 || t.id() == filter.table_id) {
                for row in selected(control, table, &filter)? {
                    if let Some(counter) = row.counter {
                        let entry = table_entry(index, table, &row, &v1::TableEntry::default())?;
                        let data = Some(counter_data(counter));
                        push(Kind::DirectCounterEntry(v1::DirectCounterEntry {
                            table_entry: Some(entry),
                            data,
                        }));
                    }
                }
            }
        }
        Kind::ActionProfileMember(filter) => {
            for (id, name) in profiles(index, filter.action_profile_id)? {
                for Member { id: member_id, call } in control.members(name)? {
                    if filter.member_id == 0 || filter.member_id == member_id {
                        let action = Some(action(index, &call)?);
                        push(Kind::ActionProfileMember(v1::ActionProfileMember {
                            action_profile_id: id,
                            member_id,
                            action,
                        }));
                    }
                }
            }
        }
        Kind::ActionProfileGroup(filter) => {
            for (id, name) in profiles(index, filter.action_profile_id)? {
                let Ok(groups) = control.groups(name) else { continue };
                for group in groups.into_iter().filter(|g| filter.group_id == 0 || filter.group_id == g.id) {
                    let members = group.members.iter().map(|m| v1::action_profile_group::Member {
                        member_id: m.id,
                        weight: m.weight as i32,
                        ..Default::default()
                    });
                    push(Kind::ActionProfileGroup(v1::ActionProfileGroup {
                        action_profile_id: id,
                        group_id: group.id,
                        members: members.collect(),
                        max_size: group.max_size as i32,
                    }));
                }
            }
        }
        Kind::CounterEntry(filter) => {
            for counter in &index.p4info().counters {
                let Some(preamble) = counter.preamble.as_ref() else { continue };
                if filter.counter_id != 0 && filter.counter_id != preamble.id {
                    continue;
                }
                for cell in cells(control, &preamble.name, filter.index.as_ref())? {
                    let data = Some(counter_data(control.counter(&preamble.name, cell)?));
                    let index = Some(v1::Index { index: cell as i64 });
                    push(Kind::CounterEntry(v1::CounterEntry { counter_id: preamble.id, index, data }));
                }
            }
            if filter.counter_id != 0 {
                index.counter(filter.counter_id)?;
            }
        }
        Kind::RegisterEntry(filter) => {
            for register in &index.p4info().registers {
                let Some(preamble) = register.preamble.as_ref() else { continue };
                if filter.register_id != 0 && filter.register_id != preamble.id {
                    continue;
                }
                for cell in register_cells(control, &preamble.name, filter.index.as_ref())? {
                    let value = control.register(&preamble.name, cell)?;
                    let data = v1::P4Data { data: Some(v1::p4_data::Data::Bitstring(value)) };
                    push(Kind::RegisterEntry(v1::RegisterEntry {
                        register_id: preamble.id,
                        index: Some(v1::Index { index: cell as i64 }),
                        data: Some(data),
                    }));
                }
            }
            if filter.register_id != 0 {
                index.register(filter.register_id)?;
            }
        }
        Kind::MeterEntry(filter) => {
            for entry in meters::read(control, index, filter)? {
                push(Kind::MeterEntry(entry));
            }
        }
        Kind::DirectMeterEntry(filter) => {
            let filter = filter.table_entry.clone().unwrap_or_default();
            for table in index.tables().filter(|t| filter.table_id == 0 || t.id() == filter.table_id) {
                if table.direct_meter().is_none() {
                    continue;
                }
                for row in selected(control, table, &filter)? {
                    push(Kind::DirectMeterEntry(v1::DirectMeterEntry {
                        table_entry: Some(table_entry(index, table, &row, &v1::TableEntry::default())?),
                        config: row.meter.map(meters::config_out),
                        ..Default::default()
                    }));
                }
            }
        }
        Kind::PacketReplicationEngineEntry(filter) => {
            for entry in replication::read(control, filter)? {
                push(Kind::PacketReplicationEngineEntry(entry));
            }
        }
        Kind::ValueSetEntry(_) => return Err(Refusal::unsupported("reading value sets")),
        Kind::DigestEntry(_) => return Err(Refusal::unsupported("reading digests")),
        Kind::ExternEntry(_) => return Err(Refusal::unsupported("reading externs of its own")),
    }
    Ok(())
}

/// The entries that a checked filter takes: without match fields all of them, without priority those of any priority.
fn selected(control: &Control, table: TableRef<'_>, filter: &v1::TableEntry) -> Result<Vec<TableRow>> {
    let open = filter.r#match.is_empty() || filter.priority == 0 && table.needs_priority();
    if open {
        let mut rows = control.table_entries(table.name())?;
        rows.retain(|row| {
            (filter.priority == 0 || row.entry.priority == filter.priority)
                && (filter.r#match.is_empty() || field_matches(table, row) == filter.r#match)
        });
        return Ok(rows);
    }
    Ok(vec![control.table_entry(table.name(), &matches(table, filter)?, filter.priority)?])
}

fn table_entry(
    index: &Index,
    table: TableRef<'_>,
    row: &TableRow,
    filter: &v1::TableEntry,
) -> Result<v1::TableEntry> {
    Ok(v1::TableEntry {
        table_id: table.id(),
        r#match: field_matches(table, row),
        action: Some(table_action(index, &row.entry.action)?),
        priority: row.entry.priority,
        metadata: row.entry.metadata.clone(),
        is_const: row.is_const,
        counter_data: filter.counter_data.and(row.counter).map(counter_data),
        meter_config: filter.meter_config.and(row.meter).map(meters::config_out),
        ..Default::default()
    })
}

fn default_entry(control: &Control, index: &Index, table: TableRef<'_>) -> Result<Option<v1::TableEntry>> {
    let Some(action) = control.default_action(table.name())? else { return Ok(None) };
    Ok(Some(v1::TableEntry {
        table_id: table.id(),
        action: Some(table_action(index, &action)?),
        is_default_action: true,
        ..Default::default()
    }))
}

/// An entry's key in canonical form, by field id.
fn field_matches(table: TableRef<'_>, row: &TableRow) -> Vec<v1::FieldMatch> {
    let fields = table.table.match_fields.iter().zip(&row.entry.matches);
    let mut matches: Vec<_> =
        fields.filter_map(|(field, value)| field_match(field.id, field.kind(), value)).collect();
    matches.sort_by_key(|field| field.field_id);
    matches
}

/// `None` for "don't care", which P4Runtime leaves out.
fn field_match(field_id: u32, kind: MatchType, value: &MatchValue) -> Option<v1::FieldMatch> {
    use v1::field_match::{Exact, Lpm, Optional, Range, Ternary};
    let zero = |value: &Value| value.iter().all(|byte| *byte == 0);
    let of = match (value.clone(), kind) {
        (MatchValue::Exact(value), _) => FieldMatchType::Exact(Exact { value }),
        (MatchValue::Lpm { prefix_len: 0, .. } | MatchValue::Optional(None), _) => return None,
        (MatchValue::Lpm { value, prefix_len }, _) => {
            FieldMatchType::Lpm(Lpm { value, prefix_len: i32::from(prefix_len) })
        }
        (MatchValue::Ternary { mask, .. }, _) if zero(&mask) => return None,
        // The engine knows optional keys as ternary ones.
        (MatchValue::Ternary { value, .. } | MatchValue::Optional(Some(value)), MatchType::Optional) => {
            FieldMatchType::Optional(Optional { value })
        }
        (MatchValue::Ternary { value, mask }, _) => FieldMatchType::Ternary(Ternary { value, mask }),
        (MatchValue::Optional(Some(value)), _) => FieldMatchType::Optional(Optional { value }),
        (MatchValue::Range { low, high }, _) => FieldMatchType::Range(Range { low, high }),
    };
    Some(v1::FieldMatch { field_id, field_match_type: Some(of) })
}

fn table_action(index: &Index, action: &ActionSpec) -> Result<v1::TableAction> {
    let of = match action {
        ActionSpec::Direct(call) => ActionType::Action(self::action(index, call)?),
        ActionSpec::Member(id) => ActionType::ActionProfileMemberId(*id),
        ActionSpec::Group(id) => ActionType::ActionProfileGroupId(*id),
    };
    Ok(v1::TableAction { r#type: Some(of) })
}

fn action(index: &Index, call: &ActionCall) -> Result<v1::Action> {
    let known = index.action(call.action.as_str())?;
    let params = known.action.params.iter().zip(&call.params);
    Ok(v1::Action {
        action_id: known.id(),
        params: params
            .map(|(param, value)| v1::action::Param { param_id: param.id, value: value.clone() })
            .collect(),
    })
}

fn profiles(index: &Index, id: u32) -> Result<Vec<(u32, &str)>> {
    if id != 0 {
        index.action_profile(id)?;
    }
    let all = index.p4info().action_profiles.iter().filter_map(|profile| profile.preamble.as_ref());
    Ok(all.filter(|p| id == 0 || p.id == id).map(|p| (p.id, p.name.as_str())).collect())
}

fn counter_name(index: &Index, id: u32) -> Result<String> {
    Ok(index.counter(id)?.preamble.as_ref().map(|p| p.name.clone()).unwrap_or_default())
}

fn register_name(index: &Index, id: u32) -> Result<String> {
    Ok(index.register(id)?.preamble.as_ref().map(|p| p.name.clone()).unwrap_or_default())
}

fn cells(control: &Control, name: &str, index: Option<&v1::Index>) -> Result<std::ops::Range<u64>> {
    let size = control.counters().find(|(known, _)| *known == name).map(|(_, size)| size as u64);
    cell_range("counter", name, size, index)
}

fn register_cells(control: &Control, name: &str, index: Option<&v1::Index>) -> Result<std::ops::Range<u64>> {
    let size = control.registers().find(|(known, ..)| *known == name).map(|(_, size, _)| size as u64);
    cell_range("register", name, size, index)
}

pub(super) fn cell_range(
    what: &str,
    name: &str,
    size: Option<u64>,
    index: Option<&v1::Index>,
) -> Result<std::ops::Range<u64>> {
    let size =
        size.ok_or_else(|| Refusal::new(Code::NotFound, format!("the program has no {what} {name}")))?;
    match index.map(|index| u64::try_from(index.index)) {
        None => Ok(0..size),
        Some(Ok(cell)) if cell < size => Ok(cell..cell + 1),
        Some(_) => {
            let asked = index.map_or(0, |index| index.index);
            Err(Refusal::new(
                Code::OutOfRange,
                format!("{what} {name} has no cell {asked}; valid are 0 to {}", size - 1),
            ))
        }
    }
}

fn counter_value(data: &v1::CounterData) -> CounterValue {
    CounterValue { packets: data.packet_count.max(0) as u64, bytes: data.byte_count.max(0) as u64 }
}

fn counter_data(value: CounterValue) -> v1::CounterData {
    v1::CounterData { packet_count: value.packets as i64, byte_count: value.bytes as i64 }
}
