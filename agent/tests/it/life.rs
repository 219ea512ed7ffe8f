// SPDX-License-Identifier: Apache-2.0
//! A transfer's whole life: what it promises to others on the same endpoint, to strangers, and to
//! whoever waits for it.

use crate::network::{
    Datagram, Faults, LINE_BPS, Network, Random, address, encode, encode_in, expectation, kind, layout,
};
use std::net::SocketAddr;
use trimwire_agent::burst::Arrived;
use trimwire_agent::endpoint::{Event, ExpectError, Expectation, Reliability, SendError};
use trimwire_agent::rate::{DctcpConfig, RateConfig, TimelyConfig};
use trimwire_agent::transfer::TransferError;
use trimwire_agent::wire::{Abort, CONTROL_LEN_MAX, Identity, Probe, Reason, Report, Stop, Writer, checked};
use trimwire_encoder::wire::{Kind, Prefix, StreamId};
use trimwire_encoder::{HeaderMask, PLANES};

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;

fn two(reliability: Reliability) -> Network {
    Network::new(2, Faults::NONE, 1, reliability)
}

/// Sends a message and delivers it.
fn deliver(network: &mut Network, id: u32, length: usize) {
    network.expect(1, 0, id, length);
    network.send(0, 1, id, &Random(1).gradient(length));
    let events = network.finish(network.now_ns + SECOND);
    assert!(matches!(&events[..], [(1, Event::Received { .. }), (0, Event::Sent { .. })]), "{events:?}");
}

#[test]
fn a_number_is_used_once_and_refused_at_once_on_both_sides() {
    for retire in [false, true] {
        let mut network = two(Reliability::Full);
        deliver(&mut network, 5, 2_000);
        if retire {
            network.endpoints.iter_mut().for_each(|endpoint| endpoint.retire(6));
        }
        let message = encode(&network.endpoints[0], 5, &[1.0; 100], PLANES);
        let now_ns = network.now_ns;
        assert!(matches!(
            network.endpoints[0].send(now_ns, 1, &message),
            Err(SendError::Reused { message: 5, to: 1 })
        ));
        let again = expectation(&network.endpoints[1], 100);
        let again = network.endpoints[1].expect(now_ns, 0, 5, again);
        assert!(matches!(again, Err(ExpectError::Reused { message: 5, from: 0 })));
        assert!(network.finish(now_ns + SECOND).is_empty());
    }
}

#[test]
fn a_message_that_waits_while_hundreds_of_later_ones_pass_is_neither_lost_nor_used_again() {
    let mut network = two(Reliability::Full);
    network.send(0, 1, 1, &[1.0; 100]);
    for id in 2..700 {
        deliver(&mut network, id, 100);
    }
    let now_ns = network.now_ns;
    for id in [1, 2, 3, 400] {
        let message = encode(&network.endpoints[0], id, &[1.0; 100], PLANES);
        let sent = network.endpoints[0].send(now_ns, 1, &message);
        assert!(
            matches!(sent, Err(SendError::Reused { .. } | SendError::Busy { message: 1, .. })),
            "{id}: {sent:?}"
        );
    }
    assert!(network.finish(now_ns + MINUTE).is_empty(), "its sender is not told that it has arrived");
    network.expect(1, 0, 1, 100);
    let events = network.finish(network.now_ns + SECOND);
    assert!(
        matches!(&events[..], [(1, Event::Received { message: 1, .. }), (0, Event::Sent { message: 1, .. })]),
        "{events:?}"
    );
}

/// Probes of messages that nobody expects, and how many are answered.
fn answered(network: &mut Network, probes: u32) -> usize {
    let stream = StreamId::new(0, 0).expect("fits");
    let writer = Writer { stream, identity: Identity { from: 1, to: 2 }, room: CONTROL_LEN_MAX };
    let probe = Probe {
        sequence: 9,
        packets: 3,
        shape: 0,
        planes: PLANES,
        want_map: false,
        finish: false,
        grace_ns: 0,
        map_offset: 0,
    };
    let before = network.log.len();
    for id in 0..probes {
        let payload = checked(writer.probe(1_000 + id, &probe));
        let source = address(0);
        network.inject(
            network.now_ns,
            Datagram { from: 0, to: 1, source, tos: 0, mask: HeaderMask::NONE, payload },
        );
    }
    network.finish(network.now_ns + 1_000_000);
    let status =
        |d: &Datagram| kind(d) == Kind::Status && Prefix::parse(&d.payload).expect("own").message >= 1_000;
    network.log[before..].iter().filter(|(_, from, d)| *from == 1 && status(d)).count()
}

#[test]
fn probes_of_unexpected_messages_are_answered_with_and_without_a_full_store() {
    let mut network = Network::with(2, Faults::NONE, 1, |config| config.window = 30_000);
    network.keep_log = true;
    deliver(&mut network, 1, 100);
    assert_eq!(answered(&mut network, 50), 50);
    for id in 2..40 {
        network.send(0, 1, id, &Random(1).gradient(20_000));
    }
    network.finish(network.now_ns + SECOND / 100);
    let (bytes, _) = network.endpoints[1].footprint();
    assert!((40_000..=60_000).contains(&bytes), "full: {bytes}");
    assert_eq!(answered(&mut network, 50), 50);
    for id in 2..40 {
        network.endpoints[0].abort_send(network.now_ns, 1, id, 0, Reason::Cancelled);
    }
    network.finish(network.now_ns + SECOND);
    assert!(
        network.endpoints[1].footprint().0 <= 100 * 64,
        "the store drains: {:?}",
        network.endpoints[1].footprint()
    );
    network.endpoints[1].retire(2_000);
    assert_eq!(network.endpoints[1].footprint().0, 0);
}

#[test]
fn a_failure_on_one_side_is_known_on_the_other_within_a_round_trip_and_names_the_culprit() {
    for sender in [true, false] {
        for lost in [false, true] {
            let mut network = two(Reliability::Full);
            if lost {
                network.script = Some(|_, datagram, before| kind(datagram) == Kind::Abort && before == 0);
            }
            network.expect(1, 0, 7, 100_000);
            network.send(0, 1, 7, &Random(1).gradient(100_000));
            assert!(network.finish(50_000).is_empty());
            let now_ns = network.now_ns;
            if sender {
                network.endpoints[0].abort_send(now_ns, 1, 7, 3, Reason::Stalled);
            } else {
                network.endpoints[1].abort_expect(now_ns, 0, 7, 3, Reason::Stalled);
            }
            let mut told = Vec::new();
            network.run(MINUTE, |network, rank, event| {
                if let Event::Failed { message: 7, error, .. } = event {
                    told.push((rank, network.now_ns - now_ns, error));
                }
            });
            let [(rank, after_ns, error)] = told[..] else { panic!("{told:?}") };
            assert_eq!(rank, usize::from(sender));
            assert!(
                matches!(error, TransferError::Aborted { culprit: 3, reason: Reason::Stalled, .. }),
                "{error}"
            );
            // A sender goes on, and is told again; a receiver asks when it has heard nothing for a
            // second.
            let most_ns = if lost { 1_100_000_000 } else { 10_000 };
            assert!(after_ns < most_ns, "after {after_ns} ns");
            assert!(network.endpoints.iter().all(|endpoint| endpoint.poll_timeout().is_none()));
        }
    }
}

#[test]
fn fewer_planes_on_purpose_are_no_congestion() {
    for rate in [RateConfig::Timely(TimelyConfig::default()), RateConfig::Dctcp(DctcpConfig::default())] {
        // The receiver thinks of all planes until the sender's word comes.
        for told in [PLANES, 4] {
            let mut network = Network::with(2, Faults::NONE, 3, |config| config.rate = rate);
            let gradient = Random(3).gradient(500_000);
            let message = encode(&network.endpoints[0], 1, &gradient, 4);
            let expectation =
                Expectation { planes: told, ..expectation(&network.endpoints[1], gradient.len()) };
            network.endpoints[1].expect(0, 0, 1, expectation).expect("expected");
            network.endpoints[0].send(0, 1, &message).expect("sent");
            let events = network.finish(SECOND);
            let [(1, Event::Received { stats, .. }), (0, Event::Sent { .. })] = &events[..] else {
                panic!("{events:?}")
            };
            assert_eq!((stats.full, stats.trimmed), (stats.packets, 0));
            assert_eq!(network.endpoints[1].stats().trimmed_received, 0);
            assert_eq!(network.endpoints[0].rate_bps(1), Some(LINE_BPS), "{rate:?}");
            assert!(network.endpoints[0].rtt_ns(1).is_some_and(|rtt_ns| (10_000..15_000).contains(&rtt_ns)));
        }
    }
}

#[test]
fn a_strangers_packets_of_the_right_job_rank_and_message_change_nothing() {
    let outcome = |forge: bool| {
        let mut network = two(Reliability::Full);
        network.keep_log = true;
        network.expect(1, 0, 7, 60_000);
        network.send(0, 1, 7, &Random(1).gradient(60_000));
        let mut events = network.finish_with_rows(40_000);
        if forge {
            for (to, from) in [(0_usize, 1_u16), (1, 0)] {
                let stream = StreamId::new(0, from).expect("fits");
                let (right, home) =
                    (Identity { from: u32::from(from) + 1, to: to as u32 + 1 }, address(usize::from(from)));
                let other_host = SocketAddr::new([10, 9, 9, 9].into(), home.port());
                let other_port = SocketAddr::new(home.ip(), 40_000);
                let wrong = [
                    Identity { to: 77, ..right },
                    Identity { from: 77, ..right },
                    Identity { to: 0, ..right },
                ];
                let ways = [
                    (right, other_host),
                    (right, other_port),
                    (wrong[0], home),
                    (wrong[1], home),
                    (wrong[2], home),
                ];
                for (identity, source) in ways {
                    let writer = Writer { stream, identity, room: CONTROL_LEN_MAX };
                    let stop =
                        Stop { sequence: 1, report: Report::default(), missing: 0, agreed: 0, map: None };
                    let mut payloads = vec![
                        writer.stop(7, &stop, None).0,
                        writer.abort(7, Abort { reason: Reason::Lost, culprit: 1 }),
                    ];
                    // A HELLO that does not name us is answered and not believed; one that does is
                    // of who knows us.
                    if identity.to != right.to || source != home {
                        payloads.extend([
                            writer.hello(false, &[40_000], &[]),
                            writer.hello(true, &[40_000], &[]),
                        ]);
                    }
                    for payload in payloads {
                        network.endpoints[to].handle_datagram(
                            network.now_ns,
                            Arrived::now(source, 0),
                            &checked(payload),
                        );
                    }
                    // Neither are the ports that it names.
                    let mut forged =
                        encode(&network.endpoints[0], 7, &vec![9.0; 60_000], PLANES).packet(100).to_vec();
                    forged[2..4].copy_from_slice(&from.to_be_bytes());
                    for source in [other_host, other_port] {
                        network.endpoints[to].handle_datagram(
                            network.now_ns,
                            Arrived::now(source, 0),
                            &forged,
                        );
                    }
                }
            }
        }
        events.extend(network.finish_with_rows(SECOND));
        let mut words = vec![0.0; 60_000];
        let mut others = Vec::new();
        for (rank, event) in events {
            match event {
                Event::Row { row, .. } => {
                    let range = layout(60_000).row_coordinates(row.row());
                    row.decode_into(&mut words[range]).expect("of its length");
                }
                Event::Received { .. } => others.push((rank, "received")),
                Event::Sent { .. } => others.push((rank, "sent")),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(network.endpoints[0].stats().failed + network.endpoints[1].stats().failed, 0);
        let data = network.log.iter().filter(|(.., d)| kind(d) == Kind::Data).count();
        (words, others, data)
    };
    assert!(outcome(true) == outcome(false));
}

/// A stranger who cannot read the network, but knows address, source ports, message numbers and
/// layout: everything that DATA says, and no incarnation.
#[test]
fn data_of_a_stranger_who_does_not_know_the_incarnation_is_neither_summed_nor_kept() {
    const LENGTH: usize = 60_000;
    const EARLY: u32 = 9;
    let outcome = |forge: bool| {
        let mut network = two(Reliability::Full);
        // They have met.
        deliver(&mut network, 1, 100);
        network.expect(1, 0, 7, LENGTH);
        network.send(0, 1, 7, &Random(1).gradient(LENGTH));
        let mut events = network.finish_with_rows(network.now_ns + 20_000);
        if forge {
            let before = network.endpoints[1].stats().malformed;
            let ports = network.endpoints[0].config().source_ports.clone();
            let mut forged = 0;
            for message in [7, EARLY] {
                let packets = encode(&network.endpoints[0], message, &vec![1e6; LENGTH], PLANES);
                for index in 0..packets.packets() {
                    let source = SocketAddr::new(address(0).ip(), ports[index % ports.len()]);
                    let arrived = Arrived::now(source, 0);
                    network.endpoints[1].handle_datagram(network.now_ns, arrived, packets.packet(index));
                    forged += 1;
                }
            }
            assert_eq!(network.endpoints[1].stats().malformed - before, forged, "all are seen through");
            assert_eq!(network.endpoints[1].footprint().0, 0, "nothing of them is kept");
        }
        network.expect(1, 0, EARLY, LENGTH);
        network.send(0, 1, EARLY, &Random(2).gradient(LENGTH));
        events.extend(network.finish_with_rows(network.now_ns + SECOND));
        let mut sums = vec![0.0; 2 * LENGTH];
        for (_, event) in events {
            match event {
                Event::Row { message, row, .. } => {
                    let range = layout(LENGTH).row_coordinates(row.row());
                    let at = if message == EARLY { LENGTH } else { 0 };
                    row.decode_into(&mut sums[at + range.start..at + range.end]).expect("of its length");
                }
                Event::Received { .. } | Event::Sent { .. } => {}
                other => panic!("{other:?}"),
            }
        }
        sums
    };
    assert!(outcome(true) == outcome(false), "the sums are those of the sender");
}

#[test]
fn losses_in_the_middle_are_repaired_long_before_the_last_packet_leaves() {
    // One path keeps the order; sprayed packets overtake each other.
    for (paths, jitter_ns) in [(1_u16, 0), (16, 0), (16, 3_000)] {
        let faults = Faults { jitter_ns, ..Faults::NONE };
        let mut network = Network::with(2, faults, 1, |config| {
            config.reliability = Reliability::Full;
            config.source_ports = (50_000..50_000 + paths).collect();
        });
        network.keep_log = true;
        network.script =
            Some(|_, datagram, before| kind(datagram) == Kind::Data && (before == 50 || before == 51));
        network.expect(1, 0, 7, 120_000);
        network.send(0, 1, 7, &Random(1).gradient(120_000));
        let events = network.finish(SECOND);
        assert!(
            matches!(&events[..], [(1, Event::Received { .. }), (0, Event::Sent { stats, .. })] if stats.repaired == 2),
            "{events:?}"
        );
        let sent: Vec<(u64, u32)> = network
            .log
            .iter()
            .filter(|(.., d)| kind(d) == Kind::Data)
            .map(|(at_ns, _, d)| (*at_ns, d.header().expect("own").index))
            .collect();
        let first = sent[50].0;
        for index in [sent[50].1, sent[51].1] {
            let repair = sent.iter().rfind(|(_, i)| *i == index).expect("sent twice").0;
            let round_trips = (repair - first) as f64 / 10_000.0;
            // One to hear of it, what packets may overtake each other by, and an ACK of ten
            // packets.
            assert!((1.0..4.5).contains(&round_trips), "{paths} paths: {round_trips} round trips");
            assert!(repair + 100_000 < sent.last().expect("sent").0);
        }
    }
}

#[test]
fn rows_are_there_long_before_the_message_ends() {
    let mut network = two(Reliability::Full);
    network.expect(1, 0, 7, 200_000);
    network.send(0, 1, 7, &Random(1).gradient(200_000));
    let (mut rows, mut end_ns) = (Vec::new(), 0);
    network.run(SECOND, |network, _, event| match event {
        Event::Row { row, .. } => rows.push((network.now_ns, row.row())),
        Event::Received { .. } => end_ns = network.now_ns,
        _ => {}
    });
    assert!(rows.iter().map(|&(_, row)| row).eq(0..layout(200_000).rows()));
    // A row of 2^12 coordinates is ten packets: 12 us at this rate.
    for (at_ns, row) in rows {
        assert!(at_ns <= (row as u64 + 1) * 13_000 + 30_000, "row {row} at {at_ns} ns of {end_ns}");
    }
}

#[test]
fn urgent_messages_overtake_lazy_ones_that_were_sent_before() {
    let mut network = two(Reliability::Full);
    network.keep_log = true;
    let of_class = |class| layout(100_000).with_layer_class(class).expect("a class");
    let send = |network: &mut Network, id, class| {
        let layout = of_class(class);
        let message = encode_in(layout.clone(), &network.endpoints[0], id, &vec![1.0; 100_000], PLANES);
        let expectation = Expectation { layout, ..expectation(&network.endpoints[1], 1) };
        let now_ns = network.now_ns;
        network.endpoints[1].expect(now_ns, 0, id, expectation).expect("expected");
        network.endpoints[0].send(now_ns, 1, &message).expect("sent");
    };
    send(&mut network, 1, 3);
    network.finish(60_000);
    send(&mut network, 2, 0);
    let urgent_ns = network.now_ns;
    let mut ends = Vec::new();
    network.run(SECOND, |network, rank, event| {
        if let (1, Event::Received { message, .. }) = (rank, event) {
            ends.push((message, network.now_ns - urgent_ns));
        }
    });
    // 246 packets of 1 us each, and the way.
    assert!(matches!(ends[..], [(2, 250_000..270_000), (1, _)]), "{ends:?}");
}

#[test]
fn ten_thousand_operations_leave_nothing_behind_and_do_not_get_slower() {
    for retire in [false, true] {
        let mut network = two(Reliability::Bounded { loss: 0.01 });
        let mut before_events = 0;
        for id in 0..5_000 {
            network.expect(1, 0, id, 100);
            network.send(0, 1, id, &[1.0; 100]);
            let end_ns = network.now_ns + 200_000;
            before_events += network.finish(end_ns).len();
            if retire && id % 10 == 0 {
                network.endpoints.iter_mut().for_each(|endpoint| endpoint.retire(id + 1));
            }
        }
        assert_eq!(before_events, 10_000);
        network.finish(network.now_ns + MINUTE);
        for endpoint in &network.endpoints {
            let (bytes, endings) = endpoint.footprint();
            assert_eq!((bytes, endpoint.poll_timeout()), (0, None));
            assert!(endings <= 257, "{endings}");
        }
        let control: u64 = network.endpoints.iter().map(|endpoint| endpoint.stats().control_sent).sum();
        assert!(control <= 10 + 5_000 * 4, "{control} control packets");
    }
}

#[test]
fn an_endpoint_that_is_not_driven_for_nine_seconds_fails_nothing() {
    for rank in 0..2 {
        let mut network = two(Reliability::Full);
        network.expect(1, 0, 7, 300_000);
        network.send(0, 1, 7, &Random(1).gradient(300_000));
        assert!(network.finish(50_000).is_empty());
        network.paused_until_ns[rank] = 9 * SECOND;
        let events = network.finish(12 * SECOND);
        assert!(matches!(&events[..], [(1, Event::Received { .. }), (0, Event::Sent { .. })]), "{events:?}");
    }
}

#[test]
fn a_receiver_that_asks_after_twenty_minutes_has_it_within_milliseconds() {
    let mut network = two(Reliability::Full);
    network.send(0, 1, 7, &Random(1).gradient(300_000));
    assert!(network.finish(20 * MINUTE).is_empty());
    network.expect(1, 0, 7, 300_000);
    let asked_ns = network.now_ns;
    let events = network.finish(asked_ns + 10_000_000);
    assert!(matches!(&events[..], [(1, Event::Received { .. }), (0, Event::Sent { .. })]), "{events:?}");
}

#[test]
fn a_pause_makes_no_timeouts_of_its_own_length() {
    // The answers to what was asked before the pause come after it: round trips of nine seconds,
    // and then losses.
    let mut network = two(Reliability::Full);
    network.send(0, 1, 7, &Random(1).gradient(3_000));
    network.finish(1_500_000);
    network.paused_until_ns[1] = 9 * SECOND;
    network.finish(9 * SECOND + 1_000_000);
    network.faults = Faults { drop_data: 0.3, drop_control: 0.5, ..Faults::NONE };
    assert!(network.finish(MINUTE).is_empty());
    network.expect(1, 0, 7, 3_000);
    network.expect(1, 0, 8, 30_000);
    network.send(0, 1, 8, &Random(1).gradient(30_000));
    let mut last_ns = network.now_ns;
    let events = {
        let mut events = 0;
        network.run(2 * MINUTE, |network, _, event| match event {
            Event::Row { .. } => {}
            Event::Received { .. } | Event::Sent { .. } => (events, last_ns) = (events + 1, network.now_ns),
            other => panic!("{other:?}"),
        });
        events
    };
    assert_eq!(events, 4);
    assert!(last_ns < MINUTE + 3 * SECOND, "took {} ms", (last_ns - MINUTE) / 1_000_000);
}

#[test]
fn a_rank_that_gave_up_what_another_begins_says_so_at_once() {
    // As after a restart: rank 1 is done with these numbers and has neither taken nor sent them.
    for forward in [true, false] {
        let mut network = two(Reliability::Full);
        deliver(&mut network, 1, 100);
        network.endpoints[1].retire(20);
        if forward {
            network.send(0, 1, 10, &[1.0; 100]);
        } else {
            network.expect(0, 1, 10, 100);
        }
        let events = network.finish(network.now_ns + 2 * SECOND);
        let [(0, Event::Failed { error: TransferError::Aborted { peer: 1, culprit: 1, reason, .. }, .. })] =
            &events[..]
        else {
            panic!("{events:?}")
        };
        assert_eq!(*reason, Reason::Mismatch);
    }
}

#[test]
fn data_that_overtakes_the_greeting_is_not_lost() {
    // Another path than the control packets': what a HELLO says comes later than what follows it.
    let faults = Faults { control_delay_ns: 200_000, data_delay_ns: 5_000, ..Faults::NONE };
    for planes in [PLANES, 4] {
        let mut network = Network::new(2, faults, 1, Reliability::Bounded { loss: 0.2 });
        let expectation = Expectation { planes, ..expectation(&network.endpoints[1], 30_000) };
        network.endpoints[1].expect(0, 0, 7, expectation).expect("expected once");
        let message = encode(&network.endpoints[0], 7, &Random(1).gradient(30_000), planes);
        network.endpoints[0].send(0, 1, &message).expect("sent once");
        let events = network.finish(10 * SECOND);
        let [(1, Event::Received { stats, .. }), (0, Event::Sent { .. })] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!((stats.missing, network.endpoints[1].stats().foreign), (0, 0));
        assert_eq!(network.endpoints[0].stats().repairs_sent, 0);
    }
}

#[test]
fn data_that_never_gets_through_is_tried_a_packet_at_a_time_and_given_up_by_name() {
    for reliability in [Reliability::Full, Reliability::Bounded { loss: 0.1 }] {
        let mut network = Network::new(2, Faults::NONE, 1, reliability);
        // A path that carries short packets only.
        network.script = Some(|_, datagram, _| datagram.payload.len() > 1_000);
        let gradient = Random(1).gradient(1_000_000);
        network.expect(1, 0, 7, gradient.len());
        let message = encode(&network.endpoints[0], 7, &gradient, PLANES);
        network.endpoints[0].send(0, 1, &message).expect("sent once");
        let events = network.finish(60 * SECOND);
        let stalled = |event: &(usize, Event)| {
            matches!(event, (0, Event::Failed { error: TransferError::Stalled { peer: 1, .. }, .. }))
        };
        assert!(events.iter().any(stalled), "{events:?}");
        assert!((10 * SECOND..12 * SECOND).contains(&network.now_ns), "{} ns", network.now_ns);
        let stats = network.endpoints[0].stats();
        // A few rounds of what the window lets out, and then one by one.
        assert!(stats.data_sent < 4 * message.packets() as u64 + 300, "{stats:?}");
    }
}

#[test]
fn a_path_that_carries_nothing_for_a_while_is_used_again_soon_after() {
    let mut network = Network::new(2, Faults::NONE, 1, Reliability::Full);
    network.script = Some(|_, datagram, _| datagram.payload.len() > 1_000);
    let gradient = Random(1).gradient(100_000);
    network.expect(1, 0, 7, gradient.len());
    let message = encode(&network.endpoints[0], 7, &gradient, PLANES);
    network.endpoints[0].send(0, 1, &message).expect("sent once");
    assert!(network.finish(3 * SECOND).is_empty());
    network.script = None;
    let events = network.finish(10 * SECOND);
    assert!(matches!(events[..], [(1, Event::Received { .. }), (0, Event::Sent { .. })]), "{events:?}");
    assert!(network.now_ns < 3_300_000_000, "{} ns", network.now_ns);
}
