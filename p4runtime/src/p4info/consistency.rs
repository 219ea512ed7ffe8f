// SPDX-License-Identifier: Apache-2.0
//! What [`Index::new`](super::Index::new) checks beyond unique ids and names.

use std::collections::{BTreeMap, BTreeSet};

use super::named::{IndexError, Named};
use crate::config::{MatchField, P4Info};

/// Widest field, bits. Masks of a field's width are made while entries are checked, so that hostile
/// P4Info could ask for a quarter of a GiB per entry. BMv2 and Tofino end at a few thousand bits.
const WIDEST: i32 = 1 << 16;

/// `ids` holds every object's id.
pub(super) fn check(p4info: &P4Info, ids: &BTreeMap<u32, String>) -> Result<(), IndexError> {
    let actions: BTreeSet<u32> = p4info.actions.iter().map(Named::id).collect();
    let profiles: BTreeSet<u32> = p4info.action_profiles.iter().map(Named::id).collect();
    let tables: BTreeSet<u32> = p4info.tables.iter().map(Named::id).collect();

    for table in &p4info.tables {
        match_fields(table, &table.match_fields)?;
        for reference in &table.action_refs {
            exists(table, "an action", reference.id, actions.contains(&reference.id))?;
        }
        for (target, id) in [
            ("a constant default action", table.const_default_action_id),
            (
                "an initial default action",
                table.initial_default_action.as_ref().map_or(0, |call| call.action_id),
            ),
        ] {
            exists(table, target, id, id == 0 || actions.contains(&id))?;
        }
        let id = table.implementation_id;
        exists(table, "an action profile", id, id == 0 || profiles.contains(&id))?;
        for id in &table.direct_resource_ids {
            exists(table, "a direct resource", *id, ids.contains_key(id))?;
        }
    }
    for set in &p4info.value_sets {
        match_fields(set, &set.r#match)?;
    }
    for action in &p4info.actions {
        elements(action, "parameter", action.params.iter().map(|p| (p.id, p.name.as_str(), p.bitwidth)))?;
    }
    for header in &p4info.controller_packet_metadata {
        elements(header, "field", header.metadata.iter().map(|m| (m.id, m.name.as_str(), m.bitwidth)))?;
    }
    for profile in &p4info.action_profiles {
        for id in &profile.table_ids {
            exists(profile, "a table", *id, tables.contains(id))?;
        }
    }
    for counter in &p4info.direct_counters {
        let id = counter.direct_table_id;
        exists(counter, "a table", id, tables.contains(&id))?;
    }
    for meter in &p4info.direct_meters {
        let id = meter.direct_table_id;
        exists(meter, "a table", id, tables.contains(&id))?;
    }
    Ok(())
}

fn exists<T: Named>(object: &T, target: &'static str, id: u32, found: bool) -> Result<(), IndexError> {
    if found {
        return Ok(());
    }
    Err(IndexError::Dangling { kind: T::KIND, name: object.name().to_owned(), target, id })
}

fn match_fields<T: Named>(object: &T, fields: &[MatchField]) -> Result<(), IndexError> {
    elements(object, "match field", fields.iter().map(|f| (f.id, f.name.as_str(), f.bitwidth)))
}

fn elements<'e, T: Named>(
    object: &T,
    what: &str,
    elements: impl Iterator<Item = (u32, &'e str, i32)>,
) -> Result<(), IndexError> {
    let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
    for (id, name, bitwidth) in elements {
        let reason = if id == 0 {
            format!("{what} {name:?} has no id")
        } else if bitwidth < 0 {
            format!("{what} {name:?} is {bitwidth} bits wide")
        } else if bitwidth > WIDEST {
            format!("{what} {name:?} is {bitwidth} bits wide; {WIDEST} is the most")
        } else if !ids.insert(id) {
            format!("{what} {name:?} has the id {id} of another")
        } else if !names.insert(name) {
            format!("two elements of kind {what} are named {name:?}")
        } else {
            continue;
        };
        return Err(IndexError::Element { kind: T::KIND, name: object.name().to_owned(), reason });
    }
    Ok(())
}
