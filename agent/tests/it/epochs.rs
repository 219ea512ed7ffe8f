// SPDX-License-Identifier: Apache-2.0
//! Ranks agree on epochs over a network that loses, delays, repeats and divides, while they die,
//! pause, start anew and suspect each other wrongly: no two of them ever begin an epoch
//! differently.

use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use trimwire_agent::epoch::{Change, Epoch, EpochError, Membership, RankSet, Timing, Vote, is_quorum};

const MS: u64 = 1_000_000;
const TIMING: Timing = Timing { repeat_ns: 20 * MS, give_up_ns: 400 * MS, patience_ns: 20_000 * MS };

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// What goes wrong. Shares are percent: of votes that are lost and sent twice, and, a step, of what
/// happens.
#[derive(Debug, Clone, Copy)]
struct Faults {
    lose: u64,
    repeat: u64,
    delay_ns: u64,
    die: u64,
    pause: u64,
    restart: u64,
    divide: u64,
    suspect: u64,
}

struct Rank {
    membership: Membership,
    incarnation: u32,
    alive: bool,
    paused_until_ns: u64,
    /// The last operation number used.
    last: u32,
    /// Whether it has asked for the next epoch and heard nothing yet.
    asking: bool,
    failed: Vec<EpochError>,
}

/// A vote under way: when it arrives, its number, from whom to whom, and their incarnations when it
/// left.
type Flying = Reverse<(u64, u64, [usize; 2], [u32; 2])>;

struct World {
    now_ns: u64,
    ranks: Vec<Rank>,
    random: Random,
    faults: Faults,
    /// Which side of a divided network each rank is on.
    side: Vec<u8>,
    flying: BinaryHeap<Flying>,
    votes: BTreeMap<u64, Vote>,
    sent: u64,
    /// The one account of each epoch, and the one before it.
    epochs: BTreeMap<u32, Epoch>,
    incarnations: u32,
}

impl World {
    fn new(world: u16, seed: u64, faults: Faults) -> Self {
        let first = u32::MAX - 3_000;
        let rank = |rank: u16| Rank {
            membership: Membership::new(rank, world, u32::from(rank) + 1, TIMING),
            incarnation: u32::from(rank) + 1,
            alive: true,
            paused_until_ns: 0,
            last: first,
            asking: false,
            failed: Vec::new(),
        };
        let ranks: Vec<Rank> = (0..world).map(rank).collect();
        let epochs = [(0, ranks[0].membership.epoch())].into();
        Self {
            now_ns: 0,
            side: vec![0; usize::from(world)],
            ranks,
            random: Random(seed),
            faults,
            flying: BinaryHeap::new(),
            votes: BTreeMap::new(),
            sent: 0,
            epochs,
            incarnations: 1_000,
        }
    }

    fn live(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.ranks.len()).filter(|&rank| self.ranks[rank].alive)
    }

    fn begin(&mut self, rank: usize, exclude: &RankSet, admit: bool) {
        let now_ns = self.now_ns;
        let this = &mut self.ranks[rank];
        this.asking = this.membership.begin(now_ns, exclude, admit, this.last).is_ok();
    }

    fn dead(&self) -> RankSet {
        (0..self.ranks.len()).filter(|&rank| !self.ranks[rank].alive).map(|rank| rank as u16).collect()
    }

    fn start_anew(&mut self, rank: usize) {
        self.incarnations += 1;
        let (now_ns, world, incarnation) = (self.now_ns, self.ranks.len() as u16, self.incarnations);
        let mut membership = Membership::new(rank as u16, world, incarnation, TIMING);
        membership.join(now_ns);
        self.ranks[rank] = Rank {
            membership,
            incarnation,
            alive: true,
            paused_until_ns: 0,
            last: 0,
            asking: true,
            failed: Vec::new(),
        };
    }

    /// Sends and takes note of what ranks have come to, and checks it against what others have.
    fn settle(&mut self, rank: usize) -> Result<(), TestCaseError> {
        while let Some((to, vote)) = self.ranks[rank].membership.poll_transmit() {
            let to = usize::from(to);
            for _ in 0..=u64::from(self.random.chance(self.faults.repeat)) {
                if self.side[rank] != self.side[to] || self.random.chance(self.faults.lose) {
                    continue;
                }
                self.sent += 1;
                let at_ns = self.now_ns + 10_000 + self.random.below(self.faults.delay_ns + 1);
                let incarnations = [rank, to].map(|rank| self.ranks[rank].incarnation);
                self.flying.push(Reverse((at_ns, self.sent, [rank, to], incarnations)));
                self.votes.insert(self.sent, vote.clone());
            }
        }
        while let Some(change) = self.ranks[rank].membership.poll_change() {
            let this = &mut self.ranks[rank];
            match change {
                Change::Wanted { .. } => {}
                Change::Begun(epoch) => {
                    this.asking = false;
                    prop_assert!(epoch.members.contains(&(rank as u16)), "rank {} is in {:?}", rank, epoch);
                    if !epoch.arrivals.contains(&(rank as u16)) {
                        let ahead = epoch.first.wrapping_sub(this.last);
                        prop_assert!((1_024..1 << 20).contains(&ahead), "{epoch:?} after {}", this.last);
                    }
                    this.last = epoch.first.wrapping_sub(1);
                    let account = self.epochs.entry(epoch.number).or_insert_with(|| epoch.clone());
                    prop_assert_eq!(&*account, &epoch, "rank {} has another epoch", rank);
                    let before = self.epochs.get(&(epoch.number - 1));
                    if let Some(before) = before {
                        let old =
                            |rank: &&u16| before.members.contains(rank) && !epoch.arrivals.contains(rank);
                        let stay: RankSet = epoch.members.iter().filter(old).copied().collect();
                        prop_assert!(is_quorum(&before.members.iter().copied().collect(), &stay));
                    }
                }
                Change::Failed(error) => {
                    this.asking = false;
                    this.failed.push(error);
                }
            }
        }
        Ok(())
    }

    /// Lets everything happen until then.
    fn run(&mut self, until_ns: u64) -> Result<(), TestCaseError> {
        loop {
            for rank in 0..self.ranks.len() {
                self.settle(rank)?;
            }
            let timer = |rank: &Rank| Some(rank.membership.poll_timeout()?.max(rank.paused_until_ns));
            let timers = self.ranks.iter().filter(|rank| rank.alive).filter_map(timer).min();
            let arrival = self.flying.peek().map(|Reverse((at_ns, ..))| *at_ns);
            let Some(next_ns) = timers.into_iter().chain(arrival).min().filter(|&at_ns| at_ns <= until_ns)
            else {
                self.now_ns = until_ns;
                return Ok(());
            };
            self.now_ns = self.now_ns.max(next_ns);
            if arrival == Some(next_ns)
                && let Some(Reverse((_, id, [from, to], incarnations))) = self.flying.pop()
            {
                let now_ns = self.now_ns;
                let vote = self.votes.remove(&id).expect("under way");
                let rank = &mut self.ranks[to];
                if rank.alive && rank.paused_until_ns > now_ns {
                    // It waits in the socket.
                    self.votes.insert(id, vote);
                    self.flying.push(Reverse((rank.paused_until_ns, id, [from, to], incarnations)));
                } else if rank.alive && rank.incarnation == incarnations[1] {
                    // Sessions tell incarnations apart, and believe the latest.
                    let late = self.ranks[from].incarnation != incarnations[0];
                    let membership = &mut self.ranks[to].membership;
                    if !late {
                        membership.met(now_ns, from as u16, incarnations[0]);
                        membership.handle(now_ns, from as u16, incarnations[0], vote);
                    }
                }
                continue;
            }
            for rank in self.ranks.iter_mut().filter(|rank| rank.alive && rank.paused_until_ns <= self.now_ns)
            {
                rank.membership.handle_timeout(self.now_ns);
            }
        }
    }

    /// One step of a job to which things happen.
    fn step(&mut self) -> Result<(), TestCaseError> {
        let (faults, world) = (self.faults, self.ranks.len());
        let anybody = self.random.below(world as u64) as usize;
        if self.random.chance(faults.die) {
            self.ranks[anybody].alive = false;
        }
        if self.random.chance(faults.pause) {
            self.ranks[anybody].paused_until_ns = self.now_ns + self.random.below(3 * TIMING.give_up_ns);
        }
        if self.random.chance(faults.restart) {
            self.start_anew(anybody);
        }
        if self.random.chance(faults.divide) {
            let divided = self.random.chance(50);
            for rank in 0..world {
                self.side[rank] = if divided { self.random.below(2) as u8 } else { 0 };
            }
        }
        for rank in 0..world {
            let this = &mut self.ranks[rank];
            if !this.alive || this.paused_until_ns > self.now_ns {
                continue;
            }
            if this.membership.is_settled() {
                // Operations go on, at some ranks faster than at others.
                this.last = this.last.wrapping_add(self.random.below(4) as u32);
            }
            if !this.asking && self.random.chance(40) {
                let mut exclude = self.dead();
                if self.random.chance(faults.suspect) {
                    exclude.insert(self.random.below(world as u64) as u16);
                }
                if self.random.chance(30) {
                    exclude.clear();
                }
                let admit = self.random.chance(50);
                self.begin(rank, &exclude, admit);
            }
        }
        let pause_ns = self.random.below(TIMING.give_up_ns);
        self.run(self.now_ns + pause_ns)
    }

    /// The network is whole and loses nothing more; every rank that is alive asks until it is in
    /// the latest epoch or told why not.
    fn recover(&mut self) -> Result<(), TestCaseError> {
        self.side.fill(0);
        (self.faults.lose, self.faults.delay_ns) = (0, MS);
        self.run(self.now_ns + 2 * TIMING.patience_ns)?;
        for rank in self.live() {
            let this = &self.ranks[rank];
            prop_assert!(!this.asking, "rank {rank} has heard nothing: {:?}", this.membership);
        }
        Ok(())
    }
}

fn any_faults() -> impl Strategy<Value = Faults> {
    let network = (0_u64..60, 0_u64..40, 0..100 * MS, 0_u64..30);
    let ranks = (0_u64..40, 0_u64..30, 0_u64..40, 0_u64..30);
    (network, ranks).prop_map(|((lose, repeat, delay_ns, divide), (die, pause, restart, suspect))| Faults {
        lose,
        repeat,
        delay_ns,
        die,
        pause,
        restart,
        divide,
        suspect,
    })
}

/// A network that loses and delays, and nothing else.
const LOSSY: Faults =
    Faults { lose: 30, repeat: 20, delay_ns: 50 * MS, divide: 0, die: 0, pause: 0, restart: 0, suspect: 0 };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(std::env::var("TRIMWIRE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(400)))]

    #[test]
    fn no_two_ranks_begin_an_epoch_differently_whatever_happens(world in 1_u16..9, seed: u64, faults in any_faults(), steps in 1_usize..40) {
        let mut world = World::new(world, seed, faults);
        for _ in 0..steps {
            world.step()?;
        }
        world.recover()?;
    }

    #[test]
    fn those_that_are_left_go_on_together_ten_times_in_a_row(world in 3_u16..9, seed: u64, kill in proptest::collection::vec(any::<prop::sample::Index>(), 10)) {
        let mut world = World::new(world, seed, LOSSY);
        for (number, kill) in (1..).zip(kill) {
            // As long as a quorum is left one dies, before the agreement or while it is under way.
            let live: RankSet = world.live().map(|rank| rank as u16).collect();
            let dies = *live.iter().nth(kill.index(live.len())).expect("one of them");
            let latest = world.epochs.values().next_back().expect("epoch 0");
            let enough = is_quorum(&latest.members.iter().copied().collect(), &(&live - &[dies].into()));
            let dies = enough.then_some(usize::from(dies));
            let late = world.random.chance(50);
            if let (Some(rank), false) = (dies, late) {
                world.ranks[rank].alive = false;
            }
            for rank in world.live().collect::<Vec<_>>() {
                let exclude = world.dead();
                world.begin(rank, &exclude, false);
                let pause_ns = world.random.below(50 * MS);
                world.run(world.now_ns + pause_ns)?;
            }
            if let (Some(rank), true) = (dies, late) {
                world.ranks[rank].alive = false;
            }
            world.run(world.now_ns + TIMING.patience_ns)?;
            let live: Vec<u16> = world.live().map(|rank| rank as u16).collect();
            for &rank in &live {
                let rank = &world.ranks[usize::from(rank)];
                let epoch = rank.membership.epoch();
                prop_assert!(rank.failed.is_empty() && epoch.number >= number, "{:?} {epoch:?}", rank.failed);
                // One that died behind its vote may be in it still, and is left out of the next
                // one.
                prop_assert!(live.iter().all(|rank| epoch.members.contains(rank)), "{live:?} {epoch:?}");
            }
        }
    }

    #[test]
    fn who_starts_anew_is_let_in_with_the_numbers_of_the_others(world in 2_u16..9, seed: u64, again: prop::sample::Index) {
        let ranks = world;
        let mut world = World::new(world, seed, LOSSY);
        // The lowest of two is the half that counts.
        let again = if ranks == 2 { 1 } else { again.index(usize::from(ranks)) };
        world.start_anew(again);
        world.run(TIMING.give_up_ns)?;
        for rank in (0..usize::from(ranks)).filter(|&rank| rank != again) {
            prop_assert!(world.ranks[rank].membership.knocking(world.now_ns).contains(&(again as u16)));
            world.begin(rank, &RankSet::new(), true);
        }
        world.run(TIMING.patience_ns)?;
        for rank in &world.ranks {
            let epoch = rank.membership.epoch();
            prop_assert_eq!((epoch.number, &epoch.arrivals), (1, &vec![again as u16]));
            prop_assert!(epoch.members.len() == usize::from(ranks) && rank.membership.is_settled());
        }
    }
}

fn quiet(world: u16) -> World {
    World::new(world, 1, Faults { lose: 0, repeat: 0, delay_ns: 0, ..LOSSY })
}

#[test]
fn two_halves_of_a_divided_network_do_not_both_go_on() {
    for (world, sides) in [(4, [0, 0, 1, 1, 0]), (4, [1, 0, 0, 1, 0]), (5, [1, 1, 0, 0, 0])] {
        let mut job = quiet(world);
        job.side.copy_from_slice(&sides[..usize::from(world)]);
        for rank in 0..usize::from(world) {
            job.begin(rank, &RankSet::new(), false);
        }
        job.run(TIMING.patience_ns).expect("one account");
        let on = |side: u8| (0..usize::from(world)).filter(move |&rank| sides[rank] == side);
        let begun = |job: &World, rank: usize| job.ranks[rank].membership.epoch().number == 1;
        let winner = if world == 5 { 0 } else { sides[0] };
        assert!(on(winner).all(|rank| begun(&job, rank)), "a quorum goes on");
        for rank in on(1 - winner) {
            assert!(!begun(&job, rank) && !job.ranks[rank].membership.is_settled());
            assert!(
                matches!(job.ranks[rank].failed[..], [EpochError::NoQuorum { .. }]),
                "{:?}",
                job.ranks[rank].failed
            );
        }
        // When the network is whole again the others hear that it went on without them.
        job.side.fill(0);
        for rank in on(1 - winner) {
            job.begin(rank, &RankSet::new(), false);
        }
        job.run(2 * TIMING.patience_ns).expect("one account");
        for rank in on(1 - winner) {
            assert_eq!(job.ranks[rank].failed.last(), Some(&EpochError::Excluded { epoch: 1 }));
        }
    }
}

#[test]
fn a_rank_that_is_alive_and_has_not_asked_is_waited_for_and_told() {
    let mut job = quiet(3);
    job.begin(0, &RankSet::new(), false);
    job.begin(1, &RankSet::new(), false);
    job.run(5 * TIMING.give_up_ns).expect("one account");
    assert!(job.ranks[0].asking && !job.ranks[2].membership.is_settled(), "it begins nothing more");
    job.begin(2, &RankSet::new(), false);
    job.run(job.now_ns + TIMING.give_up_ns).expect("one account");
    assert!(job.ranks.iter().all(|rank| rank.membership.epoch().members == [0, 1, 2] && !rank.asking));
}

#[test]
fn who_is_left_out_hears_of_it_and_nobody_else_is_disturbed() {
    let mut job = quiet(4);
    job.ranks[2].paused_until_ns = 3_600_000 * MS;
    for rank in [0, 1, 3] {
        job.begin(rank, &[2].into(), false);
    }
    job.run(TIMING.give_up_ns).expect("one account");
    job.ranks[2].paused_until_ns = 0;
    let error = EpochError::Excluded { epoch: 1 };
    job.begin(2, &RankSet::new(), false);
    job.run(job.now_ns + TIMING.give_up_ns).expect("one account");
    assert_eq!(job.ranks[2].failed, std::slice::from_ref(&error));
    assert_eq!(job.ranks[2].membership.begin(job.now_ns, &RankSet::new(), false, 0), Err(error));
    assert!([0, 1, 3].iter().all(|&rank: &usize| job.ranks[rank].membership.is_settled()));
}

#[test]
fn the_last_but_one_goes_alone_if_it_is_the_lowest() {
    for (left, ends) in [(0, true), (1, false)] {
        let mut job = quiet(2);
        job.ranks[1 - left].alive = false;
        job.begin(left, &[1 - left as u16].into(), false);
        job.run(TIMING.give_up_ns).expect("one account");
        assert_eq!(job.ranks[left].membership.epoch().members.len() == 1, ends);
        assert_eq!(
            job.ranks[left].failed.len(),
            usize::from(!ends),
            "the other one may be on the other side of a partition"
        );
    }
}

#[test]
fn an_agreement_of_a_thousand_ranks_takes_eight_votes_a_rank() {
    let mut job = quiet(1_024);
    for rank in (0..1_024).filter(|&rank| rank != 500) {
        job.begin(rank, &[500].into(), false);
    }
    job.ranks[500].alive = false;
    job.run(TIMING.give_up_ns).expect("one account");
    assert!(job.live().all(|rank| job.ranks[rank].membership.epoch().members.len() == 1_023));
    assert!(job.sent <= 8 * 1_024, "{} votes", job.sent);
}
