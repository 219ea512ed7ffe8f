// SPDX-License-Identifier: Apache-2.0
//! Members, groups and routes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use trimwire_p4runtime::entity::{self, ActionBuilder, EntityError, TableEntryBuilder};

use super::{Builder, names};
use crate::topology::{SwitchRoutes, Trunk, shares};
use crate::units;

impl Builder<'_> {
    /// Those of `routes` that a switch which holds the others' has not.
    pub(super) fn routes(&mut self, routes: &SwitchRoutes, held: &SwitchRoutes) -> Result<(), EntityError> {
        let (index, switch) = (self.index, self.name);
        let (groups, held_groups) = (groups(routes), groups(held));
        let watches = self.switch.target.watches_ports();
        // Stratum takes no weights: a port of several shares has as many members.
        let members = |groups: &Groups, port: u16| {
            let shares = groups.values().flat_map(|group| &group.shares);
            let shares = shares.filter(|(other, _)| !watches && *other == port).map(|(_, shares)| *shares);
            shares.max().unwrap_or(1)
        };
        let held_ports = used(held);
        for port in used(routes) {
            let Some(neighbour) = routes.neighbours.get(&port) else { continue };
            let has_it = held_ports.contains(&port) && held.neighbours.get(&port) == Some(neighbour);
            let first = if has_it { members(&held_groups, port) } else { 0 };
            for copy in first..members(&groups, port) {
                let action = ActionBuilder::new(index, names::FORWARD);
                let action = action.param("port", port).param("dst_mac", neighbour.mac.0);
                let member = entity::member(index, names::ECMP, member_id(port, copy), action)?;
                self.add(member, format!("{switch}:{port} to {}", neighbour.end));
            }
        }
        for (ports, Group { id, shares }) in &groups {
            if held_groups.get(ports).is_some_and(|held| held.id == *id) {
                continue;
            }
            let group = if watches {
                let members = shares.iter().map(|(port, shares)| (member_id(*port, 0), *shares, *port));
                let members = members.map(|(member, shares, port)| (member, i32::from(shares), port));
                entity::watching_group(index, names::ECMP, *id, members)?
            } else {
                let members = shares
                    .iter()
                    .flat_map(|(port, shares)| (0..*shares).map(|copy| (member_id(*port, copy), 1)));
                let size = shares.iter().map(|(_, shares)| i32::from(*shares)).sum();
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
                (Some(group), _) => entry.group(group.id),
                (None, Some(port)) => entry.member(member_id(*port, 0)),
                (None, None) => continue,
            };
            self.add(entry.build()?, format!("{} via {switch}:{}", route.to, units::ranges(&route.ports)));
        }
        Ok(())
    }
}

impl Builder<'_> {
    /// What frames from other switches are addressed to.
    pub(super) fn own_macs(&mut self, trunks: &[Trunk]) -> Result<(), EntityError> {
        if self.index.table(names::OWN_MAC).is_err() {
            return Ok(());
        }
        for Trunk { near: (_, port), far: (other, far_port), macs: [mac, _], .. } in trunks {
            let entry = TableEntryBuilder::new(self.index, names::OWN_MAC).exact("ingress_port", *port);
            let entry = entry.action(names::EXPECT_MAC).param("mac", mac.0);
            self.add(entry.build()?, format!("{}:{port} from {other}:{far_port}", self.name));
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

/// A port has one neighbour, hence one member, and copies of it. Ids start at 1: 0 is a wildcard on
/// the wire.
fn member_id(port: u16, copy: u8) -> u32 {
    u32::from(port) + 1 + (u32::from(copy) << 16)
}

/// Next hops that share packets.
#[derive(PartialEq, Eq)]
pub(super) struct Group {
    pub(super) id: u32,
    /// By port, in order.
    shares: Vec<(u16, u8)>,
}

/// By their ports.
pub(super) type Groups = BTreeMap<BTreeSet<u16>, Group>;

/// The groups of more than one port.
///
/// An id depends on the ports and their shares alone. So a changed set of next hops is another
/// group, written before the routes turn to it and before the old one goes: no packet meets a
/// half-changed group, and routes that did not change are not touched.
pub(super) fn groups(routes: &SwitchRoutes) -> Groups {
    let sets: BTreeSet<&BTreeSet<u16>> = sets(routes).filter(|ports| ports.len() > 1).collect();
    let mut taken = BTreeSet::new();
    let mut groups = Groups::new();
    for ports in sets {
        let rates = ports.iter().map(|port| routes.neighbours.get(port).map_or(1, |far| far.rate_bps));
        let shares = shares(&rates.collect::<Vec<u64>>()).0;
        let unequal = shares.iter().filter(|_| shares.iter().any(|share| *share != 1)).copied();
        // FNV-1a, folded to 24 bits: small ids are kinder to people and to targets that use them as
        // indices.
        let hash = ports
            .iter()
            .flat_map(|port| port.to_be_bytes())
            .chain(unequal)
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        let mut id = ((hash >> 24) ^ (hash & 0x00ff_ffff)).max(1);
        while !taken.insert(id) {
            id = (id + 1) & 0x00ff_ffff;
            id = id.max(1);
        }
        groups.insert(ports.clone(), Group { id, shares: ports.iter().copied().zip(shares).collect() });
    }
    groups
}
