// SPDX-License-Identifier: Apache-2.0
//! The three kinds of node a cluster is made of: ranks, cross-traffic senders, the switch.

use crate::cross_traffic::{CrossSender, serialisation_ns};
use crate::frame::{self, Address};
use crate::network::{Departure, Node};
use std::net::{IpAddr, SocketAddr};
use std::sync::PoisonError;
use trimwire_agent::burst::{Arrived, Burst, Origin};
use trimwire_agent::collective::{Collective, Communicator, Memory, Options, OutcomeStats};
use trimwire_agent::endpoint::Endpoint;
use trimwire_switch::{SharedSwitch, Switch};

/// A rank's result of an all-reduce.
#[derive(Debug, Clone)]
pub struct Sum {
    /// The sum, shape: the gradient's.
    pub sum: Vec<f32>,
    /// How its packets fared.
    pub stats: OutcomeStats,
    /// From the start at this rank to its result, ns.
    pub duration_ns: u64,
}

/// A rank: the agent's cores behind a network card of one port.
#[derive(Debug)]
pub struct RankHost {
    address: Address,
    /// Addresses of all ranks, by rank.
    peers: Vec<Address>,
    rate_bps: u64,
    udp_port: u16,
    endpoint: Endpoint,
    communicator: Communicator,
    options: Options,
    /// A burst whose first frames have left.
    leaving: Option<(Burst, usize)>,
    /// The card sends one frame at a time.
    free_at_ns: u64,
    done: Option<(u64, Sum)>,
    failure: Option<String>,
}

impl RankHost {
    pub(crate) fn new(
        rank: usize,
        peers: Vec<Address>,
        rate_bps: u64,
        udp_port: u16,
        endpoint: Endpoint,
        communicator: Communicator,
        options: Options,
    ) -> Self {
        let address = peers[rank];
        Self {
            address,
            peers,
            rate_bps,
            udp_port,
            endpoint,
            communicator,
            options,
            leaving: None,
            free_at_ns: 0,
            done: None,
            failure: None,
        }
    }

    /// Begins an all-reduce, or a sum for `root` alone.
    pub(crate) fn start(&mut self, now_ns: u64, step: u32, root: Option<u16>, gradient: Vec<f32>) {
        self.done = None;
        let tensor = Memory::from_vec(gradient);
        let collective = match root {
            None => Collective::AllReduce { tensor },
            Some(root) => Collective::Reduce { tensor, root },
        };
        let options = self.options.clone();
        if let Err(error) = self.communicator.start(now_ns, step, collective, options, &mut self.endpoint) {
            self.failure.get_or_insert(error.to_string());
        }
        self.drain(now_ns);
    }

    pub(crate) fn set_options(&mut self, options: Options) {
        self.options = options;
    }

    pub(crate) fn take_done(&mut self) -> Option<(u64, Sum)> {
        self.done.take()
    }

    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// The rank's transport.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn drain(&mut self, now_ns: u64) {
        let Self { endpoint, communicator, .. } = self;
        loop {
            while let Some(event) = endpoint.poll_event() {
                communicator.handle_event(now_ns, event, endpoint);
            }
            // Codecs take no time here: what is studied is the network.
            let worked = communicator.work(now_ns, endpoint);
            let Some(outcome) = communicator.poll_outcome(now_ns, endpoint) else {
                if worked {
                    continue;
                }
                return;
            };
            let (stats, duration_ns) = (outcome.stats, outcome.duration_ns);
            match outcome.result {
                Ok(()) => {
                    let sum = outcome.into_f32().unwrap_or_default();
                    self.done = Some((now_ns, Sum { sum, stats, duration_ns }));
                }
                Err(error) => {
                    self.failure.get_or_insert(error.to_string());
                }
            }
        }
    }

    fn handle_frame(&mut self, now_ns: u64, bytes: &[u8]) {
        let Some(datagram) = frame::read(bytes).filter(|d| d.destination_port == self.udp_port) else {
            return;
        };
        let source = SocketAddr::new(IpAddr::V4(datagram.source), datagram.source_port);
        self.endpoint.handle_datagram(now_ns, Arrived::now(source, datagram.tos), datagram.payload);
        self.drain(now_ns);
    }

    fn poll_transmit(&mut self, now_ns: u64) -> Option<Departure> {
        if now_ns < self.free_at_ns {
            return None;
        }
        loop {
            let (burst, nth) = match self.leaving.take() {
                Some(leaving) => leaving,
                None => (self.endpoint.poll_transmit(now_ns)?, 0),
            };
            // Room in the queues is work for who fills them.
            self.drain(now_ns);
            let Some(payload) = burst.datagrams().nth(nth) else { continue };
            let port = match burst.origin {
                Origin::Listening(_) => self.udp_port,
                Origin::Path(path) => {
                    let ports = &self.endpoint.config().source_ports;
                    ports.get(usize::from(path)).copied().unwrap_or(self.udp_port)
                }
            };
            let to = self.peers.iter().find(|peer| IpAddr::V4(peer.ip) == burst.to.ip());
            let frame =
                to.and_then(|&to| frame::write(self.address, to, burst.tos, port, self.udp_port, payload));
            if nth + 1 < burst.count() {
                self.leaving = Some((burst, nth + 1));
            }
            let Some(frame) = frame else { continue };
            self.free_at_ns = now_ns + serialisation_ns(frame.len(), self.rate_bps);
            return Some(Departure { port: 0, frame, end_ns: self.free_at_ns });
        }
    }

    fn poll_timeout(&self) -> Option<u64> {
        // The card is free later than the endpoint would like to send: nothing can leave before.
        let at_ns = if self.leaving.is_some() { Some(0) } else { self.endpoint.poll_timeout() };
        at_ns.map(|at_ns| at_ns.max(self.free_at_ns))
    }
}

/// A node of a [`crate::cluster::Cluster`].
#[derive(Debug)]
pub enum ClusterNode {
    /// A worker.
    Rank(Box<RankHost>),
    /// Somebody else's sender.
    Cross(Box<CrossSender>),
    /// The switch between them, shared with its P4Runtime server.
    Switch(SharedSwitch),
}

/// Runs `act` on a shared switch. A poisoned lock means that another thread panicked in the middle
/// of a change; the switch's own state is updated entry by entry, so it is still usable.
pub(crate) fn with_switch<R>(switch: &SharedSwitch, act: impl FnOnce(&mut Switch) -> R) -> R {
    act(&mut switch.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Node for ClusterNode {
    fn handle_frame(&mut self, now_ns: u64, port: u16, frame: Vec<u8>) {
        match self {
            Self::Rank(rank) => rank.handle_frame(now_ns, &frame),
            Self::Cross(_) => {}
            Self::Switch(switch) => with_switch(switch, |s| s.handle_frame(now_ns, port, &frame)),
        }
    }

    fn handle_timeout(&mut self, now_ns: u64) {
        match self {
            Self::Rank(rank) => {
                rank.endpoint.handle_timeout(now_ns);
                rank.drain(now_ns);
            }
            Self::Cross(_) => {}
            Self::Switch(switch) => with_switch(switch, |s| s.handle_timeout(now_ns)),
        }
    }

    fn poll_transmit(&mut self, now_ns: u64) -> Option<Departure> {
        match self {
            Self::Rank(rank) => rank.poll_transmit(now_ns),
            Self::Cross(sender) => sender.poll_transmit(now_ns),
            Self::Switch(switch) => with_switch(switch, trimwire_switch::Switch::poll_transmit)
                .map(|t| Departure { port: t.port, frame: t.frame, end_ns: t.end_ns }),
        }
    }

    fn poll_timeout(&self) -> Option<u64> {
        match self {
            Self::Rank(rank) => rank.poll_timeout(),
            Self::Cross(sender) => sender.poll_timeout(),
            Self::Switch(switch) => with_switch(switch, |s| s.poll_timeout()),
        }
    }
}
