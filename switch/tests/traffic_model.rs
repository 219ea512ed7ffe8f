//! The traffic manager against a naive model, and its promises: exact rates, strict priority, conservation.

use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use trimwire_switch::PortConfig;
use trimwire_switch::traffic::{QUEUES, TrafficManager};

#[derive(Debug, Clone)]
enum Step {
    Enqueue { port: u16, queue: u8, length: u32 },
    Advance(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..4u16, 0..10u8, 0..2_000u32).prop_map(|(port, queue, length)| Step::Enqueue { port, queue, length }),
        1 => (0..5_000u64).prop_map(Step::Advance),
    ];
    prop::collection::vec(step, 0..300)
}

/// A departure: packet, start and end in nanoseconds.
type Departure = (u64, u64, u64);

/// One port, kept as lists, time as exact fractions of `rate`.
#[derive(Default)]
struct Model {
    rate: u128,
    limit: u64,
    /// (arrival, packet, length) by queue.
    queues: [VecDeque<(u64, u64, u32)>; QUEUES],
    /// When the line is free, in ns · rate.
    free: u128,
    departures: Vec<Departure>,
    dropped: Vec<u64>,
}

impl Model {
    fn offer(&mut self, now: u64, queue: u8, length: u32, packet: u64) {
        let Some(waiting) = self.queues.get_mut(usize::from(queue)) else { return self.dropped.push(packet) };
        if waiting.iter().map(|w| u64::from(w.2)).sum::<u64>() + u64::from(length) > self.limit {
            return self.dropped.push(packet);
        }
        waiting.push_back((now, packet, length));
    }

    /// Serves until `now`: at each moment that the line is free, the highest queue that has something by then.
    fn serve(&mut self, now: u64) {
        let unit = self.rate.max(1);
        while let Some(first) = self.queues.iter().flatten().map(|w| w.0).min() {
            // The line acts on whole nanoseconds; what is left of one is owed to the next frame of a busy line.
            let start = u64::try_from(self.free / unit).unwrap().max(first);
            if start > now {
                break;
            }
            let queue = self.queues.iter().rposition(|q| q.front().is_some_and(|w| w.0 <= start)).unwrap();
            let (_, packet, length) = self.queues[queue].pop_front().unwrap();
            let begin = self.free.max(u128::from(start) * unit);
            self.free = if self.rate == 0 { begin } else { begin + u128::from(length) * 8 * 1_000_000_000 };
            self.departures.push((packet, start, u64::try_from(self.free / unit).unwrap()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn departures_are_those_of_a_naive_model(
        steps in steps(),
        rates in prop::array::uniform4(prop_oneof![Just(0), 1_000_000..400_000_000_000u64]),
        limit in prop_oneof![Just(0), 1..20_000u64],
    ) {
        let mut manager = TrafficManager::new(PortConfig::default());
        let mut models: BTreeMap<u16, Model> = BTreeMap::new();
        for (port, rate_bps) in (0..4).zip(rates) {
            manager.configure(port, PortConfig { rate_bps, queue_limit_bytes: limit });
            models.insert(port, Model { rate: rate_bps.into(), limit, ..Model::default() });
        }
        let mut now = 0;
        let mut real: BTreeMap<u16, Vec<Departure>> = BTreeMap::new();
        let mut dropped: BTreeMap<u16, Vec<u64>> = BTreeMap::new();
        let end = [Step::Advance(1 << 40)];
        let mut offered = BTreeMap::<(u16, u8), (u64, u64)>::new();
        for (packet, step) in (0..).zip(steps.iter().chain(&end)) {
            match *step {
                Step::Enqueue { port, queue, length } => {
                    let counts = offered.entry((port, queue)).or_default();
                    (counts.0, counts.1) = (counts.0 + 1, counts.1 + u64::from(length));
                    if let Err(packet) = manager.enqueue(now, port, queue, length, (packet, length)) {
                        dropped.entry(port).or_default().push(packet.0);
                    }
                    models.get_mut(&port).unwrap().offer(now, queue, length, packet);
                }
                Step::Advance(by) => {
                    now += by;
                    while let Some(d) = manager.dequeue(now) {
                        let (packet, length) = d.item;
                        let ends = manager.transmitted(d.port, d.start_ns, length as usize);
                        real.entry(d.port).or_default().push((packet, d.start_ns, ends));
                    }
                    models.values_mut().for_each(|model| model.serve(now));
                }
            }
            for (&(port, queue), &(packets, bytes)) in &offered {
                if usize::from(queue) < QUEUES {
                    let stats = manager.stats(port, queue);
                    prop_assert_eq!(stats.enqueued_packets + stats.dropped_packets, packets);
                    prop_assert_eq!(stats.enqueued_bytes + stats.dropped_bytes, bytes);
                    prop_assert!(stats.watermark_bytes >= stats.depth_bytes() && stats.watermark_bytes <= limit);
                }
            }
        }
        prop_assert_eq!(manager.next_service(), None);
        for (port, model) in models {
            prop_assert_eq!(real.remove(&port).unwrap_or_default(), model.departures, "port {}", port);
            prop_assert_eq!(dropped.remove(&port).unwrap_or_default(), model.dropped, "port {}", port);
        }
    }
}

#[test]
fn a_million_frames_take_exactly_their_bits_over_the_rate() {
    // 1,001 bytes at 3 Gbit/s: 2,669⅓ ns a frame.
    let mut manager = TrafficManager::new(PortConfig { rate_bps: 3_000_000_000, queue_limit_bytes: 1 << 20 });
    let mut end_ns = 0;
    for _ in 0..2 {
        manager.enqueue(0, 1, 0, 1_001, ()).unwrap();
    }
    for sent in 1..=1_000_000u64 {
        let at_ns = manager.next_service().unwrap();
        let start_ns = manager.dequeue(at_ns).unwrap().start_ns;
        end_ns = manager.transmitted(1, start_ns, 1_001);
        if sent < 999_999 {
            manager.enqueue(at_ns, 1, 0, 1_001, ()).unwrap();
        }
    }
    assert_eq!(end_ns, 1_000_000 * 1_001 * 8 / 3);
}

#[test]
fn a_packet_of_a_higher_queue_overtakes_all_that_wait() {
    let mut manager = TrafficManager::new(PortConfig { rate_bps: 1_000_000_000, ..PortConfig::default() });
    for (item, queue) in [(0, 2), (1, 2), (2, 5), (3, 7), (4, 0), (5, 7)] {
        manager.enqueue(0, 1, queue, 100, item).unwrap();
    }
    let mut order = Vec::new();
    while let Some(dequeued) = manager.dequeue(u64::MAX) {
        manager.transmitted(1, dequeued.start_ns, 100);
        order.push(dequeued.item);
    }
    assert_eq!(order, [3, 5, 2, 0, 1, 4]);
}
