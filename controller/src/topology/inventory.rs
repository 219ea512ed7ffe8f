// SPDX-License-Identifier: Apache-2.0
//! A fabric as it is built: everything by name, and how much of it there is.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::Topology;
use crate::model::{End, Fabric, Target};
use crate::table::Table;
use crate::units;

/// Everything by name, what was generated and what was written alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Expanded {
    /// By name.
    pub switches: BTreeMap<String, ExpandedSwitch>,
    /// By name.
    pub hosts: BTreeMap<String, ExpandedHost>,
    /// Generated ones first.
    pub links: Vec<ExpandedLink>,
}

/// A switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ExpandedSwitch {
    /// `HOST:PORT`.
    pub address: String,
    /// P4Runtime device id.
    pub device_id: u64,
    /// What kind of switch it is.
    pub target: Target,
    /// Links to the nearest switch with a host; `None` where no host is in reach.
    pub tier: Option<usize>,
}

/// A host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ExpandedHost {
    /// IPv4 address.
    pub ip: String,
    /// IPv6 address.
    pub ip6: Option<String>,
    /// Ethernet address.
    pub mac: String,
}

/// A link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ExpandedLink {
    /// A host, or `SWITCH:PORT`.
    pub a: String,
    /// The same.
    pub b: String,
    /// bit/s, each way.
    pub speed_bps: u64,
    /// Propagation.
    pub delay_ns: u64,
    /// Whether it carries traffic.
    pub up: bool,
}

impl Expanded {
    /// Of a fabric.
    pub fn of(fabric: &Fabric) -> Self {
        let topology = Topology::of(fabric);
        let switches = fabric.switches.iter().map(|(name, switch)| {
            let tier = topology.tier(name);
            let address = switch.address.clone();
            let (device_id, target) = (switch.device_id, switch.target);
            (name.clone(), ExpandedSwitch { address, device_id, target, tier })
        });
        let hosts = fabric.hosts.iter().map(|(name, host)| {
            let ip6 = host.ip6.map(|ip6| ip6.to_string());
            (name.clone(), ExpandedHost { ip: host.ip.to_string(), ip6, mac: host.mac.to_string() })
        });
        let links = fabric.links.iter().map(|link| ExpandedLink {
            a: link.a.to_string(),
            b: link.b.to_string(),
            speed_bps: link.rate_bps,
            delay_ns: link.delay_ns,
            up: link.up,
        });
        Self { switches: switches.collect(), hosts: hosts.collect(), links: links.collect() }
    }
}

/// Switches that are alike in what is linked to them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[non_exhaustive]
pub struct Tier {
    /// Links to the nearest switch with a host.
    pub tier: Option<usize>,
    /// Kind of switch.
    pub target: Target,
    /// Linked ports of each, whether up or down.
    pub ports: usize,
    /// Of those, the ones that are down.
    pub ports_down: usize,
    /// Hosts of each.
    pub hosts: usize,
    /// bit/s towards hosts, over links that are up.
    pub down_bps: u64,
    /// bit/s away from hosts or to switches of the same tier, over links that are up.
    pub up_bps: u64,
    /// Thousandths of `down_bps` over `up_bps`; `None` where no link leads further.
    pub oversubscription_thousandths: Option<u64>,
    /// Their names.
    pub switches: BTreeSet<String>,
}

/// Ports, capacities and oversubscription.
pub fn tiers(fabric: &Fabric) -> Vec<Tier> {
    let topology = Topology::of(fabric);
    let tier = |name: &str| topology.tier(name);
    let mut own: BTreeMap<&str, Tier> = fabric
        .switches
        .iter()
        .map(|(name, switch)| {
            let empty = Tier {
                tier: tier(name),
                target: switch.target,
                ports: 0,
                ports_down: 0,
                hosts: 0,
                down_bps: 0,
                up_bps: 0,
                oversubscription_thousandths: None,
                switches: BTreeSet::new(),
            };
            (name.as_str(), empty)
        })
        .collect();
    for link in &fabric.links {
        for (near, far) in [(&link.a, &link.b), (&link.b, &link.a)] {
            let End::Port(name, _) = near else { continue };
            let Some(switch) = own.get_mut(name.as_str()) else { continue };
            let towards_hosts = match far {
                End::Host(_) => {
                    switch.hosts += 1;
                    true
                }
                End::Port(other, _) => tier(other) < tier(name),
            };
            switch.ports += 1;
            if !link.up {
                switch.ports_down += 1;
            } else if towards_hosts {
                switch.down_bps = switch.down_bps.saturating_add(link.rate_bps);
            } else {
                switch.up_bps = switch.up_bps.saturating_add(link.rate_bps);
            }
        }
    }
    let mut alike: BTreeMap<Tier, BTreeSet<String>> = BTreeMap::new();
    for (name, mut switch) in own {
        let ratio = u128::from(switch.down_bps) * 1000;
        switch.oversubscription_thousandths =
            ratio.checked_div(switch.up_bps.into()).and_then(|ratio| u64::try_from(ratio).ok());
        alike.entry(switch).or_default().insert(name.to_owned());
    }
    alike.into_iter().map(|(tier, switches)| Tier { switches, ..tier }).collect()
}

/// For people.
pub fn table(tiers: &[Tier]) -> String {
    const SHOWN: usize = 4;
    let mut table = Table::new(&[
        "tier",
        "target",
        "ports",
        "down",
        "hosts",
        "to hosts",
        "onwards",
        "oversubscription",
        "switches",
    ]);
    for tier in tiers {
        let rate = |bps: u64| if bps == 0 { "-".to_owned() } else { units::rate_text(bps) };
        let ratio = tier
            .oversubscription_thousandths
            .map_or_else(|| "-".to_owned(), |thousandths| format!("{}:1", thousandths as f64 / 1000.0));
        let mut names: Vec<&str> = tier.switches.iter().take(SHOWN).map(String::as_str).collect();
        let more = format!("… {} in all", tier.switches.len());
        if tier.switches.len() > SHOWN {
            names.push(&more);
        }
        table.row([
            tier.tier.map_or_else(|| "-".to_owned(), |tier| tier.to_string()),
            tier.target.word().to_owned(),
            tier.ports.to_string(),
            tier.ports_down.to_string(),
            tier.hosts.to_string(),
            rate(tier.down_bps),
            rate(tier.up_bps),
            ratio,
            names.join(", "),
        ]);
    }
    table.to_string()
}
