// SPDX-License-Identifier: Apache-2.0
//! Table entries and default actions.

use std::ops::Range;

use super::super::entity::{ActionCall, ActionSpec, MatchValue, TableEntry, TableInfo, TableRow};
use super::super::error::{Code, ControlError};
use super::super::table::call::{Call, Target};
use super::super::table::compile::{compile_call, describe_call};
use super::super::table::key::CompiledKey;
use super::super::table::{Direct, Entry, Idle, Table};
use super::{Control, Result, named};

impl Control {
    /// Every table, in the program's order. Those that p4c made for statements outside tables are
    /// among them; they have no keys and their default action is constant.
    pub fn tables(&self) -> impl Iterator<Item = &TableInfo> {
        self.tables.iter().map(|table| &table.info)
    }

    /// A table by name.
    pub fn table(&self, table: &str) -> Result<&TableInfo> {
        Ok(&self.tables[self.table_index(table)?].info)
    }

    pub(super) fn table_index(&self, table: &str) -> Result<usize> {
        if let Some(index) = self.tables.iter().position(|other| other.info.name == table) {
            return Ok(index);
        }
        let writable = self.tables.iter().filter(|table| !table.info.keys.is_empty());
        named(writable, "table", table, |table| &table.info.name)
    }

    /// Adds an entry.
    pub fn table_insert(&mut self, table: &str, entry: &TableEntry) -> Result<()> {
        let index = self.table_index(table)?;
        let (key, matches, target) = self.checked_entry(index, entry)?;
        let state = &self.tables[index];
        if state.find(&key, entry.priority).is_some() {
            return Err(ControlError::new(
                Code::AlreadyExists,
                format!("table `{table}` has this entry already"),
            ));
        }
        if state.len() >= state.info.size {
            let size = state.info.size;
            return Err(ControlError::new(
                Code::ResourceExhausted,
                format!("table `{table}` is full: it holds {size} entries"),
            ));
        }
        self.check_room(1)?;
        self.count_use(index, &target, true);
        let place = self.tables[index].free_place();
        self.note_entry(index, place);
        self.tables[index].put(
            place,
            Entry {
                entry: TableEntry { matches, ..entry.clone() },
                key,
                target,
                direct: Direct::default(),
                is_const: false,
                idle: Idle::default(),
            },
        );
        Ok(())
    }

    /// Changes the action and metadata of the entry with the same matches and priority. Its counter
    /// goes on.
    pub fn table_modify(&mut self, table: &str, entry: &TableEntry) -> Result<()> {
        let index = self.table_index(table)?;
        let (key, _, target) = self.checked_entry(index, entry)?;
        let place = self.entry_place(index, &key, entry.priority)?;
        self.note_entry(index, place);
        self.count_use(index, &target, true);
        let found = self.tables[index].entries.get_mut(place as usize).and_then(Option::as_mut);
        if let Some(found) = found {
            found.entry.action = entry.action.clone();
            found.entry.metadata.clone_from(&entry.metadata);
            let before = std::mem::replace(&mut found.target, target);
            self.count_use(index, &before, false);
        }
        Ok(())
    }

    /// Removes an entry.
    pub fn table_delete(&mut self, table: &str, matches: &[MatchValue], priority: i32) -> Result<()> {
        let index = self.table_index(table)?;
        self.check_mutable(index)?;
        let key = self.checked_key(index, matches, priority)?.0;
        let place = self.entry_place(index, &key, priority)?;
        self.note_entry(index, place);
        if let Some(entry) = self.tables[index].remove(place) {
            self.count_use(index, &entry.target, false);
        }
        Ok(())
    }

    /// One entry.
    pub fn table_entry(&self, table: &str, matches: &[MatchValue], priority: i32) -> Result<TableRow> {
        let (index, place) = self.locate(table, matches, priority)?;
        self.row(index, place).ok_or_else(|| no_entry(table))
    }

    /// Every entry, in order of BMv2's handles: an entry takes the lowest one that is free.
    pub fn table_entries(&self, table: &str) -> Result<Vec<TableRow>> {
        self.table_rows(table, 0..u64::MAX)
    }

    /// The entries at some of the table's places.
    pub(crate) fn table_rows(&self, table: &str, places: Range<u64>) -> Result<Vec<TableRow>> {
        let index = self.table_index(table)?;
        let last = places.end.min(self.tables[index].entries.len() as u64);
        Ok((places.start..last).filter_map(|place| self.row(index, place as u32)).collect())
    }

    /// Places that a table has so far, with an entry or without.
    pub(crate) fn table_places(&self, table: &str) -> Result<u64> {
        Ok(self.tables[self.table_index(table)?].entries.len() as u64)
    }

    pub(super) fn row(&self, table: usize, place: u32) -> Option<TableRow> {
        let table = &self.tables[table];
        let entry = table.entries.get(place as usize)?.as_ref()?;
        Some(TableRow {
            entry: entry.entry.clone(),
            is_const: entry.is_const,
            direct: entry.direct.resources(&table.info),
            idle_timeout_ns: entry.idle.timeout_ns,
            last_hit_ns: entry.idle.last_hit_ns,
        })
    }

    /// The default action in force; `None` where a miss does nothing.
    pub fn default_action(&self, table: &str) -> Result<Option<ActionSpec>> {
        let table = &self.tables[self.table_index(table)?];
        let member = |place| self.profiles.get(table.profile? as usize)?.member(place);
        let group = |place| self.profiles.get(table.profile? as usize)?.group(place);
        Ok(match &table.default {
            None => None,
            Some(Target::Call(call)) => Some(ActionSpec::Direct(describe_call(call, &self.actions))),
            Some(Target::Member(place)) => member(*place).map(|member| ActionSpec::Member(member.id)),
            Some(Target::Group(place)) => group(*place).map(|group| ActionSpec::Group(group.group.id)),
        })
    }

    /// Sets the default action; `None` restores the program's own. A table with an action profile
    /// takes members, groups and direct calls alike.
    pub fn set_default_action(&mut self, table: &str, action: Option<&ActionSpec>) -> Result<()> {
        let index = self.table_index(table)?;
        let state = &self.tables[index];
        if state.default_is_const {
            return Err(ControlError::new(
                Code::PermissionDenied,
                format!("the default action of table `{table}` is constant"),
            ));
        }
        let target = match action {
            None => state.program_default.clone(),
            Some(ActionSpec::Direct(call)) => {
                Some(Target::Call(self.checked_call(&state.actions, table, call)?))
            }
            Some(other) => Some(self.checked_target(index, other)?),
        };
        self.note_default(index);
        if let Some(target) = &target {
            self.count_use(index, target, true);
        }
        if let Some(before) = std::mem::replace(&mut self.tables[index].default, target) {
            self.count_use(index, &before, false);
        }
        Ok(())
    }

    pub(super) fn locate(&self, table: &str, matches: &[MatchValue], priority: i32) -> Result<(usize, u32)> {
        let index = self.table_index(table)?;
        let key = self.checked_key(index, matches, priority)?.0;
        Ok((index, self.entry_place(index, &key, priority)?))
    }

    fn entry_place(&self, table: usize, key: &CompiledKey, priority: i32) -> Result<u32> {
        let table = &self.tables[table];
        table.find(key, priority).ok_or_else(|| no_entry(&table.info.name))
    }

    fn check_mutable(&self, table: usize) -> Result<()> {
        let info = &self.tables[table].info;
        if info.is_const {
            let message = format!("the entries of table `{}` are constant", info.name);
            return Err(ControlError::new(Code::PermissionDenied, message));
        }
        Ok(())
    }

    fn checked_key(
        &self,
        table: usize,
        matches: &[MatchValue],
        priority: i32,
    ) -> Result<(CompiledKey, Vec<MatchValue>)> {
        let table = &self.tables[table];
        let compiled = table.compile_key(matches)?;
        let name = &table.info.name;
        match (table.has_priority(), priority) {
            (true, ..=0) => Err(ControlError::invalid(format!(
                "table `{name}` has ternary or range keys: its entries need a priority above 0, not {priority}"
            ))),
            (false, ..=-1 | 1..) => Err(ControlError::invalid(format!(
                "table `{name}` has neither ternary nor range keys: its entries take no priority ({priority} given)"
            ))),
            _ => Ok(compiled),
        }
    }

    fn checked_entry(
        &self,
        table: usize,
        entry: &TableEntry,
    ) -> Result<(CompiledKey, Vec<MatchValue>, Target)> {
        self.check_mutable(table)?;
        let (key, matches) = self.checked_key(table, &entry.matches, entry.priority)?;
        Ok((key, matches, self.checked_target(table, &entry.action)?))
    }

    fn checked_target(&self, table: usize, action: &ActionSpec) -> Result<Target> {
        let Table { info, actions, profile, .. } = &*self.tables[table];
        let name = &info.name;
        let profile = profile.and_then(|profile| self.profiles.get(profile as usize));
        match (action, profile) {
            (ActionSpec::Direct(call), None) => Ok(Target::Call(self.checked_call(actions, name, call)?)),
            (ActionSpec::Direct(call), Some(profile)) => Err(ControlError::invalid(format!(
                "table `{name}` takes members or groups of `{}`, not the action `{}` itself",
                profile.name, call.action
            ))),
            (_, None) => Err(ControlError::invalid(format!(
                "table `{name}` has no action profile: its entries take an action"
            ))),
            (ActionSpec::Member(id), Some(profile)) => {
                let missing = || ControlError::not_found(format!("`{}` has no member {id}", profile.name));
                Ok(Target::Member(profile.member_place(*id).ok_or_else(missing)?))
            }
            (ActionSpec::Group(id), Some(profile)) => {
                let missing = || ControlError::not_found(format!("`{}` has no group {id}", profile.name));
                Ok(Target::Group(profile.group_place(*id).ok_or_else(missing)?))
            }
        }
    }

    /// A call of one of these actions, its arguments checked and packed.
    pub(super) fn checked_call(&self, actions: &[u32], owner: &str, call: &ActionCall) -> Result<Call> {
        let definition = |index: &u32| &self.actions[*index as usize];
        let Some(action) = actions.iter().copied().find(|index| definition(index).name == call.action) else {
            let mut known: Vec<&str> = actions.iter().map(|index| definition(index).name.as_str()).collect();
            known.dedup();
            return Err(ControlError::invalid(format!(
                "`{owner}` does not call `{}`; its actions are: {}",
                call.action,
                known.join(", ")
            )));
        };
        compile_call(action, definition(&action), &call.params)
    }

    /// Keeps count of the entries that name a member or group.
    fn count_use(&mut self, table: usize, target: &Target, added: bool) {
        let Some(index) = self.tables[table].profile else { return };
        self.note_profile(index as usize);
        let profile = &mut self.profiles[index as usize];
        let entries = match target {
            Target::Call(_) => None,
            Target::Member(place) => profile.member_mut(*place).map(|member| &mut member.entries),
            Target::Group(place) => profile.group_mut(*place).map(|group| &mut group.entries),
        };
        if let Some(entries) = entries {
            *entries = if added { *entries + 1 } else { entries.saturating_sub(1) };
        }
    }
}

pub(super) fn no_entry(table: &str) -> ControlError {
    ControlError::not_found(format!("table `{table}` has no such entry"))
}

pub(super) fn lacks(table: &str, what: &str) -> ControlError {
    ControlError::invalid(format!("the entries of table `{table}` have no {what}"))
}
