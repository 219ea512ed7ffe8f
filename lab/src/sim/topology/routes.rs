// SPDX-License-Identifier: Apache-2.0
//! Which of a switch's ports lead to a host by the fewest hops.

use super::{Link, Node, Topology};
use crate::sim::line::duration_ns;
use std::collections::{BTreeSet, VecDeque};

/// The ways to all hosts, by switch.
#[derive(Debug)]
pub struct Routes {
    /// The switch that a host is attached to, and its port there.
    attached: Vec<(u32, u32)>,
    /// By switch, by the switch of the destination: ports, ascending.
    groups: Vec<Vec<Box<[u32]>>>,
    /// By host: rate and delay of its link.
    cards: Vec<(u64, u64)>,
    /// By switch and port: rate, delay, and the switch there.
    links: Vec<Vec<(u64, u64, Option<u32>)>>,
}

impl Routes {
    /// Of a network in which every host has one link.
    pub fn new(topology: &Topology) -> Self {
        Self::without(topology, &BTreeSet::new())
    }

    /// The same where some links, by their places, lead nowhere. Ports keep their numbers.
    pub(crate) fn without(topology: &Topology, down: &BTreeSet<usize>) -> Self {
        let ports = topology.ports();
        let mut attached = vec![(0, 0); topology.hosts as usize];
        let mut links = Vec::new();
        for (switch, ports) in (0..).zip(&ports) {
            for (port, (_, _, other)) in (0..).zip(ports) {
                if let Node::Host(host) = other {
                    attached[*host as usize] = (switch, port);
                }
            }
            let other = |place: &usize, node: &Node| match node {
                Node::Switch(there) if !down.contains(place) => Some(*there),
                _ => None,
            };
            let link = |(place, link, node): &(usize, Link, Node)| {
                (link.rate_bps, link.delay_ns, other(place, node))
            };
            links.push(ports.iter().map(link).collect::<Vec<_>>());
        }
        let mut groups = vec![vec![Box::default(); ports.len()]; ports.len()];
        let mut edges: Vec<u32> = attached.iter().map(|&(switch, _)| switch).collect();
        edges.sort_unstable();
        edges.dedup();
        for destination in edges {
            let distance = distances(&links, destination);
            for (switch, ways) in groups.iter_mut().enumerate() {
                let nearer = |other: Option<u32>| {
                    other.is_some_and(|o| {
                        distance[o as usize].is_some_and(|d| distance[switch] == Some(d + 1))
                    })
                };
                let there = (0..).zip(&links[switch]).filter(|(_, (_, _, other))| nearer(*other));
                ways[destination as usize] = there.map(|(port, _): (u32, _)| port).collect();
            }
        }
        let cards = topology.cards().iter().map(|(_, link, _)| (link.rate_bps, link.delay_ns)).collect();
        Self { attached, groups, cards, links }
    }

    /// A switch's ports to a host; empty where there is no way.
    pub fn ports(&self, switch: u32, host: u32) -> &[u32] {
        let (edge, port) = &self.attached[host as usize];
        if *edge == switch {
            std::slice::from_ref(port)
        } else {
            &self.groups[switch as usize][*edge as usize]
        }
    }

    /// Time that a frame of `bytes` takes between two hosts when nothing else is on its way, ns:
    /// delays and the frame's bits at each hop.
    pub(crate) fn one_way_ns(&self, source: u32, destination: u32, bytes: u32) -> u64 {
        let (rate, delay) = self.cards[source as usize];
        let mut time = delay + duration_ns(u64::from(bytes), rate);
        let mut switch = self.attached[source as usize].0;
        for _ in 0..self.links.len() {
            let Some(&port) = self.ports(switch, destination).first() else { break };
            let (rate, delay, next) = self.links[switch as usize][port as usize];
            time += delay + duration_ns(u64::from(bytes), rate);
            match next {
                Some(next) => switch = next,
                None => break,
            }
        }
        time
    }

    /// The switch that a host is attached to.
    pub(crate) fn attached(&self, host: u32) -> u32 {
        self.attached[host as usize].0
    }

    /// Speed of a host's link, bit/s.
    pub(crate) fn card_bps(&self, host: u32) -> u64 {
        self.cards[host as usize].0
    }
}

/// Hops from every switch to one; `None` where there is no way.
fn distances(links: &[Vec<(u64, u64, Option<u32>)>], to: u32) -> Vec<Option<u32>> {
    let mut distance = vec![None; links.len()];
    distance[to as usize] = Some(0);
    let mut queue = VecDeque::from([to]);
    while let Some(switch) = queue.pop_front() {
        let next = distance[switch as usize].map(|hops: u32| hops + 1);
        for &(_, _, other) in &links[switch as usize] {
            if let Some(other) = other.filter(|&other| distance[other as usize].is_none()) {
                distance[other as usize] = next;
                queue.push_back(other);
            }
        }
    }
    distance
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::topology::Shape;

    const RATE: u64 = 100_000_000_000;

    #[test]
    fn a_fat_tree_has_its_hosts_switches_links_and_equal_paths() {
        let k = 4;
        let topology = Shape::FatTree { k, rate_bps: RATE, delay_ns: 500 }.topology();
        assert_eq!((topology.hosts, topology.switches), (16, 20));
        assert_eq!(topology.links.len(), 16 + 16 + 16);
        assert!(topology.ports().iter().all(|ports| ports.len() == k as usize));
        let routes = Routes::new(&topology);
        // Between pods every edge and every aggregation has two ways up, and there is one down.
        assert_eq!(routes.ports(0, 15).len(), 2);
        assert_eq!(routes.ports(8, 15).len(), 2);
        assert_eq!(routes.ports(16, 15).len(), 1);
        assert_eq!(routes.ports(0, 1).len(), 1);
        // Six links of 500 ns, and six times 1,500 bytes at 100 Gbit/s.
        assert_eq!(routes.one_way_ns(0, 15, 1_500), 6 * 500 + 6 * 120);
        assert_eq!(routes.one_way_ns(0, 1, 1_500), 2 * 500 + 2 * 120);
    }

    #[test]
    fn ways_round_a_link_that_is_down_are_the_shortest_of_what_is_left() {
        let (leaves, spines, rate_bps) = (3, 2, RATE);
        let shape = Shape::LeafSpine {
            leaves,
            spines,
            hosts_per_leaf: 1,
            rate_bps,
            uplink_bps: rate_bps,
            delay_ns: 500,
        };
        let topology = shape.topology();
        // The first spine and the third leaf.
        let ends = [Node::Switch(2), Node::Switch(3)];
        let place = topology.links.iter().position(|link| link.ends == ends).unwrap();
        let routes = Routes::without(&topology, &BTreeSet::from([place]));
        assert_eq!(Routes::new(&topology).ports(0, 2), [1, 2]);
        assert_eq!((routes.ports(0, 2), routes.ports(0, 1)), (&[2][..], &[1, 2][..]));
        // The spine itself has to go back up, by way of a leaf that reaches the other.
        assert_eq!(routes.ports(3, 2), [0, 1]);
    }

    #[test]
    fn the_papers_leaf_spine_has_144_hosts_and_a_round_trip_of_24_us() {
        // MLT §6.2.1: 4 core and 9 top-of-rack switches; four hops one way, so 3 µs a hop.
        let shape = Shape::LeafSpine {
            leaves: 9,
            spines: 4,
            hosts_per_leaf: 16,
            rate_bps: RATE,
            uplink_bps: 4 * RATE,
            delay_ns: 3_000,
        };
        let topology = shape.topology();
        assert_eq!((topology.hosts, topology.switches), (144, 13));
        let routes = Routes::new(&topology);
        assert_eq!(routes.ports(0, 143).len(), 4);
        assert_eq!(routes.one_way_ns(0, 143, 0) * 2, 24_000);
    }
}
