// SPDX-License-Identifier: Apache-2.0
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use trimwire_p4runtime::entity;

use super::routes::groups;
use super::*;
use crate::model::{End, Mac};
use crate::program::Artifacts;
use crate::topology::{Avoid, Neighbour, Prefix, Route, shares};

fn words(text: &str, switch: &str) -> Vec<String> {
    let fabric = Fabric::from_yaml(text, "f.yaml").unwrap_or_else(|error| panic!("{error}"));
    let artifacts = Artifacts::embedded().unwrap();
    let compiled = Compiler::new(Arc::new(fabric), &artifacts).compile(switch).unwrap();
    compiled
        .values()
        .map(|wanted| {
            format!("{}  # {}", entity::describe(&wanted.entity, Some(artifacts.index())), wanted.purpose)
        })
        .collect()
}

const DIAMOND: &str = "
version: 1
switches:
  a: { address: 127.0.0.1:1, device_id: 1 }
  b: { address: 127.0.0.1:2, device_id: 2 }
  c: { address: 127.0.0.1:3, device_id: 3 }
  d: { address: 127.0.0.1:4, device_id: 4 }
hosts:
  h1: { ip: 10.0.0.1, mac: \"02:00:00:00:00:01\" }
  h4: { ip: 10.0.0.4, ip6: \"fd00::4\", mac: \"02:00:00:00:00:04\" }
links:
  - { a: h1, b: \"a:1\", speed: 1Gbps }
  - { a: h4, b: \"d:1\", speed: 1Gbps }
  - { a: \"a:2\", b: \"b:1\", speed: 1Gbps }
  - { a: \"a:3\", b: \"c:1\", speed: 1Gbps }
  - { a: \"b:2\", b: \"d:2\", speed: 1Gbps }
  - { a: \"c:2\", b: \"d:3\", speed: 1Gbps }
";

#[test]
fn routes_name_members_groups_and_the_next_interfaces_address() {
    let words = words(DIAMOND, "a");
    let contains =
        |expected: &str| assert!(words.iter().any(|line| line.contains(expected)), "{expected}\n{words:#?}");
    contains("forward(port=1, dst_mac=02:00:00:00:00:01)");
    contains("forward(port=2, dst_mac=06:00:00:02:00:01)");
    contains("forward(port=3, dst_mac=06:00:00:03:00:01)");
    contains("Ingress.ipv4_route{dst_addr=10.0.0.1/32} -> member 2  # h1 via a:1");
    // Other racks' hosts are a prefix: .4 to .7 here, where nobody else is.
    contains("Ingress.ipv4_route{dst_addr=10.0.0.4/30} -> group ");
    contains("# h4 via a:2-3");
    contains("Ingress.ipv6_route{dst_addr=fd00::/112} -> group ");
    assert_eq!(words.iter().filter(|line| line.ends_with("# a ports 2-3")).count(), 1, "{words:#?}");
}

/// From any routes to any others: what the one lacks of the other, put in place of what goes, is
/// all of the other.
#[test]
fn the_entities_that_differ_make_of_some_routes_the_others() {
    let text = "version: 1\ntopology: { leaf_spine: { leaves: 4, spines: 3, hosts_per_leaf: 2, host_speed: 1Gbps } }\n";
    let fabric = Arc::new(Fabric::from_yaml(text, "f.yaml").unwrap());
    let compiler = Compiler::new(Arc::clone(&fabric), &Artifacts::embedded().unwrap());
    let spines: Vec<&String> = fabric.switches.keys().filter(|name| name.starts_with("spine")).collect();
    let topology = compiler.topology();
    // Every set of spines left out, each with and without a cable of another kind.
    let avoided = (0..16_usize).map(|bits| Avoid {
        switches: spines
            .iter()
            .enumerate()
            .filter(|(at, _)| bits >> at & 1 == 1)
            .map(|(_, name)| (*name).clone())
            .collect(),
        ports: (bits >= 8).then(|| (spines[0].clone(), 2)).into_iter().collect(),
        ..Avoid::default()
    });
    let detours: Vec<Detours> = avoided.map(|avoid| topology.around(&avoid)).collect();
    for name in fabric.switches.keys() {
        let routes: Vec<SwitchRoutes> =
            detours.iter().map(|detours| topology.routes_around(&fabric, name, Some(detours))).collect();
        let entities = |routes: &SwitchRoutes, held: &SwitchRoutes| -> BTreeMap<EntityKey, Entity> {
            let entities = compiler.entities_of(name, routes, held).unwrap().into_iter();
            entities.map(|(key, wanted)| (key, wanted.entity)).collect()
        };
        for before in &routes {
            for after in &routes {
                let mut held = entities(before, &SwitchRoutes::default());
                held.retain({
                    let goes = entities(before, after);
                    move |key, _| !goes.contains_key(key)
                });
                held.extend(entities(after, before));
                assert_eq!(held, entities(after, &SwitchRoutes::default()), "{name}");
            }
        }
        // The least that can be: nothing.
        assert!(entities(&routes[1], &routes[1]).is_empty());
    }
}

#[test]
fn the_dscp_plan_is_the_designs() {
    let words = words(DIAMOND, "b");
    for (dscp, action) in [
        (3, "set_trimmable(queue=5)"),
        (7, "set_trimmable(queue=4)"),
        (11, "set_trimmable(queue=3)"),
        (15, "set_trimmable(queue=2)"),
        (19, "set_plain(queue=5)"),
        (23, "set_plain(queue=4)"),
        (27, "set_plain(queue=3)"),
        (31, "set_plain(queue=2)"),
        (35, "set_trimmed(queue=6)"),
        (39, "set_plain(queue=7)"),
    ] {
        let expected = format!("Ingress.classify{{dscp={dscp}}} -> Ingress.{action}");
        assert!(words.iter().any(|line| line.contains(&expected)), "{expected}\n{words:#?}");
    }
    // Two ports, seven queues, two importances.
    let policies = words.iter().filter(|line| line.contains("queue_policy.policy{")).count();
    assert_eq!(policies, 2 * 7 * 2, "{words:#?}");
}

#[test]
fn without_trimming_trimmable_code_points_are_plain() {
    let words = words(&format!("{DIAMOND}policy: {{ trim: off }}\n"), "b");
    assert!(words.iter().any(|line| line.contains("Ingress.classify{dscp=3} -> Ingress.set_plain(queue=5)")));
    assert!(!words.iter().any(|line| line.contains("set_trimmable")));
}

fn find<'w>(words: &'w [String], part: &str) -> &'w str {
    words.iter().find(|line| line.contains(part)).unwrap_or_else(|| panic!("{part}\n{words:#?}"))
}

#[test]
fn every_trimmed_code_point_is_known_everywhere_and_ports_write_their_own() {
    let text = format!(
        "{DIAMOND}dscp: {{ trimmed_last_hop: 36 }}\npolicy: {{ ports: {{ \"c:1\": {{ trimmed_dscp: 45 }} }} }}\n"
    );
    for switch in ["a", "b", "c", "d"] {
        let words = words(&text, switch);
        for dscp in [35, 36, 45] {
            find(&words, &format!("Ingress.classify{{dscp={dscp}}} -> Ingress.set_trimmed(queue=6)"));
        }
    }
    let own = words(&text, "a");
    assert!(find(&own, "policy{egress_port=1, queue=5, importance=1}").contains("trimmed_dscp=36"));
    assert!(find(&own, "policy{egress_port=2, queue=5, importance=1}").contains("trimmed_dscp=35"));
    assert!(
        find(&words(&text, "c"), "policy{egress_port=1, queue=5, importance=1}").contains("trimmed_dscp=45")
    );
}

#[test]
fn trimmed_packets_are_capped_on_every_port_but_those_that_say_never() {
    let text = format!("{DIAMOND}policy: {{ ports: {{ \"a:2\": {{ trim_cap: never }} }} }}\n");
    let words = words(&text, "a");
    // 50 % of 1 Gbit/s over 1,024 µs; 100 µs of line rate.
    find(&words, "Ingress.trim_cap.cap{egress_port=1} -> Ingress.trim_cap.set_cap(rate=64000, burst=12500)");
    assert!(!words.iter().any(|line| line.contains("cap{egress_port=2}")), "{words:#?}");
    find(&words, "Ingress.trim_cap.cap default -> Ingress.trim_cap.no_cap()");
}

#[test]
fn neighbouring_tiers_hash_with_different_halves_and_kinds_of_packets_have_their_own_way() {
    let text =
        format!("{DIAMOND}load_balance: {{ default: flow, trimmable: packet, droppable: five_tuple }}\n");
    for (switch, half) in [("a", 0), ("b", 1), ("c", 1), ("d", 0)] {
        let words = words(&text, switch);
        find(&words, &format!("Ingress.load_balance default -> Ingress.hash_flow(half={half})"));
        for dscp in [3, 7, 11, 15, 35] {
            find(&words, &format!("Ingress.load_balance{{dscp={dscp}}} -> Ingress.spray_packet()"));
        }
        for dscp in [19, 23, 27, 31] {
            find(
                &words,
                &format!("Ingress.load_balance{{dscp={dscp}}} -> Ingress.hash_five_tuple(half={half})"),
            );
        }
        assert!(!words.iter().any(|line| line.contains("load_balance{dscp=39}")));
    }
    let plain = words(DIAMOND, "b");
    find(&plain, "Ingress.load_balance default -> Ingress.hash_five_tuple(half=1)");
    assert!(!plain.iter().any(|line| line.contains("load_balance{")));
}

#[test]
fn flows_that_are_never_trimmed_are_matched_in_their_ip_version_where_the_file_says() {
    let text = format!(
        "{DIAMOND}disable_trim:
  - {{ src: 10.0.0.0/24, protocol: udp, dst_port: 4791 }}
  - {{ dst: h4, switches: [a] }}
  - {{ src_port: 9 }}
  - {{ src: \"fd00::/64\", dst: h4 }}
"
    );
    let own = words(&text, "a");
    let v4: Vec<&String> = own.iter().filter(|line| line.contains("trim_acl_ipv4{")).collect();
    let v6: Vec<&String> = own.iter().filter(|line| line.contains("trim_acl_ipv6{")).collect();
    assert_eq!((v4.len(), v6.len()), (3, 3), "{own:#?}");
    find(
        &own,
        "Ingress.trim_acl_ipv4{src_addr=10.0.0.0&0xffffff00, protocol=17&0xff, dst_port=4791&0xffff} priority 1 -> Ingress.disable_trim()  # never trimmed: disable_trim[0]",
    );
    find(&own, "Ingress.trim_acl_ipv4{dst_addr=10.0.0.4&0xffffffff} priority 1 -> ");
    find(&own, "Ingress.trim_acl_ipv6{dst_addr=fd00::4&0xffffffffffffffffffffffffffffffff} priority 1 -> ");
    find(&own, "Ingress.trim_acl_ipv6{src_port=9&0xffff} priority 1 -> ");
    find(&own, "Ingress.trim_acl_ipv6 default -> NoAction()");
    let other = words(&text, "b");
    assert_eq!(other.iter().filter(|line| line.contains("dst_addr=10.0.0.4&")).count(), 0);
    assert_eq!(other.iter().filter(|line| line.contains("trim_acl_ipv6{")).count(), 2);
}

#[test]
fn group_ids_depend_on_their_ports_and_shares_alone() {
    let ids = |sets: &[&[u16]], rate_of_1: u64| -> BTreeMap<Vec<u16>, u32> {
        let mut routes = SwitchRoutes::default();
        for (set, host) in sets.iter().zip(0..) {
            let route = Route { ports: set.iter().copied().collect(), to: String::new() };
            routes.prefixes.insert(Prefix::host(Ipv4Addr::from_bits(host).into()), route);
            for port in *set {
                let rate_bps = if *port == 1 { rate_of_1 } else { 10 };
                let (end, mac) = (End::Port("s".to_owned(), *port), Mac([0; 6]));
                routes.neighbours.insert(*port, Neighbour { end, mac, rate_bps });
            }
        }
        groups(&routes).into_iter().map(|(ports, group)| (ports.into_iter().collect(), group.id)).collect()
    };
    let few = ids(&[&[1, 2], &[3, 4]], 10);
    let many = ids(&[&[9, 10], &[3, 4], &[1, 2], &[7], &[1, 2, 3]], 10);
    assert_eq!(many.len(), 4);
    for (ports, id) in &few {
        assert_eq!(many[ports], *id);
    }
    let distinct: BTreeSet<u32> = many.values().copied().collect();
    assert_eq!(distinct.len(), 4);
    assert!(distinct.iter().all(|id| (1..1 << 24).contains(id)));
    // A group's size is fixed when it is made.
    let faster = ids(&[&[1, 2], &[3, 4]], 100);
    assert!(faster[&vec![1, 2]] != few[&vec![1, 2]] && faster[&vec![3, 4]] == few[&vec![3, 4]]);
}

#[test]
fn groups_share_packets_by_the_speed_of_their_links() {
    let text = |target: &str, slow: &str| {
        let switch = |name: &str, id: u8, target: &str| {
            format!("  {name}: {{ address: '127.0.0.1:{id}', device_id: {id}{target} }}\n")
        };
        let switches =
            switch("a", 1, target) + &switch("b", 2, "") + &switch("c", 3, "") + &switch("d", 4, "");
        let link = |a: &str, b: &str, speed: &str| format!("  - {{ a: '{a}', b: '{b}', speed: {speed} }}\n");
        let links = link("ha", "a:1", "50Mbps") + &link("hd", "d:1", "50Mbps");
        let links = links + &link("a:2", "b:1", "50Mbps") + &link("a:3", "c:1", slow);
        let links = links + &link("d:2", "b:2", "50Mbps") + &link("d:3", "c:2", "50Mbps");
        format!(
            "version: 1\nswitches:\n{switches}hosts:\n  ha: {{ ip: 10.0.0.1, mac: '02:00:00:00:00:01' }}\n  \
             hd: {{ ip: 10.0.0.2, mac: '02:00:00:00:00:02' }}\nlinks:\n{links}"
        )
    };
    let groups = |text: &str| -> Vec<String> {
        words(text, "a").into_iter().filter(|line| line.contains("Ingress.ecmp group ")).collect()
    };
    let found = groups(&text("", "5Mbps"));
    assert!(found.len() == 1 && found[0].contains("[3×10, 4]"), "{found:?}");
    let found = groups(&text("", "50Mbps"));
    assert!(found.len() == 1 && found[0].contains("[3, 4]"), "{found:?}");
    // Stratum takes no weights.
    let files = ", target: stratum-tofino2, pipeline: { p4info: a, bfrt: b, context: c, binary: d }";
    let found = words(&text(files, "25Mbps"), "a");
    let members = found.iter().filter(|line| line.contains("a:2 to b:1")).count();
    assert_eq!(members, 2, "{found:?}");
    let warnings = |slow: &str| Fabric::from_yaml(&text("", slow), "f.yaml").unwrap().warnings;
    let uneven = |line: &String| line.starts_with("a: its uplinks' speeds differ");
    assert!(!warnings("5Mbps").iter().any(uneven));
    assert!(warnings("500Kbps").iter().any(uneven));
    assert_eq!(shares(&[100, 1]), (vec![63, 1], false));
    assert_eq!(shares(&[40, 100, 40]), (vec![2, 5, 2], true));
}

#[test]
fn a_program_that_is_too_small_or_another_one_is_refused_by_name() {
    let fabric = Fabric::from_yaml(DIAMOND, "f.yaml").unwrap();
    let embedded = Artifacts::embedded().unwrap();
    let with = |change: &dyn Fn(&mut trimwire_p4runtime::p4info::P4Info)| {
        let mut p4info = embedded.p4info().clone();
        change(&mut p4info);
        let other = Artifacts::unchecked(p4info);
        Compiler::new(Arc::new(fabric.clone()), &other).compile("a").unwrap_err().to_string()
    };
    let small = with(&|p4info| {
        for table in &mut p4info.tables {
            table.size = 5;
        }
    });
    assert_eq!(small, "switch a: Ingress.classify holds 5 entries, but 10 are needed");
    let other = with(&|p4info| {
        for table in &mut p4info.tables {
            if let Some(preamble) = &mut table.preamble
                && preamble.name == "Ingress.classify"
            {
                preamble.name = "Ingress.clasify".to_owned();
                preamble.alias = String::new();
            }
        }
    });
    assert_eq!(
        other,
        "the program does not fit this controller: the P4Info has no table \"Ingress.classify\"; did you mean \
         Ingress.clasify?"
    );
}

#[test]
fn a_host_may_not_claim_that_its_packets_were_trimmed() {
    let contains = |words: &[String], expected: &str| words.iter().any(|line| line.contains(expected));
    let edge = words(DIAMOND, "a");
    assert!(contains(&edge, "# a:1 may not claim to have been trimmed"), "{edge:#?}");
    // The host, its claims, and the ports to two switches.
    assert_eq!(edge.iter().filter(|line| line.contains("Ingress.trust{")).count(), 4, "{edge:#?}");
    assert!(contains(&edge, "Ingress.trust default -> Ingress.remark_dscp(dscp=0)"), "others: {edge:#?}");
    assert!(contains(&words(DIAMOND, "b"), "# b:1 is believed"), "switches are believed");
    for (trust, entries) in [("all", 3), ("none", 2)] {
        let text = DIAMOND.replace("h1: { ip: 10.0.0.1,", &format!("h1: {{ trust: {trust}, ip: 10.0.0.1,"));
        let edge = words(&text, "a");
        assert_eq!(
            edge.iter().filter(|line| line.contains("Ingress.trust{")).count(),
            entries,
            "{trust}: {edge:#?}"
        );
    }
    // Whatever a port somewhere writes into what it trims is not for hosts to write.
    let more = format!("{DIAMOND}dscp: {{ trimmed_last_hop: 43 }}\n");
    assert_eq!(words(&more, "a").iter().filter(|line| line.contains("Ingress.trust{")).count(), 5);
}

#[test]
fn every_switch_has_a_hash_seed_of_its_own() {
    let seeds: BTreeSet<String> = ["a", "b", "c", "d"]
        .iter()
        .map(|switch| {
            let words = words(DIAMOND, switch);
            words.into_iter().find(|line| line.contains("set_hash_seed")).unwrap()
        })
        .collect();
    assert_eq!(seeds.len(), 4, "{seeds:?}");
    assert!(!seeds.iter().any(|line| line.contains("(seed=0)")), "0 is no seed");
}

#[test]
fn trimmable_packets_are_marked_on_request() {
    let marks = |text: &str| words(text, "a").iter().filter(|line| line.contains("mark_ce")).count();
    assert_eq!(marks(DIAMOND), 0);
    assert_eq!(marks(&format!("{DIAMOND}policy: {{ mark_trimmable: on }}\n")), 4);
    assert_eq!(
        marks(&format!("{DIAMOND}policy: {{ mark_trimmable: on, trim: off }}\n")),
        0,
        "nothing is trimmable"
    );
}

#[test]
fn what_is_counted_without_being_built_is_as_many_as_are_built() {
    let more = "policy: { ports: { \"leaf1:1\": { shallow_at: 5us } } }
disable_trim: [ { src: h1-1 }, { dst: 10.0.0.0/8 } ]
links: [ { a: \"leaf1:2\", b: \"spine2:1\", state: down } ]\n";
    for (topology, more) in [
        ("leaf_spine: { leaves: 5, spines: 2, hosts_per_leaf: 3, host_speed: 25Gbps }", more),
        ("fat_tree: { k: 4, host_speed: 25Gbps, addresses: { ipv6: off } }", ""),
        ("dumbbell: { hosts_per_side: 9, trunks: 3, host_speed: 25Gbps, target: bmv2 }", ""),
    ] {
        let text = format!("version: 1\ntopology: {{ {topology} }}\n{more}");
        let fabric = Fabric::from_yaml(&text, "f.yaml").unwrap_or_else(|error| panic!("{error}"));
        let compiler = Compiler::new(Arc::new(fabric), &Artifacts::embedded().unwrap());
        for switch in compiler.fabric().switches.keys() {
            let built = compiler.compile(switch).unwrap().len();
            assert_eq!(compiler.count(&[switch]).unwrap(), built, "{topology}: {switch}");
        }
    }
}

#[test]
fn counting_finds_what_does_not_fit_though_it_builds_little() {
    let text = "version: 1\ntopology: { dumbbell: { hosts_per_side: 200, host_speed: 25Gbps } }\n";
    let fabric = Fabric::from_yaml(text, "f.yaml").unwrap();
    for (name, message) in [
        ("Ingress.queue_policy.policy", "holds 99 entries, but 2814 are needed"),
        ("Ingress.ipv4_route", "holds 99 entries, but 201 are needed"),
        ("Ingress.ecmp", "holds 99 entries, but 201 are needed"),
    ] {
        let mut p4info = Artifacts::embedded().unwrap().p4info().clone();
        for table in &mut p4info.tables {
            if table.preamble.as_ref().is_some_and(|preamble| preamble.name == name) {
                table.size = 99;
            }
        }
        for profile in &mut p4info.action_profiles {
            if profile.preamble.as_ref().is_some_and(|preamble| preamble.name == name) {
                profile.size = 99;
            }
        }
        let compiler = Compiler::new(Arc::new(fabric.clone()), &Artifacts::unchecked(p4info));
        let counted = compiler.count(&["left"]).unwrap_err().to_string();
        assert!(counted.contains(message), "{counted}");
        assert_eq!(counted, compiler.compile("left").unwrap_err().to_string());
    }
}
