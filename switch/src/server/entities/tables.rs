// SPDX-License-Identifier: Apache-2.0
//! Writing table entries (P4Runtime, "TableEntry").

use super::super::ledger::Notes;
use super::actions::call_of;
use super::keys::key_of;
use super::target::{Refusal, Result, Target};
use super::{arrays, meters};
use crate::engine::entity::{ActionSpec, DirectResources, MatchValue, Owner, TableEntry};
use trimwire_p4runtime::p4info::{Named as _, TableRef};
use trimwire_p4runtime::v1;
use trimwire_p4runtime::v1::table_action::Type as ActionType;
use trimwire_p4runtime::v1::update::Type;

/// Bytes of a controller's own that are kept with an entry.
const MOST_METADATA: usize = 1024;

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
        meters::supported(entry.meter_config.as_ref())?;
        let bytes = entry.metadata.len();
        if bytes > MOST_METADATA {
            return Err(Refusal::new(
                tonic::Code::ResourceExhausted,
                format!(
                    "table {}: {bytes} bytes of metadata; at most {MOST_METADATA} are kept",
                    table.name()
                ),
            ));
        }
        if entry.is_default_action {
            return self.write_default(table, entry);
        }
        let matches = key_of(table, entry)?;
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
        let owner = Owner::Entry { matches: &wanted.matches, priority: entry.priority };
        self.write_direct(table, owner, entry, &DirectResources::default())?;
        self.write_timeout(table, &wanted.matches, entry, None)
    }

    /// The whole new state of an entry, but for an action that is left out: that stays ("Action
    /// Specification").
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
            let owner = Owner::Entry { matches: &matches, priority: entry.priority };
            self.write_direct(table, owner, entry, &before.direct)?;
            return self.write_timeout(table, &matches, entry, Some(before.idle_timeout_ns));
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
        let owner = Owner::Entry { matches: &wanted.matches, priority: entry.priority };
        self.write_direct(table, owner, entry, &before.direct)?;
        self.write_timeout(table, &wanted.matches, entry, Some(before.idle_timeout_ns))
    }

    /// "Direct Resources": a meter that is left out goes back to its default, counters that are
    /// left out stay.
    fn write_direct(
        &mut self,
        table: TableRef<'_>,
        owner: Owner<'_>,
        entry: &v1::TableEntry,
        before: &DirectResources,
    ) -> Result<()> {
        let name = table.name();
        let meter = entry.meter_config.as_ref().map(meters::config_in);
        // The same configuration again must not fill the buckets.
        if table.direct_meter().is_some() && meter != before.meter {
            self.control.set_direct_meter(name, owner, meter)?;
        }
        if let Some(data) = &entry.counter_data {
            self.control.set_direct_counter(name, owner, arrays::value_in(data))?;
        }
        if entry.meter_counter_data.is_some() {
            self.control.clear_direct_colors(name, owner)?;
        }
        Ok(())
    }

    fn write_timeout(
        &mut self,
        table: TableRef<'_>,
        matches: &[MatchValue],
        entry: &v1::TableEntry,
        before_ns: Option<u64>,
    ) -> Result<()> {
        let timeout_ns = entry.idle_timeout_ns.max(0) as u64;
        if before_ns != Some(timeout_ns) && self.control.table(table.name())?.has_idle_timeout {
            self.control.set_idle_timeout(table.name(), matches, entry.priority, timeout_ns, self.now_ns)?;
        }
        Ok(())
    }

    /// "Default Entry".
    fn write_default(&mut self, table: TableRef<'_>, entry: &v1::TableEntry) -> Result<()> {
        let name = table.name();
        let before = self.control.direct(name, Owner::Default)?;
        let Some(action) = &entry.action else {
            let resources = entry.meter_config.is_some()
                || entry.counter_data.is_some()
                || entry.meter_counter_data.is_some();
            if resources {
                return Err(Refusal::invalid(format!(
                    "table {name}: without an action the default entry is reset, and takes neither counters nor a meter; \
                     DirectCounterEntry and DirectMeterEntry set those alone"
                )));
            }
            // Back to the program's own, with nothing noted, metered or counted.
            self.control.set_default_action(name, None)?;
            self.ledger.set_default(name, None);
            let counter_data = before.counter.map(|_| v1::CounterData::default());
            let meter_counter_data = before.colors.map(|_| v1::MeterCounterData::default());
            let reset = v1::TableEntry { counter_data, meter_counter_data, ..v1::TableEntry::default() };
            return self.write_direct(table, Owner::Default, &reset, &before);
        };
        let action = self.plan(table, action)?.action;
        self.control.set_default_action(name, Some(&action))?;
        self.ledger.set_default(name, Some(Notes::of(entry).pack()));
        self.write_direct(table, Owner::Default, entry, &before)
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
