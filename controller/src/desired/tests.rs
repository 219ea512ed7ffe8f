use std::collections::BTreeSet;

use trimwire_p4runtime::entity;

use super::routes::group_ids;
use super::*;
use crate::artifacts::Artifacts;

fn words(text: &str, switch: &str) -> Vec<String> {
    let fabric = Fabric::from_yaml(text, "f.yaml").unwrap_or_else(|error| panic!("{error}"));
    let artifacts = Artifacts::embedded().unwrap();
    let all = desired(&fabric, &Routes::of(&fabric), &artifacts).unwrap();
    all[switch]
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
    contains("# h4 via a:2, a:3");
    contains("Ingress.ipv6_route{dst_addr=fd00::4/128} -> group ");
    assert_eq!(words.iter().filter(|line| line.ends_with("# a ports 2, 3")).count(), 1, "{words:#?}");
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

#[test]
fn group_ids_depend_on_their_ports_alone() {
    let sets = |ports: &[&[u16]]| {
        ports.iter().map(|set| set.iter().copied().collect()).collect::<Vec<BTreeSet<u16>>>()
    };
    let few = sets(&[&[1, 2], &[3, 4]]);
    let many = sets(&[&[9, 10], &[3, 4], &[1, 2], &[7], &[1, 2, 3]]);
    let (few, many) = (group_ids(few.iter()), group_ids(many.iter()));
    assert_eq!(many.len(), 4);
    for (ports, id) in &few {
        assert_eq!(many[ports], *id);
    }
    let distinct: BTreeSet<u32> = many.values().copied().collect();
    assert_eq!(distinct.len(), 4);
    assert!(distinct.iter().all(|id| (1..1 << 24).contains(id)));
}

#[test]
fn a_program_that_is_too_small_or_another_one_is_refused_by_name() {
    let fabric = Fabric::from_yaml(DIAMOND, "f.yaml").unwrap();
    let embedded = Artifacts::embedded().unwrap();
    let with = |change: &dyn Fn(&mut trimwire_p4runtime::p4info::P4Info)| {
        let mut p4info = embedded.p4info().clone();
        change(&mut p4info);
        let other = Artifacts::unchecked(p4info);
        desired(&fabric, &Routes::of(&fabric), &other).unwrap_err().to_string()
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
