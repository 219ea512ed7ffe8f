// SPDX-License-Identifier: Apache-2.0
//! Promises of deadlines, and of what is sent again while others wait.

use crate::group::Group;
use crate::network;
use crate::network::{Faults, Random};
use proptest::prelude::*;
use trimwire_agent::collective::{
    Algorithm, Collective, Memory, Options, Outcome, Replicas, StartError, direct_shards, shard_range,
};
use trimwire_agent::endpoint::Reliability;
use trimwire_encoder::wire::{Header, Kind, Prefix};
use trimwire_encoder::{HEADER_LEN, nmse};

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;
const BOUNDED: Reliability = Reliability::Bounded { loss: 0.01 };

/// Trimmed to the sign plane or a little more, and lost now and then.
const CUTTING: Faults = Faults {
    trim: 0.5,
    trim_to_at_least: HEADER_LEN + network::PLANE_BYTES,
    drop_data: 0.005,
    ..Faults::NONE
};

fn values(rank: usize, length: usize, seed: u64) -> Vec<f32> {
    Random(seed ^ (rank as u64) << 40).gradient(length)
}

fn sum(world: usize, length: usize, seed: u64, of: impl Fn(usize) -> bool) -> Vec<f32> {
    let parts: Vec<_> = (0..world).filter(|&rank| of(rank)).map(|rank| values(rank, length, seed)).collect();
    (0..length).map(|i| parts.iter().map(|part| f64::from(part[i])).sum::<f64>() as f32).collect()
}

fn start(group: &mut Group, rank: usize, number: u32, length: usize, seed: u64, options: &Options) {
    let tensor = Memory::from_vec(values(rank, length, seed));
    group.start(rank, number, Collective::AllReduce { tensor }, options).expect("valid");
}

/// One all-reduce at all ranks; outcomes by rank.
fn reduce(group: &mut Group, number: u32, length: usize, seed: u64, options: &Options) -> Vec<Outcome> {
    for rank in 0..group.communicators.len() {
        start(group, rank, number, length, seed, options);
    }
    let until_ns = group.network.now_ns + 300 * SECOND;
    let mut outcomes = group.run(until_ns);
    outcomes.sort_by_key(|(rank, _)| *rank);
    assert!(outcomes.iter().map(|(rank, _)| *rank).eq(0..group.communicators.len()), "every rank once");
    assert!(group.is_quiet(), "something goes on");
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}

fn mean_error(outcomes: Vec<Outcome>, exact: &[f32]) -> f64 {
    let ranks = outcomes.len() as f64;
    let error = |outcome: Outcome| {
        assert_eq!(outcome.result, Ok(()));
        nmse(&outcome.into_f32().expect("a vector"), exact)
    };
    outcomes.into_iter().map(error).sum::<f64>() / ranks
}

fn until(deadline_ns: u64) -> Options {
    Options { deadline_ns: Some(deadline_ns), ..Options::default() }
}

#[test]
fn with_time_enough_everything_that_was_trimmed_is_there_before_the_deadline() {
    let mut group = Group::new(4, CUTTING, 3, BOUNDED, 12);
    let outcomes = reduce(&mut group, 0, 200_000, 3, &until(SECOND));
    for outcome in &outcomes {
        assert!(outcome.duration_ns < SECOND / 2, "{} ns", outcome.duration_ns);
        assert_eq!((outcome.stats.trimmed, outcome.stats.missing), (0, 0));
        assert!(outcome.stats.repaired > 0);
    }
    assert!(mean_error(outcomes, &sum(4, 200_000, 3, |_| true)) < 1e-12);
}

#[test]
fn the_more_time_there_is_the_smaller_is_the_error_and_nobody_takes_longer() {
    let exact = sum(4, 400_000, 5, |_| true);
    let error = |deadline_ns: u64| {
        let mut group = Group::new(4, CUTTING, 5, BOUNDED, 12);
        let outcomes = reduce(&mut group, 0, 400_000, 5, &until(deadline_ns));
        for outcome in &outcomes {
            assert!(outcome.duration_ns <= deadline_ns, "{} of {deadline_ns} ns", outcome.duration_ns);
        }
        mean_error(outcomes, &exact)
    };
    // At 10 Gbit/s a rank's shards take 0.7 ms.
    let errors = [MILLISECOND / 2, MILLISECOND, 2 * MILLISECOND, 4 * MILLISECOND].map(error);
    assert!(errors.is_sorted_by(|a, b| a > b), "{errors:?}");
    assert!(errors[0] > 0.1 && errors[3] < 1e-2, "{errors:?}");
}

#[test]
fn a_rank_that_is_late_is_not_waited_for_and_the_next_operation_has_it_again() {
    for algorithm in [Algorithm::Direct, Algorithm::Ring, Algorithm::TwoLevel] {
        let options = Options { algorithm, ..until(20 * MILLISECOND) };
        let mut group = Group::new(4, Faults::NONE, 7, BOUNDED, 12).on_hosts(&[0, 0, 1, 1]);
        for rank in [0, 1, 3] {
            start(&mut group, rank, 0, 60_000, 7, &options);
        }
        let outcomes = group.run(100 * MILLISECOND);
        assert_eq!(outcomes.len(), 3, "{algorithm}");
        // In a ring its neighbour lacks what it did not send; those further on get sums without it.
        assert!(outcomes.iter().any(|(_, outcome)| outcome.stats.missing > 0), "{algorithm}");
        for (rank, outcome) in outcomes {
            assert_eq!(outcome.result, Ok(()), "{algorithm}");
            assert!(outcome.duration_ns <= 20 * MILLISECOND, "{algorithm}, rank {rank}");
            if algorithm == Algorithm::Direct {
                let got = outcome.into_f32().expect("a vector");
                let without = sum(4, 60_000, 7, |rank| rank != 2);
                for (shard, range) in direct_shards(60_000, 4).into_iter().enumerate() {
                    if shard == 2 {
                        assert!(got[range].iter().all(|&value| value == 0.0), "nobody summed it");
                    } else {
                        assert!(nmse(&got[range.clone()], &without[range]) < 1e-12);
                    }
                }
            }
        }
        start(&mut group, 2, 0, 60_000, 7, &options);
        let late = group.run(200 * MILLISECOND);
        assert!(matches!(&late[..], [(2, outcome)] if outcome.result.is_ok()), "{algorithm}: {late:?}");
        let outcomes = reduce(&mut group, 1, 60_000, 8, &options);
        assert!(mean_error(outcomes, &sum(4, 60_000, 8, |_| true)) < 1e-12, "{algorithm}");
    }
}

/// More than its queue holds waits to be sent to whoever takes nothing: a rank that has yet to
/// come, or has asked for it all and stands still.
#[test]
fn who_takes_nothing_does_not_hold_up_what_is_to_be_sent_to_him() {
    for stopped_ns in [0, 100_000] {
        let mut group = Group::new(2, Faults::NONE, 7, BOUNDED, 12);
        let options = until(2 * MILLISECOND);
        let length = 8_000_000;
        for rank in 0..if stopped_ns > 0 { 2 } else { 1 } {
            start(&mut group, rank, 0, length, 7, &options);
        }
        let early = group.run(stopped_ns);
        group.network.paused_until_ns[1] = SECOND;
        let outcomes = group.run(100 * MILLISECOND);
        let outcome = match (&early[..], &outcomes[..]) {
            ([], [(0, outcome)]) => outcome,
            other => panic!("{other:?}"),
        };
        assert_eq!(outcome.result, Ok(()));
        assert!(outcome.duration_ns <= 2 * MILLISECOND, "{} ns", outcome.duration_ns);
    }
}

#[test]
fn tails_are_sent_after_everything_else_those_of_most_energy_first() {
    // A row in three has a hundred times the energy. Every packet is trimmed the first time, to the
    // sign plane.
    const ROW: usize = 1 << 12;
    let length = 12 * ROW;
    let mut group = Group::new(
        2,
        Faults { trim: 1.0, trim_to_at_least: HEADER_LEN + network::PLANE_BYTES, ..Faults::NONE },
        9,
        BOUNDED,
        12,
    );
    group.network.keep_log = true;
    for rank in 0..2 {
        let loud = |i: usize| if i / ROW % 3 == 1 { 10.0 } else { 1.0 };
        let tensor: Vec<f32> = values(rank, length, 9).iter().enumerate().map(|(i, v)| v * loud(i)).collect();
        let input = Memory::from_vec(tensor);
        let output = Memory::from_vec(vec![0.0_f32; shard_range(length, 2, rank as u16).len()]);
        let collective = Collective::ReduceScatter { input, output };
        group.start(rank, 0, collective, &until(SECOND)).expect("valid");
    }
    assert!(group.run(10 * SECOND).iter().all(|(_, outcome)| outcome.result.is_ok()));
    let log = group.network.log.iter().filter(|(.., datagram)| {
        datagram.from == 0 && Prefix::parse(&datagram.payload).is_ok_and(|prefix| prefix.kind == Kind::Data)
    });
    let sent: Vec<Header> = log.map(|(.., datagram)| datagram.header().expect("own packet")).collect();
    let packets = sent.iter().map(|header| header.index).max().expect("some") as usize + 1;
    let repairs: Vec<&Header> = sent.iter().filter(|header| header.first_plane > 0).collect();
    assert!(repairs.len() >= packets, "each was trimmed");
    let last_first = sent.iter().rposition(|header| header.first_plane == 0).expect("some");
    let first_repair = sent.iter().position(|header| header.first_plane > 0).expect("some");
    assert!(first_repair > last_first, "what had not been sent at all went first");
    // Energy that a repair brings, per byte: what a coordinate lacks of its square (a quarter of
    // that a plane, roughly), by three bytes less those held.
    let worth = |header: &&Header| {
        let planes = f64::from(header.first_plane);
        f64::from(header.sigma).powi(2) * 0.27_f64.powf(planes)
            / (3.0 - planes.min(8.0) / 8.0 - (planes - 8.0).max(0.0))
    };
    let worths: Vec<f64> = repairs.iter().take(packets / 2).map(worth).collect();
    // News of the last trims comes after the first repairs.
    let rising = worths.windows(2).filter(|pair| pair[1] > 1.3 * pair[0]).count();
    assert!(rising * 10 <= worths.len(), "{rising} times of {}: {worths:?}", worths.len());
    assert!(worths[0] > 100.0 * worths[worths.len() - 1], "{worths:?}");
}

#[test]
fn consistent_replicas_of_many_ranks_err_no_more_than_those_of_two() {
    // What two ranks agree on is what the one receiver has. Of five receivers the least would err
    // almost five times as much.
    let faults = Faults { trim: 0.2, trim_to_at_least: HEADER_LEN + network::PLANE_BYTES, ..Faults::NONE };
    let error = |world: usize| {
        let options = Options { replicas: Replicas::Consistent, ..Options::default() };
        let mut group = Group::new(world as u16, faults, 11, BOUNDED, 12);
        let shard = |rank: usize| values(rank, shard_range(1 << 19, world as u16, rank as u16).len(), 11);
        for rank in 0..world {
            let (input, output) = (Memory::from_vec(shard(rank)), Memory::from_vec(vec![0.0_f32; 1 << 19]));
            group.start(rank, 0, Collective::AllGather { input, output }, &options).expect("valid");
        }
        let outcomes: Vec<Outcome> =
            group.run(300 * SECOND).into_iter().map(|(_, outcome)| outcome).collect();
        assert_eq!(outcomes.len(), world);
        mean_error(outcomes, &(0..world).flat_map(shard).collect::<Vec<f32>>())
    };
    let (two, six) = (error(2), error(6));
    assert!(two > 1e-3 && six < 1.25 * two, "{six} where two ranks err by {two}");
}

#[test]
fn what_is_exact_has_no_deadline_and_consistent_replicas_no_ring() {
    let mut group = Group::new(2, Faults::NONE, 1, BOUNDED, 12);
    let tensor = || Collective::AllReduce { tensor: Memory::from_vec(vec![1.0_f32; 100]) };
    let exact = Options { exact: true, ..until(1) };
    assert_eq!(group.start(0, 0, tensor(), &exact), Err(StartError::ExactDeadline { number: 0 }));
    let ring = Options { algorithm: Algorithm::Ring, replicas: Replicas::Consistent, ..Options::default() };
    let refused = StartError::Algorithm { number: 0, algorithm: Algorithm::Ring };
    assert_eq!(group.start(0, 0, tensor(), &ring), Err(refused));
    assert!(group.is_quiet());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn whatever_the_network_does_every_rank_has_a_result_at_the_deadline(
        faults in Faults::HARSH.any_up_to(), world in 1_u16..6, length in 0_usize..20_000, seed: u64, deadline_ns in 1_u64..20_000_000,
        algorithm in prop_oneof![Just(Algorithm::Direct), Just(Algorithm::Ring), Just(Algorithm::TwoLevel)],
        hosts in prop::collection::vec(0_u32..3, 0..7),
    ) {
        let mut group = Group::new(world, faults, seed, BOUNDED, 10).on_hosts(&hosts);
        let options = Options { algorithm, ..until(deadline_ns) };
        for outcome in reduce(&mut group, 0, length, seed, &options) {
            prop_assert_eq!(outcome.result, Ok(()));
            prop_assert!(outcome.duration_ns <= deadline_ns);
        }
    }

    #[test]
    fn losses_stay_within_the_bound_whatever_the_way(
        faults in Faults::HARSH.any_up_to(), world in 2_u16..5, seed: u64, loss in 0.0_f32..0.3, hosts in prop::collection::vec(0_u32..3, 0..7),
        algorithm in prop_oneof![Just(Algorithm::Ring), Just(Algorithm::TwoLevel)],
    ) {
        let mut group = Group::new(world, faults, seed, Reliability::Bounded { loss }, 10).on_hosts(&hosts);
        let options = Options { algorithm, ..Options::default() };
        for outcome in reduce(&mut group, 0, 8_000, seed, &options) {
            prop_assert_eq!(outcome.result, Ok(()));
            prop_assert!(outcome.stats.missing as f64 <= f64::from(loss) * outcome.stats.packets as f64);
        }
    }
}
