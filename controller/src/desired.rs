//! What a switch should hold: every entity of the tables and the action profile that this controller owns.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use trimwire_p4runtime::entity::{self, ActionBuilder, EntityError, EntityKey, TableEntryBuilder};
use trimwire_p4runtime::p4info::{Index, Named};
use trimwire_p4runtime::v1::Entity;

use crate::policy::PortPolicy;
use crate::spec::{Fabric, Overload};
use crate::topology::{self, Routes, SwitchRoutes};

/// Names of the program (`p4/`): an interface, the same for every target.
pub(crate) mod names {
    pub(crate) const IPV4_ROUTE: &str = "Ingress.ipv4_route";
    pub(crate) const IPV6_ROUTE: &str = "Ingress.ipv6_route";
    pub(crate) const CLASSIFY: &str = "Ingress.classify";
    pub(crate) const POLICY: &str = "Ingress.queue_policy.policy";
    /// All tables that this controller owns: what else is in them is foreign.
    pub(crate) const TABLES: [&str; 4] = [POLICY, CLASSIFY, IPV4_ROUTE, IPV6_ROUTE];
    pub(crate) const ECMP: &str = "Ingress.ecmp";
    pub(crate) const FORWARD: &str = "Ingress.forward";
    pub(crate) const SET_THRESHOLDS: &str = "Ingress.queue_policy.set_thresholds";
    pub(crate) const NO_POLICY: &str = "Ingress.queue_policy.no_policy";
    pub(crate) const OCCUPANCY: &str = "Ingress.occupancy";
}

/// An entity and what it is for, in the fabric's words.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// In canonical form.
    pub entity: Entity,
    /// "h1", "s1:3 class0 important", …
    pub purpose: String,
}

/// The entities of one switch.
pub type Desired = BTreeMap<EntityKey, Wanted>;

/// Why a program cannot hold a fabric.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DesiredError {
    /// It lacks a table, action, … or has it in another form.
    #[error("the program does not fit this controller: {0}")]
    Program(#[from] EntityError),
    /// It is too small.
    #[error("switch {switch}: {name} holds {size} entries, but {wanted} are needed")]
    Capacity {
        /// By its name in the fabric.
        switch: String,
        /// Table or action profile.
        name: String,
        /// From the P4Info.
        size: i64,
        /// For this fabric.
        wanted: usize,
    },
}

/// Computes the entities of every switch.
pub fn desired(
    fabric: &Fabric,
    routes: &Routes,
    index: &Index,
) -> Result<BTreeMap<String, Desired>, DesiredError> {
    let none = BTreeMap::new();
    let mut all = BTreeMap::new();
    for (switch, own) in &routes.switches {
        let mut builder = Builder { fabric, index, desired: Desired::new() };
        builder.classify()?;
        builder.policy(switch, fabric.policies.get(switch).unwrap_or(&none))?;
        builder.routes(switch, own)?;
        check_capacity(switch, &builder.desired, index)?;
        all.insert(switch.clone(), builder.desired);
    }
    Ok(all)
}

struct Builder<'f> {
    fabric: &'f Fabric,
    index: &'f Index,
    desired: Desired,
}

impl Builder<'_> {
    fn add(&mut self, entity: impl Into<Entity>, purpose: impl Into<String>) {
        let entity = entity.into();
        if let Some(key) = EntityKey::of(&entity) {
            self.desired.insert(key, Wanted { entity, purpose: purpose.into() });
        }
    }

    fn classify(&mut self) -> Result<(), EntityError> {
        let Fabric { dscp, queues, overload, .. } = self.fabric;
        let trimmable =
            if *overload == Overload::Trim { "Ingress.set_trimmable" } else { "Ingress.set_plain" };
        let by_class = |code_points: &[u8], action: &'static str, word: &'static str| {
            let pairs = code_points.iter().copied().zip(queues.classes.iter().copied());
            let numbered = pairs.enumerate();
            numbered
                .map(|(class, (dscp, queue))| (dscp, action, queue, format!("{word} class {class}")))
                .collect::<Vec<_>>()
        };
        let mut entries = by_class(&dscp.trimmable, trimmable, "trimmable");
        entries.extend(by_class(&dscp.droppable, "Ingress.set_plain", "droppable"));
        entries.push((dscp.trimmed, "Ingress.set_trimmed", queues.trimmed, "trimmed".to_owned()));
        entries.push((dscp.control, "Ingress.set_plain", queues.control, "control".to_owned()));
        let index = self.index;
        for (dscp, action, queue, purpose) in entries {
            let entry = TableEntryBuilder::new(index, names::CLASSIFY).exact("dscp", dscp).action(action);
            self.add(entry.param("queue", queue).build()?, purpose);
        }
        let default = TableEntryBuilder::default_entry(index, names::CLASSIFY).action("Ingress.set_plain");
        self.add(default.param("queue", queues.best_effort).build()?, "best effort");
        Ok(())
    }

    fn policy(&mut self, switch: &str, ports: &BTreeMap<u16, PortPolicy>) -> Result<(), EntityError> {
        let Fabric { dscp, queues, .. } = self.fabric;
        let index = self.index;
        for (port, policy) in ports {
            for (queue, both) in &policy.queues {
                for (importance, policy) in (0_u8..).zip(both) {
                    let word = if importance == 1 { "important" } else { "less important" };
                    let entry = TableEntryBuilder::new(index, names::POLICY)
                        .exact("egress_port", *port)
                        .exact("queue", *queue)
                        .exact("importance", importance)
                        .action(names::SET_THRESHOLDS)
                        .param("mark_at", policy.mark_at)
                        .param("shallow_at", policy.shallow_at)
                        .param("deep_at", policy.deep_at)
                        .param("drop_at", policy.drop_at)
                        .param("shallow_size", policy.shallow_size)
                        .param("deep_size", policy.deep_size)
                        .param("trimmed_dscp", dscp.trimmed)
                        .param("trim_queue", queues.trimmed)
                        .param("trim_drop_at", policy.trim_drop_at);
                    self.add(entry.build()?, format!("{switch}:{port} {} {word}", queues.name_of(*queue)));
                }
            }
        }
        let default = TableEntryBuilder::default_entry(index, names::POLICY).action(names::NO_POLICY);
        self.add(default.build()?, "ports without a link");
        Ok(())
    }

    fn routes(&mut self, switch: &str, routes: &SwitchRoutes) -> Result<(), EntityError> {
        let index = self.index;
        let used: BTreeSet<u16> = routes.next_hops.values().flatten().copied().collect();
        for port in used {
            let Some(neighbour) = routes.neighbours.get(&port) else { continue };
            let action = ActionBuilder::new(index, names::FORWARD);
            let action = action.param("port", port).param("dst_mac", neighbour.mac.0);
            let member = entity::member(index, names::ECMP, member_id(port), action)?;
            self.add(member, format!("{switch}:{port} to {}", neighbour.end));
        }
        let groups = group_ids(routes.next_hops.values());
        for (ports, id) in &groups {
            let members = ports.iter().map(|port| (member_id(*port), 1));
            let size = i32::try_from(ports.len()).unwrap_or(i32::MAX);
            let group = entity::member_group(index, names::ECMP, *id, members, size)?;
            let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
            self.add(group, format!("{switch} ports {}", ports.join(", ")));
        }
        for (host, ports) in &routes.next_hops {
            for address in topology::addresses(self.fabric, host) {
                let entry = match address {
                    IpAddr::V4(ip) => {
                        TableEntryBuilder::new(index, names::IPV4_ROUTE).lpm("dst_addr", ip, 32)
                    }
                    IpAddr::V6(ip) => {
                        TableEntryBuilder::new(index, names::IPV6_ROUTE).lpm("dst_addr", ip, 128)
                    }
                };
                let entry = match (groups.get(ports), ports.first()) {
                    (Some(group), _) => entry.group(*group),
                    (None, Some(port)) => entry.member(member_id(*port)),
                    (None, None) => continue,
                };
                let via: Vec<String> = ports.iter().map(|port| format!("{switch}:{port}")).collect();
                self.add(entry.build()?, format!("{host} via {}", via.join(", ")));
            }
        }
        Ok(())
    }
}

/// A port has one neighbour, hence one member. Ids start at 1: 0 is a wildcard on the wire.
pub(crate) fn member_id(port: u16) -> u32 {
    u32::from(port) + 1
}

/// Ids for the groups of more than one port.
///
/// An id depends on the ports alone. So a changed set of next hops is another group, written before the routes turn to it
/// and before the old one goes: no packet meets a half-changed group, and routes that did not change are not touched.
fn group_ids<'r>(sets: impl Iterator<Item = &'r BTreeSet<u16>>) -> BTreeMap<BTreeSet<u16>, u32> {
    let sets: BTreeSet<&BTreeSet<u16>> = sets.filter(|ports| ports.len() > 1).collect();
    let mut taken = BTreeSet::new();
    let mut ids = BTreeMap::new();
    for ports in sets {
        // FNV-1a, folded to 24 bits: small ids are kinder to people and to targets that use them as indices.
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

fn check_capacity(switch: &str, desired: &Desired, index: &Index) -> Result<(), DesiredError> {
    use trimwire_p4runtime::v1::entity::Entity as Kind;
    let mut wanted: BTreeMap<(&str, i64), usize> = BTreeMap::new();
    for Wanted { entity, .. } in desired.values() {
        match &entity.entity {
            Some(Kind::TableEntry(entry)) if !entry.is_default_action => {
                if let Ok(table) = index.table(entry.table_id) {
                    *wanted.entry((table.name(), table.table.size)).or_default() += 1;
                }
            }
            // An action selector's size limits the sum of its groups' weights, an action profile's its members.
            Some(Kind::ActionProfileMember(member)) => {
                if let Ok(profile) = index.action_profile(member.action_profile_id) {
                    *wanted.entry((profile.name(), profile.size)).or_default() += 1;
                }
            }
            _ => {}
        }
    }
    for ((name, size), wanted) in wanted {
        if size > 0 && i64::try_from(wanted).is_ok_and(|wanted| wanted > size) {
            return Err(DesiredError::Capacity {
                switch: switch.to_owned(),
                name: name.to_owned(),
                size,
                wanted,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
