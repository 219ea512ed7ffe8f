// SPDX-License-Identifier: Apache-2.0
//! RECONCILE_AND_COMMIT: what was written for one program, written again for another (P4Runtime,
//! "SetForwardingPipelineConfig RPC").
//!
//! Objects are the same when their names are. What a controller wrote has to find its place, or
//! nothing is done; counters and registers, which packets write, go along where there is a place of
//! the same shape.

use super::ledger::Ledger;
use super::refusal::{Refusal, Result};
use crate::engine::Control;
use crate::engine::entity::{ActionCall, ActionInfo, ActionSpec, DirectResources, Owner, TableInfo};
use std::collections::BTreeMap;
use trimwire_p4runtime::p4info::Index;

/// Writes the state of `from` into `to`, a program that has just been loaded.
pub(super) fn carry_over(
    from: &Control,
    ledger: &Ledger,
    to: &mut Control,
    index: &Index,
    now_ns: u64,
) -> Result<Ledger> {
    let actions = Actions::new(from, to);
    carry_profiles(from, to, &actions)?;
    let tables: Vec<TableInfo> = from.tables().cloned().collect();
    for table in &tables {
        carry_table(table, from, to, ledger, &actions, now_ns)?;
    }
    for (name, _) in from.meters() {
        carry_meter(name, from, to)?;
    }
    for (id, replicas) in from.multicast_groups() {
        to.multicast_insert(id, &replicas)?;
    }
    for (id, replicas) in from.clone_sessions() {
        to.clone_session_insert(id, &replicas)?;
        to.set_clone_options(id, from.clone_options(id))?;
    }
    for set in from.value_sets() {
        let members = from.value_set(&set.name)?;
        if members.is_empty() {
            continue;
        }
        let same =
            to.value_sets().into_iter().any(|other| other.name == set.name && other.widths == set.widths);
        if !same {
            return Err(lost(format!("value set {} of {} members", set.name, members.len())));
        }
        to.set_value_set(&set.name, &members)?;
    }
    for name in ledger.digests.keys() {
        index.digest(name.as_str()).map_err(|_| lost(format!("digest {name}, which is on")))?;
    }
    carry_statistics(from, to)?;
    Ok(ledger.clone())
}

fn lost(what: impl std::fmt::Display) -> Refusal {
    Refusal::invalid(format!("the new program has no place for {what}; delete it, or use VERIFY_AND_COMMIT"))
}

/// The actions of both programs, by name.
struct Actions {
    from: BTreeMap<String, ActionInfo>,
    to: BTreeMap<String, ActionInfo>,
}

impl Actions {
    fn new(from: &Control, to: &Control) -> Self {
        let all = |control: &Control| {
            let actions = control.tables().flat_map(|table| table.actions.clone());
            actions.map(|action| (action.name.clone(), action)).collect()
        };
        Self { from: all(from), to: all(to) }
    }

    fn same(&self, call: &ActionCall, owner: &str) -> Result<()> {
        if self.to.get(&call.action).is_some_and(|action| self.from.get(&call.action) == Some(action)) {
            return Ok(());
        }
        Err(lost(format!("{owner}: action {} is another one, or gone", call.action)))
    }
}

fn carry_profiles(from: &Control, to: &mut Control, actions: &Actions) -> Result<()> {
    let names: Vec<(String, bool)> =
        from.profiles().map(|(name, selector, _)| (name.to_owned(), selector)).collect();
    for (name, selector) in names {
        let members = from.members(&name)?;
        let groups = if selector { from.groups(&name)? } else { Vec::new() };
        if members.is_empty() && groups.is_empty() {
            continue;
        }
        if !to.profiles().any(|(other, other_selector, _)| other == name && other_selector == selector) {
            return Err(lost(format!("action profile {name} of {} members", members.len())));
        }
        for member in &members {
            actions.same(&member.call, &format!("member {} of action profile {name}", member.id))?;
            to.member_insert(&name, member.id, &member.call)?;
        }
        for group in &groups {
            to.group_insert(&name, group)?;
            to.watch_group(&name, group.id, &from.group_watches(&name, group.id)?)?;
        }
    }
    Ok(())
}

fn carry_table(
    table: &TableInfo,
    from: &Control,
    to: &mut Control,
    ledger: &Ledger,
    actions: &Actions,
    now_ns: u64,
) -> Result<()> {
    let name = &table.name;
    let mut rows = from.table_entries(name)?;
    rows.retain(|row| !row.is_const);
    let default = if ledger.defaults.contains_key(name) { from.default_action(name)? } else { None };
    let place = to.table(name).ok().filter(|other| {
        other.keys == table.keys
            && other.action_profile == table.action_profile
            && other.has_idle_timeout == table.has_idle_timeout
    });
    let place = place.cloned();
    let Some(place) = place else {
        return match (rows.len(), default) {
            (0, None) => Ok(()),
            (count, _) => Err(lost(format!(
                "table {name} of {count} entries: its key or kind is another, or it is gone"
            ))),
        };
    };
    // Entries that the program starts with and the controller may have deleted.
    for row in to.table_entries(name)?.into_iter().filter(|row| !row.is_const) {
        to.table_delete(name, &row.entry.matches, row.entry.priority)?;
    }
    for row in rows {
        let entry = &row.entry;
        if let ActionSpec::Direct(call) = &entry.action {
            actions.same(call, &format!("an entry of table {name}"))?;
        }
        to.table_insert(name, entry).map_err(|error| {
            Refusal::invalid(format!("an entry of table {name} cannot be kept: {}", error.message))
        })?;
        let owner = Owner::Entry { matches: &entry.matches, priority: entry.priority };
        carry_direct(&place, owner, row.direct, to)?;
        if place.has_idle_timeout {
            to.set_idle_timeout(name, &entry.matches, entry.priority, row.idle_timeout_ns, now_ns)?;
        }
    }
    if let Some(action) = default {
        if let ActionSpec::Direct(call) = &action {
            actions.same(call, &format!("the default entry of table {name}"))?;
        }
        to.set_default_action(name, Some(&action))?;
    }
    carry_direct(&place, Owner::Default, from.direct(name, Owner::Default)?, to)
}

fn carry_direct(
    place: &TableInfo,
    owner: Owner<'_>,
    direct: DirectResources,
    to: &mut Control,
) -> Result<()> {
    if let Some(meter) = direct.meter {
        to.set_direct_meter(&place.name, owner, Some(meter))?;
    }
    if let Some(counter) = direct.counter.filter(|_| place.has_counter) {
        to.set_direct_counter(&place.name, owner, counter)?;
    }
    Ok(())
}

fn carry_meter(name: &str, from: &Control, to: &mut Control) -> Result<()> {
    let size = from.meters().find(|(known, _)| *known == name).map_or(0, |(_, size)| size as u64);
    for cell in 0..size {
        if let Some(config) = from.meter(name, cell)? {
            to.set_meter(name, cell, Some(config))
                .map_err(|_| lost(format!("cell {cell} of meter {name}")))?;
        }
    }
    Ok(())
}

fn carry_statistics(from: &Control, to: &mut Control) -> Result<()> {
    for (name, size) in from.counters() {
        let place = to.counters().find(|(other, _)| *other == name).map_or(0, |(_, size)| size);
        for cell in 0..size.min(place) as u64 {
            to.set_counter(name, cell, from.counter(name, cell)?)?;
        }
    }
    for (name, size, width) in from.registers() {
        let place = to.registers().find(|(other, _, other_width)| *other == name && *other_width == width);
        let place = place.map_or(0, |(_, size, _)| size);
        for cell in 0..size.min(place) as u64 {
            to.set_register(name, cell, &from.register(name, cell)?)?;
        }
    }
    Ok(())
}
