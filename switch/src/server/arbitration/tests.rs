// SPDX-License-Identifier: Apache-2.0
use super::*;
use proptest::prelude::*;

use super::super::outgoing::{Heard, RESERVED, channel};
use super::super::peer::Peer;

const DEVICE: u64 = 1;

fn peer() -> Arc<Peer> {
    Peer::new(&Limits::default())
}

/// A stream, its bid, and both ends of its queue.
type Live = Option<(u64, Option<u128>, Outgoing, Heard)>;

fn bid(election_id: Option<u128>) -> v1::MasterArbitrationUpdate {
    let election_id = election_id.map(Into::into);
    v1::MasterArbitrationUpdate { device_id: DEVICE, election_id, ..Default::default() }
}

/// What a controller was told, as (code, highest id).
fn told(heard: &mut Heard) -> Vec<(i32, Option<u128>)> {
    let update = |message: Result<v1::StreamMessageResponse, Status>| match message.unwrap().update {
        Some(Told::Arbitration(update)) => (update.status.unwrap().code, update.election_id.map(u128::from)),
        other => panic!("{other:?}"),
    };
    std::iter::from_fn(|| heard.try_recv()).map(update).collect()
}

#[test]
fn a_call_without_an_election_id_is_not_the_primarys() {
    let mut arbitration = Arbitration::new(DEVICE, Arc::default());
    let (outgoing, _heard) = channel(peer(), 100, 1 << 20);
    let stream = arbitration.open();
    arbitration.bid(stream, bid(None), &outgoing).unwrap();
    assert_eq!(arbitration.check("", None).unwrap_err().code(), Code::PermissionDenied);
    arbitration.bid(stream, bid(Some(0)), &outgoing).unwrap();
    assert!(arbitration.check("", Some(0.into())).is_ok());
    assert_eq!(arbitration.check("", None).unwrap_err().code(), Code::PermissionDenied);
}

#[test]
fn a_role_keeps_the_config_of_its_last_primary() {
    use prost::Message as _;
    use trimwire_p4runtime::stratum::P4RoleConfig;
    let mut arbitration = Arbitration::new(DEVICE, Arc::default());
    let with = |election_id: u128, ids: &[u32]| {
        let config = P4RoleConfig { shared_p4_ids: ids.to_vec(), ..Default::default() };
        let type_url = "type.googleapis.com/stratum.P4RoleConfig".to_owned();
        let config = Some(Any { type_url, value: config.encode_to_vec() });
        let role = Some(v1::Role { name: "r".to_owned(), config, ..Default::default() });
        v1::MasterArbitrationUpdate { role, ..bid(Some(election_id)) }
    };
    let (outgoing, mut heard) = channel(peer(), 100, 1 << 20);
    let (first, second) = (arbitration.open(), arbitration.open());
    arbitration.bid(first, with(5, &[1]), &outgoing).unwrap();
    arbitration.bid(second, with(4, &[2]), &outgoing).unwrap();
    assert!(arbitration.access("r").unwrap().has(1), "a backup's config is not the role's");
    let config = |heard: &mut Heard| match heard.try_recv().unwrap().unwrap().update {
        Some(Told::Arbitration(update)) => update.role.unwrap().config,
        other => panic!("{other:?}"),
    };
    assert_eq!(config(&mut heard), config(&mut heard), "both are told the primary's");
    arbitration.bid(second, with(6, &[2]), &outgoing).unwrap();
    assert!(arbitration.access("r").unwrap().has(2) && !arbitration.access("r").unwrap().has(1));
}

#[test]
fn arbitration_finds_room_in_a_queue_that_packets_have_filled() {
    let mut arbitration = Arbitration::new(DEVICE, Arc::default());
    let (outgoing, mut heard) = channel(peer(), 64, 1 << 20);
    let stream = arbitration.open();
    arbitration.bid(stream, bid(Some(1)), &outgoing).unwrap();
    let packet = |_: &Access| Some(Told::Packet(v1::PacketIn::default()));
    let taken = (0..1000).filter(|_| arbitration.tell_primaries(packet)).count();
    assert_eq!(taken, 64 - 1 - RESERVED);
    let other = arbitration.open();
    arbitration.bid(other, bid(Some(2)), &channel(peer(), 8, 1 << 20).0).unwrap();
    let last = std::iter::from_fn(|| heard.try_recv()).last().unwrap().unwrap();
    assert!(matches!(last.update, Some(Told::Arbitration(_))));
}

#[test]
fn bytes_that_wait_are_counted_and_arbitration_has_a_reserve() {
    let (outgoing, mut heard) = channel(peer(), 1_000, 64 << 10);
    let packet = || Told::Packet(v1::PacketIn { payload: vec![0; 9_000], metadata: Vec::new() });
    let taken = (0..100).filter(|_| outgoing.tell(packet())).count();
    assert!((6..=7).contains(&taken), "{taken}");
    assert!(outgoing.tell_of_arbitration(v1::MasterArbitrationUpdate::default()));
    assert!(heard.try_recv().is_some());
    assert!(outgoing.tell(packet()), "what has been taken makes room");
}

#[test]
fn a_role_whose_clients_are_gone_has_no_config_and_gives_its_place_away() {
    use prost::Message as _;
    use trimwire_p4runtime::stratum::P4RoleConfig;
    let mut arbitration = Arbitration::new(DEVICE, Arc::default());
    let (outgoing, _heard) = channel(peer(), 1_000, 1 << 20);
    for number in 0..200_u32 {
        let config = P4RoleConfig { exclusive_p4_ids: vec![7], ..Default::default() };
        let type_url = "type.googleapis.com/stratum.P4RoleConfig".to_owned();
        let config = Some(Any { type_url, value: config.encode_to_vec() });
        let role = Some(v1::Role { name: format!("r{number}"), config, ..Default::default() });
        let stream = arbitration.open();
        // The id is exclusive to each in turn: nobody who is gone has it.
        let update = v1::MasterArbitrationUpdate { role, ..bid(Some(u128::MAX)) };
        arbitration.bid(stream, update, &outgoing).unwrap();
        assert!(!arbitration.access(&format!("r{number}")).unwrap().has(1));
        arbitration.close(stream);
        assert_eq!(arbitration.access(&format!("r{number}")).unwrap_err().code(), Code::NotFound);
        assert!(arbitration.roles.len() <= MOST_ROLES);
    }
}

#[test]
fn a_reset_makes_the_highest_of_those_that_are_connected_primary() {
    let mut arbitration = Arbitration::new(DEVICE, Arc::default());
    let (outgoing, mut heard) = channel(peer(), 100, 1 << 20);
    let (gone, live) = (arbitration.open(), arbitration.open());
    arbitration.bid(gone, bid(Some(u128::MAX)), &channel(peer(), 8, 1 << 20).0).unwrap();
    arbitration.close(gone);
    arbitration.bid(live, bid(Some(3)), &outgoing).unwrap();
    assert!(!arbitration.is_primary(live));
    assert_eq!(arbitration.reset(Some("other")).unwrap_err().code(), Code::NotFound);
    assert_eq!(arbitration.reset(None).unwrap(), [""]);
    assert!(arbitration.is_primary(live));
    assert_eq!(told(&mut heard).last(), Some(&(0, Some(3))));
    assert!(arbitration.reset(None).unwrap().is_empty(), "there is nothing left to forget");
}

proptest! {
    /// What the specification promises, whatever happens: at most one primary, the one live
    /// controller that has the highest id ever seen; and whoever is connected has been told the
    /// truth last.
    #[test]
    fn the_highest_id_ever_is_primary_and_everybody_knows(
        steps in prop::collection::vec((0_usize..5, prop::option::of(0_u128..8), any::<bool>()), 1..60)
    ) {
        let mut arbitration = Arbitration::new(DEVICE, Arc::default());
        let mut live: Vec<Live> = (0..5).map(|_| None).collect();
        let mut last: Vec<Option<(i32, Option<u128>)>> = vec![None; 5];
        let mut highest: Option<u128> = None;
        for (who, election_id, leaves) in steps {
            if leaves {
                if let Some((stream, ..)) = live[who].take() {
                    arbitration.close(stream);
                }
                last[who] = None;
            } else {
                let taken = live.iter().enumerate().any(|(other, controller)| {
                    other != who && election_id.is_some() && controller.as_ref().is_some_and(|c| c.1 == election_id)
                });
                if live[who].is_none() {
                    let (outgoing, heard) = channel(peer(), 1000, 1 << 24);
                    live[who] = Some((arbitration.open(), None, outgoing, heard));
                }
                let controller = live[who].as_mut().unwrap();
                let answer = arbitration.bid(controller.0, bid(election_id), &controller.2);
                prop_assert_eq!(answer.is_err(), taken);
                if taken {
                    arbitration.close(controller.0);
                    (live[who], last[who]) = (None, None);
                } else {
                    controller.1 = election_id;
                    highest = highest.max(election_id);
                }
            }
            let primary: Vec<bool> = live
                .iter()
                .map(|controller| highest.is_some() && controller.as_ref().is_some_and(|c| c.1 == highest))
                .collect();
            prop_assert!(primary.iter().filter(|is| **is).count() <= 1);
            let exists = primary.contains(&true);
            for (at, controller) in live.iter_mut().enumerate() {
                let Some((stream, .., heard)) = controller else { continue };
                prop_assert_eq!(arbitration.is_primary(*stream), primary[at]);
                if let Some(news) = told(heard).last() {
                    last[at] = Some(*news);
                }
                let code = if primary[at] { 0 } else if exists { 6 } else { 5 };
                prop_assert_eq!(last[at], Some((code, highest)), "controller {}", at);
            }
            let asked = highest.map(Into::into);
            prop_assert_eq!(arbitration.check("", asked).is_ok(), exists);
        }
    }
}
