// SPDX-License-Identifier: Apache-2.0
//! `policy`: thresholds and trim sizes, in sections from general to particular.

use std::collections::BTreeMap;

use super::keys;
use super::network::Network;
use super::plan::trimmed_code_point;
use crate::model::{DscpPlan, End, Overload, QueuePlan};
use crate::units::{self, Threshold, TrimSize};
use crate::yaml::Node;
use crate::yaml::fields::{Fields, entries, join, switched};
use crate::yaml::problem::{Located, Problems, hint};

/// The four thresholds, in the order in which they have to stand.
pub(crate) const THRESHOLDS: [&str; 4] = ["mark_at", "shallow_at", "deep_at", "drop_at"];

/// What one mapping of the file sets. `thresholds[i]` is [`THRESHOLDS`]`[i]`.
#[derive(Debug, Clone, Default)]
pub(crate) struct PolicySection {
    pub thresholds: [Option<Located<Threshold>>; 4],
    pub shallow_size: Option<Located<TrimSize>>,
    pub deep_size: Option<Located<TrimSize>>,
    pub trim_limit: Option<Located<Threshold>>,
    /// Millionths of the line rate; `None` is `never`.
    pub trim_cap: Option<Located<Option<u32>>>,
    pub trimmed_dscp: Option<Located<u8>>,
    /// `less_important`, `important`: the index is the table's key.
    pub importance: [[Option<Located<Threshold>>; 4]; 2],
    /// By queue number.
    pub queues: BTreeMap<u8, PolicySection>,
}

/// The whole section.
#[derive(Debug)]
pub(crate) struct PolicySpec {
    pub overload: Overload,
    pub sealed: bool,
    pub mark_trimmable: bool,
    pub general: PolicySection,
    /// By switch and port.
    pub ports: BTreeMap<(String, u16), PolicySection>,
}

pub(super) fn read(
    top: &Fields<'_>,
    network: &Network,
    (dscp, queues): (&DscpPlan, &QueuePlan),
    problems: &mut Problems,
) -> PolicySpec {
    let mut spec = PolicySpec {
        overload: Overload::Trim,
        sealed: false,
        mark_trimmable: false,
        general: PolicySection::default(),
        ports: BTreeMap::new(),
    };
    let Some(node) = top.node("policy") else { return spec };
    let fields = Fields::of(node, "policy", keys::POLICY, problems);
    let trim = fields.parsed("trim", problems, switched).is_none_or(|trim| trim.value);
    let selective = fields.parsed("selective_drop", problems, switched);
    spec.overload = match (trim, &selective) {
        (true, Some(Located { value: false, line, path, .. })) => {
            let message = "cannot be off while trim is on: what may be trimmed and what may be dropped share shallow_at";
            problems.add(*line, path, message);
            Overload::Trim
        }
        (true, _) => Overload::Trim,
        (false, Some(Located { value: true, .. })) => Overload::SelectiveDrop,
        (false, _) => Overload::DropTail,
    };
    spec.sealed = fields.parsed("sealed", problems, switched).is_some_and(|sealed| sealed.value);
    spec.mark_trimmable = fields.parsed("mark_trimmable", problems, switched).is_some_and(|mark| mark.value);
    spec.general = section(&fields, dscp, queues, problems);
    if let Some(node) = fields.node("ports") {
        for (name, line, node) in entries(node, "policy.ports", problems) {
            let path = join("policy.ports", name);
            let linked =
                |(switch, port): &(String, u16)| network.ends.contains(&End::Port(switch.clone(), *port));
            let port = name.rsplit_once(':').and_then(|(switch, port)| {
                // One spelling for each port, so that doubled keys show.
                let number: u16 = port.parse().ok().filter(|number: &u16| number.to_string() == port)?;
                Some((switch.to_owned(), number))
            });
            if let Some(port) = port.filter(linked) {
                let fields = Fields::of(node, &path, keys::PORT_POLICY, problems);
                let section = section(&fields, dscp, queues, problems);
                spec.ports.insert(port, section);
            } else if !network.unknown {
                let ends = network.ends.iter().filter(|end| matches!(end, End::Port(..)));
                let ports: Vec<String> = ends.map(ToString::to_string).collect();
                problems.add(line, path, format!("no link ends at port '{name}'{}", hint(name, &ports)));
            }
        }
    }
    spec
}

/// Reads what a mapping of `policy`, of a port, or of a queue has in common; what a mapping may not
/// have is no key of it.
fn section(
    fields: &Fields<'_>,
    dscp: &DscpPlan,
    queues: &QueuePlan,
    problems: &mut Problems,
) -> PolicySection {
    let mut section = PolicySection {
        thresholds: thresholds(fields, problems),
        shallow_size: fields.parsed("shallow_size", problems, TrimSize::parse),
        deep_size: fields.parsed("deep_size", problems, TrimSize::parse),
        trim_limit: fields.parsed("trim_limit", problems, Threshold::parse),
        trim_cap: fields.parsed("trim_cap", problems, |text| match text.trim() {
            "never" => Ok(None),
            share => units::share(share).map(Some),
        }),
        trimmed_dscp: fields.parsed("trimmed_dscp", problems, trimmed_code_point(dscp)),
        ..PolicySection::default()
    };
    for (key, slot) in ["less_important", "important"].into_iter().zip(&mut section.importance) {
        if let Some(node) = fields.node(key) {
            *slot = thresholds(&Fields::of(node, &fields.path(key), keys::THRESHOLDS, problems), problems);
        }
    }
    if let Some(node) = fields.node("queues") {
        section.queues = by_queue(node, &fields.path("queues"), dscp, queues, problems);
    }
    section
}

fn thresholds(fields: &Fields<'_>, problems: &mut Problems) -> [Option<Located<Threshold>>; 4] {
    THRESHOLDS.map(|key| fields.parsed(key, problems, Threshold::parse))
}

fn by_queue(
    node: &Node,
    path: &str,
    dscp: &DscpPlan,
    queues: &QueuePlan,
    problems: &mut Problems,
) -> BTreeMap<u8, PolicySection> {
    let named = queues.named();
    let mut sections = BTreeMap::new();
    for (name, line, node) in entries(node, path, problems) {
        let path = join(path, name);
        match named.iter().find(|(known, _)| known == name) {
            Some((_, queue)) if *queue == queues.trimmed => {
                problems.add(line, path, "the trim queue has one limit: write trim_limit beside 'queues'");
            }
            Some((_, queue)) => {
                let fields = Fields::of(node, &path, keys::QUEUE_POLICY, problems);
                sections.insert(*queue, section(&fields, dscp, queues, problems));
            }
            None => {
                let valid: Vec<&str> = named
                    .iter()
                    .filter(|(_, queue)| *queue != queues.trimmed)
                    .map(|(name, _)| name.as_str())
                    .collect();
                problems.add(line, path, format!("unknown queue{}", hint(name, &valid)));
            }
        }
    }
    sections
}
