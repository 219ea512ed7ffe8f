// SPDX-License-Identifier: Apache-2.0
//! The traffic manager against a model that keeps plain lists and works its times out with rational
//! numbers.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

mod promises;

const LIMIT: u64 = 4_000;

/// One port, as the module's head describes it.
struct Model {
    rate_bps: u64,
    queues: [Vec<(u32, u32)>; QUEUES],
    /// Start of the busy period and bytes sent in it: its line is free at `start + 8·10⁹·bytes /
    /// rate`.
    busy_since_ns: u64,
    busy_bytes: u64,
}

impl Model {
    fn free_at_ns(&self) -> u64 {
        let time = u128::from(self.busy_bytes) * 8_000_000_000;
        self.busy_since_ns + (time / u128::from(self.rate_bps)) as u64
    }

    fn enqueue(&mut self, queue: u8, length: u32, id: u32) -> bool {
        let queue = &mut self.queues[usize::from(queue)];
        let fits =
            queue.iter().map(|&(length, _)| u64::from(length)).sum::<u64>() + u64::from(length) <= LIMIT;
        if fits {
            queue.push((length, id));
        }
        fits
    }

    /// The packet served at `start_ns`: queue, id, and when its last bit leaves.
    fn serve(&mut self, start_ns: u64) -> (u8, u32, u64) {
        let queue = (0..QUEUES).rev().find(|&queue| !self.queues[queue].is_empty()).unwrap();
        let (length, id) = self.queues[queue].remove(0);
        if start_ns > self.free_at_ns() {
            (self.busy_since_ns, self.busy_bytes) = (start_ns, 0);
        }
        self.busy_bytes += u64::from(length);
        (queue as u8, id, self.free_at_ns())
    }
}

fn drain(manager: &mut TrafficManager<u32>, now_ns: u64, mut each: impl FnMut(&Dequeued<u32>, u64)) {
    while let Some(dequeued) = manager.dequeue(now_ns) {
        let end_ns = manager.transmitted(dequeued.port, dequeued.start_ns, lengths(dequeued.item) as usize);
        each(&dequeued, end_ns);
    }
}

/// A packet's length, told by its id.
fn lengths(id: u32) -> u32 {
    id % 1_500 + 1
}

proptest! {
    #[test]
    fn ports_serve_what_the_model_serves_when_it_does(
        rate_bps in prop_oneof![1_000u64..=10_000_000, 10_000_000u64..=100_000_000_000],
        steps in prop::collection::vec((0u64..200_000, 0u16..3, 0u8..9, any::<u32>()), 1..200),
    ) {
        let mut manager = TrafficManager::new(PortConfig { rate_bps, queue_limit_bytes: LIMIT });
        let mut models: Vec<_> = (0..3)
            .map(|_| Model { rate_bps, queues: Default::default(), busy_since_ns: 0, busy_bytes: 0 })
            .collect();
        let (mut now_ns, mut last_ns, mut offered) = (0, 0, BTreeMap::<(u16, u8), (u64, u64)>::new());
        for (pause_ns, port, queue, id) in steps {
            now_ns += pause_ns;
            let mut check = |dequeued: &Dequeued<u32>, end_ns| {
                let model = &mut models[usize::from(dequeued.port)];
                assert!(dequeued.start_ns >= last_ns, "ports are served in the order of time");
                last_ns = dequeued.start_ns;
                let expected = model.serve(dequeued.start_ns);
                assert_eq!((dequeued.queue, dequeued.item, end_ns), expected);
                assert_eq!(dequeued.dequeue_depth as usize, model.queues[usize::from(dequeued.queue)].len());
            };
            drain(&mut manager, now_ns, &mut check);
            let length = lengths(id);
            let taken = manager.enqueue(now_ns, port, queue, length, id).is_ok();
            if queue < 8 {
                prop_assert_eq!(taken, models[usize::from(port)].enqueue(queue, length, id));
                let sum = offered.entry((port, queue)).or_default();
                *sum = (sum.0 + 1, sum.1 + u64::from(length));
            } else {
                prop_assert!(!taken, "there is no queue 8");
            }
            for (port, model) in models.iter().enumerate() {
                for (queue, waiting) in model.queues.iter().enumerate() {
                    let stats = manager.stats(port as u16, queue as u8);
                    let (packets, bytes) = offered.get(&(port as u16, queue as u8)).copied().unwrap_or_default();
                    prop_assert_eq!(stats.enqueued_packets + stats.dropped_packets, packets);
                    prop_assert_eq!(stats.enqueued_bytes + stats.dropped_bytes, bytes);
                    prop_assert_eq!(stats.depth_packets(), waiting.len() as u64);
                    prop_assert_eq!(stats.depth_bytes(), waiting.iter().map(|&(length, _)| u64::from(length)).sum::<u64>());
                    prop_assert!(stats.depth_bytes() <= stats.watermark_bytes && stats.watermark_bytes <= LIMIT);
                }
            }
        }
        // What is left leaves too, each frame when the line is free.
        while let Some(at_ns) = manager.next_service() {
            drain(&mut manager, at_ns, |dequeued, end_ns| {
                let expected = models[usize::from(dequeued.port)].serve(dequeued.start_ns);
                assert_eq!((dequeued.queue, dequeued.item, end_ns), expected);
            });
        }
        prop_assert!(models.iter().all(|model| model.queues.iter().all(Vec::is_empty)));
    }
}

#[test]
fn a_long_train_takes_its_ideal_time_and_does_not_drift() {
    // Rates that divide no frame's time evenly.
    for (rate_bps, bytes) in [(9_999_999_967, 1_468), (40_000_003, 104), (100_000_000_000, 9_001)] {
        let mut manager = TrafficManager::new(PortConfig { rate_bps, queue_limit_bytes: u64::MAX });
        let frames = 100_000u64;
        for _ in 0..frames {
            manager.enqueue(0, 1, 0, bytes, ()).unwrap();
        }
        for sent in 0..frames {
            let at_ns = manager.next_service().unwrap();
            let ideal = u128::from(sent) * u128::from(bytes) * 8_000_000_000 / u128::from(rate_bps);
            assert!(u128::from(at_ns).abs_diff(ideal) <= 1, "frame {sent} at {at_ns}, ideally {ideal}");
            let dequeued = manager.dequeue(at_ns).unwrap();
            manager.transmitted(1, dequeued.start_ns, bytes as usize);
        }
        assert_eq!(manager.next_service(), None);
    }
}

#[test]
fn a_late_caller_does_not_slow_the_line() {
    let line = PortConfig { rate_bps: 8_000_000_000, ..PortConfig::default() };
    let mut manager = TrafficManager::new(line);
    for id in 0..10 {
        manager.enqueue(0, 1, 0, 1_000, id).unwrap();
    }
    let mut starts = Vec::new();
    while let Some(dequeued) = manager.dequeue(1_000_000) {
        manager.transmitted(1, dequeued.start_ns, 1_000);
        starts.push(dequeued.start_ns);
    }
    assert_eq!(starts, (0..10).map(|i| i * 1_000).collect::<Vec<_>>());
}

#[test]
fn a_packet_that_egress_drops_takes_no_time() {
    let mut manager = TrafficManager::new(PortConfig { rate_bps: 1_000, ..PortConfig::default() });
    manager.enqueue(5, 1, 0, 1_000, ()).unwrap();
    manager.enqueue(5, 1, 0, 1_000, ()).unwrap();
    let first = manager.dequeue(5).unwrap();
    assert_eq!(manager.transmitted(1, first.start_ns, 0), 5);
    assert_eq!(manager.dequeue(5).unwrap().start_ns, 5);
}
