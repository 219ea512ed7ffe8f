// SPDX-License-Identifier: Apache-2.0
//! Nothing that arrives may panic: not a frame, not a program.

use crate::engine_support::{forward, load, program};
use proptest::prelude::*;
use serde_json::Value;
use trimwire_switch::engine::Pipeline;
use trimwire_switch::engine::entity::Replica;

const PROGRAMS: [&str; 4] = ["parser", "arithmetic", "tables", "externs"];

fn replicating(name: &str) -> Pipeline {
    let mut pipeline = load(name);
    let replica = Replica { instance: 1, port: 2 };
    pipeline.control().multicast_insert(1, &[replica]).unwrap();
    pipeline.control().clone_session_insert(5, &[replica]).unwrap();
    pipeline
}

/// The numbers of the values in a JSON tree.
fn count(node: &Value) -> usize {
    1 + match node {
        Value::Array(items) => items.iter().map(count).sum::<usize>(),
        Value::Object(members) => members.values().map(count).sum::<usize>(),
        _ => 0,
    }
}

/// Replaces the `target`-th value of the tree.
fn mutate(node: &mut Value, target: &mut usize, with: &Value) {
    if *target == 0 {
        *target = usize::MAX;
        *node = with.clone();
        return;
    }
    *target -= 1;
    match node {
        Value::Array(items) => items.iter_mut().for_each(|item| mutate(item, target, with)),
        Value::Object(members) => members.values_mut().for_each(|member| mutate(member, target, with)),
        _ => {}
    }
}

fn replacement() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        prop_oneof![Just(0i64), Just(-1), Just(1), Just(7), Just(64), Just(65), Just(511), Just(i64::MAX)]
            .prop_map(Value::from),
        prop_oneof![
            Just("0x"),
            Just("0xffffffffffffffffffffffffffffffffffffffff"),
            Just("-0x1"),
            Just("0x0"),
            Just("expression"),
            Just("field"),
            Just("header_stack"),
            Just("*"),
            Just("assign"),
            Just("push"),
            Just("<<"),
            Just("?"),
            Just("ternary"),
            Just("standard_metadata"),
            Just("$valid$"),
            Just("indirect_ws"),
        ]
        .prop_map(Value::from),
        Just(Value::Array(Vec::new())),
        Just(serde_json::json!({})),
        Just(serde_json::json!(["scalars", "$valid$"])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_frame_makes_the_engine_panic(
        frames in proptest::collection::vec((0u16..=511, proptest::collection::vec(any::<u8>(), 0..200)), 1..20),
    ) {
        for name in PROGRAMS {
            let mut pipeline = replicating(name);
            for (number, (port, frame)) in frames.iter().enumerate() {
                for (_, sent) in forward(&mut pipeline, number as u64 * 1000, *port, frame) {
                    pipeline.recycle(sent);
                }
            }
        }
    }

    #[test]
    fn every_command_of_every_length_is_survived(op in 0u8..32, arg: u8, index: u16, length in 0usize..80) {
        let mut frame = vec![op, arg, (index >> 8) as u8, index as u8];
        frame.resize(80, 0x5a);
        forward(&mut replicating("externs"), 0, 1, &frame[..length]);
    }

    /// What loads may do nonsense, but it does it without panicking and comes to an end.
    #[test]
    fn no_mutation_of_a_program_makes_the_engine_panic(
        which in 0usize..PROGRAMS.len(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), replacement()), 1..3),
        frame in proptest::collection::vec(any::<u8>(), 0..160),
    ) {
        let mut root: Value = serde_json::from_slice(&program(PROGRAMS[which])).unwrap();
        for (index, with) in &edits {
            let mut target = index.index(count(&root));
            mutate(&mut root, &mut target, with);
        }
        if let Ok(mut pipeline) = Pipeline::load(root.to_string().as_bytes()) {
            for op in [0, 7, 8, 21, 23] {
                let mut frame = frame.clone();
                if let Some(first) = frame.first_mut() {
                    *first = op;
                }
                forward(&mut pipeline, 0, 1, &frame);
                forward(&mut pipeline, 0, 1, &frame);
            }
        }
    }

    #[test]
    fn no_bytes_make_the_loader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = Pipeline::load(&bytes);
    }

    /// Two pipelines given the same frames send the same bytes.
    #[test]
    fn the_same_frames_give_the_same_bytes(
        frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..120), 1..10),
    ) {
        for name in PROGRAMS {
            let run = || {
                let mut pipeline = replicating(name);
                frames.iter().map(|frame| forward(&mut pipeline, 7, 1, frame)).collect::<Vec<_>>()
            };
            prop_assert_eq!(run(), run());
        }
    }
}
