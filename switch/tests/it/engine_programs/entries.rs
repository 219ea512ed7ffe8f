// SPDX-License-Identifier: Apache-2.0
//! Random table entries for any program, from what its P4Info says about its tables.

use trimwire_p4runtime::config::match_field::{Match, MatchType};
use trimwire_p4runtime::config::{MatchField, action_ref::Scope};
use trimwire_p4runtime::p4info::{Index, TableRef};
use trimwire_switch::engine::entity::{ActionCall, ActionSpec, MatchValue, TableEntry, Value};

use crate::bmv2_support::Write;
use crate::bmv2_support::random::{Random, to_bytes};

fn masked(value: &[bool], mask: &[bool]) -> Value {
    to_bytes(&value.iter().zip(mask).map(|(value, mask)| value & mask).collect::<Vec<bool>>())
}

fn some_match(random: &mut Random, field: &MatchField) -> MatchValue {
    let width = field.bitwidth as usize;
    let value = random.number(width);
    let Some(Match::MatchType(kind)) = field.r#match else { panic!("{} has no match type", field.name) };
    match MatchType::try_from(kind).unwrap() {
        MatchType::Exact => MatchValue::Exact(to_bytes(&value)),
        MatchType::Lpm => {
            let length = match random.below(4) {
                0 => width,
                1 => width / 4,
                _ => random.below(width as u64 + 1) as usize,
            };
            let mask: Vec<bool> = (0..width).map(|bit| bit < length).collect();
            MatchValue::Lpm { value: masked(&value, &mask), prefix_len: length as u16 }
        }
        MatchType::Ternary => {
            let mask = match random.below(4) {
                0 => vec![false; width],
                1 => vec![true; width],
                _ => random.number(width),
            };
            MatchValue::Ternary { value: masked(&value, &mask), mask: to_bytes(&mask) }
        }
        MatchType::Range => {
            let other = random.number(width);
            MatchValue::Range { low: to_bytes((&value).min(&other)), high: to_bytes((&value).max(&other)) }
        }
        MatchType::Optional => MatchValue::Optional((random.below(3) > 0).then(|| to_bytes(&value))),
        MatchType::Unspecified => panic!("{} has no match type", field.name),
    }
}

/// A call of an action that entries of the table may name.
fn some_call(random: &mut Random, index: &Index, table: &TableRef<'_>) -> ActionCall {
    let actions: Vec<u32> = table
        .table
        .action_refs
        .iter()
        .filter(|action| action.scope() != Scope::DefaultOnly)
        .map(|action| action.id)
        .collect();
    let action = index.action(*random.pick(&actions)).unwrap();
    let params = action.action.params.iter().map(|param| to_bytes(&random.number(param.bitwidth as usize)));
    ActionCall { action: action.name().to_owned(), params: params.collect() }
}

/// `count` entries for every table; some of them will be duplicates. `spec` gives the action of
/// entries of tables with an action profile.
pub(crate) fn some_entries(
    random: &mut Random,
    index: &Index,
    count: usize,
    spec: impl Fn(&mut Random, &str) -> ActionSpec,
) -> Vec<Write> {
    let mut writes = Vec::new();
    for table in index.tables() {
        if table.table.is_const_table || table.table.match_fields.is_empty() {
            continue;
        }
        let has_priority = table.table.match_fields.iter().any(|field| {
            let Some(Match::MatchType(kind)) = field.r#match else { return false };
            matches!(
                MatchType::try_from(kind),
                Ok(MatchType::Ternary | MatchType::Range | MatchType::Optional)
            )
        });
        for number in 0..count {
            let matches = table.table.match_fields.iter().map(|field| some_match(random, field)).collect();
            let action = match table.table.implementation_id {
                0 => ActionSpec::Direct(some_call(random, index, &table)),
                _ => spec(random, table.name()),
            };
            // BMv2 leaves the order of entries of one priority open.
            let priority = if has_priority { 1 + number as i32 } else { 0 };
            let entry = TableEntry { matches, priority, action, metadata: Vec::new() };
            writes.push(Write::Entry(table.name().to_owned(), entry));
        }
    }
    writes
}
