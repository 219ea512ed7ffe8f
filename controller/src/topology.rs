// SPDX-License-Identifier: Apache-2.0
//! Who is linked to whom, and routes: shortest paths over the links that are up, all of equal
//! length used (ECMP).
//!
//! A [`Topology`] is looked at once; [`Topology::routes`] gives one switch's routes from it, in
//! time that grows with the links and not with the hosts.

mod aggregate;
pub mod inventory;
mod prefix;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use self::aggregate::Block;
pub use self::prefix::Prefix;
use crate::model::{End, Fabric, Link, Mac};

/// A port of a switch.
pub(crate) type Place = (String, u16);

/// A link between switches, as one of them has it.
#[derive(Debug)]
pub(crate) struct Trunk {
    pub near: Place,
    pub far: Place,
    /// What frames carry that come here, and that go there.
    pub macs: [Mac; 2],
    pub is_up: bool,
}

/// Where a port leads: the neighbour and the Ethernet address that frames to it carry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// The link's other end.
    pub end: End,
    /// The host's address, or the one that stands for the neighbouring switch's port.
    pub mac: Mac,
    /// Of the link, bit/s.
    pub rate_bps: u64,
}

/// Where packets to some addresses go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// Those on shortest paths; never empty.
    pub ports: BTreeSet<u16>,
    /// In words: a host's name, a rack's, or how many racks.
    pub to: String,
}

/// The routes of one switch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SwitchRoutes {
    /// None is part of another. Hosts of the switch have one each; racks elsewhere share theirs
    /// where the way is the same.
    pub prefixes: BTreeMap<Prefix, Route>,
    /// Every linked port.
    pub neighbours: BTreeMap<u16, Neighbour>,
}

impl SwitchRoutes {
    /// The route of an address.
    pub fn lookup(&self, address: IpAddr) -> Option<&Route> {
        // Prefixes are disjoint and in order: the last that starts at or before the address is the
        // only one that can have it.
        let (prefix, route) = self.prefixes.range(..=Prefix::host(address)).next_back()?;
        prefix.contains(address).then_some(route)
    }
}

/// What routes are to leave out where there is another way.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Avoid {
    /// Switches that do not work, with all their links.
    pub switches: BTreeSet<String>,
    /// Links that do not work, by either of their ports.
    pub ports: BTreeSet<(String, u16)>,
    /// Switches that work, and that a person has taken out, or that are given another program:
    /// better than what does not.
    pub drained: BTreeSet<String>,
}

/// By switch: ports, and the switches behind them.
type Links = Vec<Vec<(u16, usize)>>;

/// The links that routes use, the best first: without all that is avoided, then with what is
/// drained. A rack that none of them lead to is sought over all links: a way that may be broken is
/// better than none.
///
/// Nothing loops: a switch that reaches a rack over some of these links hands on to one that is
/// nearer over the same, or reaches it over better ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Detours(Vec<Links>);

/// A fabric's switches by number, in the order of their names.
#[derive(Debug, Clone)]
pub struct Topology {
    names: Vec<String>,
    numbers: BTreeMap<String, usize>,
    /// Those that are up.
    adjacent: Links,
    neighbours: Vec<BTreeMap<u16, Neighbour>>,
    /// By switch: its hosts with their ports; `None` where the link is down.
    hosts: Vec<Vec<(String, Option<u16>)>>,
    tiers: Vec<Option<usize>>,
    /// Racks of both IP versions, in order of addresses.
    blocks: Vec<Block>,
    /// By switch: its part of the fabric, numbered.
    parts: Vec<usize>,
}

impl Topology {
    /// Of a fabric.
    pub fn of(fabric: &Fabric) -> Self {
        let names: Vec<String> = fabric.switches.keys().cloned().collect();
        let numbers: BTreeMap<String, usize> = names.iter().cloned().zip(0..).collect();
        let count = names.len();
        let mut topology = Self {
            names,
            adjacent: vec![Vec::new(); count],
            neighbours: vec![BTreeMap::new(); count],
            hosts: vec![Vec::new(); count],
            tiers: tiers(fabric, &numbers),
            blocks: Vec::new(),
            parts: Vec::new(),
            numbers,
        };
        for link in &fabric.links {
            for (near, far) in [(&link.a, &link.b), (&link.b, &link.a)] {
                topology.link(fabric, near, far, link);
            }
        }
        topology.blocks = aggregate::blocks(&topology.addresses(fabric));
        topology.parts = parts(&topology.adjacent);
        topology
    }

    fn link(&mut self, fabric: &Fabric, near: &End, far: &End, &Link { rate_bps, up, .. }: &Link) {
        let End::Port(switch, port) = near else { return };
        let Some(number) = self.numbers.get(switch).copied() else { return };
        if let Some(neighbours) = self.neighbours.get_mut(number) {
            let (end, mac) = (far.clone(), mac_of(fabric, far));
            neighbours.insert(*port, Neighbour { end, mac, rate_bps });
        }
        match far {
            End::Host(host) => {
                if let Some(hosts) = self.hosts.get_mut(number) {
                    hosts.push((host.clone(), up.then_some(*port)));
                }
            }
            End::Port(other, _) if up => {
                if let (Some(other), Some(adjacent)) =
                    (self.numbers.get(other), self.adjacent.get_mut(number))
                {
                    adjacent.push((*port, *other));
                }
            }
            End::Port(..) => {}
        }
    }

    /// Addresses with the switches that they hang on. A host whose link is down keeps its place:
    /// what others hold does not change when a cable breaks.
    fn addresses(&self, fabric: &Fabric) -> Vec<(IpAddr, usize)> {
        let hosts = self.hosts.iter().zip(0..).flat_map(|(hosts, home)| {
            hosts.iter().flat_map(|(host, _)| addresses(fabric, host)).map(move |address| (address, home))
        });
        hosts.collect()
    }

    /// Whether hosts reach each other without `out` as they do with it, where routes leave
    /// `drained` out already.
    pub fn spares(&self, out: &BTreeSet<String>, drained: &BTreeSet<String>) -> bool {
        self.spares_beside(out, &Avoid { switches: drained.clone(), ..Avoid::default() })
    }

    /// The same, where routes leave all of `avoid` out already.
    pub fn spares_beside(&self, out: &BTreeSet<String>, avoid: &Avoid) -> bool {
        let has_hosts = |name: &String| {
            let hosts = self.numbers.get(name).and_then(|number| self.hosts.get(*number));
            hosts.is_some_and(|hosts| !hosts.is_empty())
        };
        !out.iter().any(has_hosts) && self.parted_beside(out, avoid).is_none()
    }

    /// Two switches whose hosts reach each other no more without `out`, where routes leave
    /// `drained` out already. Hosts of what is left out do not count: they keep their only way.
    pub fn parted(&self, out: &BTreeSet<String>, drained: &BTreeSet<String>) -> Option<(&str, &str)> {
        self.parted_beside(out, &Avoid { switches: drained.clone(), ..Avoid::default() })
    }

    /// The same, where routes leave all of `avoid` out already.
    pub(crate) fn parted_beside(&self, out: &BTreeSet<String>, avoid: &Avoid) -> Option<(&str, &str)> {
        let mut beside = avoid.clone();
        beside.switches.extend(out.iter().cloned());
        let (before, after) = (parts(&self.without(avoid)), parts(&self.without(&beside)));
        let homes = self.names.iter().zip(&self.hosts).zip(before.iter().zip(&after));
        let homes = homes.filter(|((name, hosts), _)| {
            !hosts.is_empty() && !beside.switches.contains(*name) && !beside.drained.contains(*name)
        });
        // Parts of the fabric that are one before are one afterwards.
        let mut becomes: BTreeMap<usize, (usize, &str)> = BTreeMap::new();
        homes.into_iter().find_map(|((name, _), (was, is))| {
            let (first, home) = *becomes.entry(*was).or_insert((*is, name));
            (first != *is).then_some((home, name.as_str()))
        })
    }

    /// How many links a switch is away from the nearest one with a host: 0 for leaves, 1 for
    /// spines, 2 for cores; `None` for switches that no host is in reach of.
    ///
    /// Links that are down count: a switch does not change its place in the fabric when a cable
    /// breaks.
    pub fn tier(&self, switch: &str) -> Option<usize> {
        self.numbers.get(switch).and_then(|number| self.tiers.get(*number).copied()).flatten()
    }

    /// Where each linked port of a switch leads.
    pub fn neighbours(&self, switch: &str) -> Option<&BTreeMap<u16, Neighbour>> {
        self.neighbours.get(*self.numbers.get(switch)?)
    }

    /// The links from a switch to others.
    pub(crate) fn trunks(&self, switch: &str) -> Vec<Trunk> {
        let number = self.numbers.get(switch).copied().unwrap_or(usize::MAX);
        let trunk = |(port, neighbour): (&u16, &Neighbour)| {
            let End::Port(name, far_port) = &neighbour.end else { return None };
            let own = self.neighbours.get(*self.numbers.get(name)?)?.get(far_port)?;
            let is_up = self.adjacent.get(number)?.iter().any(|(up, _)| up == port);
            let (near, far) = ((switch.to_owned(), *port), (name.clone(), *far_port));
            Some(Trunk { near, far, macs: [own.mac, neighbour.mac], is_up })
        };
        self.neighbours.get(number).into_iter().flatten().filter_map(trunk).collect()
    }

    /// The links that are left without some.
    pub fn around(&self, avoid: &Avoid) -> Detours {
        let broken = Avoid { drained: BTreeSet::new(), ..avoid.clone() };
        let mut left = vec![self.without(avoid)];
        if broken != *avoid && broken != Avoid::default() {
            left.push(self.without(&broken));
        }
        Detours(left)
    }

    fn without(&self, avoid: &Avoid) -> Links {
        let number = |name: &String| self.numbers.get(name).copied();
        let switches: BTreeSet<usize> =
            avoid.switches.iter().chain(&avoid.drained).filter_map(number).collect();
        let mut ports: BTreeSet<(usize, u16)> = BTreeSet::new();
        for (name, port) in &avoid.ports {
            let Some(near) = number(name) else { continue };
            ports.insert((near, *port));
            let far = self.neighbours.get(near).and_then(|neighbours| neighbours.get(port));
            if let Some(Neighbour { end: End::Port(other, port), .. }) = far {
                ports.extend(number(other).map(|far| (far, *port)));
            }
        }
        let left = |(switch, links): (usize, &Vec<(u16, usize)>)| {
            let stays = |(port, next): &&(u16, usize)| {
                ![switch, *next].iter().any(|end| switches.contains(end)) && !ports.contains(&(switch, *port))
            };
            links.iter().filter(stays).copied().collect()
        };
        self.adjacent.iter().enumerate().map(|(switch, links)| left((switch, links))).collect()
    }

    /// The routes of a switch; none for one that the fabric has not.
    pub fn routes(&self, fabric: &Fabric, switch: &str) -> SwitchRoutes {
        self.routes_around(fabric, switch, None)
    }

    /// The same over some links only.
    pub fn routes_around(&self, fabric: &Fabric, switch: &str, detours: Option<&Detours>) -> SwitchRoutes {
        let Some(own) = self.numbers.get(switch).copied() else { return SwitchRoutes::default() };
        let mut ways: Vec<Vec<Option<PortSet>>> = Vec::new();
        for links in detours.into_iter().flat_map(|detours| &detours.0).chain([&self.adjacent]) {
            ways.push(self.ways(own, links));
            let has_way = |block: &Block| block.home == own || way(&ways, block.home).is_some();
            if self.blocks.iter().all(has_way) {
                break;
            }
        }
        let mut routes = Vec::new();
        for block in self.blocks.iter().filter(|block| block.home != own) {
            if let Some(ports) = way(&ways, block.home) {
                routes.push((block.prefix, ports, block.home));
            }
        }
        let mut prefixes: BTreeMap<Prefix, Route> = aggregate::merge(routes)
            .into_iter()
            .map(|(prefix, ports, homes)| {
                (prefix, Route { ports: ports.iter().collect(), to: self.words(&homes) })
            })
            .collect();
        for (host, port) in self.hosts.get(own).into_iter().flatten() {
            let Some(port) = port else { continue };
            for address in addresses(fabric, host) {
                let route = Route { ports: BTreeSet::from([*port]), to: host.clone() };
                prefixes.insert(Prefix::host(address), route);
            }
        }
        let neighbours = self.neighbours.get(own).cloned().unwrap_or_default();
        SwitchRoutes { prefixes, neighbours }
    }

    /// By switch: the ports of `from` on shortest paths to it. Ports are handed on from who is
    /// nearer to who is further.
    fn ways(&self, from: usize, links: &Links) -> Vec<Option<PortSet>> {
        let mut ways: Vec<Option<PortSet>> = vec![None; self.names.len()];
        let mut distances = vec![usize::MAX; self.names.len()];
        if let Some(own) = distances.get_mut(from) {
            *own = 0;
        }
        let mut queue = VecDeque::from([from]);
        while let Some(switch) = queue.pop_front() {
            let distance = distances.get(switch).copied().unwrap_or(usize::MAX);
            let handed = ways.get(switch).copied().flatten();
            for (port, next) in links.get(switch).into_iter().flatten() {
                let (Some(there), Some(way)) = (distances.get_mut(*next), ways.get_mut(*next)) else {
                    continue;
                };
                if *there == usize::MAX {
                    *there = distance + 1;
                    queue.push_back(*next);
                }
                if *there == distance + 1 {
                    let handed = handed.unwrap_or_else(|| PortSet::of(*port));
                    *way = Some(way.unwrap_or_default().union(handed));
                }
            }
        }
        ways
    }

    /// A host where there is but one, a rack, or how many racks.
    fn words(&self, homes: &[usize]) -> String {
        let name = |home: &usize| self.names.get(*home).map_or("", String::as_str);
        match homes {
            [home] => match self.hosts.get(*home).map(Vec::as_slice) {
                Some([(host, _)]) => host.clone(),
                _ => format!("hosts of {}", name(home)),
            },
            [first, .., last] => {
                format!("hosts of {} switches, {} to {}", homes.len(), name(first), name(last))
            }
            [] => String::new(),
        }
    }

    /// Switches whose links towards others further from hosts differ in speed so that no group
    /// shares packets by it, in words.
    pub fn uneven(&self) -> Vec<String> {
        let uneven = |(number, name): (usize, &String)| {
            let tier = |number: &usize| self.tiers.get(*number).copied().flatten();
            let up = self.adjacent.get(number)?.iter().filter(|(_, next)| tier(next) > tier(&number));
            let neighbours = self.neighbours.get(number)?;
            let rates: Vec<u64> = up.filter_map(|(port, _)| Some(neighbours.get(port)?.rate_bps)).collect();
            (!shares(&rates).1).then(|| {
                format!(
                    "{name}: its uplinks' speeds differ by more than groups of {MOST_SHARES} shares can say: they share packets \
                     only roughly by speed"
                )
            })
        };
        (0..).zip(&self.names).filter_map(uneven).collect()
    }

    /// Hosts that some switch cannot reach, in words.
    pub fn unreachable(&self) -> Vec<String> {
        let mut found = BTreeMap::new();
        for (home, hosts) in self.hosts.iter().enumerate() {
            let part = self.parts.get(home);
            let others: Vec<&str> = self
                .names
                .iter()
                .zip(&self.parts)
                .filter(|(_, other)| Some(*other) != part)
                .map(|(name, _)| name.as_str())
                .collect();
            let others = shortened(&others);
            let all: Vec<&str> = self.names.iter().map(String::as_str).collect();
            for (host, port) in hosts {
                let from = if port.is_none() { shortened(&all) } else { others.clone() };
                if !from.is_empty() {
                    let text =
                        format!("host {host} cannot be reached from {from}: no path of links that are up");
                    found.insert(host.clone(), text);
                }
            }
        }
        found.into_values().collect()
    }
}

/// Most shares that a group's ports have together. Tofino's groups have 120 members.
const MOST_SHARES: u64 = 64;

/// What ports of these rates, of one group, get of its packets, and whether that is by rate.
pub(crate) fn shares(rates: &[u64]) -> (Vec<u8>, bool) {
    let divisor = |a: u64, b: u64| {
        let (mut a, mut b) = (a, b);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let step = rates.iter().copied().fold(0, divisor).max(1);
    let all = rates.iter().fold(0_u64, |all, rate| all.saturating_add(rate / step));
    let most = MOST_SHARES.max(rates.len() as u64);
    let is_exact = all <= most;
    let nearest = |share: u64| (u128::from(share) * u128::from(most) + u128::from(all / 2)) / u128::from(all);
    let share = |rate: &u64| if is_exact { rate / step } else { nearest(rate / step) as u64 };
    let shares = rates.iter().map(|rate| u8::try_from(share(rate).max(1)).unwrap_or(u8::MAX));
    (shares.collect(), is_exact)
}

/// The first few of many names.
fn shortened(names: &[&str]) -> String {
    const SHOWN: usize = 8;
    let more = names.len().saturating_sub(SHOWN);
    let text = names.get(..names.len() - more).unwrap_or_default().join(", ");
    if more > 0 { format!("{text} and {more} more") } else { text }
}

/// Ports of one switch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct PortSet([u64; 8]);

impl PortSet {
    fn of(port: u16) -> Self {
        let mut set = Self::default();
        if let Some(word) = set.0.get_mut(usize::from(port / 64)) {
            *word |= 1 << (port % 64);
        }
        set
    }

    fn union(mut self, other: Self) -> Self {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own |= other);
        self
    }

    fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        let words = (0_u16..).zip(self.0);
        words.flat_map(|(number, word)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| number * 64 + bit)
        })
    }
}

/// The ports towards a switch, over the best links that lead to it.
fn way(ways: &[Vec<Option<PortSet>>], to: usize) -> Option<PortSet> {
    ways.iter().find_map(|ways| ways.get(to).copied().flatten())
}

/// Which switches reach each other over these links: each has its part's number.
fn parts(links: &[Vec<(u16, usize)>]) -> Vec<usize> {
    let mut parts = vec![usize::MAX; links.len()];
    for start in 0..links.len() {
        let mut queue = VecDeque::from([start]);
        while let Some(switch) = queue.pop_front() {
            let Some(part @ &mut usize::MAX) = parts.get_mut(switch) else { continue };
            *part = start;
            queue.extend(links.get(switch).into_iter().flatten().map(|(_, next)| *next));
        }
    }
    parts
}

/// Links to the nearest switch with a host, by switch.
fn tiers(fabric: &Fabric, numbers: &BTreeMap<String, usize>) -> Vec<Option<usize>> {
    let mut tiers: Vec<Option<usize>> = vec![None; numbers.len()];
    let mut adjacent: Vec<Vec<usize>> = vec![Vec::new(); numbers.len()];
    let number = |name: &String| numbers.get(name).copied();
    for Link { a, b, .. } in &fabric.links {
        match (a, b) {
            (End::Host(_), End::Port(switch, _)) | (End::Port(switch, _), End::Host(_)) => {
                if let Some(tier) = number(switch).and_then(|number| tiers.get_mut(number)) {
                    *tier = Some(0);
                }
            }
            (End::Port(a, _), End::Port(b, _)) => {
                for (near, far) in [(number(a), number(b)), (number(b), number(a))] {
                    if let (Some(near), Some(far)) = (near.and_then(|near| adjacent.get_mut(near)), far) {
                        near.push(far);
                    }
                }
            }
            (End::Host(_), End::Host(_)) => {}
        }
    }
    let leaves = tiers.iter().zip(0..).filter(|(tier, _)| tier.is_some());
    let mut queue: VecDeque<(usize, usize)> = leaves.map(|(_, number)| (number, 0)).collect();
    while let Some((switch, tier)) = queue.pop_front() {
        for next in adjacent.get(switch).into_iter().flatten() {
            if let Some(slot @ None) = tiers.get_mut(*next) {
                *slot = Some(tier + 1);
                queue.push_back((*next, tier + 1));
            }
        }
    }
    tiers
}

/// A switch's port has an address made of device id and port, locally administered. Switches route
/// whatever arrives, so it only has to be the same every time and nobody's group address.
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
