// SPDX-License-Identifier: Apache-2.0
//! The network that a fabric file describes.

use std::collections::BTreeMap;
use trimwire_controller::Fabric;
use trimwire_controller::model::{End, Link as FabricLink};
use trimwire_lab::sim::topology::{Link, Node, Topology};

/// Hosts in the order of their addresses, switches in that of their names, links in the file's;
/// those that are down are left out, as the controller routes around them.
pub(super) fn of(fabric: &Fabric) -> Result<Topology, String> {
    let (hosts, switches) = (host_numbers(fabric), switch_numbers(fabric));
    let node = |end: &End| match end {
        End::Host(name) => hosts.get(name.as_str()).map(|&number| Node::Host(number)),
        End::Port(name, _) => switches.get(name.as_str()).map(|&number| Node::Switch(number)),
    };
    let link = |link: &FabricLink| {
        let ends = [node(&link.a)?, node(&link.b)?];
        Some(Link { ends, rate_bps: link.rate_bps, delay_ns: link.delay_ns })
    };
    let links: Vec<Link> = fabric.links.iter().filter(|link| link.up).filter_map(link).collect();
    let topology = Topology { hosts: hosts.len() as u32, switches: switches.len() as u32, links };
    for (name, &number) in &hosts {
        let ends = topology.links.iter().flat_map(|link| link.ends);
        let count = ends.filter(|end| *end == Node::Host(number)).count();
        if count != 1 {
            return Err(format!("host {name} has {count} links that are up; a simulated host has one"));
        }
    }
    Ok(topology)
}

/// A switch's port numbers, in the order of its links in [`of`], by its number.
pub(super) fn ports(fabric: &Fabric) -> BTreeMap<u32, Vec<u16>> {
    let numbers = switch_numbers(fabric);
    let mut ports: BTreeMap<u32, Vec<u16>> = BTreeMap::new();
    for link in fabric.links.iter().filter(|link| link.up) {
        for end in [&link.a, &link.b] {
            if let End::Port(name, port) = end
                && let Some(&number) = numbers.get(name.as_str())
            {
                ports.entry(number).or_default().push(*port);
            }
        }
    }
    ports
}

/// Hosts by number.
pub(super) fn host_names(fabric: &Fabric) -> Vec<&str> {
    let mut hosts: Vec<_> = fabric.hosts.iter().map(|(name, host)| (host.ip, name.as_str())).collect();
    hosts.sort_unstable();
    hosts.into_iter().map(|(_, name)| name).collect()
}

/// Switches by number.
pub(super) fn switch_names(fabric: &Fabric) -> BTreeMap<u32, String> {
    (0..).zip(fabric.switches.keys().cloned()).collect()
}

fn host_numbers(fabric: &Fabric) -> BTreeMap<&str, u32> {
    host_names(fabric).into_iter().zip(0..).collect()
}

fn switch_numbers(fabric: &Fabric) -> BTreeMap<&str, u32> {
    fabric.switches.keys().map(String::as_str).zip(0..).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;
    use trimwire_controller::topology::Topology as Routed;
    use trimwire_lab::sim::topology::Routes;

    fn read(file: &str) -> Fabric {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/fabrics").join(file);
        Fabric::from_yaml(&std::fs::read_to_string(path).unwrap(), file).unwrap()
    }

    #[test]
    fn a_simulated_switch_has_the_routes_that_the_controller_writes() {
        let mut compared = 0;
        for file in ["leaf-spine.yaml", "leaf-spine-generated.yaml", "fat-tree.yaml", "single-switch.yaml"] {
            let fabric = read(file);
            let topology = of(&fabric).unwrap();
            let (routes, routed) = (Routes::new(&topology), Routed::of(&fabric));
            let up: Vec<&FabricLink> = fabric.links.iter().filter(|link| link.up).collect();
            for (switch, &number) in &switch_numbers(&fabric) {
                let written = routed.routes(&fabric, switch);
                let links = topology.links_of(number);
                // A port of the simulator is a link of the file, and so a port of the switch there.
                let port_of = |port: &u32| {
                    let link = up[links[*port as usize]];
                    [&link.a, &link.b].into_iter().find_map(|end| match end {
                        End::Port(name, port) if name == switch => Some(*port),
                        _ => None,
                    })
                };
                for (host, &at) in &host_numbers(&fabric) {
                    let ours: Option<BTreeSet<u16>> = routes.ports(number, at).iter().map(port_of).collect();
                    let theirs =
                        written.lookup(fabric.hosts[*host].ip.into()).map(|route| route.ports.clone());
                    assert_eq!(ours.unwrap(), theirs.unwrap_or_default(), "{file}: {switch} to {host}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 100, "{compared}");
    }

    #[test]
    fn a_host_whose_link_is_down_is_named() {
        let mut fabric = read("leaf-spine.yaml");
        let cut_off = |link: &&mut FabricLink| matches!(&link.a, End::Host(name) if name == "h3");
        fabric.links.iter_mut().filter(cut_off).for_each(|link| link.up = false);
        assert_eq!(of(&fabric).unwrap_err(), "host h3 has 0 links that are up; a simulated host has one");
    }
}
