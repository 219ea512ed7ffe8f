// SPDX-License-Identifier: Apache-2.0
//! What must not hurt the server: clients that vanish or do not read, floods, full tables, failed
//! batches of any size, and bytes without any meaning.

use crate::server_support::*;
use proptest::prelude::*;
use prost::Message;
use trimwire_p4runtime::bytes::Value;
use trimwire_p4runtime::client::{Arbitration, Client, Role};
use trimwire_p4runtime::entity::{delete, insert, packet_metadata};
use trimwire_p4runtime::v1::stream_message_request::Update as Sent;
use trimwire_p4runtime::v1::stream_message_response::Update as Told;
use trimwire_p4runtime::v1::write_request::Atomicity;
use trimwire_p4runtime::v1::{self, Entity, TableEntry, Update};

#[tokio::test]
async fn a_client_that_vanishes_leaves_its_place_to_others() {
    let bench = Bench::new().await;
    let mut second = connect(&bench.server).await;
    let backup = second.arbitrate(DEVICE, 0, Role::default()).await.unwrap();
    // The connection of a primary with a higher id breaks in the middle of a frame, as a killed
    // process leaves it.
    let mut stub = stub(&bench.server).await;
    let mut stream = RawStream::open(&mut stub).await;
    let election_id = Some(9_u128.into());
    let bid = v1::MasterArbitrationUpdate { device_id: DEVICE, election_id, ..Default::default() };
    stream.send(Sent::Arbitration(bid)).await;
    stream.next().await.unwrap();
    drop((stream, stub));
    let alone = eventually(async || {
        let now = second.arbitration().unwrap();
        (now != backup)
            .then_some(now)
            .filter(|now| matches!(now, Arbitration::Backup { primary_exists: false, .. }))
    })
    .await;
    assert_eq!(alone, Arbitration::Backup { highest_election_id: Some(9), primary_exists: false });
    assert_eq!(
        second.arbitrate(DEVICE, 10, Role::default()).await.unwrap(),
        Arbitration::Primary { election_id: 10 }
    );
}

#[tokio::test]
async fn bytes_that_are_no_http_at_all_disturb_nobody() {
    use tokio::io::AsyncWriteExt as _;
    let bench = Bench::new().await;
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0; 64],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff",
    ] {
        let mut socket = tokio::net::TcpStream::connect(bench.server.local_addr()).await.unwrap();
        // The server may hang up at once.
        let _ = socket.write_all(garbage).await;
    }
    bench.client.capabilities().await.unwrap();
}

/// Packet-ins of 60 KiB, which no buffer between here and a client holds many of.
fn flood(switch: &trimwire_switch::SharedSwitch, flows: std::ops::Range<u32>) {
    let mut switch = switch.lock().unwrap();
    for flow in flows {
        let mut frame = probe(0, 3, 0, flow);
        frame.resize(60 << 10, 0);
        switch.handle_frame(1, 1, &frame);
    }
}

#[tokio::test]
async fn a_controller_that_does_not_read_loses_packets_but_learns_who_is_primary() {
    const FLOOD: u32 = 3000;
    let bench = Bench::new().await;
    let mut stub = stub(&bench.server).await;
    let mut stream = RawStream::open(&mut stub).await;
    let bid = |election_id: u128| {
        let election_id = Some(election_id.into());
        Sent::Arbitration(v1::MasterArbitrationUpdate {
            device_id: DEVICE,
            election_id,
            ..Default::default()
        })
    };
    stream.send(bid(5)).await;
    stream.next().await.unwrap();
    for chunk in 0..FLOOD / 500 {
        flood(&bench.switch, chunk * 500..(chunk + 1) * 500);
        // The server takes what it can; this loses one more.
        eventually(async || bench.switch.lock().unwrap().poll_event().is_none().then_some(())).await;
    }
    let mut usurper = connect(&bench.server).await;
    usurper.arbitrate(DEVICE, 6, Role::default()).await.unwrap();
    let mut packets = 0;
    let standing = loop {
        match stream.next().await.unwrap() {
            Told::Packet(_) => packets += 1,
            Told::Arbitration(update) => break update.status.unwrap().code,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(standing, 6, "ALREADY_EXISTS: another is primary");
    assert!(packets > 0 && packets < FLOOD, "{packets} packets: bounded queues drop the rest");
}

#[tokio::test]
async fn a_flood_of_packet_outs_is_taken_or_dropped_while_others_are_served() {
    let bench = Bench::new().await;
    let fields = [("egress_port", Value::from(3_u8)), ("pad", Value::from(0_u8))];
    let metadata = packet_metadata(&bench.index, "packet_out", fields).unwrap();
    for round in 0..20 {
        for _ in 0..500 {
            bench.client.packet_out(vec![0; 200], metadata.clone()).await.unwrap();
        }
        bench.write(insert(bench.forward("I.aging", round % 16, 1))).await.ok();
    }
    let lost = eventually(async || {
        let lost = bench.switch.lock().unwrap().stats().packet_out_lost;
        (lost > 0).then_some(lost)
    })
    .await;
    assert!(lost <= 10_000);
    bench.client.capabilities().await.unwrap();
    assert!(matches!(bench.client.arbitration().unwrap(), Arbitration::Primary { .. }));
}

#[tokio::test]
async fn a_failed_batch_of_any_size_is_an_answer_that_every_client_can_take() {
    let bench = Bench::new().await;
    let bad = |count: usize| -> Vec<Update> {
        (0..count).map(|key| delete(bench.forward("I.aging", (key % 256) as u8, 1))).collect()
    };
    for count in [1, 50, 139, 141, 500, 5000] {
        for atomicity in [Atomicity::ContinueOnError, Atomicity::RollbackOnError] {
            let error = bench.client.write(bad(count), atomicity).await.unwrap_err();
            let text = error.to_string();
            match error.updates().len() {
                0 => {
                    assert!(
                        text.contains("RESOURCE_EXHAUSTED") && text.contains("smaller batches"),
                        "{text}"
                    );
                }
                told => assert_eq!(told, count, "all or none are told"),
            }
            assert!(text.contains("NOT_FOUND"), "{text}");
        }
    }
    assert!(
        matches!(bench.client.arbitration().unwrap(), Arbitration::Primary { .. }),
        "the same connection"
    );
}

/// A request made of whatever bytes decode as one.
fn decoded<M: Message + Default>(bytes: &[u8]) -> M {
    M::decode(bytes).unwrap_or_default()
}

/// Field numbers of `Entity`, and bytes for what is in it.
fn any_entity() -> impl Strategy<Value = Entity> {
    let ids = prop::sample::select(vec![0_u32, 1, 33_554_433, u32::MAX]);
    (1_u32..13, ids, any::<bool>(), prop::collection::vec(any::<u8>(), 0..60), any::<prop::sample::Index>())
        .prop_map(|(kind, id, real, body, at)| {
            let mut inner = Vec::new();
            let objects = OBJECTS.get_or_init(objects);
            let id = if real { objects[at.index(objects.len())] } else { id };
            prost::encoding::uint32::encode(1, &id, &mut inner);
            inner.extend(body);
            let mut entity = Vec::new();
            prost::encoding::bytes::encode(kind, &inner, &mut entity);
            decoded(&entity)
        })
}

static OBJECTS: std::sync::OnceLock<Vec<u32>> = std::sync::OnceLock::new();

/// Ids of everything in the program.
fn objects() -> Vec<u32> {
    use trimwire_p4runtime::p4info::Named;
    fn ids<T: Named>(objects: &[T]) -> Vec<u32> {
        objects.iter().map(Named::id).collect()
    }
    let info = program("server").0;
    [
        ids(&info.tables),
        ids(&info.action_profiles),
        ids(&info.counters),
        ids(&info.meters),
        ids(&info.registers),
        ids(&info.value_sets),
        ids(&info.digests),
    ]
    .concat()
}

/// A valid entry with one thing changed to something else.
fn bent_entry() -> impl Strategy<Value = TableEntry> {
    (
        (any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 0..5), any::<u32>(), any::<i32>()),
        (any::<bool>(), any::<i64>(), prop::option::of((any::<i64>(), any::<i64>())), 0_u8..5),
    )
        .prop_map(|((at, value, field_id, priority), (is_default_action, idle, numbers, what))| {
            let objects = OBJECTS.get_or_init(objects);
            let exact = v1::field_match::Exact { value: value.clone() };
            let lpm = v1::field_match::Lpm { value: value.clone(), prefix_len: priority };
            let ternary = v1::field_match::Ternary { value: value.clone(), mask: value.clone() };
            let range = v1::field_match::Range { low: value.clone(), high: value };
            use v1::field_match::FieldMatchType as Of;
            let of = match what {
                0 => Some(Of::Exact(exact)),
                1 => Some(Of::Lpm(lpm)),
                2 => Some(Of::Ternary(ternary)),
                3 => Some(Of::Range(range)),
                _ => None,
            };
            TableEntry {
                table_id: objects[at.index(objects.len())],
                r#match: vec![v1::FieldMatch { field_id: field_id % 4, field_match_type: of }],
                priority: priority % 3,
                is_default_action,
                idle_timeout_ns: idle,
                counter_data: numbers.map(|(a, b)| v1::CounterData { packet_count: a, byte_count: b }),
                meter_config: numbers.map(|(a, b)| v1::MeterConfig {
                    cir: a,
                    cburst: b,
                    pir: b,
                    pburst: a,
                    eburst: 0,
                }),
                action: Some(v1::TableAction {
                    r#type: Some(match what {
                        0 => v1::table_action::Type::ActionProfileGroupId(field_id),
                        1 => v1::table_action::Type::ActionProfileActionSet(v1::ActionProfileActionSet {
                            action_profile_actions: vec![v1::ActionProfileAction {
                                action: None,
                                weight: priority,
                                watch_kind: None,
                            }],
                            ..Default::default()
                        }),
                        _ => v1::table_action::Type::Action(v1::Action {
                            action_id: field_id,
                            params: Vec::new(),
                        }),
                    }),
                }),
                ..TableEntry::default()
            }
        })
}

async fn hammer(bench: &Bench, entities: Vec<Entity>) {
    for entity in entities {
        let updates: Vec<Update> =
            (0..4).map(|kind| Update { r#type: kind, entity: Some(entity.clone()) }).collect();
        for atomicity in [Atomicity::ContinueOnError, Atomicity::RollbackOnError] {
            if let Err(error) = bench.client.write(updates.clone(), atomicity).await {
                assert!(!error.updates().is_empty(), "each update is answered: {error}");
            }
        }
        let _ = bench.client.read(vec![entity]).await;
    }
    let standing = bench.client.arbitration().unwrap();
    assert!(matches!(standing, Arbitration::Primary { .. }), "the stream is still open");
    bench.client.read(vec![TableEntry::default().into()]).await.unwrap();
    bench.send(1, &probe(1, 1, 1, 1));
}

fn run(test: impl AsyncFnOnce(Bench)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { test(Bench::new().await).await });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_as_entities_are_answered(entities in prop::collection::vec(any_entity(), 1..40)) {
        run(async |bench| hammer(&bench, entities).await);
    }

    #[test]
    fn any_table_entry_is_answered(entries in prop::collection::vec(bent_entry(), 1..40)) {
        run(async |bench| hammer(&bench, entries.into_iter().map(Entity::from).collect()).await);
    }

    #[test]
    fn any_pipeline_config_is_answered(
        bytes in prop::collection::vec(any::<u8>(), 0..200), end in any::<prop::sample::Index>(),
        flip in any::<prop::sample::Index>(), action in 0_i32..7,
    ) {
        run(async |bench| {
            let mut stub = stub(&bench.server).await;
            let (p4info, json) = program("server");
            let mut flipped = json.clone();
            flipped[flip.index(json.len())] ^= 0x15;
            let mut info = p4info.encode_to_vec();
            let at = end.index(info.len());
            info[at] ^= 0x55;
            for (p4info, p4_device_config) in [
                (Some(p4info.clone()), bytes.clone()),
                (Some(p4info.clone()), json[..end.index(json.len())].to_vec()),
                (Some(p4info), flipped),
                (Some(decoded(&bytes)), json.clone()),
                (Some(decoded(&info)), json.clone()),
                (None, json),
            ] {
                let request = v1::SetForwardingPipelineConfigRequest {
                    device_id: DEVICE,
                    election_id: Some(1.into()),
                    action,
                    config: Some(v1::ForwardingPipelineConfig { p4info, p4_device_config, cookie: None }),
                    ..Default::default()
                };
                let _ = stub.set_forwarding_pipeline_config(request).await;
            }
            bench.client.capabilities().await.unwrap();
            let _ = bench.client.read(vec![TableEntry::default().into()]).await;
            bench.send(1, &probe(1, 1, 1, 1));
        });
    }

    #[test]
    fn any_stream_message_is_answered_or_ends_the_stream(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..8)
    ) {
        run(async |bench| {
            let mut stub = stub(&bench.server).await;
            let stream = RawStream::open(&mut stub).await;
            for message in &messages {
                let _ = stream.requests.send(decoded(message)).await;
            }
            bench.client.capabilities().await.unwrap();
            let standing = bench.client.arbitration().unwrap();
            // The bytes may have made a bid of their own.
            assert!(matches!(standing, Arbitration::Primary { .. } | Arbitration::Backup { .. }));
        });
    }
}

#[tokio::test]
async fn a_switch_full_of_streams_takes_no_more_and_serves_those_it_has() {
    let bench = Bench::new().await;
    let mut clients: Vec<Client> = Vec::new();
    let mut refused = None;
    for number in 0..80 {
        let mut client = connect(&bench.server).await;
        let role = Role { name: "crowd".to_owned(), config: None };
        match client.arbitrate(DEVICE, number, role).await {
            Ok(_) => clients.push(client),
            Err(error) => {
                refused = Some(error.to_string());
                break;
            }
        }
    }
    let refused = refused.expect("there is a limit");
    assert!(
        refused.contains("RESOURCE_EXHAUSTED") && refused.contains("64") && clients.len() == 64,
        "{refused}"
    );
    bench.write(insert(bench.forward("I.aging", 1, 1))).await.unwrap();
}
