// SPDX-License-Identifier: Apache-2.0
use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

fn flow(host: u8) -> Flow {
    Flow {
        source: IpAddr::from([10, 0, 0, host]),
        destination: IpAddr::from([10, 0, 0, 9]),
        destination_port: 9217,
    }
}

fn sample(number: u32, host: u8) -> CutSample {
    CutSample { port: 2, queue: 5, number, bytes: 900, flow: flow(host) }
}

fn told(talkers: &mut SwitchTalkers, now_ns: u64) -> Vec<(u64, Vec<(IpAddr, u64)>)> {
    let queues = talkers.told(now_ns, "s1", 10);
    let each = |queue: &QueueTalkers| {
        (queue.packets, queue.talkers.iter().map(|talker| (talker.source, talker.packets)).collect())
    };
    queues.iter().map(each).collect()
}

#[test]
fn a_sample_stands_for_all_that_were_cut_since_the_one_before_lost_late_and_repeated_samples_notwithstanding()
{
    let mut talkers = SwitchTalkers::default();
    // The first stands for itself; 101 to 120; 121 to 200, of which samples were lost.
    for (number, host) in [(100, 1), (120, 1), (200, 2)] {
        talkers.add(0, &sample(number, host));
    }
    let (one, two) = (flow(1).source, flow(2).source);
    assert_eq!(told(&mut talkers, 0), [(101, vec![(two, 80), (one, 21)])]);
    // Late and twice: 200 has stood for them.
    talkers.add(0, &sample(180, 1));
    talkers.add(0, &sample(200, 2));
    assert_eq!(told(&mut talkers, 0), [(101, vec![(two, 80), (one, 21)])]);
    // One that counts anew is believed once nothing else comes, from there on.
    for _ in 0..MOST_LATE {
        talkers.add(0, &sample(1, 1));
    }
    assert_eq!(told(&mut talkers, 0), [(101, vec![(two, 80), (one, 21)])]);
    for number in [2, 9] {
        talkers.add(0, &sample(number, 1));
    }
    assert_eq!(told(&mut talkers, 0), [(109, vec![(two, 80), (one, 29)])]);
    // A new connection; across the wrap.
    talkers.begin();
    talkers.add(0, &sample(u32::MAX - 1, 1));
    talkers.add(0, &sample(2, 1));
    assert_eq!(told(&mut talkers, 0), [(5, vec![(one, 5)])]);
    let queue = &talkers.told(3 * MS, "s1", 10)[0];
    assert_eq!((queue.talkers[0].bytes, queue.talkers[0].samples), (4500, 2));
    assert!((queue.talkers[0].seconds_ago - 0.003).abs() < 1e-9 && (queue.seconds - 0.003).abs() < 1e-9);
}

#[test]
fn what_is_told_is_of_the_last_ten_to_twenty_seconds_and_a_quiet_queue_is_forgotten() {
    let mut talkers = SwitchTalkers::default();
    let at = |seconds: u64| seconds * 1_000 * MS;
    talkers.add(at(0), &sample(1, 1));
    talkers.add(at(9), &sample(11, 1));
    talkers.add(at(12), &sample(14, 2));
    let (one, two) = (flow(1).source, flow(2).source);
    assert_eq!(told(&mut talkers, at(19)), [(14, vec![(one, 11), (two, 3)])]);
    assert_eq!(told(&mut talkers, at(21)), [(3, vec![(two, 3)])]);
    // How many were trimmed in between is still known.
    talkers.add(at(25), &sample(20, 2));
    assert_eq!(told(&mut talkers, at(25)), [(9, vec![(two, 9)])]);
    assert_eq!(told(&mut talkers, at(60)), []);
}

#[test]
fn a_flood_of_strangers_takes_bounded_memory_and_does_not_hide_who_is_cut_most() {
    let mut talkers = SwitchTalkers::default();
    let mut number = 0;
    for round in 0..20_000_u32 {
        number += 16;
        let mut sample = sample(number, 1);
        if round % 4 > 0 {
            // Three of four have an address that is never seen again.
            sample.flow.source = IpAddr::from(round.to_be_bytes());
        }
        sample.port = 2;
        talkers.add(u64::from(round) * 100_000, &sample);
    }
    let queue = &talkers.told(2_000 * MS, "s1", 1000)[0];
    assert_eq!(queue.talkers.len(), TALKERS);
    let first = &queue.talkers[0];
    assert_eq!((first.source, queue.packets), (flow(1).source, 16 * 19_999 + 1));
    assert!(first.packets <= 80_000 && first.packets_at_most >= 79_985, "{first:?}");
    assert!(first.packets >= 79_000, "a quarter of all, of which it is known: {first:?}");
    for port in 0..1000 {
        talkers.add(2_000 * MS, &CutSample { port, ..sample(1, 1) });
    }
    assert_eq!(talkers.told(2_000 * MS, "s1", 10).len(), QUEUES);
    assert_eq!(talkers.samples(), 21_000);
}

#[test]
fn hosts_have_their_names_and_strangers_their_addresses() {
    let text = include_str!("../../../examples/fabrics/single-switch.yaml");
    let fabric = Fabric::from_yaml(text, "fabric.yaml").unwrap();
    let names = HostNames::of(&fabric);
    let mut talkers = SwitchTalkers::default();
    talkers.add(0, &sample(1, 1));
    talkers.add(0, &sample(4, 77));
    let queue = &talkers.told(0, "s1", 10)[0];
    let destination = names.name(flow(1).destination);
    assert_eq!(
        Shares(queue, &names).to_string(),
        format!("10.0.0.77 -> {destination}:9217 75 %, h1 -> {destination}:9217 25 %")
    );
}

proptest! {
    /// Theorems of the paper's section 3, against counting everything.
    #[test]
    fn every_key_of_more_than_its_share_of_the_counters_has_one_and_bounds_hold(
        stream in proptest::collection::vec((0_u8..40, 1_u64..50), 0..400),
        room in 1_usize..12,
    ) {
        let mut sketch = SpaceSaving::new(room);
        let mut exact: BTreeMap<u8, u64> = BTreeMap::new();
        for (key, weight) in &stream {
            sketch.add(*key, 0, *weight, 0);
            *exact.entry(*key).or_default() += weight;
        }
        let all: u64 = exact.values().sum();
        let found: BTreeMap<u8, Estimate> = sketch.estimates().map(|(key, estimate)| (*key, *estimate)).collect();
        prop_assert!(found.len() <= room);
        for (key, weight) in exact {
            if let Some(estimate) = found.get(&key) {
                prop_assert!(estimate.packets <= weight && weight <= estimate.packets + estimate.inherited);
                prop_assert!(estimate.inherited <= all / room as u64);
            } else {
                prop_assert!(weight <= all / room as u64, "{key} of {weight} has none");
            }
        }
    }
}

proptest! {
    /// In whatever order lists come: never more than was trimmed, and all of it in the end.
    #[test]
    fn disorder_counts_nothing_twice(order in Just((1..=200_u32).collect::<Vec<_>>()).prop_shuffle()) {
        let mut talkers = SwitchTalkers::default();
        talkers.add(0, &sample(1000, 1));
        for number in &order {
            talkers.add(0, &sample(1000 + number, 1));
        }
        prop_assert_eq!(talkers.told(0, "s1", 1)[0].packets, 201);
    }
}
