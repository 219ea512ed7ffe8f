// SPDX-License-Identifier: Apache-2.0
//! The stream: arbitration between connected controllers, roles, packet-ins, digests, stream
//! errors.

use crate::server_support::*;
use prost::Message as _;
use trimwire_p4runtime::client::{Arbitration, Role};
use trimwire_p4runtime::entity::{counter, insert, modify};
use trimwire_p4runtime::p4info::Named as _;
use trimwire_p4runtime::stratum::P4RoleConfig;
use trimwire_p4runtime::stratum::p4_role_config::PacketFilter;
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::stream_message_request::Update as Sent;
use trimwire_p4runtime::v1::stream_message_response::Update as Told;
use trimwire_p4runtime::v1::{self, Entity, TableEntry};

fn bid(device_id: u64, election_id: Option<u128>) -> Sent {
    let election_id = election_id.map(Into::into);
    Sent::Arbitration(v1::MasterArbitrationUpdate { device_id, election_id, ..Default::default() })
}

fn role(name: &str, config: &P4RoleConfig) -> Role {
    let type_url = "type.googleapis.com/stratum.P4RoleConfig".to_owned();
    Role { name: name.to_owned(), config: Some(prost_types::Any { type_url, value: config.encode_to_vec() }) }
}

#[tokio::test]
async fn all_controllers_of_a_role_learn_who_is_primary_when_that_changes() {
    let (_switch, server) = start();
    let mut stub = stub(&server).await;
    let mut standing = Vec::new();
    let told = |update: Told| match update {
        Told::Arbitration(update) => (update.status.unwrap().code, update.election_id.map(u128::from)),
        other => panic!("{other:?}"),
    };
    for election_id in [None, Some(0), Some(5)] {
        let mut stream = RawStream::open(&mut stub).await;
        stream.send(bid(DEVICE, election_id)).await;
        let first = told(stream.next().await.unwrap());
        standing.push((stream, first));
    }
    let firsts: Vec<_> = standing.iter().map(|(_, first)| *first).collect();
    // No bid at all is no primary; a bid of 0 is a bid; a higher one takes over.
    assert_eq!(firsts, [(5, None), (0, Some(0)), (0, Some(5))]);
    let mut streams: Vec<RawStream> = standing.into_iter().map(|(stream, _)| stream).collect();
    assert_eq!(told(streams[0].next().await.unwrap()), (6, Some(0)));
    for backup in &mut streams[..2] {
        assert_eq!(told(backup.next().await.unwrap()), (6, Some(5)));
    }
    // The primary steps down: nobody is, and everybody hears it.
    streams[2].send(bid(DEVICE, Some(4))).await;
    for stream in &mut streams {
        assert_eq!(told(stream.next().await.unwrap()), (5, Some(5)));
    }
    // And comes back under its old id; the others go by it.
    streams[2].send(bid(DEVICE, Some(5))).await;
    let codes: Vec<_> = {
        let mut codes = Vec::new();
        for stream in &mut streams {
            codes.push(told(stream.next().await.unwrap()).0);
        }
        codes
    };
    assert_eq!(codes, [6, 6, 0]);
    // Another backup is news to itself alone; the primary's going is news to all.
    streams[1].send(bid(DEVICE, Some(3))).await;
    assert_eq!(told(streams[1].next().await.unwrap()), (6, Some(5)));
    drop(streams.pop());
    for stream in &mut streams {
        assert_eq!(told(stream.next().await.unwrap()), (5, Some(5)));
    }
}

#[tokio::test]
async fn a_bid_that_breaks_the_rules_ends_the_stream_with_its_code() {
    let (_switch, server) = start();
    let mut stub = stub(&server).await;
    let mut primary = RawStream::open(&mut stub).await;
    primary.send(bid(DEVICE, Some(1))).await;
    primary.next().await.unwrap();
    for (election_id, device_id, code) in [(Some(1), DEVICE, 3), (Some(2), 99, 5)] {
        let mut stream = RawStream::open(&mut stub).await;
        stream.send(bid(device_id, election_id)).await;
        assert_eq!(stream.next().await.unwrap_err().code() as i32, code);
    }
    // Once live, device and role are fixed.
    let mut stream = RawStream::open(&mut stub).await;
    stream.send(bid(DEVICE, Some(0))).await;
    stream.next().await.unwrap();
    stream.send(bid(99, Some(0))).await;
    assert_eq!(stream.next().await.unwrap_err().code() as i32, 9);
    let role = Some(v1::Role { name: "other".to_owned(), ..v1::Role::default() });
    let other = v1::MasterArbitrationUpdate {
        device_id: DEVICE,
        role,
        election_id: Some(1.into()),
        ..Default::default()
    };
    primary.send(Sent::Arbitration(other)).await;
    assert_eq!(primary.next().await.unwrap_err().code() as i32, 9);
    // A role of its own may have the same id; a config of another scheme is refused.
    let mut stream = RawStream::open(&mut stub).await;
    let config = prost_types::Any { type_url: "type.googleapis.com/x.Scheme".to_owned(), value: Vec::new() };
    let role = Some(v1::Role { name: "r".to_owned(), config: Some(config), ..v1::Role::default() });
    let update = v1::MasterArbitrationUpdate { device_id: DEVICE, role, ..Default::default() };
    stream.send(Sent::Arbitration(update)).await;
    let error = stream.next().await.unwrap_err();
    assert!(error.code() as i32 == 3 && error.message().contains("stratum.P4RoleConfig"), "{error}");
}

#[tokio::test]
async fn a_role_writes_and_reads_what_its_config_gives_it() {
    let bench = Bench::new().await;
    let aging = bench.index.table("I.aging").unwrap().id();
    let seen = bench.index.counter("I.seen").unwrap().id();
    let config =
        P4RoleConfig { exclusive_p4_ids: vec![aging], shared_p4_ids: vec![seen], ..P4RoleConfig::default() };
    let mut routing = connect(&bench.server).await;
    let standing = routing.arbitrate(DEVICE, 1, role("routing", &config)).await.unwrap();
    assert_eq!(standing, Arbitration::Primary { election_id: 1 }, "each role has a primary of its own");
    let write = async |update| {
        let written = routing.write(vec![update], v1::write_request::Atomicity::ContinueOnError).await;
        written.map_err(|error| error.to_string())
    };
    write(insert(bench.forward("I.aging", 1, 3))).await.unwrap();
    write(modify(v1::CounterEntry { data: None, ..counter(&bench.index, "I.seen", None).unwrap() }))
        .await
        .unwrap();
    let denied = write(insert(bench.acl(1, 1, 1))).await.unwrap_err();
    assert!(denied.contains("PERMISSION_DENIED") && denied.contains("I.acl"), "{denied}");
    let denied = write(insert(v1::MulticastGroupEntry { multicast_group_id: 1, ..Default::default() })).await;
    assert!(denied.unwrap_err().contains("PERMISSION_DENIED"));
    // What it reads is its own; the default role reads everything.
    bench.write(insert(bench.acl(1, 1, 1))).await.unwrap();
    let all = vec![Entity::from(TableEntry::default())];
    assert_eq!(routing.read(all.clone()).await.unwrap(), [Entity::from(bench.forward("I.aging", 1, 3))]);
    assert_eq!(bench.client.read(all).await.unwrap().len(), 4);
    let (p4info, json) = program("server");
    let denied = routing.set_pipeline(p4info, json, None, Action::Verify).await.unwrap_err().to_string();
    assert!(denied.contains("PERMISSION_DENIED") && denied.contains("can_push_pipeline"), "{denied}");
    // What is exclusive to one role cannot be another's.
    let mut rival = connect(&bench.server).await;
    let error = rival.arbitrate(DEVICE, 1, role("rival", &config)).await.unwrap_err().to_string();
    assert!(error.contains("INVALID_ARGUMENT") && error.contains("'routing'"), "{error}");
    // A role that nobody has bid for has no primary to write as.
    let request = v1::WriteRequest {
        device_id: DEVICE,
        role: "nobody".to_owned(),
        election_id: Some(1.into()),
        ..v1::WriteRequest::default()
    };
    let error = stub(&bench.server).await.write(request).await.unwrap_err();
    assert!(error.code() as i32 == 5 && error.message().contains("'routing'"), "{error}");
}

#[tokio::test]
async fn packet_ins_go_to_the_primaries_whose_roles_take_them() {
    let bench = Bench::new().await;
    let filter = |port: u8| PacketFilter { metadata_id: 1, value: vec![port] };
    let mut streams = vec![bench.client.take_streams().unwrap()];
    let mut clients = Vec::new();
    for (name, config) in [
        (
            "one",
            P4RoleConfig {
                receives_packet_ins: true,
                packet_in_filter: Some(filter(1)),
                ..Default::default()
            },
        ),
        (
            "two",
            P4RoleConfig {
                receives_packet_ins: true,
                packet_in_filter: Some(filter(2)),
                ..Default::default()
            },
        ),
        ("deaf", P4RoleConfig::default()),
    ] {
        let mut client = connect(&bench.server).await;
        client.arbitrate(DEVICE, 1, role(name, &config)).await.unwrap();
        streams.push(client.take_streams().unwrap());
        clients.push(client);
    }
    // A backup of the default role hears nothing.
    let mut backup = connect(&bench.server).await;
    backup.arbitrate(DEVICE, 0, Role::default()).await.unwrap();
    streams.push(backup.take_streams().unwrap());
    for port in [1, 2, 1] {
        let mut switch = bench.switch.lock().unwrap();
        switch.handle_frame(1, port, &probe(0, 3, 0, u32::from(port)));
    }
    let mut heard = Vec::new();
    for (stream, expected) in streams.iter_mut().zip([3, 2, 1, 0, 0]) {
        let mut ports = Vec::new();
        for _ in 0..expected {
            let packet = soon(stream.packets.recv()).await.unwrap();
            assert_eq!(packet.metadata[1].value, [5], "the reason: {packet:?}");
            ports.push(packet.metadata[0].value[0]);
        }
        heard.push(ports);
    }
    assert_eq!(heard, [vec![1, 2, 1], vec![1, 1], vec![2], vec![], vec![]]);
    // The last to hear has heard: nothing more is on its way to the others.
    assert!(streams.iter_mut().all(|stream| stream.packets.try_recv().is_err()));
}

#[tokio::test]
async fn digests_come_as_lists_without_duplicates_until_they_are_acknowledged() {
    const MS: u64 = 1_000_000;
    let bench = Bench::new().await;
    let mut streams = bench.client.take_streams().unwrap();
    let digest_id = bench.index.digest("seen_t").unwrap().id();
    let config = v1::digest_entry::Config {
        max_timeout_ns: 10 * MS as i64,
        max_list_size: 2,
        ack_timeout_ns: 1_000_000 * MS as i64,
    };
    let entry = v1::DigestEntry { digest_id, config: Some(config) };
    bench.send(1, &probe(1, 1, 0, 1));
    let error = bench.write(modify(entry)).await.unwrap_err();
    assert!(error.contains("NOT_FOUND") && error.contains("seen_t"), "{error}");
    bench.write(insert(entry)).await.unwrap();
    assert_eq!(bench.read(v1::DigestEntry::default()).await, [Entity::from(entry)]);
    let error = bench.write(insert(entry)).await.unwrap_err();
    assert!(error.contains("ALREADY_EXISTS"), "{error}");
    // Two distinct messages fill a list; the third waits for its time.
    for (key, at_ms) in [(1, 100), (1, 100), (2, 100), (3, 101), (1, 102)] {
        bench.send(at_ms * MS, &probe(key, 1, 0, 1));
    }
    let list = soon(streams.digests.recv()).await.unwrap();
    assert!(list.timestamp > 0);
    let keys = |list: &v1::DigestList| -> Vec<Vec<Vec<u8>>> {
        let members = |data: &v1::P4Data| match &data.data {
            Some(v1::p4_data::Data::Struct(fields)) => fields
                .members
                .iter()
                .map(|member| match &member.data {
                    Some(v1::p4_data::Data::Bitstring(bits)) => bits.clone(),
                    other => panic!("{other:?}"),
                })
                .collect(),
            other => panic!("{other:?}"),
        };
        list.data.iter().map(members).collect()
    };
    assert_eq!(keys(&list), [[[1], [1], [1]], [[2], [1], [1]]], "key, value, port");
    // The server takes digests at its own pace; what is told late waits from then on.
    let mut now_ns = 110 * MS;
    let mut later = |packets: &[Vec<u8>]| {
        packets.iter().for_each(|packet| drop(bench.send(now_ns, packet)));
        now_ns += 11 * MS;
        bench.send(now_ns, &probe(9, 0, 0, 0));
    };
    let rest = eventually(async || {
        later(&[]);
        streams.digests.try_recv().ok()
    })
    .await;
    assert_eq!((keys(&rest), rest.list_id > list.list_id), (vec![vec![vec![3], vec![1], vec![1]]], true));
    // Acknowledged messages may come again, others not yet.
    bench.client.acknowledge_digest(digest_id, rest.list_id).await.unwrap();
    let again = eventually(async || {
        later(&[probe(3, 1, 0, 1), probe(1, 1, 0, 1)]);
        streams.digests.try_recv().ok()
    })
    .await;
    assert_eq!(keys(&again), [[[3], [1], [1]]]);
    bench.write(trimwire_p4runtime::entity::delete(entry)).await.unwrap();
    assert!(bench.read(v1::DigestEntry::default()).await.is_empty());
    // Acknowledging what is off, or unknown, is answered on the stream.
    for (id, words) in [(digest_id, "not on"), (1, "digest")] {
        bench.client.acknowledge_digest(id, 1).await.unwrap();
        let error = soon(streams.errors.recv()).await.unwrap();
        assert!(error.canonical_code == 3 && error.message.contains(words), "{error:?}");
        assert!(matches!(error.details, Some(v1::stream_error::Details::DigestListAck(_))), "{error:?}");
    }
}

#[tokio::test]
async fn stream_messages_that_cannot_be_served_are_answered_and_the_stream_goes_on() {
    let bench = Bench::new().await;
    let mut stub = stub(&bench.server).await;
    let mut stream = RawStream::open(&mut stub).await;
    let other = prost_types::Any { type_url: "type.googleapis.com/x.Y".to_owned(), value: vec![1] };
    let ack = v1::DigestListAck { digest_id: 1, list_id: 1 };
    for (message, code, words) in [
        (Sent::Packet(v1::PacketOut::default()), 7, "primary"),
        (Sent::DigestAck(ack), 7, "primary"),
        (Sent::Other(other), 12, "x.Y"),
    ] {
        stream.send(message).await;
        let Told::Error(error) = stream.next().await.unwrap() else { panic!("not an error") };
        assert!(error.canonical_code == code && error.message.contains(words), "{error:?}");
        assert!(error.details.is_some());
    }
    stream.requests.send(v1::StreamMessageRequest::default()).await.unwrap();
    let Told::Error(error) = stream.next().await.unwrap() else { panic!("not an error") };
    assert_eq!(error.canonical_code, 3);
    stream.send(bid(DEVICE, Some(9))).await;
    assert!(matches!(stream.next().await.unwrap(), Told::Arbitration(_)), "still open");
}

#[tokio::test]
async fn value_sets_choose_parser_states() {
    let bench = Bench::new().await;
    let exact = |field_id: u32, value: &[u8]| {
        let exact = v1::field_match::Exact { value: value.to_vec() };
        v1::FieldMatch { field_id, field_match_type: Some(v1::field_match::FieldMatchType::Exact(exact)) }
    };
    let set = |name: &str, members: &[&[v1::FieldMatch]]| v1::ValueSetEntry {
        value_set_id: bench.index.value_set(name).unwrap().id(),
        members: members.iter().map(|fields| v1::ValueSetMember { r#match: fields.to_vec() }).collect(),
    };
    let body = |what, kind| {
        let mut frame = probe(0, what, kind, 0);
        frame[8] = 6;
        bench.port_of(1, &frame)
    };
    assert_eq!(body(0, 0x22f3), None);
    let kinds = set("P.kinds", &[&[exact(1, &[0x22, 0xf3])], &[exact(1, &[0x89, 0x3b])]]);
    bench.write(modify(kinds.clone())).await.unwrap();
    assert_eq!((body(0, 0x22f3), body(0, 0x893b), body(0, 1)), (Some(106), Some(106), None));
    let pairs = set("P.pairs", &[&[exact(1, &[9]), exact(2, &[7])]]);
    bench.write(modify(pairs.clone())).await.unwrap();
    assert_eq!((body(9, 7), body(9, 8), body(8, 7)), (Some(106), None, None));
    assert_eq!(bench.read(set("P.pairs", &[])).await, [Entity::from(pairs)]);
    let mut read = bench.read(v1::ValueSetEntry::default()).await;
    assert_eq!(read.len(), 2);
    assert_eq!(read.remove(0), Entity::from(kinds));
    let one = [exact(1, &[1])];
    for (update, code) in [
        (modify(set("P.kinds", &[&one, &[exact(1, &[0, 1])]])), "ALREADY_EXISTS"),
        (modify(set("P.pairs", &[&one[..0]])), "INVALID_ARGUMENT"),
        (
            modify(set(
                "P.kinds",
                &[&one, &[exact(1, &[2])], &[exact(1, &[3])], &[exact(1, &[4])], &[exact(1, &[5])]],
            )),
            "RESOURCE_EXHAUSTED",
        ),
        (insert(set("P.kinds", &[])), "INVALID_ARGUMENT"),
    ] {
        let error = bench.write(update).await.unwrap_err();
        assert!(error.contains(code), "{code}: {error}");
    }
    bench.write(modify(set("P.kinds", &[]))).await.unwrap();
    assert_eq!(body(0, 0x22f3), None);
}
