// SPDX-License-Identifier: Apache-2.0
//! What all domains of a run share and none changes: flows, routes, where nodes are.

use super::discipline::{Counts, Rule};
use super::packet::HEAD;
use super::program::Programs;
use super::random::mix;
use super::setup::{LinkChange, Setup};
use super::topology::{Node, Routes, Topology};
use super::transport::{Flow, Transport};
use super::workload::Begin;
use std::collections::{BTreeMap, BTreeSet};

/// A flow of the run, or a computation, and what waits for it.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) flow: Flow,
    pub(crate) begin: Begin,
    /// Whether it is what the run is about, and not its background.
    pub(crate) foreground: bool,
    /// Flows that have to be over before this one may begin.
    pub(crate) waits_for: u32,
    /// Flows that wait for this one; they begin where it ends.
    pub(crate) next: Vec<u32>,
    /// Where its two hosts keep it.
    pub(crate) sender_slot: u32,
    pub(crate) receiver_slot: u32,
}

impl Planned {
    /// Whether it is a computation, of which nothing is sent.
    pub(crate) fn computes(&self) -> bool {
        self.flow.source == self.flow.destination
    }
}

/// Where a node is: domain, and place among its hosts or switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) domain: u32,
    pub(crate) index: u32,
}

/// Everything that stays as it is.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) flows: Vec<Planned>,
    /// Ways when all links are up: how long they are, and where hosts are attached.
    pub(crate) routes: Routes,
    /// From when on switches have other ways, and those; ascending.
    pub(crate) later: Vec<(u64, Routes)>,
    pub(crate) topology: Topology,
    pub(crate) hosts: Vec<Place>,
    pub(crate) switches: Vec<Place>,
    pub(crate) domains: u32,
    /// No domain hears of another's doings sooner.
    pub(crate) lookahead_ns: u64,
    pub(crate) transport: Transport,
    pub(crate) rule: Rule,
    /// Where PFC counts by ports, of every link: the place of its port at each end.
    places: Vec<[u16; 2]>,
    pub(crate) programs: Option<Programs>,
    pub(crate) seed: u64,
    pub(crate) changes: Vec<LinkChange>,
    /// Whether flows tell what arrived of every packet.
    pub(crate) keep_planes: bool,
}

impl Network {
    /// Plans a run. Demands name hosts of the topology, and wait only for earlier ones that end
    /// where they begin.
    pub(crate) fn new(setup: &Setup) -> Self {
        let Setup { topology, demands, payload, seed, .. } = setup;
        let (payload, seed) = (*payload, *seed);
        let routes = Routes::new(topology);
        let (hosts, switches, domains, lookahead_ns) = divide(topology);
        let mut slots: BTreeMap<(u32, bool), u32> = BTreeMap::new();
        let mut slot = |host: u32, sends: bool| {
            let next = slots.entry((host, sends)).or_default();
            *next += 1;
            *next - 1
        };
        let mut flows: Vec<Planned> = Vec::with_capacity(demands.len());
        for (number, demand) in (0..).zip(demands) {
            let (source, destination) = (demand.source, demand.destination);
            let whole = demand.bytes.clamp(1, u64::from(payload)) as u32 + HEAD;
            let flow = Flow {
                number,
                source,
                destination,
                bytes: demand.bytes.max(1),
                payload,
                base_rtt_ns: routes.one_way_ns(source, destination, whole)
                    + routes.one_way_ns(destination, source, super::packet::CONTROL),
                rate_bps: routes.card_bps(source).min(routes.card_bps(destination)),
                hosts: topology.hosts,
                foreground: demand.foreground,
                priority: demand.priority,
                seed: mix(seed ^ mix(u64::from(number))),
            };
            let (sender_slot, receiver_slot) =
                if demand.computes() { (0, 0) } else { (slot(source, true), slot(destination, false)) };
            let waits_for = demand.after.len() as u32;
            let (begin, foreground) = (demand.begin, demand.foreground);
            flows.push(Planned {
                flow,
                begin,
                foreground,
                waits_for,
                next: Vec::new(),
                sender_slot,
                receiver_slot,
            });
            for &before in &demand.after {
                if let Some(before) = flows.get_mut(before as usize) {
                    before.next.push(number);
                }
            }
        }
        Self {
            flows,
            later: later(setup),
            routes,
            topology: topology.clone(),
            hosts,
            switches,
            domains,
            lookahead_ns,
            transport: setup.transport.clone(),
            rule: setup.rule,
            places: setup.rule.pfc().map_or_else(Vec::new, |_| topology.places()),
            programs: setup.programs.clone(),
            seed,
            changes: setup.changes.clone(),
            keep_planes: setup.keep_planes,
        }
    }

    /// The ways of an era: 0 is the first, others are `later`'s.
    pub(crate) fn ways(&self, era: usize) -> &Routes {
        let later = era.checked_sub(1).and_then(|era| self.later.get(era));
        later.map_or(&self.routes, |(_, routes)| routes)
    }

    /// What a node calls the port at its end of a link, where it is a switch that runs the program.
    pub(crate) fn ingress(&self, link: usize, node: Node) -> u16 {
        let (Some(programs), Node::Switch(switch)) = (&self.programs, node) else { return 0 };
        let Some(program) = programs.of(switch) else { return 0 };
        let place = self.topology.links_of(switch).iter().position(|&other| other == link);
        place.and_then(|place| program.ports.get(place)).copied().unwrap_or(0)
    }

    /// The place of the port at a node's end of a link, where PFC counts by ports.
    pub(crate) fn place_of_port(&self, link: usize, node: Node) -> u16 {
        let Some(places) = self.places.get(link) else { return 0 };
        places[usize::from(self.topology.links[link].ends[1] == node)]
    }

    /// Whether a node looks at heads.
    pub(crate) fn reads_heads(&self, node: Node) -> Option<&Programs> {
        let (Some(programs), Node::Switch(switch)) = (&self.programs, node) else { return None };
        programs.of(switch).map(|_| programs)
    }
}

/// The ways after each change of links, as long after it as whoever writes them takes.
fn later(setup: &Setup) -> Vec<(u64, Routes)> {
    let Some(delay_ns) = setup.reroute_ns else { return Vec::new() };
    let mut changes = setup.changes.clone();
    changes.sort_by_key(|change| change.at_ns);
    let (mut down, mut made) = (BTreeSet::new(), Vec::new());
    for together in changes.chunk_by(|a, b| a.at_ns == b.at_ns) {
        let before = down.clone();
        for change in together {
            if change.up {
                down.remove(&change.link);
            } else {
                down.insert(change.link);
            }
        }
        if down != before {
            let at_ns = together[0].at_ns.saturating_add(delay_ns);
            made.push((at_ns, Routes::without(&setup.topology, &down)));
        }
    }
    made
}

/// Each switch with its hosts is a domain; where links between switches have no delay there is only
/// one.
fn divide(topology: &Topology) -> (Vec<Place>, Vec<Place>, u32, u64) {
    let between =
        topology.links.iter().filter(|link| link.ends.iter().all(|end| matches!(end, Node::Switch(_))));
    let lookahead_ns = between.map(|link| link.delay_ns).min().unwrap_or(u64::MAX / 4);
    let one = lookahead_ns == 0;
    let mut inside = vec![0; if one { 1 } else { topology.switches as usize }];
    let mut hosts = Vec::new();
    for (_, _, other) in topology.cards() {
        let switch = if let Node::Switch(switch) = other { switch } else { 0 };
        let domain = if one { 0 } else { switch };
        hosts.push(Place { domain, index: inside[domain as usize] });
        inside[domain as usize] += 1;
    }
    let switches = (0..topology.switches)
        .map(|s| if one { Place { domain: 0, index: s } } else { Place { domain: s, index: 0 } });
    (hosts, switches.collect(), inside.len() as u32, lookahead_ns.max(1))
}

/// What a run has counted, in all domains.
#[derive(Debug, Clone, Default)]
pub(crate) struct Totals {
    pub(crate) hops: u64,
    pub(crate) sent: u64,
    pub(crate) repairs: u64,
    pub(crate) timeouts: u64,
    /// DATA lost on links that are down or gray.
    pub(crate) lost: u64,
    pub(crate) switches: Counts,
    pub(crate) memory: usize,
}
