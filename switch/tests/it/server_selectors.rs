// SPDX-License-Identifier: Apache-2.0
//! Action profiles and selectors over P4Runtime: one-shot action sets, watch ports, and the two
//! ways of programming that do not mix.

use crate::server_support::*;
use std::collections::BTreeSet;
use std::slice;
use trimwire_p4runtime::entity::{ActionBuilder, delete, insert, member, modify};
use trimwire_p4runtime::p4info::Named as _;
use trimwire_p4runtime::v1::action_profile_action::WatchKind;
use trimwire_p4runtime::v1::table_action::Type as ActionType;
use trimwire_p4runtime::v1::{self, Entity, TableEntry};

/// Ports with weights and watch ports.
type Choice = (u16, i32, Option<WatchKind>);

fn watch(port: u8) -> WatchKind {
    WatchKind::WatchPort(vec![port])
}

fn action(bench: &Bench, port: u16) -> v1::Action {
    let entry = bench.forward("I.aging", 0, port);
    match entry.action.unwrap().r#type {
        Some(ActionType::Action(action)) => action,
        other => panic!("{other:?}"),
    }
}

fn one_shot(bench: &Bench, key: u8, choices: &[Choice]) -> TableEntry {
    let actions = choices.iter().map(|(port, weight, watch_kind)| v1::ActionProfileAction {
        action: Some(action(bench, *port)),
        weight: *weight,
        watch_kind: watch_kind.clone(),
    });
    let set = v1::ActionProfileActionSet { action_profile_actions: actions.collect(), ..Default::default() };
    TableEntry {
        table_id: bench.index.table("I.balanced").unwrap().id(),
        r#match: bench.forward("I.aging", key, 0).r#match,
        action: Some(v1::TableAction { r#type: Some(ActionType::ActionProfileActionSet(set)) }),
        ..TableEntry::default()
    }
}

/// How often each port is chosen over 256 flows.
fn shares(bench: &Bench, now_ns: u64, key: u8) -> Vec<(u16, usize)> {
    let ports: Vec<u16> =
        (0..256).filter_map(|flow| bench.port_of(now_ns, &probe(key, 0, 0, flow * 0x0101_0101))).collect();
    let distinct: BTreeSet<u16> = ports.iter().copied().collect();
    distinct.into_iter().map(|port| (port, ports.iter().filter(|other| **other == port).count())).collect()
}

#[tokio::test]
async fn an_action_set_spreads_by_weight_and_is_read_as_it_was_written() {
    let bench = Bench::new().await;
    let choices = [(1, 1, None), (2, 3, Some(watch(2))), (1, 1, None)];
    let entry = one_shot(&bench, 5, &choices);
    bench.write(insert(entry.clone())).await.unwrap();
    assert_eq!(bench.entries("I.balanced").await, slice::from_ref(&entry), "the same action twice stays two");
    let spread = shares(&bench, 1, 5);
    let [(1, one), (2, two)] = spread[..] else { panic!("{spread:?}") };
    assert!(one + two == 256 && two > one, "three fifths against two: {spread:?}");
    let members = bench.read(v1::ActionProfileMember::default()).await;
    assert!(members.is_empty(), "the server's own members are nobody's business: {members:?}");
    let changed = one_shot(&bench, 5, &[(9, 2, None)]);
    bench.write(modify(changed.clone())).await.unwrap();
    assert_eq!(bench.entries("I.balanced").await, slice::from_ref(&changed));
    assert_eq!(shares(&bench, 2, 5), [(9, 256)]);
    bench.write(delete(changed)).await.unwrap();
    assert!(bench.entries("I.balanced").await.is_empty());
    // Nothing is left behind: what fits once fits again and again.
    for _ in 0..20 {
        let whole = one_shot(&bench, 6, &[(1, 8, None)]);
        bench.write(insert(whole.clone())).await.unwrap();
        bench.write(delete(whole)).await.unwrap();
    }
}

#[tokio::test]
async fn an_action_whose_watch_port_is_down_is_not_chosen() {
    let bench = Bench::new().await;
    let entry = one_shot(
        &bench,
        5,
        &[(1, 1, Some(watch(1))), (2, 1, Some(watch(2))), (3, 1, Some(WatchKind::WatchPort(vec![])))],
    );
    bench.write(insert(entry.clone())).await.unwrap();
    let ports = |now_ns| shares(&bench, now_ns, 5).into_iter().map(|(port, _)| port).collect::<Vec<_>>();
    let set = |port, up| bench.switch.lock().unwrap().set_link_up(port, up);
    assert_eq!(ports(1), [1, 2, 3]);
    set(1, false);
    assert_eq!(ports(2), [2, 3]);
    set(2, false);
    assert_eq!(ports(3), [3]);
    set(1, true);
    assert_eq!(ports(4), [1, 3]);
    assert_eq!(bench.entries("I.balanced").await, [entry], "what is read does not depend on links");
    // A pipeline that comes later knows which ports are down.
    bench.push("server", v1::set_forwarding_pipeline_config_request::Action::VerifyAndCommit).await.unwrap();
    bench
        .write(insert(one_shot(&bench, 5, &[(1, 1, Some(watch(1))), (2, 1, Some(watch(2)))])))
        .await
        .unwrap();
    assert_eq!(ports(5), [1]);
}

#[tokio::test]
async fn groups_watch_ports_too_and_are_read_in_the_form_in_which_they_were_written() {
    use v1::action_profile_group::member::WatchKind;
    let bench = Bench::new().await;
    let forward = |port: u16| ActionBuilder::new(&bench.index, "I.forward").param("port", port);
    for id in 1..=3 {
        bench.write(insert(member(&bench.index, "I.spread", id, forward(id as u16)).unwrap())).await.unwrap();
    }
    #[expect(deprecated, reason = "still sent by clients written for P4Runtime before 1.4")]
    let kinds = [Some(WatchKind::Watch(1)), Some(WatchKind::WatchPort(vec![2])), None];
    let members = (1..).zip(kinds).map(|(member_id, watch_kind)| v1::action_profile_group::Member {
        member_id,
        weight: 1,
        watch_kind,
    });
    let group = v1::ActionProfileGroup {
        action_profile_id: bench.index.action_profile("I.spread").unwrap().id(),
        group_id: 1,
        members: members.collect(),
        max_size: 8,
    };
    bench.write(insert(group.clone())).await.unwrap();
    let mut entry = one_shot(&bench, 5, &[]);
    entry.action = Some(v1::TableAction { r#type: Some(ActionType::ActionProfileGroupId(1)) });
    bench.write(insert(entry)).await.unwrap();
    assert_eq!(bench.read(v1::ActionProfileGroup::default()).await, [Entity::from(group.clone())]);
    bench.switch.lock().unwrap().set_link_up(2, false);
    assert_eq!(shares(&bench, 1, 5).iter().map(|(port, _)| *port).collect::<Vec<_>>(), [1, 3]);
    let error =
        bench.write(modify(v1::ActionProfileGroup { max_size: 7, ..group.clone() })).await.unwrap_err();
    assert!(
        error.contains("INVALID_ARGUMENT") && error.contains("max_size 8 cannot be changed to 7"),
        "{error}"
    );
    let error = bench.write(insert(one_shot(&bench, 6, &[(1, 1, None)]))).await.unwrap_err();
    assert!(
        error.contains("INVALID_ARGUMENT") && error.contains("I.spread") && error.contains("members"),
        "{error}"
    );
}

#[tokio::test]
async fn members_and_groups_are_refused_beside_one_shots() {
    let bench = Bench::new().await;
    let entry = one_shot(&bench, 5, &[(1, 1, None)]);
    bench.write(insert(entry.clone())).await.unwrap();
    let forward = ActionBuilder::new(&bench.index, "I.forward").param("port", 1_u16);
    let one = member(&bench.index, "I.spread", 1, forward).unwrap();
    let group = v1::ActionProfileGroup {
        action_profile_id: bench.index.action_profile("I.spread").unwrap().id(),
        group_id: 9,
        ..Default::default()
    };
    let mut by_group = one_shot(&bench, 6, &[]);
    by_group.action = Some(v1::TableAction { r#type: Some(ActionType::ActionProfileGroupId(1)) });
    for update in [insert(one.clone()), delete(one.clone()), insert(group), insert(by_group)] {
        let error = bench.write(update).await.unwrap_err();
        assert!(error.contains("INVALID_ARGUMENT") && error.contains("one-shot"), "{error}");
    }
    bench.write(delete(entry)).await.unwrap();
    bench.write(insert(one)).await.unwrap();
}

#[tokio::test]
async fn an_action_set_that_cannot_be_leaves_nothing_behind() {
    let bench = Bench::new().await;
    for (choices, code, words) in [
        (vec![(1, 0, None)], "INVALID_ARGUMENT", "weight 0"),
        (vec![(1, 5, None), (2, 4, None)], "INVALID_ARGUMENT", "max_group_size of 8"),
        (vec![(1, 1, Some(WatchKind::WatchPort(vec![2, 0])))], "INVALID_ARGUMENT", "bit<9>"),
    ] {
        let error = bench.write(insert(one_shot(&bench, 5, &choices))).await.unwrap_err();
        assert!(error.contains(code) && error.contains(words), "{words}: {error}");
    }
    // The selector holds 32 shares: four sets of eight, and no fifth.
    for key in 0..4 {
        bench.write(insert(one_shot(&bench, key, &[(1, 8, None)]))).await.unwrap();
    }
    let error = bench.write(insert(one_shot(&bench, 4, &[(1, 8, None)]))).await.unwrap_err();
    assert!(error.contains("RESOURCE_EXHAUSTED") && error.contains("I.spread"), "{error}");
    let twice = bench.write(insert(one_shot(&bench, 3, &[]))).await.unwrap_err();
    assert!(twice.contains("ALREADY_EXISTS"), "{twice}");
    assert_eq!(bench.entries("I.balanced").await.len(), 4);
    bench.write(delete(one_shot(&bench, 0, &[]))).await.unwrap();
    bench.write(insert(one_shot(&bench, 4, &[(1, 8, None)]))).await.unwrap();
}

#[tokio::test]
async fn a_profile_without_selector_takes_neither_groups_nor_sets() {
    let bench = Bench::new().await;
    let table_id = bench.index.table("I.indirect").unwrap().id();
    let set = TableEntry { table_id, ..one_shot(&bench, 1, &[(1, 1, None)]) };
    let mut by_group = set.clone();
    by_group.action = Some(v1::TableAction { r#type: Some(ActionType::ActionProfileGroupId(1)) });
    let mut by_member = set.clone();
    by_member.action = Some(v1::TableAction { r#type: Some(ActionType::ActionProfileMemberId(1)) });
    let direct = TableEntry { action: bench.forward("I.aging", 1, 1).action, ..set.clone() };
    for (entry, code, words) in [
        (set, "INVALID_ARGUMENT", "no selector"),
        (by_group, "INVALID_ARGUMENT", "no selector"),
        (by_member, "NOT_FOUND", "I.few"),
        (direct, "INVALID_ARGUMENT", "I.few"),
    ] {
        let error = bench.write(insert(entry)).await.unwrap_err();
        assert!(error.contains(code) && error.contains(words), "{words}: {error}");
    }
    let forward = || ActionBuilder::new(&bench.index, "I.forward").param("port", 1_u16);
    for id in 1..=4 {
        bench.write(insert(member(&bench.index, "I.few", id, forward()).unwrap())).await.unwrap();
    }
    let error = bench.write(insert(member(&bench.index, "I.few", 5, forward()).unwrap())).await.unwrap_err();
    assert!(error.contains("RESOURCE_EXHAUSTED") && error.contains("I.few"), "{error}");
}
