// SPDX-License-Identifier: Apache-2.0
//! One rank's part in the agreements on epochs.

mod leading;

use super::lead::{Lead, Phase, Promise, round};
use super::{Decree, Epoch, EpochError, Motion, RankSet, Vote, later};
use std::collections::{BTreeMap, VecDeque};

/// Times of an agreement, ns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timing {
    /// Votes without an answer are repeated after this time.
    pub repeat_ns: u64,
    /// A rank that has not answered for this time is believed dead.
    pub give_up_ns: u64,
    /// An agreement, or the wait to be let in, fails after this time.
    pub patience_ns: u64,
}

/// What has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A member wants the next epoch. Operations after its last one are void, and this rank is
    /// waited for.
    Wanted {
        /// The member.
        by: u16,
        /// Its last operation's number.
        last: u32,
    },
    /// An epoch begins.
    Begun(Epoch),
    /// No epoch begins for this rank.
    Failed(EpochError),
}

/// An agreement under way.
#[derive(Debug)]
struct Round {
    since_ns: u64,
    /// When votes without an answer are repeated.
    due_ns: u64,
    admit: bool,
    last: u32,
    suspects: RankSet,
    /// When each awaited rank was heard last.
    heard_ns: BTreeMap<u16, u64>,
    leader: Option<u16>,
    lead: Option<Lead>,
}

#[derive(Debug)]
enum State {
    /// No agreement is under way.
    Idle,
    Running(Round),
    Joining {
        since_ns: u64,
        due_ns: u64,
    },
    Excluded(EpochError),
}

/// One rank's part in the agreements on epochs; see the module for what they guarantee.
///
/// After every call that takes `now_ns`, call [`Self::poll_transmit`] and [`Self::poll_change`]
/// until they give `None`. Call [`Self::handle_timeout`] at the time of [`Self::poll_timeout`].
/// Votes are datagrams and may be lost.
#[derive(Debug)]
pub struct Membership {
    own: u16,
    world: u16,
    incarnation: u32,
    timing: Timing,
    epoch: u32,
    decree: Decree,
    state: State,
    /// Paxos' acceptor. It outlives an agreement that has failed, as others may have counted its
    /// votes.
    promised: u32,
    accepted: Option<(u32, Decree)>,
    /// Incarnations of the members: each has one vote an epoch.
    voters: BTreeMap<u16, u32>,
    /// Members that have started anew.
    restarted: RankSet,
    /// The last operation in which every member takes part, where one wants the next epoch.
    wanted: Option<u32>,
    /// The agreement has failed here, and has not been asked for again.
    failed: bool,
    /// Who has asked to be let in: its incarnation, and when it asked last.
    knocks: BTreeMap<u16, (u32, u64)>,
    outbox: VecDeque<(u16, Vote)>,
    changes: VecDeque<Change>,
}

impl Membership {
    /// Epoch 0, with all ranks below `world`; `own` is this one.
    pub fn new(own: u16, world: u16, incarnation: u32, timing: Timing) -> Self {
        let decree = Decree { members: (0..world).collect(), ..Decree::default() };
        Self {
            own,
            world,
            incarnation,
            timing,
            epoch: 0,
            decree,
            state: State::Idle,
            promised: 0,
            accepted: None,
            voters: BTreeMap::new(),
            restarted: RankSet::new(),
            wanted: None,
            failed: false,
            knocks: BTreeMap::new(),
            outbox: VecDeque::new(),
            changes: VecDeque::new(),
        }
    }

    /// The epoch that this rank is in; where it waits to be let in, that is none yet.
    pub fn epoch(&self) -> Epoch {
        Epoch {
            number: self.epoch,
            members: self.decree.members.iter().copied().collect(),
            first: self.decree.first,
            arrivals: self.decree.arrivals.keys().copied().collect(),
        }
    }

    /// Ranks that this epoch has let in, and their incarnations.
    pub fn arrivals(&self) -> Vec<(u16, u32)> {
        let others = self.decree.arrivals.iter().filter(|&(&rank, _)| rank != self.own);
        others.map(|(&rank, &incarnation)| (rank, incarnation)).collect()
    }

    /// Whether this rank may begin an operation: it is a member, and no other one has left for the
    /// next epoch before it.
    pub fn may_begin(&self, number: u32) -> bool {
        let all_take_part = self.wanted.is_none_or(|last| later(number, last) == last);
        matches!(self.state, State::Idle) && !self.failed && all_take_part
    }

    /// Whether this rank is a member, and nobody wants the next epoch.
    pub fn is_settled(&self) -> bool {
        matches!(self.state, State::Idle) && !self.failed && self.wanted.is_none()
    }

    /// Ranks that have started anew and ask to be let in, lately.
    pub fn knocking(&self, now_ns: u64) -> RankSet {
        self.knocks_at(now_ns).into_keys().collect()
    }

    fn knocks_at(&self, now_ns: u64) -> BTreeMap<u16, u32> {
        let lately = |at_ns: u64| now_ns.saturating_sub(at_ns) < self.timing.give_up_ns;
        let knocks = self.knocks.iter().filter(|&(_, &(_, at_ns))| lately(at_ns));
        knocks.map(|(&rank, &(incarnation, _))| (rank, incarnation)).collect()
    }

    /// Asks for the next epoch, without the ranks `exclude`; with `admit`, and where this rank
    /// comes to lead, with those that knock. `last` is the last operation number that this rank has
    /// used: it uses none until [`Change::Begun`]. Every member that is to go on has to ask. After
    /// [`Change::Failed`] it may ask again.
    ///
    /// # Errors
    /// [`EpochError::Busy`], and [`EpochError::Excluded`] where the others have gone on.
    pub fn begin(
        &mut self,
        now_ns: u64,
        exclude: &RankSet,
        admit: bool,
        last: u32,
    ) -> Result<(), EpochError> {
        match &self.state {
            State::Idle => {}
            State::Running(_) | State::Joining { .. } => {
                return Err(EpochError::Busy { epoch: self.epoch.wrapping_add(1) });
            }
            State::Excluded(error) => return Err(error.clone()),
        }
        (self.wanted, self.failed) = (None, false);
        let mut suspects = exclude | &self.restarted;
        suspects.remove(&self.own);
        let due_ns = now_ns.saturating_add(self.timing.repeat_ns);
        self.state = State::Running(Round {
            since_ns: now_ns,
            due_ns,
            admit,
            last,
            suspects,
            heard_ns: BTreeMap::new(),
            leader: None,
            lead: None,
        });
        self.go_on(now_ns);
        Ok(())
    }

    /// Goes on in an epoch that was agreed on by another membership of this rank, in which ranks
    /// that were let in have these incarnations.
    pub fn follow(&mut self, epoch: &Epoch, arrivals: BTreeMap<u16, u32>) {
        let members = epoch.members.iter().copied().collect();
        self.adopt(epoch.number, Decree { members, first: epoch.first, arrivals });
    }

    /// Asks to be let in: of a rank that has started anew. It is in no epoch until
    /// [`Change::Begun`].
    pub fn join(&mut self, now_ns: u64) {
        self.state = State::Joining { since_ns: now_ns, due_ns: now_ns };
        self.handle_timeout(now_ns);
    }

    /// A session with a rank has begun.
    pub fn met(&mut self, now_ns: u64, rank: u16, incarnation: u32) {
        if self.decree.members.contains(&rank)
            && *self.voters.entry(rank).or_insert(incarnation) != incarnation
        {
            self.has_restarted(now_ns, rank);
        }
    }

    /// A member has started anew: it has no vote in this epoch any more.
    fn has_restarted(&mut self, now_ns: u64, rank: u16) {
        self.restarted.insert(rank);
        if let State::Running(round) = &mut self.state
            && round.suspects.insert(rank)
        {
            self.go_on(now_ns);
        }
    }

    /// When to call [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<u64> {
        match self.state {
            State::Running(Round { due_ns, .. }) | State::Joining { due_ns, .. } => Some(due_ns),
            State::Idle | State::Excluded(_) => None,
        }
    }

    /// A vote that is to be sent, and to whom.
    pub fn poll_transmit(&mut self) -> Option<(u16, Vote)> {
        self.outbox.pop_front()
    }

    /// What has happened.
    pub fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    fn say(&mut self, to: u16, epoch: u32, motion: Motion) {
        self.outbox.push_back((to, Vote { epoch, motion }));
    }

    fn next(&self) -> u32 {
        self.epoch.wrapping_add(1)
    }

    /// Tells a rank that is behind which epoch there is.
    fn tell_decided(&mut self, to: u16) {
        if self.epoch > 0 {
            self.say(to, self.epoch, Motion::Decided { decree: self.decree.clone() });
        }
    }

    /// Takes a vote of a rank, in its incarnation. Nothing here panics; what does not belong to the
    /// agreement is ignored.
    pub fn handle(&mut self, now_ns: u64, from: u16, incarnation: u32, vote: Vote) {
        if from == self.own || from >= self.world {
            return;
        }
        let Vote { epoch, motion } = vote;
        match motion {
            Motion::Decided { decree } => return self.on_decided(epoch, &decree),
            Motion::Join => return self.on_join(now_ns, from, incarnation),
            _ => {}
        }
        if matches!(self.state, State::Joining { .. } | State::Excluded(_)) {
            return;
        }
        let asks = matches!(motion, Motion::Ask { .. } | Motion::Prepare { .. } | Motion::Accept { .. });
        if epoch <= self.epoch {
            if asks {
                self.tell_decided(from);
            }
            return;
        }
        if epoch > self.next() {
            // This rank is behind.
            return self.say(from, self.next(), Motion::Ask { last: self.decree.first });
        }
        let known = *self.voters.entry(from).or_insert(incarnation) == incarnation;
        if !known || !self.decree.members.contains(&from) || self.restarted.contains(&from) {
            return;
        }
        if matches!(self.state, State::Idle) {
            if let Motion::Ask { last } | Motion::Prepare { last, .. } = motion
                && self.wanted.is_none_or(|least| last != least && later(last, least) == least)
            {
                self.wanted = Some(last);
                self.changes.push_back(Change::Wanted { by: from, last });
            }
            if asks {
                self.say(from, epoch, if self.failed { Motion::Quit } else { Motion::Wait });
            }
            return;
        }
        self.on_vote(now_ns, from, motion);
    }

    /// Takes a vote on the epoch that is agreed on.
    fn on_vote(&mut self, now_ns: u64, from: u16, motion: Motion) {
        let (epoch, own) = (self.next(), self.own);
        let State::Running(running) = &mut self.state else { return };
        if running.suspects.contains(&from) {
            return;
        }
        running.heard_ns.insert(from, now_ns);
        match motion {
            Motion::Ask { .. } => {
                let last = running.last;
                let lead = running.lead.as_ref().filter(|lead| !lead.heard().contains(&from));
                let motion = lead.and_then(|lead| question(lead, last)).unwrap_or(Motion::Wait);
                self.say(from, epoch, motion);
            }
            Motion::Prepare { ballot, .. } if ballot >= self.promised => {
                self.promised = ballot;
                let (last, suspects) = (running.last, running.suspects.clone());
                let accepted = self.accepted.clone();
                self.say(from, epoch, Motion::Promise { ballot, last, suspects, accepted });
            }
            Motion::Accept { ballot, decree } if ballot >= self.promised => {
                self.promised = ballot;
                self.accepted = Some((ballot, decree));
                self.say(from, epoch, Motion::Accepted { ballot });
            }
            Motion::Prepare { .. } | Motion::Accept { .. } => {
                self.say(from, epoch, Motion::Refuse { ballot: self.promised });
            }
            Motion::Promise { ballot, last, suspects, accepted } => {
                if let Some(Lead { ballot: own, phase: Phase::Preparing(promises) }) = &mut running.lead
                    && ballot == *own
                {
                    promises.insert(from, Promise { last, suspects, accepted });
                    self.go_on(now_ns);
                }
            }
            Motion::Accepted { ballot } => {
                if let Some(Lead { ballot: own, phase: Phase::Accepting(_, acks) }) = &mut running.lead
                    && ballot == *own
                {
                    acks.insert(from);
                    self.go_on(now_ns);
                }
            }
            Motion::Refuse { ballot } => {
                if let Some(lead) = running.lead.as_mut().filter(|lead| lead.ballot < ballot) {
                    lead.outbid(now_ns, ballot, own, self.timing.repeat_ns);
                }
            }
            Motion::Quit => {
                running.suspects.insert(from);
                self.go_on(now_ns);
            }
            Motion::Wait | Motion::Decided { .. } | Motion::Join => {}
        }
    }

    fn on_decided(&mut self, epoch: u32, decree: &Decree) {
        if epoch <= self.epoch && !matches!(self.state, State::Joining { .. }) {
            return;
        }
        let member = decree.members.contains(&self.own);
        match &self.state {
            State::Excluded(_) => {}
            State::Joining { .. } => {
                if member && decree.arrivals.get(&self.own) == Some(&self.incarnation) {
                    self.adopt(epoch, decree.clone());
                }
            }
            // No decree has a rank in it that has promised nothing.
            State::Idle | State::Running(_) => {
                let next = epoch == self.next();
                if next && member && !decree.arrivals.contains_key(&self.own) {
                    if self.promised > 0 {
                        self.adopt(epoch, decree.clone());
                    }
                } else {
                    let error = EpochError::Excluded { epoch };
                    self.state = State::Excluded(error.clone());
                    self.changes.push_back(Change::Failed(error));
                }
            }
        }
    }

    fn on_join(&mut self, now_ns: u64, from: u16, incarnation: u32) {
        if matches!(self.state, State::Joining { .. } | State::Excluded(_)) {
            return;
        }
        let member = self.decree.members.contains(&from);
        if member && self.decree.arrivals.get(&from) == Some(&incarnation) {
            // It has been let in, and has not heard.
            return self.tell_decided(from);
        }
        self.knocks.insert(from, (incarnation, now_ns));
        if member && *self.voters.entry(from).or_insert(0) != incarnation {
            self.has_restarted(now_ns, from);
        }
    }

    fn adopt(&mut self, epoch: u32, decree: Decree) {
        self.epoch = epoch;
        self.voters.retain(|rank, _| decree.members.contains(rank));
        self.voters.extend(&decree.arrivals);
        self.restarted.retain(|rank| decree.members.contains(rank) && !decree.arrivals.contains_key(rank));
        self.knocks.retain(|rank, _| !decree.members.contains(rank));
        self.decree = decree;
        (self.promised, self.accepted, self.state) = (0, None, State::Idle);
        (self.wanted, self.failed) = (None, false);
        self.changes.push_back(Change::Begun(self.epoch()));
    }

    fn fail(&mut self, error: EpochError) {
        // What was promised stays promised, and no operation begins: others may have counted this
        // rank in.
        let epoch = self.next();
        if let State::Running(running) = std::mem::replace(&mut self.state, State::Idle) {
            for &rank in self.decree.members.iter().filter(|rank| !running.suspects.contains(rank)) {
                if rank != self.own {
                    self.outbox.push_back((rank, Vote { epoch, motion: Motion::Quit }));
                }
            }
        }
        self.failed = true;
        self.changes.push_back(Change::Failed(error));
    }
}

impl Round {
    /// Who has yet to vote, or to lead.
    fn waiting(&self, members: &RankSet, own: u16) -> RankSet {
        match &self.lead {
            Some(Lead { phase: Phase::Outbid { .. }, .. }) => RankSet::new(),
            Some(lead) => {
                let mut heard = lead.heard();
                heard.insert(own);
                &(members - &self.suspects) - &heard
            }
            None => self.leader.into_iter().filter(|&leader| leader != own).collect(),
        }
    }
}

impl Lead {
    /// A higher ballot is about: this rank comes with a higher one yet, later each time, and each
    /// rank at another time.
    fn outbid(&mut self, now_ns: u64, by: u32, own: u16, repeat_ns: u64) {
        let wait_ns = (repeat_ns << round(by).min(4)).saturating_mul(1 + u64::from(own % 7));
        self.ballot = self.ballot.max(by);
        self.phase = Phase::Outbid { until_ns: now_ns.saturating_add(wait_ns) };
    }
}

/// What a leader asks for.
fn question(lead: &Lead, last: u32) -> Option<Motion> {
    let ballot = lead.ballot;
    match &lead.phase {
        Phase::Preparing(_) => Some(Motion::Prepare { ballot, last }),
        Phase::Accepting(decree, _) => Some(Motion::Accept { ballot, decree: decree.clone() }),
        Phase::Outbid { .. } => None,
    }
}
