// SPDX-License-Identifier: Apache-2.0
//! What a client may cost: hostile ones, and honest ones that ask for much, beside others who go
//! on.

use crate::hostile_support::unfinished;
use crate::server_support::*;
use prost::Message as _;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use trimwire_p4runtime::bytes::Value;
use trimwire_p4runtime::client::{Arbitration, Role};
use trimwire_p4runtime::entity::{ActionBuilder, delete, insert, member, member_group, packet_metadata};
use trimwire_p4runtime::p4info::{Named as _, P4Info};
use trimwire_p4runtime::server::tonic::transport::{Channel, Endpoint};
use trimwire_p4runtime::server::tonic::{Code, Status};
use trimwire_p4runtime::v1::p4_runtime_client::P4RuntimeClient;
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::stream_message_request::Update as Sent;
use trimwire_p4runtime::v1::stream_message_response::Update as Told;
use trimwire_p4runtime::v1::write_request::Atomicity;
use trimwire_p4runtime::v1::{self, entity::Entity as Kind};
use trimwire_switch::server::{Limits, ServerHandle};

/// The program with a counter of so many cells.
fn large(cells: i64) -> (P4Info, Vec<u8>) {
    let (mut p4info, json) = program("server");
    let mut root: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let arrays = root["counter_arrays"].as_array_mut().unwrap();
    arrays.iter_mut().find(|array| array["name"] == "I.seen").unwrap()["size"] = cells.into();
    p4info.counters[0].size = cells;
    (p4info, serde_json::to_vec(&root).unwrap())
}

fn role(name: &str) -> Role {
    Role { name: name.to_owned(), config: None }
}

fn all_counters() -> v1::Entity {
    v1::CounterEntry::default().into()
}

async fn push(bench: &Bench, (p4info, json): (P4Info, Vec<u8>)) {
    bench.client.set_pipeline(p4info, json, None, Action::VerifyAndCommit).await.unwrap();
}

#[tokio::test]
async fn a_read_in_pieces_has_every_cell_once_and_in_order() {
    let mut limits = Limits::default();
    limits.read_cells = 7;
    let bench = Bench::with(limits).await;
    push(&bench, large(100_003)).await;
    let found = bench.read(all_counters()).await.into_iter().map(|entity| match entity.entity {
        Some(Kind::CounterEntry(entry)) => entry.index.unwrap().index,
        other => panic!("{other:?}"),
    });
    assert!(found.eq(0..100_003));
}

#[tokio::test]
async fn a_table_read_in_pieces_has_every_entry_once_and_in_order() {
    let mut limits = Limits::default();
    limits.read_cells = 3;
    let bench = Bench::with(limits).await;
    let entries: Vec<_> = (1..=8).map(|key| bench.acl(key, 1, 4)).collect();
    for entry in &entries {
        bench.write(insert(entry.clone())).await.unwrap();
    }
    // Places that are free again are in the middle of a piece, and all of another.
    for key in [2, 4, 5, 6] {
        bench.write(delete(entries[key - 1].clone())).await.unwrap();
    }
    let left = [0, 2, 6, 7].map(|place: usize| entries[place].clone());
    assert_eq!(bench.entries("I.acl").await, left);
    let filter = v1::DirectCounterEntry::default();
    let all = bench.read(filter).await.into_iter().map(|entity| match entity.entity {
        Some(Kind::DirectCounterEntry(entry)) => entry.table_entry.unwrap(),
        other => panic!("{other:?}"),
    });
    let of_acl: Vec<_> = all.filter(|entry| entry.table_id == left[0].table_id).collect();
    assert_eq!(of_acl, left);
}

#[tokio::test]
async fn members_and_groups_read_in_pieces_come_once_each_by_wildcard_and_by_id() {
    let mut limits = Limits::default();
    limits.read_cells = 2;
    let bench = Bench::with(limits).await;
    let profile = bench.index.p4info().action_profiles[0].name().to_owned();
    let member_of = |id| {
        let action = ActionBuilder::new(&bench.index, "I.forward").param("port", 3_u16);
        member(&bench.index, &profile, id, action).unwrap()
    };
    let group_of = |id| {
        let members = [(id, 1), (7, 1)].into_iter().filter(|(other, _)| id != 7 || *other == 7);
        member_group(&bench.index, &profile, id, members.take(1), 0).unwrap()
    };
    for id in [3, 1, 7, 9, 5] {
        bench.write(insert(member_of(id))).await.unwrap();
    }
    for id in [3, 1, 7] {
        bench.write(insert(group_of(id))).await.unwrap();
    }
    // A place that is free in the middle of a piece.
    bench.write(delete(member_of(9))).await.unwrap();
    let members = |all: Vec<v1::Entity>| {
        let id = |entity: v1::Entity| match entity.entity {
            Some(Kind::ActionProfileMember(member)) => member.member_id,
            Some(Kind::ActionProfileGroup(group)) => {
                assert_eq!(group.members[0].member_id, group.group_id);
                group.group_id
            }
            other => panic!("{other:?}"),
        };
        all.into_iter().map(id).collect::<Vec<_>>()
    };
    assert_eq!(members(bench.read(v1::ActionProfileMember::default()).await), [3, 1, 7, 5]);
    assert_eq!(members(bench.read(v1::ActionProfileGroup::default()).await), [3, 1, 7]);
    for id in [1, 5, 9] {
        let filter = v1::ActionProfileMember { member_id: id, ..Default::default() };
        assert_eq!(members(bench.read(filter).await), if id == 9 { vec![] } else { vec![id] });
        let filter = v1::ActionProfileGroup { group_id: id, ..Default::default() };
        assert_eq!(members(bench.read(filter).await), if id == 1 { vec![1] } else { vec![] });
    }
}

#[tokio::test]
async fn a_read_that_nobody_takes_in_keeps_nobody_from_writing_and_ends_with_its_pipeline() {
    let mut limits = Limits::default();
    limits.set("program=80MiB").unwrap();
    let bench = Bench::with(limits).await;
    push(&bench, large(2_000_000)).await;
    let mut stub = stub(&bench.server).await;
    let request =
        v1::ReadRequest { device_id: DEVICE, entities: vec![all_counters(); 40], ..Default::default() };
    let mut read = stub.read(request).await.unwrap().into_inner();
    let first = soon(read.message()).await.unwrap().unwrap();
    assert!(first.entities.len() < 100_000, "the beginning is there before the rest has been read");
    for key in 0..8 {
        soon(bench.write(insert(bench.forward("I.aging", key, 1)))).await.unwrap();
    }
    // What the client has not taken belongs to a program that is gone.
    push(&bench, large(16)).await;
    let mut cells = first.entities.len();
    let end = loop {
        match soon(read.message()).await {
            Ok(Some(response)) => cells += response.entities.len(),
            Ok(None) => panic!("{cells} cells of 80,000,000, and no error"),
            Err(status) => break status,
        }
    };
    assert_eq!(end.code(), Code::Aborted, "{end:?}");
    assert!(cells < 2_000_000, "{cells} cells were made for a client that took {}", first.entities.len());
}

#[tokio::test]
async fn a_read_of_very_many_filters_is_refused_by_number() {
    let bench = Bench::new().await;
    let error = bench.client.read(vec![all_counters(); 1_025]).await.unwrap_err().to_string();
    assert!(error.contains("1025 filters; at most 1024"), "{error}");
    assert_eq!(bench.client.read(vec![all_counters(); 1_024]).await.unwrap().len(), 16 * 1_024);
}

/// Whether the other side hangs up, soon.
async fn hangs_up(socket: &mut TcpStream) -> bool {
    let mut byte = [0];
    tokio::time::timeout(Duration::from_secs(10), socket.read(&mut byte))
        .await
        .is_ok_and(|read| !matches!(read, Ok(1)))
}

/// A connection that has said what HTTP/2 asks for, and says no more.
async fn idle(server: &ServerHandle) -> TcpStream {
    let mut socket = TcpStream::connect(server.local_addr()).await.unwrap();
    let settings = [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
    socket.write_all(&settings).await.unwrap();
    // The switch's own settings: it is in.
    let mut head = [0; 9];
    soon(socket.read_exact(&mut head)).await.unwrap();
    socket
}

/// Idle connections answer PINGs for ever. Those who have something to do get in nevertheless, and
/// who has a stream keeps its place.
#[tokio::test]
async fn when_places_run_short_idle_connections_lose_theirs_the_oldest_first() {
    let mut limits = Limits::default();
    limits.connections = 4;
    let (_switch, server) = start_with(limits);
    let mut primary = connect(&server).await;
    primary.arbitrate(DEVICE, 1, Role::default()).await.unwrap();
    let mut first = idle(&server).await;
    let mut others = Vec::new();
    for _ in 0..30 {
        others.push(idle(&server).await);
    }
    let ends = async |socket: &mut TcpStream| {
        let mut bytes = [0; 1024];
        while matches!(socket.read(&mut bytes).await, Ok(1..)) {}
    };
    soon(ends(&mut first)).await;
    connect(&server).await.capabilities().await.unwrap();
    primary.capabilities().await.unwrap();
    let Arbitration::Primary { .. } = primary.arbitration().unwrap() else { panic!("its stream is gone") };
    let last = others.last_mut().unwrap();
    let mut bytes = [0; 1024];
    let waiting = tokio::time::timeout(Duration::from_millis(100), async {
        while matches!(last.read(&mut bytes).await, Ok(1..)) {}
    });
    assert!(waiting.await.is_err(), "the latest are in");
}

/// Whoever is not primary has room for a quarter of what is taken, and all such for half: what they
/// announce and do not send takes none, and the primary's Writes wait for none of it.
#[tokio::test]
async fn writes_that_are_announced_and_not_sent_hold_nobody_up() {
    let mut limits = Limits::default();
    limits.patience = Duration::from_secs(60);
    let bench = Bench::with(limits).await;
    let address = bench.server.local_addr().to_string();
    let mut calls = Vec::new();
    for (connections, each, sent) in [(2, 16, 6), (6, 2, (4 << 20) - 9)] {
        for _ in 0..connections {
            let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
            let channel = endpoint.connect().await.unwrap();
            calls.extend(
                (0..each).map(|_| unfinished(channel.clone(), "/p4.v1.P4Runtime/Write", 4 << 20, sent)),
            );
        }
    }
    for key in 1..=8 {
        soon(bench.write(insert(bench.forward("I.aging", key, 1)))).await.unwrap();
    }
    // A newcomer bids, and has the same room then.
    let mut newcomer = soon(connect(&bench.server)).await;
    soon(newcomer.arbitrate(DEVICE, 2, Role::default())).await.unwrap();
    let update = insert(bench.forward("I.aging", 9, 1));
    soon(newcomer.write(vec![update], Atomicity::ContinueOnError)).await.unwrap();
    calls.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn who_says_nothing_loses_its_place_to_others() {
    let mut limits = Limits::default();
    (limits.connections, limits.patience) = (4, Duration::from_secs(1));
    let (_switch, server) = start_with(limits);
    let mut silent = Vec::new();
    for words in [&b""[..], b"", b"PRI * HTTP/2.0\r\n", b"P"] {
        let mut socket = TcpStream::connect(server.local_addr()).await.unwrap();
        socket.write_all(words).await.unwrap();
        silent.push(socket);
    }
    for socket in &mut silent {
        assert!(hangs_up(socket).await);
    }
    connect(&server).await.capabilities().await.unwrap();
    // Who speaks keeps its place, and gives it back at the end.
    for _ in 0..3 {
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(
                eventually(async || {
                    let client =
                        trimwire_p4runtime::client::Client::connect(&server.local_addr().to_string())
                            .await
                            .ok()?;
                    client.capabilities().await.ok()?;
                    Some(client)
                })
                .await,
            );
        }
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        for client in &clients {
            client.capabilities().await.unwrap();
        }
    }
}

#[tokio::test]
async fn calls_beyond_a_connections_are_refused_and_the_others_go_on() {
    let bench = Bench::new().await;
    let mut stub = stub(&bench.server).await;
    let mut streams = Vec::new();
    for _ in 0..16 {
        streams.push(RawStream::open(&mut stub).await);
    }
    let open = async |stub: &mut P4RuntimeClient<Channel>| {
        let (requests, sent) = tokio::sync::mpsc::channel(8);
        let sent = tokio_stream::wrappers::ReceiverStream::new(sent);
        let responses = stub.stream_channel(sent).await?.into_inner();
        Ok::<_, Status>(RawStream { requests, responses })
    };
    let refused = open(&mut stub).await.map(|_| ()).unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().starts_with("16 calls of this connection are open"), "{refused}");
    streams.pop();
    let mut again = eventually(async || open(&mut stub).await.ok()).await;
    let bid = v1::MasterArbitrationUpdate { device_id: DEVICE, ..Default::default() };
    again.send(Sent::Arbitration(bid)).await;
    assert!(matches!(again.next().await.unwrap(), Told::Arbitration(_)));
    // The primary may have more.
    let bid = v1::MasterArbitrationUpdate {
        device_id: DEVICE,
        election_id: Some(9_u128.into()),
        ..Default::default()
    };
    again.send(Sent::Arbitration(bid)).await;
    assert!(matches!(again.next().await.unwrap(), Told::Arbitration(_)));
    open(&mut stub).await.unwrap();
}

#[tokio::test]
async fn a_packet_longer_than_any_interface_sends_is_an_error_on_the_stream() {
    let bench = Bench::new().await;
    let fields = [("egress_port", Value::from(3_u8)), ("pad", Value::from(0_u8))];
    let metadata = packet_metadata(&bench.index, "packet_out", fields).unwrap();
    let mut stub = stub(&bench.server).await;
    let mut stream = RawStream::open(&mut stub).await;
    let election_id = Some(9_u128.into());
    let bid = v1::MasterArbitrationUpdate { device_id: DEVICE, election_id, ..Default::default() };
    stream.send(Sent::Arbitration(bid)).await;
    stream.next().await.unwrap();
    let packet =
        |bytes: usize| Sent::Packet(v1::PacketOut { payload: vec![0; bytes], metadata: metadata.clone() });
    stream.send(packet(9_000)).await;
    stream.send(packet(20_000)).await;
    let Told::Error(error) = stream.next().await.unwrap() else { panic!("no error") };
    assert!(error.message.contains("at most 16384"), "{}", error.message);
    // What is longer than any message on a stream ends it before it has been taken in.
    stream.send(packet(4 << 20)).await;
    let refused = soon(stream.responses.message()).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
}

#[tokio::test]
async fn roles_that_nobody_has_named_take_no_place() {
    let mut limits = Limits::default();
    limits.set("roles=/monitor").unwrap();
    let bench = Bench::with(limits).await;
    for number in 0..70 {
        let mut stranger = connect(&bench.server).await;
        let error =
            stranger.arbitrate(DEVICE, 1, role(&format!("invented{number}"))).await.unwrap_err().to_string();
        assert!(error.contains("'', 'monitor'"), "{error}");
    }
    connect(&bench.server).await.arbitrate(DEVICE, 1, role("monitor")).await.unwrap();
}

#[tokio::test]
async fn arrays_that_fit_one_by_one_and_not_together_are_refused_and_not_allocated() {
    let bench = Bench::new().await;
    let (p4info, json) = program("server");
    let mut root: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let arrays = root["register_arrays"].as_array_mut().unwrap();
    for number in 0..200 {
        let mut array = arrays[0].clone();
        array["name"] = format!("I.huge{number}").into();
        (array["id"], array["bitwidth"], array["size"]) =
            ((100 + number).into(), 2048.into(), (1 << 24).into());
        arrays.push(array);
    }
    let json = serde_json::to_vec(&root).unwrap();
    for action in [Action::Verify, Action::VerifyAndCommit, Action::ReconcileAndCommit] {
        let error = bench
            .client
            .set_pipeline(p4info.clone(), json.clone(), None, action)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("I.huge0") && error.contains("16777216"), "{error}");
    }
    bench.write(insert(bench.forward("I.aging", 1, 1))).await.unwrap();
}

#[tokio::test]
async fn a_pipeline_may_be_wrapped_as_p4langs_tutorials_send_it() {
    #[derive(Clone, PartialEq, prost::Message)]
    struct P4DeviceConfig {
        #[prost(bool, tag = "1")]
        reassign: bool,
        #[prost(bytes = "vec", tag = "3")]
        device_data: Vec<u8>,
    }
    let bench = Bench::new().await;
    let (p4info, device_data) = program("server");
    let wrapped = P4DeviceConfig { reassign: true, device_data }.encode_to_vec();
    bench.client.set_pipeline(p4info.clone(), wrapped, None, Action::VerifyAndCommit).await.unwrap();
    bench.write(insert(bench.forward("I.aging", 1, 1))).await.unwrap();
    assert_eq!(bench.entries("I.aging").await.len(), 1);
    let empty = P4DeviceConfig { reassign: true, device_data: Vec::new() }.encode_to_vec();
    for garbage in [empty, vec![0x1a, 0xff], vec![0; 9]] {
        bench.client.set_pipeline(p4info.clone(), garbage, None, Action::VerifyAndCommit).await.unwrap_err();
    }
}
