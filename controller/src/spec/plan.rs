// SPDX-License-Identifier: Apache-2.0
//! `dscp` and `queues`.

use std::collections::BTreeSet;

use super::keys;
use crate::model::{DscpPlan, QueuePlan};
use crate::yaml::Node;
use crate::yaml::fields::{Fields, integer};
use crate::yaml::problem::{Located, Problems};

pub(super) fn read(top: &Fields<'_>, problems: &mut Problems) -> (DscpPlan, QueuePlan) {
    let (mut dscp, mut queues) = (DscpPlan::default(), QueuePlan::default());
    let dscp_line = top.node("dscp").map(|node| {
        read_dscp(node, &mut dscp, problems);
        node.line
    });
    let queues_line = top.node("queues").map(|node| {
        read_queues(node, &mut queues, problems);
        node.line
    });
    let (trimmable, droppable, classes) = (dscp.trimmable.len(), dscp.droppable.len(), queues.classes.len());
    let line = queues_line.or(dscp_line).unwrap_or(1);
    if trimmable != classes {
        let message =
            format!("{classes} classes of queues, but dscp.trimmable has {trimmable} code points; one each");
        problems.add(line, "queues.classes", message);
    }
    if droppable > classes {
        let message =
            format!("{droppable} code points, but only {classes} classes of queues (queues.classes)");
        problems.add(line, "dscp.droppable", message);
    }
    (dscp, queues)
}

fn read_dscp(node: &Node, plan: &mut DscpPlan, problems: &mut Problems) {
    // 0 is what everybody else's packets carry.
    let code_point = integer(1_u8..=63);
    let fields = Fields::of(node, "dscp", keys::DSCP, problems);
    let mut given = Vec::new();
    for (key, slot) in [("trimmable", &mut plan.trimmable), ("droppable", &mut plan.droppable)] {
        if let Some(list) = fields.list(key, problems, &code_point) {
            *slot = list.iter().map(|item| item.value).collect();
            given.extend(list);
        }
    }
    for (key, slot) in [("trimmed", &mut plan.trimmed), ("control", &mut plan.control)] {
        if let Some(value) = fields.parsed(key, problems, &code_point) {
            *slot = value.value;
            given.push(value);
        }
    }
    if let Some(value) = fields.parsed("trimmed_last_hop", problems, &code_point) {
        plan.trimmed_last_hop = Some(value.value);
        given.push(value);
    }
    let last_hop = plan.trimmed_last_hop.map(|last_hop| ("dscp.trimmed_last_hop".to_owned(), last_hop));
    let all: Vec<(String, u8)> = named_code_points(plan).into_iter().chain(last_hop).collect();
    distinct(&all, &given, "code point", problems);
}

/// Every code point of the plan but the last hop's, with its key's path.
fn named_code_points(plan: &DscpPlan) -> Vec<(String, u8)> {
    numbered("dscp.trimmable", &plan.trimmable)
        .chain(numbered("dscp.droppable", &plan.droppable))
        .chain([("dscp.trimmed".to_owned(), plan.trimmed), ("dscp.control".to_owned(), plan.control)])
        .collect()
}

/// A code point for trimmed packets of some ports: not one that means something else.
pub(super) fn trimmed_code_point(plan: &DscpPlan) -> impl Fn(&str) -> Result<u8, String> {
    move |text| {
        let code_point = integer(1_u8..=63)(text)?;
        let taken = named_code_points(plan)
            .into_iter()
            .find(|(path, value)| *value == code_point && path != "dscp.trimmed");
        match taken {
            Some((path, _)) => Err(format!(
                "code point {code_point} is also {path}'s, and trimmed packets would be taken for such"
            )),
            None => Ok(code_point),
        }
    }
}

fn read_queues(node: &Node, plan: &mut QueuePlan, problems: &mut Problems) {
    let queue = integer(0_u8..=7);
    let fields = Fields::of(node, "queues", keys::QUEUES, problems);
    let mut given = Vec::new();
    if let Some(list) = fields.list("classes", problems, &queue) {
        plan.classes = list.iter().map(|item| item.value).collect();
        if list.is_empty() {
            problems.add(fields.line, "queues.classes", "at least one class is needed");
        }
        given.extend(list);
    }
    for (key, slot) in [
        ("control", &mut plan.control),
        ("trimmed", &mut plan.trimmed),
        ("best_effort", &mut plan.best_effort),
    ] {
        if let Some(value) = fields.parsed(key, problems, &queue) {
            *slot = value.value;
            given.push(value);
        }
    }
    let all: Vec<(String, u8)> = numbered("queues.classes", &plan.classes)
        .chain([
            ("queues.control".to_owned(), plan.control),
            ("queues.trimmed".to_owned(), plan.trimmed),
            ("queues.best_effort".to_owned(), plan.best_effort),
        ])
        .collect();
    distinct(&all, &given, "queue", problems);
}

fn numbered<'l>(path: &'l str, list: &'l [u8]) -> impl Iterator<Item = (String, u8)> + 'l {
    list.iter().enumerate().map(move |(position, value)| (format!("{path}[{position}]"), *value))
}

/// `all` includes defaults; only what the file gives can be at fault.
fn distinct(all: &[(String, u8)], given: &[Located<u8>], what: &str, problems: &mut Problems) {
    let mut reported: BTreeSet<(&str, &str)> = BTreeSet::new();
    for item in given {
        for (other, value) in all {
            if *value != item.value || *other == item.path {
                continue;
            }
            // Of two given ones the later is reported, once.
            let pair = (item.path.as_str().min(other), item.path.as_str().max(other));
            let earlier =
                given.iter().find(|found| found.path == *other).is_some_and(|found| found.line > item.line);
            if !earlier && reported.insert(pair) {
                let message = format!("{what} {value} is also {other}'s; each use needs its own");
                problems.add(item.line, &item.path, message);
            }
        }
    }
}
