// SPDX-License-Identifier: Apache-2.0
//! Tables from the JSON, and action calls from the control plane, checked and packed into limbs.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::action::Action;
use super::super::bits::{bytes_from_limbs, limbs_from_bytes, parse_hex};
use super::super::entity::{
    ActionCall, ActionInfo, ActionSpec, KeyInfo, MatchKind, MatchValue, TableEntry, TableInfo,
};
use super::super::error::ControlError;
use super::super::hasher::FixedMap;
use super::super::json::{self, Result, malformed, unsupported};
use super::super::layout::Layout;
use super::super::limits::Pieces;
use super::super::meter::MeterUnit;
use super::call::{Call, Target};
use super::key::show;
use super::tuples::TupleSpace;
use super::{Direct, Entry, Idle, Index, Key, NextNodes, Table};

/// A call's arguments, checked and packed.
pub(crate) fn compile_call(
    action: u32,
    definition: &Action,
    params: &[Vec<u8>],
) -> std::result::Result<Call, ControlError> {
    let name = &definition.name;
    if params.len() != definition.params.len() {
        let names: Vec<&str> = definition.params.iter().map(|(name, _)| name.as_str()).collect();
        return Err(ControlError::invalid(format!(
            "action `{name}` takes {} parameters ({}), {} were given",
            definition.params.len(),
            names.join(", "),
            params.len()
        )));
    }
    let mut limbs = vec![0; definition.param_limbs];
    for ((param, slot), bytes) in definition.params.iter().zip(params) {
        let value = limbs_from_bytes(bytes, slot.width).ok_or_else(|| {
            let (value, width) = (show(bytes), slot.width);
            ControlError::invalid(format!(
                "parameter `{param}` of `{name}`: {value} does not fit {width} bits"
            ))
        })?;
        limbs[slot.limbs()].copy_from_slice(&value);
    }
    Ok(Call { action, params: limbs.into() })
}

/// A call as the control plane reads it.
pub(crate) fn describe_call(call: &Call, actions: &[Action]) -> ActionCall {
    let definition = &actions[call.action as usize];
    let param = |slot: &super::super::layout::Slot| bytes_from_limbs(&call.params[slot.limbs()]);
    ActionCall {
        action: definition.name.clone(),
        params: definition.params.iter().map(|(_, slot)| param(slot)).collect(),
    }
}

fn hex_bytes(node: &Value, key: &str) -> Result<Vec<u8>> {
    let text = json::text(node, key)?;
    let parsed = parse_hex(text).filter(|(negative, _)| !negative);
    parsed
        .map(|(_, bytes)| bytes)
        .ok_or_else(|| malformed(node, format!("`{key}` is not hexadecimal: {text}")))
}

/// What the loader knows when it comes to tables.
pub(crate) struct TableScope<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) actions: &'a [Action],
    /// The first action of an id, and all of a name.
    pub(crate) by_id: BTreeMap<u64, u32>,
    pub(crate) by_name: BTreeMap<&'a str, Vec<u32>>,
    pub(crate) profiles: &'a BTreeMap<String, u32>,
    /// Direct meters by name.
    pub(crate) direct_meters: &'a BTreeMap<String, (MeterUnit, super::super::layout::Slot)>,
    /// Control-flow nodes by name.
    pub(crate) nodes: &'a BTreeMap<String, u32>,
    pub(crate) pieces: &'a Pieces,
}

impl TableScope<'_> {
    fn action(&self, node: &Value, id: u64) -> Result<u32> {
        let found = self.by_id.get(&id).copied();
        found.ok_or_else(|| malformed(node, format!("there is no action with id {id}")))
    }

    pub(crate) fn node(&self, at: &Value, name: &Value) -> Result<Option<u32>> {
        match name {
            Value::Null => Ok(None),
            Value::String(name) => match self.nodes.get(name) {
                Some(node) => Ok(Some(*node)),
                None => Err(malformed(at, format!("there is no table or conditional `{name}`"))),
            },
            other => Err(malformed(at, format!("{} is not a table", json::excerpt(other)))),
        }
    }

    fn call(&self, node: &Value) -> Result<Call> {
        let action = self.action(node, json::number(node, "action_id")?)?;
        let params = json::list(node, "action_data")?
            .iter()
            .map(|value| value.as_str().and_then(parse_hex).map(|(_, bytes)| bytes))
            .collect::<Option<Vec<_>>>()
            .ok_or_else(|| malformed(node, "`action_data` is not hexadecimal"))?;
        compile_call(action, &self.actions[action as usize], &params)
            .map_err(|error| malformed(node, error.message))
    }
}

fn kind(node: &Value, name: &str) -> Result<MatchKind> {
    Ok(match name {
        "exact" => MatchKind::Exact,
        "lpm" => MatchKind::Lpm,
        "ternary" => MatchKind::Ternary,
        "range" => MatchKind::Range,
        other => return Err(unsupported(node, format!("match kind `{other}`"))),
    })
}

pub(crate) fn load_table(node: &Value, scope: &TableScope<'_>) -> Result<Table> {
    let name = json::text(node, "name")?;
    let mut keys = Vec::new();
    let mut key_infos = Vec::new();
    for key in json::list(node, "key")? {
        let target = json::member(key, "target")?;
        let slot = scope.layout.field(target)?;
        let kind = kind(node, json::text(key, "match_type")?)?;
        let mask = match key.get("mask") {
            None | Some(Value::Null) => None,
            Some(_) => {
                let limbs = limbs_from_bytes(&hex_bytes(key, "mask")?, slot.width);
                Some(
                    limbs.ok_or_else(|| malformed(node, format!("a key of `{name}` has a bad mask")))?.into(),
                )
            }
        };
        let fallback = || json::pair(target).map(|(header, field)| format!("{header}.{field}"));
        let label = key.get("name").and_then(Value::as_str).map(str::to_owned);
        let label = label.map_or_else(fallback, Ok)?;
        key_infos.push(KeyInfo { name: label, kind, width: slot.width as u16 });
        keys.push(Key { slot, mask, valid: scope.layout.validity_of(target)?, kind });
    }
    let prefixes = keys.iter().filter(|key| key.kind == MatchKind::Lpm).count();
    if prefixes > 1 {
        return Err(unsupported(node, format!("table `{name}` with {prefixes} lpm keys")));
    }
    let list = keys.iter().any(|key| matches!(key.kind, MatchKind::Ternary | MatchKind::Range));
    let packed = keys.iter().map(|key| key.slot.width).sum::<u32>() <= 64;
    let mut actions = Vec::new();
    for id in json::list(node, "action_ids")? {
        let id = id.as_u64().ok_or_else(|| malformed(node, "an action id is not a number"))?;
        let action = scope.action(node, id)?;
        scope.pieces.take(1 + scope.actions[action as usize].params.len())?;
        actions.push(action);
    }
    let describe = |action: &u32| {
        let action = &scope.actions[*action as usize];
        let params = action.params.iter().map(|(name, slot)| (name.clone(), slot.width as u16)).collect();
        ActionInfo { name: action.name.clone(), params }
    };
    let profile_name = match json::text(node, "type")? {
        "simple" => None,
        "indirect" | "indirect_ws" => Some(json::text(node, "action_profile")?),
        other => return Err(unsupported(node, format!("table type `{other}`"))),
    };
    let profile = match profile_name {
        None => None,
        Some(profile) => {
            let missing = || malformed(node, format!("there is no action profile `{profile}`"));
            Some(*scope.profiles.get(profile).ok_or_else(missing)?)
        }
    };
    let direct_meter = match node.get("direct_meters") {
        None | Some(Value::Null) => None,
        Some(meter) => {
            let meter = meter.as_str().unwrap_or_default();
            let missing = || malformed(node, format!("there is no direct meter `{meter}`"));
            Some(*scope.direct_meters.get(meter).ok_or_else(missing)?)
        }
    };
    let const_entries = json::list(node, "entries")?;
    let is_const = node.get("entries").is_some_and(|entries| !entries.is_null());
    let size = if is_const { const_entries.len() } else { json::number(node, "max_size")? as usize };
    let base_next = scope.node(node, node.get("base_default_next").unwrap_or(&Value::Null))?;
    let mut table = Table {
        info: TableInfo {
            name: name.to_owned(),
            keys: key_infos,
            actions: actions.iter().map(describe).collect(),
            size,
            action_profile: profile_name.map(str::to_owned),
            has_counter: json::flag(node, "with_counters"),
            has_meter: direct_meter.is_some(),
            has_idle_timeout: json::flag(node, "support_timeout"),
            is_const,
        },
        keys,
        packed,
        next: next_nodes(node, &actions, scope)?,
        actions,
        profile,
        base_next,
        direct_meter,
        default: None,
        program_default: None,
        default_is_const: false,
        default_direct: Direct::default(),
        entries: Vec::new(),
        free: BTreeSet::new(),
        by_key: FixedMap::default(),
        index: match (list, packed) {
            (true, _) => Index::Tuples(TupleSpace::default()),
            (false, true) => Index::Narrow(Vec::new()),
            (false, false) => Index::Wide(Vec::new()),
        },
        direct: Vec::new(),
    };
    if let Some(default) = node.get("default_entry").filter(|default| !default.is_null()) {
        table.program_default = Some(Target::Call(scope.call(default)?));
        table.default = table.program_default.clone();
        table.default_is_const =
            json::flag(default, "action_entry_const") || json::flag(default, "action_const");
    }
    for entry in const_entries {
        add_const_entry(entry, &mut table, scope)?;
    }
    Ok(table)
}

fn next_nodes(node: &Value, actions: &[u32], scope: &TableScope<'_>) -> Result<NextNodes> {
    let next = json::member(node, "next_tables")?;
    if let (Some(hit), Some(miss)) = (next.get("__HIT__"), next.get("__MISS__")) {
        return Ok(NextNodes::HitMiss { hit: scope.node(node, hit)?, miss: scope.node(node, miss)? });
    }
    let mut by_action = Vec::new();
    let mut seen = BTreeSet::new();
    for &action in actions {
        let name = &scope.actions[action as usize].name;
        if !seen.insert(name) {
            continue;
        }
        let next = next.get(name).ok_or_else(|| malformed(node, format!("no next table after `{name}`")))?;
        let next = scope.node(node, next)?;
        // Tables that share an action profile have their own copies of one action; a member may
        // hold any of them.
        let copies = scope.by_name.get(name.as_str()).map_or(&[][..], Vec::as_slice);
        scope.pieces.take(copies.len())?;
        by_action.extend(copies.iter().map(|&copy| (copy, next)));
    }
    Ok(NextNodes::ByAction(by_action))
}

fn add_const_entry(node: &Value, table: &mut Table, scope: &TableScope<'_>) -> Result<()> {
    let mut matches = Vec::new();
    for key in json::list(node, "match_key")? {
        matches.push(match kind(node, json::text(key, "match_type")?)? {
            MatchKind::Exact => MatchValue::Exact(hex_bytes(key, "key")?),
            MatchKind::Lpm => {
                let prefix_len = json::number(key, "prefix_length")?.min(u64::from(u16::MAX)) as u16;
                let width = table.keys.get(matches.len()).map_or(0, |key| key.slot.width);
                let value = first_bits(hex_bytes(key, "key")?, width, prefix_len.into());
                MatchValue::Lpm { value, prefix_len }
            }
            MatchKind::Ternary => {
                let mask = hex_bytes(key, "mask")?;
                let mut value = hex_bytes(key, "key")?;
                // p4c leaves bits outside the mask as the programmer wrote them.
                let skip = value.len().saturating_sub(mask.len());
                value.iter_mut().take(skip).for_each(|byte| *byte = 0);
                value.iter_mut().rev().zip(mask.iter().rev()).for_each(|(value, mask)| *value &= mask);
                MatchValue::Ternary { value, mask }
            }
            MatchKind::Range => {
                MatchValue::Range { low: hex_bytes(key, "start")?, high: hex_bytes(key, "end")? }
            }
        });
    }
    let (key, matches) = table.compile_key(&matches).map_err(|error| malformed(node, error.message))?;
    // In BMv2 the lowest number wins, in P4Runtime the highest.
    let number = node.get("priority").and_then(Value::as_i64).unwrap_or(0).clamp(0, 1 << 30) as i32;
    let priority = if table.has_priority() { i32::MAX - number } else { 0 };
    let call = scope.call(json::member(node, "action_entry")?)?;
    if table.find(&key, priority).is_some() {
        return Err(malformed(node, format!("table `{}` has the same entry twice", table.info.name)));
    }
    let action = ActionSpec::Direct(describe_call(&call, scope.actions));
    table.put(
        table.free_place(),
        Entry {
            entry: TableEntry { matches, priority, action, metadata: Vec::new() },
            key,
            target: Target::Call(call),
            direct: Direct::default(),
            is_const: true,
            idle: Idle::default(),
        },
    );
    Ok(())
}

/// A number of `width` bits without those after the first `length`: p4c leaves them as the
/// programmer wrote them.
fn first_bits(mut value: Vec<u8>, width: u32, length: u32) -> Vec<u8> {
    let mut clear = width.saturating_sub(length);
    for byte in value.iter_mut().rev() {
        let bits = clear.min(8);
        *byte &= (0xff_u16 << bits) as u8;
        clear -= bits;
    }
    value
}
