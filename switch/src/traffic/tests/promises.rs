// SPDX-License-Identifier: Apache-2.0
//! What caps, weights and the shared buffer promise, on random traffic.

use super::*;
use std::num::NonZeroU8;

/// A byte takes 1 µs.
const RATE: u64 = 8_000_000;
/// Longest frame here.
const LONGEST: u64 = 2_000;

fn weighted(weight: u8) -> QueueConfig {
    QueueConfig { service: Service::Weighted(NonZeroU8::new(weight).unwrap()), ..QueueConfig::default() }
}

fn capped(permille: u32) -> QueueConfig {
    QueueConfig { cap: Share::from_permille(permille), ..QueueConfig::default() }
}

fn manager(queues: &[(usize, QueueConfig)]) -> TrafficManager<u32> {
    let mut config = TrafficConfig::default();
    for &(queue, settings) in queues {
        config.default_queues[queue] = settings;
    }
    TrafficManager::with_config(PortConfig { rate_bps: RATE, queue_limit_bytes: u64::MAX }, config)
}

/// Serves `frames` frames of port 1 and gives what each queue sent. Queues of which `always` gives
/// a length are kept filled.
fn serve(
    manager: &mut TrafficManager<u32>,
    frames: usize,
    mut always: impl FnMut(u8) -> Option<u32>,
) -> Vec<(u8, u32)> {
    let mut sent = Vec::new();
    for queue in 0..8 {
        for _ in 0..2 {
            if let Some(length) = always(queue) {
                manager.enqueue(0, 1, queue, length, length).unwrap();
            }
        }
    }
    for _ in 0..frames {
        let Some(now_ns) = manager.next_service() else { break };
        let packet = manager.dequeue(now_ns).unwrap();
        sent.push((packet.queue, packet.item));
        if let Some(length) = always(packet.queue) {
            manager.enqueue(now_ns, 1, packet.queue, length, length).unwrap();
        }
        manager.transmitted(1, now_ns, packet.item as usize);
    }
    sent
}

fn bytes_of(sent: &[(u8, u32)], queue: u8) -> u64 {
    sent.iter().filter(|&&(q, _)| q == queue).map(|&(_, length)| u64::from(length)).sum()
}

/// A source of lengths, the same for the same seed.
fn source(mut state: u64) -> impl FnMut() -> u32 {
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 33) % LONGEST + 1) as u32
    }
}

proptest! {
    #[test]
    fn a_capped_queue_gets_its_share_and_no_more_while_another_waits(
        permille in 1u32..1000, other in 0u8..7, seed in any::<u64>(),
    ) {
        let (mut manager, mut length) = (manager(&[(7, capped(permille))]), source(seed));
        let sent = serve(&mut manager, 4_000, |queue| (queue == 7 || queue == other).then(&mut length));
        // In every interval from the start of the busy period: at most the share, plus a burst and
        // a frame.
        let (mut own, mut all) = (0, 0);
        for &(queue, length) in &sent {
            all += u64::from(length);
            own += if queue == 7 { u64::from(length) } else { 0 };
            let share = all * u64::from(permille) / 1_000;
            prop_assert!(own <= share + 9_234 + LONGEST, "{own} of {all}");
            // Strict priority up to the share.
            prop_assert!(own + LONGEST >= share.min(all), "{own} of {all}");
        }
    }

    #[test]
    fn two_capped_queues_starve_nobody(first in 1u32..500, second in 1u32..499, seed in any::<u64>()) {
        let (mut manager, mut length) = (manager(&[(7, capped(first)), (6, capped(second))]), source(seed));
        let sent = serve(&mut manager, 8_000, |queue| [7, 6, 0].contains(&queue).then(&mut length));
        let all: u64 = sent.iter().map(|&(_, length)| u64::from(length)).sum();
        for (queue, share) in [(7, first), (6, second), (0, 1_000 - first - second)] {
            let (got, due) = (bytes_of(&sent, queue), all * u64::from(share) / 1_000);
            prop_assert!(got.abs_diff(due) <= 3 * (9_234 + LONGEST), "queue {queue}: {got}, due {due} of {all}");
        }
    }

    #[test]
    fn weighted_queues_share_what_strict_ones_leave_within_a_quantum_and_a_frame(
        weights in prop::array::uniform3(1u8..20), strict in any::<bool>(), seed in any::<u64>(),
    ) {
        let mut settings: Vec<_> = (0..3).map(|queue| (queue, weighted(weights[queue]))).collect();
        // The strict queue takes a capped half; what it leaves is shared.
        settings.push((5, capped(500)));
        let (mut manager, mut length) = (manager(&settings), source(seed));
        let sent = serve(&mut manager, 3_000, |queue| (queue < 3 || strict && queue == 5).then(&mut length));
        // Shreedhar and Varghese, theorem 2: normalised by weight, any two backlogged queues differ
        // by at most a quantum, and a frame each, at any time.
        let mut got = [0f64; 3];
        for &(queue, length) in &sent {
            if queue < 3 {
                got[usize::from(queue)] += f64::from(length) / f64::from(weights[usize::from(queue)]);
            }
            for (a, b) in [(0, 1), (1, 2), (0, 2)] {
                let frames = LONGEST as f64 / f64::from(weights[a]) + LONGEST as f64 / f64::from(weights[b]);
                prop_assert!((got[a] - got[b]).abs() <= 1_518.0 + frames, "{got:?} for {weights:?}");
            }
        }
        prop_assert!(got.iter().all(|&got| got > 0.0));
    }

    #[test]
    fn whatever_the_settings_no_line_idles_while_a_packet_waits_and_queues_keep_their_order(
        settings in prop::collection::vec((0usize..8, prop::option::of(1u8..9), prop::option::of(1u32..1000)), 0..8),
        steps in prop::collection::vec((0u64..3_000_000, 0u8..8, 1u32..2_000), 1..150),
    ) {
        let settings: Vec<_> = settings.into_iter().map(|(queue, weight, cap)| {
            let service = weight.map_or(Service::Strict, |weight| weighted(weight).service);
            (queue, QueueConfig { service, cap: cap.and_then(Share::from_permille), ..QueueConfig::default() })
        }).collect();
        let mut manager = manager(&settings);
        let (mut now_ns, mut order) = (0, BTreeMap::<u8, VecDeque<u32>>::new());
        let (mut busy_until_ns, mut waiting) = (0, 0u32);
        let mut serve = |manager: &mut TrafficManager<u32>, until_ns, waiting: &mut u32, order: &mut BTreeMap<u8, VecDeque<u32>>| {
            while let Some(packet) = manager.dequeue(until_ns) {
                let first = order.get_mut(&packet.queue).and_then(VecDeque::pop_front);
                assert_eq!(first, Some(packet.item), "a queue is served in order");
                assert!(packet.start_ns >= busy_until_ns.max(packet.enqueued_ns), "one frame at a time, none before it came");
                busy_until_ns = manager.transmitted(1, packet.start_ns, packet.item as usize);
                *waiting -= 1;
                assert_eq!(manager.next_service().is_some(), *waiting > 0);
                if *waiting > 0 {
                    assert_eq!(manager.next_service(), Some(busy_until_ns), "the line goes on at once");
                }
            }
        };
        for (pause_ns, queue, length) in steps {
            now_ns += pause_ns;
            serve(&mut manager, now_ns, &mut waiting, &mut order);
            manager.enqueue(now_ns, 1, queue, length, length).unwrap();
            order.entry(queue).or_default().push_back(length);
            waiting += 1;
        }
        serve(&mut manager, u64::MAX, &mut waiting, &mut order);
        prop_assert_eq!(waiting, 0, "everything leaves in the end");
    }

    #[test]
    fn the_shared_buffer_admits_what_plain_sums_admit(
        size in 1_000u64..50_000, alphas in prop::collection::vec(prop::option::of((1u32..20, 1u32..20)), 4),
        limits in prop::collection::vec(prop::option::of(100u64..20_000), 4),
        steps in prop::collection::vec((any::<bool>(), 0u16..2, 0u8..2, 1u32..3_000), 1..300),
    ) {
        let mut config = TrafficConfig { buffer_bytes: Some(size), ..TrafficConfig::default() };
        for (i, (&alpha, &limit_bytes)) in alphas.iter().zip(&limits).enumerate() {
            let alpha = alpha.and_then(|(above, below)| Alpha::new(above, below));
            let settings = QueueConfig { limit_bytes, alpha, ..QueueConfig::default() };
            config.queues.insert((i as u16 / 2, i as u8 % 2), settings);
        }
        let mut manager = TrafficManager::with_config(PortConfig { rate_bps: 0, queue_limit_bytes: 12_345 }, config);
        let mut lists = [const { Vec::<u32>::new() }; 4];
        let sum = |list: &[u32]| list.iter().map(|&length| u64::from(length)).sum::<u64>();
        for (serve, port, queue, length) in steps {
            if serve {
                if let Some(packet) = manager.dequeue(u64::MAX) {
                    manager.transmitted(packet.port, packet.start_ns, 0);
                    lists[usize::from(packet.port * 2 + u16::from(packet.queue))].remove(0);
                }
                continue;
            }
            let i = usize::from(port * 2 + u16::from(queue));
            let (own, all) = (sum(&lists[i]), lists.iter().map(|list| sum(list)).sum::<u64>());
            let cause = if own + u64::from(length) > limits[i].unwrap_or(12_345) {
                Some(DropCause::QueueLimit)
            } else if all + u64::from(length) > size {
                Some(DropCause::BufferFull)
            } else if alphas[i].is_some_and(|(above, below)| own * u64::from(below) >= (size - all) * u64::from(above)) {
                Some(DropCause::DynamicThreshold)
            } else {
                None
            };
            let before = manager.stats(port, queue);
            let taken = manager.enqueue(0, port, queue, length, length).is_ok();
            prop_assert_eq!(taken, cause.is_none());
            let after = manager.stats(port, queue);
            for each in DropCause::ALL {
                let more = u64::from(cause == Some(each));
                prop_assert_eq!(after.dropped(each).packets - before.dropped(each).packets, more);
                prop_assert_eq!(after.dropped(each).bytes - before.dropped(each).bytes, more * u64::from(length));
            }
            if taken {
                lists[i].push(length);
            }
            prop_assert_eq!(manager.buffered_bytes(), lists.iter().map(|list| sum(list)).sum::<u64>());
        }
    }
}

#[test]
fn a_capped_queue_alone_has_the_whole_line() {
    let mut manager = manager(&[(7, capped(1))]);
    let sent = serve(&mut manager, 1_000, |queue| (queue == 7).then_some(1_000));
    assert_eq!(bytes_of(&sent, 7), 1_000_000);
    assert_eq!(manager.next_service(), Some(1_000_000_000), "8 Mbit/s, without a pause");
}

#[test]
fn one_hog_settles_where_choudhury_and_hahne_say() {
    // S queues with the same alpha on a buffer B: each settles at alpha·B / (1 + alpha·S).
    for (alpha, hogs, expected) in
        [((1, 1), 1, 500_000), ((1, 1), 3, 250_000), ((1, 2), 2, 250_000), ((8, 1), 1, 888_888)]
    {
        let mut config = TrafficConfig { buffer_bytes: Some(1_000_000), ..TrafficConfig::default() };
        config.default_queues =
            [QueueConfig { alpha: Alpha::new(alpha.0, alpha.1), ..QueueConfig::default() }; QUEUES];
        let mut manager =
            TrafficManager::with_config(PortConfig { rate_bps: 1, queue_limit_bytes: u64::MAX }, config);
        for _ in 0..20_000 {
            for queue in 0..hogs {
                let _ = manager.enqueue(0, 1, queue, 100, ());
            }
        }
        for queue in 0..hogs {
            let depth = manager.stats(1, queue).depth_bytes();
            assert!(depth.abs_diff(expected) <= 200, "{depth}, expected {expected}");
        }
    }
}

#[test]
fn depths_are_told_in_the_unit_asked_for() {
    for (unit, enqueued, left) in [
        (DepthUnit::Packets, [0, 1, 2], [2, 1, 0]),
        (DepthUnit::Bytes, [0, 80, 161], [81 + 400, 400, 0]),
        (DepthUnit::Cells, [0, 1, 3], [2 + 5, 5, 0]),
    ] {
        let config = TrafficConfig { depth_unit: unit, ..TrafficConfig::default() };
        let mut manager = TrafficManager::with_config(PortConfig::default(), config);
        for length in [80, 81, 400] {
            manager.enqueue(0, 1, 3, length, ()).unwrap();
        }
        for (enqueued, left) in enqueued.into_iter().zip(left) {
            let packet = manager.dequeue(0).unwrap();
            assert_eq!((packet.enqueue_depth, packet.dequeue_depth), (enqueued, left), "{unit}");
            manager.transmitted(1, 0, 1);
        }
    }
}

#[test]
fn a_depth_beyond_19_bits_saturates_instead_of_wrapping_to_empty() {
    let config = TrafficConfig { depth_unit: DepthUnit::Bytes, ..TrafficConfig::default() };
    let mut manager = TrafficManager::with_config(PortConfig::default(), config);
    for _ in 0..2 {
        manager.enqueue(0, 1, 0, 1 << 19, ()).unwrap();
    }
    assert_eq!(manager.dequeue(0).unwrap().dequeue_depth, (1 << 19) - 1);
}

#[test]
fn a_port_that_goes_down_drops_what_waits_and_serves_again_when_it_is_up() {
    let mut manager = manager(&[]);
    for length in [100, 200] {
        manager.enqueue(0, 1, 0, length, length).unwrap();
    }
    let mut dropped = Vec::new();
    manager.set_up(1, false, |length| dropped.push(length));
    assert_eq!((dropped, manager.next_service(), manager.buffered_bytes()), (vec![100, 200], None, 0));
    assert!(manager.enqueue(5, 1, 0, 300, 300).is_err());
    assert_eq!(manager.stats(1, 0).dropped(DropCause::PortDown), Count { packets: 3, bytes: 600 });
    manager.set_up(1, true, |_| panic!("nothing waits"));
    manager.enqueue(9, 1, 0, 400, 400).unwrap();
    assert_eq!(manager.next_service(), Some(9));
}

#[test]
fn ports_have_as_many_queues_as_configured() {
    let config = TrafficConfig { priority_queues: 2, ..TrafficConfig::default() };
    let mut manager = TrafficManager::with_config(PortConfig::default(), config);
    assert!(manager.enqueue(0, 1, 1, 100, ()).is_ok());
    assert!(manager.enqueue(0, 1, 2, 100, ()).is_err());
    assert!(!manager.configure_queue(Some(1), 2, QueueConfig::default()));
    assert_eq!(manager.queue_config(1, 2), None);
}

#[test]
fn a_queue_can_be_set_up_anew_while_it_is_in_use() {
    let mut manager = manager(&[]);
    serve(&mut manager, 10, |queue| (queue == 7 || queue == 0).then_some(1_000));
    assert!(manager.configure_queue(Some(1), 7, capped(500)));
    let sent = serve(&mut manager, 1_000, |queue| (queue == 7 || queue == 0).then_some(1_000));
    assert!(bytes_of(&sent, 0).abs_diff(500_000) <= 11_000, "{}", bytes_of(&sent, 0));
    assert_eq!(manager.queue_config(1, 7), Some(capped(500)));
    assert_eq!(manager.queue_config(2, 7), Some(QueueConfig::default()));
}

#[test]
fn a_port_serves_no_more_than_it_is_granted_and_nothing_is_lost_or_overtaken() {
    let mut manager = manager(&[]);
    let mut next = source(0x6772_616e);
    let (mut offered, mut served, mut now_ns, mut credit) = (Vec::new(), Vec::new(), 0, None);
    for _ in 0..5_000 {
        now_ns += u64::from(next() % 700);
        match next() % 4 {
            0 => {
                credit = [None, Some(0), Some(1), Some(3)][next() as usize % 4];
                manager.grant(now_ns, 1, credit);
            }
            1 | 2 => {
                let number = offered.len() as u32;
                // One queue: what is offered first is served first.
                manager.enqueue(now_ns, 1, 3, 1 + number % 40, number).unwrap();
                offered.push(number);
            }
            _ => {
                while let Some(packet) = manager.dequeue(now_ns) {
                    served.push(packet.item);
                    manager.transmitted(1, packet.start_ns, 1 + packet.item as usize % 40);
                    credit = credit.map(|left: usize| left.checked_sub(1).expect("more than was granted"));
                }
                // Whatever could be served was.
                let waits = served.len() < offered.len() && credit != Some(0);
                assert_eq!(manager.next_service().is_some(), waits);
            }
        }
    }
    manager.grant(now_ns, 1, None);
    while let Some(packet) = manager.next_service().and_then(|at_ns| manager.dequeue(at_ns)) {
        served.push(packet.item);
        manager.transmitted(1, packet.start_ns, 1 + packet.item as usize % 40);
    }
    assert!(served == offered && served.len() > 1_000, "{} of {}", served.len(), offered.len());
    // Another port has no part in it.
    manager.grant(now_ns, 1, Some(0));
    manager.enqueue(now_ns, 2, 0, 100, 7).unwrap();
    manager.enqueue(now_ns, 1, 0, 100, 8).unwrap();
    assert_eq!(manager.dequeue(now_ns).map(|packet| packet.item), Some(7));
}
