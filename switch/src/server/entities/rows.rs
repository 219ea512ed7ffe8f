// SPDX-License-Identifier: Apache-2.0
//! Reading table entries (P4Runtime, "Wildcard Reads" of "TableEntry"), and their counters and
//! meters.

use super::super::ledger::Notes;
use super::keys::key_of;
use super::target::{Kind, Piece, Refusal, Result, Target};
use super::{arrays, meters};
use crate::engine::ControlError;
use crate::engine::entity::{ActionSpec, DirectResources, MatchValue, Owner, TableRow, Value};
use std::ops::Range;
use tonic::Code;
use trimwire_p4runtime::config::match_field::MatchType;
use trimwire_p4runtime::p4info::{Named, TableRef};
use trimwire_p4runtime::v1;
use trimwire_p4runtime::v1::field_match::FieldMatchType;
use trimwire_p4runtime::v1::table_action::Type as ActionType;

impl Target<'_> {
    /// What a filter asks for of table entries or their direct resources, by table, and by place
    /// where it asks for many.
    pub(super) fn table_pieces(&self, filter: &Kind) -> Result<Vec<Piece>> {
        let key = match filter {
            Kind::TableEntry(entry) => Some(entry),
            Kind::DirectCounterEntry(entry) => entry.table_entry.as_ref(),
            Kind::DirectMeterEntry(entry) => entry.table_entry.as_ref(),
            _ => None,
        };
        let key = key.cloned().unwrap_or_default();
        let mut pieces = Vec::new();
        for table in self.tables(&key)? {
            let has = match filter {
                Kind::DirectCounterEntry(_) => table.direct_counter().is_some(),
                Kind::DirectMeterEntry(_) => table.direct_meter().is_some(),
                _ => true,
            };
            if !has {
                continue;
            }
            let places = if key.is_default_action || !key.r#match.is_empty() {
                0
            } else {
                self.control.table_places(table.name())?
            };
            let of_table = v1::TableEntry { table_id: table.id(), ..key.clone() };
            let filter = match filter {
                Kind::DirectCounterEntry(entry) => Kind::DirectCounterEntry(v1::DirectCounterEntry {
                    table_entry: Some(of_table),
                    ..entry.clone()
                }),
                Kind::DirectMeterEntry(entry) => Kind::DirectMeterEntry(v1::DirectMeterEntry {
                    table_entry: Some(of_table),
                    ..entry.clone()
                }),
                _ => Kind::TableEntry(of_table),
            };
            pieces.push(Piece { filter, cells: (places > 0).then_some(0..places) });
        }
        Ok(pieces)
    }

    pub(super) fn read_table(
        &self,
        filter: &v1::TableEntry,
        places: Option<Range<u64>>,
    ) -> Result<Vec<Kind>> {
        let table = self.index.table(filter.table_id)?;
        if filter.is_default_action {
            return Ok(self.default_entry(table, filter)?.map(Kind::TableEntry).into_iter().collect());
        }
        let rows = self.rows(table, filter, places)?;
        rows.iter().map(|row| Ok(Kind::TableEntry(entry_of(self, table, row, filter)?))).collect()
    }

    pub(super) fn read_direct_counters(
        &self,
        filter: &v1::DirectCounterEntry,
        places: Option<Range<u64>>,
    ) -> Result<Vec<Kind>> {
        let owners = self.owners(filter.table_entry.as_ref(), places)?.into_iter();
        let counter = |(table_entry, direct): (_, DirectResources)| {
            Kind::DirectCounterEntry(v1::DirectCounterEntry {
                table_entry: Some(table_entry),
                data: direct.counter.map(arrays::value_out),
            })
        };
        Ok(owners.map(counter).collect())
    }

    pub(super) fn read_direct_meters(
        &self,
        filter: &v1::DirectMeterEntry,
        places: Option<Range<u64>>,
    ) -> Result<Vec<Kind>> {
        let owners = self.owners(filter.table_entry.as_ref(), places)?.into_iter();
        let meter = |(table_entry, direct): (_, DirectResources)| {
            Kind::DirectMeterEntry(v1::DirectMeterEntry {
                table_entry: Some(table_entry),
                config: direct.meter.map(meters::config_out),
                counter_data: filter.counter_data.and(direct.colors).map(meters::colors_out),
            })
        };
        Ok(owners.map(meter).collect())
    }

    /// One table, or all.
    fn tables(&self, filter: &v1::TableEntry) -> Result<Vec<TableRef<'_>>> {
        Ok(match filter.table_id {
            0 => self.index.tables().collect(),
            id => vec![self.index.table(id)?],
        })
    }

    /// Whose direct resources a filter asks for: one entry's, which has to be there, or those of
    /// all but the default entry.
    fn owners(
        &self,
        filter: Option<&v1::TableEntry>,
        places: Option<Range<u64>>,
    ) -> Result<Vec<(v1::TableEntry, DirectResources)>> {
        let Some(filter) = filter else { return Ok(Vec::new()) };
        let table = self.index.table(filter.table_id)?;
        let bare = v1::TableEntry::default();
        if filter.is_default_action {
            let direct = self.control.direct(table.name(), Owner::Default)?;
            return Ok(self.default_entry(table, &bare)?.map(|entry| (entry, direct)).into_iter().collect());
        }
        let rows = self.rows(table, filter, places)?;
        if rows.is_empty() && !filter.r#match.is_empty() {
            return Err(Refusal::new(Code::NotFound, format!("table {} has no such entry", table.name())));
        }
        rows.iter().map(|row| Ok((entry_of(self, table, row, &bare)?, row.direct))).collect()
    }

    /// The entries that a checked filter takes: what it leaves empty, it leaves open.
    fn rows(
        &self,
        table: TableRef<'_>,
        filter: &v1::TableEntry,
        places: Option<Range<u64>>,
    ) -> Result<Vec<TableRow>> {
        let name = table.name();
        let open = filter.r#match.is_empty() || filter.priority == 0 && table.needs_priority();
        let mut rows = if open {
            let mut rows = self.control.table_rows(name, places.unwrap_or(0..u64::MAX))?;
            rows.retain(|row| {
                (filter.priority == 0 || row.entry.priority == filter.priority)
                    && (filter.r#match.is_empty() || field_matches(table, row) == filter.r#match)
            });
            rows
        } else {
            match self.control.table_entry(name, &key_of(table, filter)?, filter.priority) {
                Ok(row) => vec![row],
                Err(ControlError { code: crate::engine::Code::NotFound, .. }) => Vec::new(),
                Err(error) => return Err(error.into()),
            }
        };
        let notes = Notes::of(filter);
        if notes != Notes::default() {
            rows.retain(|row| Notes::unpack(&row.entry.metadata).pass(&notes));
        }
        if let Some(action) = &filter.action {
            let Some(ActionType::Action(action)) = &action.r#type else {
                return Err(Refusal::invalid(format!(
                    "read of table {name}: entries are filtered by action only, not by member, group or action set"
                )));
            };
            let wanted =
                table.action(action.action_id).map_err(|error| Refusal::invalid(error.to_string()))?;
            rows.retain(
                |row| matches!(&row.entry.action, ActionSpec::Direct(call) if call.action == wanted.name()),
            );
        }
        Ok(rows)
    }

    fn default_entry(&self, table: TableRef<'_>, filter: &v1::TableEntry) -> Result<Option<v1::TableEntry>> {
        let notes = self.ledger.defaults.get(table.name()).map(|packed| Notes::unpack(packed));
        let notes = notes.unwrap_or_default();
        if !notes.pass(&Notes::of(filter)) {
            return Ok(None);
        }
        let Some(action) = self.control.default_action(table.name())? else { return Ok(None) };
        let profile = table.implementation().map(Named::name);
        let mut entry = v1::TableEntry {
            table_id: table.id(),
            action: Some(self.table_action(profile, &action)?),
            is_default_action: true,
            is_const: table.table.const_default_action_id != 0,
            ..v1::TableEntry::default()
        };
        notes.write_to(&mut entry);
        write_direct(self.control.direct(table.name(), Owner::Default)?, filter, &mut entry);
        Ok(Some(entry))
    }
}

/// A row as P4Runtime has it, with those direct resources that `filter` has.
pub(crate) fn entry_of(
    target: &Target<'_>,
    table: TableRef<'_>,
    row: &TableRow,
    filter: &v1::TableEntry,
) -> Result<v1::TableEntry> {
    let profile = table.implementation().map(Named::name);
    let mut entry = v1::TableEntry {
        table_id: table.id(),
        r#match: field_matches(table, row),
        action: Some(target.table_action(profile, &row.entry.action)?),
        priority: row.entry.priority,
        is_const: row.is_const,
        idle_timeout_ns: row.idle_timeout_ns as i64,
        ..v1::TableEntry::default()
    };
    if filter.time_since_last_hit.is_some() && target.control.table(table.name())?.has_idle_timeout {
        let elapsed_ns = target.now_ns.saturating_sub(row.last_hit_ns) as i64;
        entry.time_since_last_hit = Some(v1::table_entry::IdleTimeout { elapsed_ns });
    }
    Notes::unpack(&row.entry.metadata).write_to(&mut entry);
    write_direct(row.direct, filter, &mut entry);
    Ok(entry)
}

/// Those direct resources that `filter` has.
fn write_direct(direct: DirectResources, filter: &v1::TableEntry, entry: &mut v1::TableEntry) {
    entry.counter_data = filter.counter_data.and(direct.counter).map(arrays::value_out);
    entry.meter_config = filter.meter_config.and(direct.meter).map(meters::config_out);
    entry.meter_counter_data = filter.meter_counter_data.and(direct.colors).map(meters::colors_out);
}

/// An entry's key in canonical form, by field id.
fn field_matches(table: TableRef<'_>, row: &TableRow) -> Vec<v1::FieldMatch> {
    let fields = table.table.match_fields.iter().zip(&row.entry.matches);
    let mut matches: Vec<_> = fields
        .filter_map(|(field, value)| {
            field_match(field.id, field.kind(), field.bitwidth.unsigned_abs(), value)
        })
        .collect();
    matches.sort_by_key(|field| field.field_id);
    matches
}

/// `None` for "don't care", which P4Runtime leaves out.
fn field_match(field_id: u32, kind: MatchType, width: u32, value: &MatchValue) -> Option<v1::FieldMatch> {
    use trimwire_p4runtime::bytes;
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
        (MatchValue::Range { low, high }, _)
            if zero(&low) && bytes::shortest(&high) == bytes::shortest(&bytes::prefix_mask(width, width)) =>
        {
            return None;
        }
        (MatchValue::Range { low, high }, _) => FieldMatchType::Range(Range { low, high }),
    };
    Some(v1::FieldMatch { field_id, field_match_type: Some(of) })
}
