// SPDX-License-Identifier: Apache-2.0
//! Promises of a transfer between two ranks, over a network that misbehaves.

use crate::network;
use crate::network::{
    Faults, LINE_BPS, Network, PLANE_BYTES, Random, Rows, address, encode, encode_in, expectation, kind,
    layout,
};
use proptest::prelude::*;
use trimwire_agent::burst::Arrived;
use trimwire_agent::endpoint::{Event, Expectation, Reliability, Traffic};
use trimwire_agent::transfer::{TransferError, TransferStats};
use trimwire_agent::wire::{Reason, checked};
use trimwire_encoder::wire::{Kind, VERSION};
use trimwire_encoder::{HEADER_LEN, PLANES, nmse};

const ADVERSARY: Faults = Faults {
    data_delay_ns: 200_000,
    control_delay_ns: 100_000,
    jitter_ns: 300_000,
    drop_data: 0.7,
    drop_control: 0.6,
    trim: 0.9,
    trim_to_at_least: 200,
    duplicate: 0.4,
    ..Faults::NONE
};

const SECOND: u64 = 1_000_000_000;
const MESSAGE: u32 = 77;

struct Delivered {
    rows: Rows,
    received: TransferStats,
    sent: TransferStats,
}

/// Sends a gradient from rank 0 to rank 1 and waits for both ends to be done.
fn try_deliver(network: &mut Network, gradient: &[f32], planes: u8) -> Result<Delivered, TestCaseError> {
    deliver_number(network, MESSAGE, gradient, planes)
}

fn deliver_number(
    network: &mut Network,
    number: u32,
    gradient: &[f32],
    planes: u8,
) -> Result<Delivered, TestCaseError> {
    let now_ns = network.now_ns;
    let encoded = encode(&network.endpoints[0], number, gradient, planes);
    let expectation = Expectation { planes, ..expectation(&network.endpoints[1], gradient.len()) };
    network.endpoints[1].expect(now_ns, 0, number, expectation).expect("expected once");
    network.endpoints[0].send(now_ns, 1, &encoded).expect("sent once");
    let (mut rows, mut received, mut sent) = (Rows::default(), None, None);
    for (rank, event) in network.finish_with_rows(now_ns + 1_000 * SECOND) {
        match event {
            Event::Row { from: 0, message, row } if rank == 1 && message == number && received.is_none() => {
                rows.take(*row);
            }
            Event::Received { from: 0, message, stats } if rank == 1 && message == number => {
                received = Some(stats);
            }
            Event::Sent { to: 1, message, stats, .. } if rank == 0 && message == number => sent = Some(stats),
            other => return Err(TestCaseError::fail(format!("rank {rank}: {other:?}"))),
        }
    }
    let received = received.ok_or_else(|| TestCaseError::fail("not delivered"))?;
    let sent = sent.ok_or_else(|| TestCaseError::fail("the sender does not know"))?;
    Ok(Delivered { rows, received, sent })
}

fn deliver(network: &mut Network, gradient: &[f32], planes: u8) -> Delivered {
    try_deliver(network, gradient, planes).expect("delivered")
}

/// What a switch trims of packets that have to arrive whole is of no use, but says that they come
/// through: they are sent again as fast as answers come, not after waits that double.
#[test]
fn what_must_arrive_whole_gets_through_where_nearly_all_of_it_is_trimmed() {
    for (trim, most_ns) in [(0.9, SECOND / 5), (0.99, 2 * SECOND)] {
        let room = (HEADER_LEN, HEADER_LEN + PLANE_BYTES / 2);
        let faults = Faults { trim, trim_to_at_least: room.0, trim_to_at_most: room.1, ..Faults::NONE };
        let mut network = Network::new(2, faults, 5, Reliability::Full);
        let Delivered { received, .. } = deliver(&mut network, &Random(5).gradient(9_000), 1);
        assert_eq!(received.full, received.packets);
        assert!(network.now_ns < most_ns, "{trim}: {} ns", network.now_ns);
    }
}

#[test]
fn what_is_always_trimmed_fails_and_the_error_says_so() {
    let faults =
        Faults { trim: 1.0, trim_to_at_least: HEADER_LEN, trim_to_at_most: HEADER_LEN, ..Faults::NONE };
    let mut network = Network::with(2, faults, 3, |config| config.timeouts.patience_ns = SECOND);
    network.expect(1, 0, MESSAGE, 100);
    network.send(0, 1, MESSAGE, &[1.0; 100]);
    let (_, Event::Failed { error, .. }) = &network.finish(100 * SECOND)[0] else { panic!("no error") };
    let text = error.to_string();
    assert!(text.contains("1 of 1 packets are missing, and what arrives of them is trimmed (to "), "{text}");
}

/// Nine packets in ten are trimmed to less than a plane and half are dropped: ten seconds may pass
/// without one that gets through.
#[test]
fn a_network_that_lets_one_packet_in_twenty_through_delivers_all_of_them() {
    let faults = Faults {
        data_delay_ns: 0,
        control_delay_ns: 67_998,
        jitter_ns: 127_356,
        drop_data: 0.499_745_504_602_164_66,
        drop_control: 0.523_218_888_421_240_9,
        trim: 0.890_474_277_703_258,
        trim_to_at_least: 10,
        duplicate: 0.231_338_813_331_667_8,
        ..Faults::NONE
    };
    let mut network = Network::new(2, faults, 2_346_600_424_257_776_791, Reliability::Full);
    let Delivered { received, .. } =
        deliver(&mut network, &Random(2_346_600_424_257_776_791).gradient(9_000), 1);
    assert_eq!(received.full, received.packets);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn every_transfer_ends_within_its_loss_bound(
        faults in ADVERSARY.any_up_to(), seed: u64, length in 1_usize..30_000, loss in 0.0_f32..0.3, planes in 1_u8..=PLANES,
    ) {
        let mut network = Network::new(2, faults, seed, Reliability::Bounded { loss });
        let gradient = Random(seed).gradient(length);
        let Delivered { rows, received, .. } = try_deliver(&mut network, &gradient, planes)?;
        let packets = layout(length).packets();
        prop_assert_eq!(received.packets as usize, packets);
        prop_assert_eq!(received.full + received.trimmed + received.missing, received.packets);
        prop_assert!(f64::from(received.missing) <= f64::from(loss) * packets as f64);
        // Against what the network knows to have delivered: a packet with less than one plane
        // counts as missing.
        let best = &network.delivered[&(0, 1, MESSAGE)];
        let range = |index| layout(length).packet_range(index).len();
        let there = (0..packets).filter(|&i| best.get(&(i as u32)).is_some_and(|&b| b >= HEADER_LEN + range(i) / 8)).count();
        prop_assert!(packets - received.missing as usize <= there);
        let count = |f: &dyn Fn(u8) -> bool| (0..packets).filter(|&i| f(rows.coverage(&layout(length), i))).count();
        prop_assert_eq!(received.missing as usize, count(&|held| held == 0));
        prop_assert_eq!(received.full as usize, count(&|held| held >= planes));
    }

    #[test]
    fn full_reliability_delivers_every_bit(faults in ADVERSARY.any_up_to(), seed: u64, length in 1_usize..20_000) {
        let mut network = Network::new(2, faults, seed, Reliability::Full);
        let gradient = Random(seed).gradient(length);
        let Delivered { rows, received, .. } = try_deliver(&mut network, &gradient, PLANES)?;
        prop_assert_eq!((received.full, received.trimmed, received.missing), (received.packets, 0, 0));
        let out = rows.decode(&layout(length));
        prop_assert!(nmse(&out, &gradient) < 1e-12, "{}", nmse(&out, &gradient));
    }

    #[test]
    fn full_reliability_of_a_truncated_message_is_all_that_was_sent(faults in ADVERSARY.any_up_to(), seed: u64, planes in 1_u8..PLANES) {
        let mut network = Network::new(2, faults, seed, Reliability::Full);
        let Delivered { rows, received, .. } = try_deliver(&mut network, &Random(seed).gradient(9_000), planes)?;
        prop_assert_eq!(received.full, received.packets);
        prop_assert!((0..received.packets as usize).all(|index| rows.coverage(&layout(9_000), index) == planes));
    }

    #[test]
    fn same_seed_same_datagrams(faults in ADVERSARY.any_up_to(), seed: u64) {
        let run = || {
            let mut network = Network::new(2, faults, seed, Reliability::Bounded { loss: 0.05 });
            network.keep_log = true;
            try_deliver(&mut network, &Random(seed).gradient(5_000), PLANES)?;
            Ok::<_, TestCaseError>(network.log)
        };
        prop_assert!(run()? == run()?);
    }

    #[test]
    fn control_packets_of_a_peer_gone_mad_cause_no_panic_and_no_endless_run(
        seed: u64, garbage in prop::collection::vec((2_u8..=8, prop::collection::vec(0_u8..24, 4..60), 0_u64..200_000), 1..40),
    ) {
        let mut network = Network::new(2, Faults { jitter_ns: 20_000, ..Faults::NONE }, seed, Reliability::Full);
        let gradient = Random(seed).gradient(30_000);
        let message = encode(&network.endpoints[0], MESSAGE, &gradient, PLANES);
        network.expect(1, 0, MESSAGE, 30_000);
        network.endpoints[0].send(0, 1, &message).expect("sent");
        for (kind, body, wait_ns) in garbage {
            network.finish(network.now_ns + wait_ns);
            for rank in 0..2_u8 {
                let other = 1 - rank;
                let mut bytes = vec![VERSION << 4 | kind, 0, 0, other, 0, 0, 0, MESSAGE as u8];
                // With the right incarnations, or nothing of it is looked at.
                bytes.extend_from_slice(&[0, 0, 0, other + 1, 0, 0, 0, rank + 1]);
                bytes.extend_from_slice(&body);
                let bytes = checked(bytes);
                let (now_ns, source) = (network.now_ns, address(usize::from(other)));
                network.endpoints[usize::from(rank)].handle_datagram(now_ns, Arrived::now(source, 0), &bytes);
            }
        }
        // Beyond the longest patience: what one of them was talked out of, the other may wait for.
        network.finish(4_000 * SECOND);
        prop_assert!(network.endpoints.iter().all(|endpoint| endpoint.poll_timeout().is_none()));
    }

    #[test]
    fn hostile_datagrams_are_counted_and_change_nothing(
        seed: u64, garbage in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..40),
    ) {
        let mut network = Network::new(3, Faults::NONE, seed, Reliability::Full);
        let gradient = Random(seed).gradient(4_000);
        let mut hostile = 0;
        for (index, mut bytes) in garbage.into_iter().enumerate() {
            // Half of them look like ours, of a rank that sends nothing, at first sight.
            if index % 2 == 0 && bytes.len() >= 8 {
                bytes[..8].copy_from_slice(&[VERSION << 4 | (1 + index as u8 % 9), 0, 0, 2, 0, 0, 0, MESSAGE as u8]);
            }
            for endpoint in &mut network.endpoints[..2] {
                endpoint.handle_datagram(0, Arrived::now(address(2), index as u8), &bytes);
                hostile += 1;
            }
        }
        // Each is counted once, before anything honest arrives.
        let counted: u64 = network.endpoints[..2].iter().map(|endpoint| {
            let s = endpoint.stats();
            s.malformed + s.foreign + s.control_received + s.data_received + s.early_dropped + s.stray
        }).sum();
        prop_assert_eq!(counted, hostile);
        let Delivered { received, .. } = try_deliver(&mut network, &gradient, PLANES)?;
        prop_assert_eq!(received.full, received.packets);
    }
}

#[test]
fn nothing_is_repaired_when_nothing_is_lost_even_if_control_overtakes_data() {
    let faults = Faults { data_delay_ns: 900_000, ..Faults::NONE };
    let mut network = Network::new(2, faults, 1, Reliability::Full);
    let Delivered { sent, received, .. } = deliver(&mut network, &Random(1).gradient(300_000), PLANES);
    assert_eq!((sent.repaired, received.full), (0, received.packets));
}

#[test]
fn a_long_way_is_waited_for_and_not_taken_for_losses() {
    // Half a second there and back, five times what questions are repeated after at most on short
    // ways.
    let far = Faults { data_delay_ns: 250_000_000, control_delay_ns: 250_000_000, ..Faults::NONE };
    let mut network = Network::new(2, far, 1, Reliability::Full);
    let Delivered { sent, received, .. } = deliver(&mut network, &Random(1).gradient(300_000), PLANES);
    assert_eq!((sent.repaired, received.full), (0, received.packets));
    let first = sent.probes;
    assert!(first < 30, "{first} questions until the way is known");
    let Delivered { sent, received, .. } =
        deliver_number(&mut network, MESSAGE + 1, &Random(2).gradient(300_000), PLANES).expect("delivered");
    assert_eq!((sent.repaired, received.full), (0, received.packets));
    assert!(sent.probes <= 4, "{} questions", sent.probes);
}

#[test]
fn a_queue_that_holds_data_up_for_long_is_waited_for() {
    // As of a slow switch: control is served first, whole packets stand in a queue. The first ones
    // cannot be told from lost ones, as no round trip is known.
    let slow = Faults { data_delay_ns: 300_000_000, control_delay_ns: 2_000_000, ..Faults::NONE };
    let mut network = Network::with(2, slow, 1, |config| {
        config.reliability = Reliability::Full;
        // 670 packets take as long as the way.
        config.line_rate_bps = 20_000_000;
    });
    let mut send = |number, length| {
        deliver_number(&mut network, number, &Random(1).gradient(length), PLANES).expect("delivered")
    };
    let (first, second) = (send(MESSAGE, 30_000), send(MESSAGE + 1, 30_000));
    let again = first.sent.repaired + second.sent.repaired;
    assert!(again < 10 * first.received.packets, "{again} packets sent again");
    let Delivered { sent, received, .. } = send(MESSAGE + 2, 300_000);
    assert_eq!((sent.repaired, received.full), (0, received.packets));
}

#[test]
fn a_long_way_that_loses_packets_gets_them_again_in_a_few_round_trips() {
    let far =
        Faults { data_delay_ns: 250_000_000, control_delay_ns: 250_000_000, drop_data: 0.05, ..Faults::NONE };
    let mut network = Network::new(2, far, 1, Reliability::Full);
    let Delivered { sent, received, .. } = deliver(&mut network, &Random(1).gradient(300_000), PLANES);
    assert_eq!(received.full, received.packets);
    // A twentieth of 670 packets, and of what is sent again.
    assert!(sent.repaired < 100, "{} of {} packets sent again", sent.repaired, received.packets);
    assert!(received.duration_ns < 10 * SECOND, "{} ns", received.duration_ns);
}

#[test]
fn lost_packets_are_repaired_one_round_trip_after_the_last_packet() {
    // Packets 5 and 6 of 75 are dropped once: the first STATUS shows that later ones have arrived.
    let mut network = Network::new(2, Faults::NONE, 1, Reliability::Full);
    network.script = Some(|_, datagram, before| kind(datagram) == Kind::Data && (before == 5 || before == 6));
    network.keep_log = true;
    let Delivered { sent, received, .. } = deliver(&mut network, &Random(1).gradient(30_000), PLANES);
    assert_eq!((sent.repaired, received.full), (2, received.packets));
    let data: Vec<u64> =
        network.log.iter().filter(|(.., d)| kind(d) == Kind::Data).map(|&(at, ..)| at).collect();
    let (last, repair) = (data[data.len() - 3], data[data.len() - 2]);
    assert!(repair - last < 2 * 5_000 + 3_000, "repaired {} ns after the last packet", repair - last);
}

#[test]
fn order_shows_a_loss_before_the_timeout_even_if_the_round_trip_was_not_known_when_asked() {
    // Data takes 20 times as long as control, and the message is over before the first ACK comes.
    let faults = Faults { data_delay_ns: 100_000, ..Faults::NONE };
    let mut network = Network::new(2, faults, 1, Reliability::Full);
    network.script = Some(|_, datagram, before| kind(datagram) == Kind::Data && before == 3);
    let Delivered { sent, received, .. } = deliver(&mut network, &Random(1).gradient(12_288), PLANES);
    assert_eq!((sent.repaired, received.full), (1, received.packets));
    // 30 packets, sent within 31 µs; 9/8 of a round trip of 105 µs to see the loss, and 105 µs to
    // mend it.
    assert!(received.duration_ns < 31_000 + 120_000 + 20_000 + 105_000, "took {} ns", received.duration_ns);
}

#[test]
fn late_data_of_a_finished_message_brings_another_stop() {
    let mut network = Network::new(2, Faults::NONE, 1, Reliability::Full);
    network.keep_log = true;
    deliver(&mut network, &Random(1).gradient(3_000), PLANES);
    let late = network.log.iter().find(|(.., d)| kind(d) == Kind::Data).expect("data").2.clone();
    let now_ns = network.now_ns;
    let receiver = &mut network.endpoints[1];
    for _ in 0..receiver.config().ack_every {
        assert!(receiver.poll_transmit(now_ns).is_none());
        receiver.handle_datagram(now_ns, Arrived::now(late.source, late.tos), &late.payload);
    }
    let answer = receiver.poll_transmit(now_ns).expect("an answer");
    assert_eq!(answer.payload[0] & 15, Kind::Stop as u8);
    assert!(receiver.poll_transmit(now_ns + SECOND).is_none() && receiver.poll_event().is_none());
}

/// The longest time that a queue which trims takes: four trim delays.
const QUEUES_NS: u64 = 80_000;

#[test]
fn a_lost_tail_is_repaired_after_the_measured_round_trip_and_the_longest_queue_not_the_minimum_timeout() {
    let mut network = Network::new(2, Faults::NONE, 1, Reliability::Full);
    network.script = Some(|_, datagram, before| kind(datagram) == Kind::Data && before == 74);
    let Delivered { sent, received, .. } = deliver(&mut network, &Random(1).gradient(30_000), PLANES);
    assert_eq!((received.packets, sent.repaired), (75, 1));
    assert!(received.duration_ns < 75 * 1_100 + 100_000 + QUEUES_NS, "took {} ns", received.duration_ns);
}

#[test]
fn only_the_missing_planes_of_a_trimmed_packet_are_repaired() {
    let faults = Faults { trim: 1.0, trim_to_at_least: HEADER_LEN + 4 * PLANE_BYTES, ..Faults::NONE };
    let mut network = Network::new(2, faults, 3, Reliability::Full);
    network.keep_log = true;
    deliver(&mut network, &Random(3).gradient(20_000), PLANES);
    let mut seen = std::collections::BTreeSet::new();
    let mut repairs = Vec::new();
    for (.., datagram) in network.log.iter().filter(|(.., d)| kind(d) == Kind::Data) {
        let header = datagram.header().expect("own packet");
        if !seen.insert(header.index) {
            repairs.push(header.first_plane);
        }
    }
    assert!(!repairs.is_empty() && repairs.iter().all(|&plane| plane >= 4));
}

#[test]
fn trimmed_packets_count_as_delivered_and_are_not_repaired() {
    let faults = Faults { trim: 1.0, trim_to_at_least: HEADER_LEN + PLANE_BYTES, ..Faults::NONE };
    let mut network = Network::new(2, faults, 3, Reliability::Bounded { loss: 0.0 });
    let Delivered { sent, received, .. } = deliver(&mut network, &Random(3).gradient(20_000), PLANES);
    assert_eq!((sent.repaired, received.missing), (0, 0));
    assert!(received.trimmed > received.packets * 9 / 10);
}

#[test]
fn trims_on_the_last_hop_are_trims_and_counted_apart() {
    for (trimmed_dscp, last_hop) in [(35, false), (43, true)] {
        let faults =
            Faults { trim: 0.5, trim_to_at_least: HEADER_LEN + PLANE_BYTES, trimmed_dscp, ..Faults::NONE };
        let mut network = Network::new(2, faults, 3, Reliability::Bounded { loss: 0.0 });
        let Delivered { sent, received, .. } = deliver(&mut network, &Random(3).gradient(30_000), PLANES);
        assert_eq!((sent.repaired, received.missing), (0, 0));
        let stats = network.endpoints[1].stats();
        assert!(received.trimmed > 20 && stats.trimmed_received >= u64::from(received.trimmed), "{stats:?}");
        assert_eq!(stats.trimmed_last_hop_received, if last_hop { stats.trimmed_received } else { 0 });
    }
}

#[test]
fn losses_within_the_bound_are_not_repaired_and_end_without_a_timeout() {
    let mut network = Network::new(2, Faults::NONE, 3, Reliability::Bounded { loss: 0.05 });
    network.script = Some(|_, datagram, before| kind(datagram) == Kind::Data && before % 30 == 14);
    let Delivered { sent, received, .. } = deliver(&mut network, &Random(3).gradient(30_000), PLANES);
    assert_eq!((sent.repaired, received.missing, received.packets), (0, 3, 75));
    assert!(received.duration_ns < 75 * 1_100 + 100_000 + QUEUES_NS, "took {} ns", received.duration_ns);
}

#[test]
fn a_lost_stop_is_answered_again() {
    let mut network = Network::new(2, Faults::NONE, 3, Reliability::Full);
    network.script = Some(|_, datagram, before| kind(datagram) == Kind::Stop && before < 3);
    deliver(&mut network, &Random(3).gradient(3_000), PLANES);
}

#[test]
fn data_ahead_of_the_application_waits_for_it() {
    let mut network = Network::new(2, Faults::NONE, 3, Reliability::Full);
    let gradient = Random(3).gradient(50_000);
    let message = encode(&network.endpoints[0], MESSAGE, &gradient, PLANES);
    network.endpoints[0].send(0, 1, &message).expect("sent");
    assert!(network.finish(SECOND / 2).is_empty());
    network.expect(1, 0, MESSAGE, 50_000);
    let asked_ns = network.now_ns;
    let mut done = Vec::new();
    network.run(2 * SECOND, |network, rank, event| {
        if !matches!(event, Event::Row { .. }) {
            done.push((rank, network.now_ns - asked_ns, event));
        }
    });
    assert!(matches!(done[0], (1, 0, Event::Received { .. })), "{done:?}");
    assert!(matches!(done[1], (0, 5_000..10_000, Event::Sent { .. })), "{done:?}");
    assert_eq!(network.endpoints[0].stats().repairs_sent, 0);
}

#[test]
fn a_receiver_that_never_asks_is_named() {
    let mut network = Network::with(2, Faults::NONE, 3, |config| config.timeouts.patience_ns = 2 * SECOND);
    let message = encode(&network.endpoints[0], MESSAGE, &[1.0; 100], PLANES);
    network.endpoints[0].send(0, 1, &message).expect("sent");
    let events = network.finish(100 * SECOND);
    let [(0, Event::Failed { error, .. })] = &events[..] else { panic!("{events:?}") };
    assert!(matches!(error, TransferError::NotExpected { peer: 1, .. }));
    assert!(
        error
            .to_string()
            .starts_with("rank 1 is alive but has not asked for message 0x0000004d (1 packets) in 2")
    );
}

#[test]
fn a_peer_that_vanishes_fails_both_sides_and_says_what_is_missing() {
    let mut network = Network::with(2, Faults::NONE, 3, |config| {
        config.timeouts.give_up_ns = SECOND;
        config.timeouts.patience_ns = 2 * SECOND;
        config.timeouts.keep_alive_ns = SECOND / 2;
    });
    let gradient = Random(3).gradient(100_000);
    let message = encode(&network.endpoints[0], MESSAGE, &gradient, PLANES);
    network.expect(1, 0, MESSAGE, 100_000);
    network.endpoints[0].send(0, 1, &message).expect("sent");
    network.finish(50_000);
    network.dead[1] = true;
    let events = network.finish(100 * SECOND);
    assert!(network.now_ns < 10 * SECOND, "{}", network.now_ns);
    let mut texts: Vec<String> = events
        .iter()
        .map(|(rank, event)| match event {
            Event::Failed { peer, message: MESSAGE, error } => format!("{rank} {peer} {error}"),
            other => panic!("{other:?}"),
        })
        .collect();
    texts.sort();
    assert!(
        texts[0].starts_with("0 1 rank 1 has not answered ") && texts[0].contains(" of 246 packets"),
        "{texts:?}"
    );
    assert!(texts[0].contains(&format!("(to {}", address(1))), "{texts:?}");
    assert!(
        texts[1].starts_with("1 0 nothing was heard from rank 0 of message 0x0000004d in 1.5"),
        "{texts:?}"
    );
    assert_eq!(texts.len(), 2);
}

#[test]
fn data_that_never_gets_through_fails_although_control_does() {
    let faults = Faults { drop_data: 1.0, ..Faults::NONE };
    let mut network = Network::with(2, faults, 3, |config| {
        config.timeouts.patience_ns = SECOND;
        config.own = Some(address(config.rank.into()).ip());
    });
    network.expect(1, 0, MESSAGE, 100);
    let message = encode(&network.endpoints[0], MESSAGE, &[1.0; 100], PLANES);
    network.endpoints[0].send(0, 1, &message).expect("sent");
    let events = network.finish(100 * SECOND);
    let (0, Event::Failed { error: error @ TransferError::Stalled { missing: 1, .. }, .. }) = &events[0]
    else {
        panic!("{events:?}")
    };
    let (text, way) = (error.to_string(), format!("(from {} to {}; ", address(0).ip(), address(1)));
    assert!(text.contains(&way) && text.contains("source ports lead nowhere; port "), "{text}");
}

#[test]
fn all_datagrams_together_keep_to_the_line_rate_and_peers_take_turns() {
    let mut network = Network::new(5, Faults::NONE, 3, Reliability::Full);
    network.keep_log = true;
    for to in 1..5 {
        let message = encode(&network.endpoints[0], MESSAGE, &Random(3).gradient(40_000), PLANES);
        network.expect(usize::from(to), 0, MESSAGE, 40_000);
        network.endpoints[0].send(0, to, &message).expect("sent");
    }
    network.finish(SECOND);
    let out: Vec<_> = network.log.iter().filter(|(_, from, _)| *from == 0).collect();
    let frame = |d: &network::Datagram| (d.payload.len() as u64 + 42) * 8;
    for pair in out.windows(2) {
        let need_ns = frame(&pair[0].2) * SECOND / LINE_BPS;
        assert!(pair[1].0 - pair[0].0 >= need_ns, "{} to {}", pair[0].0, pair[1].0);
    }
    let first: Vec<usize> =
        out.iter().filter(|(.., d)| kind(d) == Kind::Data).take(12).map(|(.., d)| d.to).collect();
    assert_eq!(first, [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4]);
    let bits: u64 = out.iter().map(|(.., d)| frame(d)).sum();
    let busy_ns = out.last().expect("sent").0;
    assert!(
        bits * SECOND / busy_ns > LINE_BPS * 9 / 10,
        "the line is used: {} bit/s",
        bits * SECOND / busy_ns
    );
}

#[test]
fn packets_carry_dscp_ecn_and_a_source_port_each() {
    for (traffic, dscp) in [(Traffic::Trimmable, 3), (Traffic::Droppable, 19)] {
        let mut network = Network::with(2, Faults::NONE, 3, |config| {
            config.traffic = traffic;
            config.source_ports = (50_000..50_064).collect();
        });
        network.keep_log = true;
        // Rows of very different energy: some packets are less important.
        let gradient: Vec<f32> = Random(3)
            .gradient(40_000)
            .iter()
            .enumerate()
            .map(|(i, v)| if i < 20_000 { v * 0.01 } else { *v })
            .collect();
        deliver(&mut network, &gradient, PLANES);
        let mut seen = [0; 2];
        let mut ports = std::collections::BTreeSet::new();
        for (_, _, datagram) in &network.log {
            if kind(datagram) == Kind::Data {
                assert!((50_000..50_064).contains(&datagram.source.port()));
                ports.insert(datagram.source.port());
                let important = datagram.header().expect("own packet").prefix.important;
                assert_eq!(datagram.tos, dscp << 2 | if important { 2 } else { 0 });
                seen[usize::from(important)] += 1;
            } else {
                assert_eq!(datagram.tos, 39 << 2 | 2);
            }
        }
        assert!(seen[0] > 10 && seen[1] > 10, "{seen:?}");
        assert!(ports.len() > 40, "sprayed over {} of 64 ports", ports.len());
    }
}

#[test]
fn rate_algorithms_hear_of_delay_and_of_trims() {
    use trimwire_agent::rate::{RateConfig, TimelyConfig};
    let rate = |rate: RateConfig, faults: Faults| {
        let mut network = Network::with(2, faults, 3, |config| config.rate = rate);
        deliver(&mut network, &Random(3).gradient(200_000), PLANES);
        network.endpoints[0].rate_bps(1).expect("a peer")
    };
    let timely = RateConfig::Timely(TimelyConfig::default());
    assert_eq!(rate(timely, Faults::NONE), LINE_BPS);
    let long_route = Faults { data_delay_ns: 200_000, ..Faults::NONE };
    assert_eq!(rate(timely, long_route), LINE_BPS, "a long way is no queue");
    let explicit =
        TimelyConfig { t_low_ns: Some(25_000), t_high_ns: Some(50_000), ..TimelyConfig::default() };
    assert!(rate(RateConfig::Timely(explicit), long_route) < LINE_BPS / 2);
    assert!(
        rate(timely, Faults { trim: 1.0, trim_to_at_least: 100, ..Faults::NONE }) < LINE_BPS / 2,
        "all trimmed"
    );
}

#[test]
fn messages_to_one_peer_go_in_the_order_of_send() {
    let mut network = Network::new(2, Faults::NONE, 3, Reliability::Full);
    network.keep_log = true;
    for id in [9, 4, 7] {
        let message = encode(&network.endpoints[0], id, &Random(3).gradient(5_000), PLANES);
        network.expect(1, 0, id, 5_000);
        network.endpoints[0].send(0, 1, &message).expect("sent");
    }
    assert_eq!(network.finish(SECOND).len(), 6);
    let mut ids: Vec<u32> = network
        .log
        .iter()
        .filter(|(.., d)| kind(d) == Kind::Data)
        .map(|(.., d)| d.header().expect("own packet").prefix.message)
        .collect();
    ids.dedup();
    assert_eq!(ids, [9, 4, 7]);
}

#[test]
fn a_sender_that_wants_an_agreement_with_a_receiver_that_does_not_says_so() {
    let mut network = Network::new(2, Faults::NONE, 3, Reliability::Full);
    let message = encode(&network.endpoints[0], MESSAGE, &[1.0; 100], PLANES);
    network.expect(1, 0, MESSAGE, 100);
    network.endpoints[0].send_agreed(0, 1, &message).expect("sent");
    let events = network.finish(100 * SECOND);
    assert!(
        matches!(
            &events[1],
            (0, Event::Failed { error: TransferError::NoMap { peer: 1, packets: 1, .. }, .. })
        ),
        "{events:?}"
    );
}

/// Of messages that differ in length by whole packets the front of the longer one would pass for
/// the shorter one.
#[test]
fn ranks_that_see_different_messages_under_one_number_both_say_so_at_once() {
    let classed = |length| layout(length).with_layer_class(1).expect("valid");
    for (name, sent, expected) in [
        ("longer by a packet", layout(1_344), layout(896)),
        ("shorter by a packet", layout(896), layout(1_344)),
        ("longer by a row", layout(8_192), layout(4_096)),
        ("longer by less than a packet", layout(1_000), layout(900)),
        ("of another layer class", classed(1_000), layout(1_000)),
    ] {
        let mut network = Network::new(2, Faults::NONE, 3, Reliability::Bounded { loss: 0.01 });
        let gradient = Random(1).gradient(sent.coordinates());
        let message = encode_in(sent, &network.endpoints[0], MESSAGE, &gradient, PLANES);
        let other = Expectation { layout: expected, ..expectation(&network.endpoints[1], 1) };
        network.endpoints[1].expect(0, 0, MESSAGE, other).expect("expected once");
        network.endpoints[0].send(0, 1, &message).expect("sent once");
        let mut events = network.finish(SECOND);
        events.retain(|(_, event)| !matches!(event, Event::Row { .. }));
        events.sort_by_key(|&(rank, _)| rank);
        let [(0, Event::Failed { error: told, .. }), (1, Event::Failed { error, .. })] = &events[..] else {
            panic!("{name}: {events:?}");
        };
        assert!(
            matches!(told, TransferError::Aborted { reason: Reason::Mismatch, .. }),
            "{name}: the sender hears {told}"
        );
        assert!(matches!(error, TransferError::Mismatch { peer: 0, .. }), "{name}: {error}");
    }
}

#[test]
fn wrong_ranks_and_messages_are_refused_by_name() {
    let mut network = Network::new(2, Faults::NONE, 3, Reliability::Full);
    let message = encode(&network.endpoints[0], MESSAGE, &[1.0; 100], PLANES);
    let [first, second] = &mut network.endpoints[..] else { panic!("two ranks") };
    let text = |error: &dyn std::error::Error| error.to_string();
    assert_eq!(
        text(&first.send(0, 2, &message).expect_err("no such rank")),
        "rank 0 cannot send to rank 2; valid are the other ranks below 2"
    );
    assert!(text(&second.send(0, 0, &message).expect_err("not its message")).contains("is of stream"));
    first.send(0, 1, &message).expect("sent");
    assert_eq!(
        text(&first.send(0, 1, &message).expect_err("twice")),
        "message 0x0000004d is already on its way to rank 1"
    );
    let empty = trimwire_encoder::Message::default();
    assert_eq!(text(&first.send(0, 1, &empty).expect_err("empty")), "the message for rank 1 has no packets");
    let expected = expectation(first, 10);
    first.expect(0, 1, 3, expected.clone()).expect("expected");
    assert_eq!(
        text(&first.expect(0, 1, 3, expected).expect_err("twice")),
        "message 0x00000003 of rank 1 is expected already"
    );
}

/// The receiver has everything and waits for the precision to decode at; its sender, waiting for
/// other receivers, gives up, and says so once in vain.
#[test]
fn who_waits_for_an_agreement_hears_of_its_end_even_if_the_first_word_of_it_is_lost() {
    for reported in [false, true] {
        let mut network = Network::new(2, Faults::NONE, 3, Reliability::Full);
        let gradient = Random(3).gradient(5_000);
        let message = encode(&network.endpoints[0], MESSAGE, &gradient, PLANES);
        let agreeing = Expectation { agree: true, ..expectation(&network.endpoints[1], gradient.len()) };
        network.endpoints[1].expect(0, 0, MESSAGE, agreeing).expect("expected once");
        network.endpoints[0].send_agreed(0, 1, &message).expect("sent once");
        let mut received = false;
        for (rank, event) in network.finish(SECOND / 2) {
            match event {
                Event::Passed { to, message, .. } if rank == 0 => {
                    network.endpoints[0].settle(SECOND / 2, to, message, &[]);
                }
                Event::Received { .. } => received = true,
                Event::Sent { .. } => {}
                other => panic!("rank {rank}: {other:?}"),
            }
        }
        if reported {
            network.run(SECOND, |_, _, event| received |= matches!(event, Event::Received { .. }));
            assert!(received, "only the precision is missing");
        }
        network.script = Some(|_, datagram, before| kind(datagram) == Kind::Abort && before < 2);
        let now_ns = network.now_ns;
        network.endpoints[0].abort_send(now_ns, 1, MESSAGE, 0, trimwire_agent::wire::Reason::Cancelled);
        let events = network.finish(now_ns + 9 * SECOND);
        let failed = |(rank, event): &(usize, Event)| {
            *rank == 1
                && matches!(
                    event,
                    Event::Failed { peer: 0, message: MESSAGE, error: TransferError::Aborted { .. } }
                )
        };
        assert!(events.iter().any(failed), "reported {reported}: {events:?}");
    }
}

/// Seconds that 4 MB in so many messages take over a path of 400 µs, to one of so many other ranks.
fn seconds_to_one_of(others: u16, messages: u32) -> f64 {
    let far = Faults { data_delay_ns: 200_000, control_delay_ns: 200_000, ..Faults::NONE };
    let mut network = Network::with(others + 1, far, 3, |config| config.reliability = Reliability::Full);
    let gradient = Random(3).gradient(1_400_000 / messages as usize);
    for message in MESSAGE..MESSAGE + messages {
        network.expect(1, 0, message, gradient.len());
        network.send(0, 1, message, &gradient);
    }
    network.finish(2 * SECOND);
    assert_eq!(network.endpoints[0].stats().repairs_sent, 0);
    network.now_ns as f64 / 1e9
}

#[test]
fn one_peer_of_many_is_sent_as_much_as_its_path_holds() {
    // Of 63 others each has an eighth of a megabyte of the window, and the path holds four times
    // that.
    let (alone, of_many) = (seconds_to_one_of(1, 1), seconds_to_one_of(63, 1));
    assert!(of_many < 1.2 * alone, "{of_many} s, and {alone} s where there is no other");
}

#[test]
fn the_next_message_to_one_peer_of_many_begins_while_the_one_before_is_on_its_way() {
    let (one, four) = (seconds_to_one_of(63, 1), seconds_to_one_of(63, 4));
    assert!(four < 1.2 * one, "{four} s, and {one} s in one message");
}

/// Barriers and the shards of small tensors are messages of one packet: their round trips are all
/// that tells how long a lost one is to be waited for.
#[test]
fn messages_of_one_packet_measure_the_round_trip_of_data() {
    let faults = Faults { drop_data: 0.2, drop_control: 0.1, ..Faults::NONE };
    let mut network = Network::new(2, faults, 3, Reliability::Full);
    for number in 0..300 {
        deliver_number(&mut network, number, &[1.0], PLANES).expect("delivered");
    }
    // One in four takes a second try, after a millisecond, and few a third.
    assert!(network.now_ns < SECOND, "{} ns", network.now_ns);
}

/// The STOP with the map is lost, and its sender stands still for so long that the receiver asks
/// whether it is alive.
#[test]
fn a_sender_that_stood_still_is_told_the_map_again() {
    let mut network = Network::new(2, Faults::NONE, 3, Reliability::Full);
    let message = encode(&network.endpoints[0], MESSAGE, &Random(3).gradient(5_000), PLANES);
    let agreeing = Expectation { agree: true, ..expectation(&network.endpoints[1], 5_000) };
    network.endpoints[1].expect(0, 0, MESSAGE, agreeing).expect("expected once");
    network.endpoints[0].send_agreed(0, 1, &message).expect("sent once");
    network.script = Some(|_, datagram, before| kind(datagram) == Kind::Stop && before < 2);
    // All of it has left, and the question behind it.
    network.run(34_000, |_, _, event| assert!(matches!(event, Event::Row { .. }), "{event:?}"));
    network.paused_until_ns[0] = 3 * SECOND;
    let mut map = None;
    network.run(4 * SECOND, |_, rank, event| match event {
        Event::Sent { map: told, .. } => map = told,
        Event::Received { .. } | Event::Row { .. } => {}
        other => panic!("rank {rank}: {other:?}"),
    });
    assert!(map.is_some());
}
