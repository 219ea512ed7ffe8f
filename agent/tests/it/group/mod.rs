// SPDX-License-Identifier: Apache-2.0
//! A group of ranks over the deterministic network.
#![allow(dead_code, reason = "each test binary uses a part")]

use crate::network::{Faults, Network};
use std::cell::RefCell;
use trimwire_agent::collective::{
    Collective, Communicator, CommunicatorConfig, Done, Offloaded, Options, Outcome, StartError, Task,
};
use trimwire_agent::endpoint::{Endpoint, Event, Reliability};
use trimwire_encoder::SealKey;

pub(crate) struct Group {
    pub(crate) network: Network,
    pub(crate) communicators: Vec<Communicator>,
}

impl Group {
    pub(crate) fn new(world: u16, faults: Faults, seed: u64, reliability: Reliability, row_log2: u8) -> Self {
        let config =
            |rank| CommunicatorConfig { job_seed: 7, row_log2, ..CommunicatorConfig::new(rank, world) };
        Self {
            network: Network::new(world, faults, seed, reliability),
            communicators: (0..world).map(|rank| Communicator::new(config(rank))).collect(),
        }
    }

    /// The same with a host's number for each rank.
    pub(crate) fn on_hosts(mut self, hosts: &[u32]) -> Self {
        for communicator in &mut self.communicators {
            let config = CommunicatorConfig { hosts: hosts.to_vec(), ..communicator.config().clone() };
            *communicator = Communicator::new(config);
        }
        self
    }

    /// The same of a job with a key.
    pub(crate) fn sealed(world: u16, faults: Faults, seed: u64) -> Self {
        let key = SealKey::from_bytes(&[7; 32]).expect("32 bytes");
        let network = Network::with(world, faults, seed, |config| config.seal = Some(key.clone()));
        Self { network, ..Self::new(world, Faults::NONE, seed, Reliability::Full, 10) }
    }

    pub(crate) fn start(
        &mut self,
        rank: usize,
        number: u32,
        collective: Collective,
        options: &Options,
    ) -> Result<(), StartError> {
        let (now_ns, endpoint) = (self.network.now_ns, &mut self.network.endpoints[rank]);
        self.communicators[rank].start(now_ns, number, collective, options.clone(), endpoint)
    }

    pub(crate) fn cancel(&mut self, rank: usize, number: u32) -> bool {
        let (now_ns, endpoint) = (self.network.now_ns, &mut self.network.endpoints[rank]);
        self.communicators[rank].cancel(now_ns, number, endpoint)
    }

    /// Runs until nothing happens any more; gives (rank, outcome) in the order in which they came.
    pub(crate) fn run(&mut self, until_ns: u64) -> Vec<(usize, Outcome)> {
        self.run_seen(until_ns, |_, _, _| {})
    }

    /// Likewise; rows that are coded elsewhere are given to `device` (with the rank), which is
    /// asked for what is done (`None`) again and again.
    pub(crate) fn run_offloading(
        &mut self,
        until_ns: u64,
        mut device: impl FnMut(usize, Option<Offloaded>) -> Option<Done>,
    ) -> Vec<(usize, Outcome)> {
        let results = RefCell::new(Vec::new());
        let communicators = RefCell::new(&mut self.communicators);
        self.network.run_with(
            until_ns,
            |network, rank, event| {
                let now_ns = network.now_ns;
                communicators.borrow_mut()[rank].handle_event(now_ns, event, &mut network.endpoints[rank]);
            },
            |network, rank| {
                let (now_ns, endpoint) = (network.now_ns, &mut network.endpoints[rank]);
                let communicator = &mut communicators.borrow_mut()[rank];
                let task = communicator.poll_task(endpoint);
                let worked = task.is_some();
                let done = match task.map(Task::offload) {
                    Some(Err(task)) => Some(task.run()),
                    Some(Ok(offloaded)) => device(rank, Some(offloaded)),
                    None => device(rank, None),
                };
                let finished = done.is_some();
                if let Some(done) = done {
                    communicator.complete(now_ns, done, endpoint);
                }
                let Some(outcome) = communicator.poll_outcome(now_ns, endpoint) else {
                    return worked || finished;
                };
                results.borrow_mut().push((rank, outcome));
                true
            },
        );
        results.into_inner()
    }

    /// Likewise; `see` is shown each event of each rank before its communicator.
    pub(crate) fn run_seen(
        &mut self,
        until_ns: u64,
        see: impl FnMut(u64, usize, &mut Event),
    ) -> Vec<(usize, Outcome)> {
        let mut results = Vec::new();
        self.run_taken(until_ns, see, |_, rank, outcome, _, _| results.push((rank, outcome)));
        results
    }

    /// Likewise; `take` is given each outcome, with the rank's communicator and endpoint.
    pub(crate) fn run_taken(
        &mut self,
        until_ns: u64,
        mut see: impl FnMut(u64, usize, &mut Event),
        mut take: impl FnMut(u64, usize, Outcome, &mut Communicator, &mut Endpoint),
    ) {
        let communicators = RefCell::new(&mut self.communicators);
        self.network.run_with(
            until_ns,
            |network, rank, mut event| {
                let now_ns = network.now_ns;
                see(now_ns, rank, &mut event);
                communicators.borrow_mut()[rank].handle_event(now_ns, event, &mut network.endpoints[rank]);
            },
            |network, rank| {
                let (now_ns, endpoint) = (network.now_ns, &mut network.endpoints[rank]);
                let communicator = &mut communicators.borrow_mut()[rank];
                let worked = communicator.work(now_ns, endpoint);
                let Some(outcome) = communicator.poll_outcome(now_ns, endpoint) else { return worked };
                take(now_ns, rank, outcome, communicator, endpoint);
                true
            },
        );
    }

    /// Nothing is under way at any rank, and no timer runs.
    pub(crate) fn is_quiet(&self) -> bool {
        self.communicators.iter().all(|communicator| communicator.active().count() == 0)
            && self.network.endpoints.iter().all(|endpoint| endpoint.poll_timeout().is_none())
    }
}
