// SPDX-License-Identifier: Apache-2.0
//! Some paths are dead, and the others carry the job: many small operations, where one packet that
//! is lost holds up everyone, and a large one.

use crate::group::Group;
use crate::network::{Datagram, Faults, Network, PORT, Random};
use trimwire_agent::collective::{Collective, Memory, Options};
use trimwire_agent::endpoint::Reliability;

const SECOND_NS: u64 = 1_000_000_000;
/// The first of sixteen source ports of DATA.
const FIRST: u16 = 40_000;

fn path(datagram: &Datagram) -> Option<u16> {
    (datagram.source.port() != PORT).then(|| datagram.source.port() - FIRST)
}

fn hit(datagram: &Datagram, dead: impl Fn(u16) -> bool) -> bool {
    path(datagram).is_some_and(dead)
}

type Blocked = fn(u64, &Datagram) -> bool;
type Dead = fn(u16) -> bool;

fn group(blocked: Blocked, faults: Faults) -> Group {
    let mut network = Network::with(4, faults, 1, |config| {
        config.reliability = Reliability::Full;
        config.source_ports = (FIRST..FIRST + 16).collect();
        config.packets_per_path = 16;
        config.mtu = Some(1_500);
    });
    network.blocked = Some(blocked);
    Group { network, ..Group::new(4, Faults::NONE, 1, Reliability::Full, 10) }
}

/// Sums so many gradients of so many elements, one after the other; gives how long each took, ns.
fn sums(group: &mut Group, first: u32, count: u32, length: usize) -> Vec<u64> {
    let operation = |number| {
        let begin_ns = group.network.now_ns;
        for rank in 0..4 {
            let tensor = Memory::from_vec(Random(rank as u64 + 5).gradient(length));
            group.start(rank, number, Collective::AllReduce { tensor }, &Options::default()).expect("valid");
        }
        let mut ended_ns = begin_ns;
        let mut ended = 0;
        group.run_taken(
            begin_ns + 5 * SECOND_NS,
            |_, _, _| {},
            |now_ns, _, outcome, _, _| {
                assert!(outcome.result.is_ok(), "operation {number}: {:?}", outcome.result);
                (ended, ended_ns) = (ended + 1, now_ns);
            },
        );
        assert_eq!(ended, 4, "operation {number} ends at all ranks");
        ended_ns - begin_ns
    };
    (first..first + count).map(operation).collect()
}

fn mean(times: &[u64]) -> f64 {
    times.iter().sum::<u64>() as f64 / times.len() as f64
}

/// Rank 0's packets on the paths that are dead, of so many operations.
fn sent_on(group: &Group, dead: impl Fn(u16) -> bool) -> u64 {
    let snapshot = group.network.endpoints[0].snapshot();
    let paths = snapshot.peers.iter().flat_map(|peer| &peer.paths);
    paths.filter(|path| dead(path.source_port - FIRST)).map(|path| path.stats.sent).sum()
}

const HEALTHY: Blocked = |_, _| false;

#[test]
fn a_sixteenth_a_quarter_or_half_of_the_paths_dead_are_left_after_few_packets() {
    let cases: [(Dead, Blocked); 3] = [
        (|path| path == 3, |_, datagram| hit(datagram, |path| path == 3)),
        (|path| path % 4 == 1, |_, datagram| hit(datagram, |path| path % 4 == 1)),
        (|path| path % 2 == 1, |_, datagram| hit(datagram, |path| path % 2 == 1)),
    ];
    for (dead, blocked) in cases {
        let mut group = group(blocked, Faults::NONE);
        let count = (0..16).filter(|&path| dead(path)).count() as u64;
        // Every rank meets every path once in 16 · 16 packets, some two an operation.
        sums(&mut group, 0, 600, 1_024);
        let before = sent_on(&group, dead);
        // Each of three peers finds each of them out by a packet or a burst.
        assert!(before <= 3 * 16 * count, "{before} packets on {count} dead paths");
        sums(&mut group, 600, 200, 1_024);
        assert_eq!(sent_on(&group, dead), before, "no data probes a dead path");
    }
}

#[test]
fn a_large_operation_over_half_of_the_paths_is_as_exact_and_hardly_longer() {
    let healthy = mean(&sums(&mut group(HEALTHY, Faults::NONE), 0, 2, 1 << 20));
    let mut group = group(|_, datagram| hit(datagram, |path| path % 2 == 0), Faults::NONE);
    let times = sums(&mut group, 0, 2, 1 << 20);
    assert!(mean(&times) < 1.5 * healthy, "{times:?} for {healthy}");
}

#[test]
fn paths_that_are_dead_for_one_rank_or_one_way_only_are_left_by_who_uses_them() {
    let mut group = group(|_, datagram| datagram.from == 0 && hit(datagram, |path| path < 8), Faults::NONE);
    sums(&mut group, 0, 100, 1_024);
    let share = |rank: usize| {
        let snapshot = group.network.endpoints[rank].snapshot();
        let paths = snapshot.peers.iter().flat_map(|peer| &peer.paths);
        paths.filter(|path| path.source_port < FIRST + 8).map(|path| path.share).sum::<f64>()
    };
    assert_eq!(share(0), 0.0);
    assert!(share(1) > 1.0, "{}: half of each peer's bursts", share(1));
}

#[test]
fn a_path_that_heals_carries_data_again() {
    const HEALS_NS: u64 = 200_000_000;
    let blocked: Blocked = |now_ns, datagram| now_ns < HEALS_NS && hit(datagram, |path| path == 3);
    let mut group = group(blocked, Faults::NONE);
    let mut number = 0;
    while group.network.now_ns < HEALS_NS {
        sums(&mut group, number, 100, 1_024);
        number += 100;
    }
    let before = sent_on(&group, |path| path == 3);
    // Questions are asked while there is something to send, at the latest every second.
    while group.network.now_ns < HEALS_NS + 3 * SECOND_NS && sent_on(&group, |path| path == 3) == before {
        sums(&mut group, number, 100, 1_024);
        number += 100;
    }
    assert!(sent_on(&group, |path| path == 3) > before);
}

#[test]
fn flapping_paths_and_rehashed_ones_cost_time_and_nothing_else() {
    let flapping: Blocked =
        |now_ns, datagram| now_ns / 3_000_000 % 2 == 0 && hit(datagram, |path| path % 4 == 0);
    // Every 4 ms other ports lead over the broken spine.
    let rehashed: Blocked =
        |now_ns, datagram| hit(datagram, |path| (u64::from(path) * 7 + now_ns / 4_000_000) % 4 == 0);
    for blocked in [flapping, rehashed] {
        let mut group = group(blocked, Faults::NONE);
        let times = sums(&mut group, 0, 1_000, 1_024);
        let longest = (0..).zip(&times).max_by_key(|(_, ns)| **ns);
        assert!(longest.is_some_and(|(_, &ns)| ns < SECOND_NS / 2), "{longest:?}");
        assert!(mean(&times) < 2e6, "{} ns: a time-out and its repetition", mean(&times));
        sums(&mut group, 1_000, 2, 1 << 18);
    }
}

#[test]
fn losses_by_chance_are_no_smaller_mtu() {
    let mut group = group(HEALTHY, Faults::NONE);
    sums(&mut group, 0, 1, 1 << 16);
    group.network.faults = Faults { drop_data: 0.2, drop_control: 0.2, ..Faults::NONE };
    for number in 1..30 {
        sums(&mut group, number, 1, 1 << 16);
    }
    for (from, to) in [(0, 1), (1, 2), (2, 3), (3, 0)] {
        assert_eq!(group.network.endpoints[from].path_mtu(to), Some(1_500), "from {from} to {to}");
    }
}
