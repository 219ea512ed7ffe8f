use super::memory::MemoryLink;
use super::misbehaving::{Faults, Misbehaving};
use super::*;
use crate::endpoint::Reliability;
use crate::rate::RateConfig;
use std::collections::BTreeMap;
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use trimwire_encoder::{
    DEFAULT_COORDINATES_PER_PACKET, Decoder, Decoding, Encoder, Envelope, Job, Layout, Message, PLANES,
    StreamId, nmse,
};

/// On stderr itself, because the test harness keeps what passing tests print.
fn skip(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}

const COORDINATES: usize = 40_000;
const SECOND: u64 = 1_000_000_000;

fn gradient() -> Vec<f32> {
    (0..COORDINATES).map(|i| ((i * 7_919) % 1_000) as f32 / 500.0 - 1.0).collect()
}

fn layout() -> Layout {
    Layout::new(COORDINATES, DEFAULT_COORDINATES_PER_PACKET).expect("valid")
}

const JOB: Job = Job::new(3);

fn envelope() -> Envelope {
    Envelope { stream: StreamId::new(0, 0).expect("fits"), message: 1 }
}

fn endpoint(rank: u16, reliability: Reliability) -> Endpoint {
    let mut config = EndpointConfig::new(rank, 2, 2_000_000_000);
    config.rate = RateConfig::Fixed(None);
    config.reliability = reliability;
    Endpoint::new(on_sockets(config))
}

/// Sends one message from rank 0 to rank 1, each on its thread; gives what rank 1 decoded.
fn transfer<L: Link + Send>(links: [L; 2], reliability: Reliability) -> (Vec<f32>, [LinkStats; 2]) {
    let [a, b] = links;
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            let mut driver = Driver::new(endpoint(0, reliability), a);
            let mut message = Message::default();
            Encoder::new(layout(), JOB)
                .encode(&gradient(), envelope(), PLANES, &mut message)
                .expect("finite");
            driver.endpoint().send(0, 1, Arc::new(message)).expect("sends");
            let sent = driver
                .run(20 * SECOND, |_, event, _| match event {
                    Event::Sent { .. } => ControlFlow::Break(()),
                    other => panic!("{other:?}"),
                })
                .expect("link");
            assert!(sent.is_some(), "sender heard no STOP");
            driver.link_stats()
        });
        let mut driver = Driver::new(endpoint(1, reliability), b);
        let decoder = Decoder::new(layout(), JOB, envelope(), Decoding::Unbiased);
        driver.endpoint().expect(0, 0, 1, decoder).expect("expects");
        let got = driver
            .run(20 * SECOND, |_, event, _| match event {
                Event::Received { decoder, .. } => ControlFlow::Break(decoder),
                other => panic!("{other:?}"),
            })
            .expect("link")
            .expect("received in time");
        driver.linger(SECOND / 5, 10 * SECOND).expect("link");
        let mut out = vec![0.0; COORDINATES];
        got.decode_into(&mut out).expect("of its length");
        (out, [sender.join().expect("sender"), driver.link_stats()])
    })
}

#[test]
fn a_message_crosses_a_perfect_link_whole() {
    let links: [MemoryLink; 2] = MemoryLink::network(2).try_into().expect("two");
    let (got, _) = transfer(links, Reliability::Bounded { loss: 0.0 });
    assert!(nmse(&got, &gradient()) < 1e-9);
}

#[test]
fn full_reliability_mends_every_fault_of_a_link() {
    let faults = Faults { drop: 0.05, cut: 0.2, duplicate: 0.05, reorder: 0.1, corrupt: 0.0 };
    let mut seed = 0;
    let links = MemoryLink::network(2).into_iter().map(|link| {
        seed += 1;
        Misbehaving::new(link, faults, seed, 35)
    });
    let links: [_; 2] = links.collect::<Vec<_>>().try_into().expect("two");
    let (got, _) = transfer(links, Reliability::Full);
    assert!(nmse(&got, &gradient()) < 1e-9);
}

#[test]
fn corrupted_datagrams_end_in_no_panic() {
    let faults = Faults { corrupt: 0.05, drop: 0.01, ..Faults::default() };
    let mut seed = 10;
    let links = MemoryLink::network(2).into_iter().map(|link| {
        seed += 1;
        Misbehaving::new(link, faults, seed, 35)
    });
    let links: [_; 2] = links.collect::<Vec<_>>().try_into().expect("two");
    transfer(links, Reliability::Bounded { loss: 0.05 });
}

fn on_loopback(receive: Receive, ip: &str) -> Result<[UdpLink; 2], LinkError> {
    let config = |receive| UdpConfig {
        bind: SocketAddr::new(ip.parse().expect("literal"), 0),
        job: 0,
        peers: BTreeMap::new(),
        learn: false,
        source_sockets: 8,
        receive,
    };
    let mut a = UdpLink::open(config(Receive::Socket))?;
    let address = a.local_address();
    let b_port = UdpLink::open(config(Receive::Socket))?.local_address().port();
    let mut raw = config(receive);
    raw.bind.set_port(b_port);
    let mut b = UdpLink::open(raw)?;
    a.set_peer(1, b.local_address());
    b.set_peer(0, address);
    Ok([a, b])
}

#[test]
fn a_message_crosses_loopback_sockets_whole() {
    for ip in ["127.0.0.1", "::1"] {
        let links = match on_loopback(Receive::Socket, ip) {
            Ok(links) => links,
            Err(error) => {
                skip(&format!("UDP on {ip}: {error}"));
                continue;
            }
        };
        let (got, [sent, received]) = transfer(links, Reliability::Full);
        assert!(nmse(&got, &gradient()) < 1e-9);
        assert!(sent.sent >= layout().packets() as u64 && sent.refused == 0, "{sent:?}");
        assert!(received.received >= layout().packets() as u64, "{received:?}");
    }
}

#[test]
fn tos_and_source_ports_are_those_the_endpoint_chose() {
    let Ok([mut a, mut b]) = on_loopback(Receive::Socket, "127.0.0.1") else {
        skip("no UDP on 127.0.0.1");
        return;
    };
    let datagram = |port, tos| Transmit {
        to_rank: 1,
        source_port: port,
        tos,
        payload: vec![tos; 20 + usize::from(port)],
    };
    let mut batch: Vec<_> = (0..40).map(|i| datagram(i, (i as u8 * 4) | 2)).collect();
    let unknown = Transmit { to_rank: 9, source_port: 0, tos: 0, payload: vec![0] };
    batch.push(unknown);
    a.send(&mut batch).expect("sends");
    assert!(batch.is_empty());
    assert_eq!((a.stats().sent, a.stats().unaddressed), (40, 1));
    let mut got = Vec::new();
    for _ in 0..100 {
        b.wait(SECOND / 10, false).expect("waits");
        b.receive(&mut |tos, payload| got.push((tos, payload.to_vec()))).expect("receives");
        if got.len() == 40 {
            break;
        }
    }
    assert_eq!(got.len(), 40);
    assert!(got.iter().all(|(tos, payload)| payload.iter().all(|byte| byte == tos)), "TOS of each datagram");
}

#[test]
fn raw_reception_gives_what_a_socket_gives() {
    let links = match on_loopback(Receive::Raw, "127.0.0.1") {
        Ok(links) => links,
        Err(error) => {
            skip(&format!("raw reception: {error}"));
            return;
        }
    };
    let (got, _) = transfer(links, Reliability::Full);
    assert!(nmse(&got, &gradient()) < 1e-9);
}

#[test]
fn opening_fails_with_the_address_and_a_hint() {
    let config = UdpConfig {
        bind: "192.0.2.1:9217".parse().expect("literal"),
        job: 0,
        peers: BTreeMap::new(),
        learn: false,
        source_sockets: 1,
        receive: Receive::Socket,
    };
    let error = UdpLink::open(config).expect_err("TEST-NET-1 is nobody's address").to_string();
    assert!(error.contains("192.0.2.1:9217") && error.contains("ip addr"), "{error}");
}
