// SPDX-License-Identifier: Apache-2.0
//! Batches: CONTINUE_ON_ERROR, ROLLBACK_ON_ERROR, DATAPLANE_ATOMIC (P4Runtime, "Batch Atomicity").

use crate::server_support::*;
use proptest::prelude::*;
use trimwire_p4runtime::client::WriteError;
use trimwire_p4runtime::entity::{ActionBuilder, TableEntryBuilder, counter, delete, insert, member, modify};
use trimwire_p4runtime::v1::write_request::Atomicity;
use trimwire_p4runtime::v1::{self, Entity, TableEntry, Update};
use trimwire_switch::PortConfig;

/// Everything that can be read.
async fn state(bench: &Bench) -> Vec<Entity> {
    let resources = TableEntry {
        counter_data: Some(v1::CounterData::default()),
        meter_config: Some(v1::MeterConfig::default()),
        meter_counter_data: Some(v1::MeterCounterData::default()),
        ..TableEntry::default()
    };
    let everything = vec![
        resources.clone().into(),
        TableEntry { is_default_action: true, ..resources }.into(),
        v1::ActionProfileMember::default().into(),
        v1::ActionProfileGroup::default().into(),
        v1::MeterEntry { counter_data: Some(v1::MeterCounterData::default()), ..v1::MeterEntry::default() }
            .into(),
        v1::CounterEntry::default().into(),
        v1::MulticastGroupEntry::default().into(),
        v1::CloneSessionEntry::default().into(),
        v1::ValueSetEntry::default().into(),
        v1::RegisterEntry::default().into(),
        v1::DigestEntry::default().into(),
    ];
    bench.client.read(everything).await.unwrap()
}

/// A change to each kind of thing that a batch can change.
fn changes(bench: &Bench) -> Vec<Update> {
    use trimwire_p4runtime::p4info::Named as _;
    let index = &bench.index;
    let forward = ActionBuilder::new(index, "I.forward").param("port", 1_u16);
    let count = v1::CounterData { packet_count: 5, byte_count: 50 };
    let rates = v1::MeterConfig { cir: 1, cburst: 1, pir: 2, pburst: 2, eburst: 0 };
    let default = TableEntry {
        is_default_action: true,
        r#match: Vec::new(),
        metadata: b"d".to_vec(),
        ..bench.forward("I.aging", 0, 9)
    };
    let replicas =
        vec![v1::Replica { port_kind: Some(v1::replica::PortKind::Port(vec![1])), ..v1::Replica::default() }];
    let exact = v1::field_match::Exact { value: vec![0x22, 0xf3] };
    let field =
        v1::FieldMatch { field_id: 1, field_match_type: Some(v1::field_match::FieldMatchType::Exact(exact)) };
    let value_set = v1::ValueSetEntry {
        value_set_id: index.value_set("P.kinds").unwrap().id(),
        members: vec![v1::ValueSetMember { r#match: vec![field] }],
    };
    let data = v1::P4Data { data: Some(v1::p4_data::Data::Bitstring(vec![1])) };
    let register = v1::RegisterEntry {
        register_id: index.register("I.flags").unwrap().id(),
        data: Some(data),
        ..v1::RegisterEntry::default()
    };
    let digest = v1::DigestEntry {
        digest_id: index.digest("seen_t").unwrap().id(),
        config: Some(v1::digest_entry::Config::default()),
    };
    vec![
        insert(TableEntry { counter_data: Some(count), meter_config: Some(rates), ..bench.acl(1, 1, 1) }),
        insert(bench.forward("I.aging", 1, 1)),
        modify(default),
        modify(TableEntry {
            is_default_action: true,
            r#match: Vec::new(),
            priority: 0,
            counter_data: Some(count),
            meter_config: Some(rates),
            ..bench.acl(0, 1, 9)
        }),
        modify(register),
        insert(member(index, "I.few", 1, forward).unwrap()),
        modify(v1::CounterEntry { data: Some(count), ..counter(index, "I.seen", Some(3)).unwrap() }),
        modify(v1::MeterEntry {
            config: Some(rates),
            ..trimwire_p4runtime::entity::meter(index, "I.rates", Some(1)).unwrap()
        }),
        insert(v1::MulticastGroupEntry {
            multicast_group_id: 3,
            replicas: replicas.clone(),
            ..Default::default()
        }),
        insert(v1::CloneSessionEntry { session_id: 3, replicas, ..Default::default() }),
        modify(value_set),
        insert(digest),
    ]
}

/// An update that is always refused.
fn bad(bench: &Bench) -> Update {
    delete(bench.forward("I.aging", 99, 1))
}

#[tokio::test]
async fn all_or_none_undoes_everything_that_went_before_a_failure() {
    let bench = Bench::new().await;
    bench.write(insert(bench.forward("I.aging", 7, 7))).await.unwrap();
    let before = state(&bench).await;
    for atomicity in [Atomicity::RollbackOnError, Atomicity::DataplaneAtomic] {
        let mut updates = changes(&bench);
        updates.insert(0, delete(bench.forward("I.aging", 7, 7)));
        let good = updates.len();
        updates.extend([bad(&bench), insert(bench.forward("I.aging", 8, 8))]);
        let error = bench.client.write(updates, atomicity).await.unwrap_err();
        let WriteError::Rejected { .. } = &error else { panic!("{error}") };
        let codes: Vec<String> = error.updates().iter().map(|update| format!("{:?}", update.code)).collect();
        let mut expected = vec!["Aborted".to_owned(); good];
        expected.extend(["NotFound".to_owned(), "Aborted".to_owned()]);
        assert_eq!(codes, expected, "one outcome for each update: {error}");
        assert!(error.updates()[0].message.contains(&format!("update {good} failed")), "{error}");
        assert_eq!(state(&bench).await, before);
    }
    bench.batch(changes(&bench), Atomicity::RollbackOnError).await.unwrap();
    let after = state(&bench).await;
    assert_ne!(after, before);
    let error = bench.batch(vec![bad(&bench), bad(&bench)], Atomicity::ContinueOnError).await.unwrap_err();
    assert!(error.contains("99"), "{error}");
    assert_eq!(state(&bench).await, after);
}

#[tokio::test]
async fn a_one_shot_is_undone_with_its_batch() {
    let bench = Bench::new().await;
    let actions = |port: u16| {
        let entry = bench.forward("I.aging", 0, port);
        let Some(v1::table_action::Type::Action(action)) = entry.action.unwrap().r#type else { panic!() };
        v1::ActionProfileActionSet {
            action_profile_actions: vec![v1::ActionProfileAction {
                action: Some(action),
                weight: 8,
                watch_kind: None,
            }],
            ..Default::default()
        }
    };
    let entry = |port| TableEntry {
        table_id: bench.index.table("I.balanced").unwrap().id(),
        action: Some(v1::TableAction {
            r#type: Some(v1::table_action::Type::ActionProfileActionSet(actions(port))),
        }),
        ..bench.forward("I.aging", 1, 0)
    };
    bench.write(insert(entry(1))).await.unwrap();
    let updates = vec![modify(entry(2)), delete(entry(2)), bad(&bench)];
    bench.batch(updates, Atomicity::RollbackOnError).await.unwrap_err();
    assert_eq!(bench.entries("I.balanced").await, [entry(1)]);
    assert_eq!(bench.port_of(1, &probe(1, 0, 0, 5)), Some(1));
    // The server's own books are undone as well: the set is known as one, and can be deleted.
    bench.write(delete(entry(1))).await.unwrap();
    let forward = ActionBuilder::new(&bench.index, "I.forward").param("port", 1_u16);
    bench.write(insert(member(&bench.index, "I.spread", 1, forward).unwrap())).await.unwrap();
}

#[tokio::test]
async fn a_batch_that_a_queued_packet_would_see_half_of_is_refused() {
    let bench = Bench::new().await;
    let mark = TableEntryBuilder::new(&bench.index, "E.outgoing").exact("key", 1_u128);
    let mark = mark.action("E.mark").param("value", 0xdead_u128).build().unwrap();
    let split = || vec![insert(bench.forward("I.aging", 1, 3)), insert(mark.clone())];
    bench.write(insert(bench.forward("I.aging", 2, 2))).await.unwrap();
    // Two packets on a slow line: one is sent, one waits.
    bench.switch.lock().unwrap().configure_port(2, PortConfig { rate_bps: 1000, queue_limit_bytes: 1 << 20 });
    for _ in 0..2 {
        bench.send(1, &probe(2, 0, 0, 0));
    }
    assert!(!bench.switch.lock().unwrap().is_empty());
    let error = bench.batch(split(), Atomicity::DataplaneAtomic).await.unwrap_err();
    assert!(error.contains("UNIMPLEMENTED") && error.contains("queues"), "{error}");
    assert_eq!(bench.entries("I.aging").await.len(), 1);
    // One side of the queues is atomic at any time.
    bench.batch(vec![insert(mark.clone())], Atomicity::DataplaneAtomic).await.unwrap();
    bench.batch(vec![delete(mark.clone())], Atomicity::DataplaneAtomic).await.unwrap();
    {
        let mut switch = bench.switch.lock().unwrap();
        while let Some(at_ns) = switch.poll_timeout() {
            switch.handle_timeout(at_ns);
        }
    }
    bench.batch(split(), Atomicity::DataplaneAtomic).await.unwrap();
    assert_eq!(bench.entries("E.outgoing").await, [mark]);
}

#[tokio::test]
async fn an_atomicity_that_does_not_exist_is_named() {
    let bench = Bench::new().await;
    let request = v1::WriteRequest {
        device_id: DEVICE,
        election_id: Some(1_u128.into()),
        atomicity: 9,
        ..v1::WriteRequest::default()
    };
    let error = stub(&bench.server).await.write(request).await.unwrap_err();
    assert!(error.message().contains('9') && error.message().contains("ROLLBACK_ON_ERROR"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// The model: the same updates one by one on a second switch, kept only if all of them succeed.
    #[test]
    fn a_batch_is_all_of_its_updates_or_none(
        batches in prop::collection::vec(prop::collection::vec((0_u8..3, 0_u8..6, 1_u16..4), 1..8), 1..6)
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (bench, model) = (Bench::new().await, Bench::new().await);
            for batch in batches {
                let updates = |bench: &Bench| -> Vec<Update> {
                    batch.iter().map(|&(what, key, port)| {
                        let entry = bench.forward("I.aging", key, port);
                        match what { 0 => insert(entry), 1 => modify(entry), _ => delete(entry) }
                    }).collect()
                };
                let done = bench.batch(updates(&bench), Atomicity::RollbackOnError).await.is_ok();
                let before = model.entries("I.aging").await;
                let mut all = true;
                for update in updates(&model) {
                    all &= model.write(update).await.is_ok();
                }
                assert_eq!(done, all);
                if !all {
                    for entry in model.entries("I.aging").await {
                        model.write(delete(entry)).await.unwrap();
                    }
                    for entry in before {
                        model.write(insert(entry)).await.unwrap();
                    }
                }
                let sorted = |mut entries: Vec<TableEntry>| {
                    entries.sort_by_key(|entry| format!("{:?}", entry.r#match));
                    entries
                };
                assert_eq!(sorted(bench.entries("I.aging").await), sorted(model.entries("I.aging").await));
            }
        });
    }
}
