// SPDX-License-Identifier: Apache-2.0
use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

/// Every switch's routes.
fn routes(fabric: &Fabric) -> BTreeMap<String, SwitchRoutes> {
    let topology = Topology::of(fabric);
    fabric.switches.keys().map(|name| (name.clone(), topology.routes(fabric, name))).collect()
}

/// Where a switch sends packets to a host; all of the host's addresses alike.
fn next_hops(fabric: &Fabric, routes: &SwitchRoutes, host: &str) -> BTreeSet<u16> {
    let ports: BTreeSet<BTreeSet<u16>> = addresses(fabric, host)
        .into_iter()
        .map(|address| routes.lookup(address).map_or_else(BTreeSet::new, |route| route.ports.clone()))
        .collect();
    assert_eq!(ports.len(), 1, "{host}: IPv4 and IPv6 differ: {ports:?}");
    ports.into_iter().next().unwrap()
}

/// A fabric of switches 0..n with one host each, and links between switches, each on ports of its
/// own.
fn fabric(switches: usize, links: &[(usize, usize, bool)]) -> Fabric {
    let mut text = "version: 1\nswitches:\n".to_owned();
    for s in 0..switches {
        let _ = writeln!(text, "  s{s}: {{ address: 127.0.0.1:9559, device_id: {s} }}");
    }
    text.push_str("hosts:\n");
    for s in 0..switches {
        let _ = writeln!(text, "  h{s}: {{ ip: 10.0.{s}.1, mac: \"02:00:00:00:00:{s:02x}\" }}");
    }
    text.push_str("links:\n");
    for s in 0..switches {
        let _ = writeln!(text, "  - {{ a: h{s}, b: \"s{s}:500\", speed: 1Gbps }}");
    }
    for (number, (a, b, up)) in links.iter().enumerate() {
        let state = if *up { "up" } else { "down" };
        let _ = writeln!(
            text,
            "  - {{ a: \"s{a}:{number}\", b: \"s{b}:{number}\", speed: 1Gbps, state: {state} }}"
        );
    }
    Fabric::from_yaml(&text, "f.yaml").unwrap_or_else(|error| panic!("{error}"))
}

/// Hops between all pairs by Floyd and Warshall: another algorithm, on another representation.
fn all_pairs(switches: usize, links: &[(usize, usize, bool)]) -> Vec<Vec<usize>> {
    const FAR: usize = 1_000_000;
    let mut hops = vec![vec![FAR; switches]; switches];
    for (s, row) in hops.iter_mut().enumerate() {
        row[s] = 0;
    }
    for (a, b, _) in links.iter().filter(|(_, _, up)| *up) {
        hops[*a][*b] = 1;
        hops[*b][*a] = 1;
    }
    for k in 0..switches {
        for i in 0..switches {
            for j in 0..switches {
                hops[i][j] = hops[i][j].min(hops[i][k] + hops[k][j]);
            }
        }
    }
    hops
}

fn check(switches: usize, links: &[(usize, usize, bool)]) {
    let fabric = fabric(switches, links);
    let routes = routes(&fabric);
    let hops = all_pairs(switches, links);
    for (from, own) in hops.iter().enumerate() {
        for (to, distance) in own.iter().copied().enumerate() {
            let mut expected: BTreeSet<u16> = BTreeSet::new();
            if from == to {
                expected.insert(500);
            } else {
                for (number, (a, b, up)) in links.iter().enumerate() {
                    for (near, far) in [(*a, *b), (*b, *a)] {
                        if *up && near == from && distance < 1_000_000 && hops[far][to] + 1 == distance {
                            expected.insert(number as u16);
                        }
                    }
                }
            }
            let found = next_hops(&fabric, &routes[&format!("s{from}")], &format!("h{to}"));
            assert_eq!(found, expected, "s{from} to h{to}");
        }
    }
}

#[test]
fn a_dumbbell_has_one_path() {
    check(2, &[(0, 1, true)]);
}

#[test]
fn a_leaf_spreads_over_all_spines_and_a_down_link_is_routed_round() {
    let leaf_spine: Vec<(usize, usize, bool)> =
        (0..4).flat_map(|leaf| (4..7).map(move |spine| (leaf, spine, true))).collect();
    check(7, &leaf_spine);
    let whole = fabric(7, &leaf_spine);
    assert_eq!(next_hops(&whole, &routes(&whole)["s0"], "h3").len(), 3);
    let mut broken = leaf_spine;
    broken[0].2 = false;
    check(7, &broken);
    let broken = fabric(7, &broken);
    assert_eq!(next_hops(&broken, &routes(&broken)["s0"], "h3"), BTreeSet::from([1, 2]));
}

#[test]
fn parallel_links_share_the_load() {
    check(2, &[(0, 1, true), (0, 1, true)]);
}

#[test]
fn frames_carry_the_next_interfaces_address() {
    let fabric = fabric(2, &[(0, 1, true)]);
    let neighbours = &routes(&fabric)["s0"].neighbours;
    assert_eq!(neighbours[&500].mac.to_string(), "02:00:00:00:00:00");
    assert_eq!(neighbours[&0].mac.to_string(), "06:00:00:01:00:00");
    assert_eq!(neighbours[&0].end.to_string(), "s1:0");
}

proptest! {
    #[test]
    fn routes_of_any_topology_are_those_of_another_algorithm(
        switches in 2_usize..9,
        raw in proptest::collection::vec((0_usize..9, 0_usize..9, proptest::bool::weighted(0.8)), 0..24),
    ) {
        let links: Vec<_> =
            raw.into_iter().map(|(a, b, up)| (a % switches, b % switches, up)).filter(|(a, b, _)| a != b).collect();
        check(switches, &links);
    }

    /// Following any choice of next hops reaches the host without a loop, and an address of nobody
    /// is dropped somewhere.
    #[test]
    fn every_choice_of_next_hops_arrives_and_nothing_loops(
        raw in proptest::collection::vec((0_usize..7, 0_usize..7), 1..20),
        choices in proptest::collection::vec(0_usize..100, 8),
        strangers in proptest::collection::vec(any::<u16>(), 8),
    ) {
        let links: Vec<_> = raw.into_iter().filter(|(a, b)| a != b).map(|(a, b)| (a, b, true)).collect();
        let fabric = fabric(7, &links);
        let routes = routes(&fabric);
        let known = fabric.hosts.keys().flat_map(|host| {
            addresses(&fabric, host).into_iter().map(move |address| (address, Some(host.clone())))
        });
        let strangers = strangers.into_iter().map(|bits| {
            let [third, last] = bits.to_be_bytes();
            (IpAddr::from([10, 0, third % 8, last.saturating_add(2)]), None)
        });
        for (address, host) in known.chain(strangers) {
            for start in routes.keys() {
                let mut at = start.clone();
                let mut steps = choices.iter().cycle();
                for hops in 0.. {
                    prop_assert!(hops <= 7, "{start} to {address} loops");
                    let Some(route) = routes[&at].lookup(address) else {
                        // No path, or nobody.
                        prop_assert!(host.is_none() || hops == 0, "{start} to {address} ends at {at}");
                        break;
                    };
                    let port = route.ports.iter().nth(steps.next().unwrap() % route.ports.len()).unwrap();
                    match &routes[&at].neighbours[port].end {
                        End::Host(reached) => { prop_assert_eq!(Some(reached), host.as_ref()); break; }
                        End::Port(next, _) => at.clone_from(next),
                    }
                }
            }
        }
    }
}

/// Hops between switches by name, links that are up only, by Floyd and Warshall.
fn all_hops(fabric: &Fabric) -> BTreeMap<(String, String), usize> {
    let names: Vec<&String> = fabric.switches.keys().collect();
    let mut hops: BTreeMap<(String, String), usize> = BTreeMap::new();
    for name in &names {
        hops.insert(((*name).clone(), (*name).clone()), 0);
    }
    for link in fabric.links.iter().filter(|link| link.up) {
        if let (End::Port(a, _), End::Port(b, _)) = (&link.a, &link.b) {
            hops.insert((a.clone(), b.clone()), 1);
            hops.insert((b.clone(), a.clone()), 1);
        }
    }
    for k in &names {
        for i in &names {
            let Some(first) = hops.get(&((*i).clone(), (*k).clone())).copied() else { continue };
            for j in &names {
                let Some(second) = hops.get(&((*k).clone(), (*j).clone())).copied() else { continue };
                let best = hops.entry(((*i).clone(), (*j).clone())).or_insert(usize::MAX);
                *best = (*best).min(first + second);
            }
        }
    }
    hops
}

/// Every next hop leads one hop nearer, none that does is left out, and who has none has no path.
/// One hop nearer each time cannot loop.
fn agrees_with_floyd_and_warshall(fabric: &Fabric) {
    let routes = routes(fabric);
    let hops = all_hops(fabric);
    let mut home: BTreeMap<&str, (&str, u16)> = BTreeMap::new();
    for link in fabric.links.iter().filter(|link| link.up) {
        for (near, far) in [(&link.a, &link.b), (&link.b, &link.a)] {
            if let (End::Host(host), End::Port(switch, port)) = (near, far) {
                home.insert(host, (switch, *port));
            }
        }
    }
    for (from, own) in &routes {
        for host in fabric.hosts.keys() {
            let mut expected = BTreeSet::new();
            if let Some((to, port)) = home.get(host.as_str()) {
                let distance = |switch: &str| hops.get(&(switch.to_owned(), (*to).to_owned())).copied();
                if from == to {
                    expected.insert(*port);
                } else if let Some(own) = distance(from) {
                    for link in fabric.links.iter().filter(|link| link.up) {
                        for (near, far) in [(&link.a, &link.b), (&link.b, &link.a)] {
                            if let (End::Port(near, port), End::Port(far, _)) = (near, far)
                                && near == from
                                && distance(far).is_some_and(|distance| distance + 1 == own)
                            {
                                expected.insert(*port);
                            }
                        }
                    }
                }
            }
            // A host whose own link is down may still be sent to its switch, which has no route for
            // it.
            let unplugged = !home.contains_key(host.as_str());
            let found = next_hops(fabric, own, host);
            let at_home = fabric.links.iter().any(|link| {
                let ends = [(&link.a, &link.b), (&link.b, &link.a)];
                ends.iter().any(|(near, far)| {
                    **near == End::Host(host.clone()) && matches!(far, End::Port(switch, _) if switch == from)
                })
            });
            if !unplugged || at_home {
                assert_eq!(found, expected, "{from} to {host}");
            }
        }
    }
}

#[test]
fn generated_topologies_use_all_their_paths() {
    for (topology, from, to, paths) in [
        ("dumbbell: { hosts_per_side: 2, trunks: 3, host_speed: 1Gbps }", "left", "h2-1", 3),
        ("leaf_spine: { leaves: 3, spines: 4, hosts_per_leaf: 1, host_speed: 1Gbps }", "leaf1", "h3-1", 4),
        ("fat_tree: { k: 4, host_speed: 1Gbps }", "edge1-1", "h3-2-1", 2),
        ("fat_tree: { k: 4, host_speed: 1Gbps }", "agg1-1", "h3-2-1", 2),
        ("fat_tree: { k: 4, host_speed: 1Gbps }", "core1", "h3-2-1", 1),
    ] {
        let fabric = Fabric::from_yaml(&format!("version: 1\ntopology: {{ {topology} }}\n"), "f").unwrap();
        agrees_with_floyd_and_warshall(&fabric);
        assert_eq!(next_hops(&fabric, &routes(&fabric)[from], to).len(), paths, "{topology} {from} {to}");
    }
}

#[test]
fn tiers_are_distances_from_hosts() {
    let fabric =
        Fabric::from_yaml("version: 1\ntopology: { fat_tree: { k: 4, host_speed: 1Gbps } }\n", "f").unwrap();
    let topology = Topology::of(&fabric);
    for name in fabric.switches.keys() {
        let expected = if name.starts_with("edge") {
            0
        } else if name.starts_with("agg") {
            1
        } else {
            2
        };
        assert_eq!(topology.tier(name), Some(expected), "{name}");
    }
    assert_eq!(fabric.switches.len(), 20);
}

/// Hosts have routes where they hang; racks elsewhere are prefixes, joined where their way is the
/// same.
#[test]
fn a_switch_holds_its_own_hosts_and_a_prefix_for_each_rack_or_more() {
    let read = |text: &str| Fabric::from_yaml(&format!("version: 1\ntopology: {{ {text} }}\n"), "f").unwrap();
    let fabric = read("leaf_spine: { leaves: 4, spines: 2, hosts_per_leaf: 3, host_speed: 1Gbps }");
    let all = routes(&fabric);
    let ipv4 = |switch: &str| -> Vec<(String, String)> {
        let prefixes = all[switch].prefixes.iter().filter(|(prefix, _)| prefix.address().is_ipv4());
        prefixes.map(|(prefix, route)| (prefix.to_string(), route.to.clone())).collect()
    };
    let expected = |rows: &[(&str, &str)]| -> Vec<(String, String)> {
        rows.iter().map(|(prefix, to)| ((*prefix).to_owned(), (*to).to_owned())).collect()
    };
    assert_eq!(
        ipv4("leaf1"),
        expected(&[
            ("10.0.1.1/32", "h1-1"),
            ("10.0.1.2/32", "h1-2"),
            ("10.0.1.3/32", "h1-3"),
            ("10.0.2.0/23", "hosts of 2 switches, leaf2 to leaf3"),
            ("10.0.4.0/24", "hosts of leaf4"),
        ])
    );
    assert_eq!(
        ipv4("spine2"),
        expected(&[
            ("10.0.1.0/24", "hosts of leaf1"),
            ("10.0.2.0/24", "hosts of leaf2"),
            ("10.0.3.0/24", "hosts of leaf3"),
            ("10.0.4.0/24", "hosts of leaf4"),
        ])
    );
    let fabric = read("fat_tree: { k: 16, host_speed: 1Gbps }");
    let all = routes(&fabric);
    let most = all.values().map(|routes| routes.prefixes.len()).max().unwrap();
    assert!(most <= 2 * 8 * 8 * 2, "{most} routes for {} hosts", fabric.hosts.len());
}

/// Hosts of one rack whose addresses lie in another's: neither takes the other's for its own.
#[test]
fn racks_whose_addresses_are_mixed_are_told_apart() {
    let text = "version: 1
switches:
  a: { address: 127.0.0.1:1, device_id: 1 }
  b: { address: 127.0.0.1:2, device_id: 2 }
  c: { address: 127.0.0.1:3, device_id: 3 }
hosts:
  h1: { ip: 10.0.0.1, mac: \"02:00:00:00:00:01\" }
  h2: { ip: 10.0.0.2, mac: \"02:00:00:00:00:02\" }
  h3: { ip: 10.0.0.3, mac: \"02:00:00:00:00:03\" }
  h4: { ip: 10.0.0.200, mac: \"02:00:00:00:00:04\" }
links:
  - { a: h1, b: \"a:1\", speed: 1Gbps }
  - { a: h3, b: \"a:2\", speed: 1Gbps }
  - { a: h2, b: \"b:1\", speed: 1Gbps }
  - { a: h4, b: \"b:2\", speed: 1Gbps }
  - { a: \"a:3\", b: \"c:1\", speed: 1Gbps }
  - { a: \"b:3\", b: \"c:2\", speed: 1Gbps }
";
    let fabric = Fabric::from_yaml(text, "f").unwrap();
    agrees_with_floyd_and_warshall(&fabric);
    let own: Vec<String> = routes(&fabric)["c"].prefixes.keys().map(ToString::to_string).collect();
    assert_eq!(own, ["10.0.0.0/31", "10.0.0.2/32", "10.0.0.3/32", "10.0.0.128/25"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Any subset of links may be down, hosts' own included.
    #[test]
    fn routes_of_generated_topologies_go_round_links_that_are_down(
        shape in 0_usize..3,
        sizes in (1_usize..5, 1_usize..4, 1_usize..3),
        down in proptest::collection::vec(proptest::bool::weighted(0.25), 64),
    ) {
        let (a, b, c) = sizes;
        let topology = match shape {
            0 => format!("dumbbell: {{ hosts_per_side: {a}, trunks: {b}, host_speed: 1Gbps }}"),
            1 => format!(
                "leaf_spine: {{ leaves: {a}, spines: {b}, hosts_per_leaf: {c}, links_per_spine: {c}, host_speed: 1Gbps }}"
            ),
            _ => format!("fat_tree: {{ k: {}, hosts_per_edge: {c}, host_speed: 1Gbps }}", 2 * c),
        };
        let mut fabric = Fabric::from_yaml(&format!("version: 1\ntopology: {{ {topology} }}\n"), "f").unwrap();
        for (link, down) in fabric.links.iter_mut().zip(down.iter().cycle()) {
            link.up = !down;
        }
        agrees_with_floyd_and_warshall(&fabric);
    }
}

proptest! {
    /// Whatever is broken and drained: packets arrive without a loop wherever links lead, over
    /// broken things only where there is no other way, and over drained switches only where there
    /// is none but broken ones.
    #[test]
    fn routes_prefer_what_works_then_what_is_drained_then_what_is_broken(
        shape in prop_oneof![Just("leaf_spine: { leaves: 3, spines: 3, hosts_per_leaf: 1, host_speed: 1Gbps }"), Just("fat_tree: { k: 4, hosts_per_edge: 1, host_speed: 1Gbps }")],
        broken in proptest::collection::vec(0_usize..30, 0..5),
        drained in proptest::collection::vec(0_usize..30, 0..5),
        cables in proptest::collection::vec(0_usize..60, 0..5),
        choices in proptest::collection::vec(0_usize..8, 16),
    ) {
        let fabric = Fabric::from_yaml(&format!("version: 1\ntopology: {{ {shape} }}\n"), "f").unwrap();
        let topology = Topology::of(&fabric);
        let names: Vec<&String> = fabric.switches.keys().collect();
        let named = |numbers: &[usize]| numbers.iter().filter_map(|n| names.get(*n)).map(|name| (*name).clone()).collect::<BTreeSet<_>>();
        let ports = cables.iter().filter_map(|n| match fabric.links.get(*n) {
            Some(Link { a: End::Port(switch, port), b: End::Port(..), .. }) => Some((switch.clone(), *port)),
            _ => None,
        });
        let avoid = Avoid { switches: named(&broken), ports: ports.collect(), drained: named(&drained) };
        let detours = topology.around(&avoid);
        let all: BTreeMap<String, SwitchRoutes> =
            names.iter().map(|name| ((*name).clone(), topology.routes_around(&fabric, name, Some(&detours)))).collect();
        // A plain search says what a walk may use: nothing avoided, then also what is drained, then
        // all.
        let reaches = |from: &str, to: &str, level: usize| {
            let (mut seen, mut queue) = (BTreeSet::from([from.to_owned()]), vec![from.to_owned()]);
            while let Some(at) = queue.pop() {
                for (port, neighbour) in topology.neighbours(&at).unwrap() {
                    let End::Port(next, far) = &neighbour.end else { continue };
                    if cost(&avoid, &at, *port, next, *far) <= level && seen.insert(next.clone()) {
                        queue.push(next.clone());
                    }
                }
            }
            seen.contains(to)
        };
        let homes: Vec<(&String, &String)> = fabric.links.iter().filter_map(|link| match (&link.a, &link.b) {
            (End::Host(host), End::Port(home, _)) | (End::Port(home, _), End::Host(host)) => Some((host, home)),
            _ => None,
        }).collect();
        for from in &names {
            for (host, home) in &homes {
                let level = (0..3).find(|level| reaches(from, home, *level)).unwrap();
                let address = addresses(&fabric, host)[0];
                let (mut at, mut worst, mut hops) = ((*from).clone(), 0, 0);
                while at != **home {
                    let route = all[&at].lookup(address).unwrap();
                    let port = *route.ports.iter().cycle().nth(choices[hops % choices.len()]).unwrap();
                    let End::Port(next, far) = &topology.neighbours(&at).unwrap()[&port].end else { panic!("a host") };
                    worst = worst.max(cost(&avoid, &at, port, next, *far));
                    (at, hops) = (next.clone(), hops + 1);
                    prop_assert!(hops < 40, "{from} to {host} loops");
                }
                prop_assert_eq!(worst, level, "{} to {}", from, host);
            }
        }
    }
}

/// Of a link: 0 where nothing speaks against it, 1 where an end is drained, 2 where it or an end is
/// broken.
fn cost(avoid: &Avoid, near: &str, port: u16, far: &str, far_port: u16) -> usize {
    let ends = [(near.to_owned(), port), (far.to_owned(), far_port)];
    if ends.iter().any(|end| avoid.switches.contains(&end.0) || avoid.ports.contains(end)) {
        2
    } else {
        usize::from(ends.iter().any(|end| avoid.drained.contains(&end.0)))
    }
}

#[test]
fn a_switch_is_spared_where_all_hosts_still_reach_each_other_and_none_hangs_on_it() {
    let leaf_spine = Fabric::from_yaml(include_str!("../../../examples/fabrics/leaf-spine.yaml"), "f.yaml");
    let topology = Topology::of(&leaf_spine.unwrap());
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<String>>();
    let spares = |out: &[&str], drained: &[&str]| topology.spares(&set(out), &set(drained));
    assert!(spares(&["spine2"], &[]), "spine1 reaches all leaves");
    assert!(!spares(&["spine1"], &[]), "leaf4 has no other: its link to spine2 is down");
    assert!(!spares(&["spine1", "spine2"], &[]) && !spares(&["spine1"], &["spine2"]));
    assert!(!spares(&["leaf1"], &[]), "its hosts have no other");
    assert!(spares(&["spine2"], &["leaf1"]), "what is drained already changes nothing");
    let parted = |out: &[&str], drained: &[&str]| topology.parted(&set(out), &set(drained));
    assert_eq!(parted(&["leaf1"], &[]), None, "its own hosts do not count");
    assert_eq!(parted(&["spine1"], &["spine2"]), Some(("leaf1", "leaf2")));
    assert_eq!(parted(&["spine1"], &[]), Some(("leaf1", "leaf4")), "leaf4's link to spine2 is down");
}
