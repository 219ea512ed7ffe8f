//! Action profiles and selectors.
//!
//! A selector hashes its fields and takes the member at `hash % size` of the group, where the group is in order of
//! BMv2's member handles: the lowest free handle when a member is made, and one more per share of weight, made
//! when a group first asks for it (as P4Runtime's front end to BMv2 does). The same controller writes thus give
//! the same choice here and there. Members whose watch port is down are left out, as if the group did not have them.

use std::collections::{BTreeMap, BTreeSet};

use super::calculation::{Calculation, Inputs, Scratch};
use super::entity::Group;
use super::table::Call;

#[derive(Clone, Debug)]
pub(super) struct MemberState {
    pub(super) id: u32,
    pub(super) call: Call,
    handles: Vec<u32>,
    /// Table entries that name it.
    pub(super) entries: usize,
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

#[derive(Clone, Debug)]
pub(super) struct Profile {
    pub(super) name: String,
    pub(super) size: usize,
    pub(super) selector: Option<Calculation>,
    /// Actions that members may call: what the tables that use the profile allow.
    pub(super) actions: Vec<u32>,
    members: Vec<Option<MemberState>>,
    groups: Vec<Option<GroupState>>,
    member_places: BTreeMap<u32, u32>,
    group_places: BTreeMap<u32, u32>,
    free_handles: BTreeSet<u32>,
    next_handle: u32,
    /// Ports that are down.
    down: BTreeSet<u16>,
}

impl Profile {
    pub(super) fn new(name: String, size: usize, selector: Option<Calculation>) -> Self {
        Self {
            name,
            size,
            selector,
            actions: Vec::new(),
            members: Vec::new(),
            groups: Vec::new(),
            member_places: BTreeMap::new(),
            group_places: BTreeMap::new(),
            free_handles: BTreeSet::new(),
            next_handle: 0,
            down: BTreeSet::new(),
        }
    }

    pub(super) fn call(&self, place: u32) -> Option<&Call> {
        Some(&self.members.get(place as usize)?.as_ref()?.call)
    }

    /// `None` for an empty group, or one whose members are all down.
    pub(super) fn choose(&self, place: u32, inputs: &Inputs<'_>, scratch: &mut Scratch) -> Option<&Call> {
        let group = self.groups.get(place as usize)?.as_ref()?;
        let hash = self.selector.as_ref()?.compute(inputs, scratch) as u32 as usize;
        self.call(*group.active.get(hash.checked_rem(group.active.len())?)?)
    }

    pub(super) fn member_place(&self, id: u32) -> Option<u32> {
        self.member_places.get(&id).copied()
    }

    pub(super) fn group_place(&self, id: u32) -> Option<u32> {
        self.group_places.get(&id).copied()
    }

    pub(super) fn member(&self, place: u32) -> Option<&MemberState> {
        self.members.get(place as usize)?.as_ref()
    }

    pub(super) fn member_mut(&mut self, place: u32) -> Option<&mut MemberState> {
        self.members.get_mut(place as usize)?.as_mut()
    }

    pub(super) fn group(&self, place: u32) -> Option<&GroupState> {
        self.groups.get(place as usize)?.as_ref()
    }

    pub(super) fn group_mut(&mut self, place: u32) -> Option<&mut GroupState> {
        self.groups.get_mut(place as usize)?.as_mut()
    }

    /// By id.
    pub(super) fn members(&self) -> impl Iterator<Item = &MemberState> {
        self.member_places.values().filter_map(|&place| self.member(place))
    }

    /// By id.
    pub(super) fn groups(&self) -> impl Iterator<Item = &GroupState> {
        self.group_places.values().filter_map(|&place| self.group(place))
    }

    /// Places of members so far, and of groups; some may be free.
    pub(super) fn places(&self) -> (usize, usize) {
        (self.members.len(), self.groups.len())
    }

    pub(super) fn member_count(&self) -> usize {
        self.member_places.len()
    }

    /// A group that holds the member.
    pub(super) fn group_of(&self, member: u32) -> Option<u32> {
        let holds = |group: &&GroupState| group.group.members.iter().any(|other| other.id == member);
        self.groups().find(holds).map(|group| group.group.id)
    }

    /// Shares in use by all groups but `except`.
    pub(super) fn shares(&self, except: Option<u32>) -> u64 {
        let others = self.groups().filter(|group| Some(group.group.id) != except);
        others.flat_map(|group| &group.group.members).map(|member| u64::from(member.weight)).sum()
    }

    fn take_handle(&mut self) -> u32 {
        self.free_handles.pop_first().unwrap_or_else(|| {
            self.next_handle += 1;
            self.next_handle - 1
        })
    }

    pub(super) fn add_member(&mut self, id: u32, call: Call) {
        let handles = vec![self.take_handle()];
        let place = put(&mut self.members, MemberState { id, call, handles, entries: 0 });
        self.member_places.insert(id, place);
    }

    pub(super) fn remove_member(&mut self, id: u32) {
        if let Some(place) = self.member_places.remove(&id)
            && let Some(member) = self.members.get_mut(place as usize).and_then(Option::take)
        {
            self.free_handles.extend(member.handles);
        }
    }

    /// Adds a group, or replaces the one of that id. Its members must exist.
    pub(super) fn put_group(&mut self, mut group: Group) {
        group.members.sort_by_key(|member| member.id);
        let groups = &mut self.groups;
        let place = *self.group_places.entry(group.id).or_insert_with(|| {
            let empty = Group { id: group.id, max_size: 0, members: Vec::new() };
            put(
                groups,
                GroupState {
                    group: empty,
                    entries: 0,
                    choices: Vec::new(),
                    watches: BTreeMap::new(),
                    active: Vec::new(),
                },
            )
        });
        let mut choices = Vec::new();
        for member in &group.members {
            let Some(member_place) = self.member_place(member.id) else { continue };
            loop {
                let held = self.member(member_place).map_or(0, |state| state.handles.len());
                if held >= member.weight as usize {
                    break;
                }
                let handle = self.take_handle();
                if let Some(state) = self.member_mut(member_place) {
                    state.handles.push(handle);
                }
            }
            let handles = self.member(member_place).map_or(&[][..], |state| &state.handles);
            choices.extend(handles.iter().take(member.weight as usize).map(|&handle| (handle, member_place)));
        }
        choices.sort_unstable();
        if let Some(state) = self.group_mut(place) {
            state.group = group;
            state.choices = choices.into_iter().map(|(_, member)| member).collect();
            state.watches.clear();
        }
        self.refresh(place);
        self.release_unused_handles();
    }

    /// Sets the ports that a group's members depend on; members that are not named depend on none.
    pub(super) fn watch(&mut self, place: u32, watches: BTreeMap<u32, u16>) {
        if let Some(state) = self.group_mut(place) {
            state.watches = watches;
        }
        self.refresh(place);
    }

    /// The ports that a group's members depend on, by member.
    pub(super) fn watches(&self, place: u32) -> Vec<(u32, u16)> {
        let watches = self.group(place).map(|state| state.watches.iter());
        watches.into_iter().flatten().map(|(member, port)| (*member, *port)).collect()
    }

    /// A port went down, or came up.
    pub(super) fn set_port_up(&mut self, port: u16, up: bool) {
        let changed = if up { self.down.remove(&port) } else { self.down.insert(port) };
        if !changed {
            return;
        }
        let concerned = |place: &u32| {
            self.group(*place).is_some_and(|state| state.watches.values().any(|watched| *watched == port))
        };
        let places: Vec<u32> = self.group_places.values().copied().filter(concerned).collect();
        places.into_iter().for_each(|place| self.refresh(place));
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
        if let Some(state) = self.group_mut(place) {
            state.active = active;
        }
    }

    pub(super) fn remove_group(&mut self, id: u32) {
        if let Some(place) = self.group_places.remove(&id) {
            if let Some(group) = self.groups.get_mut(place as usize) {
                *group = None;
            }
            self.release_unused_handles();
        }
    }

    /// Gives back the handles beyond the largest weight that any group gives a member.
    fn release_unused_handles(&mut self) {
        let mut largest: BTreeMap<u32, usize> = BTreeMap::new();
        for member in self.groups().flat_map(|group| &group.group.members) {
            let weight = largest.entry(member.id).or_default();
            *weight = (*weight).max(member.weight as usize);
        }
        for member in self.members.iter_mut().flatten() {
            let keep = largest.get(&member.id).copied().unwrap_or(1).max(1);
            while member.handles.len() > keep {
                self.free_handles.extend(member.handles.pop());
            }
        }
    }
}

/// Puts a value at the first free place.
fn put<T>(places: &mut Vec<Option<T>>, value: T) -> u32 {
    let place = places.iter().position(Option::is_none).unwrap_or(places.len());
    match places.get_mut(place) {
        Some(free) => *free = Some(value),
        None => places.push(Some(value)),
    }
    place as u32
}
