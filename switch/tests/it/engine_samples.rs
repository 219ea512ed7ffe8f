// SPDX-License-Identifier: Apache-2.0
//! Samples of cut packets, by which a controller knows whose traffic a queue cuts
//! (`p4/bmv2/cut_samples.p4`).

use std::net::Ipv6Addr;

use crate::engine_support::{call, direct, entry, exact, ingress, lpm};
use etherparse::PacketBuilder;
use trimwire_switch::engine::entity::{ActionSpec, value};
use trimwire_switch::engine::{EgressOutcome, Pipeline, QueueMetadata};

const PORT: u64 = 2;
const CLASS: u64 = 5;
const SIZE: u16 = 128;
/// The most often that a switch tells of a packet, µs.
const GAP_US: u64 = 1024;

/// Its queue for gradients always stands at the point from which packets are cut.
fn pipeline() -> Pipeline {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/build/bmv2/trimwire.json");
    let mut pipeline = Pipeline::load(&std::fs::read(path).unwrap()).unwrap();
    let control = pipeline.control();
    let hop = call("Ingress.forward", &[PORT.into(), 0x02_00_00_00_00_99]);
    control.member_insert("Ingress.ecmp", 1, &hop).unwrap();
    for table in ["Ingress.ipv4_route", "Ingress.ipv6_route"] {
        control.table_insert(table, &entry(vec![lpm(0, 0)], 0, ActionSpec::Member(1))).unwrap();
    }
    let trimmable = direct("Ingress.set_trimmable", &[CLASS.into()]);
    control.table_insert("Ingress.classify", &entry(vec![exact(3)], 0, trimmable)).unwrap();
    let never = u128::from(u32::MAX);
    for importance in 0..2 {
        let key = [PORT.into(), CLASS.into(), importance].map(exact).to_vec();
        let thresholds = [never, 8, never, never, SIZE.into(), SIZE.into(), 35, 6, never];
        let action = direct("Ingress.queue_policy.set_thresholds", &thresholds);
        control.table_insert("Ingress.queue_policy.policy", &entry(key, 0, action)).unwrap();
    }
    control.set_register("Ingress.occupancy", PORT * 8 + CLASS, &value(5000)).unwrap();
    pipeline
}

/// A packet of 1,000 bytes and its head, DSCP 3 and ECT(0).
fn ipv4(source: [u8; 4], ports: (u16, u16)) -> Vec<u8> {
    let mut header =
        etherparse::Ipv4Header::new(0, 64, etherparse::ip_number::UDP, source, [10, 1, 2, 3]).unwrap();
    header.dscp = etherparse::IpDscp::try_new(3).unwrap();
    header.ecn = etherparse::IpEcn::Ect0;
    let ip = etherparse::IpHeaders::Ipv4(header, etherparse::Ipv4Extensions::default());
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]).ip(ip);
    builder.udp(ports.0, ports.1).write(&mut frame, &[0x5a; 1000]).unwrap();
    frame
}

fn ipv6(source: Ipv6Addr, destination: Ipv6Addr) -> Vec<u8> {
    let mut frame = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv6(source.octets(), destination.octets(), 64)
        .udp(4000, 9217)
        .write(&mut frame, &[0x5a; 1000])
        .unwrap();
    (frame[14], frame[15]) = (0x60, 3 << 6 | 2 << 4);
    frame
}

/// A sample as the program sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sample {
    number: u64,
    bytes: u64,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    ports: (u64, u64),
}

/// Sends a frame through, and gives the sample that it made, if it made one.
fn cut(pipeline: &mut Pipeline, now_us: u64, frame: &[u8]) -> Option<Sample> {
    let packet = ingress(pipeline, now_us * 1000, 1, frame).remove(0);
    assert_eq!((packet.port, packet.queue), (2, 6), "the packet is cut");
    let left = pipeline.egress(now_us * 1000, packet, QueueMetadata::default(), &mut Vec::new());
    assert!(matches!(left, EgressOutcome::Transmit { ref frame, .. } if frame.len() == usize::from(SIZE)));
    let mut samples = pipeline.take_digests();
    samples.retain(|digest| digest.name != "cutting_t");
    assert!(samples.len() <= 1);
    let fields = &samples.first()?.fields;
    assert_eq!(samples[0].name, "cut_packet_t");
    let number = |at: usize| fields[at].iter().fold(0_u128, |sum, byte| sum << 8 | u128::from(*byte));
    assert_eq!([number(0), number(1)], [PORT.into(), CLASS.into()], "the queue that it was classified to");
    Some(Sample {
        number: number(2) as u64,
        bytes: number(3) as u64,
        source: Ipv6Addr::from_bits(number(4)),
        destination: Ipv6Addr::from_bits(number(5)),
        ports: (number(6) as u64, number(7) as u64),
    })
}

/// Within five standard deviations of a binomial distribution.
fn is_likely(found: usize, of: usize, chance: f64) -> bool {
    let (mean, deviation) = (of as f64 * chance, (of as f64 * chance * (1.0 - chance)).sqrt());
    (found as f64 - mean).abs() < 5.0 * deviation
}

#[test]
fn one_cut_packet_in_sixteen_is_told_by_chance_with_its_addresses_and_its_number() {
    let mut pipeline = pipeline();
    // Two senders that take turns: counting to sixteen would always pick the same one.
    let senders = [[10, 0, 0, 1], [10, 0, 0, 2]];
    let frames = senders.map(|sender| ipv4(sender, (50_000, 9217)));
    let mut told = [0, 0];
    for number in 1..=16_000_u64 {
        let sender = (number % 2) as usize;
        if let Some(sample) = cut(&mut pipeline, number * 2 * GAP_US, &frames[sender]) {
            let expected = Sample {
                number,
                bytes: 1042 - u64::from(SIZE),
                source: std::net::Ipv4Addr::from(senders[sender]).to_ipv6_mapped(),
                destination: std::net::Ipv4Addr::new(10, 1, 2, 3).to_ipv6_mapped(),
                ports: (50_000, 9217),
            };
            assert_eq!(sample, expected);
            told[sender] += 1;
        }
    }
    assert!(told.iter().all(|told| is_likely(*told, 8000, 1.0 / 16.0)), "{told:?} of 8,000 each");
}

#[test]
fn a_flood_of_cut_packets_is_told_of_once_in_1024_us_and_numbers_say_how_many_were_left_out() {
    let mut pipeline = pipeline();
    let frame = ipv4([10, 0, 0, 1], (50_000, 9217));
    let mut told = Vec::new();
    for number in 1..=200_000 {
        if let Some(sample) = cut(&mut pipeline, 10_000 + number, &frame) {
            assert_eq!(sample.number, number);
            told.push(number);
        }
    }
    assert!(told.windows(2).all(|pair| pair[1] - pair[0] >= GAP_US), "{told:?}");
    // 200 ms, and 16 packets on average until one is picked behind each gap.
    assert!((150..=196).contains(&told.len()), "{}", told.len());
}

#[test]
fn ipv6_and_what_a_tunnel_is_addressed_with_are_told_whole() {
    let mut pipeline = pipeline();
    let address = |last: u128| Ipv6Addr::from_bits(0x2001_0db8_0123_4567_89ab_cdef_0000_0000 + last);
    let samples = (1..200).filter_map(|n| cut(&mut pipeline, n * 2 * GAP_US, &ipv6(address(1), address(2))));
    let sample = samples.last().unwrap();
    assert_eq!((sample.source, sample.destination, sample.ports), (address(1), address(2), (4000, 9217)));

    // VXLAN: the inner packet is cut, and the outer head is of hosts that the fabric knows.
    let inner = ipv4([192, 168, 0, 1], (1, 2));
    let mut header =
        etherparse::Ipv4Header::new(0, 64, etherparse::ip_number::UDP, [10, 0, 0, 7], [10, 1, 2, 3]).unwrap();
    header.dscp = etherparse::IpDscp::try_new(3).unwrap();
    let ip = etherparse::IpHeaders::Ipv4(header, etherparse::Ipv4Extensions::default());
    let payload = [&[8, 0, 0, 0, 0, 0, 1, 0], inner.as_slice()].concat();
    let mut outer = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ip(ip)
        .udp(60_000, 4789)
        .write(&mut outer, &payload)
        .unwrap();
    let sample = (200..400).find_map(|n| {
        let packet = ingress(&mut pipeline, n * 2 * GAP_US * 1000, 1, &outer).remove(0);
        assert_eq!(packet.queue, 6, "the packet is cut");
        pipeline.take_digests().into_iter().find(|digest| digest.name == "cut_packet_t")
    });
    let source = std::net::Ipv4Addr::new(10, 0, 0, 7).to_ipv6_mapped().octets().to_vec();
    assert_eq!(
        sample.unwrap().fields[4],
        source.into_iter().skip_while(|byte| *byte == 0).collect::<Vec<_>>()
    );
}

#[test]
fn a_packet_that_is_not_cut_is_no_sample_and_that_a_queue_starts_to_cut_is_told_first() {
    let mut pipeline = pipeline();
    let frame = ipv4([10, 0, 0, 1], (50_000, 9217));
    // Whatever chance says of the first: it has room for one digest.
    ingress(&mut pipeline, 5_000_000, 1, &frame);
    assert_eq!(
        pipeline.take_digests().iter().map(|digest| digest.name.as_str()).collect::<Vec<_>>(),
        ["cutting_t"]
    );
    for number in 0..500 {
        pipeline.control().set_register("Ingress.occupancy", PORT * 8 + CLASS, &value(0)).unwrap();
        ingress(&mut pipeline, (number + 3) * 5_000_000, 1, &frame);
    }
    let told: Vec<_> = pipeline.take_digests().into_iter().map(|digest| digest.name).collect();
    assert_eq!(told, ["cutting_t"], "that it has stopped");
}
