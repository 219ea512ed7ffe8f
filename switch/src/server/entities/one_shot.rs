// SPDX-License-Identifier: Apache-2.0
//! Action sets (P4Runtime, "One Shot Action Selector Programming"): the server makes the members
//! and the group.

use super::super::ledger::{Element, OneShot};
use super::actions::{action_of, call_of};
use super::profiles::{check_shares, watch_number, watch_port};
use super::target::{Refusal, Result, Target};
use crate::engine::entity::{ActionSpec, Group, GroupMember};
use std::ops::Range;
use tonic::Code;
use trimwire_p4runtime::p4info::{Named, TableRef};
use trimwire_p4runtime::v1;
use trimwire_p4runtime::v1::action_profile_action::WatchKind;
use trimwire_p4runtime::v1::action_profile_action_set::ActionSelectionMode;
use trimwire_p4runtime::v1::table_action::Type as ActionType;

impl Target<'_> {
    /// Makes members and a group for an action set, and gives the group's id. Nothing stays of one
    /// that is refused.
    pub(super) fn make_one_shot(
        &mut self,
        table: TableRef<'_>,
        set: &v1::ActionProfileActionSet,
    ) -> Result<u32> {
        let place = format!("action set of table {}", table.name());
        let Some(profile) = table.implementation().map(Named::name) else {
            return Err(Refusal::invalid(format!("{place}: the table has no action selector")));
        };
        if set.group_action.is_some() {
            return Err(Refusal::unsupported("group actions of action sets"));
        }
        if set.action_selection_mode() == ActionSelectionMode::Random {
            return Err(Refusal::unsupported("random selection: v1model's selectors choose by hash"));
        }
        check_shares(set.action_profile_actions.iter().map(|action| action.weight), &place)?;
        if let Some(selector) = self.ledger.selector(profile).filter(|selector| selector.manual > 0) {
            return Err(Refusal::invalid(format!(
                "{place}: action profile {profile} is programmed with members and groups, of which {} are there: it takes no \
                 one-shot action sets beside them",
                selector.manual
            )));
        }
        let mut made =
            OneShot { mode: set.action_selection_mode, semantics: set.size_semantics, ..OneShot::default() };
        let group = self.ledger.ids(profile).1.checked_add(1);
        let group = group.ok_or_else(|| exhausted(profile))?;
        if let Err(refusal) = self.fill(profile, group, set, &mut made, &place) {
            // Members that no group holds: they go.
            self.remove_members(profile, &made)?;
            return Err(refusal);
        }
        self.ledger.set_ids(profile, self.ledger.ids(profile).0, group);
        self.ledger.set_one_shot(profile, group, Some(made));
        Ok(group)
    }

    fn fill(
        &mut self,
        profile: &str,
        group: u32,
        set: &v1::ActionProfileActionSet,
        made: &mut OneShot,
        place: &str,
    ) -> Result<()> {
        let mut watches = Vec::new();
        for action in &set.action_profile_actions {
            #[expect(deprecated, reason = "still sent by clients written for P4Runtime before 1.4")]
            let port = match &action.watch_kind {
                Some(WatchKind::WatchPort(port)) => watch_port(port, place)?,
                Some(WatchKind::Watch(number)) => watch_number(*number, place)?,
                None => None,
            };
            let call = call_of(self.index, action.action.as_ref())?;
            let (mut members, mut outcome) = (Vec::new(), Ok(()));
            for _ in 0..action.weight.max(0) {
                let (member, group) = self.ledger.ids(profile);
                let next = member.checked_add(1);
                let id = next.ok_or_else(|| exhausted(profile))?;
                outcome = self.control.member_insert(profile, id, &call);
                if outcome.is_err() {
                    break;
                }
                self.ledger.set_ids(profile, id, group);
                members.push(id);
                watches.extend(port.map(|port| (id, port)));
            }
            made.elements.push(Element { members, watch: action.watch_kind.clone() });
            outcome?;
        }
        let ids = made.elements.iter().flat_map(|element| &element.members);
        let members = ids.map(|id| GroupMember { id: *id, weight: 1 }).collect();
        self.control.group_insert(profile, &Group { id: group, max_size: 0, members })?;
        Ok(self.control.watch_group(profile, group, &watches)?)
    }

    /// Removes what was made for an action set, once no entry names it.
    pub(super) fn drop_one_shot(&mut self, profile: &str, group: u32) -> Result<()> {
        let Some(one_shot) = self.ledger.selector(profile).and_then(|s| s.one_shots.get(&group)).cloned()
        else {
            return Ok(());
        };
        self.ledger.set_one_shot(profile, group, None);
        self.control.group_delete(profile, group)?;
        self.remove_members(profile, &one_shot)
    }

    fn remove_members(&mut self, profile: &str, one_shot: &OneShot) -> Result<()> {
        for id in one_shot.elements.iter().flat_map(|element| &element.members) {
            self.control.member_delete(profile, *id)?;
        }
        Ok(())
    }

    /// Actions in the action sets of the entries at these places.
    pub(super) fn one_shots_of(&self, filter: &v1::TableEntry, places: Range<u64>) -> Result<usize> {
        let table = self.index.table(filter.table_id)?;
        let profile = table.implementation().and_then(|profile| self.ledger.selectors.get(profile.name()));
        let Some(selector) = profile.filter(|selector| !selector.one_shots.is_empty()) else { return Ok(0) };
        let rows = self.control.table_rows(table.name(), places)?;
        let actions = rows.iter().map(|row| match row.entry.action {
            ActionSpec::Group(id) => selector.one_shots.get(&id).map_or(0, |of| of.elements.len()),
            _ => 0,
        });
        Ok(actions.sum())
    }

    /// The action set as it was written, if the group was made for one.
    pub(super) fn action_set(&self, profile: &str, group: u32) -> Option<Result<v1::ActionProfileActionSet>> {
        let one_shot = self.ledger.selectors.get(profile)?.one_shots.get(&group)?;
        Some(self.written(profile, one_shot))
    }

    fn written(&self, profile: &str, one_shot: &OneShot) -> Result<v1::ActionProfileActionSet> {
        let mut actions = Vec::with_capacity(one_shot.elements.len());
        for Element { members, watch } in &one_shot.elements {
            let call = members.first().map(|first| self.control.member(profile, *first)).transpose()?;
            actions.push(v1::ActionProfileAction {
                action: call.map(|member| action_of(self.index, &member.call)).transpose()?,
                weight: members.len() as i32,
                watch_kind: watch.clone(),
            });
        }
        Ok(v1::ActionProfileActionSet {
            action_profile_actions: actions,
            action_selection_mode: one_shot.mode,
            size_semantics: one_shot.semantics,
            group_action: None,
        })
    }
}

/// Shares of weight in an entry's action set.
pub(super) fn shares_in(entry: &v1::TableEntry) -> usize {
    let action = entry.action.as_ref().and_then(|action| action.r#type.as_ref());
    let Some(ActionType::ActionProfileActionSet(set)) = action else { return 0 };
    set.action_profile_actions.iter().map(|action| action.weight.max(0) as usize).sum()
}

fn exhausted(profile: &str) -> Refusal {
    Refusal::new(
        Code::ResourceExhausted,
        format!("action profile {profile}: all ids for one-shots have been used"),
    )
}
