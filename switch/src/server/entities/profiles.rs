// SPDX-License-Identifier: Apache-2.0
//! Members and groups of action profiles (P4Runtime, "ActionProfileMember & ActionProfileGroup").

use super::actions::{action_of, call_of};
use super::target::{Kind, Piece, Refusal, Result, Target};
use crate::engine::entity::{Group, GroupMember, Member};
use std::collections::BTreeMap;
use std::ops::Range;
use tonic::Code;
use trimwire_p4runtime::bytes;
use trimwire_p4runtime::p4info::Named as _;
use trimwire_p4runtime::v1;
use trimwire_p4runtime::v1::action_profile_group::member::WatchKind;
use trimwire_p4runtime::v1::update::Type;

/// Shares of weight in one group. Each is a member of the data plane's, as in BMv2, so that a
/// weight is memory.
const MOST_SHARES: i64 = 1 << 14;

/// v1model's ports are `bit<9>`.
const PORT_BITS: u32 = 9;

impl Target<'_> {
    pub(super) fn write_member(&mut self, kind: Type, member: &v1::ActionProfileMember) -> Result<()> {
        let name = self.index.action_profile(member.action_profile_id)?.name();
        self.only_manual(name)?;
        let id = member.member_id;
        if kind == Type::Delete {
            self.control.member_delete(name, id)?;
            self.ledger.count_manual(name, false);
            return Ok(());
        }
        let call = call_of(self.index, member.action.as_ref())?;
        if kind == Type::Insert {
            self.control.member_insert(name, id, &call)?;
            self.ledger.count_manual(name, true);
        } else {
            self.control.member_modify(name, id, &call)?;
        }
        Ok(())
    }

    pub(super) fn write_group(&mut self, kind: Type, group: &v1::ActionProfileGroup) -> Result<()> {
        let name = self.index.action_profile(group.action_profile_id)?.name();
        self.only_manual(name)?;
        let id = group.group_id;
        if kind == Type::Delete {
            self.control.group_delete(name, id)?;
            self.ledger.count_manual(name, false);
            self.ledger.set_watches(name, id, None);
            return Ok(());
        }
        let place = format!("group {id} of action profile {name}");
        check_shares(group.members.iter().map(|member| member.weight), &place)?;
        let mut watches = BTreeMap::new();
        let mut ports = Vec::new();
        for member in &group.members {
            let Some(watch) = &member.watch_kind else { continue };
            #[expect(deprecated, reason = "still sent by clients written for P4Runtime before 1.4")]
            let port = match watch {
                WatchKind::WatchPort(port) => watch_port(port, &place)?,
                WatchKind::Watch(number) => watch_number(*number, &place)?,
            };
            ports.extend(port.map(|port| (member.member_id, port)));
            watches.insert(member.member_id, watch.clone());
        }
        let members = group.members.iter();
        let wanted = Group {
            id,
            max_size: group.max_size.max(0) as u32,
            members: members
                .map(|m| GroupMember { id: m.member_id, weight: m.weight.max(0) as u32 })
                .collect(),
        };
        if kind == Type::Insert {
            self.control.group_insert(name, &wanted)?;
            self.ledger.count_manual(name, true);
        } else {
            let before = self.control.group(name, id)?;
            // BMv2's server takes 0 for "as it was".
            if wanted.max_size != 0 && before.max_size != wanted.max_size {
                return Err(Refusal::invalid(format!(
                    "{place}: max_size {} cannot be changed to {}",
                    before.max_size, wanted.max_size
                )));
            }
            self.control.group_modify(name, &wanted)?;
        }
        self.control.watch_group(name, id, &ports)?;
        self.ledger.set_watches(name, id, Some(watches));
        Ok(())
    }

    /// What a filter asks for of members or groups, by profile, and by place where it asks for
    /// many.
    pub(super) fn profile_pieces(&self, filter: &Kind) -> Result<Vec<Piece>> {
        let (profile, wanted) = match filter {
            Kind::ActionProfileMember(member) => (member.action_profile_id, member.member_id),
            Kind::ActionProfileGroup(group) => (group.action_profile_id, group.group_id),
            _ => return Ok(Vec::new()),
        };
        let mut pieces = Vec::new();
        for (id, name) in self.manual_profiles(profile)? {
            let (members, groups) = self.control.profile_places(name)?;
            let (filter, places) = if let Kind::ActionProfileMember(member) = filter {
                let of_profile = v1::ActionProfileMember { action_profile_id: id, ..member.clone() };
                (Kind::ActionProfileMember(of_profile), members)
            } else {
                let of_profile = v1::ActionProfileGroup {
                    action_profile_id: id,
                    group_id: wanted,
                    ..v1::ActionProfileGroup::default()
                };
                (Kind::ActionProfileGroup(of_profile), groups)
            };
            pieces.push(Piece { filter, cells: (wanted == 0).then_some(0..places) });
        }
        Ok(pieces)
    }

    /// The members that the controller wrote; those of one-shots are not its business.
    pub(super) fn read_members(
        &self,
        filter: &v1::ActionProfileMember,
        places: Option<&Range<u64>>,
    ) -> Result<Vec<Kind>> {
        let mut found = Vec::new();
        for (profile, name) in self.manual_profiles(filter.action_profile_id)? {
            let members = match places {
                Some(places) => self.control.members_at(name, places.clone())?,
                None => self.control.member(name, filter.member_id).into_iter().collect(),
            };
            for Member { id, call } in members {
                found.push(Kind::ActionProfileMember(v1::ActionProfileMember {
                    action_profile_id: profile,
                    member_id: id,
                    action: Some(action_of(self.index, &call)?),
                }));
            }
        }
        Ok(found)
    }

    pub(super) fn read_groups(
        &self,
        filter: &v1::ActionProfileGroup,
        places: Option<&Range<u64>>,
    ) -> Result<Vec<Kind>> {
        let mut found = Vec::new();
        for (profile, name) in self.manual_profiles(filter.action_profile_id)? {
            let groups = match places {
                Some(places) => self.control.groups_at(name, places.clone())?,
                None => self.control.group(name, filter.group_id).into_iter().collect(),
            };
            for group in groups {
                let watches = self.ledger.selectors.get(name).and_then(|s| s.watches.get(&group.id));
                let members = group.members.iter().map(|m| v1::action_profile_group::Member {
                    member_id: m.id,
                    weight: m.weight as i32,
                    watch_kind: watches.and_then(|watches| watches.get(&m.id)).cloned(),
                });
                found.push(Kind::ActionProfileGroup(v1::ActionProfileGroup {
                    action_profile_id: profile,
                    group_id: group.id,
                    members: members.collect(),
                    max_size: group.max_size as i32,
                }));
            }
        }
        Ok(found)
    }

    /// Members in the groups at these places.
    pub(super) fn members_of(&self, filter: &v1::ActionProfileGroup, places: Range<u64>) -> Result<usize> {
        let profiles = self.manual_profiles(filter.action_profile_id)?;
        let members = |(_, name): (u32, &str)| Ok(self.control.group_members(name, places.clone())?);
        profiles.into_iter().map(members).sum()
    }

    /// Ids and names of the profiles that are programmed with members and groups, if they are
    /// programmed at all.
    fn manual_profiles(&self, id: u32) -> Result<Vec<(u32, &str)>> {
        if id != 0 {
            self.index.action_profile(id)?;
        }
        let profiles = self.index.p4info().action_profiles.iter();
        Ok(profiles
            .filter(|profile| id == 0 || profile.id() == id)
            .map(|profile| (profile.id(), profile.name()))
            .filter(|(_, name)| self.ledger.selectors.get(*name).is_none_or(|s| s.one_shots.is_empty()))
            .collect())
    }

    /// Refuses members and groups where there are one-shots.
    pub(super) fn only_manual(&self, profile: &str) -> Result<()> {
        match self.ledger.selectors.get(profile) {
            Some(selector) if !selector.one_shots.is_empty() => Err(Refusal::invalid(format!(
                "action profile {profile} is programmed with one-shot action sets, of which {} are in use: it takes no members \
                 and groups beside them",
                selector.one_shots.len()
            ))),
            _ => Ok(()),
        }
    }
}

/// Refuses groups that would take too much memory, whatever size the program gives its selector.
pub(super) fn check_shares(weights: impl Iterator<Item = i32>, place: &str) -> Result<()> {
    match weights.map(i64::from).sum() {
        0..=MOST_SHARES => Ok(()),
        shares => Err(Refusal::new(
            Code::ResourceExhausted,
            format!("{place}: weights add up to {shares}; this switch takes {MOST_SHARES} in a group"),
        )),
    }
}

/// A watch port; the empty string is none.
pub(super) fn watch_port(port: &[u8], place: &str) -> Result<Option<u16>> {
    if port.is_empty() {
        return Ok(None);
    }
    let port = bytes::decode(port, PORT_BITS)
        .map_err(|error| Refusal::invalid(format!("{place}: watch_port: {error}")))?;
    Ok(Some(port as u16))
}

/// A watch port in the form that P4Runtime had before 1.4; 0 is none.
pub(super) fn watch_number(port: i32, place: &str) -> Result<Option<u16>> {
    match port {
        0 => Ok(None),
        1..=511 => Ok(Some(port as u16)),
        _ => Err(Refusal::invalid(format!("{place}: watch {port} is no port; ports run from 0 to 511"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_enormous_weights_is_refused_before_anything_is_made_for_it() {
        assert!(check_shares([1 << 13, 1 << 13].into_iter(), "group 1").is_ok());
        for weights in [vec![i32::MAX], vec![1 << 14, 1], vec![i32::MAX; 1000]] {
            let refusal = check_shares(weights.into_iter(), "group 1").unwrap_err();
            assert!(
                refusal.code == Code::ResourceExhausted && refusal.message.contains("16384"),
                "{refusal:?}"
            );
        }
    }

    #[test]
    fn watch_ports_are_ports_in_either_form() {
        assert_eq!(watch_port(&[], "p").unwrap(), None);
        assert_eq!(watch_port(&[0, 1, 0xff], "p").unwrap(), Some(511));
        assert_eq!(watch_number(0, "p").unwrap(), None);
        assert_eq!(watch_number(511, "p").unwrap(), Some(511));
        assert!(watch_port(&[2, 0], "p").is_err() && watch_number(512, "p").is_err());
    }
}
