//! Routes: shortest paths over the links that are up, all of equal length used (ECMP).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use crate::spec::{End, Fabric, Link, Mac};

/// Where a port leads: the neighbour and the Ethernet address that frames to it carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// The link's other end.
    pub end: End,
    /// The host's address, or the one that stands for the neighbouring switch's port.
    pub mac: Mac,
}

/// The routes of one switch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SwitchRoutes {
    /// By host: the ports on shortest paths; never empty.
    pub next_hops: BTreeMap<String, BTreeSet<u16>>,
    /// Every linked port.
    pub neighbours: BTreeMap<u16, Neighbour>,
}

/// The routes of a fabric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routes {
    /// By switch; every switch is there.
    pub switches: BTreeMap<String, SwitchRoutes>,
    /// Hosts that a switch has no path to.
    unreachable: BTreeMap<String, Vec<String>>,
}

impl Routes {
    /// Computes them.
    pub fn of(fabric: &Fabric) -> Self {
        let mut switches: BTreeMap<String, SwitchRoutes> =
            fabric.switches.keys().map(|name| (name.clone(), SwitchRoutes::default())).collect();
        // Switch to its links that are up: own port, other end.
        let mut adjacent: BTreeMap<&str, Vec<(u16, &End)>> = BTreeMap::new();
        let mut attached: BTreeMap<&str, (&str, u16)> = BTreeMap::new();
        for Link { a, b, up, .. } in &fabric.links {
            for (near, far) in [(a, b), (b, a)] {
                let End::Port(switch, port) = near else { continue };
                if let Some(routes) = switches.get_mut(switch) {
                    let neighbour = Neighbour { end: far.clone(), mac: mac_of(fabric, far) };
                    routes.neighbours.insert(*port, neighbour);
                }
                if *up {
                    adjacent.entry(switch).or_default().push((*port, far));
                    if let End::Host(host) = far {
                        attached.insert(host, (switch, *port));
                    }
                }
            }
        }
        // Hosts of one switch share their ways to it.
        let mut ways: BTreeMap<&str, BTreeMap<&str, BTreeSet<u16>>> = BTreeMap::new();
        for (switch, _) in attached.values() {
            ways.entry(switch).or_insert_with(|| {
                let distances = distances(switch, &adjacent);
                let names = fabric.switches.keys().map(String::as_str);
                names.map(|name| (name, downhill(name, &distances, &adjacent))).collect()
            });
        }
        let mut unreachable: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for host in fabric.hosts.keys() {
            for (name, routes) in &mut switches {
                let ports = match attached.get(host.as_str()) {
                    Some((switch, port)) if switch == name => BTreeSet::from([*port]),
                    Some((switch, _)) => {
                        ways.get(switch).and_then(|ways| ways.get(name.as_str())).cloned().unwrap_or_default()
                    }
                    None => BTreeSet::new(),
                };
                if ports.is_empty() {
                    unreachable.entry(host.clone()).or_default().push(name.clone());
                } else {
                    routes.next_hops.insert(host.clone(), ports);
                }
            }
        }
        Self { switches, unreachable }
    }

    /// Hosts that some switch cannot reach, in words.
    pub fn unreachable(&self) -> Vec<String> {
        self.unreachable
            .iter()
            .map(|(host, from)| {
                format!(
                    "host {host} cannot be reached from {}: no path of links that are up",
                    from.join(", ")
                )
            })
            .collect()
    }
}

/// Hops from every switch to `target`. Links are symmetric, so the search may start at the target.
fn distances<'f>(
    target: &'f str,
    adjacent: &BTreeMap<&'f str, Vec<(u16, &'f End)>>,
) -> BTreeMap<&'f str, usize> {
    let mut distances = BTreeMap::from([(target, 0)]);
    let mut queue = VecDeque::from([(target, 0)]);
    while let Some((switch, distance)) = queue.pop_front() {
        for (_, far) in adjacent.get(switch).into_iter().flatten() {
            let End::Port(next, _) = far else { continue };
            if !distances.contains_key(next.as_str()) {
                distances.insert(next, distance + 1);
                queue.push_back((next, distance + 1));
            }
        }
    }
    distances
}

/// Ports of `switch` whose neighbour is one hop nearer.
fn downhill(
    switch: &str,
    distances: &BTreeMap<&str, usize>,
    adjacent: &BTreeMap<&str, Vec<(u16, &End)>>,
) -> BTreeSet<u16> {
    let Some(own) = distances.get(switch) else { return BTreeSet::new() };
    let links = adjacent.get(switch).into_iter().flatten();
    links
        .filter(|(_, far)| match far {
            End::Port(next, _) => distances.get(next.as_str()).is_some_and(|distance| distance + 1 == *own),
            End::Host(_) => false,
        })
        .map(|(port, _)| *port)
        .collect()
}

/// How many links each switch is away from the nearest one with a host: 0 for leaves, 1 for spines, 2 for cores. Switches that
/// no host hangs on, however far, are not in it.
///
/// Links that are down count: a switch does not change its place in the fabric when a cable breaks.
pub fn tiers(fabric: &Fabric) -> BTreeMap<&str, usize> {
    let mut tiers: BTreeMap<&str, usize> = BTreeMap::new();
    let mut adjacent: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for Link { a, b, .. } in &fabric.links {
        match (a, b) {
            (End::Host(_), End::Port(switch, _)) | (End::Port(switch, _), End::Host(_)) => {
                tiers.insert(switch, 0);
            }
            (End::Port(a, _), End::Port(b, _)) => {
                adjacent.entry(a).or_default().insert(b);
                adjacent.entry(b).or_default().insert(a);
            }
            (End::Host(_), End::Host(_)) => {}
        }
    }
    let mut queue: VecDeque<(&str, usize)> = tiers.iter().map(|(name, tier)| (*name, *tier)).collect();
    while let Some((switch, tier)) = queue.pop_front() {
        for next in adjacent.get(switch).into_iter().flatten() {
            if !tiers.contains_key(next) {
                tiers.insert(next, tier + 1);
                queue.push_back((next, tier + 1));
            }
        }
    }
    tiers
}

/// A switch's port has an address made of device id and port, locally administered. Switches route whatever arrives, so it
/// only has to be the same every time and nobody's group address.
fn mac_of(fabric: &Fabric, end: &End) -> Mac {
    match end {
        End::Host(name) => fabric.hosts.get(name).map_or(Mac([2, 0, 0, 0, 0, 0]), |host| host.mac),
        End::Port(name, port) => {
            let id = fabric.switches.get(name).map_or(0, |switch| switch.device_id);
            let [.., a, b, c] = id.to_be_bytes();
            let [d, e] = port.to_be_bytes();
            Mac([0x06, a, b, c, d, e])
        }
    }
}

/// A host's addresses.
pub fn addresses(fabric: &Fabric, host: &str) -> Vec<IpAddr> {
    let Some(host) = fabric.hosts.get(host) else { return Vec::new() };
    [Some(IpAddr::V4(host.ip)), host.ip6.map(IpAddr::V6)].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests;
