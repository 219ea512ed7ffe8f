//! Writing table entries (P4Runtime, "TableEntry").

use super::super::ledger::Notes;
use super::actions::call_of;
use super::{Refusal, Result, Target, arrays, meters};
use crate::engine::entity::{ActionSpec, MatchValue, MeterConfig, TableEntry, TableRow, Value};
use trimwire_p4runtime::config::match_field::MatchType;
use trimwire_p4runtime::p4info::{Named as _, TableRef};
use trimwire_p4runtime::v1;
use trimwire_p4runtime::v1::field_match::FieldMatchType;
use trimwire_p4runtime::v1::table_action::Type as ActionType;
use trimwire_p4runtime::v1::update::Type;

/// An entry's action, and what has to be undone should it not be used.
struct Planned {
    action: ActionSpec,
    /// The group that was made for a one-shot.
    made: Option<u32>,
}

impl Target<'_> {
    pub(super) fn write_table(&mut self, kind: Type, entry: &v1::TableEntry) -> Result<()> {
        let index = self.index;
        let table = index.table(entry.table_id)?;
        if entry.is_default_action {
            return self.write_default(table, entry);
        }
        let matches = key_of(table, entry)?;
        meters::supported(entry.meter_config.as_ref())?;
        match kind {
            Type::Delete => {
                let before = self.control.table_entry(table.name(), &matches, entry.priority)?;
                self.control.table_delete(table.name(), &matches, entry.priority)?;
                self.discard(table, &before.entry.action)
            }
            Type::Insert => self.insert(table, matches, entry),
            _ => self.modify(table, matches, entry),
        }
    }

    fn insert(
        &mut self,
        table: TableRef<'_>,
        matches: Vec<MatchValue>,
        entry: &v1::TableEntry,
    ) -> Result<()> {
        let planned = match &entry.action {
            Some(action) => self.plan(table, action)?,
            None => {
                return Err(Refusal::invalid(format!(
                    "table {}: an entry to insert needs an action",
                    table.name()
                )));
            }
        };
        let wanted = TableEntry {
            matches,
            priority: entry.priority,
            action: planned.action,
            metadata: Notes::of(entry).pack(),
        };
        if let Err(error) = self.control.table_insert(table.name(), &wanted) {
            self.undo(table, planned.made)?;
            return Err(error.into());
        }
        self.write_direct(table, &wanted.matches, entry, None)
    }

    /// The whole new state of an entry, but for an action that is left out: that stays ("Action Specification").
    fn modify(
        &mut self,
        table: TableRef<'_>,
        matches: Vec<MatchValue>,
        entry: &v1::TableEntry,
    ) -> Result<()> {
        let before = self.control.table_entry(table.name(), &matches, entry.priority)?;
        if before.is_const {
            // "Constant Tables": direct resources are all that may change.
            if entry.action.is_some() {
                let message = format!("table {}: the entry is constant in the program", table.name());
                return Err(Refusal::new(tonic::Code::PermissionDenied, message));
            }
            return self.write_direct(table, &matches, entry, Some(&before));
        }
        let planned = match &entry.action {
            Some(action) => self.plan(table, action)?,
            None => Planned { action: before.entry.action.clone(), made: None },
        };
        let changed = planned.action != before.entry.action;
        let wanted = TableEntry {
            matches,
            priority: entry.priority,
            action: planned.action,
            metadata: Notes::of(entry).pack(),
        };
        if let Err(error) = self.control.table_modify(table.name(), &wanted) {
            self.undo(table, planned.made)?;
            return Err(error.into());
        }
        if changed {
            self.discard(table, &before.entry.action)?;
        }
        self.write_direct(table, &wanted.matches, entry, Some(&before))
    }

    /// "Direct Resources": a meter that is left out goes back to its default, a counter that is left out stays.
    fn write_direct(
        &mut self,
        table: TableRef<'_>,
        matches: &[MatchValue],
        entry: &v1::TableEntry,
        before: Option<&TableRow>,
    ) -> Result<()> {
        let (name, priority) = (table.name(), entry.priority);
        let meter: Option<MeterConfig> = entry.meter_config.as_ref().map(meters::config_in);
        // The same configuration again must not fill the buckets.
        if table.direct_meter().is_some() && meter != before.and_then(|row| row.meter) {
            self.control.set_direct_meter(name, matches, priority, meter)?;
        }
        if let Some(data) = &entry.counter_data {
            self.control.set_direct_counter(name, matches, priority, arrays::value_in(data))?;
        }
        let timeout_ns = entry.idle_timeout_ns.max(0) as u64;
        let supported = self.control.table(name)?.has_idle_timeout;
        if supported && before.is_none_or(|row| row.idle_timeout_ns != timeout_ns) {
            self.control.set_idle_timeout(name, matches, priority, timeout_ns, self.now_ns)?;
        }
        Ok(())
    }

    /// "Default Entry".
    fn write_default(&mut self, table: TableRef<'_>, entry: &v1::TableEntry) -> Result<()> {
        if entry.meter_config.is_some() || entry.counter_data.is_some() {
            return Err(Refusal::unsupported(&format!(
                "counters and meters of default entries, as table {} has it",
                table.name()
            )));
        }
        let action = match entry.action.as_ref().map(|action| self.plan(table, action)).transpose()? {
            Some(planned) => Some(planned.action),
            None => None,
        };
        self.control.set_default_action(table.name(), action.as_ref())?;
        // Without an action it goes back to the program's own, with nothing noted.
        if action.is_none() {
            self.ledger.defaults.remove(table.name());
        } else {
            self.ledger.defaults.insert(table.name().to_owned(), Notes::of(entry).pack());
        }
        Ok(())
    }

    fn plan(&mut self, table: TableRef<'_>, action: &v1::TableAction) -> Result<Planned> {
        let action = match &action.r#type {
            Some(ActionType::Action(action)) => ActionSpec::Direct(call_of(self.index, Some(action))?),
            Some(ActionType::ActionProfileMemberId(id)) => ActionSpec::Member(*id),
            Some(ActionType::ActionProfileGroupId(id)) => ActionSpec::Group(*id),
            Some(ActionType::ActionProfileActionSet(set)) => {
                let group = self.make_one_shot(table, set)?;
                return Ok(Planned { action: ActionSpec::Group(group), made: Some(group) });
            }
            None => {
                return Err(Refusal::invalid(format!(
                    "table {}: a table action without a type",
                    table.name()
                )));
            }
        };
        if !matches!(action, ActionSpec::Direct(_)) {
            self.only_manual(table.implementation().map_or("", |profile| profile.name()))?;
        }
        Ok(Planned { action, made: None })
    }

    fn undo(&mut self, table: TableRef<'_>, made: Option<u32>) -> Result<()> {
        made.map_or(Ok(()), |group| self.discard(table, &ActionSpec::Group(group)))
    }

    /// An entry does this no more: a one-shot's group and members go with it.
    fn discard(&mut self, table: TableRef<'_>, action: &ActionSpec) -> Result<()> {
        match (action, table.implementation()) {
            (ActionSpec::Group(group), Some(profile)) => self.drop_one_shot(profile.name(), *group),
            _ => Ok(()),
        }
    }
}

/// The key of the entry that a direct resource belongs to.
pub(super) fn direct_key_of(table: TableRef<'_>, entry: &v1::TableEntry) -> Result<Vec<MatchValue>> {
    if entry.is_default_action {
        return Err(Refusal::unsupported(&format!(
            "counters and meters of default entries, as table {} has it",
            table.name()
        )));
    }
    key_of(table, entry)
}

/// The key in the table's order, "don't care" elements filled in.
pub(super) fn key_of(table: TableRef<'_>, entry: &v1::TableEntry) -> Result<Vec<MatchValue>> {
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
                        return Err(Refusal::invalid(message));
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
