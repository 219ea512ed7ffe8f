// SPDX-License-Identifier: Apache-2.0
//! Members and groups of action profiles and selectors.

use std::collections::BTreeSet;
use std::ops::Range;

use super::super::entity::{ActionCall, Group, Member};
use super::super::error::{Code, ControlError};
use super::super::table::call::Call;
use super::super::table::compile::describe_call;
use super::{Control, Result, named};

impl Control {
    /// Names of the action profiles, whether they are selectors, and their sizes.
    pub fn profiles(&self) -> impl Iterator<Item = (&str, bool, usize)> {
        self.profiles.iter().map(|profile| (profile.name.as_str(), profile.selector.is_some(), profile.size))
    }

    pub(super) fn profile_index(&self, profile: &str) -> Result<usize> {
        named(self.profiles.iter(), "action profile", profile, |profile| &profile.name)
    }

    fn checked_member(&self, profile: usize, call: &ActionCall) -> Result<Call> {
        let profile = &self.profiles[profile];
        self.checked_call(&profile.actions, &profile.name, call)
    }

    /// Adds a member to an action profile.
    pub fn member_insert(&mut self, profile: &str, id: u32, call: &ActionCall) -> Result<()> {
        let index = self.profile_index(profile)?;
        let call = self.checked_member(index, call)?;
        self.note_profile(index);
        let state = &self.profiles[index];
        if state.member_place(id).is_some() {
            return Err(ControlError::new(
                Code::AlreadyExists,
                format!("`{profile}` has a member {id} already"),
            ));
        }
        if state.member_count() >= state.size {
            return Err(full(profile, state.size, "members"));
        }
        self.check_room(1)?;
        self.profiles[index].add_member(id, call);
        Ok(())
    }

    /// Changes a member's action.
    pub fn member_modify(&mut self, profile: &str, id: u32, call: &ActionCall) -> Result<()> {
        let index = self.profile_index(profile)?;
        let call = self.checked_member(index, call)?;
        self.note_profile(index);
        let state = &mut self.profiles[index];
        let place = state.member_place(id).ok_or_else(|| no_member(profile, id))?;
        if let Some(member) = state.member_mut(place) {
            member.call = call;
        }
        Ok(())
    }

    /// Removes a member that no entry and no group uses.
    pub fn member_delete(&mut self, profile: &str, id: u32) -> Result<()> {
        let index = self.profile_index(profile)?;
        self.note_profile(index);
        let state = &mut self.profiles[index];
        let place = state.member_place(id).ok_or_else(|| no_member(profile, id))?;
        let in_use = |by: String| {
            ControlError::new(Code::FailedPrecondition, format!("member {id} of `{profile}` is used by {by}"))
        };
        let entries = state.member(place).map_or(0, |member| member.entries);
        if entries > 0 {
            return Err(in_use(format!("{entries} table entries")));
        }
        if let Some(group) = state.group_of(id) {
            return Err(in_use(format!("group {group}")));
        }
        state.remove_member(id);
        Ok(())
    }

    /// One member.
    pub fn member(&self, profile: &str, id: u32) -> Result<Member> {
        let state = &self.profiles[self.profile_index(profile)?];
        let member = state.member_place(id).and_then(|place| state.member(place));
        let member = member.ok_or_else(|| no_member(profile, id))?;
        Ok(Member { id, call: describe_call(&member.call, &self.actions) })
    }

    /// Every member, by id.
    pub fn members(&self, profile: &str) -> Result<Vec<Member>> {
        let profile = &self.profiles[self.profile_index(profile)?];
        let member = |id, call: &Call| Member { id, call: describe_call(call, &self.actions) };
        Ok(profile.members().map(|state| member(state.id, &state.call)).collect())
    }

    /// Places that a profile has so far for members and for groups, with one there or without.
    pub(crate) fn profile_places(&self, profile: &str) -> Result<(u64, u64)> {
        let (members, groups) = self.profiles[self.profile_index(profile)?].places();
        Ok((members as u64, groups as u64))
    }

    /// The members at these places.
    pub(crate) fn members_at(&self, profile: &str, places: Range<u64>) -> Result<Vec<Member>> {
        let profile = &self.profiles[self.profile_index(profile)?];
        let last = places.end.min(profile.places().0 as u64);
        let states = (places.start..last).filter_map(|place| profile.member(place as u32));
        let member = |id, call: &Call| Member { id, call: describe_call(call, &self.actions) };
        Ok(states.map(|state| member(state.id, &state.call)).collect())
    }

    /// Adds a group to an action selector.
    pub fn group_insert(&mut self, profile: &str, group: &Group) -> Result<()> {
        let index = self.profile_index(profile)?;
        if self.profiles[index].group_place(group.id).is_some() {
            let id = group.id;
            return Err(ControlError::new(
                Code::AlreadyExists,
                format!("`{profile}` has a group {id} already"),
            ));
        }
        self.check_group(index, group)?;
        self.check_room(1)?;
        self.note_profile(index);
        self.profiles[index].put_group(group.clone());
        Ok(())
    }

    /// Replaces a group's members.
    pub fn group_modify(&mut self, profile: &str, group: &Group) -> Result<()> {
        let index = self.profile_index(profile)?;
        let place = self.profiles[index].group_place(group.id);
        place.ok_or_else(|| no_group(profile, group.id))?;
        self.check_group(index, group)?;
        self.note_profile(index);
        self.profiles[index].put_group(group.clone());
        Ok(())
    }

    /// Removes a group that no entry uses.
    pub fn group_delete(&mut self, profile: &str, id: u32) -> Result<()> {
        let index = self.profile_index(profile)?;
        self.note_profile(index);
        let state = &mut self.profiles[index];
        let place = state.group_place(id).ok_or_else(|| no_group(profile, id))?;
        let entries = state.group(place).map_or(0, |group| group.entries);
        if entries > 0 {
            return Err(ControlError::new(
                Code::FailedPrecondition,
                format!("group {id} of `{profile}` is used by {entries} table entries"),
            ));
        }
        state.remove_group(id);
        Ok(())
    }

    /// Every group, by id; its members by id.
    pub fn groups(&self, profile: &str) -> Result<Vec<Group>> {
        Ok(self.profiles[self.profile_index(profile)?].groups().map(|state| state.group.clone()).collect())
    }

    /// One group.
    pub(crate) fn group(&self, profile: &str, id: u32) -> Result<Group> {
        let state = &self.profiles[self.profile_index(profile)?];
        let group = state.group_place(id).and_then(|place| state.group(place));
        Ok(group.ok_or_else(|| no_group(profile, id))?.group.clone())
    }

    /// The groups at these places.
    pub(crate) fn groups_at(&self, profile: &str, places: Range<u64>) -> Result<Vec<Group>> {
        let profile = &self.profiles[self.profile_index(profile)?];
        let last = places.end.min(profile.places().1 as u64);
        let states = (places.start..last).filter_map(|place| profile.group(place as u32));
        Ok(states.map(|state| state.group.clone()).collect())
    }

    /// Members in the groups at these places, each as often as groups have it.
    pub(crate) fn group_members(&self, profile: &str, places: Range<u64>) -> Result<usize> {
        let profile = &self.profiles[self.profile_index(profile)?];
        let last = places.end.min(profile.places().1 as u64);
        let states = (places.start..last).filter_map(|place| profile.group(place as u32));
        Ok(states.map(|state| state.group.members.len()).sum())
    }

    fn check_group(&self, profile: usize, group: &Group) -> Result<()> {
        let profile = &self.profiles[profile];
        let (name, id) = (&profile.name, group.id);
        if profile.selector.is_none() {
            return Err(ControlError::invalid(format!(
                "`{name}` is not an action selector: it has no groups"
            )));
        }
        let mut seen = BTreeSet::new();
        let mut shares = 0;
        for member in &group.members {
            if member.weight == 0 {
                return Err(ControlError::invalid(format!("group {id}: member {} has weight 0", member.id)));
            }
            if !seen.insert(member.id) {
                return Err(ControlError::invalid(format!(
                    "group {id} has member {} twice: use its weight instead",
                    member.id
                )));
            }
            profile.member_place(member.id).ok_or_else(|| no_member(name, member.id))?;
            shares += u64::from(member.weight);
        }
        if group.max_size > 0 && shares > u64::from(group.max_size) {
            return Err(ControlError::new(
                Code::ResourceExhausted,
                format!("group {id}: weights add up to {shares}, its maximum is {}", group.max_size),
            ));
        }
        if shares + profile.shares(Some(id)) > profile.size as u64 {
            return Err(full(name, profile.size, "shares of weight"));
        }
        Ok(())
    }
}

fn no_member(profile: &str, id: u32) -> ControlError {
    ControlError::not_found(format!("`{profile}` has no member {id}"))
}

pub(super) fn no_group(profile: &str, id: u32) -> ControlError {
    ControlError::not_found(format!("`{profile}` has no group {id}"))
}

fn full(profile: &str, size: usize, what: &str) -> ControlError {
    ControlError::new(Code::ResourceExhausted, format!("`{profile}` is full: it holds {size} {what}"))
}
