// SPDX-License-Identifier: Apache-2.0
//! Promises of all collectives, over a network that misbehaves: against sums made in f64, and
//! against the bits that were given.

use crate::group::Group;
use crate::network::{Faults, Random};
use half::{bf16, f16};
use proptest::prelude::*;
use std::sync::mpsc;
use trimwire_agent::collective::{
    Algorithm, Collective, ElementType, Memory, Options, Outcome, Replicas, Task, shard_range,
};
use trimwire_agent::endpoint::Reliability;
use trimwire_encoder::{PLANES, nmse};

const SECOND: u64 = 1_000_000_000;

/// Of which everything is sent again that was trimmed: of these, results do not depend on the
/// network.
fn full(change: impl Fn(&mut Options)) -> Options {
    let mut options = Options { reliability: Some(Reliability::Full), ..Options::default() };
    change(&mut options);
    options
}

/// A tensor in a format, and its values as they are in it.
fn tensor(element: ElementType, values: &[f32]) -> (Memory, Vec<f32>) {
    let memory = match element {
        ElementType::F32 => Memory::from_vec(values.to_vec()),
        ElementType::F16 => Memory::from_vec(values.iter().map(|&v| f16::from_f32(v)).collect()),
        ElementType::Bf16 => Memory::from_vec(values.iter().map(|&v| bf16::from_f32(v)).collect()),
    };
    let rounded = memory.to_f32();
    (memory, rounded)
}

fn values(rank: usize, length: usize, seed: u64) -> Vec<f32> {
    Random(seed ^ (rank as u64) << 40).gradient(length)
}

fn sum(parts: &[Vec<f32>]) -> Vec<f32> {
    let length = parts.first().map_or(0, Vec::len);
    (0..length).map(|i| parts.iter().map(|part| f64::from(part[i])).sum::<f64>() as f32).collect()
}

/// One operation at all ranks: what each of them has in the end, by rank, as f32.
fn all(group: &mut Group, number: u32, options: &Options, at: impl Fn(usize) -> Collective) -> Vec<Vec<f32>> {
    let world = group.communicators.len();
    for rank in 0..world {
        group.start(rank, number, at(rank), options).expect("a valid operation");
    }
    let until_ns = group.network.now_ns + 300 * SECOND;
    let mut outcomes = group.run(until_ns);
    outcomes.sort_by_key(|(rank, _)| *rank);
    assert!(outcomes.iter().map(|(rank, _)| *rank).eq(0..world), "every rank once: {outcomes:?}");
    assert!(group.is_quiet(), "something goes on");
    let output = |outcome: Outcome| {
        outcome.result.expect("it succeeds");
        outcome.output.map(|memory| memory.to_f32()).unwrap_or_default()
    };
    outcomes.into_iter().map(|(_, outcome)| output(outcome)).collect()
}

fn element() -> impl Strategy<Value = ElementType> {
    prop_oneof![Just(ElementType::F32), Just(ElementType::F16), Just(ElementType::Bf16)]
}

/// Ways to go, and which ranks are on one host.
fn ways() -> impl Strategy<Value = (Algorithm, Vec<u32>)> {
    let algorithm = prop_oneof![
        Just(Algorithm::Automatic),
        Just(Algorithm::Direct),
        Just(Algorithm::Ring),
        Just(Algorithm::TwoLevel)
    ];
    (algorithm, prop::collection::vec(0_u32..3, 0..7))
}

/// NMSE of sums that are rounded to a format, with room for what ten planes leave of f32.
fn rounding(element: ElementType) -> f64 {
    match element {
        ElementType::F32 => 1e-12,
        ElementType::F16 => 1e-6,
        ElementType::Bf16 => 4e-5,
    }
}

/// What is compared: everything is 0 where it is 0.
fn error(got: &[f32], expected: &[f32]) -> f64 {
    assert_eq!(got.len(), expected.len());
    if got == expected { 0.0 } else { nmse(got, expected) }
}

#[test]
fn exact_elements_of_16_bits_travel_as_they_are_in_two_bytes_each() {
    const LENGTH: usize = 100_001;
    let bits: Vec<u16> =
        (0..LENGTH).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[1].into()).collect();
    // Every bit pattern, NaNs among them.
    let of = |rank: usize| -> Vec<f16> {
        (0..LENGTH).map(|i| f16::from_bits((bits[i] << 8 | i as u16).rotate_left(rank as u32))).collect()
    };
    let options = Options { exact: true, ..Options::default() };
    for number in 0..2 {
        let mut group = Group::new(2, Faults::NONE, 1, Reliability::Full, 12);
        for rank in 0..2 {
            let collective = if number == 0 {
                Collective::AllGather {
                    input: Memory::from_vec(of(rank)[shard_range(LENGTH, 2, rank as u16)].to_vec()),
                    output: Memory::from_vec(vec![f16::ZERO; LENGTH]),
                }
            } else {
                Collective::Broadcast { tensor: Memory::from_vec(of(rank)), root: 0 }
            };
            group.start(rank, 0, collective, &options).expect("valid");
        }
        let expected: Vec<f16> = if number == 0 {
            (0..2).flat_map(|rank| of(rank)[shard_range(LENGTH, 2, rank as u16)].to_vec()).collect()
        } else {
            of(0)
        };
        for (rank, outcome) in group.run(10 * SECOND) {
            outcome.result.expect("it succeeds");
            let parts = if number == 0 { LENGTH } else { 2 * LENGTH * rank };
            // Two bytes an element, and some two percent for headers.
            let most = (parts as f64 * 1.03) as u64;
            assert!(outcome.stats.bytes_received <= most, "{} of {most} bytes", outcome.stats.bytes_received);
            let got = outcome.output.expect("memory").into_vec::<f16>().expect("of its type");
            assert!(got.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits()), "rank {rank}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn sums_reach_whom_they_should_in_every_format(
        faults in Faults::ADVERSARY.any_up_to(), world in 1_u16..6, length in 0_usize..5_000, seed: u64, element in element(), average: bool,
        exact: bool, root in 0_u16..6, (algorithm, hosts) in ways(),
    ) {
        let options = full(|options| (options.average, options.exact, options.algorithm) = (average, exact, algorithm));
        let parts: Vec<Vec<f32>> =
            (0..usize::from(world)).map(|rank| tensor(element, &values(rank, length, seed)).1).collect();
        let scale = if average { f32::from(world) } else { 1.0 };
        let expected: Vec<f32> = sum(&parts).iter().map(|sum| sum / scale).collect();
        let part = |rank: usize| tensor(element, &parts[rank]).0;
        let most = rounding(element);
        let mut group = Group::new(world, faults, seed, Reliability::Full, 10).on_hosts(&hosts);

        let everywhere = all(&mut group, 0, &options, |rank| Collective::AllReduce { tensor: part(rank) });
        for got in &everywhere {
            prop_assert!(error(got, &expected) <= most, "all-reduce: {}", error(got, &expected));
            prop_assert!(got == &everywhere[0], "the same bits everywhere");
        }
        let shards = all(&mut group, 1, &options, |rank| Collective::ReduceScatter {
            input: part(rank),
            output: tensor(element, &vec![7.0; shard_range(length, world, rank as u16).len()]).0,
        });
        for (rank, got) in shards.iter().enumerate() {
            let range = shard_range(length, world, rank as u16);
            prop_assert!(error(got, &expected[range]) <= most, "reduce-scatter");
        }
        let root = root % world;
        let reduced = all(&mut group, 2, &options, |rank| Collective::Reduce { tensor: part(rank), root });
        for (rank, got) in reduced.iter().enumerate() {
            let expected = if rank == usize::from(root) { &expected } else { &parts[rank] };
            prop_assert!(error(got, expected) <= most, "reduce");
        }
        let servers: Vec<u16> = (0..world).filter(|rank| rank % 3 == 1).collect();
        if !servers.is_empty() {
            let works = |rank: usize| !servers.contains(&(rank as u16));
            let of_workers: Vec<_> = parts.iter().enumerate().filter(|(rank, _)| works(*rank)).map(|(_, part)| part.clone()).collect();
            let scale = if average { of_workers.len() as f32 } else { 1.0 };
            let expected: Vec<f32> = sum(&of_workers).iter().map(|sum| sum / scale).collect();
            let pulled = all(&mut group, 3, &options, |rank| Collective::PushPull {
                tensor: works(rank).then(|| part(rank)),
                length,
                servers: servers.clone(),
            });
            for (rank, got) in pulled.iter().enumerate() {
                if works(rank) {
                    prop_assert!(error(got, &expected) <= most, "parameter servers");
                } else {
                    prop_assert!(got.is_empty());
                }
            }
        }
    }

    #[test]
    fn exact_operations_move_every_bit_whatever_it_means(
        faults in Faults::ADVERSARY.any_up_to(), world in 1_u16..6, seed: u64, root in 0_u16..6, bits in prop::collection::vec(any::<u32>(), 0..4_000), sealed: bool, (algorithm, hosts) in ways(),
    ) {
        let options = Options { exact: true, algorithm, ..Options::default() };
        let of = |rank: usize| -> Vec<f32> { bits.iter().map(|&word| f32::from_bits(word.rotate_left(rank as u32))).collect() };
        let same = |got: &[f32], expected: &[f32]| {
            got.len() == expected.len() && got.iter().zip(expected).all(|(a, b)| a.to_bits() == b.to_bits())
        };
        let mut group = if sealed {
            Group::sealed(world, faults, seed)
        } else {
            Group::new(world, faults, seed, Reliability::Bounded { loss: 0.1 }, 10)
        };
        group = group.on_hosts(&hosts);
        let root = root % world;
        let everywhere = all(&mut group, 0, &options, |rank| Collective::Broadcast { tensor: Memory::from_vec(of(rank)), root });
        prop_assert!(everywhere.iter().all(|got| same(got, &of(usize::from(root)))));
        let all_of_them: Vec<f32> = (0..usize::from(world))
            .flat_map(|rank| of(rank)[shard_range(bits.len(), world, rank as u16)].to_vec())
            .collect();
        let everywhere = all(&mut group, 1, &options, |rank| Collective::AllGather {
            input: Memory::from_vec(of(rank)[shard_range(bits.len(), world, rank as u16)].to_vec()),
            output: Memory::from_vec(vec![0.0_f32; bits.len()]),
        });
        prop_assert!(everywhere.iter().all(|got| same(got, &all_of_them)));
    }

    #[test]
    fn gradients_gathered_broadcast_or_summed_are_the_same_bits_everywhere_where_nothing_stays_trimmed(
        faults in Faults::ADVERSARY.any_up_to(), world in 2_u16..6, length in 1_usize..6_000, seed: u64, planes in 1_u8..=PLANES, consistent: bool, sealed: bool,
        (algorithm, hosts) in ways(),
    ) {
        let options = full(|options| {
            options.planes = planes;
            (options.replicas, options.algorithm) =
                if consistent { (Replicas::Consistent, Algorithm::Direct) } else { (Replicas::Free, algorithm) };
        });
        let group = if sealed { Group::sealed(world, faults, seed) } else { Group::new(world, faults, seed, Reliability::Full, 10) };
        let mut group = group.on_hosts(&hosts);
        let gathered = all(&mut group, 0, &options, |rank| Collective::AllGather {
            input: Memory::from_vec(values(rank, shard_range(length, world, rank as u16).len(), seed)),
            output: Memory::from_vec(vec![0.0_f32; length]),
        });
        let broadcast = all(&mut group, 1, &options, |rank| Collective::Broadcast {
            tensor: Memory::from_vec(values(rank, length, seed)),
            root: 1,
        });
        let summed = all(&mut group, 2, &options, |rank| Collective::AllReduce { tensor: Memory::from_vec(values(rank, length, seed)) });
        for results in [gathered, broadcast, summed] {
            for got in &results {
                let differ = got.iter().zip(&results[0]).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
                prop_assert_eq!(differ, 0);
            }
        }
    }

    #[test]
    fn cancelled_operations_give_their_memory_back_and_the_next_ones_go_through(
        faults in Faults::ADVERSARY.any_up_to(), world in 2_u16..5, seed: u64, by: u8, wait_ns in 0_u64..400_000,
    ) {
        let options = full(|_| ());
        let mut group = Group::new(world, faults, seed, Reliability::Full, 10);
        let by = usize::from(by) % usize::from(world);
        for rank in 0..usize::from(world) {
            let tensor = Memory::from_vec(values(rank, 9_000, seed));
            group.start(rank, 0, Collective::Broadcast { tensor, root: 0 }, &options).expect("valid");
        }
        let until_ns = group.network.now_ns + wait_ns;
        let mut outcomes = group.run(until_ns);
        let cancelled = group.cancel(by, 0);
        let until_ns = group.network.now_ns + 60 * SECOND;
        outcomes.extend(group.run(until_ns));
        prop_assert_eq!(outcomes.len(), usize::from(world), "{:?}", outcomes);
        for (rank, outcome) in outcomes {
            let failed = outcome.result.is_err();
            prop_assert!(failed || !(cancelled && rank == by));
            prop_assert_eq!(outcome.into_f32().map(|tensor| tensor.len()), Some(9_000));
        }
        let expected = values(0, 500, seed);
        for got in all(&mut group, 1, &options, |rank| Collective::Broadcast { tensor: Memory::from_vec(values(rank, 500, seed)), root: 0 }) {
            prop_assert!(nmse(&got, &expected) < 1e-12);
        }
    }
}

/// Runs all ranks' operations in one thread, but their tasks in `threads` others, in whatever order
/// these finish.
fn with_threads(threads: usize, seed: u64) -> Vec<Vec<u32>> {
    let mut group = Group::new(3, Faults::NONE, 1, Reliability::Full, 12);
    for rank in 0..3 {
        let tensor = Memory::from_vec(values(rank, 200_000, seed));
        let options = full(|options| options.planes = 9);
        group.start(rank, 0, Collective::AllReduce { tensor }, &options).expect("valid");
    }
    let (done_in, done_out) = mpsc::channel();
    let mut results = vec![Vec::new(); 3];
    std::thread::scope(|scope| {
        let tasks: Vec<mpsc::Sender<(usize, Task)>> = (0..threads)
            .map(|_| {
                let (tasks_in, tasks_out) = mpsc::channel::<(usize, Task)>();
                let done_in = done_in.clone();
                scope.spawn(move || {
                    for (rank, task) in tasks_out {
                        done_in.send((rank, task.run())).expect("the test goes on");
                    }
                });
                tasks_in
            })
            .collect();
        let Group { network, communicators } = &mut group;
        let (mut next, mut out) = (0, 0);
        while results.iter().any(Vec::is_empty) {
            network.run_with(
                network.now_ns + 10_000,
                |network, rank, event| {
                    let endpoint = &mut network.endpoints[rank];
                    communicators[rank].handle_event(network.now_ns, event, endpoint);
                },
                |_, _| false,
            );
            for (rank, communicator) in communicators.iter_mut().enumerate() {
                while let Some(task) = communicator.poll_task(&network.endpoints[rank]) {
                    tasks[next % threads].send((rank, task)).expect("threads run");
                    (next, out) = (next + 1, out + 1);
                }
            }
            // Some are back, others are still being worked on while the network goes on.
            while out > 0
                && let Ok((rank, done)) = done_out.recv()
            {
                out -= 1;
                communicators[rank].complete(network.now_ns, done, &mut network.endpoints[rank]);
                if out < threads {
                    break;
                }
            }
            for (rank, communicator) in communicators.iter_mut().enumerate() {
                let endpoint = &mut network.endpoints[rank];
                let Some(outcome) = communicator.poll_outcome(network.now_ns, endpoint) else { continue };
                outcome.result.expect("it succeeds");
                let sum = outcome.into_f32().expect("a vector");
                results[rank] = sum.iter().map(|value| value.to_bits()).collect();
            }
        }
    });
    results
}

#[test]
fn tasks_that_other_threads_do_in_any_order_give_the_same_bits() {
    let mut group = Group::new(3, Faults::NONE, 1, Reliability::Full, 12);
    let options = full(|options| options.planes = 9);
    let inline = all(&mut group, 0, &options, |rank| Collective::AllReduce {
        tensor: Memory::from_vec(values(rank, 200_000, 5)),
    });
    let inline: Vec<Vec<u32>> =
        inline.iter().map(|values| values.iter().map(|value| value.to_bits()).collect()).collect();
    for threads in [1, 2, 5] {
        assert!(with_threads(threads, 5) == inline, "{threads} threads");
    }
}
