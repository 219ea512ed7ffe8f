// SPDX-License-Identifier: Apache-2.0
//! The same program and frames give the same frames as BMv2, whose outputs were recorded:
//! `testdata/engine/*.bmv2.txt` hold `in` and `out` lines in hexadecimal.

use trimwire_switch::engine::{EgressOutcome, Enqueue, Pipeline, QueueMetadata};

fn hex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
        .collect()
}

fn recorded(name: &str) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let path = format!("{}/testdata/engine/{name}.bmv2.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let of = |kind| text.lines().filter_map(|line| line.strip_prefix(kind)).map(hex).collect();
    (of("in "), of("out "))
}

fn load(program: &str) -> Pipeline {
    let path = format!("{}/testdata/engine/{program}.json", env!("CARGO_MANIFEST_DIR"));
    Pipeline::load(&std::fs::read(path).unwrap()).unwrap()
}

/// Every frame through ingress and egress, with queues that are always empty.
fn forward(pipeline: &mut Pipeline, frames: &[Vec<u8>]) -> Vec<(u16, Vec<u8>)> {
    let mut sent = Vec::new();
    let mut queue: Vec<Enqueue> = Vec::new();
    for (number, frame) in frames.iter().enumerate() {
        pipeline.ingress(0, 0, frame, &mut queue);
        while !queue.is_empty() {
            let mut packet = queue.remove(0);
            // As those are that wait in long queues.
            if number % 2 == 0 {
                pipeline.pack(&mut packet);
            }
            if let EgressOutcome::Transmit { port, frame, .. } =
                pipeline.egress(0, packet, QueueMetadata::default(), &mut queue)
            {
                sent.push((port, frame));
            }
        }
    }
    sent
}

/// Frames sent to `port` are the recorded ones, but for what `hide` overwrites in both.
fn assert_same(program: &str, recording: &str, port: u16, hide: impl Fn(&mut [u8])) {
    let (frames, mut expected) = recorded(recording);
    let mut pipeline = load(program);
    let sent = forward(&mut pipeline, &frames);
    let sent = sent.into_iter().filter(|(other, _)| *other == port);
    let mut sent: Vec<Vec<u8>> = sent.map(|(_, frame)| frame).collect();
    expected.iter_mut().for_each(|frame| hide(frame));
    sent.iter_mut().for_each(|frame| hide(frame));
    for (number, (sent, expected)) in sent.iter().zip(&expected).enumerate() {
        assert_eq!(sent, expected, "frame {number} of {recording}");
    }
    assert_eq!(sent.len(), expected.len(), "frames sent");
}

#[test]
fn arithmetic_has_the_widths_and_signs_of_bmv2() {
    assert_same("arithmetic", "arithmetic", 1, |_| {});
}

#[test]
fn parsing_and_checksums_are_those_of_bmv2() {
    assert_same("parser", "parser", 1, |_| {});
}

/// The report's timestamps and queue depths.
fn hide_clock(frame: &mut [u8]) {
    let end = frame.len().min(45);
    if let Some(clock) = frame.get_mut(19..end) {
        clock.fill(0);
    }
}

#[test]
fn externs_and_metadata_are_those_of_bmv2() {
    assert_same("externs", "externs", 3, hide_clock);
}

#[test]
fn resubmission_and_recirculation_are_those_of_bmv2() {
    assert_same("externs", "loops", 3, hide_clock);
}
