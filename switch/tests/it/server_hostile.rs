// SPDX-License-Identifier: Apache-2.0
//! What strangers on P4Runtime's socket cost a switch: memory of the process, and frames that it
//! forwards meanwhile.
//!
//! Each test runs the command as a process of its own, so that what is measured is the switch's
//! memory and nobody else's.

use crate::driver_support::{Wire, ip, isolate, now, veth_pairs};
use crate::hostile_support::*;
use crate::server_support::{DEVICE, program};
use prost::Message as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use trimwire_p4runtime::client::{Client, Role};
use trimwire_p4runtime::entity::{ActionBuilder, TableEntryBuilder, insert, member, modify};
use trimwire_p4runtime::p4info::{Index, P4Info};
use trimwire_p4runtime::server::tonic::Code;
use trimwire_p4runtime::v1::get_forwarding_pipeline_config_request::ResponseType;
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::stream_message_request::Update as Sent;
use trimwire_p4runtime::v1::write_request::Atomicity;
use trimwire_p4runtime::{stratum, v1};
use trimwire_switch::driver::PacketSocket;

/// Most that any one stranger may cost, KiB over idle.
const MOST_KIB: u64 = 64 << 10;

/// An honest client is answered, soon.
async fn serves(victim: &Victim) {
    let answered = async {
        let client = Client::connect(&victim.address).await.unwrap();
        client.capabilities().await.unwrap();
    };
    tokio::time::timeout(Duration::from_secs(10), answered).await.expect("within ten seconds");
}

pub(crate) fn write(updates: usize) -> Vec<u8> {
    v1::WriteRequest {
        device_id: DEVICE,
        updates: vec![v1::Update::default(); updates],
        ..Default::default()
    }
    .encode_to_vec()
}

#[tokio::test]
async fn writes_of_empty_updates_are_refused_before_they_are_decoded() {
    let victim = Victim::start(&[]).await;
    for mebibytes in [1, 3, 12] {
        let message = write(mebibytes << 19);
        let refused = victim.call("/p4.v1.P4Runtime/Write", framed(&message)).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
    }
    victim.assert_over_idle("a Write of empty updates", MOST_KIB);
    serves(&victim).await;
}

#[tokio::test]
async fn reads_that_nobody_takes_in_hold_little_and_end() {
    let victim = Victim::start(&["--limit", "patience=2"]).await;
    victim.push(program("server")).await;
    let filters = vec![v1::CounterEntry::default().into(); 1_000];
    let request = v1::ReadRequest { device_id: DEVICE, entities: filters, ..Default::default() };
    let mut stub = victim.stub().await;
    let mut reads = Vec::new();
    for _ in 0..20 {
        // Calls beyond those that the switch lets in at a time are not answered yet.
        let read = tokio::time::timeout(Duration::from_millis(300), stub.read(request.clone())).await;
        reads.extend(read.ok());
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    victim.assert_over_idle("twenty Reads that nobody takes in", 16 << 10);
    serves(&victim).await;
}

/// The trimming program, and its P4Info.
fn ours() -> (P4Info, Vec<u8>) {
    let read = |ending: &str| {
        std::fs::read(format!("{}/../p4/build/bmv2/trimwire.{ending}", env!("CARGO_MANIFEST_DIR"))).unwrap()
    };
    (P4Info::from_bytes(&read("p4info.txtpb")).unwrap(), read("json"))
}

#[tokio::test]
async fn pipelines_that_nobody_takes_in_hold_little_and_end() {
    let victim = Victim::start(&["--limit", "patience=2"]).await;
    victim.push(ours()).await;
    let request = v1::GetForwardingPipelineConfigRequest { device_id: DEVICE, ..Default::default() };
    let request = framed(&request.encode_to_vec());
    let path = "/p4.v1.P4Runtime/GetForwardingPipelineConfig";
    let mut calls = Vec::new();
    for _ in 0..4 {
        let channel = victim.channel().await;
        calls.extend((0..64).map(|_| untaken(channel.clone(), path, request.clone())));
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    victim.assert_over_idle("256 requests for the pipeline that nobody takes in", MOST_KIB);
    // Places come free again, and an honest client has its turn.
    let honest = async {
        loop {
            let mut client = Client::connect(&victim.address).await.unwrap();
            let role = Role { name: "honest".to_owned(), config: None };
            client.arbitrate(DEVICE, 1, role).await.unwrap();
            if let Ok(Some(config)) = client.pipeline(ResponseType::DeviceConfigAndCookie).await {
                break config.p4_device_config;
            }
        }
    };
    let taken = tokio::time::timeout(Duration::from_secs(300), honest).await.expect("within five minutes");
    assert_eq!(taken, ours().1);
    calls.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn requests_that_never_end_are_not_kept() {
    let victim = Victim::start(&["--limit", "patience=2"]).await;
    let mut open = Vec::new();
    for _ in 0..5 {
        let channel = victim.channel().await;
        for _ in 0..4 {
            open.push(unfinished(channel.clone(), "/p4.v1.P4Runtime/Write", 60 << 20, 59 << 20));
        }
        for _ in 0..4 {
            open.push(unfinished(channel.clone(), "/p4.v1.P4Runtime/Write", 4 << 20, (4 << 20) - 1));
        }
    }
    for call in open {
        let ended = tokio::time::timeout(Duration::from_secs(120), call).await;
        let refused = ended.expect("it is ended").unwrap().unwrap_err();
        assert!(matches!(refused.code(), Code::ResourceExhausted | Code::DeadlineExceeded), "{refused:?}");
    }
    victim.assert_over_idle("Writes that never end", MOST_KIB);
    serves(&victim).await;
}

#[tokio::test]
async fn configs_of_roles_go_with_their_clients() {
    let victim = Victim::start(&[]).await;
    for number in 0..70_u32 {
        let config = stratum::P4RoleConfig {
            exclusive_p4_ids: (0..1 << 20).map(|id| id << 8 | number).collect(),
            ..Default::default()
        };
        let type_url = "type.googleapis.com/stratum.P4RoleConfig".to_owned();
        let config = prost_types::Any { type_url, value: config.encode_to_vec() };
        let Ok(mut client) = Client::connect(&victim.address).await else { continue };
        let role = Role { name: format!("invented{number}"), config: Some(config) };
        // Too large, or not: who hangs up leaves nothing, neither memory nor an id that is taken.
        let _ = tokio::time::timeout(Duration::from_secs(5), client.arbitrate(DEVICE, 1, role)).await;
    }
    victim.assert_over_idle("configs of 70 roles", MOST_KIB);
    let mut client = Client::connect(&victim.address).await.unwrap();
    let role = Role { name: "honest".to_owned(), config: None };
    client.arbitrate(DEVICE, 1, role).await.unwrap();
}

#[tokio::test]
async fn the_highest_bid_of_one_that_is_gone_is_taken_back_by_hand() {
    let victim = Victim::start(&[]).await;
    let mut stranger = Client::connect(&victim.address).await.unwrap();
    stranger.arbitrate(DEVICE, u128::MAX, Role::default()).await.unwrap();
    drop(stranger);
    let mut honest = Client::connect(&victim.address).await.unwrap();
    honest.arbitrate(DEVICE, 1, Role::default()).await.unwrap();
    let refused =
        honest.set_pipeline(program("server").0, program("server").1, None, Action::VerifyAndCommit);
    refused.await.unwrap_err();
    victim.admin("reset-arbitration");
    honest
        .set_pipeline(program("server").0, program("server").1, None, Action::VerifyAndCommit)
        .await
        .unwrap();
    // And where bids are capped, nobody gets that far.
    let capped = Victim::start(&["--limit", "election-id=1000"]).await;
    let mut stranger = Client::connect(&capped.address).await.unwrap();
    let error = stranger.arbitrate(DEVICE, 1_001, Role::default()).await.unwrap_err().to_string();
    assert!(error.contains("1001") && error.contains("1000"), "{error}");
    Client::connect(&capped.address).await.unwrap().arbitrate(DEVICE, 1_000, Role::default()).await.unwrap();
}

#[tokio::test]
async fn a_stream_that_is_not_read_holds_little() {
    let victim = Victim::start(&[]).await;
    let mut streams = Vec::new();
    for number in 0..30 {
        let mut stub = victim.stub().await;
        let (requests, sent) = tokio::sync::mpsc::channel(8);
        let sent = tokio_stream::wrappers::ReceiverStream::new(sent);
        let Ok(answer) = stub.stream_channel(sent).await else { continue };
        let config = stratum::P4RoleConfig { shared_p4_ids: (0..5_000).collect(), ..Default::default() };
        let type_url = "type.googleapis.com/stratum.P4RoleConfig".to_owned();
        let value = config.encode_to_vec();
        let role = v1::Role {
            name: format!("flood{number}"),
            config: Some(prost_types::Any { type_url, value }),
            ..Default::default()
        };
        for bid in 0..400_u128 {
            let election_id = Some(bid.into());
            let role = Some(role.clone());
            let bid =
                v1::MasterArbitrationUpdate { device_id: DEVICE, election_id, role, ..Default::default() };
            let message = v1::StreamMessageRequest { update: Some(Sent::Arbitration(bid)) };
            if tokio::time::timeout(Duration::from_secs(1), requests.send(message)).await.is_err() {
                break;
            }
        }
        streams.push((requests, answer));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    victim.assert_over_idle("30 streams that are not read", MOST_KIB);
    serves(&victim).await;
}

#[tokio::test]
async fn programs_that_would_take_gigabytes_are_refused() {
    let victim = Victim::start(&[]).await;
    for (headers, fields) in [(2_000, 2_000), (1_000, 10_000), (200, 1_000)] {
        let refused = victim.try_push(wide(headers, fields)).await.unwrap_err();
        assert!(refused.contains("metadata") && refused.contains("16384"), "{refused}");
    }
    let refused = victim.try_push(nested(1 << 20)).await.unwrap_err();
    assert!(refused.contains("program"), "{refused}");
    let refused = victim.try_push(stateful(1 << 24)).await.unwrap_err();
    assert!(refused.contains("state"), "{refused}");
    victim.assert_over_idle("programs too large", MOST_KIB);
    victim.push(program("server")).await;
}

#[tokio::test]
async fn a_program_of_very_many_conditions_loads_in_time_that_grows_with_it() {
    let victim = Victim::start(&[]).await;
    let answer = victim.try_push(conditions(3_000)).await;
    assert!(answer.is_ok(), "{answer:?}");
    let refused = victim.try_push(conditions(16_000)).await.unwrap_err();
    assert!(refused.contains("--limit program"), "{refused}");
    victim.assert_over_idle("a program of many conditions", MOST_KIB);
    serves(&victim).await;
}

/// Beside a stranger that does all of it at once, frames pass: none is lost at a rate that leaves
/// the machine idle.
#[test]
fn frames_pass_beside_strangers() {
    if !isolate("server_hostile: forwarding") {
        return;
    }
    ip("link set lo up");
    veth_pairs(2);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let victim = runtime.block_on(Victim::start(&["-i", "0@s0", "-i", "1@s1", "--limit", "patience=2"]));
    runtime.block_on(async {
        victim.push(program("server")).await;
        victim.forward().await;
    });
    let traffic = Traffic::start(frame_of_server, FRAMES);
    runtime.block_on(async {
        let mut round = 0_usize;
        while !traffic.sending.is_finished() {
            let _ = victim.call("/p4.v1.P4Runtime/Write", framed(&write(1 << 19))).await;
            let _ = victim.try_push(wide(1_000, 10_000)).await;
            let filters = vec![v1::CounterEntry::default().into(); 1_000];
            let request = v1::ReadRequest { device_id: DEVICE, entities: filters, ..Default::default() };
            let read = async { victim.stub().await.read(request).await };
            let _ = tokio::time::timeout(Duration::from_millis(200), read).await;
            let channel = victim.channel().await;
            let call = unfinished(channel, "/p4.v1.P4Runtime/Write", 4 << 20, 1 << 20);
            let _ = tokio::time::timeout(Duration::from_millis(200), call).await;
            round += 1;
            if round > 1 {
                traffic.enough();
            }
        }
    });
    let (sent, received, _) = traffic.end();
    assert_eq!(received, sent, "frames that came out");
    victim.assert_over_idle("strangers of all kinds", MOST_KIB);
}

/// At least.
const FRAMES: usize = 10_000;

/// Frames into port 0, and what comes out of port 1.
pub(crate) struct Traffic {
    sending: JoinHandle<usize>,
    receiving: JoinHandle<usize>,
    /// Times of arrival, by the kernel, at the switch and behind it.
    stamps: [JoinHandle<Vec<u64>>; 2],
    enough: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
}

/// The longest time that frames spent in the switch, where none was lost. The senders' and
/// receivers' own pauses are no part of it.
fn longest_stay(came: &[u64], left: &[u64]) -> Option<Duration> {
    let stay = |(came, left): (&u64, &u64)| Duration::from_nanos(left.saturating_sub(*came));
    (came.len() == left.len()).then(|| came.iter().zip(left).map(stay).max()).flatten()
}

/// When frames arrive at an interface, until it is over.
fn stamps(interface: &str, ended: &Arc<AtomicBool>) -> JoinHandle<Vec<u64>> {
    let mut socket = PacketSocket::open(interface, 8 << 20).unwrap();
    let ended = Arc::clone(ended);
    std::thread::spawn(move || {
        let mut stamps = Vec::new();
        loop {
            let over = ended.load(Ordering::SeqCst);
            let traffic = |frame: &[u8]| frame.len() >= 60;
            let mut take = |at: Option<u64>, frame: &[u8]| stamps.extend(at.filter(|_| traffic(frame)));
            if !socket.receive(&mut take).unwrap().full && over {
                return stamps;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    })
}

impl Traffic {
    /// Sends 2,000 frames a second, so many at least, until it is enough.
    pub(crate) fn start(frame: fn(u32) -> Vec<u8>, least: usize) -> Self {
        let (near, far) = (Wire::open("h0"), Wire::open("h1"));
        let ended = Arc::new(AtomicBool::new(false));
        let stamps = ["s0", "h1"].map(|interface| stamps(interface, &ended));
        let (enough, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(usize::MAX)));
        let (is_enough, to_come) = (Arc::clone(&enough), Arc::clone(&sent));
        let receiving = std::thread::spawn(move || {
            let mut received = 0;
            while received < to_come.load(Ordering::SeqCst) && far.receive(20_000).is_some() {
                received += 1;
            }
            received
        });
        let sending = std::thread::spawn(move || {
            for number in 1.. {
                let is_last = number >= least && is_enough.load(Ordering::SeqCst);
                if is_last {
                    sent.store(number, Ordering::SeqCst);
                }
                while !near.send(&frame(number as u32)) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                if is_last {
                    return number;
                }
                if number % 8 == 0 {
                    std::thread::sleep(Duration::from_millis(4));
                }
            }
            unreachable!("there are more numbers than frames")
        });
        Self { sending, receiving, stamps, enough, ended }
    }

    /// It is enough.
    fn enough(&self) {
        self.enough.store(true, Ordering::SeqCst);
    }

    /// After it is enough: how many were sent, how many came out, and for how long the switch had
    /// one at most.
    pub(crate) fn end(self) -> (usize, usize, Option<Duration>) {
        self.enough();
        let sent = self.sending.join().unwrap();
        let received = self.receiving.join().unwrap();
        self.ended.store(true, Ordering::SeqCst);
        let [came, left] = self.stamps.map(|stamps| stamps.join().unwrap());
        (sent, received, longest_stay(&came, &left))
    }
}

pub(crate) fn frame_of_server(number: u32) -> Vec<u8> {
    let mut frame = vec![0; 102];
    frame[60..64].copy_from_slice(&number.to_be_bytes());
    frame
}

/// UDP to 10.9.9.9, for the trimming program.
fn frame_of_ours(number: u32) -> Vec<u8> {
    let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 0, 0, 1], [10, 9, 9, 9], 64)
        .udp(1, 2);
    let mut frame = Vec::new();
    builder.write(&mut frame, &[&number.to_be_bytes()[..], &[0; 60]].concat()).unwrap();
    frame
}

#[test]
fn frames_pass_while_ten_thousand_routes_are_written() {
    if !isolate("server_hostile: forwarding beside a Write") {
        return;
    }
    ip("link set lo up");
    veth_pairs(2);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let victim = runtime.block_on(Victim::start(&["-i", "0@s0", "-i", "1@s1"]));
    let (p4info, json) = ours();
    let index = Index::new(&p4info).unwrap();
    let route = |prefix: u32, length| {
        let entry =
            TableEntryBuilder::new(&index, "Ingress.ipv4_route").lpm("dst_addr", u128::from(prefix), length);
        entry.member(1).build().unwrap()
    };
    let client = runtime.block_on(async {
        let mut client = Client::connect(&victim.address).await.unwrap();
        client.arbitrate(DEVICE, 1, Role::default()).await.unwrap();
        client.set_pipeline(p4info.clone(), json, None, Action::VerifyAndCommit).await.unwrap();
        let forward =
            ActionBuilder::new(&index, "Ingress.forward").param("port", 1_u16).param("dst_mac", 2_u64);
        let member = member(&index, "Ingress.ecmp", 1, forward).unwrap();
        let first = vec![insert(member), insert(route(0x0a09_0900, 24))];
        client.write(first, Atomicity::ContinueOnError).await.unwrap();
        client
    });
    let routes: Vec<_> = (0..3_000).map(|number| route(0x0b00_0000 + (number << 8), 24)).collect();
    let modified = routes.iter().cycle().take(7_000).cloned().map(modify);
    let updates: Vec<_> = routes.iter().cloned().map(insert).chain(modified).collect();
    let traffic = Traffic::start(frame_of_ours, FRAMES);
    let wrote = now();
    runtime.block_on(client.write(updates, Atomicity::ContinueOnError)).unwrap();
    let writing = wrote.elapsed();
    let (sent, received, longest) = traffic.end();
    println!(
        "10,000 routes in {writing:?}; {received} of {sent} frames, each in the switch for {longest:?} at most"
    );
    assert_eq!(received, sent, "frames that came out");
}
