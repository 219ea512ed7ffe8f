// SPDX-License-Identifier: Apache-2.0
//! Rules for table entries and actions.

use std::collections::BTreeSet;

use super::check::{check_colors, check_meter};
use super::error::{EntityError, Purpose};
use crate::bytes::{self, BytesError};
use crate::config::action_ref::Scope;
use crate::config::match_field::MatchType;
use crate::config::{self, ActionProfile, MatchField};
use crate::p4info::{ActionRef, Index, Named, TableRef};
use crate::v1::field_match::{Exact, FieldMatchType, Lpm, Optional, Range, Ternary};
use crate::v1::table_action::Type as ActionType;
use crate::v1::{self, FieldMatch, TableAction, TableEntry};

/// The canonical form of a table entry: shortest byte strings, match fields and parameters by id,
/// "don't care"s left out.
pub(super) fn check_table_entry(
    entry: &TableEntry,
    index: &Index,
    purpose: Purpose,
) -> Result<TableEntry, EntityError> {
    if purpose == Purpose::Read && entry.table_id == 0 {
        return if entry.r#match.is_empty() {
            Ok(entry.clone())
        } else {
            Err(EntityError::invalid("read of all tables", "match fields need a table"))
        };
    }
    let table = index.table(entry.table_id)?;
    let place = || format!("table {:?}", table.name());
    if entry.is_const && purpose != Purpose::Read {
        return Err(EntityError::invalid(place(), "is_const is the switch's to set"));
    }
    let mut checked = entry.clone();
    if entry.is_default_action {
        check_default_entry(entry, table, purpose)?;
    } else if purpose != Purpose::Read || !entry.r#match.is_empty() {
        checked.r#match = check_match(&entry.r#match, &table.table.match_fields, &place())?;
        check_priority(entry, table, purpose)?;
    }
    if table.table.is_const_table && !entry.is_default_action {
        // "Constant Tables": direct resources are all that may change.
        let denied = match purpose {
            Purpose::Insert | Purpose::Delete => true,
            Purpose::Modify => entry.action.is_some(),
            Purpose::Read => false,
        };
        if denied {
            let reason = "its entries are constant in the program".to_owned();
            return Err(EntityError::Denied { place: place(), reason });
        }
    }
    if purpose != Purpose::Delete {
        check_idle_timeout(entry, table)?;
    }
    match purpose {
        // "TableEntry": a delete ignores all but the key.
        Purpose::Delete => {
            return Ok(TableEntry {
                table_id: checked.table_id,
                r#match: checked.r#match,
                priority: checked.priority,
                is_default_action: checked.is_default_action,
                ..TableEntry::default()
            });
        }
        Purpose::Read => return Ok(checked),
        Purpose::Insert | Purpose::Modify => {}
    }
    checked.action = match &entry.action {
        Some(action) => Some(check_table_action(action, table, entry.is_default_action)?),
        None if purpose == Purpose::Insert => {
            return Err(EntityError::invalid(place(), "an entry to insert needs an action"));
        }
        None => None,
    };
    if entry.meter_config.is_some() && table.direct_meter().is_none() {
        return Err(EntityError::invalid(place(), "has meter_config, but the table has no direct meter"));
    }
    let spec = table.direct_meter().and_then(|meter| meter.spec.as_ref());
    check_meter(entry.meter_config.as_ref(), spec, || format!("meter of table {:?}", table.name()))?;
    if entry.meter_counter_data.is_some() && table.direct_meter().is_none() {
        return Err(EntityError::invalid(
            place(),
            "has meter_counter_data, but the table has no direct meter",
        ));
    }
    check_colors(entry.meter_counter_data.as_ref(), purpose, place)?;
    if entry.counter_data.is_some() && table.direct_counter().is_none() {
        return Err(EntityError::invalid(place(), "has counter_data, but the table has no direct counter"));
    }
    if entry.time_since_last_hit.is_some() {
        return Err(EntityError::invalid(place(), "time_since_last_hit is the switch's to set"));
    }
    if entry.idle_timeout_ns < 0 {
        return Err(EntityError::invalid(
            place(),
            format!("idle_timeout_ns {} is negative", entry.idle_timeout_ns),
        ));
    }
    Ok(checked)
}

/// "Idle-timeout".
fn check_idle_timeout(entry: &TableEntry, table: TableRef<'_>) -> Result<(), EntityError> {
    use crate::config::table::IdleTimeoutBehavior;
    let given = match (entry.idle_timeout_ns, entry.time_since_last_hit) {
        (0, None) => return Ok(()),
        (0, Some(_)) => "time_since_last_hit",
        _ => "idle_timeout_ns",
    };
    let place = || format!("table {:?}", table.name());
    if entry.is_default_action {
        return Err(EntityError::invalid(place(), format!("{given}: default entries have no idle timeout")));
    }
    if table.table.idle_timeout_behavior() == IdleTimeoutBehavior::NoTimeout {
        return Err(EntityError::invalid(
            place(),
            format!("{given}: the table does not support idle timeouts (support_timeout in P4)"),
        ));
    }
    Ok(())
}

/// "Default Entry".
fn check_default_entry(entry: &TableEntry, table: TableRef<'_>, purpose: Purpose) -> Result<(), EntityError> {
    let place = || format!("default entry of table {:?}", table.name());
    if !entry.r#match.is_empty() {
        return Err(EntityError::invalid(place(), "has match fields"));
    }
    if entry.priority != 0 {
        return Err(EntityError::invalid(place(), format!("has priority {}; it takes 0", entry.priority)));
    }
    match purpose {
        Purpose::Insert | Purpose::Delete => {
            Err(EntityError::invalid(place(), "always exists; the only update it takes is MODIFY"))
        }
        Purpose::Modify if table.table.const_default_action_id != 0 => {
            Err(EntityError::Denied { place: place(), reason: "is constant in the program".to_owned() })
        }
        Purpose::Modify | Purpose::Read => Ok(()),
    }
}

fn check_priority(entry: &TableEntry, table: TableRef<'_>, purpose: Purpose) -> Result<(), EntityError> {
    let reason = match (table.needs_priority(), entry.priority) {
        // A read that leaves it open takes entries of any priority.
        (true, 0) if purpose == Purpose::Read => return Ok(()),
        (true, ..=0) => "needs a priority above 0, having ternary, range or optional match fields",
        (false, 0) | (true, _) => return Ok(()),
        (false, _) => "takes no priority, having neither ternary, range nor optional match fields",
    };
    Err(EntityError::invalid(format!("table {:?}, priority {}", table.name(), entry.priority), reason))
}

/// "Match Format". The result is in order of field ids.
pub(super) fn check_match(
    matches: &[FieldMatch],
    fields: &[MatchField],
    place: &str,
) -> Result<Vec<FieldMatch>, EntityError> {
    let mut seen = BTreeSet::new();
    let mut checked = Vec::with_capacity(matches.len());
    for field_match in matches {
        let field = crate::p4info::find_element(
            "match field",
            field_match.field_id.into(),
            || place.to_owned(),
            fields,
            |field| (field.id, &field.name),
        )?;
        let here = || format!("match field {:?} of {place}", field.name);
        if !seen.insert(field.id) {
            return Err(EntityError::invalid(here(), "is given twice"));
        }
        checked.push(check_field(field_match, field, &here)?);
    }
    if fields.is_empty() {
        return Err(EntityError::invalid(place, "has no key, so it takes a default action but no entries"));
    }
    for field in fields {
        if field.kind() == MatchType::Exact && !seen.contains(&field.id) {
            return Err(EntityError::invalid(
                format!("match field {:?} of {place}", field.name),
                "is exact and must be given",
            ));
        }
    }
    checked.sort_by_key(|field_match| field_match.field_id);
    Ok(checked)
}

fn check_field(
    field_match: &FieldMatch,
    field: &MatchField,
    here: &impl Fn() -> String,
) -> Result<FieldMatch, EntityError> {
    let width = field.bitwidth.unsigned_abs();
    let value =
        |bytes: &[u8]| canonical(bytes, width).map_err(|source| EntityError::Value { place: here(), source });
    let invalid = |reason: String| Err(EntityError::invalid(here(), reason));
    let kind = match (field_match.field_match_type.as_ref(), field.kind()) {
        (Some(FieldMatchType::Exact(exact)), MatchType::Exact) => {
            FieldMatchType::Exact(Exact { value: value(&exact.value)? })
        }
        (Some(FieldMatchType::Optional(optional)), MatchType::Optional) => {
            FieldMatchType::Optional(Optional { value: value(&optional.value)? })
        }
        (Some(FieldMatchType::Lpm(lpm)), MatchType::Lpm) => {
            let canonical = value(&lpm.value)?;
            let prefix = u32::try_from(lpm.prefix_len).unwrap_or(0);
            if prefix == 0 || prefix > width {
                return invalid(format!(
                    "prefix length {} is not in 1..={width}; leave the field out to match anything",
                    lpm.prefix_len
                ));
            }
            if !bytes::within_mask(&canonical, &bytes::prefix_mask(prefix, width)) {
                return invalid(format!(
                    "value {} has bits behind its prefix of {prefix} bits",
                    bytes::hex(&bytes::padded(&canonical, width))
                ));
            }
            FieldMatchType::Lpm(Lpm { value: canonical, prefix_len: lpm.prefix_len })
        }
        (Some(FieldMatchType::Ternary(ternary)), MatchType::Ternary) => {
            let (value, mask) = (value(&ternary.value)?, value(&ternary.mask)?);
            if bytes::bits(&mask) == 0 {
                return invalid("mask 0; leave the field out to match anything".to_owned());
            }
            if !bytes::within_mask(&value, &mask) {
                return invalid(format!(
                    "value {} has bits outside of its mask {}",
                    bytes::hex(&value),
                    bytes::hex(&mask)
                ));
            }
            FieldMatchType::Ternary(Ternary { value, mask })
        }
        (Some(FieldMatchType::Range(range)), MatchType::Range) => {
            let (low, high) = (value(&range.low)?, value(&range.high)?);
            if (low.len(), &low) > (high.len(), &high) {
                return invalid(format!("low {} is above high {}", bytes::hex(&low), bytes::hex(&high)));
            }
            if is_full_range(&low, &high, width) {
                return invalid("takes every value; leave the field out to match anything".to_owned());
            }
            FieldMatchType::Range(Range { low, high })
        }
        // An architecture's own match kinds: not ours to judge.
        (Some(other @ FieldMatchType::Other(_)), MatchType::Unspecified) => other.clone(),
        (given, wanted) => {
            let given = given.map_or("without a value", kind_name);
            return invalid(format!("is {}, given {given}", wanted.as_str_name().to_lowercase()));
        }
    };
    Ok(FieldMatch { field_id: field_match.field_id, field_match_type: Some(kind) })
}

/// Whether canonical `low..=high` holds all values of `width` bits.
pub(super) fn is_full_range(low: &[u8], high: &[u8], width: u32) -> bool {
    bytes::bits(low) == 0 && high == bytes::shortest(&bytes::prefix_mask(width, width))
}

/// The match kind of a value, in the specification's words.
fn kind_name(kind: &FieldMatchType) -> &'static str {
    match kind {
        FieldMatchType::Exact(_) => "exact",
        FieldMatchType::Ternary(_) => "ternary",
        FieldMatchType::Lpm(_) => "lpm",
        FieldMatchType::Range(_) => "range",
        FieldMatchType::Optional(_) => "optional",
        FieldMatchType::Other(_) => "an architecture's own kind",
    }
}

/// Width 0 is P4Info's for types that are translated to strings, whose values go as they are.
fn canonical(value: &[u8], width: u32) -> Result<Vec<u8>, BytesError> {
    if width == 0 && !value.is_empty() {
        return Ok(value.to_vec());
    }
    bytes::check(value, width).map(<[u8]>::to_vec)
}

/// "Action Specification".
fn check_table_action(
    action: &TableAction,
    table: TableRef<'_>,
    is_default: bool,
) -> Result<TableAction, EntityError> {
    let place = || format!("table {:?}", table.name());
    let kind = match (&action.r#type, table.implementation()) {
        (None, _) => return Err(EntityError::invalid(place(), "has an action message without an action")),
        (Some(ActionType::Action(_)), Some(profile)) if !is_default => {
            return Err(EntityError::invalid(
                place(),
                format!(
                    "is implemented by action profile {:?}: it takes a member{}, not an action",
                    profile.name(),
                    if profile.with_selector { ", a group or an action set" } else { "" }
                ),
            ));
        }
        (Some(ActionType::Action(action)), _) => {
            let reference = table.action(action.action_id)?;
            let out_of_scope = match reference.scope {
                Scope::TableOnly => is_default,
                Scope::DefaultOnly | Scope::GroupAction => !is_default,
                Scope::TableAndDefault => false,
            };
            if out_of_scope {
                let use_of = if is_default { "a default action" } else { "an entry's action" };
                return Err(EntityError::Denied {
                    place: place(),
                    reason: format!(
                        "action {:?} may not be {use_of} ({:?})",
                        reference.name(),
                        reference.scope
                    ),
                });
            }
            ActionType::Action(check_action(action, reference)?)
        }
        (Some(_), None) => {
            return Err(EntityError::invalid(
                place(),
                "has no action profile: it takes an action, not a member or group",
            ));
        }
        (Some(_), Some(_)) if is_default => {
            return Err(EntityError::invalid(
                place(),
                "takes an action as its default, not a member or group",
            ));
        }
        (Some(ActionType::ActionProfileMemberId(id)), Some(_)) => ActionType::ActionProfileMemberId(*id),
        (Some(other), Some(profile)) => {
            if !profile.with_selector {
                return Err(EntityError::invalid(
                    place(),
                    format!("action profile {:?} has no selector: it takes members only", profile.name()),
                ));
            }
            match other {
                ActionType::ActionProfileActionSet(set) => {
                    ActionType::ActionProfileActionSet(check_action_set(set, table, profile)?)
                }
                other => other.clone(),
            }
        }
    };
    Ok(TableAction { r#type: Some(kind) })
}

/// "One Shot Action Selector Programming".
fn check_action_set(
    set: &v1::ActionProfileActionSet,
    table: TableRef<'_>,
    profile: &ActionProfile,
) -> Result<v1::ActionProfileActionSet, EntityError> {
    let place = || format!("action set of table {:?}", table.name());
    let mut checked = set.clone();
    for element in &mut checked.action_profile_actions {
        check_weight(element.weight, profile, &place())?;
        check_watch(element.watch_kind.as_ref(), &place())?;
        let Some(action) = &element.action else {
            return Err(EntityError::invalid(place(), "has an element without action"));
        };
        element.action = Some(check_action(action, table.action(action.action_id)?)?);
    }
    if let Some(action) = &set.group_action {
        checked.group_action = Some(check_action(action, table.action(action.action_id)?)?);
    }
    let weights = set.action_profile_actions.iter().map(|element| element.weight);
    check_sizes(weights, 0, profile, &place())?;
    Ok(checked)
}

/// "Group Programming" and "One Shot Action Selector Programming": a group's size against the
/// program's limits, in the unit that the program counts in.
pub(super) fn check_sizes(
    weights: impl Iterator<Item = i32> + Clone,
    max_size: i32,
    profile: &ActionProfile,
    place: &str,
) -> Result<(), EntityError> {
    use crate::config::action_profile::SelectorSizeSemantics;
    let (unit, size) = match profile.selector_size_semantics {
        Some(SelectorSizeSemantics::SumOfMembers(config::action_profile::SumOfMembers {
            max_member_weight,
        })) => {
            if let Some(weight) =
                weights.clone().find(|weight| max_member_weight > 0 && *weight > max_member_weight)
            {
                return Err(EntityError::invalid(
                    place,
                    format!("weight {weight} is above the maximum of {max_member_weight} for a member"),
                ));
            }
            ("members", weights.count() as i64)
        }
        _ => ("shares of weight", weights.map(i64::from).sum()),
    };
    if profile.max_group_size > 0 && size > i64::from(profile.max_group_size) {
        let most = profile.max_group_size;
        return Err(EntityError::invalid(
            place,
            format!("{size} {unit} are above the program's max_group_size of {most}"),
        ));
    }
    if max_size > 0 && size > i64::from(max_size) {
        let reason = format!("{size} {unit} are above its max_size of {max_size}");
        return Err(EntityError::Exhausted { place: place.to_owned(), reason });
    }
    Ok(())
}

/// A watch port, in either of the forms that P4Runtime has had.
#[derive(Debug, Clone, Copy)]
pub(super) enum Watch<'a> {
    Port(&'a [u8]),
    Number(i32),
}

/// What a watch port must be, whatever ports the target has: a number.
pub(super) fn check_watch<'a>(watch: Option<impl Into<Watch<'a>>>, place: &str) -> Result<(), EntityError> {
    match watch.map(Into::into) {
        Some(Watch::Number(number)) if number < 0 => {
            Err(EntityError::invalid(place, format!("watch {number} is negative")))
        }
        Some(Watch::Port(port)) if bytes::bits(port) > 32 => {
            Err(EntityError::invalid(place, format!("watch_port {} is wider than 32 bits", bytes::hex(port))))
        }
        _ => Ok(()),
    }
}

impl<'a> From<&'a v1::action_profile_action::WatchKind> for Watch<'a> {
    fn from(watch: &'a v1::action_profile_action::WatchKind) -> Self {
        use v1::action_profile_action::WatchKind;
        match watch {
            WatchKind::WatchPort(port) => Self::Port(port),
            #[expect(deprecated, reason = "still sent by clients written for P4Runtime before 1.4")]
            WatchKind::Watch(number) => Self::Number(*number),
        }
    }
}

impl<'a> From<&'a v1::action_profile_group::member::WatchKind> for Watch<'a> {
    fn from(watch: &'a v1::action_profile_group::member::WatchKind) -> Self {
        use v1::action_profile_group::member::WatchKind;
        match watch {
            WatchKind::WatchPort(port) => Self::Port(port),
            #[expect(deprecated, reason = "still sent by clients written for P4Runtime before 1.4")]
            WatchKind::Watch(number) => Self::Number(*number),
        }
    }
}

/// "Group Programming".
pub(super) fn check_weight(weight: i32, profile: &ActionProfile, place: &str) -> Result<(), EntityError> {
    let reason = match (profile.weights_disallowed, weight) {
        (true, 0) | (false, 1..) => return Ok(()),
        (true, _) => format!("weight {weight}; action profile {:?} allows no weights (0)", profile.name()),
        (false, _) => format!("weight {weight} is not above 0"),
    };
    Err(EntityError::invalid(place, reason))
}

/// An action with exactly its parameters, in order of their ids.
pub(super) fn check_action(action: &v1::Action, reference: ActionRef<'_>) -> Result<v1::Action, EntityError> {
    let mut seen = BTreeSet::new();
    let mut params = Vec::with_capacity(action.params.len());
    for given in &action.params {
        let param = reference.param(given.param_id)?;
        let here = || format!("parameter {:?} of action {:?}", param.name, reference.name());
        if !seen.insert(param.id) {
            return Err(EntityError::invalid(here(), "is given twice"));
        }
        let value = canonical(&given.value, param.bitwidth.unsigned_abs())
            .map_err(|source| EntityError::Value { place: here(), source })?;
        params.push(v1::action::Param { param_id: param.id, value });
    }
    let missing: Vec<_> = reference
        .action
        .params
        .iter()
        .filter(|param| !seen.contains(&param.id))
        .map(|param| format!("{:?}", param.name))
        .collect();
    if !missing.is_empty() {
        return Err(EntityError::invalid(
            format!("action {:?}", reference.name()),
            format!("lacks parameter {}", missing.join(", ")),
        ));
    }
    params.sort_by_key(|param| param.param_id);
    Ok(v1::Action { action_id: action.action_id, params })
}
