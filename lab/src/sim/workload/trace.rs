// SPDX-License-Identifier: Apache-2.0
//! A job that somebody brings: computations, messages and collectives that wait for each other, a
//! row of a CSV file each.
//!
//! ```text
//!  row, at each of its hosts: what it waits for has ended there ─► it computes, or sends ─► it ends there, or where its messages arrive
//! ```
//!
//! Collectives become the flows of the agent's direct algorithm, or of a ring.

use super::{Begin, Demand};
use crate::sim::quantity::{Bytes, Duration};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;

/// A file that is no trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct TraceError {
    /// From 1, the header's.
    pub line: u64,
    /// What is wrong, and what is valid.
    pub reason: String,
}

/// Priorities of flows at most, one below control packets'.
const MOST_PRIORITY: u8 = 6;
/// Flows and computations of one trace at most, and what all of them wait for together.
const MOST_DEMANDS: usize = 4_000_000;
const MOST_WAITS: usize = 1 << 26;
/// Time that all computations together may take, ns: a hundred days.
const MOST_NS: u64 = 9_000_000_000_000_000;

/// What a row does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Operation {
    /// Each host computes for `time`.
    Compute,
    /// The first half of the hosts sends to the second half, one to one.
    Send,
    /// The first host sends to each other one.
    Broadcast,
    /// Each host sends each other one its part of `bytes`.
    AllToAll,
    /// Likewise: each host's part of the sum goes to it.
    ReduceScatter,
    /// Each host sends its part of `bytes` to each other one.
    AllGather,
    /// Reduce-scatter, and then all-gather.
    AllReduce,
    /// All-reduce around the hosts, in their order.
    RingAllReduce,
}

impl Operation {
    /// Flows, computations and meeting points that a row of so many hosts makes at most.
    fn most_demands(self, hosts: usize) -> usize {
        let pairs = hosts.saturating_mul(hosts);
        match self {
            Self::Compute | Self::Send | Self::Broadcast => 2 * hosts,
            Self::AllToAll | Self::ReduceScatter | Self::AllGather => pairs + hosts,
            Self::AllReduce => 2 * pairs + hosts,
            // Each step's flows, and where each meets what its host began with.
            Self::RingAllReduce => 4 * pairs + hosts,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Compute => "compute",
            Self::Send => "send",
            Self::Broadcast => "broadcast",
            Self::AllToAll => "all-to-all",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllGather => "all-gather",
            Self::AllReduce => "all-reduce",
            Self::RingAllReduce => "ring-all-reduce",
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Row {
    pub(super) id: String,
    pub(super) op: Operation,
    pub(super) hosts: String,
    pub(super) bytes: Option<Bytes>,
    pub(super) time: Option<Duration>,
    #[serde(default)]
    pub(super) after: String,
    #[serde(default)]
    pub(super) priority: Option<u8>,
}

/// Columns of a row, those first that every file has.
const COLUMNS: [&str; 7] = ["id", "op", "hosts", "bytes", "time", "after", "priority"];
const NEEDED: usize = 3;

/// The line of a record that the reader finds from `position` on: comments and empty lines before
/// it count.
fn line_of(text: &str, position: Option<&csv::Position>) -> u64 {
    let from = position.map_or(1, csv::Position::line).max(1);
    let before = text.lines().skip(from as usize - 1);
    from + before.take_while(|line| line.is_empty() || line.starts_with('#')).count() as u64
}

/// Checks the names of columns.
fn check_header(text: &str, header: &csv::StringRecord) -> Result<(), TraceError> {
    let line = line_of(text, header.position());
    let refuse = |reason| Err(TraceError { line, reason });
    if let Some(unknown) = header.iter().find(|name| !COLUMNS.contains(name)) {
        return refuse(format!("{unknown}: there is no such column; valid are {}", COLUMNS.join(", ")));
    }
    for (at, name) in COLUMNS.iter().enumerate() {
        match header.iter().filter(|other| other == name).count() {
            0 if at < NEEDED => return refuse(format!("{name}: this column is missing")),
            0 | 1 => {}
            _ => return refuse(format!("{name}: this column is there twice")),
        }
    }
    Ok(())
}

/// Reads rows into what `made` makes.
///
/// Columns: `id`; `op`; `hosts`, such as `0-3 8`; `bytes`, of a host's whole buffer; `time`, that a
/// computation takes, or from the end of what a message waits for until it is sent; `after`, ids of
/// earlier rows, of each of which a host waits for what ends at it; `priority`, 0 to 6 (optional).
/// Lines that begin with # are comments.
pub(super) fn rows(text: &str, made: &mut Maker) -> Result<(), TraceError> {
    let mut reader =
        csv::ReaderBuilder::new().comment(Some(b'#')).trim(csv::Trim::All).from_reader(text.as_bytes());
    let headers = reader.headers().map_err(|error| refused(text, &error))?.clone();
    check_header(text, &headers)?;
    for record in reader.records() {
        let record = record.map_err(|error| refused(text, &error))?;
        let row: Row = record.deserialize(Some(&headers)).map_err(|error| refused(text, &error))?;
        made.add(&row).map_err(|reason| TraceError {
            line: line_of(text, record.position()),
            reason: format!("{}: {reason}", row.id),
        })?;
    }
    Ok(())
}

/// An error of the reader, with its line where it has one.
fn refused(text: &str, error: &csv::Error) -> TraceError {
    let line = line_of(text, error.position());
    let reason = match error.kind() {
        csv::ErrorKind::Deserialize { err, .. } => err.kind().to_string(),
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("{len} fields; the header has {expected_len}")
        }
        _ => error.to_string(),
    };
    TraceError { line, reason }
}

/// Where rows end: by id, then by host, the number of what is over last there.
type Ends = BTreeMap<String, BTreeMap<u32, u32>>;

/// What a trace comes to, for a network of so many hosts; every message has so many times fewer
/// bytes, at least 1.
pub(super) struct Maker {
    pub(super) demands: Vec<Demand>,
    ends: Ends,
    waits: usize,
    computes_ns: u64,
    pub(super) hosts: u32,
    pub(super) compression: f64,
}

/// A row's flows, of one kind.
struct Flows {
    bytes: u64,
    begin: Begin,
    priority: u8,
}

impl Maker {
    pub(super) fn new(hosts: u32, compression: f64) -> Self {
        Self { demands: Vec::new(), ends: BTreeMap::new(), waits: 0, computes_ns: 0, hosts, compression }
    }

    pub(super) fn add(&mut self, row: &Row) -> Result<(), String> {
        if row.id.is_empty() || self.ends.contains_key(&row.id) {
            return Err("valid are ids that no row before has".to_owned());
        }
        let hosts = host_numbers(&row.hosts, self.hosts)?;
        let flows = self.flows(row, hosts.len())?;
        // Before any is made: a row of many hosts has the square of them.
        let made = row.op.most_demands(hosts.len());
        if self.demands.len().saturating_add(made) > MOST_DEMANDS {
            return Err(format!(
                "{} of {} hosts makes more than {MOST_DEMANDS} flows and computations, with the rows before",
                row.op,
                hosts.len()
            ));
        }
        let begins = self.begins(row, &hosts)?;
        let ends = match row.op {
            Operation::Compute => {
                let time = row.time.ok_or("time: there is none; compute needs it")?;
                let ends =
                    hosts.iter().map(|&host| Ok((host, self.compute(host, time.0, begins.get(&host))?)));
                ends.collect::<Result<_, String>>()?
            }
            Operation::Send => {
                let (from, to) = hosts.split_at(hosts.len() / 2);
                if from.len() != to.len() {
                    return Err(format!("hosts: {}; send needs as many receivers as senders", hosts.len()));
                }
                let pairs = from.iter().copied().zip(to.iter().copied());
                self.send(pairs, &flows, &begins)
            }
            Operation::Broadcast => {
                let (root, others) = (hosts[0], hosts.iter().copied().skip(1));
                self.send(others.map(|other| (root, other)), &flows, &begins)
            }
            Operation::AllToAll | Operation::ReduceScatter | Operation::AllGather => {
                self.send(pairs(&hosts), &flows, &begins)
            }
            Operation::AllReduce => {
                let scattered = self.send(pairs(&hosts), &flows, &begins);
                self.send(pairs(&hosts), &Flows { begin: Begin::Later(0), ..flows }, &scattered)
            }
            Operation::RingAllReduce => {
                let mut held = begins;
                for step in 0..2 * (hosts.len() - 1) {
                    let begin = if step == 0 { flows.begin } else { Begin::Later(0) };
                    let next = hosts.iter().cycle().skip(1);
                    let around = hosts.iter().copied().zip(next.copied());
                    held = self.send(around, &Flows { begin, ..flows }, &held);
                }
                held
            }
        };
        self.ends.insert(row.id.clone(), ends);
        Ok(())
    }

    /// By host, the meeting point of what it waits for.
    fn begins(&mut self, row: &Row, hosts: &[u32]) -> Result<BTreeMap<u32, u32>, String> {
        let mut waits: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for id in row.after.split_whitespace() {
            let ends = self.ends.get(id).ok_or_else(|| format!("after: {id} is no row before this one"))?;
            let here: Vec<(u32, u32)> =
                hosts.iter().filter_map(|host| Some((*host, *ends.get(host)?))).collect();
            if here.is_empty() {
                let at: Vec<String> = ends.keys().take(4).map(u32::to_string).collect();
                return Err(format!("after: {id} ends at none of these hosts, but at {}", at.join(", ")));
            }
            self.waits += here.len();
            if self.waits > MOST_WAITS {
                return Err(format!(
                    "after: hosts wait for more than {MOST_WAITS} ends, with the rows before"
                ));
            }
            here.into_iter().for_each(|(host, end)| waits.entry(host).or_default().push(end));
        }
        Ok(waits.into_iter().map(|(host, after)| (host, self.meet(host, after))).collect())
    }

    fn flows(&self, row: &Row, hosts: usize) -> Result<Flows, String> {
        let priority = row.priority.unwrap_or(0);
        if priority > MOST_PRIORITY {
            return Err(format!("priority: {priority}; valid are 0 to {MOST_PRIORITY}"));
        }
        let begin = Begin::Later(row.time.map_or(0, |time| time.0));
        if row.op == Operation::Compute {
            return match row.bytes {
                Some(_) => Err("bytes: compute sends nothing; valid is an empty field".to_owned()),
                None => Ok(Flows { bytes: 0, begin, priority }),
            };
        }
        if hosts < 2 {
            return Err(format!("hosts: {} needs two or more", row.op));
        }
        let bytes = row.bytes.ok_or_else(|| format!("bytes: there are none; {} needs them", row.op))?;
        if bytes.0 == 0 {
            return Err(format!("bytes: 0; valid for {} are 1B and more", row.op));
        }
        let whole = matches!(row.op, Operation::Send | Operation::Broadcast);
        let parts = if whole { 1 } else { hosts as u64 };
        Ok(Flows { bytes: self.compressed(bytes.0.div_ceil(parts)), begin, priority })
    }

    /// Flows between pairs; by host, what is over when it has what is sent to it and what it began
    /// with.
    fn send(
        &mut self,
        pairs: impl Iterator<Item = (u32, u32)>,
        flows: &Flows,
        begins: &BTreeMap<u32, u32>,
    ) -> BTreeMap<u32, u32> {
        let mut came: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (source, destination) in pairs {
            let Flows { bytes, begin, priority } = *flows;
            let after: Vec<u32> = begins.get(&source).copied().into_iter().collect();
            came.entry(destination).or_default().push(self.demands.len() as u32);
            self.demands.push(Demand { begin, after, priority, ..Demand::at(source, destination, bytes, 0) });
        }
        for (host, came) in &mut came {
            came.extend(begins.get(host));
        }
        came.into_iter().map(|(host, all)| (host, self.meet(host, all))).collect()
    }

    pub(super) fn compute(&mut self, host: u32, takes_ns: u64, after: Option<&u32>) -> Result<u32, String> {
        self.computes_ns = self.computes_ns.saturating_add(takes_ns);
        if self.computes_ns > MOST_NS {
            return Err("time: all hosts compute for more than 100 days together".to_owned());
        }
        self.demands.push(Demand::computation(host, takes_ns, after.copied().into_iter().collect()));
        Ok(self.demands.len() as u32 - 1)
    }

    /// A flow of so many bytes before compression, when what it waits for is over.
    pub(super) fn flow(
        &mut self,
        source: u32,
        destination: u32,
        bytes: u64,
        after: Option<u32>,
    ) -> Result<u32, String> {
        if self.demands.len() >= MOST_DEMANDS {
            return Err(format!("valid are up to {MOST_DEMANDS} flows and computations"));
        }
        let bytes = self.compressed(bytes);
        let after = after.into_iter().collect();
        self.demands.push(Demand {
            begin: Begin::Later(0),
            after,
            ..Demand::at(source, destination, bytes, 0)
        });
        Ok(self.demands.len() as u32 - 1)
    }

    fn compressed(&self, bytes: u64) -> u64 {
        ((bytes as f64 / self.compression.max(1.0)) as u64).max(1)
    }

    /// What is over when all of these are, which end at a host.
    pub(super) fn meet(&mut self, host: u32, all: Vec<u32>) -> u32 {
        if let [one] = all[..] {
            return one;
        }
        self.demands.push(Demand::computation(host, 0, all));
        self.demands.len() as u32 - 1
    }
}

/// Each host with each other one, beginning behind itself.
fn pairs(hosts: &[u32]) -> impl Iterator<Item = (u32, u32)> + '_ {
    let count = hosts.len();
    (0..count).flat_map(move |at| (1..count).map(move |step| (hosts[at], hosts[(at + step) % count])))
}

/// `0-3 8`, in this order, each once.
fn host_numbers(text: &str, all: u32) -> Result<Vec<u32>, String> {
    let mut hosts: Vec<u32> = Vec::new();
    for part in text.split_whitespace() {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |digits: &str| digits.parse::<u32>().ok().filter(|&host| host < all);
        let range = number(first).zip(number(last)).filter(|(first, last)| first <= last);
        let (first, last) = range.ok_or_else(|| {
            format!("hosts: {part}; valid are numbers up to {} and ranges such as 0-3", all.saturating_sub(1))
        })?;
        hosts.extend(first..=last);
    }
    let mut sorted = hosts.clone();
    sorted.sort_unstable();
    if let Some([twice, ..]) = sorted.chunk_by(|one, next| one == next).find(|same| same.len() > 1) {
        return Err(format!("hosts: {twice} is named twice"));
    }
    if hosts.is_empty() {
        return Err("hosts: there are none".to_owned());
    }
    Ok(hosts)
}
