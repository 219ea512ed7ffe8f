// SPDX-License-Identifier: Apache-2.0
//! Multicast groups, clone sessions, meters, direct resources, packets and hostile requests over
//! P4Runtime, by the project's client over loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use trimwire_p4runtime::bytes::Value;
use trimwire_p4runtime::client::{Arbitration, Client, Role};
use trimwire_p4runtime::entity::{TableEntryBuilder, delete, insert, meter, modify, packet_metadata};
use trimwire_p4runtime::p4info::{Index, P4Info};
use trimwire_p4runtime::v1::replica::PortKind;
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::write_request::Atomicity;
use trimwire_p4runtime::v1::{self, Entity, TableEntry, Update, entity::Entity as Kind};
use trimwire_switch::server::{ServerHandle, serve};
use trimwire_switch::{SharedSwitch, Switch, SwitchConfig};

const DEVICE: u64 = 1;
const CPU_PORT: u16 = 510;

fn read(path: &str) -> Vec<u8> {
    let path = format!("{}/{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn start(cpu_port: Option<u16>) -> (SharedSwitch, ServerHandle) {
    let config = SwitchConfig { device_id: DEVICE, cpu_port, ..SwitchConfig::default() };
    let switch: SharedSwitch = Arc::new(Mutex::new(Switch::new(config)));
    let server = serve(switch.clone(), SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    (switch, server)
}

/// A primary that has pushed the program at `path` (`.json` and `.p4info.txtpb`).
async fn primary(server: &ServerHandle, path: &str) -> (Client, Index) {
    let mut client = Client::connect(&server.local_addr().to_string()).await.unwrap();
    client.arbitrate(DEVICE, 1, Role::default()).await.unwrap();
    let p4info = String::from_utf8(read(&format!("{path}.p4info.txtpb"))).unwrap();
    let json = read(&format!("{path}.json"));
    client
        .set_pipeline(P4Info::from_text(&p4info).unwrap(), json, None, Action::VerifyAndCommit)
        .await
        .unwrap();
    let index = client.index().unwrap();
    (client, index)
}

const TRIMWIRE: &str = "../p4/build/bmv2/trimwire";
const TABLES: &str = "testdata/engine/tables";
const EXTERNS: &str = "testdata/engine/externs";

async fn write(client: &Client, update: Update) -> Result<(), String> {
    client.write(vec![update], Atomicity::ContinueOnError).await.map_err(|error| error.to_string())
}

fn replica(port: u128, instance: u32) -> v1::Replica {
    let port_kind = Some(PortKind::Port(trimwire_p4runtime::bytes::encode(port)));
    v1::Replica { port_kind, instance, ..v1::Replica::default() }
}

fn group(id: u32, replicas: &[v1::Replica]) -> Entity {
    v1::MulticastGroupEntry {
        multicast_group_id: id,
        replicas: replicas.to_vec(),
        ..v1::MulticastGroupEntry::default()
    }
    .into()
}

fn session(id: u32, replicas: &[v1::Replica]) -> Entity {
    v1::CloneSessionEntry { session_id: id, replicas: replicas.to_vec(), ..v1::CloneSessionEntry::default() }
        .into()
}

#[tokio::test]
async fn multicast_groups_and_clone_sessions_are_written_and_read_back() {
    let (_switch, server) = start(None);
    let (client, _) = primary(&server, TRIMWIRE).await;
    for make in [group, session] {
        let (two, one) = ([replica(1, 0), replica(2, 7)], [replica(300, 1)]);
        write(&client, insert(make(5, &two))).await.unwrap();
        write(&client, insert(make(6, &one))).await.unwrap();
        assert_eq!(client.read(vec![make(0, &[])]).await.unwrap(), [make(5, &two), make(6, &one)]);
        assert_eq!(client.read(vec![make(6, &[])]).await.unwrap(), [make(6, &one)]);
        let twice = write(&client, insert(make(5, &one))).await.unwrap_err();
        assert!(twice.contains("ALREADY_EXISTS"), "{twice}");
        write(&client, modify(make(5, &one))).await.unwrap();
        assert_eq!(client.read(vec![make(5, &[])]).await.unwrap(), [make(5, &one)]);
        write(&client, delete(make(5, &[]))).await.unwrap();
        let gone = write(&client, delete(make(5, &[]))).await.unwrap_err();
        assert!(gone.contains("NOT_FOUND"), "{gone}");
        for (entity, words) in [
            (make(8, &[replica(512, 0)]), "bit<9>"),
            (make(8, &[replica(1, 70_000)]), "70000"),
            (make(70_000, &[replica(1, 0)]), "ids run from 1"),
            (make(8, &[v1::Replica::default()]), "replica without port"),
        ] {
            let error = write(&client, insert(entity)).await.unwrap_err();
            assert!(error.contains("INVALID_ARGUMENT") && error.contains(words), "{error}");
        }
    }
}

fn rates(cir: i64, pir: i64) -> v1::MeterConfig {
    v1::MeterConfig { cir, cburst: 10, pir, pburst: 20, eburst: 0 }
}

#[tokio::test]
async fn meters_are_configured_read_and_taken_out_of_service() {
    let (_switch, server) = start(None);
    let (client, index) = primary(&server, EXTERNS).await;
    let cell = |place, config| {
        let entry = meter(&index, "I.meters", place).unwrap();
        Entity::from(v1::MeterEntry { config, ..entry })
    };
    write(&client, modify(cell(Some(2), Some(rates(5, 9))))).await.unwrap();
    assert_eq!(client.read(vec![cell(Some(2), None)]).await.unwrap(), [cell(Some(2), Some(rates(5, 9)))]);
    assert_eq!(client.read(vec![cell(None, None)]).await.unwrap().len(), 4);
    write(&client, modify(cell(None, None))).await.unwrap();
    assert_eq!(client.read(vec![cell(Some(2), None)]).await.unwrap(), [cell(Some(2), None)]);
    for (config, words) in [
        (rates(9, 5), "cir 9 is above pir 5"),
        (rates(-2, 5), "cir -2 is negative"),
        (v1::MeterConfig { eburst: 1, ..rates(1, 2) }, "eburst"),
    ] {
        let error = write(&client, modify(cell(Some(0), Some(config)))).await.unwrap_err();
        assert!(error.contains(words), "{error}");
    }
}

#[tokio::test]
async fn a_read_narrows_by_table_key_and_priority() {
    let (_switch, server) = start(None);
    let (client, index) = primary(&server, TABLES).await;
    let entry = |value: u128, priority| {
        let builder = TableEntryBuilder::new(&index, "I.t_ternary").ternary("hdr.k.a", value, 0xff_u128);
        builder.priority(priority).action("NoAction").build().unwrap()
    };
    let all = [entry(1, 10), entry(1, 20), entry(2, 10)];
    for entry in &all {
        write(&client, insert(entry.clone())).await.unwrap();
    }
    let table_id = index.table("I.t_ternary").unwrap().id();
    let asked = |filter: TableEntry| {
        let client = &client;
        async move {
            let read = client.read(vec![filter.into()]).await.unwrap();
            read.into_iter().map(table_entry).collect::<Vec<_>>()
        }
    };
    let filter = TableEntry { table_id, ..TableEntry::default() };
    assert_eq!(asked(filter.clone()).await, all);
    assert_eq!(asked(TableEntry { priority: 10, ..filter.clone() }).await, [all[0].clone(), all[2].clone()]);
    let key = all[0].r#match.clone();
    assert_eq!(asked(TableEntry { r#match: key.clone(), ..filter.clone() }).await, all[..2]);
    assert_eq!(asked(TableEntry { r#match: key, priority: 20, ..filter }).await, all[1..2]);
}

fn table_entry(entity: Entity) -> TableEntry {
    match entity.entity {
        Some(Kind::TableEntry(entry)) => entry,
        other => panic!("not a table entry: {other:?}"),
    }
}

#[tokio::test]
async fn padded_numbers_are_taken_and_too_wide_ones_named() {
    let (_switch, server) = start(None);
    let (client, index) = primary(&server, TRIMWIRE).await;
    let entry = TableEntryBuilder::new(&index, "Ingress.classify")
        .exact("dscp", 5_u128)
        .action("Ingress.set_plain")
        .param("queue", 2_u128)
        .build()
        .unwrap();
    let exact = |value: &[u8]| {
        let mut entry = entry.clone();
        entry.r#match[0].field_match_type =
            Some(v1::field_match::FieldMatchType::Exact(v1::field_match::Exact { value: value.to_vec() }));
        entry
    };
    write(&client, insert(exact(&[0, 0, 0, 5]))).await.unwrap();
    let filter = TableEntry { table_id: entry.table_id, ..TableEntry::default() };
    assert_eq!(client.read(vec![filter.into()]).await.unwrap(), [Entity::from(entry.clone())]);
    for value in [&[64][..], &[1, 0], &[]] {
        let error = write(&client, insert(exact(value))).await.unwrap_err();
        assert!(error.contains("dscp") && error.contains("bit<6>"), "{error}");
    }
}

/// Moves the switch's clock until `done`, for at most ten seconds.
async fn drive<T>(switch: &SharedSwitch, mut done: impl FnMut(&mut Switch) -> Option<T>) -> T {
    let waiting = async {
        let mut now_ns = 1;
        loop {
            {
                let mut switch = switch.lock().unwrap();
                now_ns += 1_000_000;
                switch.handle_timeout(now_ns);
                if let Some(found) = done(&mut switch) {
                    return found;
                }
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(10), waiting).await.expect("in time")
}

#[tokio::test]
async fn a_packet_out_leaves_by_its_port_and_a_packet_in_reaches_the_primary() {
    let (switch, server) = start(Some(CPU_PORT));
    let (client, index) = primary(&server, TRIMWIRE).await;
    let payload: Vec<u8> = (0..64).collect();
    let metadata = |port: u16| {
        let fields = [("egress_port", Value::from(port)), ("pad", Value::from(0_u8))];
        packet_metadata(&index, "packet_out", fields).unwrap()
    };
    client.packet_out(payload.clone(), metadata(3)).await.unwrap();
    let sent = drive(&switch, Switch::poll_transmit).await;
    assert_eq!((sent.port, &sent.frame), (3, &payload));

    let mut streams = client.take_streams().unwrap();
    client.packet_out(payload.clone(), metadata(CPU_PORT)).await.unwrap();
    let packet = drive(&switch, |_| streams.packets.try_recv().ok()).await;
    assert_eq!(packet.payload, payload);
    let port = packet.metadata.iter().find(|metadata| metadata.metadata_id == 1).unwrap();
    assert_eq!(port.value, CPU_PORT.to_be_bytes());
}

#[tokio::test]
async fn a_packet_out_that_cannot_be_sent_is_answered() {
    let (_switch, server) = start(None);
    let (client, index) = primary(&server, TRIMWIRE).await;
    let mut streams = client.take_streams().unwrap();
    client.packet_out(vec![0; 60], Vec::new()).await.unwrap();
    let error = streams.errors.recv().await.unwrap();
    assert!(error.message.contains("egress_port is missing"), "{error:?}");
    let fields = [("egress_port", Value::from(1_u8)), ("pad", Value::from(0_u8))];
    let metadata = packet_metadata(&index, "packet_out", fields).unwrap();
    client.packet_out(vec![0; 60], metadata).await.unwrap();
    let error = streams.errors.recv().await.unwrap();
    assert!(error.message.contains("without a CPU port"), "{error:?}");
}

#[tokio::test]
async fn a_backup_learns_that_the_primary_has_gone_and_may_take_over() {
    let (_switch, server) = start(None);
    let (first, _) = primary(&server, TRIMWIRE).await;
    let address = server.local_addr().to_string();
    let mut second = Client::connect(&address).await.unwrap();
    // Election id 1 belongs to the primary; only a backup can bid less, and 0 is no bid at all.
    let backup = second.arbitrate(DEVICE, 0, Role::default()).await.unwrap();
    assert_eq!(backup, Arbitration::Backup { highest_election_id: Some(1), primary_exists: true });
    drop(first);
    let alone = second.arbitration_change(&backup).await.unwrap();
    assert_eq!(alone, Arbitration::Backup { highest_election_id: Some(1), primary_exists: false });
    let primary = second.arbitrate(DEVICE, 2, Role::default()).await.unwrap();
    assert_eq!(primary, Arbitration::Primary { election_id: 2 });
}

#[tokio::test]
async fn no_request_however_odd_stops_the_server() {
    let (_switch, server) = start(Some(CPU_PORT));
    let (client, index) = primary(&server, TRIMWIRE).await;
    let ids: Vec<u32> = index.tables().map(|table| table.id()).chain([0, 1, u32::MAX]).collect();
    let mut odd: Vec<Entity> = vec![Entity::default()];
    for id in ids {
        for cell in [i64::MIN, -1, 4096, i64::MAX] {
            let index = Some(v1::Index { index: cell });
            odd.push(v1::CounterEntry { counter_id: id, index, ..Default::default() }.into());
            odd.push(v1::RegisterEntry { register_id: id, index, ..Default::default() }.into());
            odd.push(v1::MeterEntry { meter_id: id, index, ..Default::default() }.into());
        }
        // All of them together have to fit into one message of 64 MiB.
        for value in [vec![], vec![0xff; 50_000]] {
            let exact = v1::field_match::Exact { value: value.clone() };
            let ternary = v1::field_match::Ternary { value: value.clone(), mask: value.clone() };
            let lpm = v1::field_match::Lpm { value, prefix_len: i32::MIN };
            for of in [
                v1::field_match::FieldMatchType::Exact(exact),
                v1::field_match::FieldMatchType::Ternary(ternary),
                v1::field_match::FieldMatchType::Lpm(lpm),
            ] {
                let field = v1::FieldMatch { field_id: 1, field_match_type: Some(of) };
                let table_entry = TableEntry {
                    table_id: id,
                    r#match: vec![field.clone(), field],
                    priority: i32::MIN,
                    ..Default::default()
                };
                odd.push(table_entry.clone().into());
                odd.push(
                    v1::DirectCounterEntry { table_entry: Some(table_entry), ..Default::default() }.into(),
                );
            }
        }
        odd.push(v1::ActionProfileMember { action_profile_id: id, ..Default::default() }.into());
        let max_size = i32::MIN;
        odd.push(v1::ActionProfileGroup { action_profile_id: id, max_size, ..Default::default() }.into());
        odd.push(v1::ValueSetEntry { value_set_id: id, ..Default::default() }.into());
        odd.push(v1::DigestEntry { digest_id: id, ..Default::default() }.into());
        odd.push(v1::ExternEntry { extern_id: id, ..Default::default() }.into());
        odd.push(v1::DirectMeterEntry::default().into());
        odd.push(v1::PacketReplicationEngineEntry::default().into());
    }
    let updates: Vec<Update> = odd
        .iter()
        .flat_map(|entity| (0..=4).map(|kind| Update { r#type: kind, entity: Some(entity.clone()) }))
        .chain([Update::default()])
        .collect();
    for batch in updates.chunks(20) {
        // Some resets of counters are in order; every other update has to be named.
        if let Err(error) = client.write(batch.to_vec(), Atomicity::ContinueOnError).await {
            assert!(!error.updates().is_empty(), "{error}");
        }
    }
    let small = updates.into_iter().filter(|update| prost::Message::encoded_len(update) < 1_000).collect();
    let error = client.write(small, Atomicity::ContinueOnError).await.unwrap_err().to_string();
    assert!(error.contains("smaller batches"), "{error}");
    for entity in odd {
        // Some of these are wildcards and give entries; what counts is that there is an answer.
        let _ = client.read(vec![entity]).await;
    }
    client.capabilities().await.unwrap();
    assert!(matches!(client.arbitration().unwrap(), Arbitration::Primary { .. }), "the stream is still open");
}

#[tokio::test]
async fn a_clone_session_cuts_its_copies_and_chooses_their_queue() {
    let (switch, server) = start(None);
    let (client, _) = primary(&server, EXTERNS).await;
    let trimmed = v1::CloneSessionEntry {
        session_id: 5,
        replicas: vec![replica(30, 0)],
        class_of_service: 3,
        packet_length_bytes: 70,
    };
    write(&client, insert(trimmed.clone())).await.unwrap();
    assert_eq!(client.read(vec![session(0, &[])]).await.unwrap(), [Entity::from(trimmed.clone())]);
    // The first byte asks for a clone, in ingress and in egress; egress adds 37 bytes to 64.
    for (at_ns, operation) in [(1, 7), (2, 22)] {
        let mut frame = vec![0; 64];
        frame[0] = operation;
        let mut switch = switch.lock().unwrap();
        switch.handle_frame(at_ns, 5, &frame);
        switch.handle_timeout(at_ns);
        let mut sent: Vec<(u16, usize)> =
            std::iter::from_fn(|| switch.poll_transmit()).map(|sent| (sent.port, sent.frame.len())).collect();
        sent.sort_unstable();
        assert_eq!(sent, [(3, 101), (30, 70)], "operation {operation}");
    }
    let queued = |queue| switch.lock().unwrap().queue_stats(30, queue).dequeued_packets;
    assert_eq!((queued(0), queued(3)), (0, 2));
    let error =
        write(&client, modify(v1::CloneSessionEntry { class_of_service: 8, ..trimmed })).await.unwrap_err();
    assert!(error.contains("INVALID_ARGUMENT") && error.contains("class_of_service 8"), "{error}");
}
