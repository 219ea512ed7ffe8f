// SPDX-License-Identifier: Apache-2.0
//! What a rank knows of the way to another one, beyond one message.

use super::{Delivery, Flow, TrimwireConfig, others};
use std::sync::{Arc, Mutex, OnceLock};
use trimwire_agent::config::Traffic;
use trimwire_agent::rate::{PathModel, RateAlgorithm, Slowdown};
use trimwire_agent::spray::Spray;
use trimwire_agent::transfer::PathEstimate;

/// From one rank to another: what the agent keeps of a peer.
#[derive(Debug)]
pub(super) struct Way {
    pub(super) law: Box<dyn RateAlgorithm>,
    pub(super) spray: Spray,
    pub(super) estimate: PathEstimate,
    pub(super) slowdown: Slowdown,
}

impl Way {
    /// Nothing is known but what the greeting told.
    pub(super) fn new(flow: &Flow, config: &TrimwireConfig) -> Self {
        let trim_delay_ns = config.trim_delay_ns;
        let planned_bps = Some(flow.rate_bps / others(flow));
        let path = PathModel { trim_delay_ns, planned_bps, ..PathModel::new(flow.rate_bps) };
        let traffic = match config.delivery {
            Delivery::Trim { .. } | Delivery::RepairTrimmed => Traffic::Trimmable,
            Delivery::RepairDropped => Traffic::Droppable,
        };
        let mut estimate = PathEstimate::new(0, trim_delay_ns, traffic);
        estimate.control.sample(flow.base_rtt_ns);
        Self {
            law: config.law.build(&path),
            spray: Spray::new(config.paths, flow.seed),
            estimate,
            slowdown: Slowdown::default(),
        }
    }
}

/// Nothing before the first message.
type Known = OnceLock<Arc<Mutex<Way>>>;

/// What the ranks of a job, one a host, know of each other from one run to the next: of all
/// messages of one rank to another there is one rate, one round trip and one judgement of each
/// path, as in the agent. Runs that share it follow each other in one virtual time. A clone is the
/// same job.
#[derive(Debug, Clone)]
pub struct Peers {
    hosts: u32,
    /// By source, then destination. Only the source's domain asks for its own, so that results do
    /// not depend on threads.
    ways: Arc<[Known]>,
}

impl Peers {
    /// Ranks that have just greeted each other, of a network of so many hosts.
    pub fn new(hosts: u32) -> Self {
        let pairs = hosts as usize * hosts as usize;
        Self { hosts, ways: (0..pairs).map(|_| Known::new()).collect() }
    }

    /// Of a flow's ends.
    pub(super) fn way(&self, flow: &Flow, fresh: impl FnOnce() -> Way) -> Arc<Mutex<Way>> {
        let at = flow.source as usize * self.hosts as usize + flow.destination as usize;
        let make = || Arc::new(Mutex::new(fresh()));
        match self.ways.get(at) {
            Some(known) => Arc::clone(known.get_or_init(make)),
            None => make(),
        }
    }
}

impl PartialEq for Peers {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.ways, &other.ways)
    }
}
