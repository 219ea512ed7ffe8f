// SPDX-License-Identifier: Apache-2.0
//! Networks of the usual shapes.

use super::{Node, Topology};

/// A shape, with its sizes. Rates are in bit/s, delays, of each link, in ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Hosts on one switch.
    Star {
        /// How many.
        hosts: u32,
        /// Speed of each.
        rate_bps: u64,
        /// Of each link.
        delay_ns: u64,
    },
    /// Two switches; the first half of the hosts on one, the rest on the other.
    Dumbbell {
        /// How many in all.
        hosts: u32,
        /// Speed of each.
        rate_bps: u64,
        /// Of the link between the switches.
        bottleneck_bps: u64,
        /// Of each link.
        delay_ns: u64,
    },
    /// Every leaf has a link to every spine.
    LeafSpine {
        /// Switches with hosts.
        leaves: u32,
        /// Switches between them.
        spines: u32,
        /// On each leaf.
        hosts_per_leaf: u32,
        /// Of hosts.
        rate_bps: u64,
        /// Of links between switches.
        uplink_bps: u64,
        /// Of each link.
        delay_ns: u64,
    },
    /// Three tiers of switches with k ports: k³/4 hosts (Al-Fares et al., SIGCOMM 2008).
    FatTree {
        /// Ports of a switch, even.
        k: u32,
        /// Of every link.
        rate_bps: u64,
        /// Of each link.
        delay_ns: u64,
    },
}

impl Shape {
    /// The network; leaves and edges come first among the switches, hosts in their order.
    pub fn topology(&self) -> Topology {
        let mut made = Topology::default();
        match *self {
            Self::Star { hosts, rate_bps, delay_ns } => {
                (made.hosts, made.switches) = (hosts, 1);
                for host in 0..hosts {
                    made.join(Node::Host(host), Node::Switch(0), rate_bps, delay_ns);
                }
            }
            Self::Dumbbell { hosts, rate_bps, bottleneck_bps, delay_ns } => {
                (made.hosts, made.switches) = (hosts, 2);
                for host in 0..hosts {
                    let side = u32::from(host >= hosts / 2);
                    made.join(Node::Host(host), Node::Switch(side), rate_bps, delay_ns);
                }
                made.join(Node::Switch(0), Node::Switch(1), bottleneck_bps, delay_ns);
            }
            Self::LeafSpine { leaves, spines, hosts_per_leaf, rate_bps, uplink_bps, delay_ns } => {
                (made.hosts, made.switches) = (leaves * hosts_per_leaf, leaves + spines);
                for host in 0..made.hosts {
                    made.join(Node::Host(host), Node::Switch(host / hosts_per_leaf), rate_bps, delay_ns);
                }
                for leaf in 0..leaves {
                    for spine in 0..spines {
                        made.join(Node::Switch(leaf), Node::Switch(leaves + spine), uplink_bps, delay_ns);
                    }
                }
            }
            Self::FatTree { k, rate_bps, delay_ns } => {
                let half = k / 2;
                let (edges, cores) = (k * half, half * half);
                (made.hosts, made.switches) = (edges * half, 2 * edges + cores);
                for host in 0..made.hosts {
                    made.join(Node::Host(host), Node::Switch(host / half), rate_bps, delay_ns);
                }
                for edge in 0..edges {
                    let pod = edge / half;
                    for up in 0..half {
                        let aggregation = edges + pod * half + up;
                        made.join(Node::Switch(edge), Node::Switch(aggregation), rate_bps, delay_ns);
                    }
                }
                for aggregation in 0..edges {
                    for up in 0..half {
                        let core = 2 * edges + (aggregation % half) * half + up;
                        made.join(Node::Switch(edges + aggregation), Node::Switch(core), rate_bps, delay_ns);
                    }
                }
            }
        }
        made
    }
}
