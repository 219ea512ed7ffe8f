// SPDX-License-Identifier: Apache-2.0
//! What a switch should hold: every entity of the tables and the action profile that this
//! controller owns.
//!
//! A [`Compiler`] is what all switches have in common. [`Compiler::compile`] does the rest for one
//! switch: its policy in its target's units, its routes, its entities. Nobody has to keep them:
//! compiling again costs less than the memory of a large fabric.

mod policy;
mod routes;
mod traffic;
mod trust;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use trimwire_p4runtime::entity::{EntityError, EntityKey, TableEntryBuilder};
use trimwire_p4runtime::p4info::{Index, Named};
use trimwire_p4runtime::v1::Entity;

use crate::model::{Fabric, Switch};
use crate::program::Artifacts;
use crate::topology::{Detours, SwitchRoutes, Topology};
use crate::{program::names, target};

/// An entity and what it is for, in the fabric's words.
#[derive(Debug, Clone, PartialEq)]
pub struct DesiredEntity {
    /// In canonical form.
    pub entity: Entity,
    /// "h1", "s1:3 class0 important", …
    pub purpose: String,
}

/// The entities of one switch.
pub type Desired = BTreeMap<EntityKey, DesiredEntity>;

/// Why a program cannot hold a fabric.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
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
    /// The fabric has no such switch.
    #[error("the fabric has no switch {0}")]
    UnknownSwitch(String),
}

/// A fabric, its topology and its programs: all that compiling a switch needs.
#[derive(Debug)]
pub struct Compiler {
    fabric: Arc<Fabric>,
    topology: Topology,
    artifacts: Artifacts,
    /// Of trimmed packets, wherever they were trimmed.
    trimmed: BTreeSet<u8>,
}

impl Compiler {
    /// Looks at the topology once, for all switches.
    pub fn new(fabric: Arc<Fabric>, artifacts: &Artifacts) -> Self {
        let (topology, trimmed) = (Topology::of(&fabric), fabric.trimmed_code_points());
        Self { fabric, topology, artifacts: artifacts.clone(), trimmed }
    }

    /// As it was read.
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// How switches and hosts hang together.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What switches run.
    pub fn artifacts(&self) -> &Artifacts {
        &self.artifacts
    }

    /// How many entities some switches have together, on as many threads as there are cores.
    /// Entries that differ from a neighbour's in their port or prefix alone are counted, not built;
    /// the error is the one of the first switch that has any.
    pub fn count(&self, switches: &[&str]) -> Result<usize, CompileError> {
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(switches.len());
        let next = AtomicUsize::new(0);
        let work = || {
            let (mut count, mut failed) = (0, None);
            loop {
                let position = next.fetch_add(1, Ordering::Relaxed);
                let Some(name) = switches.get(position) else { return (count, failed) };
                match self.build(name, true, None) {
                    Ok((desired, more)) => count += desired.len() + more.values().sum::<usize>(),
                    // Positions only grow: a thread's first error is its least.
                    Err(error) => failed = failed.or(Some((position, error))),
                }
            }
        };
        let done: Vec<_> = std::thread::scope(|scope| {
            let workers: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let own = work();
            workers.into_iter().filter_map(|worker| worker.join().ok()).chain([own]).collect()
        });
        let (counts, errors): (Vec<usize>, Vec<_>) = done.into_iter().unzip();
        match errors.into_iter().flatten().min_by_key(|(position, _)| *position) {
            Some((_, error)) => Err(error),
            None => Ok(counts.into_iter().sum()),
        }
    }

    /// The entities of one switch, for the program that it runs.
    pub fn compile(&self, name: &str) -> Result<Desired, CompileError> {
        self.compile_around(name, None)
    }

    /// The same, with routes over some links only.
    pub fn compile_around(&self, name: &str, detours: Option<&Detours>) -> Result<Desired, CompileError> {
        self.build(name, false, detours).map(|(desired, _)| desired)
    }

    /// Of these, what routes consist of, members, groups and entries: those that a switch which
    /// holds the routes `held` has not.
    pub fn entities_of(
        &self,
        name: &str,
        routes: &SwitchRoutes,
        held: &SwitchRoutes,
    ) -> Result<Desired, CompileError> {
        let mut builder = self.builder(name, self.artifacts.of(name).index(), false)?;
        builder.routes(routes, held)?;
        Ok(builder.desired)
    }

    /// All of them in the terms of another program.
    pub(crate) fn entities_in(
        &self,
        name: &str,
        routes: &SwitchRoutes,
        index: &Index,
    ) -> Result<Desired, CompileError> {
        let mut builder = self.builder(name, index, false)?;
        builder.routes(routes, &SwitchRoutes::default())?;
        Ok(builder.desired)
    }

    fn builder<'b>(
        &'b self,
        name: &'b str,
        index: &'b Index,
        counts: bool,
    ) -> Result<Builder<'b>, CompileError> {
        let Some(switch) = self.fabric.switches.get(name) else {
            return Err(CompileError::UnknownSwitch(name.to_owned()));
        };
        let fabric = &*self.fabric;
        let (desired, more) = (Desired::new(), Tally::new());
        Ok(Builder { fabric, name, switch, index, trimmed: &self.trimmed, desired, counts, more })
    }

    fn build(
        &self,
        name: &str,
        counts: bool,
        detours: Option<&Detours>,
    ) -> Result<(Desired, Tally), CompileError> {
        let (fabric, index) = (&*self.fabric, self.artifacts.of(name).index());
        let mut builder = self.builder(name, index, counts)?;
        builder.classify()?;
        builder.load_balance(self.topology.tier(name).unwrap_or(0))?;
        builder.opt_outs()?;
        let routes = self.topology.routes_around(fabric, name, detours);
        builder.trust(&routes)?;
        builder.hash_seed()?;
        builder.mark_trimmable()?;
        builder.policy()?;
        builder.own_macs(&self.topology.trunks(name))?;
        builder.routes(&routes, &SwitchRoutes::default())?;
        let Builder { desired, more, .. } = builder;
        check_capacity(name, &desired, &more, index)?;
        Ok((desired, more))
    }
}

/// Entries by table.
type Tally = BTreeMap<u32, usize>;

/// Builds one switch's entities; a file for each part of the program.
struct Builder<'f> {
    fabric: &'f Fabric,
    /// The switch's.
    name: &'f str,
    switch: &'f Switch,
    index: &'f Index,
    trimmed: &'f BTreeSet<u8>,
    desired: Desired,
    /// Nobody wants the entities: of many that are alike, one is built to see that the program
    /// takes it.
    counts: bool,
    /// Those that were not built.
    more: Tally,
}

impl Builder<'_> {
    fn add(&mut self, entity: impl Into<Entity>, purpose: impl Into<String>) {
        let entity = entity.into();
        if let Some(key) = EntityKey::of(&entity) {
            self.desired.entry(key).or_insert(DesiredEntity { entity, purpose: purpose.into() });
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

fn check_capacity(switch: &str, desired: &Desired, more: &Tally, index: &Index) -> Result<(), CompileError> {
    use trimwire_p4runtime::v1::entity::Entity as Kind;
    let mut wanted: BTreeMap<(&str, i64), usize> = BTreeMap::new();
    for (table, count) in more {
        if let Ok(table) = index.table(*table) {
            wanted.insert((table.name(), table.table.size), *count);
        }
    }
    for DesiredEntity { entity, .. } in desired.values() {
        match &entity.entity {
            Some(Kind::TableEntry(entry)) if !entry.is_default_action => {
                if let Ok(table) = index.table(entry.table_id) {
                    *wanted.entry((table.name(), table.table.size)).or_default() += 1;
                }
            }
            // An action selector's size limits the sum of its groups' weights, an action profile's
            // its members.
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
            return Err(CompileError::Capacity {
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
