// SPDX-License-Identifier: Apache-2.0
//! What is simulated, and how far it is.

use super::discipline::Rule;
use super::program::Programs;
use super::topology::Topology;
use super::transport::Transport;
use super::workload::Demand;

/// What is simulated.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Hosts, switches, links.
    pub topology: Topology,
    /// Flows and computations.
    pub demands: Vec<Demand>,
    /// Bytes of payload of a whole packet.
    pub payload: u32,
    /// Of all hosts.
    pub transport: Transport,
    /// Of all ports of all plain switches.
    pub rule: Rule,
    /// Switches that run the P4 program instead.
    pub programs: Option<Programs>,
    /// Links that change.
    pub changes: Vec<LinkChange>,
    /// So long after a change all plain switches have other ways, as if a controller had written
    /// them; none: they avoid links of their own that are down, and nobody tells the others.
    pub reroute_ns: Option<u64>,
    /// Of every coin.
    pub seed: u64,
    /// Virtual time at which the run ends, whatever is not over, ns.
    pub limit_ns: u64,
    /// Whether [`Outcome::planes`] is wanted: a byte a packet.
    pub keep_planes: bool,
}

impl Setup {
    /// A network in which nothing changes, with ten seconds of virtual time.
    pub fn new(
        topology: Topology,
        demands: Vec<Demand>,
        payload: u32,
        transport: Transport,
        rule: Rule,
    ) -> Self {
        Self {
            topology,
            demands,
            payload,
            transport,
            rule,
            programs: None,
            changes: Vec::new(),
            reroute_ns: None,
            seed: 1,
            limit_ns: 10_000_000_000,
            keep_planes: false,
        }
    }
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Virtual time, ns.
    pub now_ns: u64,
    /// Flows of the foreground that are over.
    pub finished: u64,
    /// Of so many.
    pub flows: u64,
}

/// A change of a link at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinkChange {
    /// When, ns.
    pub at_ns: u64,
    /// The link, by its place in the topology.
    pub link: usize,
    /// Whether it works; frames that meet one that does not are lost, and the switches at its ends
    /// choose other ways where they have any.
    pub up: bool,
    /// Share of the frames that vanish, each way.
    pub loss: f64,
}
