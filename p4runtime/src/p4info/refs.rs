// SPDX-License-Identifier: Apache-2.0
//! Tables and actions together with what belongs to them.

use std::fmt;

use super::index::{Index, find_element};
use super::lookup::{Key, LookupError};
use super::named::Named;
use crate::config;

/// A table and the index it is part of.
#[derive(Clone, Copy)]
pub struct TableRef<'a> {
    /// As P4Info has it.
    pub table: &'a config::Table,
    pub(super) index: &'a Index,
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

    /// Whether entries need a priority: some key element is ternary, range or optional (P4Runtime,
    /// "TableEntry").
    pub fn needs_priority(&self) -> bool {
        use config::match_field::MatchType;
        self.table
            .match_fields
            .iter()
            .any(|field| matches!(field.kind(), MatchType::Ternary | MatchType::Range | MatchType::Optional))
    }
}

impl config::MatchField {
    /// The match kind; `Unspecified` for an architecture's own and for numbers that this version
    /// does not know.
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
