// SPDX-License-Identifier: Apache-2.0
//! `topology`: whole fabrics from a few numbers.
//!
//! This file reads the numbers; `wiring` makes switches, hosts and links of them. What comes out is
//! as if it had been written out, and what stands in `switches`, `hosts` and `links` adds to it or
//! overrides it.

mod wiring;

use std::collections::BTreeMap;

use super::addresses::{self, Network};
use super::keys;
use super::switch;
use crate::model::{Host, Link, Mac, PipelineFiles, Switch, Target};
use crate::units;
use crate::yaml::Node;
use crate::yaml::fields::{Fields, entries, integer, join};
use crate::yaml::problem::{Located, Problems};

/// Hosts of a generated fabric: as many as were tried (docs/reference/controller.md, "Scale").
const MOST_HOSTS: u64 = 16_384;
/// Ports of a switch, from 1.
const MOST_PORTS: u64 = 509;
/// The last byte of a host's IPv4 address, and of its MAC.
const MOST_HOSTS_IN_RACK: u64 = 254;

/// A generated fabric.
pub(super) struct Generated {
    /// Of the generator's key: where everything generated "stands".
    pub line: usize,
    pub path: String,
    pub switches: BTreeMap<String, Switch>,
    pub hosts: BTreeMap<String, Host>,
    pub links: Vec<Link>,
}

/// How switches are connected.
#[derive(Debug, Clone, Copy)]
enum Shape {
    /// Two switches and `trunks` links between them.
    Dumbbell { trunks: u64 },
    /// Every leaf to every spine by `parallel` links.
    LeafSpine { leaves: u64, spines: u64, parallel: u64 },
    /// k pods of k/2 edge and k/2 aggregation switches, (k/2)² cores (Al-Fares, Loukissas and
    /// Vahdat, SIGCOMM 2008).
    FatTree { k: u64 },
}

impl Shape {
    /// Switches that hosts hang on, one rack each.
    fn racks(self) -> u64 {
        match self {
            Self::Dumbbell { .. } => 2,
            Self::LeafSpine { leaves, .. } => leaves,
            Self::FatTree { k } => k * (k / 2),
        }
    }

    /// Links of such a switch to other switches.
    fn uplinks(self) -> u64 {
        match self {
            Self::Dumbbell { trunks } => trunks,
            Self::LeafSpine { spines, parallel, .. } => spines * parallel,
            Self::FatTree { k } => k / 2,
        }
    }

    /// Ports of the switch that has most of them.
    fn most_ports(self, hosts: u64) -> u64 {
        let rack = self.uplinks() + hosts;
        match self {
            Self::Dumbbell { .. } => rack,
            Self::LeafSpine { leaves, parallel, .. } => rack.max(leaves * parallel),
            Self::FatTree { k } => rack.max(k),
        }
    }
}

/// A generator's numbers, checked to fit each other.
struct Plan {
    shape: Shape,
    hosts_in_rack: u64,
    host_bps: u64,
    fabric_bps: u64,
    host_delay_ns: u64,
    fabric_delay_ns: u64,
    target: Target,
    pipeline: Option<PipelineFiles>,
    addresses: Addresses,
}

/// Where counting starts.
struct Addresses {
    ipv4: Network,
    ipv6: Option<Network>,
    mac: Mac,
    device_id: u64,
    grpc: String,
}

pub(super) fn read(top: &Fields<'_>, problems: &mut Problems) -> Option<Generated> {
    let node = top.node("topology")?;
    let fields = Fields::of(node, "topology", keys::TOPOLOGY, problems);
    let mut given = keys::TOPOLOGY.iter().filter_map(|kind| Some((*kind, fields.node(kind)?)));
    let Some((kind, first)) = given.next() else {
        let valid = keys::TOPOLOGY.join(", ");
        problems.add(node.line, "topology", format!("names no generator; valid: {valid}"));
        return None;
    };
    if let Some((other, second)) = given.next() {
        let message = format!("one generator makes one fabric, and {kind} is given in line {}", first.line);
        problems.add(second.line, join("topology", other), message);
    }
    // The key stands on the line before what it maps to, or on the same.
    let line = entries(node, "topology", &mut Problems::default())
        .iter()
        .find(|(name, ..)| *name == kind)
        .map_or(first.line, |(_, line, _)| *line);
    generate(kind, line, first, problems)
}

fn generate(kind: &str, line: usize, node: &Node, problems: &mut Problems) -> Option<Generated> {
    let path = join("topology", kind);
    let valid = match kind {
        "dumbbell" => keys::DUMBBELL,
        "leaf_spine" => keys::LEAF_SPINE,
        _ => keys::FAT_TREE,
    };
    let mut fields = Fields::of(node, &path, valid, problems);
    fields.line = line;
    let (shape, hosts) = shape(kind, &fields, problems);
    let host_bps = fields.required("host_speed", "10Gbps", problems, units::rate);
    let delays = ["host_delay", "fabric_delay"]
        .map(|key| fields.parsed(key, problems, units::time).map_or(0, |delay| delay.value));
    let target = switch::target(&fields, problems).map_or(Target::Trimwire, |target| target.value);
    let pipeline = switch::pipeline(&fields, target, problems);
    if target.is_stratum() && fields.node("pipeline").is_none() {
        problems.add(line, &path, switch::no_pipeline(target));
    }
    let addresses = read_addresses(&fields, problems);
    let (shape, hosts, host_bps) = (shape?, hosts?, host_bps?.value);
    let fabric_bps = fabric_speed(&fields, shape, hosts, host_bps, problems)?;
    let total = shape.racks() * hosts;
    if total > MOST_HOSTS {
        let message = format!("makes {total} hosts; a generated fabric has at most {MOST_HOSTS}");
        problems.add(line, &path, message);
        return None;
    }
    let ports = shape.most_ports(hosts);
    if ports > MOST_PORTS {
        problems.add(line, &path, format!("makes a switch of {ports} ports; the program has {MOST_PORTS}"));
        return None;
    }
    let plan = Plan {
        shape,
        hosts_in_rack: hosts,
        host_bps,
        fabric_bps,
        host_delay_ns: delays[0],
        fabric_delay_ns: delays[1],
        target,
        pipeline,
        addresses,
    };
    match wiring::wire(&plan) {
        Ok((switches, hosts, links)) => Some(Generated { line, path, switches, hosts, links }),
        Err(message) => {
            let at = fields.node("addresses").map_or(line, |node| node.line);
            problems.add(at, join(&path, "addresses"), message);
            None
        }
    }
}

/// The shape, and the hosts of a rack.
fn shape(kind: &str, fields: &Fields<'_>, problems: &mut Problems) -> (Option<Shape>, Option<u64>) {
    let in_rack = integer(1..=MOST_HOSTS_IN_RACK);
    let mut count = |key: &str, most: u64| {
        fields.required(key, "4", problems, integer(1..=most)).map(|count| count.value)
    };
    match kind {
        "dumbbell" => {
            let hosts = count("hosts_per_side", MOST_HOSTS_IN_RACK);
            let trunks = fields.parsed("trunks", problems, integer(1..=MOST_PORTS));
            let trunks = trunks.map_or(Some(1), |trunks| Some(trunks.value));
            (trunks.map(|trunks| Shape::Dumbbell { trunks }), hosts)
        }
        "leaf_spine" => {
            let (leaves, spines) = (count("leaves", MOST_HOSTS), count("spines", MOST_PORTS));
            let hosts = count("hosts_per_leaf", MOST_HOSTS_IN_RACK);
            let parallel = fields.parsed("links_per_spine", problems, integer(1..=MOST_PORTS));
            let parallel = parallel.map_or(1, |parallel| parallel.value);
            let shape =
                leaves.zip(spines).map(|(leaves, spines)| Shape::LeafSpine { leaves, spines, parallel });
            (shape, hosts)
        }
        _ => {
            let even = |text: &str| {
                let k = integer(2_u64..=64)(text)?;
                if k.is_multiple_of(2) {
                    Ok(k)
                } else {
                    Err(format!("'{text}' is odd; k is even, as in k: 4"))
                }
            };
            let k = fields.required("k", "4", problems, even).map(|k| k.value);
            let hosts = fields.parsed("hosts_per_edge", problems, in_rack).map(|hosts| hosts.value);
            (k.map(|k| Shape::FatTree { k }), hosts.or(k.map(|k| k / 2)))
        }
    }
}

/// Speed of the links between switches: as given, or what the oversubscription of the switches with
/// hosts asks for.
fn fabric_speed(
    fields: &Fields<'_>,
    shape: Shape,
    hosts: u64,
    host_bps: u64,
    problems: &mut Problems,
) -> Option<u64> {
    let given = fields.parsed("fabric_speed", problems, units::rate);
    let ratio = fields.parsed("oversubscription", problems, units::ratio);
    match (given, ratio) {
        (Some(speed), None) => Some(speed.value),
        (None, None) => Some(host_bps),
        (Some(speed), Some(ratio)) => {
            let message =
                format!("follows from fabric_speed, which is given in line {}; write one", speed.line);
            problems.add(ratio.line, ratio.path, message);
            None
        }
        (None, Some(Located { value: (over, under), text, line, path })) => {
            let product = u128::from(hosts) * u128::from(host_bps) * under;
            let divisor = u128::from(shape.uplinks()) * over;
            let whole = product.is_multiple_of(divisor) && product > 0;
            let speed = whole.then(|| u64::try_from(product / divisor).ok()).flatten();
            if speed.is_none() {
                let message = format!(
                    "'{text}': {hosts} × {} over {} links makes no whole number of bit/s; write fabric_speed",
                    units::rate_text(host_bps),
                    shape.uplinks()
                );
                problems.add(line, path, message);
            }
            speed
        }
    }
}

fn read_addresses(top: &Fields<'_>, problems: &mut Problems) -> Addresses {
    let mut plan = Addresses {
        ipv4: Network { address: [10, 0, 0, 0].into(), prefix_len: 8 },
        ipv6: Some(Network { address: [0xfd00, 0, 0, 0, 0, 0, 0, 0].into(), prefix_len: 64 }),
        mac: Mac([2, 0, 0, 0, 0, 0]),
        device_id: 1,
        grpc: "127.0.0.1:9559".to_owned(),
    };
    let Some(node) = top.node("addresses") else { return plan };
    let fields = Fields::of(node, &top.path("addresses"), keys::ADDRESSES, problems);
    let of_kind = |wanted_ipv4: bool, example: &'static str| {
        move |text: &str| {
            let network = addresses::network(text)?;
            if network.address.is_ipv4() == wanted_ipv4 {
                Ok(network)
            } else {
                Err(format!("'{text}' is of the other IP version; write one as {example}"))
            }
        }
    };
    if let Some(network) = fields.parsed("ipv4", problems, of_kind(true, "10.0.0.0/8")) {
        plan.ipv4 = network.value;
    }
    let ipv6 = of_kind(false, "fd00::/64");
    let ipv6 = |text: &str| if text == "off" { Ok(None) } else { ipv6(text).map(Some) };
    if let Some(network) = fields.parsed("ipv6", problems, ipv6) {
        plan.ipv6 = network.value;
    }
    if let Some(mac) = fields.parsed("mac", problems, addresses::mac) {
        plan.mac = mac.value;
    }
    if let Some(id) = fields.parsed("device_id", problems, integer(0..=u64::MAX)) {
        plan.device_id = id.value;
    }
    // With a switch's name in place, all of the pattern has to be an address.
    let pattern = |text: &str| {
        addresses::socket(&text.replace("{name}", "s1").replace("{n}", "1")).map(|_| text.to_owned())
    };
    if let Some(grpc) = fields.parsed("grpc", problems, pattern) {
        plan.grpc = grpc.value;
    }
    plan
}

#[cfg(test)]
mod tests;
