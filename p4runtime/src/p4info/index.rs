//! Look-up by name, alias or id.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::lookup::{Key, LookupError};
use crate::config::{self, P4Info, Preamble};

/// An object of a P4 program that has an id and a fully qualified name.
pub trait Named {
    /// What the object is, in words: "table", "counter", …
    const KIND: &'static str;

    /// Where id, name and alias stand; `None` in a malformed P4Info only, which [`Index::new`] refuses.
    fn preamble(&self) -> Option<&Preamble>;

    /// Id on the wire.
    fn id(&self) -> u32 {
        self.preamble().map_or(0, |preamble| preamble.id)
    }

    /// Fully qualified name.
    fn name(&self) -> &str {
        self.preamble().map_or("", |preamble| &preamble.name)
    }

    /// Short name; may be empty.
    fn alias(&self) -> &str {
        self.preamble().map_or("", |preamble| &preamble.alias)
    }
}

macro_rules! named {
    ($($type:ident: $kind:literal),* $(,)?) => {$(
        impl Named for config::$type {
            const KIND: &'static str = $kind;
            fn preamble(&self) -> Option<&Preamble> {
                self.preamble.as_ref()
            }
        }
    )*};
}

named! {
    Table: "table",
    Action: "action",
    ActionProfile: "action profile",
    Counter: "counter",
    DirectCounter: "direct counter",
    Meter: "meter",
    DirectMeter: "direct meter",
    ControllerPacketMetadata: "controller header",
    ValueSet: "value set",
    Register: "register",
    Digest: "digest",
    ExternInstance: "extern instance",
}

/// Why a P4Info cannot be indexed: it contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// An object without preamble, or with id 0 or an empty name.
    #[error("P4Info: {kind} number {position} has no id or no name")]
    Nameless {
        /// "table", …
        kind: &'static str,
        /// From 0, in P4Info's order.
        position: usize,
    },
    /// Two objects have one id.
    #[error("P4Info: {kind} {name:?} and {other:?} share the id {id:#010x}")]
    DuplicateId {
        /// Kind of the second one.
        kind: &'static str,
        /// The second one.
        name: String,
        /// The first one.
        other: String,
        /// Their id.
        id: u32,
    },
    /// Two objects of one kind have one name.
    #[error("P4Info: two objects of kind {kind} are named {name:?}")]
    DuplicateName {
        /// Their kind.
        kind: &'static str,
        /// Their name.
        name: String,
    },
    /// An object refers to something that is not there.
    #[error("P4Info: {kind} {name:?} refers to {target} with id {id:#010x}, which does not exist")]
    Dangling {
        /// Kind of the object that refers.
        kind: &'static str,
        /// Its name.
        name: String,
        /// What it refers to.
        target: &'static str,
        /// The id without an object.
        id: u32,
    },
    /// A match field or parameter with id 0, a doubled id or name, or a negative width.
    #[error("P4Info: {kind} {name:?}: {reason}")]
    Element {
        /// Kind of the object that has the element.
        kind: &'static str,
        /// Its name.
        name: String,
        /// What is wrong, naming the element.
        reason: String,
    },
}

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

    /// An action, of whichever table. Where the table is known, ask it ([`TableRef::action`]): its error is better.
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

/// A table and the index it is part of.
#[derive(Clone, Copy)]
pub struct TableRef<'a> {
    /// As P4Info has it.
    pub table: &'a config::Table,
    index: &'a Index,
}

impl fmt::Debug for TableRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TableRef").field(&self.name()).finish()
    }
}

impl<'a> TableRef<'a> {
    /// Id on the wire.
    pub fn id(&self) -> u32 {
        self.table.id()
    }

    /// Fully qualified name.
    pub fn name(&self) -> &'a str {
        self.table.name()
    }

    /// A key element.
    pub fn match_field<'k>(&self, key: impl Into<Key<'k>>) -> Result<&'a config::MatchField, LookupError> {
        find_element(
            "match field",
            key.into(),
            || format!("table {:?}", self.name()),
            &self.table.match_fields,
            |field| (field.id, &field.name),
        )
    }

    /// An action that the table may use (all of its scopes; [`ActionRef::scope`] tells which).
    pub fn action<'k>(&self, key: impl Into<Key<'k>>) -> Result<ActionRef<'a>, LookupError> {
        let key = key.into();
        self.actions()
            .find(|candidate| match key {
                Key::Name(name) => candidate.name() == name,
                Key::Id(id) => candidate.id() == id,
            })
            .or_else(|| {
                self.actions()
                    .find(|candidate| matches!(key, Key::Name(name) if candidate.action.alias() == name))
            })
            .ok_or_else(|| {
                LookupError::new(
                    "action",
                    key,
                    format!("table {:?}", self.name()),
                    self.actions().map(|action| action.name()),
                )
            })
    }

    /// The actions that the table may use, in P4Info's order.
    pub fn actions(&self) -> impl Iterator<Item = ActionRef<'a>> + use<'a> {
        let index = self.index;
        self.table.action_refs.iter().filter_map(move |reference| {
            let action = index.action(reference.id).ok()?.action;
            Some(ActionRef { action, scope: reference.scope() })
        })
    }

    /// The action profile or selector that holds the table's actions, if it has one.
    pub fn implementation(&self) -> Option<&'a config::ActionProfile> {
        match self.table.implementation_id {
            0 => None,
            id => self.index.action_profile(id).ok(),
        }
    }

    /// The counter that counts this table's hits, if it has one.
    pub fn direct_counter(&self) -> Option<&'a config::DirectCounter> {
        self.table.direct_resource_ids.iter().find_map(|id| self.index.direct_counter(*id).ok())
    }

    /// The meter of this table's entries, if it has one.
    pub fn direct_meter(&self) -> Option<&'a config::DirectMeter> {
        self.table.direct_resource_ids.iter().find_map(|id| self.index.direct_meter(*id).ok())
    }

    /// Whether entries need a priority: some key element is ternary, range or optional (P4Runtime, "TableEntry").
    pub fn needs_priority(&self) -> bool {
        use config::match_field::MatchType;
        self.table
            .match_fields
            .iter()
            .any(|field| matches!(field.kind(), MatchType::Ternary | MatchType::Range | MatchType::Optional))
    }
}

impl config::MatchField {
    /// The match kind; `Unspecified` for an architecture's own and for numbers that this version does not know.
    pub fn kind(&self) -> config::match_field::MatchType {
        use config::match_field::{Match, MatchType};
        match self.r#match {
            Some(Match::MatchType(kind)) => MatchType::try_from(kind).unwrap_or(MatchType::Unspecified),
            _ => MatchType::Unspecified,
        }
    }
}

/// An action, as some table may use it.
#[derive(Clone, Copy)]
pub struct ActionRef<'a> {
    /// As P4Info has it.
    pub action: &'a config::Action,
    /// Whether the table takes it for entries, as default action, or for both.
    pub scope: config::action_ref::Scope,
}

impl fmt::Debug for ActionRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ActionRef").field(&self.name()).finish()
    }
}

impl<'a> ActionRef<'a> {
    /// Id on the wire.
    pub fn id(&self) -> u32 {
        self.action.id()
    }

    /// Fully qualified name.
    pub fn name(&self) -> &'a str {
        self.action.name()
    }

    /// A parameter.
    pub fn param<'k>(&self, key: impl Into<Key<'k>>) -> Result<&'a config::action::Param, LookupError> {
        find_element(
            "parameter",
            key.into(),
            || format!("action {:?}", self.name()),
            &self.action.params,
            |param| (param.id, &param.name),
        )
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
