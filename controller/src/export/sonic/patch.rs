// SPDX-License-Identifier: Apache-2.0
//! The way from what a switch has to what it is to have, as a JSON patch (RFC 6902) for `config
//! apply-patch`.
//!
//! Rows of ours are added or replaced. Of the switch's own, that goes which would stand beside ours
//! and contradict it: ranges of queues that hold one of ours (the rest of a range is written
//! again), WRED profiles that drop before the point of trimming, and PFC in queues that are to
//! trim.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::present::Present;
use super::{ConfigDb, Field};

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PatchOperation {
    /// `add`, `remove` or `replace`.
    pub op: &'static str,
    /// JSON pointer (RFC 6901): `/TABLE/key/field`.
    pub path: String,
    /// What to put there; nothing for `remove`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<serde_json::Value>,
}

/// What the patch is about, beside the rows that are wanted.
pub(super) struct Scope<'s> {
    /// SONiC's names of our ports, with the numbers of all our queues there.
    pub(super) queues: BTreeMap<&'s str, BTreeSet<u8>>,
    /// Of the queues, those in which packets are trimmed or that hold trimmed ones.
    pub(super) trims: BTreeSet<u8>,
}

fn operation(op: &'static str, path: &[&str], value: Option<&impl Serialize>) -> PatchOperation {
    let escaped = path.iter().map(|part| part.replace('~', "~0").replace('/', "~1"));
    let path = escaped.fold(String::new(), |path, part| path + "/" + &part);
    PatchOperation { op, path, value: value.and_then(|value| serde_json::to_value(value).ok()) }
}

/// No value.
const NOTHING: Option<&Field> = None;
/// Tables by port and queue in which the switch may have ranges.
const BY_QUEUE: [&str; 2] = ["BUFFER_QUEUE", "QUEUE"];
/// Lists of priorities with PFC, and with its watchdog.
const PFC: [&str; 2] = ["pfc_enable", "pfcwd_sw_enable"];

/// From `present` to where `wanted` holds. Applied to the result, it is empty.
pub(super) fn patch(present: &Present, wanted: &ConfigDb, scope: &Scope<'_>) -> Vec<PatchOperation> {
    let mut operations = Vec::new();
    let mut now = present.clone();
    for table in BY_QUEUE {
        split_ranges(table, &mut now, scope, &mut operations);
    }
    for (port, queues) in &scope.queues {
        for queue in queues.intersection(&scope.trims) {
            let key = format!("{port}|{queue}");
            let is_wanted = |table: &str, field: &str| {
                wanted.get(table).and_then(|rows| rows.get(&key)).is_some_and(|row| row.contains_key(field))
            };
            if !is_wanted("QUEUE", "wred_profile") {
                remove_field(&mut now, ("QUEUE", &key, "wred_profile"), &mut operations);
            }
        }
        for field in PFC {
            keep_priorities(&mut now, port, field, queues, &mut operations);
        }
    }
    for (table, rows) in wanted {
        let Some(have) = now.0.get(table) else {
            operations.push(operation("add", &[table], Some(rows)));
            continue;
        };
        for (key, row) in rows {
            match have.get(key) {
                None => operations.push(operation("add", &[table, key], Some(row))),
                // A row that we made earlier holds nothing else.
                Some(old) if is_ours(key) && old != row => {
                    operations.push(operation("replace", &[table, key], Some(row)));
                }
                Some(old) => {
                    for (field, value) in row.iter().filter(|(field, value)| old.get(*field) != Some(*value))
                    {
                        let op = if old.contains_key(field) { "replace" } else { "add" };
                        operations.push(operation(op, &[table, key, field], Some(value)));
                    }
                }
            }
        }
    }
    operations
}

fn is_ours(key: &str) -> bool {
    key.to_ascii_lowercase().starts_with("trimwire")
}

/// Takes rows apart that are about one of our queues and about something else too.
fn split_ranges(table: &str, now: &mut Present, scope: &Scope<'_>, operations: &mut Vec<PatchOperation>) {
    let ranges: Vec<(String, BTreeSet<String>, BTreeSet<u8>)> = now
        .by_queue(table)
        .into_iter()
        .filter(|(_, ports, queues)| ports.len() > 1 || queues.len() > 1)
        .map(|(key, ports, queues)| (key.clone(), ports, queues))
        .collect();
    for (key, ports, queues) in ranges {
        let ours = |port: &str| scope.queues.get(port).is_some_and(|own| !own.is_disjoint(&queues));
        if !ports.iter().any(|port| ours(port)) {
            continue;
        }
        let Some(row) = now.0.get_mut(table).and_then(|rows| rows.remove(&key)) else { continue };
        operations.push(operation("remove", &[table, &key], NOTHING));
        for port in &ports {
            for queue in &queues {
                // What is ours comes with the rest of what is wanted.
                if scope.queues.get(port.as_str()).is_some_and(|own| own.contains(queue)) {
                    continue;
                }
                let key = format!("{port}|{queue}");
                operations.push(operation("add", &[table, &key], Some(&row)));
                now.0.entry(table.to_owned()).or_default().insert(key, row.clone());
            }
        }
    }
}

fn remove_field(
    now: &mut Present,
    (table, key, field): (&str, &str, &str),
    operations: &mut Vec<PatchOperation>,
) {
    if now.0.get_mut(table).and_then(|rows| rows.get_mut(key)).is_some_and(|row| row.remove(field).is_some())
    {
        operations.push(operation("remove", &[table, key, field], NOTHING));
    }
}

/// Takes our queues out of a list of priorities; an empty list is no list.
fn keep_priorities(
    now: &mut Present,
    port: &str,
    field: &str,
    ours: &BTreeSet<u8>,
    operations: &mut Vec<PatchOperation>,
) {
    let Some(list) = now.text("PORT_QOS_MAP", port, field) else { return };
    let is_ours = |queue: &str| queue.trim().parse().is_ok_and(|queue: u8| ours.contains(&queue));
    let kept: Vec<&str> = list.split(',').filter(|queue| !is_ours(queue)).collect();
    if kept.len() == list.split(',').count() {
        return;
    }
    if kept.is_empty() {
        remove_field(now, ("PORT_QOS_MAP", port, field), operations);
    } else {
        let value = Field::Text(kept.join(","));
        operations.push(operation("replace", &["PORT_QOS_MAP", port, field], Some(&value)));
        if let Some(row) = now.0.get_mut("PORT_QOS_MAP").and_then(|rows| rows.get_mut(port)) {
            row.insert(field.to_owned(), value);
        }
    }
}
