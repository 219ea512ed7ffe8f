// SPDX-License-Identifier: Apache-2.0
//! Externs and what happens between the pipelines: `externs.p4` does what the frame's first byte
//! says.

use crate::engine_support;
use crate::engine_support::{forward, ingress, load};
use proptest::prelude::*;
use trimwire_switch::engine::entity::{CounterValue, MeterConfig, Replica, value};
use trimwire_switch::engine::{Digest, EgressOutcome, Pipeline, QueueMetadata};

fn command(op: u8, arg: u8, index: u16, number: u32) -> Vec<u8> {
    let mut frame = vec![op, arg];
    frame.extend(index.to_be_bytes());
    frame.extend(number.to_be_bytes());
    frame.resize(64, 0xaa);
    frame
}

fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes([frame[4], frame[5], frame[6], frame[7]])
}

fn single(pipeline: &mut Pipeline, now_ns: u64, frame: &[u8]) -> Vec<u8> {
    let mut sent = forward(pipeline, now_ns, 5, frame);
    assert_eq!(sent.len(), 1);
    sent.remove(0).1
}

/// Fields of the report that egress adds.
struct Report {
    instance: u8,
    marks: u8,
    length: u32,
    rid: u16,
    ingress_port: u16,
    egress_port: u16,
    microseconds: [u64; 2],
    queue: [u32; 4],
}

fn report(frame: &[u8]) -> Report {
    let field = |at: usize, width: usize| {
        frame[8..].iter().skip(at).take(width).fold(0u64, |sum, &byte| sum << 8 | u64::from(byte))
    };
    let ports = field(8, 3);
    Report {
        instance: field(0, 1) as u8,
        marks: field(1, 1) as u8,
        length: field(2, 4) as u32,
        rid: field(6, 2) as u16,
        ingress_port: (ports >> 15) as u16,
        egress_port: (ports >> 6 & 0x1ff) as u16,
        microseconds: [field(11, 6), field(17, 6)],
        queue: [field(23, 4) as u32, field(27, 3) as u32, field(30, 4) as u32, field(34, 3) as u32],
    }
}

#[test]
fn counters_count_packets_and_the_bytes_they_arrived_with() {
    let mut pipeline = load("externs");
    for index in [2, 2, 3, 8, 0xffff] {
        single(&mut pipeline, 0, &command(1, 0, index, 0));
    }
    let counts = |pipeline: &mut Pipeline, index| pipeline.control().counter("I.counted", index).unwrap();
    assert_eq!(counts(&mut pipeline, 2), CounterValue { packets: 2, bytes: 128 });
    assert_eq!(counts(&mut pipeline, 3), CounterValue { packets: 1, bytes: 64 });
    assert_eq!(counts(&mut pipeline, 7), CounterValue::default(), "indices outside are ignored");
}

#[test]
fn registers_are_shared_with_the_control_plane() {
    let mut pipeline = load("externs");
    single(&mut pipeline, 0, &command(2, 0, 6, 0xdead_beef));
    assert_eq!(pipeline.control().register("I.cells", 6).unwrap(), value(0xdead_beef));
    pipeline.control().set_register("I.cells", 6, &value(77)).unwrap();
    assert_eq!(number(&single(&mut pipeline, 0, &command(3, 0, 6, 0))), 77);
    assert_eq!(number(&single(&mut pipeline, 0, &command(3, 0, 9, 5))), 5, "outside: left as it was");
    single(&mut pipeline, 0, &command(21, 0, 0, 0x0102_0304));
    assert_eq!(pipeline.control().register("I.wide_cells", 1).unwrap(), value(0x0102_0304));
    assert_eq!(pipeline.control().register("I.cells48", 1).unwrap(), value(0xffff_ffff_ffff));
}

#[test]
fn meters_color_by_virtual_time() {
    let mut pipeline = load("externs");
    // 64-byte packets: one a millisecond committed, two at peak.
    let config = MeterConfig { cir: 64_000, cburst: 64, pir: 128_000, pburst: 128 };
    pipeline.control().set_meter("I.meters", 3, Some(config)).unwrap();
    let color =
        |pipeline: &mut Pipeline, ms: u64| number(&single(pipeline, ms * 1_000_000, &command(15, 0, 3, 9)));
    let burst: Vec<u32> = (0..3).map(|_| color(&mut pipeline, 0)).collect();
    assert_eq!(burst, [0, 1, 2]);
    assert_eq!(color(&mut pipeline, 1), 0);
    assert_eq!(color(&mut pipeline, 1), 1);
    assert_eq!(color(&mut pipeline, 1), 2);
    assert_eq!(pipeline.control().meter("I.meters", 3).unwrap(), Some(config));
    assert_eq!(number(&single(&mut pipeline, 0, &command(15, 0, 2, 9))), 0, "unconfigured: green");
}

#[test]
fn a_truncated_packet_is_as_short_in_the_queue_as_on_the_wire() {
    let mut pipeline = load("externs");
    let packets = ingress(&mut pipeline, 0, 5, &command(4, 20, 0, 0));
    assert_eq!(packets[0].length, 20);
    assert_eq!(single(&mut pipeline, 0, &command(4, 20, 0, 0)).len(), 20);
    assert_eq!(single(&mut pipeline, 0, &command(26, 20, 0, 0)).len(), 20, "in egress, too");
    assert_eq!(single(&mut pipeline, 0, &command(4, 255, 0, 0)).len(), 64 + 37, "never enlarged");
}

#[test]
fn a_dropped_packet_goes_nowhere_from_either_pipeline() {
    let mut pipeline = load("externs");
    assert!(ingress(&mut pipeline, 0, 5, &command(5, 0, 0, 0)).is_empty());
    assert!(forward(&mut pipeline, 0, 5, &command(25, 0, 0, 0)).is_empty());
    assert!(forward(&mut pipeline, 0, 5, &command(18, 0, 0, 0)).is_empty(), "a failed assert");
    assert_eq!(forward(&mut pipeline, 0, 5, &command(18, 1, 0, 0)).len(), 1);
}

#[test]
fn a_multicast_group_gets_one_copy_each_and_truncation_does_not_follow() {
    let mut pipeline = load("externs");
    let replicas = [(2, 9), (1, 7), (1, 4)].map(|(instance, port)| Replica { instance, port });
    pipeline.control().multicast_insert(12, &replicas).unwrap();
    for op in [6, 24] {
        let sent = forward(&mut pipeline, 0, 5, &command(op, 20, 12, 0));
        let copies: Vec<(u16, u16)> = sent.iter().map(|(port, frame)| (report(frame).rid, *port)).collect();
        assert_eq!(copies, [(1, 4), (1, 7), (2, 9)]);
        for (port, frame) in sent {
            let report = report(&frame);
            assert_eq!((report.instance, report.egress_port, report.ingress_port), (5, port, 5));
            assert_eq!((report.length, frame.len()), (64, 64 + 37));
        }
    }
    assert!(forward(&mut pipeline, 0, 5, &command(6, 0, 13, 0)).is_empty(), "a group that is not there");
}

#[test]
fn an_ingress_clone_is_the_frame_as_received_with_the_listed_fields() {
    let mut pipeline = load("externs");
    let frame = command(7, 0, 0, 42);
    assert_eq!(forward(&mut pipeline, 0, 5, &frame).len(), 1, "no session, no clone");
    let replica = Replica { instance: 8, port: 30 };
    pipeline.control().clone_session_insert(5, &[replica]).unwrap();
    let sent = forward(&mut pipeline, 0, 5, &frame);
    let [(30, clone), (3, original)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((number(clone), number(original)), (42, 1));
    let (cloned, kept) = (report(clone), report(original));
    assert_eq!((cloned.instance, cloned.marks, cloned.rid, cloned.ingress_port), (1, 0x77, 8, 0));
    assert_eq!((kept.instance, kept.marks, kept.ingress_port), (0, 0x77, 5));
    assert_eq!(cloned.length, 64);
}

#[test]
fn an_egress_clone_is_the_packet_as_it_stood() {
    let mut pipeline = load("externs");
    pipeline.control().clone_session_insert(5, &[Replica { instance: 0, port: 30 }]).unwrap();
    let sent = forward(&mut pipeline, 0, 5, &command(22, 0, 0, 42));
    assert_eq!(sent.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [3, 30]);
    assert_eq!(number(&sent[1].1), 2);
    // The clone already carries the report that the original got in its pass through egress.
    assert_eq!(report(&sent[1].1).instance, 2);
    assert_eq!(sent[1].1.len(), 64 + 37);
}

#[test]
fn resubmission_keeps_the_listed_fields_and_the_original_frame() {
    let mut pipeline = load("externs");
    let sent = single(&mut pipeline, 0, &command(8, 3, 0, 42));
    assert_eq!(number(&sent), 42, "changes to headers are lost");
    let report = report(&sent);
    assert_eq!((report.marks, report.instance, report.length), (3, 0, 64));
    assert!(forward(&mut pipeline, 0, 5, &command(8, 255, 0, 42)).len() == 1);
}

#[test]
fn recirculation_carries_the_packet_as_sent() {
    let mut pipeline = load("externs");
    assert_eq!(number(&single(&mut pipeline, 0, &command(23, 0, 0, 42))), 44);
}

#[test]
fn a_digest_reaches_the_controller() {
    let mut pipeline = load("externs");
    single(&mut pipeline, 0, &command(16, 0, 0, 1234));
    let expected = Digest { id: 1, name: "digest_t".into(), fields: vec![value(16), value(1234)] };
    assert_eq!(pipeline.take_digests(), [expected]);
    assert!(pipeline.take_digests().is_empty());
}

#[test]
fn random_numbers_stay_in_range_and_follow_the_seed() {
    let draw = |seed| {
        let mut pipeline = load("externs");
        pipeline.seed(seed);
        (0..200).map(|_| number(&single(&mut pipeline, 0, &command(14, 0, 0, 0)))).collect::<Vec<u32>>()
    };
    let numbers = draw(1);
    assert!(
        (10..=20).all(|number| numbers.contains(&number)) && numbers.iter().all(|n| (10..=20).contains(n))
    );
    assert_eq!(numbers, draw(1));
    assert_ne!(numbers, draw(2));
}

#[test]
fn egress_sees_the_clock_and_the_queue_in_microseconds() {
    let mut pipeline = load("externs");
    let mut queue = ingress(&mut pipeline, 5_000_999, 5, &command(20, 6, 0, 0));
    let packet = queue.remove(0);
    assert_eq!((packet.port, packet.queue, packet.length), (3, 6, 64));
    let meta = QueueMetadata {
        enq_timestamp_ns: 6_000_000,
        enq_qdepth: 11,
        deq_timedelta_ns: 1_500_000,
        deq_qdepth: 12,
    };
    let EgressOutcome::Transmit { frame, .. } = pipeline.egress(7_500_000, packet, meta, &mut queue) else {
        panic!("dropped");
    };
    let report = report(&frame);
    assert_eq!(report.microseconds, [5000, 7500]);
    assert_eq!(report.queue, [6000, 11, 1500, 12]);
}

/// The program with another algorithm where it has crc16: p4c writes none that v1model does not
/// name, BMv2 takes them.
fn hashing_with(algorithm: &str) -> Pipeline {
    let json = String::from_utf8(engine_support::program("externs")).unwrap();
    let json = json.replacen("\"algo\" : \"crc16\"", &format!("\"algo\" : \"{algorithm}\""), 1);
    Pipeline::load(json.as_bytes()).unwrap()
}

fn hashes(pipeline: &mut Pipeline, inputs: impl Iterator<Item = u16>) -> Vec<u32> {
    inputs.map(|index| number(&single(pipeline, 0, &command(9, 3, index, 0))) - 10).collect()
}

/// BMv2's `struct round_robin` counts its calls, whatever it is given.
#[test]
fn a_round_robin_hash_takes_turns_whatever_the_packet() {
    let mut pipeline = hashing_with("round_robin");
    let turns: Vec<u32> = (0..250).map(|call| call % 100).collect();
    assert_eq!(hashes(&mut pipeline, (0..250).map(|call| call % 7)), turns);
    assert_eq!(
        hashes(&mut hashing_with("round_robin"), [5, 5].into_iter()),
        [0, 1],
        "each switch begins anew"
    );
}

/// A Toeplitz hash is a sum of parts of its key, and BMv2's key is 0 until Thrift sets another.
#[test]
fn a_toeplitz_hash_has_the_key_that_bmv2_begins_with() {
    assert_eq!(hashes(&mut hashing_with("toeplitz"), 0..20), [0; 20]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// CRC-16/ARC, a bit at a time; hash(base 10, max 100).
    #[test]
    fn a_hash_is_base_plus_crc_modulo_max(index: u16, arg: u8) {
        let data = [(index >> 8) as u8, index as u8, arg];
        let crc = data.iter().fold(0u16, |crc, &byte| {
            (0..8).fold(crc ^ u16::from(byte), |crc, _| crc >> 1 ^ (0xa001 * (crc & 1)))
        });
        let mut pipeline = load("externs");
        let sent = single(&mut pipeline, 0, &command(9, arg, index, 0));
        prop_assert_eq!(number(&sent), 10 + u32::from(crc) % 100);
    }
}
