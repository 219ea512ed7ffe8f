//! What a switch should hold: every entity of the tables and the action profile that this controller owns.

mod policy;
mod routes;
mod traffic;
mod trust;

use std::collections::BTreeMap;

use trimwire_p4runtime::entity::{EntityError, EntityKey, TableEntryBuilder};
use trimwire_p4runtime::p4info::{Index, Named};
use trimwire_p4runtime::v1::Entity;

use crate::artifacts::Artifacts;
use crate::spec::{Fabric, Switch};
use crate::topology::{self, Routes};

/// Names of the program (`p4/`): an interface, the same for every target.
pub(crate) mod names {
    pub(crate) const IPV4_ROUTE: &str = "Ingress.ipv4_route";
    pub(crate) const IPV6_ROUTE: &str = "Ingress.ipv6_route";
    pub(crate) const CLASSIFY: &str = "Ingress.classify";
    pub(crate) const POLICY: &str = "Ingress.queue_policy.policy";
    pub(crate) const LOAD_BALANCE: &str = "Ingress.load_balance";
    pub(crate) const TRIM_ACL_IPV4: &str = "Ingress.trim_acl_ipv4";
    pub(crate) const TRIM_ACL_IPV6: &str = "Ingress.trim_acl_ipv6";
    /// Where the program, and not the traffic manager, holds cut packets below their cap.
    pub(crate) const TRIM_CAP: &str = "Ingress.trim_cap.cap";
    /// On v1model: whose DSCP is believed, the switch's hash seed, trimmable code points that are marked CE.
    pub(crate) const TRUST: &str = "Ingress.trust";
    pub(crate) const HASH_SEED: &str = "Ingress.hash_seed";
    pub(crate) const MARK_TRIMMABLE: &str = "Ingress.mark_trimmable";
    /// All tables that this controller owns where they are: what else is in them is foreign.
    pub(crate) const TABLES: [&str; 11] = [
        POLICY,
        TRIM_CAP,
        CLASSIFY,
        LOAD_BALANCE,
        TRIM_ACL_IPV4,
        TRIM_ACL_IPV6,
        TRUST,
        HASH_SEED,
        MARK_TRIMMABLE,
        IPV4_ROUTE,
        IPV6_ROUTE,
    ];
    pub(crate) const ECMP: &str = "Ingress.ecmp";
    pub(crate) const FORWARD: &str = "Ingress.forward";
    pub(crate) const SET_THRESHOLDS: &str = "Ingress.queue_policy.set_thresholds";
    pub(crate) const NO_POLICY: &str = "Ingress.queue_policy.no_policy";
    pub(crate) const SET_CAP: &str = "Ingress.trim_cap.set_cap";
    pub(crate) const NO_CAP: &str = "Ingress.trim_cap.no_cap";
    pub(crate) const DISABLE_TRIM: &str = "Ingress.disable_trim";
    pub(crate) const NO_ACTION: &str = "NoAction";
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

/// Computes the entities of every switch, each for the program that it runs.
pub fn desired(
    fabric: &Fabric,
    routes: &Routes,
    artifacts: &Artifacts,
) -> Result<BTreeMap<String, Desired>, DesiredError> {
    let tiers = topology::tiers(fabric);
    let mut all = BTreeMap::new();
    for (name, own) in &routes.switches {
        let Some(switch) = fabric.switches.get(name) else { continue };
        let index = artifacts.of(name).index();
        let mut builder = Builder { fabric, name, switch, index, desired: Desired::new() };
        builder.classify()?;
        builder.load_balance(tiers.get(name.as_str()).copied().unwrap_or(0))?;
        builder.opt_outs()?;
        builder.trust(own)?;
        builder.hash_seed()?;
        builder.mark_trimmable()?;
        builder.policy()?;
        builder.routes(own)?;
        check_capacity(name, &builder.desired, index)?;
        all.insert(name.clone(), builder.desired);
    }
    Ok(all)
}

/// Builds one switch's entities; a file for each part of the program.
struct Builder<'f> {
    fabric: &'f Fabric,
    /// The switch's.
    name: &'f str,
    switch: &'f Switch,
    index: &'f Index,
    desired: Desired,
}

impl Builder<'_> {
    fn add(&mut self, entity: impl Into<Entity>, purpose: impl Into<String>) {
        let entity = entity.into();
        if let Some(key) = EntityKey::of(&entity) {
            self.desired.entry(key).or_insert(Wanted { entity, purpose: purpose.into() });
        }
    }

    /// A table's default action, where the program lets it be changed.
    fn add_default(
        &mut self,
        table: &str,
        action: &str,
        param: Option<(&str, u8)>,
        purpose: &str,
    ) -> Result<(), EntityError> {
        if self.index.table(table)?.table.const_default_action_id != 0 {
            return Ok(());
        }
        let mut entry = TableEntryBuilder::default_entry(self.index, table).action(action);
        if let Some((name, value)) = param {
            entry = entry.param(name, value);
        }
        self.add(entry.build()?, purpose);
        Ok(())
    }
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
