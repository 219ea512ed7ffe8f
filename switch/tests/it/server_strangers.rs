// SPDX-License-Identifier: Apache-2.0
//! Strangers of every kind that we know, each beside an honest controller (Writes of 1 kB, a
//! stream, Reads) and traffic: what they cost a switch is memory and time within limits, and nobody
//! is shut out.
//!
//! The table of `docs/reference/p4runtime.md` is what this prints, with five seconds for each:
//! `cargo test -p trimwire-switch --test it server_strangers -- --ignored --nocapture`. With
//! `TRIMWIRE_STRANGERS=5..9` those of these places in the list come, and the first two for comparison.

use crate::driver_support::{ip, isolate, now, veth_pairs};
use crate::hostile_support::*;
use crate::server_hostile::{Traffic, frame_of_server, write};
use crate::server_support::{Bench, DEVICE, RawStream, program};
use prost::Message as _;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use trimwire_p4runtime::client::{Arbitration, Client, Role};
use trimwire_p4runtime::config::p4_data_type_spec::TypeSpec;
use trimwire_p4runtime::config::{
    P4DataTypeSpec, P4NamedType, P4StructTypeSpec, controller_packet_metadata, p4_struct_type_spec,
};
use trimwire_p4runtime::entity::{TableEntryBuilder, delete, insert, modify};
use trimwire_p4runtime::p4info::{Index, P4Info};
use trimwire_p4runtime::stratum;
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::stream_message_request::Update as Sent;
use trimwire_p4runtime::v1::table_action::Type as ActionType;
use trimwire_p4runtime::v1::write_request::Atomicity;
use trimwire_p4runtime::v1::{self, TableEntry};

/// Most that any one stranger may cost, KiB over idle.
const MOST_KIB: u64 = 64 << 10;
/// Most time for an honest request on a machine with all its cores busy.
const PATIENCE: Duration = Duration::from_secs(20);

type Acting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What a stranger does again and again; and what is beside.
struct Stranger {
    name: &'static str,
    act: fn(Arc<Victim>) -> Acting,
    frame: fn(u32) -> Vec<u8>,
    /// The honest controller's program.
    program: fn() -> (P4Info, Vec<u8>),
    /// Of the switch.
    options: &'static [&'static str],
}

fn stranger(name: &'static str, act: fn(Arc<Victim>) -> Acting) -> Stranger {
    Stranger { name, act, frame: frame_of_server, program: || program("server"), options: &[] }
}

#[rustfmt::skip]
fn strangers() -> Vec<Stranger> {
    vec![
        stranger("no stranger", |_| Box::pin(moment())),
        stranger("no stranger, a busy core", |_| Box::pin(async { spin() })),
        stranger("200 connections that say nothing", |victim| Box::pin(sockets(victim, 200, Vec::new()))),
        stranger("200 idle connections", |victim| Box::pin(sockets(victim, 200, preface()))),
        stranger("connections that come and go", |victim| Box::pin(churn(victim))),
        stranger("PINGs", |victim| Box::pin(flood(victim, |_| frame(6, 0, 0, &[7; 8]).repeat(800)))),
        stranger("SETTINGS", |victim| Box::pin(flood(victim, |_| frame(4, 0, 0, &[]).repeat(1_500)))),
        stranger("WINDOW_UPDATEs", |victim| Box::pin(flood(victim, |_| frame(8, 0, 0, &[0, 0, 0, 1]).repeat(1_000)))),
        stranger("calls that are reset", |victim| Box::pin(flood(victim, resets))),
        stranger("CONTINUATIONs", |victim| Box::pin(flood(victim, continuations))),
        stranger("Writes announced, one byte sent", |victim| Box::pin(bodies(victim, 4 << 20, 6))),
        stranger("Writes that never end", |victim| Box::pin(bodies(victim, 4 << 20, 2 << 20))),
        stranger("slow bodies of every RPC", |victim| Box::pin(slow(victim))),
        stranger("Writes of empty updates", |victim| Box::pin(empty_updates(victim))),
        stranger("pipelines that are not taken", |victim| Box::pin(unread(victim, GET, whole()))),
        stranger("Reads that are not taken", |victim| Box::pin(unread(victim, READ, reads().encode_to_vec()))),
        stranger("Reads that are given up", |victim| Box::pin(given_up(victim))),
        stranger("streams that are not read", |victim| Box::pin(streams(victim))),
        stranger("configs of roles", |victim| Box::pin(roles(victim))),
        stranger("bids up and down", |victim| Box::pin(bids(victim))),
        stranger("digests of nested types", |victim| Box::pin(push(victim, laughs, "digest seen_t"))),
        stranger("wide fields of packet-ins", |victim| Box::pin(push(victim, wide_packet_in, "header packet_in"))),
        stranger("programs of headers without end", |victim| Box::pin(push(victim, || wide(1_000, 10_000), "metadata"))),
        stranger("multicast groups of 1,024", |victim| Box::pin(groups(victim))),
        stranger("Reads of replicas that are not taken", |victim| Box::pin(replicas(victim))),
        stranger("Writes of all cells", |victim| Box::pin(cells(victim))),
        stranger("one-shots that come and go", |victim| Box::pin(one_shots(victim))),
        Stranger {
            options: &["--limit", "roles=/stranger"],
            ..stranger("Reads of another primary, not taken", |victim| Box::pin(unread_of_a_primary(victim)))
        },
        Stranger {
            frame: frame_with_digest,
            ..stranger("digests without acknowledgements", |victim| Box::pin(digests(victim)))
        },
        Stranger {
            frame: frame_with_digest,
            program: types,
            ..stranger("digests of a program of 10,000 types", |victim| Box::pin(digests(victim)))
        },
    ]
}

const READ: &str = "/p4.v1.P4Runtime/Read";
const WRITE: &str = "/p4.v1.P4Runtime/Write";
const SET: &str = "/p4.v1.P4Runtime/SetForwardingPipelineConfig";
const GET: &str = "/p4.v1.P4Runtime/GetForwardingPipelineConfig";

#[test]
fn no_stranger_shuts_an_honest_controller_out() {
    let traffic = isolate("server_strangers: forwarding");
    beside_all(Duration::from_millis(400), traffic);
}

#[test]
#[ignore = "a measurement: five seconds for each"]
fn what_strangers_cost() {
    let traffic = isolate("server_strangers: forwarding");
    beside_all(Duration::from_secs(5), traffic);
}

fn beside_all(time: Duration, traffic: bool) {
    if traffic {
        ip("link set lo up");
        veth_pairs(2);
    }
    println!("| stranger | Writes | p50 ms | p99 ms | longest stay of a frame ms | KiB over idle | CPU % |");
    let all = strangers();
    let places = std::env::var("TRIMWIRE_STRANGERS").ok();
    let places = places.as_ref().and_then(|places| places.split_once(".."));
    let (first, end) =
        places.map_or((2, all.len()), |(first, end)| (first.parse().unwrap(), end.parse().unwrap()));
    for stranger in all[..2].iter().chain(&all[first..end]) {
        beside(stranger, time, traffic);
    }
}

fn beside(stranger: &Stranger, time: Duration, traffic: bool) {
    let Stranger { name, act, frame, program, options } = *stranger;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let ports: &[&str] = if traffic { &["-i", "0@s0", "-i", "1@s1"] } else { &[] };
    let victim = Arc::new(runtime.block_on(Victim::start(&[ports, options].concat())));
    let (stop, (ready, is_ready)) = (Arc::new(AtomicBool::new(false)), mpsc::channel());
    let honest = {
        let (address, stop) = (victim.address.clone(), Arc::clone(&stop));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(honest(&address, program(), &stop, &ready))
        })
    };
    is_ready.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("{name}: an honest controller begins"));
    let traffic = traffic.then(|| Traffic::start(frame, 1));
    let began = (now(), victim.processor_time());
    runtime.block_on(async {
        let acting = {
            let victim = Arc::clone(&victim);
            tokio::spawn(async move {
                loop {
                    act(Arc::clone(&victim)).await;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            })
        };
        tokio::time::sleep(time).await;
        assert!(!acting.is_finished(), "{name}: what the switch answered was not what it promises");
        acting.abort();
        let _ = acting.await;
    });
    let busy =
        victim.processor_time().saturating_sub(began.1).as_secs_f64() / began.0.elapsed().as_secs_f64();
    stop.store(true, Ordering::SeqCst);
    let mut writes = honest.join().unwrap_or_else(|_| panic!("{name}: an honest controller goes on"));
    let stay = traffic.map(Traffic::end).and_then(|(sent, received, stay)| {
        assert!(10 * received >= 9 * sent, "{name}: {received} of {sent} frames came out");
        stay
    });
    writes.sort_unstable();
    let ms = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1e3);
    let at = |share: usize| ms(writes[(writes.len() * share / 100).min(writes.len() - 1)]);
    println!(
        "| {name} | {} | {} | {} | {} | {} | {:.0} |",
        writes.len(),
        at(50),
        at(99),
        stay.map_or("–".to_owned(), ms),
        victim.over_idle(),
        100.0 * busy
    );
    victim.assert_over_idle(name, MOST_KIB);
}

/// A controller with a stream writes 1 kB and reads, until it is to stop: how long Writes took.
async fn honest(
    address: &str,
    (p4info, json): (P4Info, Vec<u8>),
    stop: &AtomicBool,
    ready: &mpsc::Sender<()>,
) -> Vec<Duration> {
    let mut client = Client::connect(address).await.unwrap();
    client.arbitrate(DEVICE, 1, Role::default()).await.unwrap();
    let index = Index::new(&p4info).unwrap();
    client.set_pipeline(p4info, json, None, Action::VerifyAndCommit).await.unwrap();
    let entry = |key: u128| {
        let entry = TableEntryBuilder::new(&index, "I.aging").exact("key", key);
        let entry = entry.action("I.forward").param("port", 1_u16).build().unwrap();
        TableEntry { metadata: vec![7; 40], ..entry }
    };
    // Frames that begin with a zero leave by port 1.
    let entries: Vec<TableEntry> = (0..12).map(entry).collect();
    client.write(entries.iter().cloned().map(insert).collect(), Atomicity::ContinueOnError).await.unwrap();
    let updates: Vec<v1::Update> = entries.iter().cloned().map(modify).collect();
    ready.send(()).unwrap();
    let mut took = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let begin = now();
        let writing = client.write(updates.clone(), Atomicity::ContinueOnError);
        tokio::time::timeout(PATIENCE, writing).await.expect("a Write in time").unwrap();
        took.push(begin.elapsed());
        if took.len() % 8 == 0 {
            let table_id = entries[0].table_id;
            let reading = client.read(vec![TableEntry { table_id, ..TableEntry::default() }.into()]);
            let found = tokio::time::timeout(PATIENCE, reading).await.expect("a Read in time").unwrap();
            assert_eq!(found.len(), entries.len());
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(matches!(client.arbitration(), Ok(Arbitration::Primary { .. })), "its stream has been open");
    took
}

// HTTP/2, without a library's manners.

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn preface() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, &[])].concat()
}

/// A Write's head, as HPACK has it without indexing.
fn head() -> Vec<u8> {
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    [vec![0x83, 0x86, 0x04], text(WRITE), vec![0x01], text("a"), vec![0x0f, 0x10], text("application/grpc")]
        .concat()
}

/// Calls that are opened and reset at once.
fn resets(round: u32) -> Vec<u8> {
    let stream = |number: u32| 2 * (256 * round + number) + 1;
    let call = |number| [frame(1, 4, stream(number), &head()), frame(3, 0, stream(number), &[0, 0, 0, 8])];
    (0..256).flat_map(call).flatten().collect()
}

/// A head that does not end.
fn continuations(round: u32) -> Vec<u8> {
    let more = frame(9, 0, 1, &[0; 1_000]).repeat(16);
    if round == 0 { [frame(1, 0, 1, &head()), more].concat() } else { more }
}

async fn flood(victim: Arc<Victim>, bytes: fn(u32) -> Vec<u8>) {
    let mut connections = JoinSet::new();
    for _ in 0..16 {
        let address = victim.address.clone();
        connections.spawn(async move {
            let Ok(socket) = TcpStream::connect(address).await else { return };
            let (mut from, mut to) = socket.into_split();
            let answers = async { tokio::io::copy(&mut from, &mut tokio::io::sink()).await.map(|_| ()) };
            let flooding = async {
                to.write_all(&preface()).await?;
                for round in 0.. {
                    to.write_all(&bytes(round)).await?;
                }
                std::io::Result::Ok(())
            };
            tokio::select! { _ = answers => {}, _ = flooding => {} }
        });
    }
    while connections.join_next().await.is_some() {}
}

/// So many connections that say this and then nothing, each again when it is closed.
async fn sockets(victim: Arc<Victim>, count: usize, words: Vec<u8>) {
    let mut connections = JoinSet::new();
    for _ in 0..count {
        let (address, words) = (victim.address.clone(), words.clone());
        connections.spawn(async move {
            loop {
                if let Ok(mut socket) = TcpStream::connect(&address).await {
                    let _ = socket.write_all(&words).await;
                    let mut bytes = [0; 64];
                    while matches!(socket.read(&mut bytes).await, Ok(1..)) {}
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }
    while connections.join_next().await.is_some() {}
}

async fn churn(victim: Arc<Victim>) {
    let mut clients = JoinSet::new();
    for _ in 0..16 {
        let victim = Arc::clone(&victim);
        clients.spawn(async move {
            if let Ok(client) = Client::connect(&victim.address).await {
                let _ = client.capabilities().await;
            }
        });
    }
    while clients.join_next().await.is_some() {}
}

/// A moment in which calls stay open.
async fn moment() {
    tokio::time::sleep(Duration::from_millis(200)).await;
}

/// Keeps a core busy and asks the switch for nothing: what the machine alone does to frames.
fn spin() {
    let begin = now();
    while begin.elapsed() < Duration::from_millis(200) {
        std::hint::spin_loop();
    }
}

async fn bodies(victim: Arc<Victim>, length: u32, sent: usize) {
    let mut calls = Vec::new();
    for _ in 0..2 {
        let channel = victim.channel().await;
        calls.extend((0..20).map(|_| unfinished(channel.clone(), WRITE, length, sent)));
    }
    moment().await;
    calls.iter().for_each(tokio::task::JoinHandle::abort);
}

async fn slow(victim: Arc<Victim>) {
    let mut calls = Vec::new();
    for path in [
        WRITE,
        READ,
        GET,
        SET,
        "/p4.v1.P4Runtime/StreamChannel",
        "/p4.v1.P4Runtime/Capabilities",
        "/trimwire.switch.v1.Admin/Get",
    ] {
        let channel = victim.channel().await;
        calls.extend((0..64).map(|_| unfinished(channel.clone(), path, 40_000, 20_000)));
    }
    moment().await;
    calls.iter().for_each(tokio::task::JoinHandle::abort);
}

async fn empty_updates(victim: Arc<Victim>) {
    victim.call(WRITE, framed(&write(1 << 19))).await.unwrap_err();
}

fn reads() -> v1::ReadRequest {
    let entities = vec![v1::CounterEntry::default().into(); 1_000];
    v1::ReadRequest { device_id: DEVICE, entities, ..Default::default() }
}

fn whole() -> Vec<u8> {
    v1::GetForwardingPipelineConfigRequest { device_id: DEVICE, ..Default::default() }.encode_to_vec()
}

async fn unread(victim: Arc<Victim>, path: &'static str, request: Vec<u8>) {
    let mut calls = Vec::new();
    for _ in 0..4 {
        let channel = victim.channel().await;
        calls.extend((0..32).map(|_| untaken(channel.clone(), path, framed(&request))));
    }
    moment().await;
    calls.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Reads that end before their answers have begun to come, on connections that stay.
async fn given_up(victim: Arc<Victim>) {
    let mut connections = JoinSet::new();
    for _ in 0..4 {
        let channel = victim.channel().await;
        connections.spawn(async move {
            for _ in 0..40 {
                let calls = (0..8).map(|_| untaken(channel.clone(), READ, framed(&reads().encode_to_vec())));
                let calls: Vec<_> = calls.collect();
                tokio::time::sleep(Duration::from_millis(5)).await;
                calls.iter().for_each(tokio::task::JoinHandle::abort);
            }
        });
    }
    while connections.join_next().await.is_some() {}
}

fn role_of(number: u32) -> v1::Role {
    let config = stratum::P4RoleConfig { shared_p4_ids: (0..5_000).collect(), ..Default::default() };
    let type_url = "type.googleapis.com/stratum.P4RoleConfig".to_owned();
    let config = prost_types::Any { type_url, value: config.encode_to_vec() };
    v1::Role { name: format!("invented{number}"), config: Some(config), ..Default::default() }
}

async fn streams(victim: Arc<Victim>) {
    let mut streams = Vec::new();
    for number in 0..30 {
        let mut stub = victim.stub().await;
        let stream = RawStream::open(&mut stub).await;
        for bid in 0..20_u128 {
            let (election_id, role) = (Some(bid.into()), Some(role_of(number)));
            let bid =
                v1::MasterArbitrationUpdate { device_id: DEVICE, election_id, role, ..Default::default() };
            let message = v1::StreamMessageRequest { update: Some(Sent::Arbitration(bid)) };
            if stream.requests.try_send(message).is_err() {
                tokio::task::yield_now().await;
            }
        }
        streams.push(stream);
    }
    moment().await;
}

async fn roles(victim: Arc<Victim>) {
    for number in 0..70 {
        let Ok(mut client) = Client::connect(&victim.address).await else { continue };
        let v1::Role { name, config, .. } = role_of(number);
        let bid = client.arbitrate(DEVICE, 1, Role { name, config });
        let _ = tokio::time::timeout(Duration::from_millis(200), bid).await;
    }
}

async fn bids(victim: Arc<Victim>) {
    let mut stub = victim.stub().await;
    let mut stream = RawStream::open(&mut stub).await;
    let role = Some(v1::Role { name: "fickle".to_owned(), ..Default::default() });
    for bid in (0..200).map(|round| round * 37 % 101) {
        let election_id = Some(u128::into(bid));
        let role = role.clone();
        let bid = v1::MasterArbitrationUpdate { device_id: DEVICE, election_id, role, ..Default::default() };
        stream.send(Sent::Arbitration(bid)).await;
        let _ = stream.next().await;
    }
}

/// A client that is primary of a role of its own, and so may do everything.
async fn invented(victim: &Victim) -> Option<Client> {
    let mut client = Client::connect(&victim.address).await.ok()?;
    let role = Role { name: "stranger".to_owned(), config: None };
    client.arbitrate(DEVICE, 1, role).await.ok()?;
    Some(client)
}

/// Pushes a program, which is refused with these words; or taken, where there are none.
async fn push(victim: Arc<Victim>, program: fn() -> (P4Info, Vec<u8>), words: &str) {
    let Some(client) = invented(&victim).await else { return };
    let (p4info, json) = program();
    let pushed = client.set_pipeline(p4info, json, None, Action::Verify).await;
    match pushed.map_err(|error| error.to_string()) {
        Ok(()) => assert_eq!(words, ""),
        Err(error) => assert!(!words.is_empty() && error.contains(words), "{error}"),
    }
}

fn of_type(name: &str) -> P4DataTypeSpec {
    P4DataTypeSpec { type_spec: Some(TypeSpec::Struct(P4NamedType { name: name.to_owned() })) }
}

fn struct_of(types: &[&str]) -> P4StructTypeSpec {
    let member =
        |of: &&str| p4_struct_type_spec::Member { name: "m".to_owned(), type_spec: Some(of_type(of)) };
    P4StructTypeSpec { members: types.iter().map(member).collect(), ..P4StructTypeSpec::default() }
}

/// A digest of four million values without a field, beside the three that the program sends.
fn laughs() -> (P4Info, Vec<u8>) {
    let (mut p4info, json) = program("server");
    let structs = &mut p4info.type_info.as_mut().unwrap().structs;
    for level in 0..22 {
        let next = format!("ha{}", level + 1);
        structs.insert(format!("ha{level}"), struct_of(&[&next, &next]));
    }
    structs.insert("ha22".to_owned(), struct_of(&[]));
    structs.insert("all".to_owned(), struct_of(&["ha0", "seen_t"]));
    p4info.digests[0].type_spec = Some(of_type("all"));
    (p4info, json)
}

/// What a push would cost is computed from both of its halves, which have to agree; and whose fault
/// it is is said.
#[tokio::test]
async fn a_push_that_would_cost_too_much_is_refused_by_the_culprits_name() {
    let bench = Bench::new().await;
    let of_digest = |name: &str, of: P4StructTypeSpec| {
        let (mut p4info, json) = program("server");
        p4info.type_info.as_mut().unwrap().structs.insert(name.to_owned(), of);
        p4info.digests[0].type_spec = Some(of_type(name));
        (p4info, json)
    };
    let with = |edit: fn(&mut P4Info)| {
        let (mut p4info, json) = program("server");
        edit(&mut p4info);
        (p4info, json)
    };
    let mut deep = program("server");
    for level in 0..40 {
        let next = format!("deep{}", level + 1);
        deep.0.type_info.as_mut().unwrap().structs.insert(format!("deep{level}"), struct_of(&[&next]));
    }
    deep.0.type_info.as_mut().unwrap().structs.insert("deep40".to_owned(), struct_of(&["seen_t"]));
    deep.0.digests[0].type_spec = Some(of_type("deep0"));
    for (what, (p4info, json), words) in [
        ("as it is", program("server"), &[][..]),
        ("digest of many values", laughs(), &["digest seen_t", "bytes of memory"]),
        (
            "digest of more fields",
            of_digest("two", struct_of(&["seen_t"; 2])),
            &["digest seen_t", "6 fields"],
        ),
        ("digest that holds itself", of_digest("one", struct_of(&["one"])), &["seen_t", "contains itself"]),
        ("digest of deep types", deep, &["digest seen_t", "deeper"]),
        ("digest of no type", of_digest("one", struct_of(&["gone"])), &["seen_t", "gone is missing"]),
        ("wide packet-ins", wide_packet_in(), &["header packet_in", "bytes of memory"]),
        ("larger counters", with(|info| info.counters[0].size *= 2), &["counter I.seen", "32 cells"]),
        ("larger meters", with(|info| info.meters[0].size *= 2), &["meter I.rates", "8 cells"]),
        (
            "larger registers",
            with(|info| info.registers[0].size *= 2),
            &["register I.", "cells in the P4Info"],
        ),
        ("wider keys", with(|info| info.tables[0].match_fields[0].bitwidth = 9), &["keys of table"]),
        (
            "large value sets",
            edited(|root| root["parse_vsets"][0]["max_size"] = (1 << 20).into()),
            &["value set P."],
        ),
    ] {
        let pushed = bench.client.set_pipeline(p4info, json, None, Action::Verify).await;
        match pushed.map_err(|error| error.to_string()) {
            Ok(()) => assert!(words.is_empty(), "{what}: it was taken"),
            Err(error) => {
                assert!(
                    !words.is_empty() && words.iter().all(|word| error.contains(word)),
                    "{what}: {error}"
                );
            }
        }
    }
}

fn types() -> (P4Info, Vec<u8>) {
    let (mut p4info, json) = program("server");
    let structs = &mut p4info.type_info.as_mut().unwrap().structs;
    for number in 0..10_000 {
        structs.insert(format!("of_no_use_{number}"), struct_of(&["seen_t"]));
    }
    (p4info, json)
}

fn wide_packet_in() -> (P4Info, Vec<u8>) {
    let (mut p4info, json) = program("server");
    let headers = p4info.controller_packet_metadata.iter_mut();
    for header in headers.filter(|header| header.preamble.as_ref().unwrap().name == "packet_in") {
        header.metadata = (1..=20_000)
            .map(|id| controller_packet_metadata::Metadata {
                id,
                name: format!("f{id}"),
                bitwidth: 1 << 16,
                ..Default::default()
            })
            .collect();
    }
    (p4info, json)
}

/// A multicast group of as many replicas as it may have.
fn group(multicast_group_id: u32) -> v1::PacketReplicationEngineEntry {
    let port = |instance| v1::Replica {
        instance,
        port_kind: Some(v1::replica::PortKind::Port(vec![3])),
        ..Default::default()
    };
    let replicas = (0..1_024).map(port).collect();
    let group = v1::MulticastGroupEntry { multicast_group_id, replicas, ..Default::default() };
    v1::PacketReplicationEngineEntry {
        r#type: Some(v1::packet_replication_engine_entry::Type::MulticastGroupEntry(group)),
    }
}

async fn groups(victim: Arc<Victim>) {
    let Some(client) = invented(&victim).await else { return };
    for id in 1..=8 {
        let _ = client.write(vec![insert(group(id))], Atomicity::ContinueOnError).await;
    }
    let changed = || (1..=8).map(|id| modify(group(id))).collect();
    client.write(changed(), Atomicity::ContinueOnError).await.unwrap();
    // Packets would wait for all of it.
    let refused = client.write(changed(), Atomicity::RollbackOnError).await.unwrap_err().to_string();
    assert!(refused.contains("atomic"), "{refused}");
}

/// So many replicas as there may be, and Reads of all of them.
async fn replicas(victim: Arc<Victim>) {
    let Some(client) = invented(&victim).await else { return };
    for first in (1..=250).step_by(25) {
        let groups = (first..first + 25).map(|id| insert(group(id)));
        let _ = client.write(groups.collect(), Atomicity::ContinueOnError).await;
    }
    let all =
        v1::packet_replication_engine_entry::Type::MulticastGroupEntry(v1::MulticastGroupEntry::default());
    let all: v1::Entity = v1::PacketReplicationEngineEntry { r#type: Some(all) }.into();
    let request = v1::ReadRequest { device_id: DEVICE, entities: vec![all; 50], ..Default::default() };
    loop {
        unread(Arc::clone(&victim), READ, request.encode_to_vec()).await;
    }
}

/// Writes of all cells of all arrays.
async fn cells(victim: Arc<Victim>) {
    let Some(client) = invented(&victim).await else { return };
    let p4info = program("server").0;
    let data = Some(v1::CounterData { packet_count: 1, byte_count: 1 });
    let all = p4info.counters.iter().map(|counter| {
        let counter_id = counter.preamble.as_ref().unwrap().id;
        modify(v1::CounterEntry { counter_id, index: None, data })
    });
    let updates: Vec<v1::Update> = all.cycle().take(2_000).collect();
    loop {
        client.write(updates.clone(), Atomicity::ContinueOnError).await.unwrap();
    }
}

/// Entries with action sets of as many actions as there may be, made and unmade.
async fn one_shots(victim: Arc<Victim>) {
    let Some(client) = invented(&victim).await else { return };
    let index = Index::new(&program("server").0).unwrap();
    let entry = |key: u128| {
        let entry = TableEntryBuilder::new(&index, "I.aging").exact("key", key);
        let mut entry = entry.action("I.forward").param("port", 2_u16).build().unwrap();
        let Some(ActionType::Action(action)) = entry.action.take().and_then(|action| action.r#type) else {
            unreachable!("it was built with an action")
        };
        let action = v1::ActionProfileAction { action: Some(action), weight: 1, ..Default::default() };
        let set =
            v1::ActionProfileActionSet { action_profile_actions: vec![action; 8], ..Default::default() };
        entry.table_id = index.table("I.balanced").unwrap().id();
        entry.action = Some(v1::TableAction { r#type: Some(ActionType::ActionProfileActionSet(set)) });
        entry
    };
    let round = || (100..102).map(entry);
    let updates: Vec<v1::Update> =
        round().map(insert).chain(round().map(modify)).chain(round().map(delete)).collect();
    let updates: Vec<v1::Update> = updates.iter().cycle().take(1_200).cloned().collect();
    loop {
        client.write(updates.clone(), Atomicity::ContinueOnError).await.unwrap();
    }
}

/// Reads of a client that has a lane, as the primary of a role that the operator has named.
async fn unread_of_a_primary(victim: Arc<Victim>) {
    let mut stub = victim.stub().await;
    let mut stream = RawStream::open(&mut stub).await;
    let role = Some(v1::Role { name: "stranger".to_owned(), ..Default::default() });
    let bid = v1::MasterArbitrationUpdate {
        device_id: DEVICE,
        election_id: Some(1_u128.into()),
        role,
        ..Default::default()
    };
    stream.send(Sent::Arbitration(bid)).await;
    let _ = stream.next().await;
    loop {
        let calls = (0..60).map(|_| {
            let mut stub = stub.clone();
            tokio::spawn(async move {
                let Ok(_answer) = stub.read(reads()).await else { return };
                std::future::pending::<()>().await;
            })
        });
        let calls: Vec<_> = calls.collect();
        moment().await;
        calls.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// The number is what the digest is about.
fn frame_with_digest(number: u32) -> Vec<u8> {
    let mut frame = frame_of_server(number);
    frame[1] = 1;
    frame[4..8].copy_from_slice(&number.to_be_bytes());
    frame
}

async fn digests(victim: Arc<Victim>) {
    let Some(client) = invented(&victim).await else { return };
    let digest_id = program("server").0.digests[0].preamble.as_ref().unwrap().id;
    let config = v1::digest_entry::Config { ack_timeout_ns: i64::MAX, ..Default::default() };
    let entry = v1::DigestEntry { digest_id, config: Some(config) };
    let _ = client.write(vec![insert(entry)], Atomicity::ContinueOnError).await;
    moment().await;
}
