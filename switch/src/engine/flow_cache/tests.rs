// SPDX-License-Identifier: Apache-2.0
//! What a packet costs, in instructions of the engine and limbs: exact, and the same on every
//! machine.

use super::super::entity::{ActionCall, ActionSpec, MatchValue, TableEntry, value};
use super::super::{EgressOutcome, Pipeline, QueueMetadata};
use super::{FlowCache, MOST_FLOWS};

const HOW: &str = "Fewer is better: put the new number here. More: a change of the engine, of the program or of p4c makes every \
    packet slower; measure it with `cargo bench` beside the commit before, and say in the commit why it is worth that";

fn call(action: &str, params: &[u128]) -> ActionSpec {
    let params = params.iter().map(|&param| value(param)).collect();
    ActionSpec::Direct(ActionCall { action: action.into(), params })
}

/// Our program with a class, a route and a policy, as the bench has them.
fn trimwire() -> Pipeline {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../p4/build/bmv2/trimwire.json");
    let mut pipeline = Pipeline::load(&std::fs::read(path).unwrap()).unwrap();
    let control = pipeline.control();
    let ActionSpec::Direct(forward) = call("Ingress.forward", &[2, 0x0200_0000_0099]) else {
        return pipeline;
    };
    control.member_insert("Ingress.ecmp", 1, &forward).unwrap();
    let thresholds = [30_000, 40_000, 60_000, 200_000, 412, 236, 35, 6, 100_000];
    let exact = |number| MatchValue::Exact(value(number));
    let prefix = MatchValue::Lpm { value: value(0x0a00_0000), prefix_len: 8 };
    for (table, matches, action) in [
        ("Ingress.ipv4_route", vec![prefix], ActionSpec::Member(1)),
        ("Ingress.classify", vec![exact(3)], call("Ingress.set_trimmable", &[5])),
        (
            "Ingress.queue_policy.policy",
            vec![exact(2), exact(5), exact(1)],
            call("Ingress.queue_policy.set_thresholds", &thresholds),
        ),
    ] {
        let entry = TableEntry { matches, priority: 0, action, metadata: Vec::new() };
        control.table_insert(table, &entry).unwrap();
    }
    pipeline
}

/// IPv4 and UDP, trimmable, of 102 bytes.
fn frame() -> Vec<u8> {
    let mut frame = vec![0; 102];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00]);
    frame[14..34].copy_from_slice(&[
        0x45,
        3 << 2 | 2,
        0,
        88,
        0,
        0,
        0x40,
        0,
        64,
        17,
        0,
        0,
        10,
        9,
        9,
        9,
        10,
        1,
        2,
        3,
    ]);
    let sum: u32 = frame[14..34].chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    frame[24..26].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    frame[34..42].copy_from_slice(&[0x27, 0x10, 0x24, 0x01, 0, 68, 0, 0]);
    frame
}

/// Instructions that the next packet takes, from parser to deparser.
fn instructions(pipeline: &mut Pipeline) -> u64 {
    let (before, mut queue) = (pipeline.work.instructions, Vec::new());
    pipeline.ingress(1_000, 1, &frame(), &mut queue);
    let packet = queue.pop().expect("the packet is forwarded");
    let meta = QueueMetadata { enq_timestamp_ns: 1_000, ..QueueMetadata::default() };
    let out = pipeline.egress(1_000, packet, meta, &mut queue);
    assert!(matches!(out, EgressOutcome::Transmit { port: 2, .. }), "{out:?}");
    pipeline.work.instructions - before
}

#[test]
fn a_trimmable_packet_takes_no_more_instructions_than_it_did() {
    let mut pipeline = trimwire();
    // Machine code carries out the same ones, and counts none.
    pipeline.interpret(true);
    let (first, later) = (instructions(&mut pipeline), instructions(&mut pipeline));
    assert_eq!(instructions(&mut pipeline), later, "of the same flow");
    assert_eq!((first, later), (219, 137), "of a flow's first packet, and of every other. {HOW}");
}

#[test]
fn a_flow_takes_no_more_words_than_it_did() {
    let mut pipeline = trimwire();
    instructions(&mut pipeline);
    let FlowCache { kinds, .. } = &pipeline.work.flows;
    let plan = kinds[0].plan.as_ref().unwrap();
    assert_eq!((plan.key.words(), plan.most_results()), (6, 12), "that decide, and that are left. {HOW}");
}

#[test]
fn a_full_cache_takes_what_is_said_of_it() {
    let mut pipeline = trimwire();
    instructions(&mut pipeline);
    let cache = &mut pipeline.work.flows;
    assert_eq!(cache.most(), MOST_FLOWS);
    while cache.tags.len() * super::WAYS < MOST_FLOWS {
        cache.make_room(cache.tags.len() * super::WAYS * 2);
    }
    let bytes = size_of_val(&cache.tags[..]) + size_of_val(&cache.entries[..]);
    assert!(bytes <= 21 << 20, "{bytes} bytes");
}
