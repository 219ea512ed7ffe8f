// SPDX-License-Identifier: Apache-2.0
//! Look-up by name, alias or id.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::lookup::{Key, LookupError};
use super::named::{IndexError, Named};
use super::refs::{ActionRef, TableRef};
use crate::config::{self, P4Info};

/// Positions of one kind's objects, by name (and alias) and by id.
#[derive(Debug, Clone, Default)]
struct Kind {
    names: BTreeMap<String, usize>,
    aliases: BTreeMap<String, usize>,
    ids: BTreeMap<u32, usize>,
}

impl Kind {
    fn build<T: Named>(objects: &[T], all: &mut BTreeMap<u32, String>) -> Result<Self, IndexError> {
        let mut kind = Self::default();
        for (position, object) in objects.iter().enumerate() {
            let (id, name) = (object.id(), object.name());
            if id == 0 || name.is_empty() {
                return Err(IndexError::Nameless { kind: T::KIND, position });
            }
            if let Some(other) = all.insert(id, name.to_owned()) {
                return Err(IndexError::DuplicateId { kind: T::KIND, name: name.to_owned(), other, id });
            }
            if kind.names.insert(name.to_owned(), position).is_some() {
                return Err(IndexError::DuplicateName { kind: T::KIND, name: name.to_owned() });
            }
            kind.ids.insert(id, position);
            if !object.alias().is_empty() {
                // The first wins; the full name always finds the other.
                kind.aliases.entry(object.alias().to_owned()).or_insert(position);
            }
        }
        Ok(kind)
    }

    fn find<'a, T: Named>(&self, objects: &'a [T], key: Key<'_>) -> Result<&'a T, LookupError> {
        let position = match key {
            Key::Name(name) => self.names.get(name).or_else(|| self.aliases.get(name)),
            Key::Id(id) => self.ids.get(&id),
        };
        position
            .and_then(|position| objects.get(*position))
            .ok_or_else(|| LookupError::new(T::KIND, key, "the P4Info", objects.iter().map(T::name)))
    }
}

/// A checked P4Info with look-up. Cheap to clone; P4Info does not change under it.
#[derive(Clone)]
pub struct Index {
    inner: Arc<Inner>,
}

struct Inner {
    p4info: P4Info,
    extern_instances: Vec<config::ExternInstance>,
    tables: Kind,
    actions: Kind,
    action_profiles: Kind,
    counters: Kind,
    direct_counters: Kind,
    meters: Kind,
    direct_meters: Kind,
    controller_headers: Kind,
    value_sets: Kind,
    registers: Kind,
    digests: Kind,
    externs: Kind,
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p4info = self.p4info();
        f.debug_struct("Index")
            .field("tables", &p4info.tables.len())
            .field("actions", &p4info.actions.len())
            .finish_non_exhaustive()
    }
}

macro_rules! lookups {
    ($($(#[$doc:meta])* $method:ident: $kind:ident, $objects:ident -> $type:ident;)*) => {$(
        $(#[$doc])*
        pub fn $method<'k>(&self, key: impl Into<Key<'k>>) -> Result<&config::$type, LookupError> {
            self.inner.$kind.find(&self.inner.p4info.$objects, key.into())
        }
    )*};
}

impl Index {
    /// Checks that ids and names are unique and that every reference has its object, then indexes.
    pub fn new(p4info: &P4Info) -> Result<Self, IndexError> {
        let p4info = p4info.clone();
        let extern_instances: Vec<_> =
            p4info.externs.iter().flat_map(|kind| kind.instances.iter().cloned()).collect();
        let all = &mut BTreeMap::new();
        let inner = Inner {
            tables: Kind::build(&p4info.tables, all)?,
            actions: Kind::build(&p4info.actions, all)?,
            action_profiles: Kind::build(&p4info.action_profiles, all)?,
            counters: Kind::build(&p4info.counters, all)?,
            direct_counters: Kind::build(&p4info.direct_counters, all)?,
            meters: Kind::build(&p4info.meters, all)?,
            direct_meters: Kind::build(&p4info.direct_meters, all)?,
            controller_headers: Kind::build(&p4info.controller_packet_metadata, all)?,
            value_sets: Kind::build(&p4info.value_sets, all)?,
            registers: Kind::build(&p4info.registers, all)?,
            digests: Kind::build(&p4info.digests, all)?,
            externs: Kind::build(&extern_instances, all)?,
            extern_instances,
            p4info,
        };
        super::consistency::check(&inner.p4info, all)?;
        Ok(Self { inner: Arc::new(inner) })
    }

    /// What was indexed.
    pub fn p4info(&self) -> &P4Info {
        &self.inner.p4info
    }

    /// A table.
    pub fn table<'k>(&self, key: impl Into<Key<'k>>) -> Result<TableRef<'_>, LookupError> {
        let table = self.inner.tables.find(&self.inner.p4info.tables, key.into())?;
        Ok(TableRef { table, index: self })
    }

    /// All tables, in P4Info's order.
    pub fn tables(&self) -> impl Iterator<Item = TableRef<'_>> {
        self.inner.p4info.tables.iter().map(|table| TableRef { table, index: self })
    }

    /// An action, of whichever table. Where the table is known, ask it ([`TableRef::action`]): its
    /// error is better.
    pub fn action<'k>(&self, key: impl Into<Key<'k>>) -> Result<ActionRef<'_>, LookupError> {
        let action = self.inner.actions.find(&self.inner.p4info.actions, key.into())?;
        Ok(ActionRef { action, scope: config::action_ref::Scope::TableAndDefault })
    }

    lookups! {
        /// An action profile or selector.
        action_profile: action_profiles, action_profiles -> ActionProfile;
        /// An indirect counter.
        counter: counters, counters -> Counter;
        /// A direct counter.
        direct_counter: direct_counters, direct_counters -> DirectCounter;
        /// An indirect meter.
        meter: meters, meters -> Meter;
        /// A direct meter.
        direct_meter: direct_meters, direct_meters -> DirectMeter;
        /// "packet_in" or "packet_out".
        controller_header: controller_headers, controller_packet_metadata -> ControllerPacketMetadata;
        /// A parser value set.
        value_set: value_sets, value_sets -> ValueSet;
        /// A register.
        register: registers, registers -> Register;
        /// A digest.
        digest: digests, digests -> Digest;
    }

    /// An instance of an extern that P4Runtime does not know itself.
    pub fn extern_instance<'k>(
        &self,
        key: impl Into<Key<'k>>,
    ) -> Result<&config::ExternInstance, LookupError> {
        self.inner.externs.find(&self.inner.extern_instances, key.into())
    }
}

/// Finds a field of a table, action or header, which has few: a scan beats a map.
pub(crate) fn find_element<'a, T>(
    kind: &'static str,
    key: Key<'_>,
    place: impl FnOnce() -> String,
    elements: &'a [T],
    id_and_name: impl Fn(&T) -> (u32, &str),
) -> Result<&'a T, LookupError> {
    elements
        .iter()
        .find(|element| {
            let (id, name) = id_and_name(element);
            match key {
                Key::Name(asked) => name == asked,
                Key::Id(asked) => id == asked,
            }
        })
        .ok_or_else(|| {
            LookupError::new(kind, key, place(), elements.iter().map(|element| id_and_name(element).1))
        })
}
