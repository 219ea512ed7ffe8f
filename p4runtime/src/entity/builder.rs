// SPDX-License-Identifier: Apache-2.0
//! Table entries and actions from names.

use super::error::{EntityError, Purpose};
use super::table::{check_action, check_table_entry, is_full_range};
use crate::bytes::{self, Value};
use crate::config::MatchField;
use crate::p4info::{ActionRef, Index, Key, TableRef};
use crate::v1::field_match::{Exact, FieldMatchType, Lpm, Optional, Range, Ternary};
use crate::v1::table_action::Type as ActionType;
use crate::v1::update::Type as UpdateType;
use crate::v1::{self, FieldMatch, TableAction, TableEntry, Update};

/// Builds a table entry from the program's names.
///
/// The first mistake is kept and comes out at the end ([`build`](Self::build),
/// [`insert`](Self::insert), …), so that calls chain. "Don't care" matches (prefix length 0, mask
/// 0, the whole range) are left out, as the specification asks.
#[derive(Debug, Clone)]
#[must_use = "an entry is made by build, insert, modify or delete"]
pub struct TableEntryBuilder<'i> {
    index: &'i Index,
    state: Result<State<'i>, EntityError>,
}

#[derive(Debug, Clone)]
struct State<'i> {
    table: TableRef<'i>,
    entry: TableEntry,
    action: Option<ActionBuilder<'i>>,
}

impl<'i> TableEntryBuilder<'i> {
    /// An entry of `table`, without match, action or priority.
    pub fn new<'k>(index: &'i Index, table: impl Into<Key<'k>>) -> Self {
        let state = index.table(table).map_err(EntityError::from).map(|table| State {
            table,
            entry: TableEntry { table_id: table.id(), ..TableEntry::default() },
            action: None,
        });
        Self { index, state }
    }

    /// The table's default entry.
    pub fn default_entry<'k>(index: &'i Index, table: impl Into<Key<'k>>) -> Self {
        Self::new(index, table).with(|state| {
            state.entry.is_default_action = true;
            Ok(())
        })
    }

    /// Matches `value`.
    pub fn exact<'k>(self, field: impl Into<Key<'k>>, value: impl Into<Value>) -> Self {
        let value = value.into();
        self.with_match(field.into(), |field, place| {
            Ok(Some(FieldMatchType::Exact(Exact { value: canonical(&value, field, place)? })))
        })
    }

    /// Matches the first `prefix_len` bits of `value`, whose other bits must be zero.
    pub fn lpm<'k>(self, field: impl Into<Key<'k>>, value: impl Into<Value>, prefix_len: u32) -> Self {
        let value = value.into();
        self.with_match(field.into(), |field, place| {
            let value = canonical(&value, field, place)?;
            if prefix_len == 0 && bytes::bits(&value) == 0 {
                return Ok(None);
            }
            let prefix_len = i32::try_from(prefix_len).unwrap_or(i32::MAX);
            Ok(Some(FieldMatchType::Lpm(Lpm { value, prefix_len })))
        })
    }

    /// Matches the bits of `value` where `mask` is one; the others must be zero.
    pub fn ternary<'k>(
        self,
        field: impl Into<Key<'k>>,
        value: impl Into<Value>,
        mask: impl Into<Value>,
    ) -> Self {
        let (value, mask) = (value.into(), mask.into());
        self.with_match(field.into(), |field, place| {
            let (value, mask) = (canonical(&value, field, place)?, canonical(&mask, field, place)?);
            let any = bytes::bits(&mask) == 0 && bytes::bits(&value) == 0;
            Ok((!any).then_some(FieldMatchType::Ternary(Ternary { value, mask })))
        })
    }

    /// Matches `low` to `high`, both included.
    pub fn range<'k>(self, field: impl Into<Key<'k>>, low: impl Into<Value>, high: impl Into<Value>) -> Self {
        let (low, high) = (low.into(), high.into());
        self.with_match(field.into(), |field, place| {
            let (low, high) = (canonical(&low, field, place)?, canonical(&high, field, place)?);
            let any = is_full_range(&low, &high, field.bitwidth.unsigned_abs());
            Ok((!any).then_some(FieldMatchType::Range(Range { low, high })))
        })
    }

    /// Matches `value` of an optional field. To match anything, leave the field out.
    pub fn optional<'k>(self, field: impl Into<Key<'k>>, value: impl Into<Value>) -> Self {
        let value = value.into();
        self.with_match(field.into(), |field, place| {
            Ok(Some(FieldMatchType::Optional(Optional { value: canonical(&value, field, place)? })))
        })
    }

    /// Higher wins. Needed, above 0, where a match field is ternary, range or optional.
    pub fn priority(self, priority: i32) -> Self {
        self.with(|state| {
            state.entry.priority = priority;
            Ok(())
        })
    }

    /// The action; its parameters follow with [`param`](Self::param).
    pub fn action<'k>(self, action: impl Into<Key<'k>>) -> Self {
        self.with(|state| {
            state.action = Some(ActionBuilder::of(state.table.action(action)?));
            Ok(())
        })
    }

    /// A parameter of the action given before.
    pub fn param<'k>(self, param: impl Into<Key<'k>>, value: impl Into<Value>) -> Self {
        self.with(|state| {
            let Some(action) = state.action.take() else {
                return Err(EntityError::invalid(
                    format!("parameter {} for table {:?}", param.into(), state.table.name()),
                    "comes before an action",
                ));
            };
            state.action = Some(action.param(param, value));
            Ok(())
        })
    }

    /// The member of the table's action profile.
    pub fn member(self, member_id: u32) -> Self {
        self.with_action(ActionType::ActionProfileMemberId(member_id))
    }

    /// The group of the table's action selector.
    pub fn group(self, group_id: u32) -> Self {
        self.with_action(ActionType::ActionProfileGroupId(group_id))
    }

    /// Actions to select from, for tables with an action selector: "one shot" programming.
    pub fn action_set(self, set: v1::ActionProfileActionSet) -> Self {
        self.with_action(ActionType::ActionProfileActionSet(set))
    }

    /// The controller's own bytes, given back by reads.
    pub fn metadata(self, metadata: impl Into<Vec<u8>>) -> Self {
        self.with(|state| {
            state.entry.metadata = metadata.into();
            Ok(())
        })
    }

    /// Time without a hit after which the switch notifies; 0 for never.
    pub fn idle_timeout_ns(self, nanoseconds: i64) -> Self {
        self.with(|state| {
            state.entry.idle_timeout_ns = nanoseconds;
            Ok(())
        })
    }

    /// Rates of the entry's direct meter.
    pub fn meter(self, config: v1::MeterConfig) -> Self {
        self.with(|state| {
            state.entry.meter_config = Some(config);
            Ok(())
        })
    }

    /// The entry, in canonical form. The action may be missing, for keys of deletes and reads.
    pub fn build(self) -> Result<TableEntry, EntityError> {
        self.finish(Purpose::Modify)
    }

    /// An update that inserts the entry.
    pub fn insert(self) -> Result<Update, EntityError> {
        let entry = self.finish(Purpose::Insert)?;
        Ok(Update { r#type: UpdateType::Insert.into(), entity: Some(entry.into()) })
    }

    /// An update that modifies the entry with this key.
    pub fn modify(self) -> Result<Update, EntityError> {
        let entry = self.finish(Purpose::Modify)?;
        Ok(Update { r#type: UpdateType::Modify.into(), entity: Some(entry.into()) })
    }

    /// An update that deletes the entry with this key.
    pub fn delete(self) -> Result<Update, EntityError> {
        let entry = self.finish(Purpose::Delete)?;
        Ok(Update { r#type: UpdateType::Delete.into(), entity: Some(entry.into()) })
    }

    fn finish(self, purpose: Purpose) -> Result<TableEntry, EntityError> {
        let State { mut entry, action, .. } = self.state?;
        if let Some(action) = action {
            entry.action = Some(TableAction { r#type: Some(ActionType::Action(action.build()?)) });
        }
        check_table_entry(&entry, self.index, purpose)
    }

    fn with(mut self, change: impl FnOnce(&mut State<'i>) -> Result<(), EntityError>) -> Self {
        self.state = self.state.and_then(|mut state| change(&mut state).map(|()| state));
        self
    }

    fn with_action(self, action: ActionType) -> Self {
        self.with(|state| {
            state.action = None;
            state.entry.action = Some(TableAction { r#type: Some(action) });
            Ok(())
        })
    }

    fn with_match(
        self,
        key: Key<'_>,
        build: impl FnOnce(&MatchField, &str) -> Result<Option<FieldMatchType>, EntityError>,
    ) -> Self {
        self.with(|state| {
            let field = state.table.match_field(key)?;
            let place = format!("match field {:?} of table {:?}", field.name, state.table.name());
            if let Some(kind) = build(field, &place)? {
                state.entry.r#match.push(FieldMatch { field_id: field.id, field_match_type: Some(kind) });
            }
            Ok(())
        })
    }
}

fn canonical(value: &Value, field: &MatchField, place: &str) -> Result<Vec<u8>, EntityError> {
    value
        .to_canonical(field.bitwidth.unsigned_abs())
        .map_err(|source| EntityError::Value { place: place.to_owned(), source })
}

/// Builds an action from the program's names; like [`TableEntryBuilder`], it keeps the first
/// mistake for the end.
#[derive(Debug, Clone)]
#[must_use = "an action is made by build"]
pub struct ActionBuilder<'i> {
    state: Result<(ActionRef<'i>, v1::Action), EntityError>,
}

impl<'i> ActionBuilder<'i> {
    /// An action, without its parameters.
    pub fn new<'k>(index: &'i Index, action: impl Into<Key<'k>>) -> Self {
        match index.action(action) {
            Ok(reference) => Self::of(reference),
            Err(error) => Self { state: Err(error.into()) },
        }
    }

    fn of(reference: ActionRef<'i>) -> Self {
        Self { state: Ok((reference, v1::Action { action_id: reference.id(), params: Vec::new() })) }
    }

    /// Adds a parameter.
    pub fn param<'k>(mut self, param: impl Into<Key<'k>>, value: impl Into<Value>) -> Self {
        self.state = self.state.and_then(|(reference, mut action)| {
            let param = reference.param(param)?;
            let value = value.into().to_canonical(param.bitwidth.unsigned_abs()).map_err(|source| {
                let place = format!("parameter {:?} of action {:?}", param.name, reference.name());
                EntityError::Value { place, source }
            })?;
            action.params.push(v1::action::Param { param_id: param.id, value });
            Ok((reference, action))
        });
        self
    }

    /// The action, in canonical form, if all parameters are there.
    pub fn build(self) -> Result<v1::Action, EntityError> {
        let (reference, action) = self.state?;
        check_action(&action, reference)
    }
}
