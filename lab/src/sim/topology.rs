// SPDX-License-Identifier: Apache-2.0
//! Hosts, switches, links, and the shortest ways between them.

mod generate;
mod routes;

pub use generate::Shape;
pub use routes::Routes;

/// A node of a topology.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Node {
    /// By number.
    Host(u32),
    /// By number.
    Switch(u32),
}

/// A full-duplex link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// Its ends.
    pub ends: [Node; 2],
    /// Speed each way, bit/s.
    pub rate_bps: u64,
    /// Propagation delay, ns.
    pub delay_ns: u64,
}

/// A network; every host has one link.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Topology {
    /// Number of hosts.
    pub hosts: u32,
    /// Number of switches.
    pub switches: u32,
    /// In the order in which ports are numbered.
    pub links: Vec<Link>,
}

impl Topology {
    fn join(&mut self, a: Node, b: Node, rate_bps: u64, delay_ns: u64) {
        self.links.push(Link { ends: [a, b], rate_bps, delay_ns });
    }

    /// A switch's links in the order of its ports, by their places.
    pub fn links_of(&self, switch: u32) -> Vec<usize> {
        let numbered = self.links.iter().enumerate();
        numbered
            .filter(|(_, link)| link.ends.contains(&Node::Switch(switch)))
            .map(|(number, _)| number)
            .collect()
    }

    /// Of every link: the place of its port at each end, where that is a switch.
    pub(crate) fn places(&self) -> Vec<[u16; 2]> {
        let mut next = vec![0_u16; self.switches as usize];
        let mut place = |end: Node| match end {
            Node::Host(_) => 0,
            Node::Switch(switch) => {
                let next = &mut next[switch as usize];
                *next = next.saturating_add(1);
                *next - 1
            }
        };
        self.links.iter().map(|link| link.ends.map(&mut place)).collect()
    }

    /// The links of every switch in the order of its ports: place, link, what is at the other end.
    pub(crate) fn ports(&self) -> Vec<Vec<(usize, Link, Node)>> {
        let mut ports = vec![Vec::new(); self.switches as usize];
        for (place, link) in self.links.iter().enumerate() {
            for (end, other) in [(link.ends[0], link.ends[1]), (link.ends[1], link.ends[0])] {
                if let Node::Switch(switch) = end {
                    ports[switch as usize].push((place, *link, other));
                }
            }
        }
        ports
    }

    /// The link of every host: place, link, the switch (or host) at its other end.
    pub(crate) fn cards(&self) -> Vec<(usize, Link, Node)> {
        let mut cards = vec![None; self.hosts as usize];
        for (place, link) in self.links.iter().enumerate() {
            for (end, other) in [(link.ends[0], link.ends[1]), (link.ends[1], link.ends[0])] {
                if let Node::Host(host) = end {
                    cards[host as usize] = Some((place, *link, other));
                }
            }
        }
        cards.into_iter().flatten().collect()
    }
}
