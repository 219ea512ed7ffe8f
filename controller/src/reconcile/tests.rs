// SPDX-License-Identifier: Apache-2.0
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use proptest::prelude::*;
use trimwire_p4runtime::entity::EntityKey;
use trimwire_p4runtime::v1::table_action::Type as ActionType;

use super::*;
use crate::compile::Compiler;
use crate::model::Fabric;
use crate::program::Artifacts;

const LEAF_SPINE: &str = include_str!("../../../examples/fabrics/leaf-spine.yaml");

fn wanted(text: &str, artifacts: &Artifacts) -> Desired {
    let fabric = Fabric::from_yaml(text, "f.yaml").unwrap_or_else(|error| panic!("{error}"));
    Compiler::new(Arc::new(fabric), artifacts).compile("leaf1").unwrap()
}

/// A switch that obeys, and insists on P4Runtime's rules about what may refer to what.
fn write(switch: &mut Actual, change: &Change) {
    let key = EntityKey::of(&change.entity).unwrap();
    let default = matches!(&change.entity.entity, Some(Kind::TableEntry(entry)) if entry.is_default_action);
    match change.operation {
        Operation::Insert => assert!(!switch.contains_key(&key) && !default, "{}", change.text),
        Operation::Modify => assert!(switch.contains_key(&key), "{}", change.text),
        Operation::Delete => {
            assert!(!default, "{}", change.text);
            assert!(switch.remove(&key).is_some(), "{}", change.text);
        }
    }
    if change.operation != Operation::Delete {
        switch.insert(key, change.entity.clone());
    }
    assert!(references_hold(switch), "a reference dangles after {}", change.text);
}

/// Whether every member and group that is referred to exists.
fn references_hold(switch: &Actual) -> bool {
    let (mut members, mut groups) = (BTreeSet::new(), BTreeSet::new());
    for entity in switch.values() {
        match &entity.entity {
            Some(Kind::ActionProfileMember(member)) => drop(members.insert(member.member_id)),
            Some(Kind::ActionProfileGroup(group)) => drop(groups.insert(group.group_id)),
            _ => {}
        }
    }
    switch.values().all(|entity| match &entity.entity {
        Some(Kind::ActionProfileGroup(group)) => {
            group.members.iter().all(|member| members.contains(&member.member_id))
        }
        Some(Kind::TableEntry(TableEntry { action: Some(action), .. })) => match action.r#type {
            Some(ActionType::ActionProfileMemberId(id)) => members.contains(&id),
            Some(ActionType::ActionProfileGroupId(id)) => groups.contains(&id),
            _ => true,
        },
        _ => true,
    })
}

/// As simple_switch_grpc tells groups: every member with the port that one of them watches.
#[test]
fn a_group_told_with_one_members_port_for_all_is_in_place_and_one_with_a_foreign_port_is_not() {
    use trimwire_p4runtime::v1::action_profile_group::member::WatchKind;

    let artifacts = Artifacts::embedded().unwrap();
    let index = artifacts.index();
    let wanted = wanted(LEAF_SPINE, &artifacts);
    let told = |change: &dyn Fn(&mut Vec<Member>)| {
        let mut actual: Actual =
            wanted.iter().map(|(key, wanted)| (key.clone(), wanted.entity.clone())).collect();
        for entity in actual.values_mut() {
            if let Some(Kind::ActionProfileGroup(group)) = &mut entity.entity {
                change(&mut group.members);
            }
        }
        let changes = difference(&wanted, &actual, index);
        assert!(
            changes.iter().all(|change| matches!(change.entity.entity, Some(Kind::ActionProfileGroup(_))))
        );
        changes.len()
    };
    let groups = told(&|members| members[0].weight += 1);
    assert!(groups > 0);
    let watch = |members: &mut Vec<Member>, port: WatchKind| {
        members.iter_mut().for_each(|member| member.watch_kind = Some(port.clone()));
    };
    for which in [0, 1] {
        assert_eq!(told(&|members| watch(members, members[which].watch_kind.clone().unwrap())), 0);
    }
    assert_eq!(told(&|members| watch(members, WatchKind::WatchPort(vec![77]))), groups);
    assert_eq!(told(&|members| members[0].watch_kind = None), groups);
    assert_eq!(told(&|members| drop(members.pop())), groups);
}

#[test]
fn groups_that_differ_in_watch_ports_alone_are_told_apart_by_them_and_others_by_their_members() {
    use trimwire_p4runtime::v1::action_profile_group::member::WatchKind;

    let artifacts = Artifacts::embedded().unwrap();
    let index = artifacts.index();
    let told = |change: &dyn Fn(&mut Member)| {
        let wanted = wanted(LEAF_SPINE, &artifacts);
        let mut actual: Actual =
            wanted.iter().map(|(key, wanted)| (key.clone(), wanted.entity.clone())).collect();
        let mut groups = actual.values_mut().filter_map(|entity| match &mut entity.entity {
            Some(Kind::ActionProfileGroup(group)) => Some(group),
            _ => None,
        });
        change(&mut groups.next().unwrap().members[0]);
        let changes = difference(&wanted, &actual, index);
        assert_eq!(changes.len(), 1);
        let behind = |text: &str| text.split_once("members ").unwrap().1.to_owned();
        (behind(&changes[0].before), behind(&changes[0].text))
    };
    let (before, after) = told(&|member| member.watch_kind = Some(WatchKind::WatchPort(vec![77])));
    assert_eq!(
        (before.as_str(), after.as_str()),
        ("[2 watching port 77, 3 watching port 2]", "[2 watching port 1, 3 watching port 2]")
    );
    let (before, _) = told(&|member| member.watch_kind = None);
    assert_eq!(before, "[2 watching none, 3 watching port 2]");
    assert_eq!(told(&|member| member.weight = 3), ("[2×3, 3]".to_owned(), "[2, 3]".to_owned()));
}

#[test]
fn an_empty_switch_is_filled_without_a_dangling_reference_and_then_left_alone() {
    let artifacts = Artifacts::embedded().unwrap();
    let index = artifacts.index();
    let wanted = wanted(LEAF_SPINE, &artifacts);
    let mut switch = actual(Vec::new(), index).unwrap();
    let changes = difference(&wanted, &switch, index);
    for change in &changes {
        write(&mut switch, change);
    }
    assert!(changes.len() > 50);
    assert!(difference(&wanted, &switch, index).is_empty());
}

#[test]
fn what_is_written_to_an_empty_switch_is_its_difference() {
    let artifacts = Artifacts::embedded().unwrap();
    let wanted = wanted(LEAF_SPINE, &artifacts);
    let changes = difference(&wanted, &Actual::new(), artifacts.index());
    let updates: Vec<Update> = changes.iter().map(Change::update).collect();
    assert!(updates.len() > 20, "{}", updates.len());
    assert_eq!(writes(wanted, artifacts.index()), updates);
}

#[test]
fn a_cap_that_changes_is_told_with_its_units() {
    let artifacts = Artifacts::embedded().unwrap();
    let index = artifacts.index();
    let of = |cap: &str| {
        wanted(&LEAF_SPINE.replacen("policy:\n", &format!("policy:\n  trim_cap: {cap}\n"), 1), &artifacts)
    };
    let mut switch = actual(Vec::new(), index).unwrap();
    difference(&of("40%"), &switch, index).iter().for_each(|change| write(&mut switch, change));
    let changes = difference(&of("20%"), &switch, index);
    let told: BTreeSet<String> =
        changes.iter().flat_map(|change| change.parameters.iter().map(ToString::to_string)).collect();
    // Its links are of 10 Gbit/s.
    assert_eq!(told, BTreeSet::from(["rate 4Gbps -> 2Gbps".to_owned()]));
}

#[test]
fn a_link_that_goes_down_changes_routes_and_nothing_else() {
    let artifacts = Artifacts::embedded().unwrap();
    let index = artifacts.index();
    let before = wanted(LEAF_SPINE, &artifacts);
    let down = LEAF_SPINE.replace(
        "b: \"spine2:1\", speed: 10Gbps, delay: 2us }",
        "b: \"spine2:1\", speed: 10Gbps, delay: 2us, state: down }",
    );
    let after = wanted(&down, &artifacts);
    let mut switch: Actual =
        before.iter().map(|(key, wanted)| (key.clone(), wanted.entity.clone())).collect();
    let changes = difference(&after, &switch, index);
    let count = |operation| changes.iter().filter(|change| change.operation == operation).count();
    // The racks of leaf2 and leaf3 turn from the group to the one port (leaf4's never had another);
    // the group and the member go.
    assert_eq!((count(Operation::Insert), count(Operation::Modify), count(Operation::Delete)), (0, 2, 2));
    for change in &changes {
        write(&mut switch, change);
    }
    assert!(difference(&after, &switch, index).is_empty());
}

#[test]
fn a_default_entry_that_the_switch_does_not_report_is_the_programs() {
    let artifacts = Artifacts::embedded().unwrap();
    let defaults = actual(Vec::new(), artifacts.index()).unwrap();
    let words: Vec<String> =
        defaults.values().map(|entity| entity::describe(entity, Some(artifacts.index()))).collect();
    // policy, cap, classify, load balance, two exemptions, trust, seed and marks; the routes'
    // defaults are constant.
    assert_eq!(words.len(), 9, "{words:?}");
    assert!(words.iter().any(|line| line.contains("Ingress.set_plain(queue=0)")), "{words:?}");
}

#[test]
fn batches_keep_phases_apart_and_their_bound() {
    let artifacts = Artifacts::embedded().unwrap();
    let index = artifacts.index();
    let changes = difference(&wanted(LEAF_SPINE, &artifacts), &actual(Vec::new(), index).unwrap(), index);
    let batches = batches(&changes, 7);
    assert!(batches.iter().all(|batch| (1..=7).contains(&batch.len())));
    assert!(batches.iter().all(|batch| batch.iter().all(|change| change.phase == batch[0].phase)));
    assert_eq!(batches.iter().map(|batch| batch.len()).sum::<usize>(), changes.len());
}

/// What a change of the trimmed size changes on a Tofino 1 with so many ports.
fn resized_tofino(ports: u16) -> Vec<Change> {
    let folder = tempfile::tempdir().unwrap();
    let p4info = include_str!("../../../p4/build/tofino/trimwire.p4info.txtpb");
    for (name, content) in [("a", p4info), ("b", "{}"), ("c", "{}"), ("d", "x")] {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    let (mut hosts, mut links) = (String::new(), String::new());
    for port in 1..=ports {
        let _ = writeln!(hosts, "  h{port}: {{ ip: 10.0.0.{port}, mac: \"02:00:00:00:00:{port:02x}\" }}");
        let _ = writeln!(links, "  - {{ a: h{port}, b: \"leaf1:{port}\", speed: 10Gbps }}");
    }
    let state = |size: &str| {
        let text = format!(
            "version: 1
switches: {{ leaf1: {{ address: 127.0.0.1:1, device_id: 1, target: stratum-tofino, pipeline: {{ p4info: a, bfrt: b, context: c, binary: d }} }} }}
policy: {{ shallow_size: {size} }}
hosts:
{hosts}links:
{links}"
        );
        let fabric = Fabric::from_yaml(&text, "f.yaml").unwrap_or_else(|error| panic!("{error}"));
        let artifacts = Artifacts::embedded().unwrap().for_fabric(&fabric, folder.path()).unwrap();
        (wanted(&text, &artifacts), artifacts)
    };
    let (before, artifacts) = state("510B");
    let (after, _) = state("286B");
    let switch: Actual = before.iter().map(|(key, wanted)| (key.clone(), wanted.entity.clone())).collect();
    difference(&after, &switch, artifacts.of("leaf1").index())
}

/// On Tofino 1 a session trims and the policy writes its length into headers: between two Writes
/// packets would carry a wrong one.
#[test]
fn a_size_changes_in_the_session_and_in_the_policy_by_one_write() {
    let changes = resized_tofino(1);
    let tables: BTreeSet<&str> = changes.iter().map(|change| change.table.as_str()).collect();
    assert_eq!(tables, BTreeSet::from(["Ingress.queue_policy.policy", "clone sessions"]));
    assert_eq!(batches(&changes, 1_000).len(), 1, "{changes:#?}");
}

#[test]
fn a_ports_session_and_its_policy_are_in_one_write_however_many_ports_a_switch_has() {
    for (ports, limit) in [(6, 100), (7, 100), (64, 100), (64, 1), (64, 17)] {
        let changes = resized_tofino(ports);
        let batches = batches(&changes, limit);
        // Purposes begin with the port: "leaf1:3 class0 important", "leaf1:3 shallow trims".
        let of_port = |change: &Change| change.purpose.split(' ').next().unwrap_or_default().to_owned();
        let mut written: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
        for (number, batch) in batches.iter().enumerate() {
            for change in *batch {
                written.entry(of_port(change)).or_default().insert(number);
            }
        }
        assert_eq!(written.len(), usize::from(ports));
        let split: Vec<_> = written.iter().filter(|(_, writes)| writes.len() > 1).collect();
        assert!(split.is_empty(), "{ports} ports, {limit} updates a Write: {split:?}");
        assert_eq!(batches.iter().map(|batch| batch.len()).sum::<usize>(), changes.len());
        let of_one = changes.len() / usize::from(ports);
        assert!(batches.iter().all(|batch| batch.len() <= limit.max(of_one)), "{ports} ports, {limit}");
    }
}

proptest! {
    /// From any mixture of two fabrics' states, garbled: the differences lead to the wanted state,
    /// every step is legal, and then there is nothing left to do. Stopping anywhere and starting
    /// again does as well.
    #[test]
    fn differences_lead_from_any_state_to_the_wanted_one(
        kept in proptest::collection::vec(0_u8..4, 200),
        stop in 0_usize..80,
    ) {
        let artifacts = Artifacts::embedded().unwrap();
        let index = artifacts.index();
        let wanted_state = wanted(LEAF_SPINE, &artifacts);
        let other = wanted(
            &LEAF_SPINE.replace("10.3.0.", "10.9.0.").replace("deep_at: 3bdp", "deep_at: 5bdp").replace(", state: down", ""),
            &artifacts,
        );
        // Whole states only refer to what is there; the mixture is built legally, from the ground
        // up.
        let mut switch = actual(Vec::new(), index).unwrap();
        let mut choices = kept.iter().cycle();
        for source in [&other, &wanted_state] {
            for change in difference(source, &switch, index) {
                let mut trial = switch.clone();
                let key = EntityKey::of(&change.entity).unwrap();
                if choices.next() == Some(&0) || change.operation == Operation::Delete {
                    continue;
                }
                trial.insert(key, change.entity.clone());
                if references_hold(&trial) {
                    switch = trial;
                }
            }
        }
        for change in difference(&wanted_state, &switch, index).iter().take(stop) {
            write(&mut switch, change);
        }
        for change in &difference(&wanted_state, &switch, index) {
            write(&mut switch, change);
        }
        prop_assert!(difference(&wanted_state, &switch, index).is_empty());
    }
}
