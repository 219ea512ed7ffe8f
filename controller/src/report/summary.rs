// SPDX-License-Identifier: Apache-2.0
//! A plan for people: what changes, what is alike in one line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{ChangeReport, ParameterChange, PipelineState, Plan, SwitchPlan};
use crate::reconcile::Operation;
use crate::units;

/// Lines of a summary; a screen has a little more.
const MOST_LINES: usize = 16;
/// Names in a list.
const MOST_NAMES: usize = 6;

/// Changes that do the same to the same table.
#[derive(Default)]
struct Group<'p> {
    entries: usize,
    /// What entries are for, without where.
    kinds: BTreeSet<&'p str>,
    /// By switch; without ports where it is not about one.
    places: BTreeMap<&'p str, BTreeSet<u16>>,
}

type Key<'p> = (&'p str, Operation, &'p [ParameterChange]);

pub(super) fn write(f: &mut fmt::Formatter<'_>, plan: &Plan) -> fmt::Result {
    for step in &plan.manual_steps {
        writeln!(f, "by hand: {step}")?;
    }
    for switch in &plan.switches {
        if let Some(error) = &switch.error {
            writeln!(f, "{} ({}): unreachable: {error}", switch.switch, switch.address)?;
        }
        for warning in &switch.warnings {
            writeln!(f, "{} ({}): warning: {warning}", switch.switch, switch.address)?;
        }
    }
    let reached = || plan.switches.iter().filter(|switch| switch.error.is_none());
    let mut pushes: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for switch in reached().filter(|switch| switch.pipeline != PipelineState::Same) {
        pushes.entry(switch.pipeline.to_string()).or_default().push(&switch.switch);
    }
    for (pipeline, switches) in pushes {
        writeln!(f, "push the pipeline (it runs: {pipeline}): {}", names(&switches))?;
    }
    let groups = groups(reached());
    for ((table, operation, parameters), group) in groups.iter().take(MOST_LINES) {
        writeln!(f, "{}", line(table, *operation, parameters, group))?;
    }
    if let Some(more @ 1..) = groups.len().checked_sub(MOST_LINES) {
        writeln!(f, "… and {more} more kinds of changes; --verbose shows every entry")?;
    }
    let changed = plan.switches.iter().filter(|switch| switch.changes()).count();
    let unreachable: Vec<&str> =
        plan.switches.iter().filter(|switch| switch.error.is_some()).map(|s| s.switch.as_str()).collect();
    write!(f, "{changed} of {} switches would change", plan.switches.len())?;
    if !unreachable.is_empty() {
        write!(f, "; unreachable: {}", names(&unreachable))?;
    }
    f.write_str("; nothing was changed")
}

/// The largest first.
fn groups<'p>(switches: impl Iterator<Item = &'p SwitchPlan>) -> Vec<(Key<'p>, Group<'p>)> {
    let mut groups: BTreeMap<Key<'p>, Group<'p>> = BTreeMap::new();
    for switch in switches {
        for change in &switch.changes {
            let (port, kind) = place(&switch.switch, change);
            let key = (change.table.as_str(), change.operation, change.parameters.as_slice());
            let group = groups.entry(key).or_default();
            group.entries += 1;
            group.kinds.insert(kind);
            group.places.entry(&switch.switch).or_default().extend(port);
        }
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.entries));
    groups
}

/// `leaf1:3 class0 important` is port 3 and `class0 important`.
fn place<'p>(switch: &str, change: &'p ChangeReport) -> (Option<u16>, &'p str) {
    let behind = change.purpose.strip_prefix(switch).and_then(|text| text.strip_prefix(':'));
    let parts = behind.and_then(|text| text.split_once(' '));
    match parts.and_then(|(port, kind)| Some((port.parse().ok()?, kind))) {
        Some((port, kind)) => (Some(port), kind),
        None => (None, &change.purpose),
    }
}

fn line(table: &str, operation: Operation, parameters: &[ParameterChange], group: &Group<'_>) -> String {
    let Group { entries, kinds, places } = group;
    let entries = if *entries == 1 { "1 entry".to_owned() } else { format!("{entries} entries") };
    let what = match (operation, parameters) {
        (Operation::Insert, _) => format!("+ {table}: {entries}"),
        (Operation::Delete, _) => format!("- {table}: {entries}"),
        (Operation::Modify, []) => format!("~ {table}: {entries}"),
        (Operation::Modify, parameters) => {
            let parameters: Vec<String> = parameters.iter().map(ToString::to_string).collect();
            format!("~ {table}: {}, {entries}", parameters.join(", "))
        }
    };
    let ports: usize = places.values().map(BTreeSet::len).sum();
    let where_ = if places.len() <= MOST_NAMES / 2 {
        let one = |(switch, ports): (&&str, &BTreeSet<u16>)| {
            if ports.is_empty() { (*switch).to_owned() } else { format!("{switch}:{}", units::ranges(ports)) }
        };
        places.iter().map(one).collect::<Vec<_>>().join(" ")
    } else if ports == 0 {
        format!("{} switches", places.len())
    } else {
        format!("{ports} ports of {} switches", places.len())
    };
    let kinds: Vec<&str> = kinds.iter().copied().collect();
    format!("{what} on {where_} ({})", names(&kinds))
}

/// The first few of many names.
pub(super) fn names(names: &[&str]) -> String {
    let more = names.len().saturating_sub(MOST_NAMES);
    let shown = names.get(..names.len() - more).unwrap_or_default().join(", ");
    if more > 0 { format!("{shown} and {more} more") } else { shown }
}
