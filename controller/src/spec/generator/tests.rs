// SPDX-License-Identifier: Apache-2.0
use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::model::{End, Fabric, Link, Target};

fn read(text: &str) -> Fabric {
    Fabric::from_yaml(&format!("version: 1\n{text}"), "f.yaml").unwrap_or_else(|error| panic!("{error}"))
}

fn errors(text: &str) -> String {
    Fabric::from_yaml(&format!("version: 1\n{text}"), "f.yaml").unwrap_err().to_string()
}

/// `a – b`, as written in the documentation's table.
fn linked(fabric: &Fabric, a: &str, b: &str) -> bool {
    let same = |link: &&Link| {
        let ends = [link.a.to_string(), link.b.to_string()];
        ends == [a, b] || ends == [b, a]
    };
    fabric.links.iter().filter(same).count() == 1
}

fn used_ports(fabric: &Fabric, switch: &str) -> BTreeSet<u16> {
    let ends = fabric.links.iter().flat_map(|link| [&link.a, &link.b]);
    ends.filter_map(|end| match end {
        End::Port(name, port) if name == switch => Some(*port),
        _ => None,
    })
    .collect()
}

#[test]
fn a_leaf_spine_is_numbered_as_documented() {
    let fabric = read(
        "topology:
  leaf_spine: { leaves: 3, spines: 2, hosts_per_leaf: 4, links_per_spine: 2, host_speed: 25Gbps, fabric_speed: 100Gbps }\n",
    );
    assert_eq!((fabric.switches.len(), fabric.hosts.len(), fabric.links.len()), (5, 12, 12 + 12));
    // Leaf l's ports (s-1)p + 1 to sp meet spine s's ports (l-1)p + 1 to lp.
    for (a, b) in [
        ("leaf1:1", "spine1:1"),
        ("leaf1:2", "spine1:2"),
        ("leaf1:3", "spine2:1"),
        ("leaf3:2", "spine1:6"),
        ("leaf3:4", "spine2:6"),
        ("h1-1", "leaf1:5"),
        ("h3-4", "leaf3:8"),
    ] {
        assert!(linked(&fabric, a, b), "{a} {b}");
    }
    let host = &fabric.hosts["h3-4"];
    assert_eq!(
        (host.ip.to_string(), host.ip6.unwrap().to_string(), host.mac.to_string()),
        ("10.0.3.4".into(), "fd00::3:4".into(), "02:00:00:00:03:04".into())
    );
    let numbered: Vec<(u64, &str)> = ["leaf1", "leaf3", "spine1", "spine2"]
        .iter()
        .map(|name| (fabric.switches[*name].device_id, fabric.switches[*name].address.as_str()))
        .collect();
    assert_eq!(
        numbered,
        [(1, "127.0.0.1:9559"), (3, "127.0.0.1:9561"), (4, "127.0.0.1:9562"), (5, "127.0.0.1:9563")]
    );
}

#[test]
fn a_dumbbell_is_numbered_as_documented() {
    let fabric = read(
        "topology:
  dumbbell:
    hosts_per_side: 2
    trunks: 2
    host_speed: 10Gbps
    oversubscription: 1.6
    target: bmv2
    addresses:
      ipv4: 192.168.0.0/16
      ipv6: off
      mac: \"0a:00:00:00:00:00\"
      device_id: 100
      grpc: \"{name}.lab:50{n}\"
controller: { insecure: true }\n",
    );
    for (a, b) in [("left:1", "right:1"), ("left:2", "right:2"), ("h1-2", "left:4"), ("h2-1", "right:3")] {
        assert!(linked(&fabric, a, b), "{a} {b}");
    }
    // 2 × 10 Gbit/s over two trunks at 1.6:1.
    let trunk = fabric.links.iter().find(|link| link.a.to_string() == "left:1").unwrap();
    assert_eq!(trunk.rate_bps, 6_250_000_000);
    let host = &fabric.hosts["h2-1"];
    assert_eq!(
        (host.ip.to_string(), host.ip6, host.mac.to_string()),
        ("192.168.2.1".into(), None, "0a:00:00:00:02:01".into())
    );
    let right = &fabric.switches["right"];
    assert_eq!((right.device_id, right.address.as_str(), right.target), (101, "right.lab:502", Target::Bmv2));
}

/// Al-Fares, Loukissas and Vahdat, "A scalable, commodity data center network architecture", §3.
#[test]
fn a_fat_tree_has_the_papers_numbers() {
    for k in [2_u64, 4, 6] {
        let fabric = read(&format!("topology: {{ fat_tree: {{ k: {k}, host_speed: 1Gbps }} }}\n"));
        assert_eq!(fabric.hosts.len() as u64, k * k * k / 4);
        assert_eq!(fabric.switches.len() as u64, 5 * k * k / 4);
        for name in fabric.switches.keys() {
            assert_eq!(used_ports(&fabric, name), (1..=k as u16).collect(), "{name}");
        }
        // Any two pods meet at each core once.
        for core in 1..=k * k / 4 {
            let pods: BTreeSet<String> = fabric
                .links
                .iter()
                .filter(|link| link.b.to_string().starts_with(&format!("core{core}:")))
                .map(|link| link.a.to_string().split(['-', ':']).next().unwrap().to_owned())
                .collect();
            assert_eq!(pods.len() as u64, k);
        }
    }
    let fabric = read("topology: { fat_tree: { k: 4, host_speed: 1Gbps } }\n");
    for (a, b) in [("edge2-1:2", "agg2-2:3"), ("agg3-2:1", "core3:3"), ("h2-1-1", "edge2-1:3")] {
        assert!(linked(&fabric, a, b), "{a} {b}");
    }
    assert_eq!(fabric.hosts["h2-1-2"].ip.to_string(), "10.0.3.2");
}

#[test]
fn what_is_written_changes_what_is_generated_key_by_key() {
    let fabric = read(
        "topology: { leaf_spine: { leaves: 2, spines: 2, hosts_per_leaf: 1, host_speed: 10Gbps, fabric_delay: 1us } }
switches:
  leaf2: { target: bmv2 }
  spine1: { device_id: 77, address: 127.9.9.9:1 }
  extra: { device_id: 3, address: 127.9.9.9:2 }
hosts:
  h1-1: { ip: 10.7.7.7 }
  alone: { ip: 10.8.8.8, mac: \"02:00:00:00:ff:01\" }
links:
  - { b: \"leaf1:2\", a: \"spine2:1\", state: down }
  - { a: \"leaf2:1\", b: \"spine1:2\", speed: 40Gbps, delay: 3us }
  - { a: alone, b: \"extra:1\", speed: 1Gbps }
  - { a: \"leaf2:9\", b: \"extra:2\", speed: 1Gbps }
",
    );
    assert_eq!((fabric.switches.len(), fabric.hosts.len(), fabric.links.len()), (5, 3, 4 + 2 + 2));
    assert_eq!((fabric.switches["leaf2"].target, fabric.switches["leaf2"].device_id), (Target::Bmv2, 2));
    assert_eq!((fabric.switches["spine1"].device_id, fabric.switches["spine2"].device_id), (77, 4));
    let host = &fabric.hosts["h1-1"];
    assert_eq!((host.ip.to_string(), host.mac.to_string()), ("10.7.7.7".into(), "02:00:00:00:01:01".into()));
    let link = |a: &str| fabric.links.iter().find(|link| link.a.to_string() == a).unwrap();
    assert_eq!((link("leaf1:2").up, link("leaf1:2").delay_ns, link("leaf1:1").up), (false, 1_000, true));
    assert_eq!((link("leaf2:1").rate_bps, link("leaf2:1").delay_ns), (40_000_000_000, 3_000));
}

#[test]
fn every_mistake_is_named_with_its_line_and_the_nearest_valid_word() {
    assert_eq!(
        errors("topology:\n  leaf_spin: { leaves: 2 }\nswitches: { s1: { adress: x } }\n"),
        "f.yaml:3: topology: names no generator; valid: dumbbell, leaf_spine, fat_tree\n\
         f.yaml:3: topology.leaf_spin: unknown key; did you mean 'leaf_spine'? (valid: dumbbell, leaf_spine, fat_tree)"
    );
    for (text, expected) in [
        (
            "topology: { leaf_spine: { leavs: 2, spines: 2, hosts_per_leaf: 2, host_speed: 1Gbps } }\n",
            "f.yaml:2: topology.leaf_spine.leavs: unknown key; did you mean 'leaves'?",
        ),
        (
            "topology: { leaf_spine: { spines: 2, hosts_per_leaf: 2, host_speed: 1Gbps } }\n",
            "f.yaml:2: topology.leaf_spine: 'leaves' is missing; write leaves: 4",
        ),
        (
            "topology: { fat_tree: { k: 5, host_speed: 1Gbps } }\n",
            "f.yaml:2: topology.fat_tree.k: '5' is odd; k is even",
        ),
        (
            "topology: { fat_tree: { k: 64, host_speed: 1Gbps } }\n",
            "f.yaml:2: topology.fat_tree: makes 65536 hosts; a generated fabric has at most 16384",
        ),
        (
            "topology: { leaf_spine: { leaves: 4, spines: 300, links_per_spine: 2, hosts_per_leaf: 1, host_speed: 1Gbps } }\n",
            "f.yaml:2: topology.leaf_spine: makes a switch of 601 ports; the program has 509",
        ),
        (
            "topology:\n  dumbbell:\n    hosts_per_side: 2\n    host_speed: 1Gbps\n    fabric_speed: 1Gbps\n    oversubscription: 2:1\n",
            "f.yaml:7: topology.dumbbell.oversubscription: follows from fabric_speed, which is given in line 6; write one",
        ),
        (
            "topology: { dumbbell: { hosts_per_side: 1, host_speed: 1Gbps, oversubscription: 3:1 } }\n",
            "'3:1': 1 × 1Gbps over 1 links makes no whole number of bit/s; write fabric_speed",
        ),
        (
            "topology: { dumbbell: { hosts_per_side: 2, host_speed: 1Gbps, addresses: { ipv4: 10.0.0.0/24 } } }\n",
            "f.yaml:2: topology.dumbbell.addresses: ipv4: 10.0.0.0/24 has no host 1.1, which h1-1 would be",
        ),
        (
            "topology: { dumbbell: { hosts_per_side: 2, host_speed: 1Gbps, addresses: { grpc: \"127.0.0.1:65535\" } } }\n",
            "topology.dumbbell.addresses: grpc: right would listen on port 65536",
        ),
        (
            "topology: { dumbbell: { hosts_per_side: 1, host_speed: 1Gbps }, fat_tree: { k: 4 } }\n",
            "f.yaml:2: topology.fat_tree: one generator makes one fabric, and dumbbell is given in line 2",
        ),
        (
            "topology: { dumbbell: { hosts_per_side: 1, host_speed: 1Gbps } }\nswitches: { middle: { device_id: 2, address: \"127.0.0.1:1\" } }\n",
            "f.yaml:3: switches.middle.device_id: device id 2 is already right's, in line 2",
        ),
        (
            "topology: { dumbbell: { hosts_per_side: 1, host_speed: 1Gbps } }\nhosts: { left: { ip: 10.1.1.1, mac: \"02:00:00:00:11:11\" } }\n",
            "f.yaml:3: hosts.left: the name is already a switch's, in line 2",
        ),
        (
            "topology: { dumbbell: { hosts_per_side: 1, host_speed: 1Gbps } }\nlinks:\n  - { a: h1-1, b: \"right:9\", speed: 1Gbps }\n",
            "f.yaml:4: links[0].a: a host has one link, and h1-1 is already linked to left:2, by the generator in line 2; to \
             change that link, give both of its ends",
        ),
        (
            "topology: { dumbbell: { hosts_per_side: 1, host_speed: 1Gbps } }\nlinks:\n  - { a: \"left:1\", b: \"right:1\", state: down }\n  - { a: \"right:1\", b: \"left:1\", speed: 1Gbps }\n",
            "f.yaml:5: links[1]: this link is already changed in line 4",
        ),
        (
            "topology: { dumbbell: { hosts_per_side: 1, host_speed: 1Gbps } }\nlinks:\n  - { a: \"left:1\", b: \"rihgt:1\", state: down }\n",
            "f.yaml:4: links[0].b: 'rihgt:1': unknown switch 'rihgt'; did you mean 'right'? (valid: left, right)",
        ),
        (
            "topology: { dumbbell: { hosts_per_side: 1, host_speed: 1Gbps, target: stratum-tofino } }\n",
            "f.yaml:2: topology.dumbbell: target stratum-tofino needs the files that its compiler wrote; write pipeline:",
        ),
    ] {
        let found = errors(text);
        assert!(found.contains(expected), "\nwanted {expected}\nfound  {found}");
    }
}

proptest! {
    /// Whatever the numbers: every name, address and port is there once, and each rack has its
    /// hosts.
    #[test]
    fn generated_fabrics_are_whole(
        leaves in 1_u64..7, spines in 1_u64..5, hosts in 1_u64..6, parallel in 1_u64..4, device_id in 0_u64..1000,
    ) {
        let fabric = read(&format!(
            "topology:\n  leaf_spine: {{ leaves: {leaves}, spines: {spines}, hosts_per_leaf: {hosts}, links_per_spine: \
             {parallel}, host_speed: 10Gbps, addresses: {{ device_id: {device_id} }} }}\n"
        ));
        prop_assert_eq!(fabric.switches.len() as u64, leaves + spines);
        prop_assert_eq!(fabric.hosts.len() as u64, leaves * hosts);
        prop_assert_eq!(fabric.links.len() as u64, leaves * (spines * parallel + hosts));
        let ends: Vec<&End> = fabric.links.iter().flat_map(|link| [&link.a, &link.b]).collect();
        prop_assert_eq!(ends.iter().collect::<BTreeSet<_>>().len(), ends.len());
        let distinct = |values: Vec<String>| values.iter().collect::<BTreeSet<_>>().len() == values.len();
        prop_assert!(distinct(fabric.hosts.values().map(|host| host.ip.to_string()).collect()));
        let ip6s = fabric.hosts.values().map(|host| host.ip6.unwrap().to_string()).collect();
        prop_assert!(distinct(ip6s));
        prop_assert!(distinct(fabric.hosts.values().map(|host| host.mac.to_string()).collect()));
        prop_assert!(distinct(fabric.switches.values().map(|switch| switch.address.clone()).collect()));
        prop_assert!(distinct(fabric.switches.values().map(|switch| switch.device_id.to_string()).collect()));
        for leaf in 1..=leaves {
            let ports = used_ports(&fabric, &format!("leaf{leaf}"));
            prop_assert_eq!(ports, (1..=(spines * parallel + hosts) as u16).collect());
        }
    }
}
