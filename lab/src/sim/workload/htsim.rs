// SPDX-License-Identifier: Apache-2.0
//! htsim's connection matrices (`.cm`): `0->15 start 0 size 2000000`, times in ps.
//!
//! A flow with a `trigger` begins when those that fire it have arrived, by either `done_trigger`.
//! It has to begin where they end: no host here knows of what arrives elsewhere.

use super::order::order;
use super::trace::{Maker, TraceError};
use super::{Begin, Demand};
use std::collections::BTreeMap;

#[derive(Default)]
struct Connection {
    line: u64,
    source: u32,
    destination: u32,
    bytes: u64,
    start_ns: Option<u64>,
    trigger: Option<u64>,
}

/// Reads a matrix into what `made` makes.
pub(super) fn htsim(text: &str, made: &mut Maker) -> Result<(), TraceError> {
    let mut flows: Vec<Connection> = Vec::new();
    // By trigger, who fires it, and how many have to.
    let (mut fired, mut counts) = (BTreeMap::<u64, Vec<usize>>::new(), BTreeMap::new());
    for (line, words) in lines(text) {
        let wrong = |reason: String| TraceError { line, reason };
        match &words[..] {
            ["Nodes", count] if count.parse().is_ok_and(|count: u32| count > made.hosts) => {
                return Err(wrong(format!("Nodes {count}; the topology has {} hosts", made.hosts)));
            }
            ["Nodes" | "Connections" | "Triggers" | "Failures", _] => {}
            ["trigger", "id", id, kind @ ("oneshot" | "multishot")] => {
                counts.insert(number(id, "id").map_err(wrong)?, (line, *kind, 1));
            }
            ["trigger", "id", id, "barrier", "count", count]
            | ["trigger", "id", id, "count", count, "barrier"] => {
                let count = number(count, "count").map_err(wrong)?;
                counts.insert(number(id, "id").map_err(wrong)?, (line, "barrier", count as usize));
            }
            [ends, rest @ ..] if ends.contains("->") => {
                let (flow, fires) = connection(line, ends, rest, made.hosts).map_err(wrong)?;
                fires.into_iter().for_each(|id| fired.entry(id).or_default().push(flows.len()));
                flows.push(flow);
            }
            _ => {
                return Err(wrong(format!(
                    "{}: valid are Nodes, Connections, Triggers, a->b start PS size BYTES, and trigger id N \
                     oneshot, multishot or barrier count N",
                    words[0]
                )));
            }
        }
    }
    let mut waits = Vec::new();
    for flow in &flows {
        let before = match flow.trigger {
            Some(id) => before(flow, id, &flows, fired.get(&id), counts.get(&id))?,
            None => Vec::new(),
        };
        waits.push(before);
    }
    let order = order(&waits).map_err(|at| TraceError {
        line: flows[at].line,
        reason: "this waits, in the end, for itself".to_owned(),
    })?;
    let mut places = vec![0; flows.len()];
    for number in order {
        let flow = &flows[number];
        let refuse = |reason| TraceError { line: flow.line, reason };
        let place = made.flow(flow.source, flow.destination, flow.bytes, None).map_err(refuse)?;
        let begin = flow.start_ns.map_or(Begin::Later(0), Begin::At);
        let after = waits[number].iter().map(|&before| places[before]).collect();
        let demand = &mut made.demands[place as usize];
        *demand = Demand { begin, after, ..demand.clone() };
        places[number] = place;
    }
    Ok(())
}

/// The flows that fire a trigger, all of which have to.
fn before(
    flow: &Connection,
    id: u64,
    flows: &[Connection],
    fired: Option<&Vec<usize>>,
    count: Option<&(u64, &str, usize)>,
) -> Result<Vec<usize>, TraceError> {
    let Some((line, kind, count)) = count else {
        return Err(TraceError { line: flow.line, reason: format!("trigger {id}: no line says what it is") });
    };
    let fired = fired.cloned().unwrap_or_default();
    if fired.len() != *count {
        let reason = format!("trigger {id}: {} flows fire it; valid for this {kind} is {count}", fired.len());
        return Err(TraceError { line: *line, reason });
    }
    if let Some(other) = fired.iter().map(|&at| &flows[at]).find(|other| other.destination != flow.source) {
        let reason = format!(
            "trigger {id}: host {} waits for what ends at host {}, in line {}; valid is what ends where the \
             flow begins",
            flow.source, other.destination, other.line
        );
        return Err(TraceError { line: flow.line, reason });
    }
    Ok(fired)
}

/// A connection, and the triggers that it fires.
fn connection(line: u64, ends: &str, words: &[&str], hosts: u32) -> Result<(Connection, Vec<u64>), String> {
    let (from, to) = ends.split_once("->").unwrap_or_default();
    let host = |word: &str| word.parse().ok().filter(|&host: &u32| host < hosts);
    let (Some(source), Some(destination)) = (host(from), host(to)) else {
        return Err(format!("{ends}: valid are hosts 0 to {}", hosts.saturating_sub(1)));
    };
    if source == destination {
        return Err(format!("{ends}: valid are two hosts"));
    }
    let mut made = Connection { line, source, destination, ..Connection::default() };
    let mut fires = Vec::new();
    for pair in words.chunks(2) {
        let value = pair.get(1).copied().unwrap_or_default();
        match pair[0] {
            "start" => {
                let ps: f64 =
                    value.parse().map_err(|_| format!("start: '{value}'; valid is a time in ps"))?;
                made.start_ns = Some(ps.clamp(0.0, 9e18) as u64 / 1_000);
            }
            "size" => made.bytes = number(value, "size")?,
            "trigger" => made.trigger = Some(number(value, "trigger")?),
            "send_done_trigger" | "recv_done_trigger" => fires.push(number(value, pair[0])?),
            "id" | "prio" => drop(number(value, pair[0])?),
            other => {
                return Err(format!(
                    "{other}: valid are id, start, size, trigger, send_done_trigger, recv_done_trigger, prio"
                ));
            }
        }
    }
    if made.bytes == 0 {
        return Err("size: 0; valid are 1 and more: flows here have an end".to_owned());
    }
    if made.start_ns.is_some() == made.trigger.is_some() {
        return Err(format!("{ends}: valid is either start or trigger"));
    }
    Ok((made, fires))
}

/// Lines with words, by their numbers; # begins a comment.
pub(super) fn lines(text: &str) -> impl Iterator<Item = (u64, Vec<&str>)> {
    let words = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let words = words.map(|line| line.split_whitespace().collect::<Vec<&str>>());
    (1..).zip(words).filter(|(_, words)| !words.is_empty())
}

/// A whole number.
pub(super) fn number(word: &str, what: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("{what}: '{word}'; valid is a whole number"))
}
