// SPDX-License-Identifier: Apache-2.0
use super::memory::MemoryLink;
use super::misbehaving::{Faults, Misbehaving};
use super::udp_tests::skip;
use super::*;
use crate::collective::{Collective, CommunicatorConfig, Memory, Options};
use crate::endpoint::Expectation;
use crate::endpoint::Reliability;
use crate::rate::RateConfig;
use std::net::SocketAddr;
use trimwire_encoder::{
    Codec, DEFAULT_COORDINATES_PER_PACKET, Decoding, Encoder, Envelope, Job, Layout, Message, PLANES,
    StreamId, nmse,
};

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

fn config(rank: u16, reliability: Reliability, other: SocketAddr) -> EndpointConfig {
    let mut config = EndpointConfig::new(rank, 2, 2_000_000_000);
    config.rate = RateConfig::Fixed(None);
    config.reliability = reliability;
    config.peers.insert(1 - rank, other);
    on_sockets(config)
}

fn expectation(reliability: Reliability) -> Expectation {
    Expectation {
        layout: layout(),
        codec: Codec::Rht,
        job: JOB,
        decoding: Decoding::Unbiased,
        reliability,
        planes: PLANES,
        until_ns: None,
        keep: None,
        origin: None,
        agree: false,
    }
}

fn message() -> Message {
    let mut message = Message::default();
    Encoder::new(layout(), JOB).encode(&gradient(), envelope(), PLANES, &mut message).expect("finite");
    message
}

/// Sends one message from rank 0 to rank 1, each on its thread; gives what rank 1 decoded.
fn transfer<L: Link + Send>(links: [L; 2], reliability: Reliability) -> (Vec<f32>, [LinkStats; 2]) {
    let [a, b] = links;
    let (at_a, at_b) = (a.local_address(), b.local_address());
    std::thread::scope(|scope| {
        let sender = scope.spawn(move || {
            let mut driver = Driver::new(config(0, reliability, at_b), a);
            driver.endpoint().send(0, 1, &message()).expect("sends");
            let sent = driver
                .run(20 * SECOND, &mut |_, event, _: &mut Endpoint| match event {
                    Event::Sent { .. } => ControlFlow::Break(()),
                    other => panic!("{other:?}"),
                })
                .expect("link");
            assert!(sent.is_some(), "sender heard no STOP");
            driver.link_stats()
        });
        let mut driver = Driver::new(config(1, reliability, at_a), b);
        driver.endpoint().expect(0, 0, 1, expectation(reliability)).expect("expects");
        let mut out = vec![0.0; COORDINATES];
        let mut take = |_, event, _: &mut Endpoint| match event {
            Event::Row { row, .. } => {
                row.decode_into(&mut out[layout().row_coordinates(row.row())]).expect("of its length");
                ControlFlow::Continue(())
            }
            Event::Received { .. } => ControlFlow::Break(()),
            other => panic!("{other:?}"),
        };
        driver.run(20 * SECOND, &mut take).expect("link").expect("received in time");
        driver.linger(SECOND / 5, 10 * SECOND).expect("link");
        (out, [sender.join().expect("sender"), driver.link_stats()])
    })
}

#[test]
fn a_message_crosses_a_perfect_link_whole() {
    let links: [MemoryLink; 2] = MemoryLink::network(2).try_into().expect("two");
    let (got, _) = transfer(links, Reliability::Bounded { loss: 0.0 });
    assert!(nmse(&got, &gradient()) < 1e-9);
}

/// A receiver that is not scheduled for longer than a sender lingers without an arrival.
#[test]
fn a_peer_that_stands_still_is_not_left_without_what_was_sent_to_it() {
    let [a, b]: [MemoryLink; 2] = MemoryLink::network(2).try_into().expect("two");
    let (at_a, at_b) = (a.local_address(), b.local_address());
    let reliability = Reliability::Bounded { loss: 0.0 };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut driver = Driver::new(config(0, reliability, at_b), a);
            driver.endpoint().send(0, 1, &message()).expect("sends");
            driver.linger(SECOND / 50, 20 * SECOND).expect("link");
        });
        std::thread::sleep(std::time::Duration::from_millis(300));
        let mut driver = Driver::new(config(1, reliability, at_a), b);
        driver.endpoint().expect(0, 0, 1, expectation(reliability)).expect("expects");
        let mut take = |_, event, _: &mut Endpoint| match event {
            Event::Received { .. } => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        driver.run(10 * SECOND, &mut take).expect("link").expect("received, though late");
        driver.linger(SECOND / 5, 10 * SECOND).expect("link");
    });
}

/// Expects the message when it is first asked, as applications do that are told by another thread.
struct ExpectsInPoll {
    asked: bool,
}

impl Application<()> for ExpectsInPoll {
    fn on_event(&mut self, _: u64, event: Event, _: &mut Endpoint) -> ControlFlow<()> {
        if matches!(event, Event::Received { .. }) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn poll(&mut self, _: u64, endpoint: &mut Endpoint) -> ControlFlow<()> {
        if !std::mem::replace(&mut self.asked, true) {
            endpoint.expect(0, 0, 1, expectation(Reliability::Full)).expect("expects");
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn a_message_that_is_there_before_it_is_expected_is_received_without_another_sign_of_life() {
    let [a, b]: [MemoryLink; 2] = MemoryLink::network(2).try_into().expect("two");
    let (at_a, at_b) = (a.local_address(), b.local_address());
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut driver = Driver::new(config(0, Reliability::Full, at_b), a);
            driver.endpoint().send(0, 1, &message()).expect("sends");
            driver.run(20 * SECOND, &mut |_, _, _: &mut Endpoint| ControlFlow::Break(())).expect("link")
        });
        let mut driver = Driver::new(config(1, Reliability::Full, at_a), b);
        while driver.link_stats().received < layout().packets() as u64 {
            let soon_ns = driver.now_ns() + SECOND / 100;
            driver.run(soon_ns, &mut |_, _, _: &mut Endpoint| ControlFlow::<()>::Continue(())).expect("link");
        }
        let soon_ns = driver.now_ns() + 20 * SECOND;
        let received = driver.run(soon_ns, &mut ExpectsInPoll { asked: false }).expect("link");
        assert!(received.is_some() && driver.now_ns() < soon_ns, "what was there was not taken");
    });
}

#[test]
fn full_reliability_mends_every_fault_of_a_link() {
    let faults = Faults { drop: 0.05, truncate: 0.2, trim: 0.2, duplicate: 0.05, reorder: 0.1, corrupt: 0.0 };
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
    let mut config = UdpConfig::new(SocketAddr::new(ip.parse().expect("literal"), 0));
    config.data_sockets = 8;
    let a = UdpLink::open(config.clone())?;
    config.receive = receive;
    Ok([a, UdpLink::open(config)?])
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

/// Sums `steps` gradients over two links, one thread a rank; gives
/// every rank's sums.
pub(super) fn all_reduce<L: Link + Send>(
    links: [L; 2],
    steps: u32,
    reliability: Reliability,
) -> [Vec<Vec<f32>>; 2] {
    let addresses = [0, 1].map(|rank: usize| links[rank].local_address());
    let sums = std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..)
            .zip(links)
            .map(|(rank, link): (u16, L)| {
                scope.spawn(move || {
                    let other = addresses[usize::from(1 - rank)];
                    let mut driver = Driver::new(config(rank, reliability, other), link);
                    let mut communicator = Communicator::new(CommunicatorConfig::new(rank, 2));
                    let mut sums = Vec::new();
                    for step in 0..steps {
                        let tensor =
                            Memory::from_vec(gradient().iter().map(|v| v * f32::from(rank + 1)).collect());
                        let collective = Collective::AllReduce { tensor };
                        let now_ns = driver.now_ns();
                        communicator
                            .start(now_ns, step, collective, Options::default(), driver.endpoint())
                            .expect("valid");
                        let outcome =
                            driver.run(60 * SECOND, &mut communicator).expect("link").expect("in time");
                        outcome.result.expect("it succeeds");
                        sums.push(outcome.into_f32().expect("a vector"));
                    }
                    driver.linger(SECOND / 5, 10 * SECOND).expect("link");
                    sums
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("rank")).collect::<Vec<_>>()
    });
    sums.try_into().expect("two")
}

#[test]
fn sums_are_the_same_bits_in_memory_and_on_sockets() {
    let memory: [MemoryLink; 2] = MemoryLink::network(2).try_into().expect("two");
    let expected = all_reduce(memory, 3, Reliability::Full);
    let exact: Vec<f32> = gradient().iter().map(|value| value * 3.0).collect();
    assert!(expected.iter().flatten().all(|sum| nmse(sum, &exact) < 1e-12));
    match on_loopback(Receive::Socket, "127.0.0.1") {
        Ok(links) => assert!(all_reduce(links, 3, Reliability::Full) == expected),
        Err(error) => skip(&format!("UDP on loopback: {error}")),
    }
}

/// Begins an operation when it is told to, from another thread.
struct Told {
    communicator: Communicator,
    tell: std::sync::mpsc::Receiver<()>,
}

impl Application<Outcome> for Told {
    fn on_event(&mut self, now_ns: u64, event: Event, endpoint: &mut Endpoint) -> ControlFlow<Outcome> {
        self.communicator.on_event(now_ns, event, endpoint)
    }

    fn poll_task(&mut self, endpoint: &Endpoint) -> Option<Task> {
        self.communicator.poll_task(endpoint)
    }

    fn complete(&mut self, now_ns: u64, done: Done, endpoint: &mut Endpoint) {
        self.communicator.complete(now_ns, done, endpoint);
    }

    fn poll(&mut self, now_ns: u64, endpoint: &mut Endpoint) -> ControlFlow<Outcome> {
        if self.tell.try_recv().is_ok() {
            let collective = Collective::AllReduce { tensor: Memory::from_vec(gradient()) };
            let started = self.communicator.start(now_ns, 0, collective, Options::default(), endpoint);
            started.expect("valid");
        }
        self.communicator.poll(now_ns, endpoint)
    }
}

#[test]
fn what_is_begun_during_a_wait_is_served_at_once() {
    let [link, _] = match on_loopback(Receive::Socket, "127.0.0.1") {
        Ok(links) => links,
        Err(error) => {
            skip(&format!("UDP on loopback: {error}"));
            return;
        }
    };
    let mut driver = Driver::new(on_sockets(EndpointConfig::new(0, 1, 1_000_000_000)), link);
    let wake = driver.wake().expect("a descriptor");
    let (told, tell) = std::sync::mpsc::channel();
    let communicator = Communicator::new(CommunicatorConfig::new(0, 1));
    let other = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        told.send(()).expect("somebody listens");
        wake.wake();
    });
    let outcome = driver.run(120 * SECOND, &mut Told { communicator, tell }).expect("link");
    assert!(outcome.is_some_and(|outcome| outcome.result.is_ok()), "slept through it");
    other.join().expect("ends");
}

#[test]
fn bursts_are_ten_microseconds_four_packets_where_these_are_short_and_one_on_slow_links() {
    let packets = |line_rate_bps| {
        let config = on_sockets(EndpointConfig::new(0, 8, line_rate_bps));
        crate::pacing::Pacer::with_burst_time(config.burst_wire_ns).burst_limit(line_rate_bps, 1_500)
    };
    let rates = [50_000_000, 200_000_000, 1_000_000_000, 5_000_000_000, 10_000_000_000, 25_000_000_000];
    assert_eq!(rates.map(packets), [1, 1, 4, 4, 8, 20]);
    let late_ns = |line_rate_bps| on_sockets(EndpointConfig::new(0, 8, line_rate_bps)).burst_ns;
    assert_eq!(
        [1_000_000, 50_000_000, 200_000_000, 10_000_000_000].map(late_ns),
        [1_000_000, 480_000, 120_000, 100_000]
    );
}

/// The system's limits of receive buffers hold for a process without CAP_NET_ADMIN.
#[test]
fn the_tests_over_sockets_pass_without_capabilities() {
    const INSIDE: &str = "TRIMWIRE_TEST_WITHOUT_CAPABILITIES";
    if std::env::var_os(INSIDE).is_some() {
        return;
    }
    let mut command = std::process::Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all"]);
    command.arg(std::env::current_exe().expect("this program"));
    command.args(["driver::tests::", "driver::udp_tests::"]);
    command.env(INSIDE, "1").env_remove("TRIMWIRE_REQUIRE_NETNS");
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return skip(&format!("without capabilities: setpriv: {error}")),
    };
    let [out, err] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    if err.starts_with("setpriv:") {
        return skip(&format!("without capabilities: {err}"));
    }
    assert!(output.status.success() && !out.contains("ok. 0 passed"), "{out}\n{err}");
}
