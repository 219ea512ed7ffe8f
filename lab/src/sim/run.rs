// SPDX-License-Identifier: Apache-2.0
//! A run: what is simulated, and what came out.

use super::discipline::Counts;
use super::domain::Domain;
use super::network::{Network, Totals};
use super::setup::{Progress, Setup};
use super::windows::{self, Bounds};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Windows are no longer than this, so that a run ends soon after its last flow and tells how far
/// it is.
const LONGEST_WINDOW_NS: u64 = 100_000;

/// A flow's life, or a computation's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FlowOutcome {
    /// Its place in the demands.
    pub demand: usize,
    /// When its sender began, ns.
    pub began_ns: u64,
    /// From then until its receiver had what it asked for, ns.
    pub duration_ns: u64,
    /// The share of the gradient's energy that arrived.
    pub share_kept: f64,
}

/// What came out.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Flows that are over, by demand.
    pub flows: Vec<FlowOutcome>,
    /// Of flows of which not everything arrived, if they were to be kept: the planes of each
    /// packet, 0 to 10, by demand.
    pub planes: BTreeMap<usize, Box<[u8]>>,
    /// Flows of the foreground that are not over.
    pub unfinished: u64,
    /// Virtual time of the last event, ns.
    pub end_ns: u64,
    /// Frames handed from node to node.
    pub packet_hops: u64,
    /// DATA packets that senders sent, again ones included.
    pub sent: u64,
    /// Of these, again.
    pub repairs: u64,
    /// Time-outs of senders.
    pub timeouts: u64,
    /// DATA packets lost on links that are down or gray.
    pub lost: u64,
    /// What switches did.
    pub switches: Counts,
    /// Bytes that calendars and packets on their way took at most.
    pub memory: usize,
}

impl Outcome {
    /// Takes in what came out of a later run of the same demands; what it kept of packets is left
    /// out. Flows of other demands are the caller's to leave out.
    pub fn add(&mut self, later: &Self) {
        self.flows.extend(&later.flows);
        self.unfinished += later.unfinished;
        self.end_ns = self.end_ns.max(later.end_ns);
        self.packet_hops += later.packet_hops;
        self.sent += later.sent;
        self.repairs += later.repairs;
        self.timeouts += later.timeouts;
        self.lost += later.lost;
        self.switches.add(&later.switches);
        self.memory = self.memory.max(later.memory);
    }
}

/// Simulates with up to `threads` threads; `progress` hears how far it is, now and then. Results do
/// not depend on the number of threads.
pub fn run(setup: &Setup, threads: usize, progress: impl FnMut(Progress)) -> Outcome {
    begin(setup, threads, u64::MAX, progress)
}

/// The same, and no further than until so many frames were handed from node to node.
pub fn begin(setup: &Setup, threads: usize, hops: u64, progress: impl FnMut(Progress)) -> Outcome {
    let network = Arc::new(Network::new(setup));
    let mut domains = Domain::all(&network);
    let threads = threads.clamp(1, domains.len());
    let bounds = Bounds {
        window_ns: network.lookahead_ns.min(LONGEST_WINDOW_NS),
        limit_ns: setup.limit_ns,
        foreground: network.flows.iter().filter(|planned| planned.foreground).count() as u64,
        hops,
    };
    windows::run(&mut domains, threads, bounds, progress);
    outcome(&network, &domains)
}

fn outcome(network: &Network, domains: &[Domain]) -> Outcome {
    let mut began = vec![0; network.flows.len()];
    for (flow, at_ns) in domains.iter().flat_map(|domain| &domain.began) {
        began[*flow as usize] = *at_ns;
    }
    let (mut flows, mut planes) = (Vec::new(), BTreeMap::new());
    for finish in domains.iter().flat_map(|domain| &domain.finished) {
        let demand = finish.flow as usize;
        let began_ns = began[demand];
        flows.push(FlowOutcome {
            demand,
            began_ns,
            duration_ns: finish.at_ns - began_ns,
            share_kept: finish.share_kept,
        });
        if !finish.planes.is_empty() {
            planes.insert(demand, finish.planes.clone());
        }
    }
    flows.sort_unstable_by_key(|flow: &FlowOutcome| flow.demand);
    let mut totals = Totals::default();
    for domain in domains {
        let here = domain.totals();
        totals.hops += here.hops;
        totals.sent += here.sent;
        totals.repairs += here.repairs;
        totals.timeouts += here.timeouts;
        totals.lost += here.lost;
        totals.memory += here.memory;
        totals.switches.add(&here.switches);
    }
    let over = flows.iter().filter(|flow| network.flows[flow.demand].foreground).count();
    let foreground = network.flows.iter().filter(|planned| planned.foreground).count();
    Outcome {
        unfinished: (foreground - over) as u64,
        flows,
        planes,
        end_ns: domains.iter().map(Domain::now_ns).max().unwrap_or(0),
        packet_hops: totals.hops,
        sent: totals.sent,
        repairs: totals.repairs,
        timeouts: totals.timeouts,
        lost: totals.lost,
        switches: totals.switches,
        memory: totals.memory,
    }
}
