// SPDX-License-Identifier: Apache-2.0
//! Table entries over P4Runtime: what MODIFY keeps and resets, direct resources, metadata, default
//! and constant entries, filters, full tables, idle time-outs.

use crate::server_support::*;
use std::slice;
use trimwire_p4runtime::entity::{TableEntryBuilder, delete, insert, modify};
use trimwire_p4runtime::p4info::Named as _;
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::{self, Entity, TableEntry, entity::Entity as Kind};

fn rates(cir: i64, pir: i64) -> v1::MeterConfig {
    v1::MeterConfig { cir, cburst: 10, pir, pburst: 20, eburst: 0 }
}

fn count(packets: i64, bytes: i64) -> v1::CounterData {
    v1::CounterData { packet_count: packets, byte_count: bytes }
}

/// Packets of 16 bytes by colour.
fn colors(green: i64, yellow: i64, red: i64) -> v1::MeterCounterData {
    let [green, yellow, red] = [green, yellow, red].map(|packets| Some(count(packets, 16 * packets)));
    v1::MeterCounterData { green, yellow, red }
}

/// A filter that asks for everything an entry has.
fn with_resources(entry: &TableEntry) -> TableEntry {
    TableEntry {
        meter_config: Some(v1::MeterConfig::default()),
        counter_data: Some(v1::CounterData::default()),
        action: None,
        metadata: Vec::new(),
        ..entry.clone()
    }
}

#[tokio::test]
async fn an_entry_carries_its_counter_and_meter_in_and_out() {
    let bench = Bench::new().await;
    let entry = TableEntry {
        meter_config: Some(rates(5, 9)),
        counter_data: Some(count(3, 300)),
        ..bench.acl(1, 10, 4)
    };
    bench.write(insert(entry.clone())).await.unwrap();
    assert_eq!(bench.rows(with_resources(&entry)).await, slice::from_ref(&entry));
    let bare = TableEntry { meter_config: None, counter_data: None, ..entry.clone() };
    assert_eq!(bench.entries("I.acl").await, slice::from_ref(&bare), "only what is asked for");
    // The packet that is counted is the one that hits.
    assert_eq!(bench.port_of(1, &probe(1, 0, 0, 0)), Some(4));
    let read = bench.rows(with_resources(&entry)).await;
    assert_eq!(read[0].counter_data, Some(count(4, 316)));
    // MODIFY: the counter stays, the meter that is left out goes back to its default.
    bench.write(modify(bare.clone())).await.unwrap();
    let read = bench.rows(with_resources(&entry)).await;
    assert_eq!((read[0].counter_data, read[0].meter_config), (Some(count(4, 316)), None));
    bench.write(modify(TableEntry { counter_data: Some(count(0, 0)), ..bare })).await.unwrap();
    assert_eq!(bench.rows(with_resources(&entry)).await[0].counter_data, Some(count(0, 0)));
    for (entry, words) in [
        (
            TableEntry { counter_data: Some(count(0, 0)), ..bench.forward("I.aging", 1, 1) },
            "no direct counter",
        ),
        (TableEntry { meter_config: Some(rates(1, 2)), ..bench.forward("I.aging", 1, 1) }, "no direct meter"),
        (TableEntry { meter_config: Some(rates(9, 5)), ..bench.acl(2, 1, 1) }, "cir 9 is above pir 5"),
        (
            TableEntry {
                meter_config: Some(v1::MeterConfig { eburst: 3, ..rates(1, 2) }),
                ..bench.acl(2, 1, 1)
            },
            "eburst 3",
        ),
        (
            TableEntry { meter_counter_data: Some(colors(0, 3, 0)), ..bench.acl(2, 1, 1) },
            "yellow counters may only be set to 0, not to 3 packets",
        ),
        (
            TableEntry { meter_counter_data: Some(colors(0, 0, 0)), ..bench.forward("I.aging", 1, 1) },
            "no direct meter",
        ),
    ] {
        let error = bench.write(insert(entry)).await.unwrap_err();
        assert!(error.contains(words), "{words}: {error}");
    }
    assert_eq!(bench.entries("I.acl").await.len(), 1, "nothing of a refused update stays");
}

#[tokio::test]
async fn direct_counters_and_meters_are_entities_of_their_own() {
    let bench = Bench::new().await;
    let entry = bench.acl(1, 10, 4);
    bench.write(insert(entry.clone())).await.unwrap();
    let counter = |data| v1::DirectCounterEntry { table_entry: Some(entry.clone()), data };
    let meter =
        |config| v1::DirectMeterEntry { table_entry: Some(entry.clone()), config, ..Default::default() };
    bench.write(modify(counter(Some(count(7, 70))))).await.unwrap();
    bench.write(modify(counter(None))).await.unwrap();
    assert_eq!(
        bench.read(counter(None)).await,
        [Entity::from(counter(Some(count(7, 70))))],
        "no data, no change"
    );
    bench.write(modify(meter(Some(rates(1, 2))))).await.unwrap();
    assert_eq!(bench.read(meter(None)).await, [Entity::from(meter(Some(rates(1, 2))))]);
    bench.write(modify(meter(None))).await.unwrap();
    assert_eq!(bench.read(meter(None)).await, [Entity::from(meter(None))]);
    // All of a table, and all of all tables; the constant entries of another table have counters
    // too.
    let of_table = TableEntry { table_id: entry.table_id, ..TableEntry::default() };
    let all = |table_entry| v1::DirectCounterEntry { table_entry: Some(table_entry), data: None };
    assert_eq!(bench.read(all(of_table)).await.len(), 1);
    assert_eq!(bench.read(all(TableEntry::default())).await.len(), 3);
    // An entry that is not there, and one that has no counter.
    let absent = bench.client.read(vec![all(bench.acl(9, 10, 4)).into()]).await.unwrap_err().to_string();
    assert!(absent.contains("NOT_FOUND") && absent.contains("I.acl"), "{absent}");
    let without = bench.client.read(vec![all(bench.forward("I.aging", 1, 1)).into()]).await.unwrap_err();
    assert!(without.to_string().contains("has no direct counter"), "{without}");
    for update in [insert(counter(None)), delete(counter(None))] {
        let error = bench.write(update).await.unwrap_err();
        assert!(error.contains("INVALID_ARGUMENT") && error.contains("MODIFY"), "{error}");
    }
}

#[tokio::test]
async fn a_modify_without_action_keeps_the_action_and_sets_the_rest() {
    let bench = Bench::new().await;
    let entry = TableEntry { metadata: b"mine".to_vec(), ..bench.acl(1, 10, 4) };
    bench.write(insert(entry.clone())).await.unwrap();
    let changed = TableEntry { action: None, metadata: b"yours".to_vec(), ..entry.clone() };
    bench.write(modify(changed)).await.unwrap();
    assert_eq!(bench.entries("I.acl").await, [TableEntry { metadata: b"yours".to_vec(), ..entry }]);
    let error = bench.write(modify(TableEntry { action: None, ..bench.acl(2, 10, 4) })).await.unwrap_err();
    assert!(error.contains("NOT_FOUND") && error.contains("I.acl"), "{error}");
    let error = bench.write(insert(TableEntry { action: None, ..bench.acl(2, 10, 4) })).await.unwrap_err();
    assert!(error.contains("INVALID_ARGUMENT") && error.contains("needs an action"), "{error}");
}

#[tokio::test]
#[expect(deprecated, reason = "controller_metadata has to be returned as long as clients send it")]
async fn reads_are_filtered_by_action_and_by_both_kinds_of_metadata() {
    let bench = Bench::new().await;
    let drop = TableEntryBuilder::new(&bench.index, "I.aging")
        .exact("key", 3_u128)
        .action("I.drop")
        .build()
        .unwrap();
    let entries = [
        TableEntry { metadata: b"a".to_vec(), ..bench.forward("I.aging", 1, 1) },
        TableEntry { controller_metadata: 77, ..bench.forward("I.aging", 2, 1) },
        TableEntry { metadata: b"a".to_vec(), controller_metadata: 78, ..drop },
    ];
    for entry in &entries {
        bench.write(insert(entry.clone())).await.unwrap();
    }
    let filter = TableEntry { table_id: entries[0].table_id, ..TableEntry::default() };
    assert_eq!(bench.rows(filter.clone()).await, entries);
    let by_metadata = TableEntry { metadata: b"a".to_vec(), ..filter.clone() };
    assert_eq!(bench.rows(by_metadata).await, [entries[0].clone(), entries[2].clone()]);
    assert_eq!(bench.rows(TableEntry { controller_metadata: 77, ..filter.clone() }).await, entries[1..2]);
    let action = |name: &str| {
        let action = v1::Action { action_id: bench.index.action(name).unwrap().id(), params: Vec::new() };
        Some(v1::TableAction { r#type: Some(v1::table_action::Type::Action(action)) })
    };
    assert_eq!(bench.rows(TableEntry { action: action("I.drop"), ..filter.clone() }).await, entries[2..]);
    let absent = TableEntry { r#match: bench.forward("I.aging", 9, 1).r#match, ..filter.clone() };
    assert!(bench.rows(absent).await.is_empty(), "a filter that nothing passes");
    let foreign = TableEntry { action: action("E.mark"), ..filter };
    let error = bench.client.read(vec![foreign.into()]).await.unwrap_err().to_string();
    assert!(error.contains("I.aging") && error.contains("I.forward"), "{error}");
}

#[tokio::test]
async fn a_default_entry_is_set_with_its_metadata_and_reset_to_the_programs() {
    let bench = Bench::new().await;
    let table_id = bench.index.table("I.aging").unwrap().id();
    let filter = TableEntry { table_id, is_default_action: true, ..TableEntry::default() };
    let original = bench.rows(filter.clone()).await;
    let action = bench.forward("I.aging", 1, 9).action;
    let wanted = TableEntry { action, metadata: b"mine".to_vec(), ..filter.clone() };
    bench.write(modify(wanted.clone())).await.unwrap();
    assert_eq!(bench.rows(filter.clone()).await, slice::from_ref(&wanted));
    assert_eq!(bench.port_of(1, &probe(50, 0, 0, 0)), Some(9));
    bench.write(modify(filter.clone())).await.unwrap();
    assert_eq!(bench.rows(filter.clone()).await, original, "metadata is reset too");
    for (update, code) in [
        (insert(wanted.clone()), "INVALID_ARGUMENT"),
        (delete(wanted.clone()), "INVALID_ARGUMENT"),
        (modify(TableEntry { priority: 1, ..wanted.clone() }), "INVALID_ARGUMENT"),
        (modify(TableEntry { idle_timeout_ns: 1, ..wanted.clone() }), "INVALID_ARGUMENT"),
        (
            modify(TableEntry { table_id: bench.index.table("I.fixed").unwrap().id(), ..filter.clone() }),
            "PERMISSION_DENIED",
        ),
    ] {
        let error = bench.write(update).await.unwrap_err();
        assert!(error.contains(code), "{code}: {error}");
    }
}

#[tokio::test]
async fn a_default_entry_counts_and_meters_what_misses() {
    let bench = Bench::new().await;
    let default = TableEntry {
        r#match: Vec::new(),
        priority: 0,
        is_default_action: true,
        counter_data: Some(count(3, 300)),
        meter_config: Some(v1::MeterConfig { cir: 1, cburst: 1, pir: 1, pburst: 2, eburst: 0 }),
        ..bench.acl(1, 1, 4)
    };
    let filter =
        TableEntry { meter_counter_data: Some(v1::MeterCounterData::default()), ..with_resources(&default) };
    bench.write(modify(default.clone())).await.unwrap();
    let zero = Some(colors(0, 0, 0));
    let read = TableEntry { meter_counter_data: zero, ..default.clone() };
    assert_eq!(bench.rows(filter.clone()).await, [read]);
    bench.write(insert(bench.acl(1, 1, 5))).await.unwrap();
    for key in [0, 1, 0, 0] {
        assert_eq!(bench.port_of(1, &probe(key, 0, 0, 0)), Some(if key == 0 { 4 } else { 5 }));
    }
    let read = &bench.rows(filter.clone()).await[0];
    assert_eq!(read.counter_data, Some(count(6, 348)), "what hits an entry is not the default entry's");
    assert_eq!(read.meter_counter_data, Some(colors(1, 1, 1)));
    let bare = TableEntry { counter_data: None, meter_config: None, ..default.clone() };
    assert_eq!(bench.rows(bare.clone()).await, slice::from_ref(&bare), "only what is asked for");
    // The resources alone, and their wildcard, which leaves the default entry out as that of
    // entries does.
    let counter = |data| v1::DirectCounterEntry { table_entry: Some(bare.clone()), data };
    assert_eq!(bench.read(counter(None)).await, [Entity::from(counter(Some(count(6, 348))))]);
    bench.write(modify(counter(Some(count(1, 1))))).await.unwrap();
    let meter = v1::DirectMeterEntry { table_entry: Some(bare.clone()), config: None, counter_data: zero };
    bench.write(modify(meter.clone())).await.unwrap();
    assert_eq!(bench.read(meter.clone()).await, [Entity::from(meter)]);
    let read = &bench.rows(filter.clone()).await[0];
    assert_eq!((read.counter_data, read.meter_config), (Some(count(1, 1)), None));
    let of_table = TableEntry { table_id: default.table_id, ..TableEntry::default() };
    let all = v1::DirectCounterEntry { table_entry: Some(of_table), data: None };
    assert_eq!(bench.read(all).await.len(), 1);
    // Another program keeps them; a reset does not.
    bench.write(modify(default.clone())).await.unwrap();
    bench.push("next", Action::ReconcileAndCommit).await.unwrap();
    let read = &bench.rows(filter.clone()).await[0];
    assert_eq!((read.counter_data, read.meter_config), (default.counter_data, default.meter_config));
    let reset = TableEntry { action: None, counter_data: None, meter_config: None, ..default.clone() };
    bench.write(modify(reset)).await.unwrap();
    let read = &bench.rows(filter).await[0];
    assert_eq!((read.counter_data, read.meter_config), (Some(count(0, 0)), None));
    let error = bench.write(modify(TableEntry { action: None, ..default })).await.unwrap_err();
    assert!(error.contains("I.acl") && error.contains("DirectMeterEntry"), "{error}");
}

#[tokio::test]
async fn a_meter_counts_by_colour_what_it_marks() {
    let bench = Bench::new().await;
    let config = Some(v1::MeterConfig { cir: 1, cburst: 1, pir: 1, pburst: 2, eburst: 0 });
    let entry = TableEntry { meter_config: config, ..bench.acl(1, 10, 4) };
    bench.write(insert(entry.clone())).await.unwrap();
    for _ in 0..4 {
        bench.send(1, &probe(1, 0, 0, 0));
    }
    let ask = Some(v1::MeterCounterData::default());
    let filter = TableEntry { meter_counter_data: ask, action: None, ..entry.clone() };
    assert_eq!(bench.rows(filter.clone()).await[0].meter_counter_data, Some(colors(1, 1, 2)));
    // Another configuration leaves the counters, and so does a MODIFY that says nothing of them.
    bench.write(modify(TableEntry { meter_config: None, ..entry.clone() })).await.unwrap();
    bench.send(1, &probe(1, 0, 0, 0));
    let key = TableEntry { action: None, meter_config: None, ..entry.clone() };
    let meter =
        |counter_data| v1::DirectMeterEntry { table_entry: Some(key.clone()), config: None, counter_data };
    let of = |entity: &Entity| match &entity.entity {
        Some(Kind::DirectMeterEntry(entry)) => entry.counter_data,
        Some(Kind::MeterEntry(entry)) => entry.counter_data,
        other => panic!("no meter: {other:?}"),
    };
    assert_eq!(of(&bench.read(meter(ask)).await[0]), Some(colors(2, 1, 2)));
    assert_eq!(of(&bench.read(meter(None)).await[0]), None, "only what is asked for");
    bench.write(modify(TableEntry { meter_counter_data: ask, ..entry })).await.unwrap();
    assert_eq!(bench.rows(filter).await[0].meter_counter_data, Some(colors(0, 0, 0)));
    let meter_id = bench.index.meter("I.rates").unwrap().id();
    let array = |counter_data| v1::MeterEntry { meter_id, counter_data, ..v1::MeterEntry::default() };
    let read = bench.read(array(ask)).await;
    assert!(read.len() == 4 && read.iter().all(|cell| of(cell) == Some(colors(0, 0, 0))), "{read:?}");
    bench.write(modify(array(ask))).await.unwrap();
    let error = bench.write(modify(array(Some(colors(1, 0, 0))))).await.unwrap_err();
    assert!(error.contains("INVALID_ARGUMENT") && error.contains("I.rates"), "{error}");
}

#[tokio::test]
async fn of_constant_entries_only_direct_resources_change() {
    let bench = Bench::new().await;
    let entries = bench.entries("I.fixed").await;
    assert!(entries.len() == 2 && entries.iter().all(|entry| entry.is_const), "{entries:?}");
    let key = TableEntry { action: None, is_const: false, ..entries[0].clone() };
    bench.write(modify(TableEntry { counter_data: Some(count(5, 50)), ..key.clone() })).await.unwrap();
    let asked = TableEntry { counter_data: Some(v1::CounterData::default()), ..key.clone() };
    assert_eq!(bench.rows(asked).await[0].counter_data, Some(count(5, 50)));
    let action = entries[0].action.clone();
    for update in [
        insert(TableEntry { action: action.clone(), ..key.clone() }),
        modify(TableEntry { action, ..key.clone() }),
        delete(key.clone()),
    ] {
        let error = bench.write(update).await.unwrap_err();
        assert!(error.contains("PERMISSION_DENIED") && error.contains("I.fixed"), "{error}");
    }
    let error = bench.write(modify(TableEntry { is_const: true, ..key })).await.unwrap_err();
    assert!(error.contains("INVALID_ARGUMENT") && error.contains("is_const"), "{error}");
}

#[tokio::test]
async fn a_table_takes_as_many_entries_as_it_says_and_then_says_so() {
    let bench = Bench::new().await;
    for key in 0..16 {
        bench.write(insert(bench.forward("I.aging", key, 1))).await.unwrap();
    }
    let error = bench.write(insert(bench.forward("I.aging", 16, 1))).await.unwrap_err();
    assert!(
        error.contains("RESOURCE_EXHAUSTED") && error.contains("I.aging") && error.contains("16"),
        "{error}"
    );
    bench.write(modify(bench.forward("I.aging", 3, 2))).await.unwrap();
    bench.write(delete(bench.forward("I.aging", 3, 2))).await.unwrap();
    bench.write(insert(bench.forward("I.aging", 16, 1))).await.unwrap();
}

#[tokio::test]
async fn a_refused_update_names_the_culprit_and_the_valid_choices() {
    let bench = Bench::new().await;
    let entry = bench.forward("I.aging", 1, 1);
    let with = |change: &dyn Fn(&mut TableEntry)| {
        let mut entry = entry.clone();
        change(&mut entry);
        insert(entry)
    };
    let action = |change: &dyn Fn(&mut v1::Action)| {
        with(&|entry| {
            let of = entry.action.as_mut().and_then(|action| action.r#type.as_mut());
            let Some(v1::table_action::Type::Action(action)) = of else { panic!("{entry:?}") };
            change(action);
        })
    };
    let mark = bench.index.action("E.mark").unwrap().id();
    let no_action = bench.index.action("NoAction").unwrap().id();
    for (update, words) in [
        (with(&|entry| entry.table_id = 33_554_433), &["table", "I.acl", "I.aging"][..]),
        (with(&|entry| entry.r#match.clear()), &["key", "I.aging", "exact"]),
        (with(&|entry| entry.r#match[0].field_id = 8), &["match field", "8", "I.aging", "key"]),
        (with(&|entry| entry.priority = 3), &["I.aging", "priority 3"]),
        (action(&|action| action.action_id = mark), &["I.aging", "I.forward", "I.drop"]),
        (action(&|action| action.action_id = no_action), &["PERMISSION_DENIED", "NoAction", "DefaultOnly"]),
        (action(&|action| action.params.clear()), &["I.forward", "port"]),
        (action(&|action| action.params[0].param_id = 5), &["I.forward", "5", "port"]),
        (action(&|action| action.params[0].value = vec![2, 0]), &["I.forward", "port", "bit<9>", "0x0200"]),
        (insert(TableEntry { priority: 0, ..bench.acl(1, 1, 1) }), &["I.acl", "priority 0", "above 0"]),
        (delete(bench.forward("I.aging", 77, 1)), &["NOT_FOUND", "I.aging"]),
    ] {
        let error = bench.write(update).await.unwrap_err();
        for word in words {
            assert!(error.contains(word), "'{word}' is missing in: {error}");
        }
    }
}

#[tokio::test]
async fn an_idle_entry_is_told_again_and_again_until_it_is_hit() {
    const MS: u64 = 1_000_000;
    let bench = Bench::new().await;
    let mut streams = bench.client.take_streams().unwrap();
    let entry = TableEntry {
        idle_timeout_ns: 50 * MS as i64,
        metadata: b"x".to_vec(),
        ..bench.forward("I.aging", 1, 1)
    };
    let other = bench.forward("I.aging", 2, 1);
    bench.write(insert(entry.clone())).await.unwrap();
    bench.write(insert(other)).await.unwrap();
    assert_eq!(bench.entries("I.aging").await[0], entry, "read as written");
    bench.send(40 * MS, &probe(1, 0, 0, 0));
    bench.send(60 * MS, &probe(2, 0, 0, 0));
    assert!(streams.idle_timeouts.try_recv().is_err(), "hit in time");
    let asked = TableEntry {
        time_since_last_hit: Some(v1::table_entry::IdleTimeout::default()),
        action: None,
        ..entry.clone()
    };
    let elapsed = bench.rows(asked).await[0].time_since_last_hit;
    assert_eq!(elapsed, Some(v1::table_entry::IdleTimeout { elapsed_ns: 20 * MS as i64 }));
    // Entries without a time-out know their last hit as well.
    let asked = TableEntry {
        time_since_last_hit: Some(v1::table_entry::IdleTimeout::default()),
        action: None,
        ..bench.forward("I.aging", 2, 1)
    };
    let elapsed = bench.rows(asked).await[0].time_since_last_hit;
    assert_eq!(elapsed, Some(v1::table_entry::IdleTimeout { elapsed_ns: 0 }));
    for at_ms in [90, 140] {
        bench.send(at_ms * MS, &probe(2, 0, 0, 0));
        let told = soon(streams.idle_timeouts.recv()).await.unwrap();
        assert!(told.timestamp > 0 && told.table_entry.len() == 1, "{told:?}");
        let told = TableEntry { time_since_last_hit: None, ..told.table_entry[0].clone() };
        assert_eq!(told, entry, "{at_ms} ms");
    }
    for (entry, words) in [
        (TableEntry { idle_timeout_ns: 5, ..bench.acl(1, 1, 1) }, "does not support idle timeouts"),
        (TableEntry { idle_timeout_ns: -5, ..bench.forward("I.aging", 3, 1) }, "-5"),
        (
            TableEntry {
                time_since_last_hit: Some(v1::table_entry::IdleTimeout::default()),
                ..bench.forward("I.aging", 3, 1)
            },
            "time_since_last_hit",
        ),
    ] {
        let error = bench.write(insert(entry)).await.unwrap_err();
        assert!(error.contains("INVALID_ARGUMENT") && error.contains(words), "{words}: {error}");
    }
}

#[tokio::test]
async fn a_range_that_takes_all_is_left_out_when_read() {
    let bench = Bench::new().await;
    let entry = TableEntryBuilder::new(&bench.index, "I.acl")
        .range("kind", 5_u128, 9_u128)
        .optional("what", 2_u128)
        .priority(1)
        .action("NoAction")
        .build()
        .unwrap();
    let open = TableEntryBuilder::new(&bench.index, "I.acl").priority(2).action("NoAction").build().unwrap();
    bench.write(insert(entry.clone())).await.unwrap();
    bench.write(insert(open.clone())).await.unwrap();
    assert_eq!(bench.entries("I.acl").await, [entry, open]);
}

#[tokio::test]
async fn signed_registers_are_written_and_read_with_their_sign() {
    let bench = Bench::new().await;
    let register_id = trimwire_p4runtime::p4info::Named::id(bench.index.register("I.balance").unwrap());
    let entry = |index: i64, value: Option<&[u8]>| {
        let data = value.map(|value| v1::p4_data::Data::Bitstring(value.to_vec()));
        v1::RegisterEntry {
            register_id,
            index: Some(v1::Index { index }),
            data: data.map(|data| v1::P4Data { data: Some(data) }),
        }
    };
    for value in [&[0x9d][..], &[0x63], &[0], &[0, 0xff], &[0x80, 0]] {
        bench.write(modify(entry(3, Some(value)))).await.unwrap();
        assert_eq!(bench.read(entry(3, None)).await, [Entity::from(entry(3, Some(value)))]);
    }
    // Padded with its sign.
    bench.write(modify(entry(3, Some(&[0xff, 0xff, 0x9d])))).await.unwrap();
    assert_eq!(bench.read(entry(3, None)).await, [Entity::from(entry(3, Some(&[0x9d])))]);
    let error = bench.write(modify(entry(3, Some(&[0, 0x80, 0])))).await.unwrap_err();
    assert!(error.contains("I.balance") && error.contains("int<16>"), "{error}");
    let all = v1::RegisterEntry { register_id, ..Default::default() };
    bench.write(modify(v1::RegisterEntry { index: None, ..entry(0, Some(&[7])) })).await.unwrap();
    let read = bench.read(all).await;
    assert!(read.len() == 8 && read[5] == Entity::from(entry(5, Some(&[7]))), "{read:?}");
}

#[tokio::test]
async fn a_wildcard_of_every_kind_reads_the_whole_state() {
    let bench = Bench::new().await;
    bench.write(insert(bench.acl(1, 1, 1))).await.unwrap();
    bench.write(insert(bench.forward("I.aging", 1, 1))).await.unwrap();
    let everything: Vec<Entity> = vec![
        v1::ExternEntry::default().into(),
        TableEntry::default().into(),
        v1::ActionProfileMember::default().into(),
        v1::ActionProfileGroup::default().into(),
        v1::MeterEntry::default().into(),
        v1::DirectMeterEntry::default().into(),
        v1::CounterEntry::default().into(),
        v1::DirectCounterEntry { table_entry: Some(TableEntry::default()), ..Default::default() }.into(),
        v1::MulticastGroupEntry::default().into(),
        v1::CloneSessionEntry::default().into(),
        v1::ValueSetEntry::default().into(),
        v1::RegisterEntry::default().into(),
        v1::DigestEntry::default().into(),
    ];
    let read = bench.client.read(everything).await.unwrap();
    let mut kinds = std::collections::BTreeMap::new();
    for entity in &read {
        let kind = match entity.entity.as_ref().unwrap() {
            Kind::TableEntry(_) => "table",
            Kind::CounterEntry(_) => "counter",
            Kind::DirectCounterEntry(_) => "direct counter",
            Kind::MeterEntry(_) => "meter",
            Kind::DirectMeterEntry(_) => "direct meter",
            Kind::RegisterEntry(_) => "register",
            Kind::ValueSetEntry(_) => "value set",
            other => panic!("{other:?}"),
        };
        *kinds.entry(kind).or_insert(0) += 1;
    }
    let expected = [
        ("table", 4),
        ("counter", 16),
        ("direct counter", 3),
        ("meter", 4),
        ("direct meter", 1),
        ("register", 12),
        ("value set", 2),
    ];
    assert_eq!(kinds, expected.into());
}

#[tokio::test]
async fn of_a_read_the_good_requests_are_answered_and_the_bad_ones_named() {
    let bench = Bench::new().await;
    bench.write(insert(bench.acl(1, 1, 1))).await.unwrap();
    let good = TableEntry { table_id: bench.index.table("I.acl").unwrap().id(), ..TableEntry::default() };
    let bad = TableEntry { table_id: 33_554_433, ..TableEntry::default() };
    let request = v1::ReadRequest {
        device_id: DEVICE,
        entities: vec![good.clone().into(), bad.into(), good.into(), Entity::default()],
        ..Default::default()
    };
    let mut responses = stub(&bench.server).await.read(request).await.unwrap().into_inner();
    let read = responses.message().await.unwrap().unwrap();
    assert_eq!(read.entities.len(), 2);
    let status = responses.message().await.unwrap_err();
    let outcomes = trimwire_p4runtime::status::to_updates(&status).unwrap();
    let codes: Vec<i32> = outcomes.iter().map(|outcome| outcome.canonical_code).collect();
    assert_eq!((status.code() as i32, codes), (2, vec![0, 3, 0, 3]), "{status}");
}
