// SPDX-License-Identifier: Apache-2.0
//! Jobs that go on when a rank dies, and when it comes back: communicators over the deterministic
//! network, in virtual time.

use crate::group::Group;
use crate::network::{Faults, Network, config};
use trimwire_agent::collective::{
    Algorithm, Collective, Communicator, CommunicatorConfig, Memory, NUMBER_BITS, OperationError, Options,
    Outcome, Replicas, StartError,
};
use trimwire_agent::endpoint::{Endpoint, EndpointConfig, Reliability};
use trimwire_agent::epoch::{Epoch, EpochError};
use trimwire_encoder::SealKey;

const SECOND: u64 = 1_000_000_000;
const COORDINATES: usize = 6_000;

/// A job whose ranks contribute their own number (in the job) and one, so that a sum tells whose
/// parts are in it.
struct Job {
    group: Group,
    next: Vec<u32>,
}

fn key() -> SealKey {
    SealKey::from_bytes(&[7; 32]).expect("32 bytes")
}

fn endpoint(rank: u16, world: u16, sealed: bool) -> EndpointConfig {
    let mut endpoint = config(rank, world);
    endpoint.reliability = Reliability::Full;
    endpoint.timeouts.give_up_ns = SECOND;
    endpoint.seal = sealed.then(key);
    endpoint
}

impl Job {
    fn new(world: u16, faults: Faults, sealed: bool) -> Self {
        let network = Network::with(world, faults, 5, |config| {
            let rank = config.rank;
            *config = endpoint(rank, world, sealed);
        });
        let group = Group { network, ..Group::new(world, Faults::NONE, 5, Reliability::Full, 10) };
        Self { group, next: vec![0; usize::from(world)] }
    }

    fn begin(&mut self, rank: usize, options: &Options) -> Result<u32, StartError> {
        let tensor = Memory::from_vec(vec![rank as f32 + 1.0; COORDINATES]);
        let number = self.next[rank];
        self.next[rank] = number.wrapping_add(1);
        self.group.start(rank, number, Collective::AllReduce { tensor }, options).map(|()| number)
    }

    fn run_for(&mut self, ns: u64) -> Vec<(usize, Outcome)> {
        let until_ns = self.group.network.now_ns + ns;
        self.group.run(until_ns)
    }

    fn change(&mut self, rank: usize, admit: bool) -> Result<(), EpochError> {
        let (now_ns, endpoint) = (self.group.network.now_ns, &mut self.group.network.endpoints[rank]);
        let communicator = &mut self.group.communicators[rank];
        if admit {
            communicator.grow(now_ns, &[], endpoint)
        } else {
            communicator.shrink(now_ns, &[], endpoint)
        }
    }

    /// What has come of an agreement at a rank.
    fn epoch(&mut self, rank: usize) -> Result<Epoch, EpochError> {
        let epoch = self.group.communicators[rank].poll_epoch().expect("the agreement is over");
        if let Ok(epoch) = &epoch {
            self.next[rank] = epoch.first;
        }
        epoch
    }

    /// All of these ask for the next epoch, and get it.
    fn agree(&mut self, ranks: &[usize], admit: bool) -> Epoch {
        for &rank in ranks {
            self.change(rank, admit).expect("may ask");
        }
        self.run_for(10 * SECOND);
        let epochs: Vec<Epoch> = ranks.iter().map(|&rank| self.epoch(rank).expect("begins")).collect();
        assert!(epochs.iter().all(|epoch| *epoch == epochs[0]), "{epochs:?}");
        epochs[0].clone()
    }

    fn start_anew(&mut self, rank: usize, incarnation: u32, sealed: bool) {
        let world = self.next.len() as u16;
        let config = EndpointConfig { incarnation, ..endpoint(rank as u16, world, sealed) };
        self.group.network.dead[rank] = false;
        self.group.network.restart(rank, Endpoint::new(config));
        let config =
            CommunicatorConfig { job_seed: 7, row_log2: 10, ..CommunicatorConfig::new(rank as u16, world) };
        self.group.communicators[rank] = Communicator::new(config);
        let (now_ns, endpoint) = (self.group.network.now_ns, &mut self.group.network.endpoints[rank]);
        self.group.communicators[rank].join(now_ns, endpoint);
        self.run_for(SECOND / 10);
    }

    /// A sum among these comes out as it should.
    fn sums(&mut self, ranks: &[usize], options: &Options) {
        for &rank in ranks {
            self.begin(rank, options).expect("begins");
        }
        let outcomes = self.run_for(10 * SECOND);
        assert_eq!(outcomes.len(), ranks.len());
        let sum: f32 = ranks.iter().map(|&rank| rank as f32 + 1.0).sum();
        for (rank, outcome) in outcomes {
            assert_eq!(outcome.result, Ok(()), "rank {rank}");
            assert_eq!(outcome.into_f32().expect("f32"), vec![sum; COORDINATES], "rank {rank} of {ranks:?}");
        }
    }
}

fn exact() -> Options {
    Options { exact: true, ..Options::default() }
}

/// Rank 2 of four dies in mid-operation; the others name it and go on.
fn loses_a_rank(faults: Faults, sealed: bool, options: &Options) {
    let mut job = Job::new(4, faults, sealed);
    job.sums(&[0, 1, 2, 3], &exact());
    for rank in 0..4 {
        job.begin(rank, options).expect("begins");
    }
    job.run_for(3_000);
    job.group.network.dead[2] = true;
    let outcomes = job.run_for(30 * SECOND);
    for (rank, outcome) in outcomes.into_iter().filter(|(rank, _)| *rank != 2) {
        let error = outcome.result.expect_err("it takes four").to_string();
        assert!(error.contains("rank 2"), "rank {rank}: {error}");
    }
    let epoch = job.agree(&[0, 1, 3], false);
    assert_eq!((epoch.number, &epoch.members[..]), (1, &[0, 1, 3][..]));
    assert!(epoch.first > 2);
    assert_eq!(job.group.communicators[3].config().rank, 2, "numbered anew");
    assert_eq!(job.group.communicators[3].config().world, 3);
    for _ in 0..3 {
        job.sums(&[0, 1, 3], &exact());
    }
}

#[test]
fn three_of_four_go_on_whatever_the_way_their_sums_go() {
    for options in [
        Options::default(),
        exact(),
        Options { algorithm: Algorithm::Ring, ..Options::default() },
        Options { algorithm: Algorithm::TwoLevel, ..Options::default() },
        Options { replicas: Replicas::Consistent, ..Options::default() },
    ] {
        loses_a_rank(Faults::NONE, false, &options);
    }
}

#[test]
fn a_sealed_job_goes_on_and_so_does_one_whose_network_loses_a_tenth_of_everything() {
    loses_a_rank(Faults::NONE, true, &Options::default());
    let lossy =
        Faults { drop_data: 0.1, drop_control: 0.1, duplicate: 0.1, jitter_ns: 50_000, ..Faults::NONE };
    loses_a_rank(lossy, true, &Options::default());
}

#[test]
fn a_rank_that_was_stopped_for_too_long_gets_an_error_and_disturbs_nobody() {
    let mut job = Job::new(4, Faults::NONE, false);
    job.sums(&[0, 1, 2, 3], &exact());
    for rank in 0..4 {
        job.begin(rank, &exact()).expect("begins");
    }
    job.run_for(2_000);
    job.group.network.paused_until_ns[2] = 60 * SECOND;
    assert_eq!(job.run_for(5 * SECOND).len(), 3);
    job.agree(&[0, 1, 3], false);
    job.sums(&[0, 1, 3], &exact());
    let foreign = |job: &Job| job.group.network.endpoints[0].stats().failed;
    let failed = foreign(&job);
    // It comes to: its operation is over, and so is its part in the job.
    let now_ns = job.group.network.now_ns;
    job.run_for(61 * SECOND - now_ns);
    let outcomes = job.run_for(SECOND);
    assert!(outcomes.iter().all(|(rank, outcome)| *rank == 2 && outcome.result.is_err()), "{outcomes:?}");
    // It may have heard already.
    let _ = job.change(2, false);
    for _ in 0..3 {
        job.sums(&[0, 1, 3], &exact());
    }
    assert_eq!(job.epoch(2), Err(EpochError::Excluded { epoch: 1 }));
    let error = job.begin(2, &exact()).expect_err("it is in no epoch").to_string();
    assert!(error.contains("`join`"), "{error}");
    assert_eq!(job.change(2, false), Err(EpochError::Excluded { epoch: 1 }));
    assert_eq!(foreign(&job), failed, "nobody else is disturbed");
}

#[test]
fn a_rank_that_starts_anew_is_let_in_and_has_the_numbers_of_the_others() {
    for sealed in [false, true] {
        let mut job = Job::new(4, Faults::NONE, sealed);
        job.sums(&[0, 1, 2, 3], &exact());
        job.begin(0, &exact()).expect("begins");
        job.group.network.dead[1] = true;
        job.begin(2, &exact()).expect("begins");
        job.begin(3, &exact()).expect("begins");
        job.run_for(30 * SECOND);
        job.agree(&[0, 2, 3], false);
        job.sums(&[0, 2, 3], &exact());
        job.start_anew(1, 99, sealed);
        let now_ns = job.group.network.now_ns;
        assert_eq!(job.group.network.endpoints[0].knocking(now_ns), [1].into());
        let error = job.begin(1, &exact()).expect_err("not yet");
        assert!(matches!(error, StartError::Epoch { .. }), "{error}");
        // It has nothing to do with sums meanwhile.
        job.sums(&[0, 2, 3], &exact());
        for rank in [0, 2, 3] {
            job.change(rank, true).expect("may ask");
        }
        job.run_for(10 * SECOND);
        let epoch = job.epoch(0).expect("begins");
        assert_eq!((&epoch.members[..], &epoch.arrivals[..]), (&[0, 1, 2, 3][..], &[1][..]));
        for rank in 1..4 {
            assert_eq!(job.epoch(rank).as_ref(), Ok(&epoch));
        }
        for _ in 0..3 {
            job.sums(&[0, 1, 2, 3], &exact());
        }
    }
}

#[test]
fn a_rank_that_comes_back_before_anybody_missed_it_takes_its_own_place() {
    let mut job = Job::new(3, Faults::NONE, false);
    job.sums(&[0, 1, 2], &exact());
    job.start_anew(2, 99, false);
    for rank in [0, 1] {
        job.change(rank, true).expect("may ask");
    }
    job.run_for(10 * SECOND);
    for rank in 0..3 {
        let epoch = job.epoch(rank).expect("begins");
        assert_eq!((epoch.members, epoch.arrivals), (vec![0, 1, 2], vec![2]));
    }
    job.sums(&[0, 1, 2], &exact());
}

#[test]
fn ten_epochs_follow_each_other_and_numbers_go_round() {
    let mut job = Job::new(4, Faults::NONE, false);
    job.next.fill((1 << NUMBER_BITS) - 3_000);
    job.sums(&[0, 1, 2, 3], &exact());
    for round in 0..5_u32 {
        let leaves = 1 + (round as usize % 3);
        let others: Vec<usize> = (0..4).filter(|&rank| rank != leaves).collect();
        for &rank in &others {
            job.begin(rank, &exact()).expect("begins");
        }
        job.group.network.dead[leaves] = true;
        assert_eq!(job.run_for(30 * SECOND).len(), 3);
        let epoch = job.agree(&others, false);
        assert_eq!(epoch.number, 2 * round + 1);
        job.sums(&others, &exact());
        job.start_anew(leaves, 100 + round, false);
        for &rank in &others {
            job.change(rank, true).expect("may ask");
        }
        job.run_for(10 * SECOND);
        for rank in 0..4 {
            assert_eq!(job.epoch(rank).expect("begins").number, 2 * round + 2);
        }
        job.sums(&[0, 1, 2, 3], &exact());
    }
    assert!(job.next[0] > 1 << NUMBER_BITS, "they have gone round: {}", job.next[0]);
}

#[test]
fn one_rank_after_another_dies_until_the_last_goes_alone() {
    let mut job = Job::new(4, Faults::NONE, false);
    for left in (1..4).rev() {
        let others: Vec<usize> = (0..left).collect();
        for &rank in &others {
            job.begin(rank, &exact()).expect("begins");
        }
        job.group.network.dead[left] = true;
        job.run_for(30 * SECOND);
        let epoch = job.agree(&others, false);
        assert_eq!(epoch.members.len(), left);
        job.sums(&others, &exact());
    }
}

#[test]
fn a_second_rank_that_dies_while_the_others_agree_is_left_out_too() {
    let mut job = Job::new(5, Faults::NONE, false);
    for rank in 0..5 {
        job.begin(rank, &exact()).expect("begins");
    }
    job.group.network.dead[4] = true;
    job.run_for(30 * SECOND);
    // The one that leads.
    job.group.network.dead[0] = true;
    let epoch = job.agree(&[1, 2, 3], false);
    assert_eq!(epoch.members, [1, 2, 3]);
    job.sums(&[1, 2, 3], &exact());
}

#[test]
fn what_is_under_way_at_others_is_void_as_soon_as_one_wants_another_epoch() {
    let mut job = Job::new(3, Faults::NONE, false);
    job.sums(&[0, 1, 2], &exact());
    // Rank 0 does not take part in this one: without a word it would be waited for, for half an
    // hour.
    job.begin(1, &exact()).expect("begins");
    job.begin(2, &exact()).expect("begins");
    job.run_for(SECOND / 10);
    job.change(0, false).expect("may ask");
    let outcomes = job.run_for(SECOND);
    assert_eq!(outcomes.len(), 2);
    for (_, outcome) in outcomes {
        assert!(matches!(outcome.result, Err(OperationError::Void { epoch: 1, .. })), "{:?}", outcome.result);
    }
    let error = job.begin(1, &exact()).expect_err("not before the next epoch");
    assert!(matches!(error, StartError::Epoch { epoch: 0, .. }), "{error}");
    for rank in [1, 2] {
        job.change(rank, false).expect("may ask");
    }
    job.run_for(SECOND);
    for rank in 0..3 {
        assert_eq!(job.epoch(rank).expect("begins").members, [0, 1, 2]);
    }
    job.sums(&[0, 1, 2], &exact());
}

#[test]
fn a_rank_that_is_done_first_and_asks_at_once_takes_nothing_from_the_others() {
    let mut job = Job::new(3, Faults::NONE, false);
    job.sums(&[0, 1, 2], &exact());
    let broadcast = |job: &mut Job, rank: usize| {
        let tensor = Memory::from_vec(vec![rank as f32 + 1.0; COORDINATES]);
        job.next[rank] += 1;
        job.group.start(rank, 1, Collective::Broadcast { tensor, root: 0 }, &exact())
    };
    // The root has sent everything before the others have anything; rank 2 has not even begun.
    broadcast(&mut job, 0).expect("begins");
    broadcast(&mut job, 1).expect("begins");
    let outcomes = job.run_for(1_000);
    assert!(matches!(&outcomes[..], [(0, outcome)] if outcome.result.is_ok()), "{outcomes:?}");
    job.change(0, false).expect("may ask");
    job.run_for(SECOND / 100);
    broadcast(&mut job, 2).expect("as the root has taken part");
    let outcomes = job.run_for(SECOND / 10);
    assert!(outcomes.iter().any(|(rank, _)| *rank == 2), "{outcomes:?}");
    for (rank, outcome) in outcomes {
        assert_eq!(outcome.result, Ok(()), "rank {rank}");
        assert_eq!(outcome.into_f32().expect("f32"), vec![1.0; COORDINATES]);
    }
    assert!(job.begin(1, &exact()).is_err(), "in this one the root takes no part");
    for rank in [1, 2] {
        job.change(rank, false).expect("may ask");
    }
    job.run_for(SECOND);
    for rank in 0..3 {
        job.epoch(rank).expect("begins");
    }
    job.sums(&[0, 1, 2], &exact());
}
