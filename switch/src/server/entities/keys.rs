// SPDX-License-Identifier: Apache-2.0
//! Keys of table entries, and the entries that direct resources belong to.

use super::target::{Refusal, Result};
use crate::engine::entity::{MatchValue, Owner, Value};
use trimwire_p4runtime::config::match_field::MatchType;
use trimwire_p4runtime::p4info::TableRef;
use trimwire_p4runtime::v1;
use trimwire_p4runtime::v1::field_match::FieldMatchType;

/// The entry that a direct resource belongs to.
pub(super) struct DirectKey {
    /// `None`: the default entry.
    matches: Option<Vec<MatchValue>>,
    priority: i32,
}

impl DirectKey {
    pub(super) fn of(table: TableRef<'_>, entry: &v1::TableEntry) -> Result<Self> {
        let matches = if entry.is_default_action { None } else { Some(key_of(table, entry)?) };
        Ok(Self { matches, priority: entry.priority })
    }

    pub(super) fn owner(&self) -> Owner<'_> {
        match &self.matches {
            Some(matches) => Owner::Entry { matches, priority: self.priority },
            None => Owner::Default,
        }
    }
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
