use super::*;
use proptest::prelude::*;
use tokio::sync::mpsc::Receiver;

const DEVICE: u64 = 1;

/// A stream, its bid, and both ends of its queue.
type Live = Option<(u64, Option<u128>, Outgoing, Heard)>;
type Heard = Receiver<Result<v1::StreamMessageResponse, Status>>;

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
    std::iter::from_fn(|| heard.try_recv().ok()).map(update).collect()
}

#[test]
fn a_call_without_an_election_id_is_not_the_primarys() {
    let mut arbitration = Arbitration::new(DEVICE, None);
    let (outgoing, _heard) = mpsc::channel(100);
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
    let mut arbitration = Arbitration::new(DEVICE, None);
    let with = |election_id: u128, ids: &[u32]| {
        let config = P4RoleConfig { shared_p4_ids: ids.to_vec(), ..Default::default() };
        let type_url = "type.googleapis.com/stratum.P4RoleConfig".to_owned();
        let config = Some(Any { type_url, value: config.encode_to_vec() });
        let role = Some(v1::Role { name: "r".to_owned(), config, ..Default::default() });
        v1::MasterArbitrationUpdate { role, ..bid(Some(election_id)) }
    };
    let (outgoing, mut heard) = mpsc::channel(100);
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
    let mut arbitration = Arbitration::new(DEVICE, None);
    let (outgoing, mut heard) = mpsc::channel(64);
    let stream = arbitration.open();
    arbitration.bid(stream, bid(Some(1)), &outgoing).unwrap();
    let packet = |_: &Access| Some(Told::Packet(v1::PacketIn::default()));
    let taken = (0..1000).filter(|_| arbitration.tell_primaries(packet)).count();
    assert_eq!(taken, 64 - 1 - RESERVED);
    let other = arbitration.open();
    arbitration.bid(other, bid(Some(2)), &mpsc::channel(8).0).unwrap();
    let last = std::iter::from_fn(|| heard.try_recv().ok()).last().unwrap().unwrap();
    assert!(matches!(last.update, Some(Told::Arbitration(_))));
}

proptest! {
    /// What the specification promises, whatever happens: at most one primary, the one live controller that has the highest id
    /// ever seen; and whoever is connected has been told the truth last.
    #[test]
    fn the_highest_id_ever_is_primary_and_everybody_knows(
        steps in prop::collection::vec((0_usize..5, prop::option::of(0_u128..8), any::<bool>()), 1..60)
    ) {
        let mut arbitration = Arbitration::new(DEVICE, None);
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
                    let (outgoing, heard) = mpsc::channel(1000);
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
