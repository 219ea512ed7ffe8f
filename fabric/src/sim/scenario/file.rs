// SPDX-License-Identifier: Apache-2.0
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
    /// Name of the scenario.
    pub scenario: String,
    /// Seed of everything that is drawn.
    #[serde(default = "one")]
    pub seed: u64,
    /// Virtual time at which a run ends.
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
    /// Runs to compare.
    pub(super) runs: Vec<Run>,
    /// Make each run with this many seeds, from `seed` on.
    #[serde(default = "one")]
    pub seeds: u64,
    /// Whether the scenario takes seconds only, so that CI runs it.
    #[serde(default)]
    pub quick: bool,
    /// Columns of the table that pages print.
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
    /// DCQCN and PFC.
    pub dcqcn: bool,
    /// Swift.
    pub swift: bool,
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
    /// Divide the bytes of every flow by this.
    pub(super) compression: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
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
#[serde(deny_unknown_fields)]
pub(super) struct WorkloadWords {
    /// Many senders, one receiver.
    pub(super) incast: Option<IncastWords>,
    /// Every host sends to one other host.
    pub(super) permutation: Option<PatternWords>,
    /// Every host sends to every other host.
    pub(super) all_to_all: Option<PatternWords>,
    /// An all-reduce around a ring.
    pub(super) ring: Option<RingWords>,
    /// Workers and parameter servers.
    pub(super) parameter_server: Option<ParameterServerWords>,
    /// Other traffic, which reports leave out beside other flows.
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
pub(super) struct RingWords {
    /// Bytes that are reduced.
    pub(super) bytes: Option<Bytes>,
    /// Model file whose gradient is reduced, instead of `bytes`.
    pub(super) model: Option<String>,
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
    /// Distribution of flow sizes.
    pub(super) sizes: SizesWord,
    /// Share of the line that background offers.
    pub(super) load: f64,
    /// Time at which the last background flow starts.
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

fn yes() -> bool {
    true
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TransportWords {
    /// DCTCP.
    pub(super) dctcp: Option<DctcpWords>,
    /// PIAS.
    pub(super) pias: Option<PiasWords>,
    /// pFabric.
    pub(super) pfabric: Option<PFabricWords>,
    /// NDP.
    pub(super) ndp: Option<NdpWords>,
    /// NSCC of Ultra Ethernet.
    pub(super) nscc: Option<NsccWords>,
    /// MLT.
    pub(super) mlt: Option<MltWords>,
    /// DCQCN of RoCEv2, with PFC.
    pub(super) dcqcn: Option<DcqcnWords>,
    /// Swift.
    pub(super) swift: Option<SwiftWords>,
    /// Trimwire.
    pub(super) trimwire: Option<TrimwireWords>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DctcpWords {
    /// Initial window in packets.
    pub(super) initial_window: Option<u32>,
    /// Least retransmission time-out.
    pub(super) rto_min: Option<Duration>,
    /// Duplicate ACKs that tell a loss.
    pub(super) duplicates: Option<u32>,
    /// Spray packets over all paths.
    #[serde(default)]
    pub(super) spray: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PiasWords {
    /// Initial window in packets.
    initial_window: Option<u32>,
    /// Least retransmission time-out.
    rto_min: Option<Duration>,
    /// Duplicate ACKs that tell a loss.
    duplicates: Option<u32>,
    /// Bytes after which a flow moves to the next lower priority.
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
    /// Least retransmission time-out.
    pub(super) rto_min: Option<Duration>,
    /// Retransmission time-out in round trips.
    pub(super) rto_round_trips: Option<f64>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NdpWords {
    /// Initial window in packets.
    pub(super) initial_window: Option<u32>,
    /// Retransmission time-out.
    pub(super) rto: Option<Duration>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NsccWords {
    /// Queueing delay to aim at.
    pub(super) target: Option<Duration>,
    /// Retransmission time-out.
    pub(super) rto: Option<Duration>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MltWords {
    /// Share of packets that may be lost.
    pub(super) loss: Option<f64>,
    /// Raise the rate below this round trip.
    pub(super) t_low: Option<Duration>,
    /// Lower the rate above this round trip.
    pub(super) t_high: Option<Duration>,
    /// Additive increase of the rate.
    pub(super) increase: Option<Rate>,
    /// Use the whole of TIMELY's algorithm.
    #[serde(default)]
    pub(super) gradient: bool,
    /// Share of important packets.
    pub(super) important: Option<f64>,
    /// Spray packets over all paths.
    #[serde(default = "yes")]
    pub(super) spray: bool,
    /// Retransmission time-out of control packets.
    pub(super) control_rto: Option<Duration>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DcqcnWords {
    /// Time between two CNPs of a flow [default: 50us].
    pub(super) cnp_interval: Option<Duration>,
    /// Weight of a CNP in α [default: 1/256].
    pub(super) gain: Option<f64>,
    /// Time without a CNP after which α falls [default: 55us].
    pub(super) alpha_timer: Option<Duration>,
    /// Time between two increases by the timer [default: 55us].
    pub(super) timer: Option<Duration>,
    /// Bytes between two increases by the byte counter [default: 10MB].
    pub(super) byte_counter: Option<Bytes>,
    /// Increases of fast recovery [default: 5].
    pub(super) fast_recovery: Option<u32>,
    /// Step of the additive increase [default: 40Mbps].
    pub(super) increase: Option<Rate>,
    /// Step of the hyper increase [default: 200Mbps].
    pub(super) hyper_increase: Option<Rate>,
    /// Least rate [default: 10Mbps].
    pub(super) min_rate: Option<Rate>,
    /// Retransmission time-out [default: 67.1ms].
    pub(super) rto: Option<Duration>,
    /// Give flows PFC's priorities by their layers.
    #[serde(default)]
    pub(super) by_layer: bool,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SwiftWords {
    /// Packets added in a round trip [default: 1].
    pub(super) increase: Option<f64>,
    /// How much of the excess delay lowers the window [default: 0.8].
    pub(super) beta: Option<f64>,
    /// Share of the window that a decrease takes at most [default: 0.5].
    pub(super) max_decrease: Option<f64>,
    /// Base of the target delay [default: 20us].
    pub(super) base_target: Option<Duration>,
    /// Target delay of every switch on the way [default: 3us].
    pub(super) hop: Option<Duration>,
    /// Target delay added for the smallest windows [default: 100us].
    pub(super) scaling: Option<Duration>,
    /// Initial window in packets [default: 10].
    pub(super) initial_window: Option<u32>,
    /// Largest window in packets [default: 1000].
    pub(super) max_window: Option<f64>,
    /// Least retransmission time-out [default: 1ms].
    pub(super) rto_min: Option<Duration>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TrimwireWords {
    /// What counts as delivered.
    #[serde(default)]
    pub(super) delivery: DeliveryWord,
    /// Rate algorithm.
    #[serde(default)]
    pub(super) algorithm: AlgorithmWord,
    /// Share of packets that may be missing.
    #[serde(default = "hundredth")]
    pub(super) loss: f64,
    /// Initial rate.
    pub(super) start: Option<Rate>,
    /// Start at the fair share of the receiver.
    #[serde(default)]
    pub(super) start_fair: bool,
    /// Additive increase of the rate.
    pub(super) increase: Option<Rate>,
    /// Share of important packets.
    #[serde(default = "half")]
    pub(super) important: f64,
    /// Bytes in flight at most.
    pub(super) window: Option<Bytes>,
    /// UDP source ports to spray over.
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
    Trim,
    RepairTrimmed,
    RepairDropped,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum AlgorithmWord {
    #[default]
    Dctcp,
    Timely,
    Fixed,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SwitchWords {
    /// Buffer of a port.
    pub(super) buffer: Option<Bytes>,
    /// Queue from which packets are marked.
    pub(super) mark_at: Option<Bytes>,
    /// Queue from which MLT's lowest queue drops.
    pub(super) drop_at: Option<Bytes>,
    /// Packets that a queue of NDP or NSCC holds.
    pub(super) packets: Option<u32>,
    /// Queueing time from which packets are trimmed.
    pub(super) shallow_at: Option<Duration>,
    /// Queueing time from which packets are trimmed to the sign plane.
    pub(super) deep_at: Option<Duration>,
    /// Trim to the sign plane at once.
    #[serde(default)]
    pub(super) one_level: bool,
    /// Ignore importance.
    #[serde(default)]
    pub(super) blind: bool,
    /// Queue from which DCQCN's switches mark [default: 5KB].
    pub(super) k_min: Option<Bytes>,
    /// Queue from which they mark every packet [default: 200KB].
    pub(super) k_max: Option<Bytes>,
    /// Share that they mark just below [default: 0.01].
    pub(super) p_max: Option<f64>,
    /// PFC's numbers.
    pub(super) pfc: Option<PfcWords>,
    /// DCQCN without PFC: switches drop.
    #[serde(default)]
    pub(super) lossy: bool,
    /// Switches that run the P4 program: `all`, or a list of numbers.
    pub(super) p4: Option<P4Words>,
}

impl SwitchWords {
    /// Whether it says anything about thresholds.
    pub(super) fn has_thresholds(&self) -> bool {
        let Self { buffer, mark_at, drop_at, packets, shallow_at, deep_at, one_level, blind, .. } = self;
        let sizes = [buffer, mark_at, drop_at].into_iter().any(Option::is_some) || packets.is_some();
        let times = [shallow_at, deep_at].into_iter().any(Option::is_some);
        sizes || times || *one_level || *blind || self.has_dcqcn()
    }

    /// Whether it says anything that only DCQCN's switches have.
    pub(super) fn has_dcqcn(&self) -> bool {
        let Self { k_min, k_max, p_max, pfc, lossy, .. } = self;
        [k_min, k_max].into_iter().any(Option::is_some) || p_max.is_some() || pfc.is_some() || *lossy
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PfcWords {
    /// Bytes of a port and priority from which it pauses [default: β's share of what is free].
    pub(super) xoff: Option<Bytes>,
    /// β: eighths of the free memory that a port and priority may take [default: 8].
    pub(super) beta: Option<u64>,
    /// Bytes below `xoff` at which a pause ends [default: two frames].
    pub(super) xon_below: Option<Bytes>,
    /// Bytes for what comes after a pause [default: what the link may hold].
    pub(super) headroom: Option<Bytes>,
    /// Time until a pause frame is obeyed [default: 2.02us].
    pub(super) response: Option<Duration>,
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
            dcqcn: run.is_some_and(|run| run.transport.dcqcn.is_some()),
            swift: run.is_some_and(|run| run.transport.swift.is_some()),
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
