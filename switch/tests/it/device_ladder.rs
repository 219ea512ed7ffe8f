// SPDX-License-Identifier: Apache-2.0
//! The switch as a whole on the packets with known answers: program, traffic manager, line.

use crate::ladder_support::{PROGRAM, apply, cases, install, take_counts};
use std::collections::BTreeMap;
use trimwire_switch::engine::{EgressOutcome, Pipeline, QueueMetadata};
use trimwire_switch::{PortConfig, Switch, SwitchConfig, Transmit};

const RATE: u64 = 1_000_000_000;

fn switch() -> Switch {
    let line = PortConfig { rate_bps: RATE, ..PortConfig::default() };
    let mut switch = Switch::new(SwitchConfig { default_port: line, ..SwitchConfig::default() });
    switch.load_pipeline(PROGRAM).unwrap();
    install(switch.pipeline().unwrap().control());
    switch
}

#[test]
fn every_packet_with_a_known_answer_gets_it() {
    let mut switch = switch();
    let (cases, mut now_ns) = (cases(), 0);
    let page = include_str!("../../../p4/tests/README.md");
    assert!(page.contains(&format!(" {} packets", cases.len())), "p4/tests/README.md: {}", cases.len());
    for case in &cases {
        let name = &case.name;
        apply(switch.pipeline().unwrap().control(), case);
        let before = switch.all_queue_stats();
        now_ns += 1_000_000;
        switch.handle_frame(now_ns, case.ingress_port, &case.frame);
        let sent: Vec<Transmit> = std::iter::from_fn(|| switch.poll_transmit()).collect();
        let after = switch.all_queue_stats();
        assert_eq!(switch.poll_timeout(), None, "{name}: idle again");
        assert_eq!(take_counts(switch.pipeline().unwrap().control()), case.counters, "{name}");

        let frames: Vec<_> = sent.iter().map(|sent| (sent.port, sent.frame.clone())).collect();
        assert_eq!(frames, case.expect.iter().cloned().collect::<Vec<_>>(), "{name}");
        // The queue that the traffic manager used is the one that the program's egress counted at.
        let used: Vec<_> = after
            .iter()
            .filter(|(key, stats)| before.get(key) != Some(stats))
            .map(|(&(port, queue), _)| u64::from(port) * 8 + u64::from(queue))
            .collect();
        let counted: Vec<_> =
            (0..64).filter(|i| case.counters.contains_key(&format!("Egress.transmitted[{i}]"))).collect();
        assert_eq!(used, counted, "{name}");
        for Transmit { frame, start_ns, end_ns, .. } in &sent {
            assert_eq!(*start_ns, now_ns, "{name}: an idle line sends at once");
            let time_ns = frame.len() as u64 * 8;
            assert_eq!(end_ns - start_ns, time_ns, "{name}: 8 ns a byte at 1 Gbit/s");
        }
    }
    assert_eq!(switch.stats().received, cases.len() as u64);
    let leaving = cases.iter().filter(|case| case.expect.is_some()).count();
    assert_eq!(switch.stats().transmitted, leaving as u64);
}

#[test]
fn packets_that_were_packed_leave_as_all_others() {
    let mut pipeline = Pipeline::load(PROGRAM).unwrap();
    install(pipeline.control());
    let mut queue = Vec::new();
    for (number, case) in (0..).zip(cases()) {
        apply(pipeline.control(), &case);
        pipeline.ingress(number * 1_000_000, case.ingress_port, &case.frame, &mut queue);
        let mut sent = Vec::new();
        for mut packet in queue.drain(..) {
            let before = (packet.packet.ingress_port(), packet.length);
            pipeline.pack(&mut packet);
            assert!(packet.packet.is_packed());
            assert_eq!((packet.packet.ingress_port(), packet.length), before);
            let meta = QueueMetadata::default();
            if let EgressOutcome::Transmit { port, frame, .. } =
                pipeline.egress(number * 1_000_000, packet, meta, &mut Vec::new())
            {
                sent.push((port, frame));
            }
        }
        assert_eq!(sent, case.expect.iter().cloned().collect::<Vec<_>>(), "{}", case.name);
        assert_eq!(take_counts(pipeline.control()), case.counters, "{}", case.name);
    }
}

#[test]
fn the_same_packets_give_the_same_bytes_and_times() {
    let run = || {
        let (mut switch, mut log) = (switch(), Vec::new());
        for (i, case) in cases().iter().enumerate() {
            apply(switch.pipeline().unwrap().control(), case);
            switch.handle_frame(i as u64 * 100, case.ingress_port, &case.frame);
            log.extend(std::iter::from_fn(|| switch.poll_transmit()));
        }
        while let Some(at_ns) = switch.poll_timeout() {
            switch.handle_timeout(at_ns);
            log.extend(std::iter::from_fn(|| switch.poll_transmit()));
        }
        log
    };
    let log = run();
    assert_eq!(log, run());
    let mut free = BTreeMap::new();
    for Transmit { port, start_ns, end_ns, .. } in &log {
        assert!(*start_ns >= free.insert(port, *end_ns).unwrap_or(0), "a line sends one frame at a time");
    }
}

#[test]
fn a_switch_without_a_program_drops_and_counts() {
    let mut switch = Switch::new(SwitchConfig::default());
    switch.handle_frame(0, 1, &[0; 64]);
    assert_eq!((switch.stats().received, switch.stats().without_pipeline), (1, 1));
    assert_eq!((switch.poll_transmit(), switch.poll_timeout()), (None, None));
}

#[test]
fn a_bad_program_leaves_the_running_one_alone() {
    let mut switch = switch();
    assert!(switch.load_pipeline(b"{}").is_err());
    let case = &cases()[0];
    switch.handle_frame(0, case.ingress_port, &case.frame);
    let sent = switch.poll_transmit().unwrap();
    assert_eq!(Some((sent.port, sent.frame)), case.expect);
}

#[test]
fn a_new_program_starts_with_empty_queues() {
    let mut switch = switch();
    let case = &cases()[0];
    for _ in 0..10 {
        switch.handle_frame(0, case.ingress_port, &case.frame);
    }
    assert!(switch.poll_timeout().is_some());
    switch.load_pipeline(PROGRAM).unwrap();
    assert_eq!(switch.poll_timeout(), None);
    let stats = switch.queue_stats(1, 5);
    assert_eq!((stats.depth_bytes(), stats.dequeued_packets, stats.dropped_packets), (0, 1, 9));
    // The line goes on: the frame that was being sent ends first.
    install(switch.pipeline().unwrap().control());
    switch.handle_frame(0, case.ingress_port, &case.frame);
    let ends: Vec<_> = std::iter::from_fn(|| switch.poll_transmit()).map(|sent| sent.end_ns).collect();
    let next_ns = switch.poll_timeout();
    assert_eq!(next_ns, ends.last().copied());
}
