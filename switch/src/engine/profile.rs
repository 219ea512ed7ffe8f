// SPDX-License-Identifier: Apache-2.0
//! Action profiles and selectors.
//!
//! A selector hashes its fields and takes the member at `hash % size` of the group, where the group
//! is in order of BMv2's member handles: the lowest free handle when a member is made, and one more
//! per share of weight, made when a group first asks for it (as P4Runtime's front end to BMv2
//! does). The same controller writes thus give the same choice here and there. Members whose watch
//! port is down are left out, as if the group did not have them.

use std::collections::{BTreeMap, BTreeSet};

use super::calculation::{Calculation, Inputs, Scratch};
use super::entity::Group;
use super::table::call::Call;

#[derive(Clone, Debug)]
pub(super) struct MemberState {
    pub(super) id: u32,
    pub(super) call: Call,
    handles: Vec<u32>,
    /// Table entries that name it.
    pub(super) entries: usize,
    /// Groups that hold it, with its weight there, and how many give it each weight.
    groups: BTreeMap<u32, u32>,
    weights: BTreeMap<u32, u32>,
}

#[derive(Clone, Debug)]
pub(super) struct GroupState {
    pub(super) group: Group,
    /// Table entries that name it.
    pub(super) entries: usize,
    /// Places of the members, one per share, in order of handle.
    choices: Vec<u32>,
    /// Ports that members depend on, by member id.
    watches: BTreeMap<u32, u16>,
    /// The choices whose watch ports are up.
    active: Vec<u32>,
}

impl GroupState {
    fn shares(&self) -> u64 {
        self.group.members.iter().map(|member| u64::from(member.weight)).sum()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Profile {
    pub(super) name: String,
    pub(super) size: usize,
    pub(super) selector: Option<Calculation>,
    /// Actions that members may call: what the tables that use the profile allow.
    pub(super) actions: Vec<u32>,
    members: Places<MemberState>,
    groups: Places<GroupState>,
    free_handles: BTreeSet<u32>,
    next_handle: u32,
    /// Shares of all groups together.
    shares: u64,
    /// Places of the groups of which a member depends on a port.
    watching: BTreeMap<u16, BTreeSet<u32>>,
    /// Ports that are down.
    down: BTreeSet<u16>,
    /// What a batch has changed.
    before: Option<Box<Before>>,
}

/// Things at places that stay theirs, found by id; the first free place is the next one's.
#[derive(Clone, Debug)]
struct Places<T> {
    all: Vec<Option<T>>,
    by_id: BTreeMap<u32, u32>,
    free: BTreeSet<u32>,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self { all: Vec::new(), by_id: BTreeMap::new(), free: BTreeSet::new() }
    }
}

impl<T> Places<T> {
    fn get(&self, place: u32) -> Option<&T> {
        self.all.get(place as usize)?.as_ref()
    }

    fn get_mut(&mut self, place: u32) -> Option<&mut T> {
        self.all.get_mut(place as usize)?.as_mut()
    }

    fn next(&self) -> u32 {
        self.free.first().copied().unwrap_or(self.all.len() as u32)
    }

    fn put(&mut self, place: u32, id: u32, value: T) {
        while self.all.len() <= place as usize {
            self.free.insert(self.all.len() as u32);
            self.all.push(None);
        }
        self.free.remove(&place);
        self.by_id.insert(id, place);
        self.all[place as usize] = Some(value);
    }

    fn take(&mut self, place: u32, id: u32) -> Option<T> {
        let value = self.all.get_mut(place as usize)?.take()?;
        self.by_id.remove(&id);
        self.free.insert(place);
        Some(value)
    }
}

/// Places as they were before a batch first touched them, and handles: whether they were free.
#[derive(Clone, Debug, Default)]
struct Before {
    members: BTreeMap<u32, Option<MemberState>>,
    groups: BTreeMap<u32, Option<GroupState>>,
    handles: BTreeMap<u32, bool>,
    next_handle: u32,
}

impl Profile {
    pub(super) fn new(name: String, size: usize, selector: Option<Calculation>) -> Self {
        Self {
            name,
            size,
            selector,
            actions: Vec::new(),
            members: Places::default(),
            groups: Places::default(),
            free_handles: BTreeSet::new(),
            next_handle: 0,
            shares: 0,
            watching: BTreeMap::new(),
            down: BTreeSet::new(),
            before: None,
        }
    }

    pub(super) fn call(&self, place: u32) -> Option<&Call> {
        Some(&self.members.get(place)?.call)
    }

    /// `None` for an empty group, or one whose members are all down.
    pub(super) fn choose(&self, place: u32, inputs: &Inputs<'_>, scratch: &mut Scratch) -> Option<&Call> {
        let group = self.groups.get(place)?;
        let hash = self.selector.as_ref()?.compute(inputs, scratch) as u32 as usize;
        self.call(*group.active.get(hash.checked_rem(group.active.len())?)?)
    }

    pub(super) fn member_place(&self, id: u32) -> Option<u32> {
        self.members.by_id.get(&id).copied()
    }

    pub(super) fn group_place(&self, id: u32) -> Option<u32> {
        self.groups.by_id.get(&id).copied()
    }

    pub(super) fn member(&self, place: u32) -> Option<&MemberState> {
        self.members.get(place)
    }

    pub(super) fn member_mut(&mut self, place: u32) -> Option<&mut MemberState> {
        self.note_member(place);
        self.members.get_mut(place)
    }

    pub(super) fn group(&self, place: u32) -> Option<&GroupState> {
        self.groups.get(place)
    }

    pub(super) fn group_mut(&mut self, place: u32) -> Option<&mut GroupState> {
        self.note_group(place);
        self.groups.get_mut(place)
    }

    /// By id.
    pub(super) fn members(&self) -> impl Iterator<Item = &MemberState> {
        self.members.by_id.values().filter_map(|&place| self.member(place))
    }

    /// By id.
    pub(super) fn groups(&self) -> impl Iterator<Item = &GroupState> {
        self.groups.by_id.values().filter_map(|&place| self.group(place))
    }

    /// Places of members so far, and of groups; some may be free.
    pub(super) fn places(&self) -> (usize, usize) {
        (self.members.all.len(), self.groups.all.len())
    }

    pub(super) fn member_count(&self) -> usize {
        self.members.by_id.len()
    }

    pub(super) fn group_count(&self) -> usize {
        self.groups.by_id.len()
    }

    /// A group that holds the member.
    pub(super) fn group_of(&self, member: u32) -> Option<u32> {
        let state = self.member(self.member_place(member)?)?;
        state.groups.keys().next().copied()
    }

    /// Shares in use by all groups but `except`.
    pub(super) fn shares(&self, except: Option<u32>) -> u64 {
        let own = except.and_then(|id| self.group(self.group_place(id)?));
        self.shares - own.map_or(0, GroupState::shares)
    }

    fn take_handle(&mut self) -> u32 {
        let free = self.free_handles.pop_first();
        let handle = free.unwrap_or(self.next_handle);
        if free.is_none() {
            self.next_handle += 1;
        }
        if let Some(before) = &mut self.before {
            before.handles.entry(handle).or_insert(free.is_some());
        }
        handle
    }

    fn free_handle(&mut self, handle: u32) {
        if let Some(before) = &mut self.before {
            before.handles.entry(handle).or_insert(false);
        }
        self.free_handles.insert(handle);
    }

    pub(super) fn add_member(&mut self, id: u32, call: Call) {
        let place = self.members.next();
        self.note_member(place);
        let handles = vec![self.take_handle()];
        let (groups, weights) = (BTreeMap::new(), BTreeMap::new());
        self.members.put(place, id, MemberState { id, call, handles, entries: 0, groups, weights });
    }

    pub(super) fn remove_member(&mut self, id: u32) {
        let Some(place) = self.member_place(id) else { return };
        self.note_member(place);
        let handles = self.members.take(place, id).map(|member| member.handles);
        handles.into_iter().flatten().for_each(|handle| self.free_handle(handle));
    }

    /// Adds a group, or replaces the one of that id. Its members must exist.
    pub(super) fn put_group(&mut self, mut group: Group) {
        group.members.sort_by_key(|member| member.id);
        let known = self.group_place(group.id);
        let place = known.unwrap_or_else(|| self.groups.next());
        self.note_group(place);
        let (old, entries) = match self.groups.get(place) {
            Some(state) => (state.group.members.clone(), state.entries),
            None => (Vec::new(), 0),
        };
        self.forget_watches(place);
        for member in &old {
            self.give_weight(group.id, member.id, 0);
        }
        let mut choices = Vec::new();
        for member in &group.members {
            let Some(member_place) = self.member_place(member.id) else { continue };
            self.give_weight(group.id, member.id, member.weight);
            loop {
                let held = self.member(member_place).map_or(0, |state| state.handles.len());
                if held >= member.weight as usize {
                    break;
                }
                let handle = self.take_handle();
                if let Some(state) = self.members.get_mut(member_place) {
                    state.handles.push(handle);
                }
            }
            let handles = self.member(member_place).map_or(&[][..], |state| &state.handles);
            choices.extend(handles.iter().take(member.weight as usize).map(|&handle| (handle, member_place)));
        }
        choices.sort_unstable();
        let choices = choices.into_iter().map(|(_, member)| member).collect();
        let touched = old.into_iter().chain(group.members.iter().copied());
        let touched: BTreeSet<u32> = touched.map(|member| member.id).collect();
        let before = self.groups.get(place).map_or(0, GroupState::shares);
        let id = group.id;
        let state = GroupState { group, entries, choices, watches: BTreeMap::new(), active: Vec::new() };
        self.shares = self.shares - before + state.shares();
        self.groups.put(place, id, state);
        self.refresh(place);
        touched.into_iter().for_each(|member| self.release_unused_handles(member));
    }

    /// Sets the ports that a group's members depend on; members that are not named depend on none.
    pub(super) fn watch(&mut self, place: u32, watches: BTreeMap<u32, u16>) {
        self.note_group(place);
        self.forget_watches(place);
        for port in watches.values() {
            self.watching.entry(*port).or_default().insert(place);
        }
        if let Some(state) = self.groups.get_mut(place) {
            state.watches = watches;
        }
        self.refresh(place);
    }

    fn forget_watches(&mut self, place: u32) {
        let Some(state) = self.groups.get_mut(place) else { return };
        for port in std::mem::take(&mut state.watches).into_values() {
            if let Some(places) = self.watching.get_mut(&port) {
                places.remove(&place);
            }
        }
    }

    /// The ports that a group's members depend on, by member.
    pub(super) fn watches(&self, place: u32) -> Vec<(u32, u16)> {
        let watches = self.group(place).map(|state| state.watches.iter());
        watches.into_iter().flatten().map(|(member, port)| (*member, *port)).collect()
    }

    /// A port went down, or came up.
    pub(super) fn set_port_up(&mut self, port: u16, up: bool) {
        let changed = if up { self.down.remove(&port) } else { self.down.insert(port) };
        let concerned: Vec<u32> = match self.watching.get(&port) {
            Some(places) if changed => places.iter().copied().collect(),
            _ => return,
        };
        concerned.into_iter().for_each(|place| self.refresh(place));
    }

    /// Leaves out the members whose ports are down.
    fn refresh(&mut self, place: u32) {
        let Some(state) = self.group(place) else { return };
        let up = |member: &u32| {
            let id = self.member(*member).map(|member| member.id);
            let port = id.and_then(|id| state.watches.get(&id));
            port.is_none_or(|port| !self.down.contains(port))
        };
        let active = state.choices.iter().copied().filter(up).collect();
        if let Some(state) = self.groups.get_mut(place) {
            state.active = active;
        }
    }

    pub(super) fn remove_group(&mut self, id: u32) {
        let Some(place) = self.group_place(id) else { return };
        self.note_group(place);
        self.forget_watches(place);
        let Some(state) = self.groups.take(place, id) else { return };
        self.shares -= state.shares();
        for member in &state.group.members {
            self.give_weight(id, member.id, 0);
            self.release_unused_handles(member.id);
        }
    }

    /// A group gives a member this weight; 0: it holds it no more.
    fn give_weight(&mut self, group: u32, member: u32, weight: u32) {
        let Some(state) = self.member_place(member).and_then(|place| self.member_mut(place)) else { return };
        let old = if weight > 0 { state.groups.insert(group, weight) } else { state.groups.remove(&group) };
        if let Some(count) = old.and_then(|old| state.weights.get_mut(&old)) {
            *count -= 1;
        }
        state.weights.retain(|_, count| *count > 0);
        if weight > 0 {
            *state.weights.entry(weight).or_default() += 1;
        }
    }

    /// Gives back a member's handles beyond the largest weight that any group gives it.
    fn release_unused_handles(&mut self, member: u32) {
        let Some(state) = self.member_place(member).and_then(|place| self.members.get_mut(place)) else {
            return;
        };
        let keep = state.weights.keys().next_back().copied().unwrap_or(1).max(1) as usize;
        let unused = state.handles.split_off(keep.min(state.handles.len()));
        unused.into_iter().for_each(|handle| self.free_handle(handle));
    }

    /// From here on what is changed can be undone. Again in the same batch: nothing.
    pub(super) fn begin_batch(&mut self) {
        let next_handle = self.next_handle;
        self.before.get_or_insert_with(|| Box::new(Before { next_handle, ..Before::default() }));
    }

    pub(super) fn end_batch(&mut self) {
        self.before = None;
    }

    /// Everything is as it was when the batch began. Ports have not changed since.
    pub(super) fn undo_batch(&mut self) {
        let Some(before) = self.before.take() else { return };
        let Before { members, groups, handles, next_handle } = *before;
        for place in groups.keys() {
            self.forget_watches(*place);
            let id = self.groups.get(*place).map(|state| state.group.id);
            let gone = id.and_then(|id| self.groups.take(*place, id));
            self.shares -= gone.map_or(0, |state| state.shares());
        }
        for place in members.keys() {
            if let Some(id) = self.members.get(*place).map(|state| state.id) {
                self.members.take(*place, id);
            }
        }
        for (place, state) in members.into_iter().filter_map(|(place, state)| Some((place, state?))) {
            self.members.put(place, state.id, state);
        }
        for (place, state) in groups.into_iter().filter_map(|(place, state)| Some((place, state?))) {
            for port in state.watches.values() {
                self.watching.entry(*port).or_default().insert(place);
            }
            self.shares += state.shares();
            self.groups.put(place, state.group.id, state);
        }
        for (handle, was_free) in handles {
            if was_free {
                self.free_handles.insert(handle);
            } else {
                self.free_handles.remove(&handle);
            }
        }
        self.next_handle = next_handle;
    }

    fn note_member(&mut self, place: u32) {
        if let Some(before) = &mut self.before {
            before.members.entry(place).or_insert_with(|| self.members.get(place).cloned());
        }
    }

    fn note_group(&mut self, place: u32) {
        if let Some(before) = &mut self.before {
            before.groups.entry(place).or_insert_with(|| self.groups.get(place).cloned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::entity::GroupMember;
    use super::*;
    use proptest::prelude::*;

    fn group(id: u32, members: &[(u32, u32)]) -> Group {
        let members = members.iter().map(|&(id, weight)| GroupMember { id, weight }).collect();
        Group { id, max_size: 0, members }
    }

    fn call() -> Call {
        Call { action: 0, params: Box::default() }
    }

    /// What decides about packets and about what comes next, free places at the end left out.
    fn shape(profile: &Profile) -> String {
        let members: Vec<_> = profile.members().map(|m| (m.id, &m.handles, &m.groups, &m.weights)).collect();
        let groups: Vec<_> =
            profile.groups().map(|g| (&g.group, &g.choices, &g.watches, &g.active)).collect();
        let watching: Vec<_> = profile.watching.iter().filter(|(_, places)| !places.is_empty()).collect();
        format!(
            "{members:?} {groups:?} {:?} {} {} {watching:?}",
            profile.free_handles, profile.next_handle, profile.shares
        )
    }

    proptest! {
        /// Totals and largest weights that are kept are those that a look at everything gives, and
        /// a batch that is undone was never there.
        #[test]
        fn what_is_kept_is_what_is_there_and_an_undone_batch_leaves_nothing(
            steps in prop::collection::vec((0_u8..6, 0_u32..6, prop::collection::btree_map(0_u32..6, 1_u32..4, 0..4)), 1..40),
            begin in 0_usize..40,
        ) {
            let mut profile = Profile::new("p".to_owned(), 1000, None);
            let mut at_begin = None;
            for (at, (kind, id, members)) in steps.into_iter().enumerate() {
                if at == begin {
                    at_begin = Some(shape(&profile));
                    profile.begin_batch();
                }
                match kind {
                    0 | 1 if profile.member_place(id).is_none() => profile.add_member(id, call()),
                    2 if profile.group_of(id).is_none() => profile.remove_member(id),
                    3 | 4 => {
                        let there = members.into_iter().filter(|(id, _)| profile.member_place(*id).is_some());
                        profile.put_group(group(id, &there.collect::<Vec<_>>()));
                        let first = profile.groups().find(|g| g.group.id == id).and_then(|g| g.group.members.first().copied());
                        if let (Some(place), Some(first)) = (profile.group_place(id), first) {
                            profile.watch(place, BTreeMap::from([(first.id, 3)]));
                        }
                    }
                    5 => profile.remove_group(id),
                    _ => {}
                }
                let shares: u64 = profile.groups().map(GroupState::shares).sum();
                prop_assert_eq!(profile.shares(None), shares);
                for member in profile.members() {
                    let weights = profile.groups().flat_map(|g| &g.group.members).filter(|m| m.id == member.id);
                    let largest = weights.map(|m| m.weight as usize).max().unwrap_or(1);
                    prop_assert_eq!(member.handles.len(), largest);
                    let holds = |g: &&GroupState| g.group.members.iter().any(|m| m.id == member.id);
                    let holder = profile.groups().find(holds).map(|g| g.group.id);
                    prop_assert_eq!(profile.group_of(member.id), holder);
                }
            }
            if let Some(at_begin) = at_begin {
                profile.undo_batch();
                prop_assert_eq!(shape(&profile), at_begin);
            }
        }
    }
}
