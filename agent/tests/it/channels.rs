// SPDX-License-Identifier: Apache-2.0
//! Several channels under one communicator: what an operation gives, and what becomes of it when a
//! channel, a rank or an agreement does not hold.

use crate::network::Random;
use half::bf16;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use trimwire_agent::burst::Burst;
use trimwire_agent::collective::{
    Algorithm, ChannelEnd, Collective, CommunicatorConfig, Memory, OperationError, Options, Outcome,
    Replicas, StartError, resync_range, shard_range,
};
use trimwire_agent::config::channel_incarnation;
use trimwire_agent::driver::channels::{ChannelsError, split};
use trimwire_agent::driver::link::Take;
use trimwire_agent::driver::memory::MemoryLink;
use trimwire_agent::driver::misbehaving::{Faults, Misbehaving};
use trimwire_agent::driver::{
    Channels, Driver, Link, LinkError, LinkStats, Shared, UdpConfig, UdpLink, UntilEpoch, on_sockets,
};
use trimwire_agent::endpoint::{EndpointConfig, Reliability};
use trimwire_agent::transcript::Filter;
use trimwire_encoder::nmse;

/// A link that ends when it is told to.
#[derive(Debug)]
struct Mortal {
    link: Misbehaving<MemoryLink>,
    dead: Arc<AtomicBool>,
}

impl Link for Mortal {
    fn send(&mut self, batch: &mut VecDeque<Burst>) -> Result<(), LinkError> {
        self.link.send(batch)
    }

    fn receive(&mut self, take: &mut Take<'_>) -> Result<usize, LinkError> {
        if self.dead.load(Ordering::SeqCst) {
            let source = io::Error::from(io::ErrorKind::NotConnected);
            return Err(LinkError::Io { what: "receive", source });
        }
        self.link.receive(take)
    }

    // The queue in memory wakes nobody for a command: looking is enough here.
    fn wait(&mut self, timeout_ns: u64, room: bool) -> Result<(), LinkError> {
        self.link.wait(timeout_ns.min(200_000), room)
    }

    fn stats(&self) -> LinkStats {
        self.link.stats()
    }

    fn data_ports(&self) -> Vec<u16> {
        self.link.data_ports()
    }

    fn local_address(&self) -> SocketAddr {
        self.link.local_address()
    }
}

struct Rank {
    own: u16,
    driver: Driver<Mortal>,
    channels: Channels,
    number: u32,
    /// Ends its last channel's link.
    dead: Arc<AtomicBool>,
}

const ROW_LOG2: u8 = 8;
const SECOND: u64 = 1_000_000_000;

impl Rank {
    fn start(&mut self, collective: Collective, options: &Options) {
        self.try_start(collective, options).expect("valid");
    }

    fn try_start(&mut self, collective: Collective, options: &Options) -> Result<(), StartError> {
        let (number, now_ns) = (self.number, self.driver.now_ns());
        self.number += 1;
        let endpoint = self.driver.endpoint();
        self.channels.start(now_ns, number, collective, options.clone(), endpoint)
    }

    /// Why an all-reduce fails, which another rank may have given up before it begins here.
    fn failure(&mut self, length: usize) -> OperationError {
        let tensor = Memory::from_vec(gradient(self.own, length));
        let begun = self.try_start(Collective::AllReduce { tensor }, &Options::default());
        if let Err(reason) = begun {
            return OperationError::Part { channel: 0, reason };
        }
        let outcome = self.finish();
        assert!(outcome.output.expect("the memory comes back").into_vec::<f32>().is_ok());
        outcome.result.expect_err("it fails")
    }

    fn finish(&mut self) -> Outcome {
        let until_ns = self.driver.now_ns() + 60 * SECOND;
        self.driver.run(until_ns, &mut self.channels).expect("runs").expect("it ends in time")
    }

    fn operation(&mut self, collective: Collective, options: &Options) -> Vec<f32> {
        self.start(collective, options);
        let outcome = self.finish();
        outcome.result.expect("it succeeds");
        outcome.into_f32().expect("the vector, which no channel has any more")
    }

    fn leave(mut self) {
        self.channels.stop();
        self.driver.linger(SECOND / 5, 5 * SECOND).expect("lingers");
        self.channels.wait();
    }
}

/// Each rank on a thread of its own; what each gives, by rank.
fn job<T: Send + 'static>(
    world: u16,
    channels: u16,
    faults: Faults,
    run: impl Fn(Rank) -> T + Clone + Send + 'static,
) -> Vec<T> {
    // Each channel has a network to itself, as it has ports.
    let networks: Vec<Vec<MemoryLink>> = (0..channels).map(|_| MemoryLink::network(world)).collect();
    let mut networks: Vec<_> = networks.into_iter().map(Vec::into_iter).collect();
    let results: Vec<Receiver<T>> = (0..world)
        .map(|rank| {
            let dead = Arc::new(AtomicBool::new(false));
            let mut config = on_sockets(EndpointConfig::new(rank, world, 10_000_000_000));
            config.timeouts.give_up_ns = 4 * SECOND;
            config.timeouts.keep_alive_ns = SECOND / 5;
            config.peers = (0..world)
                .filter(|&peer| peer != rank)
                .map(|peer| (peer, MemoryLink::address(peer)))
                .collect();
            let parts: Vec<(EndpointConfig, Mortal)> = (0..channels)
                .zip(&mut networks)
                .map(|(channel, network)| {
                    let link = network.next().expect("one a rank");
                    let seed = u64::from(rank) << 8 | u64::from(channel);
                    let link = Misbehaving::new(link, faults, seed, config.dscp.trimmed);
                    let last = if channel + 1 == channels { Arc::clone(&dead) } else { Arc::default() };
                    let incarnation = channel_incarnation(config.incarnation, channel);
                    (EndpointConfig { incarnation, ..config.clone() }, Mortal { link, dead: last })
                })
                .collect();
            let (result, answer) = channel();
            let run = run.clone();
            std::thread::spawn(move || {
                let mut parts = parts.into_iter();
                let (config, link) = parts.next().expect("one channel");
                let mut driver = Driver::new(config, link);
                let config = CommunicatorConfig {
                    job_seed: 7,
                    row_log2: ROW_LOG2,
                    ..CommunicatorConfig::new(rank, world)
                };
                let others = parts.collect();
                let channels =
                    Channels::begin(&config, &mut driver, others, &Filter::default(), None).expect("begins");
                let _ = result.send(run(Rank { own: rank, driver, channels, number: 1, dead }));
            });
            answer
        })
        .collect();
    results
        .into_iter()
        .map(|answer| answer.recv_timeout(Duration::from_secs(120)).expect("ends well"))
        .collect()
}

fn gradient(rank: u16, length: usize) -> Vec<f32> {
    Random(u64::from(rank) + 1).gradient(length)
}

fn sum(world: u16, length: usize) -> Vec<f32> {
    let parts: Vec<Vec<f32>> = (0..world).map(|rank| gradient(rank, length)).collect();
    (0..length).map(|i| parts.iter().map(|part| f64::from(part[i])).sum::<f64>() as f32).collect()
}

const NOISE: Faults =
    Faults { drop: 0.003, truncate: 0.0, trim: 0.05, duplicate: 0.01, reorder: 0.02, corrupt: 0.0 };

/// Most error of sums of some hundred packets, of which one in twenty has lost all but its signs.
const TRIMMED: f64 = 0.2;

/// Ways to do an operation, and the error that is left by each where packets are trimmed.
fn ways() -> Vec<(&'static str, Options, f64)> {
    let full = Some(Reliability::Full);
    let bounded = Some(Reliability::Bounded { loss: 0.02 });
    vec![
        ("bounded", Options { reliability: bounded, ..Options::default() }, TRIMMED),
        ("full", Options { reliability: full, ..Options::default() }, 1e-12),
        ("exact", Options { exact: true, ..Options::default() }, 1e-14),
        ("consistent", Options { replicas: Replicas::Consistent, ..Options::default() }, TRIMMED),
        ("ring", Options { reliability: full, algorithm: Algorithm::Ring, ..Options::default() }, 1e-12),
    ]
}

#[test]
fn sums_are_right_by_any_number_of_channels_and_of_any_length() {
    const WORLD: u16 = 3;
    for channels in 1..=3 {
        let got = job(WORLD, channels, NOISE, |mut rank| {
            let mut results = Vec::new();
            for (_, options, _) in ways() {
                // Less than a row, some rows of each shard and an odd end, fewer rows than
                // channels.
                for length in [5, 257, 3_001, 20_011] {
                    let tensor = Memory::from_vec(gradient(rank.own, length));
                    results.push(rank.operation(Collective::AllReduce { tensor }, &options));
                }
            }
            rank.leave();
            results
        });
        let mut at = 0;
        for (name, _, most) in ways() {
            for length in [5, 257, 3_001, 20_011] {
                let expected = sum(WORLD, length);
                // Of one packet, or some, all may be trimmed, both ways: π/2 - 1 of each one's
                // energy.
                let most = match length {
                    20_011 => most,
                    3_001 => most * 3.0,
                    _ => most * 7.5,
                };
                for (rank, results) in got.iter().enumerate() {
                    let error = if results[at] == expected { 0.0 } else { nmse(&results[at], &expected) };
                    assert!(
                        error <= most,
                        "{channels} channels, {name}, {length} coordinates at rank {rank}: {error}"
                    );
                    let same = name == "consistent" || most < 1e-6;
                    assert!(
                        !same || results[at] == got[0][at],
                        "{channels} channels, {name}: replicas differ"
                    );
                }
                at += 1;
            }
        }
    }
}

#[test]
fn every_other_collective_moves_what_it_should_by_three_channels() {
    const WORLD: u16 = 3;
    const LENGTH: usize = 9_001;
    let got = job(WORLD, 3, NOISE, |mut rank| {
        let share = shard_range(LENGTH, WORLD, rank.own);
        let own = |tensor: Vec<f32>| tensor[share.clone()].to_vec();
        let mine = gradient(rank.own, LENGTH);
        let (exact, full) = (
            Options { exact: true, ..Options::default() },
            Options { reliability: Some(Reliability::Full), ..Options::default() },
        );
        let share = own(mine.clone());
        let length = share.len();
        let input = Memory::from_vec(mine.clone());
        let output = Memory::from_vec(vec![0.0_f32; length]);
        let scattered = rank.operation(Collective::ReduceScatter { input, output }, &full);
        assert!(nmse(&scattered, &own(sum(WORLD, LENGTH))) < 1e-12);
        let (input, output) = (Memory::from_vec(share), Memory::from_vec(vec![0.0_f32; LENGTH]));
        let gathered = rank.operation(Collective::AllGather { input, output }, &exact);
        for other in 0..WORLD {
            let range = shard_range(LENGTH, WORLD, other);
            assert_eq!(gathered[range.clone()], gradient(other, LENGTH)[range]);
        }
        let tensor = Memory::from_vec(mine.clone());
        let told = rank.operation(Collective::Broadcast { tensor, root: 1 }, &exact);
        assert_eq!(told, gradient(1, LENGTH));
        let tensor = Memory::from_vec(mine.clone());
        let reduced = rank.operation(Collective::Reduce { tensor, root: 2 }, &full);
        assert!(rank.own != 2 || nmse(&reduced, &sum(WORLD, LENGTH)) < 1e-12);
        let slice =
            |from: u16, to: u16| resync_range(LENGTH, WORLD.into(), u64::from(to)).len() + usize::from(from);
        let (to, from): (Vec<usize>, Vec<usize>) =
            (0..WORLD).map(|other| (slice(rank.own, other), slice(other, rank.own))).unzip();
        let input = Memory::from_vec(gradient(rank.own, to.iter().sum()));
        let output = Memory::from_vec(vec![0.0_f32; from.iter().sum()]);
        let moved = rank.operation(Collective::AllToAll { input, output, to, from: from.clone() }, &exact);
        let mut start = 0;
        for other in 0..WORLD {
            let before: usize = (0..rank.own).map(|to| slice(other, to)).sum();
            let length = from[usize::from(other)];
            let all: usize = (0..WORLD).map(|to| slice(other, to)).sum();
            assert_eq!(moved[start..start + length], gradient(other, all)[before..before + length]);
            start += length;
        }
        // Two elements of 16 bits a coordinate, and an odd one.
        let halves: Vec<bf16> = mine.iter().map(|&value| bf16::from_f32(value)).collect();
        let tensor = Memory::from_vec(halves);
        rank.start(Collective::Broadcast { tensor, root: 0 }, &exact);
        let outcome = rank.finish();
        outcome.result.expect("it succeeds");
        let halves: Vec<bf16> = outcome.output.expect("there").into_vec().expect("the vector");
        let expected: Vec<bf16> = gradient(0, LENGTH).into_iter().map(bf16::from_f32).collect();
        assert_eq!(halves, expected);
        rank.leave();
    });
    assert_eq!(got.len(), 3);
}

#[test]
fn the_same_packets_give_the_same_bits_and_several_operations_overlap() {
    let run = || {
        job(2, 2, Faults::default(), |mut rank| {
            let options = Options::default();
            for length in [10_000, 700, 5_555] {
                rank.start(
                    Collective::AllReduce { tensor: Memory::from_vec(gradient(rank.own, length)) },
                    &options,
                );
            }
            let mut outcomes: Vec<Outcome> = (0..3).map(|_| rank.finish()).collect();
            outcomes.sort_by_key(|outcome| outcome.number);
            let counted: u64 = outcomes.iter().map(|outcome| outcome.stats.packets).sum();
            assert!(counted >= 2 * 16_255 / 2 / 448, "packets of all channels are counted: {counted}");
            let results: Vec<Vec<f32>> =
                outcomes.into_iter().map(|outcome| outcome.into_f32().expect("a vector")).collect();
            rank.leave();
            results
        })
    };
    let (first, second) = (run(), run());
    assert_eq!(first, second);
    assert_eq!(first[0], first[1]);
}

#[test]
fn a_channel_whose_sockets_die_fails_the_operation_by_name_here_and_by_rank_elsewhere() {
    let got = job(2, 2, Faults::default(), |mut rank| {
        let options = Options::default();
        rank.operation(
            Collective::AllReduce { tensor: Memory::from_vec(gradient(rank.own, 5_000)) },
            &options,
        );
        if rank.own == 1 {
            rank.dead.store(true, Ordering::SeqCst);
        }
        let errors = [rank.failure(50_000), rank.failure(50_000)];
        rank.leave();
        errors
    });
    let why = ChannelEnd::Sockets(io::ErrorKind::NotConnected);
    // The second fails because there is no such channel any more.
    for (number, error) in (2..).zip(&got[1]) {
        assert_eq!(*error, OperationError::Channel { number, channel: 1, channels: 2, why });
    }
    let text = got[1][0].to_string();
    assert_eq!(
        text,
        "operation 2: channel 1 of 2 of this rank has ended: its sockets cannot be used any more (not connected)"
    );
    assert!(got[0].iter().all(|error| error.culprit() == Some(1)), "{:?}", got[0]);
}

#[test]
fn a_channel_that_panics_fails_the_operation_by_name() {
    let got = job(2, 3, Faults::default(), |mut rank| {
        if rank.own == 0 {
            rank.channels.panic(2);
        }
        let error = rank.failure(50_000);
        rank.leave();
        error
    });
    assert_eq!(
        got[0],
        OperationError::Channel { number: 1, channel: 2, channels: 3, why: ChannelEnd::Panic }
    );
    assert_eq!(got[1].culprit(), Some(0));
}

#[test]
fn a_cancelled_operation_fails_at_all_ranks_and_the_next_one_is_right() {
    let got = job(2, 2, Faults::default(), |mut rank| {
        let failed = if rank.own == 0 {
            let tensor = Memory::from_vec(gradient(rank.own, 90_000));
            rank.start(Collective::AllReduce { tensor }, &Options::default());
            let (number, now_ns) = (rank.number - 1, rank.driver.now_ns());
            assert!(rank.channels.cancel(now_ns, number, rank.driver.endpoint()));
            rank.finish().result.expect_err("cancelled")
        } else {
            rank.failure(90_000)
        };
        let tensor = Memory::from_vec(gradient(rank.own, 9_000));
        let right = rank.operation(Collective::AllReduce { tensor }, &Options::default());
        rank.leave();
        (failed, right)
    });
    assert_eq!(got[0].0, OperationError::Cancelled { number: 1 });
    assert_eq!(got[1].0.culprit(), Some(0));
    assert!(got.iter().all(|(_, right)| nmse(right, &sum(2, 9_000)) < 1e-9));
}

#[test]
fn ranks_that_are_left_go_on_by_all_channels_after_one_has_died() {
    let got = job(3, 2, Faults::default(), |mut rank| {
        let options = Options::default();
        rank.operation(
            Collective::AllReduce { tensor: Memory::from_vec(gradient(rank.own, 5_000)) },
            &options,
        );
        if rank.own == 1 {
            // Its threads end without a word to anybody.
            rank.dead.store(true, Ordering::SeqCst);
            return Vec::new();
        }
        assert_eq!(rank.failure(50_000).culprit(), Some(1));
        let now_ns = rank.driver.now_ns();
        rank.channels.shrink(now_ns, &[], rank.driver.endpoint()).expect("asks");
        let until_ns = now_ns + 30 * SECOND;
        let epoch = rank.driver.run(until_ns, &mut UntilEpoch(&mut rank.channels)).expect("runs");
        let epoch = epoch.expect("in time").expect("two of three are enough");
        assert_eq!(epoch.members, [0, 2]);
        rank.number = epoch.first;
        let result = rank.operation(
            Collective::AllReduce { tensor: Memory::from_vec(gradient(rank.own, 20_001)) },
            &options,
        );
        rank.leave();
        result
    });
    let left: Vec<f32> = gradient(0, 20_001).iter().zip(gradient(2, 20_001)).map(|(a, b)| a + b).collect();
    for rank in [0, 2] {
        assert!(nmse(&got[rank], &left) < 1e-9, "rank {rank}");
    }
}

#[test]
fn ports_that_are_too_high_too_near_or_taken_are_said_by_number() {
    let mut config = EndpointConfig::new(0, 3, 10_000_000_000);
    let at = |port: u16| SocketAddr::from(([10, 0, 0, 9], port));
    config.peers = [(1, at(65_534)), (2, at(9_000))].into();
    let error = split(&config, 3).expect_err("65,536");
    assert!(matches!(error, ChannelsError::Port { rank: 1, .. }), "{error}");
    config.peers.insert(1, at(9_002));
    let error = split(&config, 3).expect_err("two ports apart").to_string();
    assert_eq!(
        error,
        "ranks 1 and 2 listen on 10.0.0.9:9002 and port 9000: 3 channels take as many ports, from the first on"
    );
    let parts = split(&config, 2).expect("two channels are enough apart");
    assert_eq!((parts[1].peers[&2], parts[1].line_rate_bps), (at(9_001), 5_000_000_000));
    assert_ne!(parts[0].incarnation, parts[1].incarnation);
    assert!(matches!(split(&config, 400), Err(ChannelsError::Parts(_))));
    let taken = UdpLink::open(UdpConfig::new(SocketAddr::from(([127, 0, 0, 1], 0)))).expect("opens");
    let port = taken.local_address().port();
    let below = UdpConfig::new(SocketAddr::from(([127, 0, 0, 1], port - 1)));
    if let Err(error) = UdpLink::open_channels(&below, 2, &Shared::default()) {
        // Unless the port below is somebody's, too.
        let text = error.to_string();
        assert!(text.contains(&port.to_string()) || text.contains(&(port - 1).to_string()), "{text}");
    } else {
        panic!("a taken port was opened twice");
    }
}
