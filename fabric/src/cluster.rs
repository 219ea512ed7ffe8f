// SPDX-License-Identifier: Apache-2.0
//! A data-parallel job on one switch: ranks, neighbours who burst, and all-reduces in virtual time.
//!
//! ```text
//!  rank 0 ─┐                     ┌─ cross sender 0
//!  rank 1 ─┤ 0…W−1         W…   ├─ cross sender 1
//!    …     ├──────── switch ─────┤      …
//!  rank W−1┘                     └─
//! ```

use crate::cross_traffic::{BurstSchedule, CrossSender, CrossTraffic};
use crate::frame::Address;
use crate::network::{LinkError, Network, NodeId};
use crate::nodes::{ClusterNode, RankHost, Sum, with_switch};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use trimwire_agent::collective::{Communicator, CommunicatorConfig, Options};
use trimwire_agent::endpoint::{Endpoint, EndpointConfig};
use trimwire_switch::SharedSwitch;

/// What a cluster is made of.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// Number of ranks; rank r is on switch port r + 1.
    pub workers: u16,
    /// Speed of every host's network card, bit/s. (The switch's port rates are the switch's own
    /// setting.)
    pub link_bps: u64,
    /// Propagation delay of every link, ns.
    pub delay_ns: u64,
    /// Senders of the neighbours, in groups that burst together: group g has `cross_per_group`
    /// senders.
    pub cross_groups: u16,
    /// Senders in a group. With m of them a victim's link is offered m + 1 times its speed.
    pub cross_per_group: u16,
    /// How the neighbours burst; `None` for an idle fabric.
    pub cross: Option<CrossTraffic>,
    /// Seed of the cross-traffic.
    pub seed: u64,
    /// Interval at which queue occupancy is sampled, ns.
    pub sample_ns: u64,
}

impl ClusterConfig {
    /// The address of a rank.
    pub fn rank_address(rank: u16) -> Address {
        let [high, low] = (rank + 1).to_be_bytes();
        Address { mac: [2, 0, 0, 0, high, low], ip: Ipv4Addr::new(10, 0, high, low) }
    }

    /// The address of a cross-traffic sender.
    pub fn cross_address(index: u16) -> Address {
        let [high, low] = (index + 1).to_be_bytes();
        Address { mac: [2, 0, 0, 1, high, low], ip: Ipv4Addr::new(10, 1, high, low) }
    }

    /// Number of cross-traffic senders; sender i is on switch port workers + 1 + i.
    pub fn cross_senders(&self) -> u16 {
        self.cross_groups * self.cross_per_group
    }
}

/// Why a cluster stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClusterError {
    /// The caller gave the wrong number of gradients.
    #[error("got {got} gradients for {workers} ranks")]
    Gradients {
        /// Gradients given.
        got: usize,
        /// Ranks of the cluster.
        workers: u16,
    },
    /// The topology is inconsistent.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A rank's transfer was given up.
    #[error("rank {rank} failed in step {step} at {at_ns} ns of virtual time: {reason}")]
    Rank {
        /// The rank.
        rank: usize,
        /// The step it was in.
        step: u32,
        /// Virtual time.
        at_ns: u64,
        /// What the transport said.
        reason: String,
    },
    /// Nothing is left to happen, or the deadline has passed, and ranks still wait.
    #[error("step {step} stalled at {at_ns} ns of virtual time: ranks {waiting:?} wait for data")]
    Stalled {
        /// The step.
        step: u32,
        /// Virtual time.
        at_ns: u64,
        /// The ranks without a result.
        waiting: Vec<usize>,
    },
}

/// DATA packets of all ranks together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EndpointTotals {
    /// Sent, repairs included.
    pub data_sent: u64,
    /// Received.
    pub data_received: u64,
    /// Received trimmed.
    pub trimmed_received: u64,
    /// Sent again.
    pub repairs_sent: u64,
}

/// One rank's result of an all-reduce.
#[derive(Debug, Clone)]
pub struct Completed {
    /// When it had the sum, ns.
    pub at_ns: u64,
    /// The sum and how its packets fared.
    pub outcome: Sum,
}

/// A step may take this long in virtual time before it counts as stalled.
const STEP_LIMIT_NS: u64 = 60_000_000_000;

/// A cluster in virtual time.
#[derive(Debug)]
pub struct Cluster {
    network: Network<ClusterNode>,
    ranks: Vec<NodeId>,
    switch: SharedSwitch,
    occupancy: Vec<(u64, u64)>,
    sample_ns: u64,
    next_sample_ns: u64,
}

impl Cluster {
    /// Wires the hosts to `switch`. `rank` makes the configurations of a rank's cores, and says how
    /// its all-reduces are done.
    pub fn new(
        config: &ClusterConfig,
        switch: SharedSwitch,
        udp_port: u16,
        mut rank: impl FnMut(u16) -> (EndpointConfig, CommunicatorConfig, Options),
    ) -> Result<Self, ClusterError> {
        let mut network = Network::default();
        let hub = network.add(ClusterNode::Switch(switch.clone()));
        let peers: Vec<Address> = (0..config.workers).map(ClusterConfig::rank_address).collect();
        let mut ranks = Vec::new();
        for r in 0..config.workers {
            let (mut endpoint, communicator, options) = rank(r);
            let others = (0_u16..).zip(&peers).filter(|&(other, _)| other != r);
            endpoint.peers =
                others.map(|(other, peer)| (other, SocketAddr::new(IpAddr::V4(peer.ip), udp_port))).collect();
            let host = RankHost::new(
                usize::from(r),
                peers.clone(),
                config.link_bps,
                udp_port,
                Endpoint::new(endpoint),
                Communicator::new(communicator),
                options,
            );
            let id = network.add(ClusterNode::Rank(Box::new(host)));
            network.link((id, 0), (hub, r + 1), config.delay_ns)?;
            ranks.push(id);
        }
        if let Some(traffic) = &config.cross {
            for index in 0..config.cross_senders() {
                // Senders of one group share a schedule, and so a victim: that is what makes an
                // incast.
                let group = u64::from(index / config.cross_per_group.max(1));
                let seed = config.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(group);
                let schedule = BurstSchedule::new(traffic.clone(), peers.len(), seed);
                let address = ClusterConfig::cross_address(index);
                let sender = CrossSender::new(address, peers.clone(), schedule, config.link_bps);
                let id = network.add(ClusterNode::Cross(Box::new(sender)));
                network.link((id, 0), (hub, config.workers + 1 + index), config.delay_ns)?;
                network.with_node(id, |_, _| ());
            }
        }
        let sample_ns = config.sample_ns.max(1);
        Ok(Self { network, ranks, switch, occupancy: Vec::new(), sample_ns, next_sample_ns: 0 })
    }

    /// Virtual time, ns.
    pub fn now_ns(&self) -> u64 {
        self.network.now_ns()
    }

    /// Frames handed from node to node so far.
    pub fn packet_hops(&self) -> u64 {
        self.network.delivered()
    }

    /// (time in ns, bytes waiting in the fullest worker port), sampled at a fixed interval.
    pub fn occupancy(&self) -> &[(u64, u64)] {
        &self.occupancy
    }

    /// Counters of all ranks' transports, summed.
    pub fn endpoint_totals(&self) -> EndpointTotals {
        let mut totals = EndpointTotals::default();
        for &id in &self.ranks {
            if let ClusterNode::Rank(rank) = self.network.node(id) {
                let stats = rank.endpoint().stats();
                totals.data_sent += stats.data_sent;
                totals.data_received += stats.data_received;
                totals.trimmed_received += stats.trimmed_received;
                totals.repairs_sent += stats.repairs_sent;
            }
        }
        totals
    }

    /// Takes a rank's link down or up.
    pub fn set_rank_link(&mut self, rank: usize, up: bool) {
        if let Some(&id) = self.ranks.get(rank) {
            self.network.set_link((id, 0), up);
        }
    }

    /// Changes how all-reduces are done from now on, at all ranks.
    pub fn set_options(&mut self, options: &Options) {
        for &id in &self.ranks {
            self.network.with_node(id, |_, node| {
                if let ClusterNode::Rank(rank) = node {
                    rank.set_options(options.clone());
                }
            });
        }
    }

    /// Lets virtual time pass, as the ranks compute.
    pub fn run_until(&mut self, at_ns: u64) {
        while !self.network.advance_to(at_ns) {
            self.network.step();
            self.sample();
        }
    }

    /// Sums `gradients` (one a rank, of equal length) across the ranks, all starting now; returns
    /// when the last rank has its sum.
    pub fn all_reduce(
        &mut self,
        step: u32,
        gradients: Vec<Vec<f32>>,
    ) -> Result<Vec<Completed>, ClusterError> {
        self.run(step, None, gradients)
    }

    /// Sums `gradients` likewise for rank `root` alone: an incast of all other ranks. Returns when
    /// every rank is done, be it with sending.
    pub fn reduce(
        &mut self,
        step: u32,
        root: u16,
        gradients: Vec<Vec<f32>>,
    ) -> Result<Vec<Completed>, ClusterError> {
        self.run(step, Some(root), gradients)
    }

    fn run(
        &mut self,
        step: u32,
        root: Option<u16>,
        gradients: Vec<Vec<f32>>,
    ) -> Result<Vec<Completed>, ClusterError> {
        if gradients.len() != self.ranks.len() {
            return Err(ClusterError::Gradients { got: gradients.len(), workers: self.ranks.len() as u16 });
        }
        let deadline_ns = self.now_ns() + STEP_LIMIT_NS;
        let mut results: Vec<Option<Completed>> = vec![None; self.ranks.len()];
        for (index, gradient) in gradients.into_iter().enumerate() {
            self.network.with_node(self.ranks[index], |now_ns, node| {
                if let ClusterNode::Rank(rank) = node {
                    rank.start(now_ns, step, root, gradient);
                }
            });
            self.collect(index, step, &mut results)?;
        }
        while results.iter().any(Option::is_none) {
            let stepped = self.network.step();
            self.sample();
            let Some(node) = stepped.filter(|_| self.now_ns() <= deadline_ns) else {
                let waiting = (0..results.len()).filter(|&i| results[i].is_none()).collect();
                return Err(ClusterError::Stalled { step, at_ns: self.now_ns(), waiting });
            };
            if let Ok(index) = self.ranks.binary_search(&node) {
                self.collect(index, step, &mut results)?;
            }
        }
        Ok(results.into_iter().flatten().collect())
    }

    fn collect(
        &mut self,
        index: usize,
        step: u32,
        results: &mut [Option<Completed>],
    ) -> Result<(), ClusterError> {
        let at_ns = self.now_ns();
        self.network.with_node(self.ranks[index], |_, node| {
            let ClusterNode::Rank(rank) = node else { return Ok(()) };
            if let Some(reason) = rank.failure() {
                return Err(ClusterError::Rank { rank: index, step, at_ns, reason: reason.to_owned() });
            }
            if let Some((at_ns, outcome)) = rank.take_done() {
                results[index] = Some(Completed { at_ns, outcome });
            }
            Ok(())
        })
    }

    fn sample(&mut self) {
        let now_ns = self.network.now_ns();
        if now_ns < self.next_sample_ns {
            return;
        }
        let ports = self.ranks.len() as u16;
        let fullest = with_switch(&self.switch, |switch| {
            (1..=ports).map(|port| (0..8).map(|q| switch.queue_depth_bytes(port, q)).sum::<u64>()).max()
        });
        self.occupancy.push((now_ns, fullest.unwrap_or(0)));
        self.next_sample_ns = now_ns + self.sample_ns;
    }
}
