// SPDX-License-Identifier: Apache-2.0
//! ASTRA-sim's workloads as text (version 1, and its converter's): one step of training, a layer a
//! line.
//!
//! ```text
//!  DATA                                                       how layers are divided
//!  2                                                          layers
//!  conv1 -1 500 NONE 0  400 NONE 0  600 ALLREDUCE 37632 10     forward, inputs' gradient, weights' gradient: ns, collective, bytes
//!
//!  forward, first to last: compute, collective. backward, last to first: weights, whose collective nobody waits for; inputs, collective
//! ```
//!
//! All-reduces go around a ring, as in its examples. Not modelled: the time of updates, and the
//! next step, which would wait for weights.

use super::htsim::{lines, number};
use super::trace::{Maker, Operation, Row, TraceError};
use crate::sim::quantity::{Bytes, Duration};

/// Ways to divide layers in which a collective is of all hosts.
const OF_ALL: [&str; 4] = ["DATA", "MODEL", "HYBRID_DLRM", "MICRO"];
/// And those with groups: inputs within one, weights between them.
const IN_GROUPS: [&str; 2] = ["HYBRID_TRANSFORMER", "HYBRID_TRANSFORMER_FWD_IN_BCKWD"];

/// What a pass of a layer computes and sends.
struct Pass<'a> {
    ns: u64,
    collective: &'a str,
    bytes: u64,
}

/// Reads a workload into what `made` makes.
pub(super) fn astra_sim(text: &str, made: &mut Maker) -> Result<(), TraceError> {
    let mut all = lines(text);
    let none =
        || TraceError { line: 1, reason: "valid are a first line such as DATA, and layers".to_owned() };
    let (line, header) = all.next().ok_or_else(none)?;
    let group = group(&header, made.hosts).map_err(|reason| TraceError { line, reason })?;
    let (line, count) = all.next().ok_or_else(none)?;
    let promised = number(count[0], "layers").map_err(|reason| TraceError { line, reason })?;
    let mut layers = Vec::new();
    for (line, words) in all {
        layers.push((line, layer(&words).map_err(|reason| TraceError { line, reason })?));
    }
    if promised != layers.len() as u64 {
        return Err(TraceError { line, reason: format!("{promised} layers; the file has {}", layers.len()) });
    }
    let mut step = Step { made, group, after: String::new(), rows: 0 };
    let micro = header[0] == "MICRO";
    for (line, [forward, ..]) in layers.iter().filter(|_| !micro) {
        step.pass(forward, true, true).map_err(|reason| TraceError { line: *line, reason })?;
    }
    for (number, (line, [_, inputs, weights])) in layers.iter().enumerate().rev() {
        let wrong = |reason| TraceError { line: *line, reason };
        if micro {
            step.collective(weights, false).map_err(wrong)?;
            continue;
        }
        step.pass(weights, false, false).map_err(wrong)?;
        // Nobody asks for the gradient of images.
        if number > 0 {
            step.pass(inputs, true, true).map_err(wrong)?;
        }
    }
    Ok(())
}

/// Hosts of a group, which stand side by side.
fn group(header: &[&str], hosts: u32) -> Result<u32, String> {
    let value = |key: &str| {
        let at = header.iter().position(|&word| word == key);
        at.map(|at| number(header.get(at + 1).unwrap_or(&""), key)).transpose()
    };
    if OF_ALL.contains(&header[0]) {
        return Ok(hosts);
    }
    if !IN_GROUPS.contains(&header[0]) {
        return Err(format!("{}: valid are {}, {}", header[0], OF_ALL.join(", "), IN_GROUPS.join(", ")));
    }
    for (key, only) in [("ep:", 1), ("pp:", 1), ("checkpoints:", 0)] {
        if let Some(other) = value(key)?.filter(|&value| value != only) {
            return Err(format!("{key} {other}; valid is {only}"));
        }
    }
    let group = value("model_parallel_NPU_group:")?.unwrap_or_default();
    if group == 0 || !u64::from(hosts).is_multiple_of(group) {
        return Err(format!(
            "model_parallel_NPU_group: {group}; valid are parts of the topology's {hosts} hosts"
        ));
    }
    Ok(group as u32)
}

fn layer<'a>(words: &[&'a str]) -> Result<[Pass<'a>; 3], String> {
    let [_, _, forward @ ..] = words else { return Err("valid are 12 fields".to_owned()) };
    if !(10..=11).contains(&forward.len()) {
        return Err(format!("{} fields; valid are 12", words.len()));
    }
    let pass = |at: usize| -> Result<Pass<'a>, String> {
        let (ns, bytes) = (number(forward[at], "time")?, number(forward[at + 2], "bytes")?);
        Ok(Pass { ns, collective: forward[at + 1], bytes })
    };
    Ok([pass(0)?, pass(3)?, pass(6)?])
}

/// Rows so far, and the one that the next computation waits for.
struct Step<'a> {
    made: &'a mut Maker,
    group: u32,
    after: String,
    rows: usize,
}

impl Step<'_> {
    /// Computes, and sends within groups or between them; the next computation waits for what is
    /// `waited` for.
    fn pass(&mut self, pass: &Pass<'_>, within: bool, waited: bool) -> Result<(), String> {
        let hosts = format!("0-{}", self.made.hosts - 1);
        self.after = self.row(Operation::Compute, hosts, None, Some(pass.ns), self.after.clone())?;
        let ids = self.collective(pass, within)?;
        if waited && !ids.is_empty() {
            self.after = ids;
        }
        Ok(())
    }

    /// One collective a group; the ids of its rows.
    fn collective(&mut self, pass: &Pass<'_>, within: bool) -> Result<String, String> {
        let op = match pass.collective {
            "NONE" => return Ok(String::new()),
            "ALLREDUCE" => Operation::RingAllReduce,
            "ALLGATHER" => Operation::AllGather,
            "REDUCESCATTER" => Operation::ReduceScatter,
            "ALLTOALL" => Operation::AllToAll,
            other => {
                return Err(format!(
                    "{other}: valid are NONE, ALLREDUCE, ALLGATHER, REDUCESCATTER, ALLTOALL"
                ));
            }
        };
        let (all, group) = (self.made.hosts, self.group);
        let groups: Vec<String> = if within || group == all {
            (0..all).step_by(group as usize).map(|first| format!("{first}-{}", first + group - 1)).collect()
        } else {
            let numbers = |first| (first..all).step_by(group as usize).map(|host: u32| host.to_string());
            (0..group).map(|first| numbers(first).collect::<Vec<_>>().join(" ")).collect()
        };
        let mut ids = String::new();
        // A host alone has nothing to send.
        let alone = if within || group == all { group == 1 } else { all == group };
        for hosts in groups.into_iter().filter(|_| !alone) {
            ids += &self.row(op, hosts, Some(pass.bytes), None, self.after.clone())?;
            ids.push(' ');
        }
        Ok(ids)
    }

    fn row(
        &mut self,
        op: Operation,
        hosts: String,
        bytes: Option<u64>,
        ns: Option<u64>,
        after: String,
    ) -> Result<String, String> {
        let id = self.rows.to_string();
        self.rows += 1;
        let (bytes, time) = (bytes.map(Bytes), ns.map(Duration));
        self.made.add(&Row { id: id.clone(), op, hosts, bytes, time, after, priority: None })?;
        Ok(id)
    }
}
