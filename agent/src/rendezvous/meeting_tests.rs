// SPDX-License-Identifier: Apache-2.0
use super::*;
use proptest::prelude::*;

fn at(rank: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1 + rank as u8], 40_000 + rank))
}

fn offer(rank: u16, world: u16) -> Offer {
    let version = "1.0".to_owned();
    Offer { version, ..Offer::new(rank, world, at(rank), 100 + u32::from(rank)) }
}

fn meeting(world: u16) -> Meeting {
    Meeting::new(offer(0, world), at(0), 77, [5; 32])
}

fn refused(meeting: &Meeting) -> String {
    match meeting.verdict() {
        Some(Word::Refused(refusal)) => refusal.to_string(),
        other => panic!("{other:?}"),
    }
}

/// What everyone is told when rank 2 of 4 comes with this.
fn told(change: impl FnOnce(&mut Offer)) -> String {
    let mut meeting = meeting(4);
    assert_eq!(meeting.join(at(1), offer(1, 4)), Admission::Waits);
    let mut changed = offer(2, 4);
    change(&mut changed);
    assert_eq!(meeting.join(at(2), changed), Admission::Waits);
    refused(&meeting)
}

#[test]
fn everyone_hears_who_differs_and_both_values() {
    assert_eq!(told(|offer| offer.version = "1.1".to_owned()), "rank 2 has version 1.1, rank 0 has 1.0");
    assert_eq!(told(|offer| offer.world = 3), "rank 2 was started as one of 3 ranks, rank 0 as one of 4");
    assert_eq!(told(|offer| offer.job = Some(3)), "rank 2 has job 3, rank 0 has 0");
    assert_eq!(told(|offer| offer.seed = Some(3)), "rank 2 has seed 3, rank 0 has 77");
    assert!(told(|offer| offer.mtu = Some(500)).contains("rank 2's interface has an MTU of 500 bytes"));
    assert!(told(|offer| offer.address = at(1)).contains("ranks 1 and 2 both say"));
    assert!(
        told(|offer| offer.address = SocketAddr::from(([127, 0, 0, 1], 5)))
            .contains("rank 2 listens on 127.0.0.1:5, which rank 0")
    );
    assert!(
        told(|offer| offer.address = "[fd00::1]:5".parse().expect("literal")).contains("rank 0 listens on")
    );
}

#[test]
fn who_is_a_rank_that_is_there_already_is_sent_away_alone() {
    let mut meeting = meeting(3);
    meeting.join(at(1), offer(1, 3));
    for rank in [0, 1] {
        let Admission::Refused(refusal) = meeting.join(at(7), Offer { address: at(7), ..offer(rank, 3) })
        else {
            panic!("two of rank {rank}");
        };
        let told = format!("rank {rank} came twice: from {} and from 10.0.0.8:40007; the first", at(rank));
        assert!(refusal.to_string().starts_with(&told), "{refusal}");
    }
    assert_eq!(meeting.verdict(), None);
    meeting.join(at(2), offer(2, 3));
    let Some(Word::Agreed(agreed)) = meeting.verdict() else { panic!("{:?}", meeting.verdict()) };
    assert_eq!(agreed.members[1].address, at(1), "the first one stays");
}

#[test]
fn who_makes_no_sense_is_sent_away_alone() {
    let mut meeting = meeting(2);
    let senseless: [fn(&mut Offer); 5] = [
        |offer| offer.rank = 2,
        |offer| offer.incarnation = 0,
        |offer| offer.address.set_port(0),
        |offer| offer.job = Some(64),
        |offer| offer.version = "x".repeat(65),
    ];
    for change in senseless {
        let mut changed = offer(1, 2);
        change(&mut changed);
        assert!(matches!(meeting.join(at(1), changed), Admission::Refused(Refusal::Invalid { .. })));
    }
    assert_eq!(meeting.verdict(), None);
    meeting.join(at(1), offer(1, 2));
    assert!(matches!(meeting.verdict(), Some(Word::Agreed(_))));
}

#[test]
fn who_is_missing_and_who_was_sent_away_is_told_when_time_is_up() {
    let mut meeting = meeting(8);
    for rank in [1, 2, 4, 6, 7] {
        meeting.join(at(rank), offer(rank, 8));
    }
    meeting.leave(7);
    for number in 0..9 {
        meeting.turned_away(format!("stranger {number}"));
    }
    meeting.expire(60);
    assert_eq!(
        refused(&meeting),
        "ranks 3, 5 and 7 of 8 did not come within 60 s (sent away: stranger 6; stranger 7; stranger 8)"
    );
    meeting.join(at(3), offer(3, 8));
    assert!(refused(&meeting).starts_with("ranks 3, 5"), "what was said stays said");
}

#[test]
fn the_smallest_mtu_is_everyones() {
    let mut own = offer(0, 3);
    own.mtu = Some(9_000);
    let mut meeting = Meeting::new(own, at(0), 0, [0; 32]);
    let mut small = offer(1, 3);
    small.mtu = Some(1_450);
    meeting.join(at(1), small);
    meeting.join(at(2), offer(2, 3));
    let Some(Word::Agreed(agreed)) = meeting.verdict() else { panic!() };
    assert_eq!(agreed.mtu, Some(1_450));
}

#[test]
fn ranks_have_channels_by_their_processors_where_all_tell_them() {
    let agreed = |of: [Option<&str>; 3]| {
        let with = |rank: u16| {
            let cores = of[usize::from(rank)].map(|text| text.parse().expect("a list"));
            Offer { cores, ..offer(rank, 3) }
        };
        let mut meeting = Meeting::new(with(0), at(0), 0, [0; 32]);
        meeting.join(at(1), with(1));
        meeting.join(at(2), with(2));
        let Some(Word::Agreed(agreed)) = meeting.verdict() else { panic!() };
        agreed.channels
    };
    assert_eq!(agreed([Some("0-3"), Some("4-7"), Some("0-15")]), 4);
    assert_eq!(agreed([Some("0-3"), Some("4-6"), Some("0-15")]), 3);
    assert_eq!(agreed([Some("0-3"), None, Some("0-15")]), 1);
}

proptest! {
    #[test]
    fn whoever_comes_goes_and_comes_again_in_any_order_all_meet_once_all_are_there(
        steps in proptest::collection::vec((1..6_u16, any::<bool>()), 0..60)
    ) {
        let world = 6;
        let mut meeting = meeting(world);
        // The oracle: a set of those who are there.
        let mut there = BTreeSet::from([0]);
        for (rank, comes) in steps {
            prop_assert_eq!(meeting.verdict().is_some(), there.len() == usize::from(world));
            if meeting.verdict().is_some() {
                break;
            }
            if comes && !there.contains(&rank) {
                meeting.join(at(rank), offer(rank, world));
                there.insert(rank);
            } else if !comes && there.remove(&rank) {
                meeting.leave(rank);
            }
        }
        for rank in 1..world {
            if there.insert(rank) {
                meeting.join(at(rank), offer(rank, world));
            }
        }
        let Some(Word::Agreed(agreed)) = meeting.verdict() else { return Err(TestCaseError::fail("no verdict")) };
        prop_assert_eq!((agreed.seed, agreed.job), (77, 0));
        for (rank, member) in (0..).zip(&agreed.members) {
            prop_assert_eq!((member.address, member.incarnation), (at(rank), 100 + u32::from(rank)));
            prop_assert_eq!(agreed.flaw(&offer(rank, world)), None);
        }
    }

    #[test]
    fn offers_of_any_bytes_panic_nowhere(bytes in proptest::collection::vec(any::<u8>(), 0..200), at_byte in 0..200_usize) {
        let mut valid = serde_json::to_vec(&offer(1, 2)).expect("JSON");
        if let Some(slot) = valid.get_mut(at_byte) {
            *slot = bytes.first().copied().unwrap_or(0);
        }
        for bytes in [valid, bytes] {
            if let Ok(offer) = serde_json::from_slice::<Offer>(&bytes) {
                meeting(2).join(at(1), offer);
            }
        }
    }
}
