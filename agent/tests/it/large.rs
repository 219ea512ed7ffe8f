// SPDX-License-Identifier: Apache-2.0
//! Promises at the size of real jobs: messages of several map parts (one holds some 5,200 packets),
//! and what reports and questions cost there.

use crate::network::{Datagram, Faults, Network, Random, address, encode_in, expectation, kind, layout};
use trimwire_agent::endpoint::{Event, Expectation, Reliability};
use trimwire_agent::transfer::TransferStats;
use trimwire_agent::wire::trim_map::Detail;
use trimwire_agent::wire::{CONTROL_LEN_MAX, Identity, MapSource, Writer, checked};
use trimwire_encoder::Layout;
use trimwire_encoder::wire::Kind;

const SECOND: u64 = 1_000_000_000;
const MESSAGE: u32 = 9;
/// Coordinates of a packet: few, so that many packets are soon sent.
const SMALL: usize = 32;

/// What a message of `packets` packets came to, and what was sent for it.
struct Done {
    received: TransferStats,
    sent: TransferStats,
    at_ns: u64,
    data: usize,
    questions: usize,
    reports: usize,
}

fn deliver(packets: usize, faults: Faults, reliability: Reliability) -> Done {
    let mut network = Network::with(2, faults, 3, |config| {
        config.reliability = reliability;
        config.ack_every = 32;
    });
    network.keep_log = true;
    let gradient = Random(1).gradient(packets * SMALL);
    let layout = Layout::new(gradient.len(), SMALL).expect("valid");
    let message = encode_in(layout.clone(), &network.endpoints[0], MESSAGE, &gradient, 10);
    let expectation = Expectation { layout, ..expectation(&network.endpoints[1], 1) };
    network.endpoints[1].expect(0, 0, MESSAGE, expectation).expect("expected once");
    network.endpoints[0].send(0, 1, &message).expect("sent once");
    let (mut received, mut sent, mut at_ns) = (None, None, 0);
    network.run(20 * SECOND, |network, _, event| match event {
        Event::Received { stats, .. } => received = Some(stats),
        Event::Sent { stats, .. } => (sent, at_ns) = (Some(stats), network.now_ns),
        Event::Row { .. } => {}
        other => panic!("{other:?}"),
    });
    let count =
        |of: &[Kind]| network.log.iter().filter(|(.., datagram)| of.contains(&kind(datagram))).count();
    Done {
        received: received.expect("it arrived"),
        sent: sent.expect("its sender knows"),
        at_ns,
        data: count(&[Kind::Data]),
        questions: count(&[Kind::Probe]),
        reports: count(&[Kind::Ack, Kind::Status]),
    }
}

/// A trim may leave less than a plane: one packet in a hundred of those that are trimmed is as good
/// as lost, and the bound allows most of them.
const TRIMMED: Faults = Faults { trim: 0.3, trim_to_at_least: 18, ..Faults::NONE };

#[test]
fn a_message_of_many_map_parts_ends_though_packets_that_it_may_lack_are_missing_from_its_beginning_on() {
    for packets in [6_000, 40_000] {
        let done = deliver(packets, TRIMMED, Reliability::Bounded { loss: 0.01 });
        assert!(done.received.missing > 0, "the bound is used: {:?}", done.received);
        // 174 bytes of a frame each.
        let wire_ns = packets as u64 * 174 * 8 / 10;
        assert!(
            done.at_ns < 3 * wire_ns,
            "{packets} packets took {} ns, {wire_ns} ns on the wire",
            done.at_ns
        );
        assert!(done.data < packets + packets / 50, "{} sent of {packets}", done.data);
    }
}

#[test]
fn questions_and_reports_are_a_small_part_of_what_is_sent_whatever_the_size_and_the_trims() {
    for (faults, reliability) in [
        (Faults::NONE, Reliability::Bounded { loss: 0.01 }),
        (TRIMMED, Reliability::Bounded { loss: 0.01 }),
        (TRIMMED, Reliability::Full),
        (Faults { drop_data: 0.02, ..Faults::NONE }, Reliability::Full),
        (Faults { drop_data: 0.02, drop_control: 0.2, ..Faults::NONE }, Reliability::Bounded { loss: 0.05 }),
    ] {
        let done = deliver(30_000, faults, reliability);
        // A report for 32 packets, one at the end of each row, as many again for what is repaired;
        // and an answer has as many as the map has parts, of 2,600 packets where planes are told.
        let parts = 30_000_usize.div_ceil(2_600);
        let most = done.data / 32 * 2 + 60 + done.questions * parts;
        assert!(done.reports < most, "{} reports of {} packets, {faults:?}", done.reports, done.data);
        let round_trips = done.at_ns / 10_000;
        assert!(
            (done.questions as u64) < 20 + round_trips / 10,
            "{} questions in {round_trips}",
            done.questions
        );
        assert_eq!(done.sent.missing, done.received.missing);
    }
}

/// DDP with a straggler: all its peers send all their buckets, and it has asked for none of them.
#[test]
fn what_many_messages_send_early_is_kept_and_nothing_is_sent_twice() {
    for (world, messages) in [(2, 6), (3, 6), (2, 200)] {
        let mut network = Network::new(world, Faults::NONE, 3, Reliability::Bounded { loss: 0.01 });
        let length = 24_000_000 / messages as usize / usize::from(world);
        let gradient = Random(1).gradient(length);
        for from in 1..world {
            (0..messages).for_each(|message| network.send(usize::from(from), 0, message, &gradient));
        }
        let mut done = 0;
        network.run(SECOND, |_, _, event| panic!("{event:?}"));
        let (kept, _) = network.endpoints[0].footprint();
        let part = network.endpoints[0].config().window_bytes() as usize * usize::from(world - 1);
        assert!(kept > part / 2 && kept <= 2 * part, "{kept} bytes are kept, {part} are a window");
        for from in 1..world {
            (0..messages).for_each(|message| network.expect(0, from, message, length));
        }
        network.run(3 * SECOND, |_, _, event| match event {
            Event::Received { .. } | Event::Sent { .. } => done += 1,
            Event::Row { .. } => {}
            other => panic!("{other:?}"),
        });
        assert_eq!(done, 2 * u32::from(world - 1) * messages);
        assert_eq!(network.endpoints[0].stats().early_dropped, 0);
        for from in 1..usize::from(world) {
            let stats = network.endpoints[from].stats();
            assert_eq!(stats.repairs_sent, 0, "{world} ranks, {messages} messages");
        }
        let late_ns = network.now_ns - SECOND;
        assert!(late_ns < SECOND / 2, "{late_ns}");
    }
}

/// A ring's next hop, and the owner's sum, wait for rows and not for messages.
#[test]
fn rows_do_not_wait_for_packets_that_their_sender_leaves_out() {
    let mut network =
        Network::new(2, Faults { drop_data: 0.005, ..Faults::NONE }, 3, Reliability::Bounded { loss: 0.02 });
    network.keep_log = true;
    let length = 8_000_000;
    network.expect(1, 0, MESSAGE, length);
    network.send(0, 1, MESSAGE, &Random(1).gradient(length));
    let layout = layout(length);
    let (mut rows, mut missing) = (Vec::new(), 0);
    network.run(20 * SECOND, |network, _, event| match event {
        Event::Row { row, .. } => {
            rows.push(network.now_ns);
            missing += layout.row_packets(row.row()).filter(|&packet| row.coverage(packet) == 0).count();
        }
        Event::Received { stats, .. } => assert_eq!(stats.missing as usize, missing),
        Event::Sent { stats, .. } => assert_eq!(stats.repaired, 0),
        other => panic!("{other:?}"),
    });
    assert!(missing > 50, "{missing} are missing");
    let data = network.log.iter().filter(|(.., datagram)| kind(datagram) == Kind::Data);
    let arrived_ns = data.map(|&(at_ns, ..)| at_ns + Faults::NONE.data_delay_ns).max().expect("some");
    let late = rows.iter().filter(|&&at_ns| at_ns > arrived_ns).count();
    assert!(rows.len() > 1_000 && late < 10, "{late} of {} rows came when everything had", rows.len());
}

/// A rank that says of everything that it does not come has as much believed as the bound allows,
/// and nothing where every plane is wanted.
#[test]
fn a_sender_cannot_leave_out_more_than_the_bound_allows() {
    for (reliability, believed) in [(Reliability::Bounded { loss: 0.03 }, 15), (Reliability::Full, 0)] {
        let mut network = Network::new(2, Faults::NONE, 3, reliability);
        // Rows of 10 packets each.
        let length = 4_096 * 50;
        network.expect(1, 0, MESSAGE, length);
        let layout = layout(length);
        let packets = layout.packets() as u32;
        let [from, to] = [0, 1].map(|rank: usize| network.endpoints[rank].config().incarnation);
        let (stream, identity) = (network.endpoints[0].stream(), Identity { from, to });
        let writer = Writer { stream, identity, room: CONTROL_LEN_MAX };
        let all = MapSource { planes: &|_| 0, packets, offset: 0, detail: Detail::Planes };
        let (payload, end) = writer.forward(MESSAGE, packets, &all);
        assert_eq!(end, packets);
        let hello = writer.hello(false, &[49_152], &[]);
        for (at_ns, payload) in [(0, checked(hello.clone())), (1, checked(payload))] {
            network.inject(
                at_ns,
                Datagram {
                    from: 0,
                    to: 1,
                    source: address(0),
                    tos: 0,
                    mask: trimwire_encoder::HeaderMask::NONE,
                    payload,
                },
            );
        }
        let mut rows = 0;
        network.run(SECOND / 100, |_, rank, event| match event {
            Event::Row { row, .. } => {
                assert_eq!(
                    (rank, layout.row_packets(row.row()).filter(|&packet| row.coverage(packet) > 0).count()),
                    (1, 0)
                );
                rows += 1;
            }
            other => panic!("{other:?}"),
        });
        // Three packets in a hundred of 500 are a row and a half.
        assert_eq!(rows, believed / 10, "{reliability:?}");
    }
}
