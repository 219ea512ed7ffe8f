// SPDX-License-Identifier: Apache-2.0
//! VOTE: what ranks say to each other to agree on the next epoch. The state machine is
//! [`crate::epoch`].
//!
//! Big-endian, behind the two incarnations that every control packet begins with:
//!
//! ```text
//! 0 what is said (1 ask, 2 wait, 3 prepare, 4 promise, 5 refuse, 6 accept, 7 accepted, 8 decided, 9 join, 10 quit)   1 number of arrivals, at most 32
//! 2-3 bytes of a set of ranks, at most 128   4-7 epoch that is agreed on   8-11 ballot   12-15 promise: ballot of what was accepted before, 0 for nothing
//! 16-19 first operation number of the epoch  20-23 ask, prepare, promise: last operation number that the sender has used
//! 24- members of the epoch, suspects of a promise: a bit a rank, rank r is bit 7 - r mod 8 of byte r / 8
//!     then the arrivals: rank (2 bytes) and incarnation (4) of each
//! ```
//!
//! Fields that a kind of vote has no use for are sent as zero and ignored on arrival. With 1,024
//! ranks and 32 arrivals a vote takes 488 bytes.

use super::{WireError, word};
use std::collections::{BTreeMap, BTreeSet};
use trimwire_encoder::wire::Kind;

/// Ranks of a job.
pub type RankSet = BTreeSet<u16>;

/// Most ranks that an epoch lets in: as many as a vote has room for.
pub const ARRIVALS_MAX: usize = 32;

/// Bytes of a set: 1,024 ranks.
const SET_MAX: usize = 128;
pub(super) const VOTE_LEN: usize = 24;
const ARRIVAL_LEN: usize = 6;

/// Who belongs to an epoch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decree {
    /// Its ranks.
    pub members: RankSet,
    /// Its first operation's number.
    pub first: u32,
    /// Those of its ranks that were in no epoch before, and their incarnations.
    pub arrivals: BTreeMap<u16, u32>,
}

/// What a vote says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Motion {
    /// The sender wants the epoch, and is not the one to lead.
    Ask {
        /// The last operation number that it has used: it takes part in none behind that.
        last: u32,
    },
    /// The sender is alive. Its application has not asked for the epoch yet, or it waits for
    /// others.
    Wait,
    /// Who leads asks for a promise to hear no lower ballot.
    Prepare {
        /// The ballot.
        ballot: u32,
        /// The last operation number that the sender has used.
        last: u32,
    },
    /// The promise.
    Promise {
        /// The ballot that it is for.
        ballot: u32,
        /// The last operation number that the sender has used.
        last: u32,
        /// Whom it believes dead.
        suspects: RankSet,
        /// What it has accepted before, under which ballot.
        accepted: Option<(u32, Decree)>,
    },
    /// The sender has promised to hear none below this ballot.
    Refuse {
        /// The ballot.
        ballot: u32,
    },
    /// Who leads asks for a decree to be accepted.
    Accept {
        /// The ballot.
        ballot: u32,
        /// The decree.
        decree: Decree,
    },
    /// It is.
    Accepted {
        /// The ballot.
        ballot: u32,
    },
    /// A quorum has accepted it.
    Decided {
        /// The decree.
        decree: Decree,
    },
    /// The sender has started anew and wants to be let in.
    Join,
    /// The sender has failed to bring the epoch about, and takes no further part in it.
    Quit,
}

/// A vote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vote {
    /// The epoch that is agreed on.
    pub epoch: u32,
    /// What is said.
    pub motion: Motion,
}

/// A checked vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VoteView<'a> {
    what: u8,
    epoch: u32,
    ballot: u32,
    accepted: u32,
    first: u32,
    last: u32,
    members: &'a [u8],
    suspects: &'a [u8],
    arrivals: &'a [u8],
}

const ASK: u8 = 1;
const WAIT: u8 = 2;
const PREPARE: u8 = 3;
const PROMISE: u8 = 4;
const REFUSE: u8 = 5;
const ACCEPT: u8 = 6;
const ACCEPTED: u8 = 7;
const DECIDED: u8 = 8;
const JOIN: u8 = 9;
const QUIT: u8 = 10;

impl<'a> VoteView<'a> {
    /// Reads what follows the incarnations; the caller has checked that the fixed part is there.
    pub(super) fn parse(fixed: &'a [u8], rest: &'a [u8]) -> Result<Self, WireError> {
        let what = fixed.first().copied().unwrap_or(0);
        if !(ASK..=QUIT).contains(&what) {
            return Err(WireError::Vote(what));
        }
        let arrivals = fixed.get(1).map_or(0, |&arrivals| usize::from(arrivals));
        let set = (word(fixed, 0) & 0xffff) as usize;
        let need = 2 * set + arrivals * ARRIVAL_LEN;
        if set > SET_MAX || arrivals > ARRIVALS_MAX || rest.len() < need {
            return Err(WireError::Short { kind: Kind::Vote, got: rest.len(), need });
        }
        let (members, rest) = rest.split_at(set);
        let (suspects, rest) = rest.split_at(set);
        Ok(Self {
            what,
            epoch: word(fixed, 4),
            ballot: word(fixed, 8),
            accepted: word(fixed, 12),
            first: word(fixed, 16),
            last: word(fixed, 20),
            members,
            suspects,
            arrivals: &rest[..arrivals * ARRIVAL_LEN],
        })
    }

    /// The vote.
    pub fn to_vote(self) -> Vote {
        let arrivals = self.arrivals.as_chunks::<ARRIVAL_LEN>().0.iter();
        let arrivals = arrivals
            .map(|&[a, b, c, d, e, f]| (u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, f])));
        let decree =
            || Decree { members: ranks(self.members), first: self.first, arrivals: arrivals.collect() };
        let ballot = self.ballot;
        let motion = match self.what {
            ASK => Motion::Ask { last: self.last },
            WAIT => Motion::Wait,
            PREPARE => Motion::Prepare { ballot, last: self.last },
            PROMISE => Motion::Promise {
                ballot,
                last: self.last,
                suspects: ranks(self.suspects),
                accepted: (self.accepted != 0).then(|| (self.accepted, decree())),
            },
            REFUSE => Motion::Refuse { ballot },
            ACCEPT => Motion::Accept { ballot, decree: decree() },
            ACCEPTED => Motion::Accepted { ballot },
            DECIDED => Motion::Decided { decree: decree() },
            JOIN => Motion::Join,
            // The only one left that parses.
            _ => Motion::Quit,
        };
        Vote { epoch: self.epoch, motion }
    }
}

fn ranks(set: &[u8]) -> RankSet {
    let bits = |(byte, bits): (u16, u8)| {
        (0..8).filter(move |bit| bits >> (7 - bit) & 1 == 1).map(move |bit| byte * 8 + bit)
    };
    (0..).zip(set.iter().copied()).flat_map(bits).collect()
}

impl Vote {
    /// The body behind the incarnations.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let (none, empty) = (Decree::default(), RankSet::new());
        let (what, ballot, accepted, decree, last, suspects) = match &self.motion {
            Motion::Ask { last } => (ASK, 0, 0, &none, *last, &empty),
            Motion::Wait => (WAIT, 0, 0, &none, 0, &empty),
            Motion::Prepare { ballot, last } => (PREPARE, *ballot, 0, &none, *last, &empty),
            Motion::Promise { ballot, last, suspects, accepted } => {
                let (accepted, decree) =
                    accepted.as_ref().map_or((0, &none), |(ballot, decree)| (*ballot, decree));
                (PROMISE, *ballot, accepted, decree, *last, suspects)
            }
            Motion::Refuse { ballot } => (REFUSE, *ballot, 0, &none, 0, &empty),
            Motion::Accept { ballot, decree } => (ACCEPT, *ballot, 0, decree, 0, &empty),
            Motion::Accepted { ballot } => (ACCEPTED, *ballot, 0, &none, 0, &empty),
            Motion::Decided { decree } => (DECIDED, 0, 0, decree, 0, &empty),
            Motion::Join => (JOIN, 0, 0, &none, 0, &empty),
            Motion::Quit => (QUIT, 0, 0, &none, 0, &empty),
        };
        let highest = decree.members.last().max(suspects.last());
        let set = highest.map_or(0, |&rank| usize::from(rank) / 8 + 1).min(SET_MAX);
        let arrivals = decree.arrivals.len().min(ARRIVALS_MAX);
        out.extend_from_slice(&[what, arrivals as u8]);
        out.extend_from_slice(&(set as u16).to_be_bytes());
        super::writer::put(out, &[self.epoch, ballot, accepted, decree.first, last]);
        for ranks in [&decree.members, suspects] {
            let at = out.len();
            out.resize(at + set, 0);
            for &rank in ranks {
                if let Some(byte) = out.get_mut(at + usize::from(rank) / 8) {
                    *byte |= 0x80 >> (rank % 8);
                }
            }
        }
        for (rank, incarnation) in decree.arrivals.iter().take(arrivals) {
            out.extend_from_slice(&rank.to_be_bytes());
            out.extend_from_slice(&incarnation.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CONTROL_LEN_MAX, Control, Identity, Writer};
    use super::*;
    use proptest::prelude::*;
    use trimwire_encoder::wire::{PREFIX_LEN, StreamId};

    fn any_ranks() -> impl Strategy<Value = RankSet> {
        proptest::collection::btree_set(0_u16..1_024, 0..40)
    }

    fn any_decree() -> impl Strategy<Value = Decree> {
        let arrivals = proptest::collection::btree_map(0_u16..1_024, any::<u32>(), 0..=ARRIVALS_MAX);
        (any_ranks(), any::<u32>(), arrivals).prop_map(|(members, first, arrivals)| Decree {
            members,
            first,
            arrivals,
        })
    }

    fn any_motion() -> impl Strategy<Value = Motion> {
        let accepted = proptest::option::of((1_u32.., any_decree()));
        prop_oneof![
            any::<u32>().prop_map(|last| Motion::Ask { last }),
            Just(Motion::Wait),
            Just(Motion::Join),
            Just(Motion::Quit),
            any::<(u32, u32)>().prop_map(|(ballot, last)| Motion::Prepare { ballot, last }),
            any::<u32>().prop_map(|ballot| Motion::Refuse { ballot }),
            any::<u32>().prop_map(|ballot| Motion::Accepted { ballot }),
            (any::<u32>(), any_decree()).prop_map(|(ballot, decree)| Motion::Accept { ballot, decree }),
            any_decree().prop_map(|decree| Motion::Decided { decree }),
            (any::<u32>(), any::<u32>(), any_ranks(), accepted).prop_map(
                |(ballot, last, suspects, accepted)| Motion::Promise { ballot, last, suspects, accepted }
            ),
        ]
    }

    fn bytes(vote: &Vote) -> Vec<u8> {
        let stream = StreamId::new(3, 4).expect("fits");
        Writer { stream, identity: Identity { from: 5, to: 6 }, room: CONTROL_LEN_MAX }.vote(vote)
            [PREFIX_LEN..]
            .to_vec()
    }

    proptest! {
        #[test]
        fn every_vote_is_read_as_it_was_written(epoch: u32, motion in any_motion()) {
            let vote = Vote { epoch, motion };
            let body = bytes(&vote);
            prop_assert!(body.len() + PREFIX_LEN <= 488);
            let (identity, control) = Control::parse(Kind::Vote, &body).expect("own");
            prop_assert_eq!(identity, Identity { from: 5, to: 6 });
            let Control::Vote(view) = control else { panic!("another kind") };
            prop_assert_eq!(view.to_vote(), vote);
        }

        #[test]
        fn damaged_votes_are_refused_or_read_and_never_panic(motion in any_motion(), at: prop::sample::Index, bits: u8, keep: prop::sample::Index) {
            let mut body = bytes(&Vote { epoch: 1, motion });
            let at = at.index(body.len());
            body[at] ^= bits;
            body.truncate(keep.index(body.len() + 1));
            if let Ok((_, Control::Vote(view))) = Control::parse(Kind::Vote, &body) {
                let _ = view.to_vote();
            }
        }
    }

    #[test]
    fn bytes_are_as_documented() {
        let decree = Decree { members: [0, 9].into(), first: 0x0102, arrivals: [(9, 0x0a0b)].into() };
        let body = bytes(&Vote { epoch: 7, motion: Motion::Accept { ballot: 0x0400, decree } });
        let wanted = [
            &[0, 0, 0, 5, 0, 0, 0, 6][..],
            &[6, 1, 0, 2, 0, 0, 0, 7, 0, 0, 4, 0, 0, 0, 0, 0],
            &[0, 0, 1, 2, 0, 0, 0, 0],
            &[0x80, 0x40, 0, 0],
            &[0, 9, 0, 0, 0x0a, 0x0b],
        ];
        assert_eq!(body, wanted.concat());
    }
}
