// SPDX-License-Identifier: Apache-2.0
//! Watch ports: which members of a group are chosen while ports are down (P4Runtime, "Action
//! Profile Group Programming").

use std::collections::BTreeMap;

use super::super::error::ControlError;
use super::profiles::no_group;
use super::{Control, Result};

impl Control {
    /// Sets the ports that members of a group depend on, as (member, port); members that are not
    /// named depend on none. While its port is down a member is not chosen. Modifying the group
    /// forgets its watch ports.
    pub fn watch_group(&mut self, profile: &str, group: u32, watches: &[(u32, u16)]) -> Result<()> {
        let index = self.profile_index(profile)?;
        self.note_profile(index);
        let state = &mut self.profiles[index];
        let place = state.group_place(group).ok_or_else(|| no_group(profile, group))?;
        let has = |id: u32| state.group(place).is_some_and(|s| s.group.members.iter().any(|m| m.id == id));
        if let Some((stranger, _)) = watches.iter().find(|(member, _)| !has(*member)) {
            return Err(ControlError::not_found(format!(
                "group {group} of `{profile}` has no member {stranger} to watch a port for"
            )));
        }
        state.watch(place, watches.iter().copied().collect::<BTreeMap<_, _>>());
        Ok(())
    }

    /// The ports that members of a group depend on, as (member, port), by member.
    pub fn group_watches(&self, profile: &str, group: u32) -> Result<Vec<(u32, u16)>> {
        let state = &self.profiles[self.profile_index(profile)?];
        let place = state.group_place(group).ok_or_else(|| no_group(profile, group))?;
        Ok(state.watches(place))
    }

    /// A port went down, or came up again. All ports are up at first.
    pub fn set_port_up(&mut self, port: u16, up: bool) {
        self.generation += 1;
        self.profiles.iter_mut().for_each(|profile| profile.set_port_up(port, up));
    }
}
