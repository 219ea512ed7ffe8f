// SPDX-License-Identifier: Apache-2.0
//! The engine on our own program: a congested queue trims packets to frames that any IP stack
//! accepts, and the counters add up.

use std::collections::BTreeMap;

use crate::engine_support::{call, direct, entry, exact, ingress, lpm};
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};
use trimwire_switch::engine::entity::{ActionSpec, Group, GroupMember, value};
use trimwire_switch::engine::{EgressOutcome, Enqueue, Pipeline, QueueMetadata, Spares};

const PORT: u64 = 2;
const CLASS: u64 = 5;
const TRIM: u64 = 6;
const SHALLOW: u16 = 412;
const DEEP: u16 = 236;

fn program() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/build/bmv2/trimwire.json");
    std::fs::read_to_string(path).unwrap()
}

fn pipeline() -> Pipeline {
    loaded(&program())
}

fn loaded(program: &str) -> Pipeline {
    let mut pipeline = Pipeline::load(program.as_bytes()).unwrap();
    let control = pipeline.control();
    control
        .member_insert("Ingress.ecmp", 1, &call("Ingress.forward", &[PORT.into(), 0x02_00_00_00_00_99]))
        .unwrap();
    for (table, prefix) in
        [("Ingress.ipv4_route", lpm(0x0a00_0000, 8)), ("Ingress.ipv6_route", lpm(0x2001_0db8 << 96, 32))]
    {
        control.table_insert(table, &entry(vec![prefix], 0, ActionSpec::Member(1))).unwrap();
    }
    let trimmable = direct("Ingress.set_trimmable", &[CLASS.into()]);
    control.table_insert("Ingress.classify", &entry(vec![exact(3)], 0, trimmable)).unwrap();
    for importance in 0..2 {
        let key = [PORT.into(), CLASS.into(), importance].map(exact).to_vec();
        let (shallow, deep) = (SHALLOW.into(), DEEP.into());
        let thresholds = [3_000, 6_000, 9_000, 40_000, shallow, deep, 35, TRIM.into(), 2_000];
        let action = direct("Ingress.queue_policy.set_thresholds", &thresholds);
        control.table_insert("Ingress.queue_policy.policy", &entry(key, 0, action)).unwrap();
    }
    pipeline
}

fn ipv4(payload: usize) -> Vec<u8> {
    let builder =
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]).ip(etherparse::IpHeaders::Ipv4(
            etherparse::Ipv4Header {
                dscp: etherparse::IpDscp::try_new(3).unwrap(),
                ecn: etherparse::IpEcn::Ect0,
                ..etherparse::Ipv4Header::new(0, 64, etherparse::ip_number::UDP, [10, 9, 9, 9], [10, 1, 2, 3])
                    .unwrap()
            },
            etherparse::Ipv4Extensions::default(),
        ));
    let mut frame = Vec::new();
    builder.udp(10_000, 9217).write(&mut frame, &vec![0x5a; payload]).unwrap();
    frame[40..42].fill(0);
    frame
}

fn ipv6(payload: usize) -> Vec<u8> {
    let mut source = [0; 16];
    source[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]).ipv6(source, source, 64);
    let mut frame = Vec::new();
    builder.udp(10_000, 9217).write(&mut frame, &vec![0x5a; payload]).unwrap();
    // DSCP 3, ECT(0).
    frame[14] = 0x60;
    frame[15] = 3 << 2 << 4 | 2 << 4;
    frame
}

fn leave(pipeline: &mut Pipeline, packet: Enqueue) -> Vec<u8> {
    let meta = QueueMetadata { deq_qdepth: 1, ..QueueMetadata::default() };
    match pipeline.egress(0, packet, meta, &mut Vec::new()) {
        EgressOutcome::Transmit { port, frame, .. } => {
            assert_eq!(u64::from(port), PORT);
            frame
        }
        other => panic!("{other:?}"),
    }
}

fn occupancy(pipeline: &mut Pipeline, queue: u64) -> u64 {
    register(pipeline, "Ingress.occupancy", queue)
}

fn register(pipeline: &mut Pipeline, name: &str, queue: u64) -> u64 {
    let bytes = pipeline.control().register(name, PORT * 8 + queue).unwrap();
    bytes.iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

fn fill(pipeline: &mut Pipeline, bytes: u128) {
    pipeline.control().set_register("Ingress.occupancy", PORT * 8 + CLASS, &value(bytes)).unwrap();
}

#[test]
fn an_uncongested_packet_is_routed_whole() {
    let mut pipeline = pipeline();
    for frame in [ipv4(1426), ipv6(1406)] {
        let mut queue = ingress(&mut pipeline, 0, 1, &frame);
        let packet = queue.remove(0);
        assert_eq!((u64::from(packet.port), u64::from(packet.queue)), (PORT, CLASS));
        assert_eq!(packet.length as usize, frame.len());
        assert_eq!(occupancy(&mut pipeline, CLASS), frame.len() as u64);
        let sent = leave(&mut pipeline, packet);
        assert_eq!(occupancy(&mut pipeline, CLASS), 0);
        assert_eq!(sent.len(), frame.len());
        let parsed = SlicedPacket::from_ethernet(&sent).unwrap();
        match parsed.net.unwrap() {
            NetSlice::Ipv4(ip) => {
                let header = ip.header().to_header();
                assert_eq!(header.time_to_live, 63);
                assert_eq!(header.header_checksum, header.calc_header_checksum());
            }
            NetSlice::Ipv6(ip) => assert_eq!(ip.header().hop_limit(), 63),
            other @ NetSlice::Arp(_) => panic!("{other:?}"),
        }
        assert_eq!(sent[..6], [0x02, 0, 0, 0, 0, 0x99]);
    }
}

#[test]
fn a_congested_queue_cuts_to_a_frame_that_every_stack_accepts() {
    for (filled, size) in [(6_000, SHALLOW), (9_000, DEEP), (30_000, DEEP)] {
        for frame in [ipv4(1426), ipv6(1406)] {
            let mut pipeline = pipeline();
            fill(&mut pipeline, filled);
            let packet = ingress(&mut pipeline, 0, 1, &frame).remove(0);
            assert_eq!(u64::from(packet.queue), TRIM);
            assert_eq!(packet.length, u32::from(size), "the traffic manager is told the trimmed length");
            assert_eq!(occupancy(&mut pipeline, TRIM), u64::from(size));
            let sent = leave(&mut pipeline, packet);
            assert_eq!(sent.len(), usize::from(size));
            // Strict parsing fails where a length field promises more than there is.
            let parsed = SlicedPacket::from_ethernet(&sent).unwrap();
            let ip_bytes = match parsed.net.as_ref().unwrap() {
                NetSlice::Ipv4(ip) => {
                    let header = ip.header().to_header();
                    assert_eq!(header.dscp.value(), 35);
                    assert_eq!(header.header_checksum, header.calc_header_checksum());
                    usize::from(header.total_len)
                }
                NetSlice::Ipv6(ip) => {
                    assert_eq!(ip.header().dscp().value(), 35);
                    usize::from(ip.header().payload_length()) + 40
                }
                other @ NetSlice::Arp(_) => panic!("{other:?}"),
            };
            assert_eq!(ip_bytes, usize::from(size) - 14);
            let Some(TransportSlice::Udp(udp)) = parsed.transport else { panic!("no UDP") };
            assert_eq!(udp.checksum(), 0);
            let heads = if frame[12] == 0x08 { 42 } else { 62 };
            assert_eq!(udp.payload().len(), usize::from(size) - heads);
            assert!(udp.payload().iter().all(|&byte| byte == 0x5a));
        }
    }
}

/// Leaves at `dequeued_us` with `left` packets behind it in its queue, of those that the traffic
/// manager knows.
fn leave_at(pipeline: &mut Pipeline, packet: Enqueue, dequeued_us: u64, left: u32) {
    let meta = QueueMetadata {
        enq_timestamp_ns: 0,
        deq_timedelta_ns: dequeued_us * 1000,
        deq_qdepth: left,
        ..QueueMetadata::default()
    };
    let outcome = pipeline.egress(dequeued_us * 1000, packet, meta, &mut Vec::new());
    assert!(matches!(outcome, EgressOutcome::Transmit { .. }), "{outcome:?}");
}

#[test]
fn what_enters_while_the_last_packet_leaves_is_not_forgotten() {
    let mut pipeline = pipeline();
    let frame = ipv4(1426);
    let first = ingress(&mut pipeline, 1_000_000, 1, &frame).remove(0);
    // BMv2 took the first off its queue at 2,000 µs; before its egress pipeline runs, ingress adds
    // another.
    let second = ingress(&mut pipeline, 2_001_000, 1, &frame).remove(0);
    leave_at(&mut pipeline, first, 2_000, 0);
    assert_eq!(occupancy(&mut pipeline, CLASS), frame.len() as u64);
    leave_at(&mut pipeline, second, 2_100, 0);
    assert_eq!(occupancy(&mut pipeline, CLASS), 0);
}

#[test]
fn what_the_traffic_manager_dropped_is_forgotten_with_the_next_that_leaves() {
    let mut pipeline = pipeline();
    let frame = ipv4(1426);
    let mut entered: Vec<Enqueue> =
        (1..=4).map(|ms| ingress(&mut pipeline, ms * 1_000_000, 1, &frame).remove(0)).collect();
    // The second is dropped and the fourth still waits: the third takes the second's bytes along.
    leave_at(&mut pipeline, entered.remove(2), 5_000, 1);
    assert_eq!(occupancy(&mut pipeline, CLASS), frame.len() as u64);
}

#[test]
fn what_was_dropped_behind_the_last_packet_does_not_fill_a_queue_for_good() {
    let mut pipeline = pipeline();
    let frame = ipv4(1426);
    let mut entered: Vec<Enqueue> =
        (1..=4).map(|ms| ingress(&mut pipeline, ms * 1_000_000, 1, &frame).remove(0)).collect();
    leave_at(&mut pipeline, entered.remove(0), 5_000, 0);
    assert_eq!(occupancy(&mut pipeline, CLASS), 0, "the three behind it were dropped");
}

#[test]
fn what_was_queued_before_the_registers_were_reset_is_not_subtracted() {
    let mut pipeline = pipeline();
    let frame = ipv4(1426);
    let old = ingress(&mut pipeline, 1_000_000, 1, &frame).remove(0);
    for register in ["occupancy", "entered", "gone", "entered_at"] {
        let name = format!("Ingress.{register}");
        pipeline.control().set_register(&name, PORT * 8 + CLASS, &value(0)).unwrap();
    }
    leave_at(&mut pipeline, old, 2_000, 1);
    assert_eq!(occupancy(&mut pipeline, CLASS), 0);
    let new = ingress(&mut pipeline, 3_000_000, 1, &frame).remove(0);
    assert_eq!(occupancy(&mut pipeline, CLASS), frame.len() as u64);
    leave_at(&mut pipeline, new, 4_000, 1);
    assert_eq!(occupancy(&mut pipeline, CLASS), 0);
}

#[test]
fn who_looks_every_eight_seconds_misses_no_peak() {
    const WINDOW_NS: u64 = (1 << 23) * 1_000;
    let mut pipeline = pipeline();
    let frame = ipv4(1426);
    let bytes = frame.len() as u64;
    // Packets that are in the queue together, at the end of a window, and each alone in others;
    // then a long silence, and the clock's 32 bits of microseconds wrap round.
    let wrap = (1 << 32) * 1_000;
    let bursts = [
        (0, 1),
        (WINDOW_NS - 50_000, 3),
        (WINDOW_NS + 1_000, 2),
        (2 * WINDOW_NS, 1),
        (5 * WINDOW_NS, 2),
        (wrap - 9_000, 4),
        (wrap, 1),
    ];
    let expected = [[1, 0], [3, 0], [2, 3], [1, 2], [2, 0], [4, 0], [1, 4]];
    for ((at, burst), [now, before]) in bursts.into_iter().zip(expected) {
        let entered: Vec<Enqueue> =
            (0..burst).map(|nth| ingress(&mut pipeline, at + nth * 1_000, 1, &frame).remove(0)).collect();
        for (nth, packet) in entered.into_iter().enumerate() {
            leave_at(&mut pipeline, packet, at / 1_000 + 5 + nth as u64, 1);
        }
        assert_eq!(occupancy(&mut pipeline, CLASS), 0);
        let peaks = ["Ingress.peak", "Ingress.peak_before"].map(|name| register(&mut pipeline, name, CLASS));
        assert_eq!(peaks, [now * bytes, before * bytes], "at {at} ns");
    }
}

/// Which of four paths each of 4,096 flows takes, by a switch with this seed.
fn paths(seed: u128) -> Vec<u16> {
    let mut pipeline = pipeline();
    let control = pipeline.control();
    control.set_default_action("Ingress.hash_seed", Some(&direct("Ingress.set_hash_seed", &[seed]))).unwrap();
    for port in 10..14 {
        let hop = call("Ingress.forward", &[port.into(), 0x02_00_00_00_00_99]);
        control.member_insert("Ingress.ecmp", port, &hop).unwrap();
    }
    let members = (10..14).map(|id| GroupMember { id, weight: 1 }).collect();
    control.group_insert("Ingress.ecmp", &Group { id: 1, max_size: 0, members }).unwrap();
    control
        .table_insert("Ingress.ipv4_route", &entry(vec![lpm(0x0a01_0000, 16)], 0, ActionSpec::Group(1)))
        .unwrap();
    (0..4096_u16)
        .map(|flow| {
            let mut frame = ipv4(1);
            frame[34..36].copy_from_slice(&(10_000 + flow).to_be_bytes());
            ingress(&mut pipeline, 0, 1, &frame).remove(0).port
        })
        .collect()
}

/// Of the flows that the first switch sends one way, the largest share that the second sends one
/// way.
fn largest_share(first: &[u16], second: &[u16]) -> f64 {
    let mut taken = BTreeMap::<(u16, u16), f64>::new();
    let mut all = BTreeMap::<u16, f64>::new();
    for pair in first.iter().copied().zip(second.iter().copied()) {
        *taken.entry(pair).or_default() += 1.0;
        *all.entry(pair.0).or_default() += 1.0;
    }
    taken.into_iter().map(|((way, _), count)| count / all[&way]).fold(0.0, f64::max)
}

#[test]
fn switches_with_seeds_of_their_own_choose_apart() {
    let seeds = [0, 1, 2, 3, 0x8000_0000, 0x5eed_0c0a];
    let choices = seeds.map(paths);
    for (a, first) in choices.iter().enumerate() {
        for (b, second) in choices.iter().enumerate() {
            let share = largest_share(first, second);
            if a == b {
                assert!(share > 0.99, "the same seed chooses alike");
            } else {
                // A quarter each; five standard deviations of a thousand flows are 0.07.
                assert!(share < 0.32, "seeds {:#x} and {:#x}: {share}", seeds[a], seeds[b]);
            }
        }
    }
}

#[test]
fn what_is_offered_is_admitted_trimmed_or_dropped() {
    let mut pipeline = pipeline();
    let (offered, mut queued) = (64, Vec::new());
    for _ in 0..offered {
        queued.extend(ingress(&mut pipeline, 0, 1, &ipv4(1426)));
    }
    let mut count = |name: &str| {
        let counter = pipeline.control().counter(name, PORT * 8 + CLASS).unwrap();
        assert_eq!(counter.bytes, counter.packets * 1468, "{name}");
        counter.packets
    };
    let names = ["admitted", "trimmed", "trim_dropped", "selective_dropped", "tail_dropped"];
    let counts = names.map(|name| count(&format!("Ingress.{name}")));
    assert_eq!(counts.iter().sum::<u64>(), offered);
    // 1,468-byte frames up to 6,000 bytes queued, then trims to 412 bytes up to 2,000 in the trim
    // queue, then whole ones again until 40,000 bytes are queued.
    assert_eq!(counts, [28, 5, 31, 0, 0]);
    assert_eq!(queued.len(), 33);
    for packet in queued {
        leave(&mut pipeline, packet);
    }
    assert_eq!((occupancy(&mut pipeline, CLASS), occupancy(&mut pipeline, TRIM)), (0, 0));
    let sent = |pipeline: &mut Pipeline, queue| {
        pipeline.control().counter("Egress.transmitted", PORT * 8 + queue).unwrap().packets
    };
    assert_eq!((sent(&mut pipeline, CLASS), sent(&mut pipeline, TRIM)), (28, 5));
}

#[test]
fn a_head_and_a_length_fare_as_the_whole_frame_does() {
    let (mut whole, mut heads) = (pipeline(), pipeline());
    let (mut of_whole, mut of_heads) = (Vec::new(), Vec::new());
    // Admitted, trimmed and dropped: over IPv4 and IPv6, shorter than a head and longer.
    for number in 0..64 {
        let frame = match number % 4 {
            0 => ipv6(1_406),
            1 => ipv4(10),
            _ => ipv4(1_426),
        };
        let head = &frame[..frame.len().min(62)];
        whole.ingress(number * 1_000, 1, &frame, &mut of_whole);
        heads.ingress_head(number * 1_000, 1, head, frame.len(), &mut of_heads);
        assert_eq!(of_whole.len(), of_heads.len(), "frame {number}");
    }
    assert!(of_whole.len() > 20 && of_whole.len() < 64, "{} of 64 were admitted or trimmed", of_whole.len());
    for (ours, theirs) in of_heads.into_iter().zip(of_whole) {
        assert_eq!((ours.port, ours.queue, ours.length), (theirs.port, theirs.queue, theirs.length));
        let leave = |pipeline: &mut Pipeline, packet| match pipeline.egress(
            1_000_000,
            packet,
            QueueMetadata::default(),
            &mut Vec::new(),
        ) {
            EgressOutcome::Transmit { frame, length, .. } => (frame, length),
            other => panic!("{other:?}"),
        };
        let (head, length) = leave(&mut heads, ours);
        let (frame, whole_length) = leave(&mut whole, theirs);
        assert_eq!((length, whole_length), (frame.len(), frame.len()));
        assert_eq!(head, frame[..head.len()]);
        assert_eq!(head.len(), frame.len().min(62));
    }
    for name in ["Ingress.admitted", "Ingress.trimmed", "Ingress.tail_dropped", "Ingress.trim_dropped"] {
        let count = |pipeline: &mut Pipeline| pipeline.control().counter(name, PORT * 8 + CLASS).unwrap();
        assert_eq!(count(&mut heads), count(&mut whole), "{name}");
    }
}

#[test]
fn what_cannot_be_routed_is_dropped_and_counted() {
    let mut pipeline = pipeline();
    let mut elsewhere = ipv4(100);
    elsewhere[30] = 11;
    let mut expired = ipv4(100);
    expired[22] = 1;
    for frame in [elsewhere, expired, vec![0xff; 60], Vec::new(), ipv4(100)[..20].to_vec()] {
        assert!(ingress(&mut pipeline, 0, 1, &frame).is_empty());
    }
    assert_eq!(pipeline.control().counter("Ingress.unroutable", 0).unwrap().packets, 5);
}

#[test]
fn pipelines_that_share_buffers_send_what_each_sends_alone() {
    let ours = program();
    // A program of the same shape that takes two hops off: 255 is added, in eight bits, and their
    // mask.
    let parts: Vec<&str> = ours.split("\"0xff\"").collect();
    let [a, b, c, d, e] = parts[..] else {
        panic!("{} parts: not the program that this test knows", parts.len())
    };
    let other = [a, "\"0xfe\"", b, "\"0xff\"", c, "\"0xfe\"", d, "\"0xff\"", e].concat();
    let mut pipelines = [pipeline(), loaded(&other), pipeline(), loaded(&other)];
    let way = |pipeline: &mut Pipeline, frame: &[u8], spares: &mut Spares| {
        pipeline.lend(spares);
        let packet = ingress(pipeline, 0, 1, frame).remove(0);
        pipeline.lend(spares);
        // The buffer waits in a queue: others take theirs meanwhile.
        pipeline.lend(spares);
        let sent = leave(pipeline, packet);
        pipeline.lend(spares);
        spares.recycle(sent.clone());
        sent
    };
    for frame in [ipv4(1426), ipv6(1406), ipv4(100)] {
        let mut alone = [loaded(&ours), loaded(&other)].map(|mut pipeline| {
            let packet = ingress(&mut pipeline, 0, 1, &frame).remove(0);
            leave(&mut pipeline, packet)
        });
        assert_ne!(alone[0], alone[1]);
        let mut spares = Spares::default();
        for pipeline in &mut pipelines {
            assert_eq!(way(pipeline, &frame, &mut spares), alone[0]);
            alone.swap(0, 1);
        }
    }
}
