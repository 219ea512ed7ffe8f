// SPDX-License-Identifier: Apache-2.0
//! Promises of the all-reduce, over a network that misbehaves.

use crate::group::Group;
use crate::network;
use crate::network::{Faults, Network, PLANE_BYTES, Random};
use proptest::prelude::*;
use std::collections::BTreeMap;
use trimwire_agent::collective;
use trimwire_agent::collective::{
    Collective, Communicator, CommunicatorConfig, Memory, MessageId, OperationError, Options, Phase,
    Replicas, StartError, shard_range,
};
use trimwire_agent::endpoint::{Endpoint, EndpointConfig, Reliability};
use trimwire_agent::transfer::TransferError;
use trimwire_encoder::{Codec, DEFAULT_COORDINATES_PER_PACKET, Decoding, HEADER_LEN, PLANES, nmse};

const SECOND: u64 = 1_000_000_000;

/// What a rank has of a sum.
#[derive(Debug)]
struct Outcome {
    number: u32,
    sum: Vec<f32>,
    stats: trimwire_agent::collective::OutcomeStats,
}

struct Job {
    group: Group,
    options: Options,
}

impl Job {
    fn new(
        world: u16,
        faults: Faults,
        seed: u64,
        reliability: Reliability,
        change: impl Fn(&mut Options),
    ) -> Self {
        Self::with_rows(10, world, faults, seed, reliability, change)
    }

    fn with_rows(
        row_log2: u8,
        world: u16,
        faults: Faults,
        seed: u64,
        reliability: Reliability,
        change: impl Fn(&mut Options),
    ) -> Self {
        let mut options =
            Options { coordinates_per_packet: Some(DEFAULT_COORDINATES_PER_PACKET), ..Options::default() };
        change(&mut options);
        Self { group: Group::new(world, faults, seed, reliability, row_log2), options }
    }

    fn try_start(&mut self, rank: usize, number: u32, gradient: &[f32]) -> Result<(), StartError> {
        let tensor = Memory::from_vec(gradient.to_vec());
        self.group.start(rank, number, Collective::AllReduce { tensor }, &self.options)
    }

    fn start(&mut self, rank: usize, number: u32, gradient: &[f32]) {
        self.try_start(rank, number, gradient).expect("a valid operation");
    }

    /// Runs until nothing happens any more; gives (rank, outcome or error) in the order in which
    /// they came.
    fn run(&mut self, until_ns: u64) -> Vec<(usize, Result<Outcome, OperationError>)> {
        let result = |outcome: collective::Outcome| {
            let (number, stats) = (outcome.number, outcome.stats);
            outcome.result.map(|()| {
                let sum = outcome.into_f32().expect("a vector, which nobody uses any more");
                Outcome { number, sum, stats }
            })
        };
        self.group.run(until_ns).into_iter().map(|(rank, outcome)| (rank, result(outcome))).collect()
    }

    /// One step on all ranks; sums by rank.
    fn reduce(&mut self, step: u32, gradients: &[Vec<f32>]) -> Vec<Outcome> {
        for (rank, gradient) in gradients.iter().enumerate() {
            self.start(rank, step, gradient);
        }
        let until_ns = self.group.network.now_ns + 300 * SECOND;
        let mut outcomes: Vec<_> = self
            .run(until_ns)
            .into_iter()
            .map(|(rank, result)| (rank, result.expect("no failure")))
            .collect();
        outcomes.sort_by_key(|(rank, _)| *rank);
        assert!(outcomes.iter().map(|(rank, _)| *rank).eq(0..gradients.len()), "every rank once");
        assert!(outcomes.iter().all(|(_, outcome)| outcome.number == step));
        let quiet = self.group.network.endpoints.iter().all(|endpoint| endpoint.poll_timeout().is_none());
        assert!(quiet, "something goes on after step {step}");
        outcomes.into_iter().map(|(_, outcome)| outcome).collect()
    }
}

fn gradients(world: u16, length: usize, seed: u64) -> Vec<Vec<f32>> {
    (0..world).map(|rank| Random(seed ^ u64::from(rank) << 40).gradient(length)).collect()
}

/// The sum in the order of the ranks, in f64.
fn exact(gradients: &[Vec<f32>]) -> Vec<f32> {
    (0..gradients[0].len()).map(|i| gradients.iter().map(|g| f64::from(g[i])).sum::<f64>() as f32).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn on_a_quiet_network_the_sum_is_exact_whatever_the_world_and_length(world in 2_u16..7, length in 1_usize..9_000, seed: u64) {
        let gradients = gradients(world, length, seed);
        let mut job = Job::new(world, Faults::NONE, seed, Reliability::Bounded { loss: 0.01 }, |_| ());
        // Of what was added up: a short sum may happen to be next to nothing.
        let energy: f64 = gradients.iter().flatten().map(|&x| f64::from(x).powi(2)).sum();
        for outcome in job.reduce(0, &gradients) {
            let errors = outcome.sum.iter().zip(exact(&gradients)).map(|(&x, y)| (f64::from(x) - f64::from(y)).powi(2));
            prop_assert!(errors.sum::<f64>() < 1e-12 * energy);
            prop_assert_eq!((outcome.stats.trimmed, outcome.stats.missing, outcome.stats.repaired), (0, 0, 0));
            prop_assert_eq!(outcome.stats.full, outcome.stats.packets);
        }
    }

    #[test]
    fn full_reliability_gives_the_same_bits_as_a_quiet_network(faults in Faults::HARSH.any_up_to(), world in 2_u16..5, length in 1_usize..4_000, seed: u64) {
        let gradients = gradients(world, length, seed);
        let sums = |faults| {
            let mut job = Job::new(world, faults, seed, Reliability::Full, |_| ());
            job.reduce(3, &gradients).into_iter().map(|outcome| outcome.sum).collect::<Vec<_>>()
        };
        let quiet = sums(Faults::NONE);
        prop_assert!(nmse(&quiet[0], &exact(&gradients)) < 1e-12);
        prop_assert!(sums(faults) == quiet);
    }

    #[test]
    fn consistent_replicas_are_bit_identical_under_any_adversary(
        faults in Faults::HARSH.any_up_to(), world in 2_u16..6, length in 1_usize..6_000, seed: u64, loss in 0.0_f32..0.2, planes in 1_u8..=PLANES,
        decoding in prop_oneof![Just(Decoding::Unbiased), Just(Decoding::Mmse), Just(Decoding::Paper)],
    ) {
        let gradients = gradients(world, length, seed);
        let mut job = Job::new(world, faults, seed, Reliability::Bounded { loss }, |config| {
            config.replicas = Replicas::Consistent;
            config.planes = planes;
            config.decoding = decoding;
        });
        let bits = |outcome: &Outcome| outcome.sum.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        let outcomes = job.reduce(0, &gradients);
        for outcome in &outcomes {
            let differ = bits(outcome).iter().zip(&bits(&outcomes[0])).filter(|(a, b)| a != b).count();
            prop_assert_eq!(differ, 0, "of {} coordinates", outcome.sum.len());
        }
        prop_assert!(job.group.communicators.iter().all(|c| c.active().count() == 0));
    }

    #[test]
    fn losses_stay_within_the_bound_at_every_rank(faults in Faults::HARSH.any_up_to(), world in 2_u16..5, seed: u64, loss in 0.0_f32..0.3) {
        let mut job = Job::new(world, faults, seed, Reliability::Bounded { loss }, |_| ());
        for outcome in job.reduce(0, &gradients(world, 8_000, seed)) {
            prop_assert!(outcome.stats.missing as f64 <= f64::from(loss) * outcome.stats.packets as f64);
        }
    }
}

#[test]
fn trims_cost_what_the_closed_form_says() {
    // Every packet loses all but its first four planes, in both phases: the sum of 4 contributions
    // errs by D_4/(1 − D_4) of the three contributions that travelled, and once more of the whole
    // in the all-gather for the shards that did.
    let faults = Faults { trim: 1.0, trim_to_at_least: HEADER_LEN + 4 * PLANE_BYTES, ..Faults::NONE };
    let mut job = Job::with_rows(13, 4, faults, 5, Reliability::Bounded { loss: 0.0 }, |_| ());
    let four = |from: usize, datagram: &network::Datagram, _| {
        assert!(from < 4 && !datagram.payload.is_empty());
        false
    };
    job.group.network.script = Some(four);
    let gradients = gradients(4, 1 << 17, 5);
    let outcomes = job.reduce(0, &gradients);
    let sum = exact(&gradients);
    for outcome in &outcomes {
        let error = nmse(&outcome.sum, &sum);
        // Trims are uniform between four planes and all of ten: the mean of the squared error lies
        // between those of five and of eight.
        assert!(error > 1e-5 && error < 5e-3, "{error}");
        assert_eq!(outcome.stats.missing, 0);
    }
    // The owner of a shard has all of what it sent (free replicas): its error comes from the
    // reduce-scatter alone.
    let own = shard_range(sum.len(), 4, 0);
    let (here, there) = (&outcomes[0].sum[own.clone()], &outcomes[1].sum[own.clone()]);
    assert!(nmse(here, &sum[own.clone()]) < nmse(there, &sum[own]));
}

#[test]
fn a_trim_to_one_plane_leaves_the_signs_however_few_planes_are_sent() {
    // Switches trim to sizes in bytes, which a fabric's file gives in planes of packets of the MTU
    // with eight, of 1,376 coordinates.
    let trim_to_at_least = Codec::Rht.packet_len(1, 1_376, false);
    for planes in [10, 9, 8, 6, 1] {
        let faults = Faults { trim: 1.0, trim_to_at_least, ..Faults::NONE };
        let reliability = Reliability::Bounded { loss: 0.0 };
        let mut job = Job::with_rows(13, 3, faults, 8, reliability, |options| {
            *options = Options { planes, ..Options::default() };
        });
        for outcome in job.reduce(0, &gradients(3, 40_000, 8)) {
            assert_eq!((outcome.stats.missing, outcome.stats.repaired), (0, 0), "{planes} planes");
        }
    }
}

/// Packets of nine planes have fewer coordinates than those of eight, these as many as those of
/// three.
#[test]
fn ranks_that_send_other_numbers_of_planes_are_refused_or_have_their_sum() {
    let gradients = gradients(2, 40_000, 3);
    for replicas in [Replicas::Free, Replicas::Consistent] {
        let run = |planes: [u8; 2]| {
            let mut job = Job::with_rows(12, 2, Faults::NONE, 1, Reliability::Full, |_| ());
            for (rank, gradient) in gradients.iter().enumerate() {
                job.options = Options { planes: planes[rank], replicas, ..Options::default() };
                job.start(rank, 4, gradient);
            }
            job.run(60 * SECOND)
        };
        let refused = run([9, 8]);
        assert!(refused.len() == 2 && refused.iter().all(|(_, result)| result.is_err()), "{refused:?}");
        let said = |(_, _, text): &(usize, Option<u16>, String)| {
            text.contains("sends another message") && text.contains("how many planes they send")
        };
        assert!(failures(&refused).iter().any(said), "{refused:?}");
        for (rank, result) in run([8, 3]) {
            let sum = result.unwrap_or_else(|error| panic!("{replicas:?}, rank {rank}: {error}")).sum;
            // Three planes' error is 0.037 of a gradient's energy, or of a sum's.
            let error = nmse(&sum, &exact(&gradients));
            assert!((1e-3..0.06).contains(&error), "{replicas:?}, rank {rank}: {error:e}");
        }
    }
}

#[test]
fn with_nothing_trimmed_all_ranks_have_the_same_bits() {
    for replicas in [Replicas::Free, Replicas::Consistent] {
        for decoding in [Decoding::Unbiased, Decoding::Mmse, Decoding::Paper] {
            for planes in [10, 9, 4, 1] {
                let faults = Faults { jitter_ns: 30_000, ..Faults::NONE };
                let mut job = Job::new(3, faults, 1, Reliability::Full, |config| {
                    config.replicas = replicas;
                    config.decoding = decoding;
                    config.planes = planes;
                });
                let outcomes = job.reduce(0, &gradients(3, 10_000, 1));
                let bits = |outcome: &Outcome| outcome.sum.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                for outcome in &outcomes[1..] {
                    assert!(
                        bits(outcome) == bits(&outcomes[0]),
                        "{replicas:?}, {decoding:?}, {planes} planes"
                    );
                }
            }
        }
    }
}

/// Questions overtake data in queues, so their answers speak of packets on their way. What is asked
/// next must not wait for a time-out, which here is 1 ms.
#[test]
fn consistent_replicas_take_a_few_round_trips_and_no_timeout() {
    for seed in 0..20 {
        let faults = Faults { data_delay_ns: 40_000, trim: 0.4, trim_to_at_least: 600, ..Faults::NONE };
        let mut job = Job::new(4, faults, seed, Reliability::Full, |config| {
            config.replicas = Replicas::Consistent;
        });
        for (rank, gradient) in gradients(4, 20_000, seed).iter().enumerate() {
            job.start(rank, 0, gradient);
        }
        let outcomes = job.run(900_000);
        assert_eq!(outcomes.len(), 4, "seed {seed}");
        let fetched: u64 =
            outcomes.iter().map(|(_, outcome)| outcome.as_ref().expect("no failure").stats.repaired).sum();
        assert!(fetched > 0, "seed {seed}: something was trimmed that others have");
    }
}

/// The importance of a step's rows on the wire, by phase and shard; `packets` are those of a row.
fn importance(network: &Network, step: u32, packets: u32) -> BTreeMap<(Phase, u16), Vec<bool>> {
    let mut rows: BTreeMap<_, BTreeMap<u32, bool>> = BTreeMap::new();
    for header in network.log.iter().filter_map(|(.., datagram)| datagram.header().ok()) {
        let id = MessageId::from_u32(header.prefix.message);
        if id.number == step {
            let important = header.prefix.important;
            let before =
                rows.entry((id.phase, id.shard)).or_default().insert(header.index / packets, important);
            assert!(before.is_none_or(|before| before == important), "all of a row, or nothing");
        }
    }
    rows.into_iter().map(|(message, rows)| (message, rows.into_values().collect())).collect()
}

#[test]
fn rows_are_important_that_were_worth_the_median_of_their_message_one_step_ago() {
    // Shards of four rows, of 1024 coordinates in three packets, as large on both ranks.
    let mut job = Job::new(2, Faults::NONE, 1, Reliability::Full, |_| ());
    job.group.network.keep_log = true;
    let scaled = |sizes: [f32; 4]| {
        let mut gradients = gradients(2, 8 * 1_024, 1);
        for (i, value) in gradients.iter_mut().flat_map(|gradient| gradient.iter_mut().enumerate()) {
            *value *= sizes[i / 1_024 % 4];
        }
        gradients
    };
    job.reduce(0, &scaled([1.0, 2.0, 4.0, 8.0]));
    // As large as the third of four, 4, and then 6.
    job.reduce(1, &scaled([16.0, 6.0, 2.0, 1.0]));
    job.reduce(2, &scaled([1.0, 4.0, 8.0, 7.0]));
    // Another gradient: nothing is known of it.
    job.reduce(3, &gradients(2, 4 * 1_024, 1));
    let expected = |rows: &[bool]| {
        let messages =
            [Phase::ReduceScatter, Phase::AllGather].map(|phase| [0, 1].map(|shard| (phase, shard)));
        messages.into_iter().flatten().map(|message| (message, rows.to_vec())).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(importance(&job.group.network, 0, 3), expected(&[true; 4]), "the first step");
    assert_eq!(importance(&job.group.network, 1, 3), expected(&[true, true, false, false]));
    assert_eq!(importance(&job.group.network, 2, 3), expected(&[false, false, true, true]));
    assert_eq!(importance(&job.group.network, 3, 3), expected(&[true; 2]));
}

#[test]
fn steps_may_overlap() {
    let mut job = Job::new(3, Faults { jitter_ns: 40_000, ..Faults::NONE }, 1, Reliability::Full, |_| ());
    let first = gradients(3, 5_000, 1);
    let second = gradients(3, 7_000, 2);
    // Rank 2 is late: the others' data of both steps waits for it.
    for (step, gradients) in [(0, &first), (1, &second)] {
        for (rank, gradient) in gradients.iter().enumerate().take(2) {
            job.start(rank, step, gradient);
        }
    }
    assert!(job.run(SECOND).is_empty());
    job.start(2, 0, &first[2]);
    job.start(2, 1, &second[2]);
    let results = job.run(2 * SECOND);
    assert_eq!(results.len(), 6);
    for (_, result) in results {
        let outcome = result.expect("no failure");
        let expected = exact(if outcome.number == 0 { &first } else { &second });
        assert!(nmse(&outcome.sum, &expected) < 1e-12);
    }
}

#[test]
fn a_lone_rank_has_its_sum_at_once() {
    let mut job = Job::new(1, Faults::NONE, 1, Reliability::Full, |_| ());
    job.start(0, 9, &[1.0, 2.0]);
    let results = job.run(0);
    let [(0, Ok(outcome))] = &results[..] else { panic!("{results:?}") };
    assert_eq!((outcome.number, &outcome.sum[..]), (9, &[1.0, 2.0][..]));
}

#[test]
fn steps_wrap_around() {
    let mut job = Job::new(2, Faults::NONE, 1, Reliability::Full, |_| ());
    for step in [
        0,
        1,
        (1 << 20) - 1,
        (1 << 21) - 3,
        (1 << 21) - 1,
        1 << 21,
        (1 << 21) + 9,
        3 << 20,
        u32::MAX - 5,
        u32::MAX,
        0,
        7,
    ] {
        let gradients = gradients(2, 900, u64::from(step));
        assert!(nmse(&job.reduce(step, &gradients)[1].sum, &exact(&gradients)) < 1e-12);
    }
}

#[test]
fn a_rank_that_vanishes_fails_the_step_and_is_named() {
    let mut job = Job::new(3, Faults::NONE, 1, Reliability::Full, |_| ());
    let gradients = gradients(3, 30_000, 1);
    for (rank, gradient) in gradients.iter().enumerate() {
        job.start(rank, 4, gradient);
    }
    assert!(job.run(10_000).is_empty());
    job.group.network.dead[2] = true;
    let results = job.run(400 * SECOND);
    let texts: Vec<String> =
        results.iter().map(|(rank, r)| format!("{rank}: {}", r.as_ref().expect_err("failed"))).collect();
    assert_eq!(texts.len(), 3, "{texts:?}");
    for text in texts.iter().filter(|text| !text.starts_with('2')) {
        // Found out alone, or heard from the rank that was first to.
        let found = text.contains("operation 4, reduce-scatter of shard 2: rank 2 has not answered");
        let heard = text.contains("operation 4, ") && text.contains("because of rank 2");
        assert!(found || heard, "{text}");
    }
    assert!(job.group.communicators.iter().all(|c| c.active().count() == 0));
    assert!(
        job.group.network.endpoints.iter().all(|e| e.poll_timeout().is_none()),
        "nothing goes on for a failed step"
    );
}

#[test]
fn a_gradient_that_overflowed_on_one_rank_is_not_finite_on_any() {
    // As after an exact all-reduce: gradient scalers of mixed-precision training then skip the step
    // on every rank.
    let mut job = Job::new(3, Faults::NONE, 1, Reliability::Full, |_| ());
    let mut gradients = gradients(3, 9_000, 1);
    gradients[1][4_000] = f32::INFINITY;
    for (rank, gradient) in gradients.iter().enumerate() {
        job.start(rank, 4, gradient);
    }
    let results = job.run(400 * SECOND);
    assert_eq!(results.len(), 3);
    for (rank, result) in results {
        let sum = &result.as_ref().expect("the step goes through").sum;
        assert!(!sum[4_000].is_finite(), "rank {rank}");
        assert!(sum[..2_000].iter().all(|v| v.is_finite()), "rank {rank}: other shards are unharmed");
    }
}

#[test]
fn operations_that_cannot_start_say_why_and_leave_nothing_behind() {
    let mut endpoint = Endpoint::new(EndpointConfig::new(0, 2, 1_000_000_000));
    let memory = |length| Memory::from_vec(vec![1.0_f32; length]);
    let start = |communicator: &mut Communicator, number, collective, endpoint: &mut Endpoint| {
        communicator.start(0, number, collective, Options::default(), endpoint)
    };
    let mut text = |world, collective| {
        let mut communicator = Communicator::new(CommunicatorConfig::new(0, world));
        start(&mut communicator, 6, collective, &mut endpoint).expect_err("invalid").to_string()
    };
    assert_eq!(
        text(3, Collective::AllReduce { tensor: memory(1) }),
        "the communicator is rank 0 of 3, its endpoint rank 0 of 2"
    );
    assert_eq!(
        text(2, Collective::ReduceScatter { input: memory(9), output: memory(4) }),
        "operation 6: the output has 4 elements, and has to have 5 for 2 ranks"
    );
    let output = Memory::from_vec(vec![half::f16::ONE; 9]);
    assert_eq!(
        text(2, Collective::AllGather { input: memory(5), output }),
        "operation 6: the input is f32, the output f16; they have to be of one type"
    );
    assert_eq!(
        text(2, Collective::Broadcast { tensor: memory(5), root: 2 }),
        "operation 6: there is no rank 2; valid are those below 2"
    );
    assert_eq!(
        text(2, Collective::PushPull { tensor: Some(memory(5)), length: 5, servers: Vec::new() }),
        "operation 6: there are no servers; a push-pull needs at least one"
    );
    assert!(endpoint.poll_transmit(0).is_none() && endpoint.poll_timeout().is_none());
    let mut communicator = Communicator::new(CommunicatorConfig::new(0, 2));
    let mut start =
        |number| start(&mut communicator, number, Collective::AllReduce { tensor: memory(9) }, &mut endpoint);
    assert_eq!(start(6), Ok(()));
    for number in [6, 5] {
        let again = start(number);
        assert!(matches!(again, Err(StartError::Order { last: 6, .. })), "{again:?}");
    }
}

#[test]
fn a_rank_that_has_retired_an_agreed_step_still_confirms_it() {
    // The last confirmations are lost on their way to a rank whose peers have gone on.
    let faults = Faults { jitter_ns: 30_000, drop_control: 0.5, ..Faults::NONE };
    for seed in 0..20 {
        let mut job =
            Job::new(3, faults, seed, Reliability::Full, |config| config.replicas = Replicas::Consistent);
        job.reduce(0, &gradients(3, 10_000, seed));
        assert!(job.group.network.now_ns < 60 * SECOND, "still busy at {} ns", job.group.network.now_ns);
        assert!(job.group.network.endpoints.iter().all(|endpoint| endpoint.poll_timeout().is_none()));
    }
}

/// (rank, culprit, text) of what failed.
fn failures(results: &[(usize, Result<Outcome, OperationError>)]) -> Vec<(usize, Option<u16>, String)> {
    let culprit = |error: &OperationError| match error {
        OperationError::Transfer { reason: TransferError::Aborted { culprit, .. }, .. } => Some(*culprit),
        OperationError::Transfer {
            reason:
                TransferError::Restarted { peer, .. }
                | TransferError::Silent { peer, .. }
                | TransferError::Unanswered { peer, .. },
            ..
        } => Some(*peer),
        _ => None,
    };
    let failed = results.iter().filter_map(|(rank, result)| Some((*rank, result.as_ref().err()?)));
    failed.map(|(rank, error)| (rank, culprit(error), error.to_string())).collect()
}

#[test]
fn a_rank_that_starts_anew_in_the_middle_of_a_step_is_named_and_the_next_step_goes_through() {
    let mut job = Job::new(3, Faults::NONE, 1, Reliability::Full, |_| ());
    let gradients = gradients(3, 60_000, 1);
    for (rank, gradient) in gradients.iter().enumerate() {
        job.start(rank, 4, gradient);
    }
    assert!(job.run(10_000).is_empty());
    let mut config = network::config(2, 3);
    (config.incarnation, config.reliability) = (77, Reliability::Full);
    config.source_ports = (60_000..60_016).collect();
    job.group.network.restart(2, Endpoint::new(config));
    job.group.communicators[2] = Communicator::new(job.group.communicators[2].config().clone());
    let failed = failures(&job.run(SECOND));
    assert!(matches!(failed[..], [(_, Some(2), _), (_, Some(2), _)]), "{failed:?}");
    for outcome in job.reduce(5, &gradients) {
        assert!(nmse(&outcome.sum, &exact(&gradients)) < 1e-12);
    }
}

#[test]
fn a_way_that_fails_in_one_direction_ends_the_step_everywhere_and_names_the_rank() {
    let mut job = Job::new(3, Faults::NONE, 1, Reliability::Full, |_| ());
    for (rank, gradient) in gradients(3, 60_000, 1).iter().enumerate() {
        job.start(rank, 4, gradient);
    }
    assert!(job.run(20_000).is_empty());
    job.group.network.script = Some(|from, datagram, _| from == 0 && datagram.to == 1);
    let results = job.run(60 * SECOND);
    let mut failed = failures(&results);
    failed.sort();
    assert!(matches!(failed[..], [(0, Some(0), _), (1, Some(0), _), (2, Some(0), _)]), "{failed:?}");
    assert!(job.group.network.endpoints.iter().all(|endpoint| endpoint.poll_timeout().is_none()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_cancelled_step_never_enters_the_sum_of_the_next(
        faults in Faults::HARSH.any_up_to(), world in 2_u16..4, seed: u64, consistent: bool,
        tries in prop::collection::vec((0_u64..400_000, any::<u8>(), any::<u8>()), 1..5),
    ) {
        let mut job = Job::new(world, faults, seed, Reliability::Full, |config| {
            config.replicas = if consistent { Replicas::Consistent } else { Replicas::Free };
        });
        let of = |step: u32| gradients(world, 6_000, seed ^ u64::from(step) << 20);
        let check = |rank: usize, outcome: &Outcome| {
            let error = nmse(&outcome.sum, &exact(&of(outcome.number)));
            prop_assert!(error < 1e-12, "step {} at rank {rank}: {error}", outcome.number);
            Ok(())
        };
        for (step, (wait_ns, by, late)) in tries.into_iter().enumerate() {
            let (step, late) = (step as u32, usize::from(late) % usize::from(world));
            let start = |job: &mut Job, rank: usize| {
                // Another rank's ABORT may have come first.
                let _ = job.try_start(rank, step, &of(step)[rank]);
            };
            (0..usize::from(world)).filter(|&rank| rank != late).for_each(|rank| start(&mut job, rank));
            let until_ns = job.group.network.now_ns + wait_ns;
            let mut results = job.run(until_ns);
            start(&mut job, late);
            let until_ns = job.group.network.now_ns + wait_ns;
            results.extend(job.run(until_ns));
            let by = usize::from(by) % usize::from(world);
            job.group.cancel(by, step);
            for (rank, result) in results {
                if let Ok(outcome) = result {
                    check(rank, &outcome)?;
                }
            }
        }
        let until_ns = job.group.network.now_ns + 30 * SECOND;
        for (rank, result) in job.run(until_ns) {
            if let Ok(outcome) = result {
                check(rank, &outcome)?;
            }
        }
        prop_assert!(job.group.communicators.iter().all(|c| c.active().count() == 0), "cancelled everywhere");
        for (rank, outcome) in job.reduce(9, &of(9)).iter().enumerate() {
            check(rank, outcome)?;
        }
    }
}

/// A gradient of an embedding: rows of 64 of which a third was used by no rank, and a third by one
/// rank alone.
fn embedding(rank: usize, step: u64, rows: usize) -> Vec<f32> {
    let dense = Random(step << 20 ^ rank as u64 ^ 0x4d).gradient(64 * rows);
    let used = |row: usize| match row % 3 {
        0 => true,
        1 => rank == 1,
        _ => false,
    };
    dense.into_iter().enumerate().map(|(i, x)| if used(i / 64) { x } else { 0.0 }).collect()
}

/// Adam (Kingma and Ba, 2015), its usual constants; steps of 1e-3.
#[derive(Clone)]
struct Adam {
    weights: Vec<f64>,
    first: Vec<f64>,
    second: Vec<f64>,
}

impl Adam {
    fn new(length: usize) -> Self {
        let zeros = vec![0.0; length];
        Self { weights: zeros.clone(), first: zeros.clone(), second: zeros }
    }

    fn step(&mut self, number: i32, gradient: &[f32]) {
        for (i, g) in gradient.iter().map(|g| f64::from(*g)).enumerate() {
            self.first[i] = 0.9 * self.first[i] + 0.1 * g;
            self.second[i] = 0.999 * self.second[i] + 0.001 * g * g;
            let mean = self.first[i] / (1.0 - 0.9_f64.powi(number));
            let square = self.second[i] / (1.0 - 0.999_f64.powi(number));
            self.weights[i] -= 1e-3 * mean / (square.sqrt() + 1e-8);
        }
    }

    /// Root mean square of how far the weights of rows have moved.
    fn moved(&self, rows: impl Fn(usize) -> bool) -> f64 {
        let of = self.weights.iter().enumerate().filter(|(i, _)| rows(i / 64)).map(|(_, w)| w * w);
        let (sum, count) = of.fold((0.0, 0), |(sum, count), square| (sum + square, count + 1));
        (sum / f64::from(count)).sqrt()
    }
}

#[test]
fn weights_that_no_rank_uses_stay_where_they_are_under_adam_though_packets_are_trimmed() {
    const ROWS: usize = 150;
    for (trim, row_log2) in [(0.3, 12), (0.05, 12), (0.3, 8)] {
        let faults = Faults { trim, ..Faults::NONE };
        let mut job = Job::with_rows(row_log2, 3, faults, 5, Reliability::Bounded { loss: 0.0 }, |_| ());
        let (mut here, mut exactly) = (Adam::new(64 * ROWS), Adam::new(64 * ROWS));
        let mut trimmed = 0;
        for step in 1..=20 {
            let gradients: Vec<_> = (0..3).map(|rank| embedding(rank, step, ROWS)).collect();
            let outcomes = job.reduce(step as u32, &gradients);
            for outcome in &outcomes {
                assert_eq!(outcome.stats.missing, 0);
                let unused = outcome.sum.iter().enumerate().filter(|(i, _)| i / 64 % 3 == 2);
                let moved = unused.filter(|(_, sum)| sum.to_bits() != 0).count();
                assert_eq!(moved, 0, "sums of zeros that are not exactly 0, step {step}");
                trimmed += outcome.stats.trimmed;
            }
            here.step(step as i32, &outcomes[0].sum);
            exactly.step(step as i32, &exact(&gradients));
        }
        assert!(trimmed > 10, "{trimmed}");
        assert_eq!(here.moved(|row| row % 3 == 2), 0.0);
        for of in 0..2 {
            let ratio = here.moved(|row| row % 3 == of) / exactly.moved(|row| row % 3 == of);
            assert!((0.9..1.1).contains(&ratio), "trim {trim}, rows {of}: {ratio}");
        }
    }
}

#[test]
fn values_beyond_what_a_row_can_say_are_not_finite_on_any_rank_and_fail_nothing() {
    let mut job = Job::new(3, Faults::NONE, 1, Reliability::Full, |_| ());
    let mut gradients = gradients(3, 9_000, 1);
    // Every value is finite, their root mean square not within the header's f32.
    gradients[1][3_000..6_000].fill(f32::MAX);
    for outcome in job.reduce(4, &gradients) {
        assert!(outcome.sum[4_000..4_100].iter().all(|sum| !sum.is_finite()));
        assert!(outcome.sum[..2_000].iter().all(|sum| sum.is_finite()), "other shards are unharmed");
    }
}

/// A card or a box in between that damages a packet and mends its checksum: UDP says nothing.
#[test]
fn damaged_packets_that_udp_lets_through_are_counted_and_neither_end_a_job_nor_change_a_sum() {
    for (seed, sealed) in (0..40).map(|seed| (seed, seed % 2 == 1)) {
        let faults = Faults { damage: 0.05, drop_data: 0.02, ..Faults::NONE };
        let mut job = Job::new(3, faults, seed, Reliability::Full, |_| ());
        if sealed {
            job.group = Group::sealed(3, faults, seed);
        }
        let (mut gradients, mut malformed) = (gradients(3, 60_000, seed), 0);
        for step in 0..3 {
            gradients.iter_mut().flatten().for_each(|value| *value += 0.5);
            let wanted = exact(&gradients);
            for outcome in job.reduce(step, &gradients) {
                let error = nmse(&outcome.sum, &wanted);
                assert!(error < 1e-6, "seed {seed}, step {step}: {error}");
            }
        }
        for endpoint in &job.group.network.endpoints {
            malformed += endpoint.stats().malformed + endpoint.stats().unsealed;
        }
        assert!(malformed > 10, "{malformed}");
    }
}
