// SPDX-License-Identifier: Apache-2.0
//! What the engine's tests share: loading test programs, writing entries, sending frames.
#![allow(dead_code, reason = "every test binary uses its own part")]

pub(crate) mod smallest;

use trimwire_switch::engine::entity::{ActionCall, ActionSpec, MatchValue, TableEntry, value};
use trimwire_switch::engine::{EgressOutcome, Enqueue, Pipeline, QueueMetadata};

pub(crate) fn program(name: &str) -> Vec<u8> {
    let path = format!("{}/testdata/engine/{name}.json", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

pub(crate) fn load(name: &str) -> Pipeline {
    Pipeline::load(&program(name)).unwrap()
}

pub(crate) fn exact(number: u128) -> MatchValue {
    MatchValue::Exact(value(number))
}

pub(crate) fn lpm(number: u128, prefix_len: u16) -> MatchValue {
    MatchValue::Lpm { value: value(number), prefix_len }
}

pub(crate) fn ternary(number: u128, mask: u128) -> MatchValue {
    MatchValue::Ternary { value: value(number), mask: value(mask) }
}

pub(crate) fn range(low: u128, high: u128) -> MatchValue {
    MatchValue::Range { low: value(low), high: value(high) }
}

pub(crate) fn call(action: &str, params: &[u128]) -> ActionCall {
    ActionCall { action: action.into(), params: params.iter().map(|&param| value(param)).collect() }
}

pub(crate) fn direct(action: &str, params: &[u128]) -> ActionSpec {
    ActionSpec::Direct(call(action, params))
}

pub(crate) fn entry(matches: Vec<MatchValue>, priority: i32, action: ActionSpec) -> TableEntry {
    TableEntry { matches, priority, action, metadata: Vec::new() }
}

/// One frame through ingress only.
pub(crate) fn ingress(pipeline: &mut Pipeline, now_ns: u64, port: u16, frame: &[u8]) -> Vec<Enqueue> {
    let mut queue = Vec::new();
    pipeline.ingress(now_ns, port, frame, &mut queue);
    queue
}

/// One frame through ingress and egress, with empty queues: what is sent, in order. A program that
/// makes ever more copies ends early.
pub(crate) fn forward(pipeline: &mut Pipeline, now_ns: u64, port: u16, frame: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut queue = ingress(pipeline, now_ns, port, frame);
    let mut sent = Vec::new();
    for round in 0..1000 {
        if queue.is_empty() {
            break;
        }
        let mut packet = queue.remove(0);
        // As those are that wait in long queues.
        if (frame.len() + round).is_multiple_of(2) {
            pipeline.pack(&mut packet);
        }
        if let EgressOutcome::Transmit { port, frame, .. } =
            pipeline.egress(now_ns, packet, QueueMetadata::default(), &mut queue)
        {
            sent.push((port, frame));
        }
    }
    sent
}
