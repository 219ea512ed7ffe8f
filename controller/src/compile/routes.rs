// SPDX-License-Identifier: Apache-2.0
//! Members, groups and routes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use trimwire_p4runtime::entity::{self, ActionBuilder, EntityError, TableEntryBuilder};

use super::{Builder, names};
use crate::topology::SwitchRoutes;
use crate::units;

impl Builder<'_> {
    /// Those of `routes` that a switch which holds the others' has not.
    pub(super) fn routes(&mut self, routes: &SwitchRoutes, held: &SwitchRoutes) -> Result<(), EntityError> {
        let (index, switch) = (self.index, self.name);
        let held_ports = used(held);
        for port in used(routes) {
            let neighbour = routes.neighbours.get(&port);
            let has_it = held_ports.contains(&port) && held.neighbours.get(&port) == neighbour;
            let Some(neighbour) = neighbour.filter(|_| !has_it) else { continue };
            let action = ActionBuilder::new(index, names::FORWARD);
            let action = action.param("port", port).param("dst_mac", neighbour.mac.0);
            let member = entity::member(index, names::ECMP, member_id(port), action)?;
            self.add(member, format!("{switch}:{port} to {}", neighbour.end));
        }
        let (groups, held_groups) = (group_ids(sets(routes)), group_ids(sets(held)));
        for (ports, id) in groups.iter().filter(|(ports, id)| held_groups.get(*ports) != Some(*id)) {
            let members = ports.iter().map(|port| (member_id(*port), 1));
            let group = if self.switch.target.watches_ports() {
                let members = members.zip(ports).map(|((member, weight), port)| (member, weight, *port));
                entity::watching_group(index, names::ECMP, *id, members)?
            } else {
                let size = i32::try_from(ports.len()).unwrap_or(i32::MAX);
                entity::member_group(index, names::ECMP, *id, members, size)?
            };
            self.add(group, format!("{switch} ports {}", units::ranges(ports)));
        }
        let mut built = BTreeSet::new();
        for (prefix, route) in &routes.prefixes {
            let held = held.prefixes.get(prefix).filter(|held| held.ports == route.ports);
            if held.is_some() && held_groups.get(&route.ports) == groups.get(&route.ports) {
                continue;
            }
            let table = if prefix.address().is_ipv4() { names::IPV4_ROUTE } else { names::IPV6_ROUTE };
            if self.counts && !built.insert(table) {
                *self.more.entry(index.table(table)?.id()).or_default() += 1;
                continue;
            }
            let entry = TableEntryBuilder::new(index, table);
            let entry = match prefix.address() {
                IpAddr::V4(ip) => entry.lpm("dst_addr", ip, prefix.len()),
                IpAddr::V6(ip) => entry.lpm("dst_addr", ip, prefix.len()),
            };
            let entry = match (groups.get(&route.ports), route.ports.first()) {
                (Some(group), _) => entry.group(*group),
                (None, Some(port)) => entry.member(member_id(*port)),
                (None, None) => continue,
            };
            self.add(entry.build()?, format!("{} via {switch}:{}", route.to, units::ranges(&route.ports)));
        }
        Ok(())
    }
}

fn sets(routes: &SwitchRoutes) -> impl Iterator<Item = &BTreeSet<u16>> {
    routes.prefixes.values().map(|route| &route.ports)
}

/// Ports that some route leads to.
fn used(routes: &SwitchRoutes) -> BTreeSet<u16> {
    sets(routes).flatten().copied().collect()
}

/// A port has one neighbour, hence one member. Ids start at 1: 0 is a wildcard on the wire.
fn member_id(port: u16) -> u32 {
    u32::from(port) + 1
}

/// Ids for the groups of more than one port.
///
/// An id depends on the ports alone. So a changed set of next hops is another group, written before
/// the routes turn to it and before the old one goes: no packet meets a half-changed group, and
/// routes that did not change are not touched.
pub(super) fn group_ids<'r>(sets: impl Iterator<Item = &'r BTreeSet<u16>>) -> BTreeMap<BTreeSet<u16>, u32> {
    let sets: BTreeSet<&BTreeSet<u16>> = sets.filter(|ports| ports.len() > 1).collect();
    let mut taken = BTreeSet::new();
    let mut ids = BTreeMap::new();
    for ports in sets {
        // FNV-1a, folded to 24 bits: small ids are kinder to people and to targets that use them as
        // indices.
        let hash = ports
            .iter()
            .flat_map(|port| port.to_be_bytes())
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let mut id = ((hash >> 24) ^ (hash & 0x00ff_ffff)).max(1);
        while !taken.insert(id) {
            id = (id + 1) & 0x00ff_ffff;
            id = id.max(1);
        }
        ids.insert(ports.clone(), id);
    }
    ids
}
