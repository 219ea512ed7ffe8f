// SPDX-License-Identifier: Apache-2.0
//! The file's words. Unknown ones are refused with their line.

use super::figure::{Claim, Measure, columns};
use super::locate::line_of;
use super::tune::{TuneWords, expand, put};
use super::words::{SwitchWords, TransportWords};
use crate::espresso::Model;
use crate::sim::discipline::Rungs;
use crate::sim::program::Programs;
use crate::sim::quantity::{Bytes, Duration, Rate};
use crate::sim::topology::Topology;
use crate::sim::workload::Format;
use serde::Deserialize;
use std::collections::BTreeSet;
use yaml_serde::Value;

/// A scenario, as its file says it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Name of the scenario.
    pub scenario: String,
    /// Seed of everything that is drawn.
    #[serde(default = "one")]
    pub seed: u64,
    /// Virtual time at which a run ends, above 0 [default: 10s].
    pub(super) limit: Option<Duration>,
    /// Payload of a whole packet in bytes, a multiple of 24.
    #[serde(default = "payload")]
    pub(super) payload: u32,
    /// Hosts, switches and links.
    pub(super) topology: TopologyWords,
    /// Flows. Several kinds may run together.
    #[serde(default)]
    pub(super) workload: WorkloadWords,
    /// A training by all hosts, beside at most a background workload.
    pub(super) training: Option<TrainingWords>,
    /// Changes of links and switches during the run.
    #[serde(default)]
    pub(super) links: Vec<ChangeWords>,
    /// Time from a change until all plain switches have other routes [default: they learn nothing].
    pub(super) reroute: Option<Duration>,
    /// Runs to compare, each with a name of its own.
    pub(super) runs: Vec<Run>,
    /// Seeds of a figure, from `seed` on: `trimwire sim figures DIR` makes each run with all of
    /// them, `trimwire sim` with the first.
    #[serde(default = "one")]
    pub seeds: u64,
    /// Whether the scenario takes seconds only, so that CI runs it.
    #[serde(default)]
    pub quick: bool,
    /// Columns of the table that pages print
    /// [default: mean, p99, max, trimmed, dropped, again, nmse].
    #[serde(default = "columns")]
    pub columns: Vec<Measure>,
    /// What the paper claims.
    #[serde(default)]
    pub claims: Vec<Claim>,
}

/// Files that a scenario names, by the names that it gives.
pub trait Files {
    /// A model; or why it cannot be had.
    fn model(&mut self, name: &str) -> Result<Model, String>;
    /// The text of a trace or of a distribution of sizes; or why it cannot be had.
    fn trace(&mut self, name: &str) -> Result<String, String>;
    /// The network that a fabric file describes; or why it cannot be had.
    fn fabric(&mut self, name: &str) -> Result<Topology, String>;
    /// Coordinates of the gradient of the network that is trained where its two hidden layers have
    /// so many units; or why it cannot be had.
    fn parameters(&mut self, hidden: u32) -> Result<usize, String>;
    /// The P4 program with its tables, for the switches of a network that run it; or why it cannot
    /// be had.
    fn programs(&mut self, network: &Programmed<'_>) -> Result<Programs, String>;
}

/// A network, switches of which run the P4 program.
#[derive(Debug, Clone, Copy)]
pub enum Programmed<'a> {
    /// Made for the run.
    Generated {
        /// Hosts, switches, links.
        topology: &'a Topology,
        /// Thresholds and sizes of every port.
        rungs: &'a Rungs,
        /// Bytes of payload of a whole packet.
        payload: u32,
        /// Numbers of those that run it.
        switches: &'a [u32],
    },
    /// A fabric file's; all of its switches do, with the file's policy.
    Fabric {
        /// The name that the scenario gives.
        name: &'a str,
    },
}

/// Seeds at most.
const MOST_SEEDS: u64 = 1_000;

fn one() -> u64 {
    1
}

/// 448 coordinates of ten planes: a frame of 1,406 bytes.
fn payload() -> u32 {
    1_344
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    /// Name of the run.
    pub(super) name: String,
    /// Transport of the run.
    pub(super) transport: TransportWords,
    /// What the switches do; the rest follows from the transport.
    pub(super) switch: Option<SwitchWords>,
    /// Topology of this run instead of the scenario's.
    pub(super) topology: Option<TopologyWords>,
    /// Workload of this run instead of the scenario's.
    pub(super) workload: Option<WorkloadWords>,
    /// Payload of this run instead of the scenario's.
    pub(super) payload: Option<u32>,
    /// Divide the bytes of every flow by this [default: 1].
    pub(super) compression: Option<f64>,
    /// Settings to try with the first seed: `by`, the column of which the best has least, and by
    /// keys such as `switch.buffer` the values. `sim figures` makes the run and the best with all
    /// seeds.
    pub(super) tune: Option<TuneWords>,
    /// Its place in the file, which it shares with what its grid makes of it.
    #[serde(skip)]
    pub(super) item: usize,
    /// Of what a grid made: its settings in words.
    #[serde(skip)]
    pub(super) settings: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a shape with its keys, such as { star: { hosts: 16, … } }")]
pub(super) struct TopologyWords {
    /// One switch.
    pub(super) star: Option<StarWords>,
    /// Two switches with one link between them.
    pub(super) dumbbell: Option<DumbbellWords>,
    /// Leaves and spines.
    pub(super) leaf_spine: Option<LeafSpineWords>,
    /// A three-tier fat-tree.
    pub(super) fat_tree: Option<FatTreeWords>,
    /// A fabric file, found from the folder of the scenario. Its policy is not taken.
    pub(super) fabric: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StarWords {
    /// Number of hosts.
    pub(super) hosts: u32,
    /// Rate of every link.
    pub(super) rate: Rate,
    /// Delay of every link.
    pub(super) delay: Duration,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DumbbellWords {
    /// Number of hosts.
    pub(super) hosts: u32,
    /// Rate of the hosts' links.
    pub(super) rate: Rate,
    /// Rate of the link between the switches.
    pub(super) bottleneck: Rate,
    /// Delay of every link.
    pub(super) delay: Duration,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LeafSpineWords {
    /// Number of leaves.
    pub(super) leaves: u32,
    /// Number of spines.
    pub(super) spines: u32,
    /// Hosts of each leaf.
    pub(super) hosts_per_leaf: u32,
    /// Rate of the hosts' links.
    pub(super) rate: Rate,
    /// Rate of links between switches [default: rate].
    pub(super) uplink: Option<Rate>,
    /// Delay of every link.
    pub(super) delay: Duration,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FatTreeWords {
    /// Ports of a switch.
    pub(super) k: u32,
    /// Rate of every link.
    pub(super) rate: Rate,
    /// Delay of every link.
    pub(super) delay: Duration,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, expecting = "patterns with their keys, such as { incast: { senders: 15, … } }")]
pub(super) struct WorkloadWords {
    /// Many senders, one receiver.
    pub(super) incast: Option<IncastWords>,
    /// Every host sends to one other host.
    pub(super) permutation: Option<PatternWords>,
    /// Every host sends to every other host.
    pub(super) all_to_all: Option<PatternWords>,
    /// A job of your own.
    pub(super) trace: Option<TraceWords>,
    /// Workers and parameter servers.
    pub(super) parameter_server: Option<ParameterServerWords>,
    /// Other traffic, which reports leave out beside other flows.
    pub(super) background: Option<BackgroundWords>,
}

impl WorkloadWords {
    /// Whether there is more than background.
    pub(super) fn has_patterns(&self) -> bool {
        let Self { incast, permutation, all_to_all, trace, parameter_server, background: _ } = self;
        let jobs = trace.is_some() || parameter_server.is_some();
        incast.is_some() || permutation.is_some() || all_to_all.is_some() || jobs
    }
}

/// What is trained, by all hosts.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrainingWords {
    /// Units of both hidden layers.
    #[serde(default = "hidden")]
    pub(super) hidden: u32,
    /// Images of a worker and step.
    #[serde(default = "batch")]
    pub(super) batch: u32,
    /// Learning rate.
    #[serde(default = "learning_rate")]
    pub(super) learning_rate: f32,
    /// Momentum.
    #[serde(default = "momentum")]
    pub(super) momentum: f32,
    /// Steps.
    #[serde(default = "steps")]
    pub(super) steps: u32,
    /// Steps between two measurements of the accuracy.
    #[serde(default = "every")]
    pub(super) every: u32,
    /// Time that a step computes.
    pub(super) compute: Duration,
    /// Compute up to this much longer, drawn by worker.
    pub(super) jitter: Option<Duration>,
    /// Accuracy whose time is reported.
    #[serde(default = "target")]
    pub(super) target: f64,
}

fn hidden() -> u32 {
    320
}

fn batch() -> u32 {
    8
}

fn learning_rate() -> f32 {
    0.02
}

fn momentum() -> f32 {
    0.9
}

fn steps() -> u32 {
    100
}

fn every() -> u32 {
    5
}

fn target() -> f64 {
    0.9
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IncastWords {
    /// Number of senders.
    pub(super) senders: u32,
    /// Bytes of each sender.
    pub(super) bytes: Bytes,
    /// Start each flow up to this much later.
    pub(super) jitter: Option<Duration>,
    /// Mean time between incasts of receivers and senders that are drawn (Poisson)
    /// [default: one incast, to host 0].
    pub(super) every: Option<Duration>,
    /// Time at which the last of these starts. Valid with every.
    pub(super) until: Option<Duration>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PatternWords {
    /// Bytes of each flow.
    pub(super) bytes: Bytes,
    /// Start each flow up to this much later.
    pub(super) jitter: Option<Duration>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TraceWords {
    /// File of computations, messages and collectives.
    pub(super) file: String,
    /// Whose format it has: csv is ours.
    #[serde(default)]
    pub(super) format: Format,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ParameterServerWords {
    /// Model file.
    pub(super) model: String,
    /// One host in this many is a server.
    #[serde(default = "four")]
    pub(super) group: u32,
    /// Parts of every tensor, each for another server.
    #[serde(default = "one_of")]
    pub(super) shards: u32,
    /// Jobs that share the network, each with every nth worker and server.
    #[serde(default = "one_of")]
    pub(super) jobs: u32,
    /// Make every host worker and server.
    #[serde(default)]
    pub(super) colocated: bool,
    /// Iterations.
    #[serde(default = "one_of")]
    pub(super) iterations: u32,
    /// Begin the next forward pass with the front layer as soon as its parameters are there.
    #[serde(default)]
    pub(super) by_layer: bool,
    /// Compute up to this share longer, drawn by worker.
    #[serde(default)]
    pub(super) jitter: f64,
}

fn four() -> u32 {
    4
}

fn one_of() -> u32 {
    1
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BackgroundWords {
    /// Distribution of flow sizes: web-search, data-mining, or a file of HPCC's, `BYTES PERCENT`.
    pub(super) sizes: String,
    /// Share of the line that background offers.
    pub(super) load: f64,
    /// Time at which the last background flow starts.
    pub(super) until: Duration,
}

impl BackgroundWords {
    /// The file of sizes, where they are of one.
    pub(super) fn file(&self) -> Option<&str> {
        (!["web-search", "data-mining"].contains(&self.sizes.as_str())).then_some(&*self.sizes)
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangeWords {
    /// Time of the change.
    pub(super) at: Duration,
    /// Number of the link: hosts' first, then switches'.
    pub(super) link: Option<usize>,
    /// Number of the switch, instead of a link.
    pub(super) switch: Option<u32>,
    /// Whether it works from then on.
    #[serde(default = "yes")]
    pub(super) up: bool,
    /// Share of packets that the link loses from then on.
    #[serde(default)]
    pub(super) loss: f64,
}

pub(super) fn yes() -> bool {
    true
}

/// Why a scenario was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// Not YAML, a key that there is not, or a value of another kind; the message has line and
    /// column.
    #[error("{file}: {reason}")]
    Yaml {
        /// Its name.
        file: String,
        /// What is wrong, and what is valid.
        reason: String,
    },
    /// A value that makes no sense.
    #[error("{file}:{line}: {reason}")]
    Value {
        /// The file's name.
        file: String,
        /// From 1.
        line: usize,
        /// What is wrong, and what is valid.
        reason: String,
    },
}

/// What numbers are called in messages, by what they are called in the code.
const NUMBERS: [(&str, &str); 6] = [
    ("expected u16", "expected a whole number from 0 to 65535"),
    ("expected u32", "expected a whole number from 0 to 4294967295"),
    ("expected u64", "expected a whole number from 0"),
    ("expected usize", "expected a whole number from 0"),
    ("expected f32", "expected a number"),
    ("expected f64", "expected a number"),
];

/// An error of the parser in the words of the file's author.
pub(super) fn reason(error: &yaml_serde::Error) -> String {
    NUMBERS.iter().fold(error.to_string(), |text, (code, words)| text.replace(code, words))
}

/// The first run whose name one before it has.
fn repeated(runs: &[Run]) -> Option<usize> {
    let mut names = BTreeSet::new();
    runs.iter().position(|run| !names.insert(run.name.as_str()))
}

impl File {
    /// Reads a scenario; `name` is the file's, for messages. Keys that are `set` have these values
    /// instead of the text's.
    pub fn from_yaml(text: &str, name: &str, set: &[(&str, &str)]) -> Result<Self, ScenarioError> {
        let yaml = |error| ScenarioError::Yaml { file: name.to_owned(), reason: reason(&error) };
        let mut words: Value = yaml_serde::from_str(text).map_err(yaml)?;
        for &(key, value) in set {
            let wrong =
                |reason| ScenarioError::Yaml { file: name.to_owned(), reason: format!("{key}: {reason}") };
            let value = yaml_serde::from_str(value).map_err(|error| wrong(reason(&error)))?;
            put(&mut words, key, &value).map_err(wrong)?;
        }
        // Only what is read from a text has lines in messages.
        let file: Result<Self, _> =
            if set.is_empty() { yaml_serde::from_str(text) } else { yaml_serde::from_value(words.clone()) };
        let mut file = file.map_err(yaml)?;
        file.runs = expand(&words, text, name, file.runs)?;
        if file.runs.is_empty() {
            let (line, reason) = (line_of(text, &["runs"], None), "runs: there are none".to_owned());
            return Err(ScenarioError::Value { file: name.to_owned(), line, reason });
        }
        let refuse = |key: &'static str, reason: String| {
            Err(ScenarioError::Value { file: name.to_owned(), line: line_of(text, &[key], None), reason })
        };
        if !(1..=MOST_SEEDS).contains(&file.seeds) {
            return refuse("seeds", format!("seeds: {}; valid are 1 to {MOST_SEEDS}", file.seeds));
        }
        if file.limit.is_some_and(|limit| limit.0 == 0) {
            return refuse("limit", "limit: 0; valid are times above 0, such as 10s".to_owned());
        }
        if let Some(again) = repeated(&file.runs) {
            let line = line_of(text, &["runs", "name"], Some(file.runs[again].item));
            let reason =
                format!("name: another run is '{}', too; valid are names that differ", file.runs[again].name);
            return Err(ScenarioError::Value { file: name.to_owned(), line, reason });
        }
        let is_run = |name: &str| file.runs.iter().any(|run| run.name == name);
        let named = file.claims.iter().flat_map(|claim| [&claim.run, &claim.beside]);
        if let Some(unknown) = named.into_iter().find(|name| !is_run(name)) {
            return refuse("claims", format!("claims: there is no run '{unknown}'"));
        }
        Ok(file)
    }

    /// Names of its runs.
    pub fn run_names(&self) -> impl Iterator<Item = &str> {
        self.runs.iter().map(|run| run.name.as_str())
    }

    /// The column by which a run is tuned, and how many of those that follow it are its grid.
    pub fn grid(&self, number: usize) -> Option<(Measure, usize)> {
        let run = self.runs.get(number)?;
        let tune = run.tune.as_ref().filter(|_| run.settings.is_none())?;
        Some((tune.by, self.runs[number + 1..].iter().take_while(|next| next.settings.is_some()).count()))
    }

    /// Of what a grid made of a run: its settings in words.
    pub fn settings(&self, number: usize) -> Option<&str> {
        self.runs.get(number)?.settings.as_deref()
    }

    /// All that a run follows from, but for the seed and what stands in other files; and the names
    /// of those.
    pub fn input(&self, number: usize) -> Option<(String, Vec<&str>)> {
        let Self { limit, payload, training, links, reroute, .. } = self;
        let run = self.runs.get(number)?;
        let topology = run.topology.as_ref().unwrap_or(&self.topology);
        let workload = run.workload.as_ref().unwrap_or(&self.workload);
        let of_servers = workload.parameter_server.as_ref().map(|servers| servers.model.as_str());
        let of_trace = workload.trace.as_ref().map(|trace| trace.file.as_str());
        let of_sizes = workload.background.as_ref().and_then(|background| background.file());
        let files =
            [topology.fabric.as_deref(), of_servers, of_trace, of_sizes].into_iter().flatten().collect();
        // What else is tried, and where the run stands, change nothing of it.
        let run = Run { tune: None, item: 0, settings: None, ..run.clone() };
        let text = format!(
            "{limit:?} {payload:?} {training:?} {links:?} {reroute:?} {topology:?} {workload:?} {run:?}"
        );
        Some((text, files))
    }
}
