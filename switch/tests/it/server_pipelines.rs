// SPDX-License-Identifier: Apache-2.0
//! SetForwardingPipelineConfig and GetForwardingPipelineConfig: saving, committing, reconciling,
//! cookies.

use crate::server_support::*;
use trimwire_p4runtime::client::Role;
use trimwire_p4runtime::entity::{ActionBuilder, counter, insert, member, modify};
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::v1::get_forwarding_pipeline_config_request::ResponseType;
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::{self, Entity, TableEntry};

fn request(action: Action, name: Option<&str>) -> v1::SetForwardingPipelineConfigRequest {
    let config = name.map(|name| {
        let (p4info, p4_device_config) = program(name);
        v1::ForwardingPipelineConfig { p4info: Some(p4info), p4_device_config, cookie: None }
    });
    v1::SetForwardingPipelineConfigRequest {
        device_id: DEVICE,
        election_id: Some(1_u128.into()),
        action: action.into(),
        config,
        ..Default::default()
    }
}

#[tokio::test]
async fn a_switch_without_pipeline_says_so_in_the_words_that_clients_look_for() {
    let (_switch, server) = start();
    let mut client = connect(&server).await;
    client.arbitrate(DEVICE, 1, Role::default()).await.unwrap();
    let mut stub = stub(&server).await;
    let asked = v1::GetForwardingPipelineConfigRequest { device_id: DEVICE, ..Default::default() };
    assert_eq!(stub.get_forwarding_pipeline_config(asked).await.unwrap().into_inner().config, None);
    let error = client.read(vec![TableEntry::default().into()]).await.unwrap_err().to_string();
    assert!(
        error.contains("FAILED_PRECONDITION") && error.contains("no forwarding pipeline config"),
        "{error}"
    );
    let error = stub.set_forwarding_pipeline_config(request(Action::Commit, None)).await.unwrap_err();
    assert_eq!(error.code() as i32, 5, "nothing saved is NOT_FOUND: {error}");
    for action in [Action::Verify, Action::VerifyAndSave, Action::VerifyAndCommit, Action::ReconcileAndCommit]
    {
        let error = stub.set_forwarding_pipeline_config(request(action, None)).await.unwrap_err();
        assert!(error.code() as i32 == 3 && error.message().contains("missing"), "{error}");
    }
    let error =
        stub.set_forwarding_pipeline_config(request(Action::Unspecified, Some("server"))).await.unwrap_err();
    assert!(error.message().contains("RECONCILE_AND_COMMIT (5)"), "{error}");
}

#[tokio::test]
async fn what_is_written_after_a_save_takes_effect_with_the_commit() {
    let bench = Bench::new().await;
    bench.write(insert(bench.forward("I.aging", 1, 3))).await.unwrap();
    bench.push("next", Action::VerifyAndSave).await.unwrap();
    let next = Index::new(&program("next").0).unwrap();
    assert!(bench.entries("I.aging").await.is_empty(), "reads and writes are about the saved program");
    let added =
        TableEntry { table_id: next.table("I.added").unwrap().id(), ..bench.forward("I.aging", 2, 4) };
    bench.write(insert(added.clone())).await.unwrap();
    assert_eq!(bench.port_of(1, &probe(1, 0, 0, 0)), Some(3), "the switch goes on as it was");
    assert_eq!(bench.port_of(1, &probe(2, 0, 0, 0)), None);
    let mut stub = stub(&bench.server).await;
    let error = stub.set_forwarding_pipeline_config(request(Action::Commit, Some("next"))).await.unwrap_err();
    assert_eq!(error.code() as i32, 3, "COMMIT takes no config: {error}");
    bench.client.commit_pipeline().await.unwrap();
    assert_eq!(bench.port_of(2, &probe(1, 0, 0, 0)), None);
    assert_eq!(bench.port_of(2, &probe(2, 0, 0, 0)), Some(4));
    assert_eq!(bench.rows(TableEntry { action: None, ..added.clone() }).await, [added]);
    bench.client.commit_pipeline().await.unwrap_err();
}

#[tokio::test]
async fn the_cookie_and_each_part_of_the_config_come_back() {
    let bench = Bench::new().await;
    let (p4info, json) = program("server");
    for (what, with_p4info, with_config) in [
        (ResponseType::All, true, true),
        (ResponseType::CookieOnly, false, false),
        (ResponseType::P4infoAndCookie, true, false),
        (ResponseType::DeviceConfigAndCookie, false, true),
    ] {
        let config = bench.client.pipeline(what).await.unwrap().unwrap();
        assert_eq!(config.cookie.map(|cookie| cookie.cookie), Some(7));
        assert_eq!(config.p4info, with_p4info.then(|| p4info.clone()));
        assert_eq!(config.p4_device_config, if with_config { json.clone() } else { Vec::new() });
    }
    let (p4info, json) = program("server");
    bench.client.set_pipeline(p4info, json, None, Action::VerifyAndCommit).await.unwrap();
    assert_eq!(bench.client.pipeline(ResponseType::CookieOnly).await.unwrap().unwrap().cookie, None);
}

#[tokio::test]
async fn a_reconciled_program_keeps_what_was_written_and_forwards_on() {
    let bench = Bench::new().await;
    let entry = TableEntry {
        idle_timeout_ns: 5_000_000_000,
        metadata: b"mine".to_vec(),
        ..bench.forward("I.aging", 1, 3)
    };
    bench.write(insert(entry.clone())).await.unwrap();
    let counted = v1::CounterData { packet_count: 5, byte_count: 50 };
    let rates = v1::MeterConfig { cir: 1, cburst: 1, pir: 2, pburst: 2, eburst: 0 };
    let acl = TableEntry { counter_data: Some(counted), meter_config: Some(rates), ..bench.acl(9, 4, 1) };
    bench.write(insert(acl.clone())).await.unwrap();
    let cell = counter(&bench.index, "I.seen", Some(3)).unwrap();
    bench.write(modify(v1::CounterEntry { data: Some(counted), ..cell })).await.unwrap();
    let Some(v1::table_action::Type::Action(action)) = entry.action.clone().unwrap().r#type else { panic!() };
    let set = v1::ActionProfileActionSet {
        action_profile_actions: vec![v1::ActionProfileAction {
            action: Some(action),
            weight: 2,
            watch_kind: Some(v1::action_profile_action::WatchKind::WatchPort(vec![3])),
        }],
        ..Default::default()
    };
    let balanced = TableEntry {
        table_id: bench.index.table("I.balanced").unwrap().id(),
        action: Some(v1::TableAction { r#type: Some(v1::table_action::Type::ActionProfileActionSet(set)) }),
        ..bench.forward("I.aging", 2, 0)
    };
    bench.write(insert(balanced.clone())).await.unwrap();
    let default =
        TableEntry { is_default_action: true, r#match: Vec::new(), ..bench.forward("I.aging", 0, 8) };
    bench.write(modify(default.clone())).await.unwrap();
    bench.push("next", Action::ReconcileAndCommit).await.unwrap();
    assert_eq!(bench.entries("I.aging").await, [entry]);
    let asked = TableEntry {
        counter_data: Some(v1::CounterData::default()),
        meter_config: Some(v1::MeterConfig::default()),
        action: None,
        ..acl.clone()
    };
    assert_eq!(bench.rows(asked).await, [acl]);
    assert_eq!(bench.read(cell).await, [Entity::from(v1::CounterEntry { data: Some(counted), ..cell })]);
    assert_eq!(bench.entries("I.balanced").await, [balanced]);
    let filter = TableEntry { action: None, ..default.clone() };
    assert_eq!(bench.rows(filter).await, [default]);
    assert_eq!(bench.port_of(1, &probe(1, 0, 0, 0)), Some(3));
    bench.switch.lock().unwrap().set_link_up(3, false);
    assert_eq!(bench.port_of(1, &probe(2, 0, 0, 0)), Some(8), "its only choice is down");
    assert_eq!(
        bench.client.pipeline(ResponseType::DeviceConfigAndCookie).await.unwrap().unwrap().p4_device_config,
        program("next").1
    );
}

#[tokio::test]
async fn a_program_that_has_no_place_for_what_was_written_is_refused_and_nothing_changes() {
    let bench = Bench::new().await;
    let forward = ActionBuilder::new(&bench.index, "I.forward").param("port", 1_u16);
    bench.write(insert(bench.forward("I.aging", 1, 3))).await.unwrap();
    bench.write(insert(member(&bench.index, "I.few", 1, forward).unwrap())).await.unwrap();
    let error = bench.push("next", Action::ReconcileAndCommit).await.unwrap_err();
    assert!(error.contains("INVALID_ARGUMENT") && error.contains("I.few"), "{error}");
    assert_eq!(bench.port_of(1, &probe(1, 0, 0, 0)), Some(3));
    assert_eq!(bench.read(v1::ActionProfileMember::default()).await.len(), 1);
}

#[tokio::test]
async fn the_same_program_is_reconciled_without_touching_packets_in_queues() {
    let bench = Bench::new().await;
    bench.write(insert(bench.forward("I.aging", 1, 3))).await.unwrap();
    let line = trimwire_switch::PortConfig { rate_bps: 1000, queue_limit_bytes: 1 << 20 };
    bench.switch.lock().unwrap().configure_port(3, line);
    for _ in 0..3 {
        bench.send(1, &probe(1, 0, 0, 0));
    }
    let (p4info, json) = program("server");
    bench.client.set_pipeline(p4info, json, Some(8), Action::ReconcileAndCommit).await.unwrap();
    assert!(!bench.switch.lock().unwrap().is_empty(), "packets wait on");
    assert_eq!(bench.entries("I.aging").await.len(), 1);
    let cookie = bench.client.pipeline(ResponseType::CookieOnly).await.unwrap().unwrap().cookie;
    assert_eq!(cookie.map(|cookie| cookie.cookie), Some(8));
}
