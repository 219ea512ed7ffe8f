//! The file's words. Unknown ones are refused with their line.

use super::figure::{Claim, Measure, columns};
use super::locate::line_of;
use super::quantity::{Bytes, Duration, Rate};
use super::{Prepared, prepare};
use crate::sim::discipline::Rungs;
use crate::sim::program::Programs;
use crate::sim::topology::Topology;
use serde::Deserialize;
use trimwire_planner::espresso::Model;

/// A scenario, as its file says it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Its name.
    pub scenario: String,
    /// Of everything that is drawn.
    #[serde(default = "one")]
    pub seed: u64,
    pub(super) limit: Option<Duration>,
    #[serde(default = "payload")]
    pub(super) payload: u32,
    pub(super) topology: TopologyWords,
    #[serde(default)]
    pub(super) workload: WorkloadWords,
    pub(super) training: Option<TrainingWords>,
    #[serde(default)]
    pub(super) links: Vec<ChangeWords>,
    pub(super) reroute: Option<Duration>,
    pub(super) runs: Vec<Run>,
    /// How many seeds each run is made with, from `seed` on.
    #[serde(default = "one")]
    pub seeds: u64,
    /// Whether all of it takes seconds, so that CI makes it.
    #[serde(default)]
    pub quick: bool,
    /// Of the table that documentation prints.
    #[serde(default = "columns")]
    pub columns: Vec<Measure>,
    /// What its paper claims.
    #[serde(default)]
    pub claims: Vec<Claim>,
}

/// Files that a scenario names, by the names that it gives.
pub trait Files {
    /// A model; or why it cannot be had.
    fn model(&mut self, name: &str) -> Result<Model, String>;
    /// The network that a fabric file describes; or why it cannot be had.
    fn fabric(&mut self, name: &str) -> Result<Topology, String>;
    /// Coordinates of the gradient of the network that is trained where its two hidden layers have so many units; or why it cannot be had.
    fn parameters(&mut self, hidden: u32) -> Result<usize, String>;
    /// The P4 program with its tables, for the switches of a network that run it; or why it cannot be had.
    fn programs(&mut self, network: &Programmed<'_>) -> Result<Programs, String>;
}

/// What a run is made of, beside the simulator itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parts {
    /// The agent's rate algorithms, pacing and estimates.
    pub agent: bool,
    /// The P4 program and its engine.
    pub program: bool,
    /// A model, its data and the codec.
    pub training: bool,
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

/// 448 coordinates: a frame of 1,406 bytes.
fn payload() -> u32 {
    1_344
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Run {
    pub(super) name: String,
    pub(super) transport: TransportWords,
    pub(super) switch: Option<SwitchWords>,
    pub(super) topology: Option<TopologyWords>,
    pub(super) workload: Option<WorkloadWords>,
    pub(super) payload: Option<u32>,
    pub(super) compression: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TopologyWords {
    pub(super) star: Option<StarWords>,
    pub(super) dumbbell: Option<DumbbellWords>,
    pub(super) leaf_spine: Option<LeafSpineWords>,
    pub(super) fat_tree: Option<FatTreeWords>,
    pub(super) fabric: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StarWords {
    pub(super) hosts: u32,
    pub(super) rate: Rate,
    pub(super) delay: Duration,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DumbbellWords {
    pub(super) hosts: u32,
    pub(super) rate: Rate,
    pub(super) bottleneck: Rate,
    pub(super) delay: Duration,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LeafSpineWords {
    pub(super) leaves: u32,
    pub(super) spines: u32,
    pub(super) hosts_per_leaf: u32,
    pub(super) rate: Rate,
    pub(super) uplink: Option<Rate>,
    pub(super) delay: Duration,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FatTreeWords {
    pub(super) k: u32,
    pub(super) rate: Rate,
    pub(super) delay: Duration,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WorkloadWords {
    pub(super) incast: Option<IncastWords>,
    pub(super) permutation: Option<PatternWords>,
    pub(super) all_to_all: Option<PatternWords>,
    pub(super) ring: Option<RingWords>,
    pub(super) parameter_server: Option<ParameterServerWords>,
    pub(super) background: Option<BackgroundWords>,
}

impl WorkloadWords {
    /// Whether there is more than background.
    pub(super) fn has_patterns(&self) -> bool {
        let patterns = [self.permutation.is_some(), self.all_to_all.is_some(), self.ring.is_some()];
        patterns.contains(&true) || self.incast.is_some() || self.parameter_server.is_some()
    }
}

/// What is trained, by all hosts.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrainingWords {
    #[serde(default = "hidden")]
    pub(super) hidden: u32,
    #[serde(default = "batch")]
    pub(super) batch: u32,
    #[serde(default = "learning_rate")]
    pub(super) learning_rate: f32,
    #[serde(default = "momentum")]
    pub(super) momentum: f32,
    #[serde(default = "steps")]
    pub(super) steps: u32,
    #[serde(default = "every")]
    pub(super) every: u32,
    pub(super) compute: Duration,
    pub(super) jitter: Option<Duration>,
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
    pub(super) senders: u32,
    pub(super) bytes: Bytes,
    pub(super) jitter: Option<Duration>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PatternWords {
    pub(super) bytes: Bytes,
    pub(super) jitter: Option<Duration>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RingWords {
    pub(super) bytes: Option<Bytes>,
    pub(super) model: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ParameterServerWords {
    pub(super) model: String,
    #[serde(default = "four")]
    pub(super) group: u32,
    #[serde(default = "one_of")]
    pub(super) shards: u32,
    #[serde(default = "one_of")]
    pub(super) jobs: u32,
    #[serde(default)]
    pub(super) colocated: bool,
    #[serde(default = "one_of")]
    pub(super) iterations: u32,
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
    pub(super) sizes: SizesWord,
    pub(super) load: f64,
    pub(super) until: Duration,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SizesWord {
    WebSearch,
    DataMining,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ChangeWords {
    pub(super) at: Duration,
    pub(super) link: Option<usize>,
    pub(super) switch: Option<u32>,
    #[serde(default = "yes")]
    pub(super) up: bool,
    #[serde(default)]
    pub(super) loss: f64,
}

fn yes() -> bool {
    true
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TransportWords {
    pub(super) dctcp: Option<DctcpWords>,
    pub(super) pias: Option<PiasWords>,
    pub(super) pfabric: Option<PFabricWords>,
    pub(super) ndp: Option<NdpWords>,
    pub(super) nscc: Option<NsccWords>,
    pub(super) mlt: Option<MltWords>,
    pub(super) trimwire: Option<TrimwireWords>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DctcpWords {
    pub(super) initial_window: Option<u32>,
    pub(super) rto_min: Option<Duration>,
    pub(super) duplicates: Option<u32>,
    #[serde(default)]
    pub(super) spray: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PiasWords {
    initial_window: Option<u32>,
    rto_min: Option<Duration>,
    duplicates: Option<u32>,
    pub(super) demote_after: Option<Vec<Bytes>>,
}

impl PiasWords {
    pub(super) fn dctcp(&self) -> DctcpWords {
        let Self { initial_window, rto_min, duplicates, .. } = *self;
        DctcpWords { initial_window, rto_min, duplicates, spray: false }
    }
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PFabricWords {
    pub(super) rto_min: Option<Duration>,
    pub(super) rto_round_trips: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NdpWords {
    pub(super) initial_window: Option<u32>,
    pub(super) rto: Option<Duration>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NsccWords {
    pub(super) target: Option<Duration>,
    pub(super) rto: Option<Duration>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MltWords {
    pub(super) loss: Option<f64>,
    pub(super) t_low: Option<Duration>,
    pub(super) t_high: Option<Duration>,
    pub(super) increase: Option<Rate>,
    #[serde(default)]
    pub(super) gradient: bool,
    pub(super) important: Option<f64>,
    #[serde(default = "yes")]
    pub(super) spray: bool,
    pub(super) control_rto: Option<Duration>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrimwireWords {
    #[serde(default)]
    pub(super) delivery: DeliveryWord,
    #[serde(default)]
    pub(super) law: LawWord,
    #[serde(default = "hundredth")]
    pub(super) loss: f64,
    pub(super) start: Option<Rate>,
    #[serde(default)]
    pub(super) start_fair: bool,
    pub(super) increase: Option<Rate>,
    #[serde(default = "half")]
    pub(super) important: f64,
    pub(super) window: Option<Bytes>,
    #[serde(default = "ports")]
    pub(super) paths: u16,
}

fn hundredth() -> f64 {
    0.01
}

fn half() -> f64 {
    0.5
}

fn ports() -> u16 {
    64
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum DeliveryWord {
    #[default]
    Cut,
    RepairCut,
    RepairDropped,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LawWord {
    #[default]
    Dctcp,
    Timely,
    Fixed,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SwitchWords {
    pub(super) buffer: Option<Bytes>,
    pub(super) mark_at: Option<Bytes>,
    pub(super) drop_at: Option<Bytes>,
    pub(super) packets: Option<u32>,
    pub(super) shallow_at: Option<Duration>,
    pub(super) deep_at: Option<Duration>,
    #[serde(default)]
    pub(super) one_level: bool,
    #[serde(default)]
    pub(super) blind: bool,
    pub(super) p4: Option<P4Words>,
}

impl SwitchWords {
    /// Whether it says anything about thresholds.
    pub(super) fn has_thresholds(&self) -> bool {
        let Self { buffer, mark_at, drop_at, packets, shallow_at, deep_at, one_level, blind, p4: _ } = self;
        let sizes = [buffer, mark_at, drop_at].into_iter().any(Option::is_some) || packets.is_some();
        sizes || [shallow_at, deep_at].into_iter().any(Option::is_some) || *one_level || *blind
    }
}

/// Which switches run the P4 program.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "p4 is 'all', or a list of switches' numbers")]
pub(super) enum P4Words {
    All(AllWord),
    Some(Vec<u32>),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum AllWord {
    All,
}

/// Why a scenario was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// Not YAML, a key that there is not, or a value of another kind; the message has line and column.
    #[error("{file}: {source}")]
    Yaml {
        /// Its name.
        file: String,
        /// What is wrong.
        source: yaml_serde::Error,
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

impl File {
    /// Reads a scenario; `name` is the file's, for messages.
    pub fn from_yaml(text: &str, name: &str) -> Result<Self, ScenarioError> {
        let yaml = |source| ScenarioError::Yaml { file: name.to_owned(), source };
        let file: Self = yaml_serde::from_str(text).map_err(yaml)?;
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

    /// All that a run follows from, but for the seed and what stands in other files; and the names of those.
    pub fn input(&self, number: usize) -> Option<(String, Vec<&str>)> {
        let Self { limit, payload, training, links, reroute, .. } = self;
        let run = self.runs.get(number)?;
        let topology = run.topology.as_ref().unwrap_or(&self.topology);
        let workload = run.workload.as_ref().unwrap_or(&self.workload);
        let of_servers = workload.parameter_server.as_ref().map(|servers| servers.model.as_str());
        let of_ring = workload.ring.as_ref().and_then(|ring| ring.model.as_deref());
        let files = [topology.fabric.as_deref(), of_servers, of_ring].into_iter().flatten().collect();
        let text = format!(
            "{limit:?} {payload:?} {training:?} {links:?} {reroute:?} {topology:?} {workload:?} {run:?}"
        );
        Some((text, files))
    }

    /// Which of our own parts a run is made of, beside the simulator.
    pub fn parts(&self, number: usize) -> Parts {
        let run = self.runs.get(number);
        Parts {
            agent: run.is_some_and(|run| run.transport.trimwire.is_some()),
            program: run.is_some_and(|run| run.switch.as_ref().is_some_and(|switch| switch.p4.is_some())),
            training: self.training.is_some(),
        }
    }

    /// One of its runs, ready, with a seed. `text` and `name` are those that the file was read from, for messages.
    pub fn prepare_run(
        &self,
        number: usize,
        seed: u64,
        text: &str,
        name: &str,
        files: &mut impl Files,
    ) -> Result<Prepared, ScenarioError> {
        let refuse = |line, reason| ScenarioError::Value { file: name.to_owned(), line, reason };
        let Some(run) = self.runs.get(number) else {
            return Err(refuse(line_of(text, &["runs"], None), format!("runs: there is no run {number}")));
        };
        prepare(self, run, seed, files).map_err(|(path, reason)| {
            // What a run says by itself stands there; the rest stands once, above.
            let inside: Vec<&str> = ["runs"].into_iter().chain(path.iter().copied()).collect();
            let own = match path.first() {
                Some(&"topology") => run.topology.is_some(),
                Some(&"workload") => run.workload.is_some(),
                Some(&"payload") => run.payload.is_some(),
                Some(&"links" | &"training") => false,
                _ => true,
            };
            let line = if own { line_of(text, &inside, Some(number)) } else { line_of(text, &path, None) };
            refuse(line, format!("{reason} (run '{}')", run.name))
        })
    }

    /// Its runs, ready, with the file's seed.
    pub fn prepare(
        &self,
        text: &str,
        name: &str,
        files: &mut impl Files,
    ) -> Result<Vec<Prepared>, ScenarioError> {
        (0..self.runs.len()).map(|number| self.prepare_run(number, self.seed, text, name, files)).collect()
    }
}
