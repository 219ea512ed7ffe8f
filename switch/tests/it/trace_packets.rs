// SPDX-License-Identifier: Apache-2.0
//! A packet's way as the trace tells it.

use crate::ladder_support::{PROGRAM, apply, cases, install};
use trimwire_switch::engine::trace::Event;
use trimwire_switch::trace::{to_json, to_text};
use trimwire_switch::{PortConfig, Switch, SwitchConfig};

fn switch(queue_limit_bytes: u64) -> Switch {
    let default_port = PortConfig { queue_limit_bytes, ..PortConfig::default() };
    let mut switch = Switch::new(SwitchConfig { default_port, ..SwitchConfig::default() });
    switch.load_pipeline(PROGRAM).unwrap();
    install(switch.pipeline().unwrap().control());
    switch
}

#[test]
fn the_trace_of_a_trimmed_packet_tells_states_tables_queue_and_trim() {
    let mut switch = switch(1 << 20);
    switch.set_tracing(true);
    let cases = cases();
    let case =
        cases.iter().find(|case| case.name.ends_with(": at deep_at it is trimmed to deep_size")).unwrap();
    apply(switch.pipeline().unwrap().control(), case);
    switch.handle_frame(1_000, case.ingress_port, &case.frame);
    let (port, frame) = case.expect.clone().unwrap();
    let (records, lost) = switch.take_trace();
    assert_eq!(lost, 0);
    assert!(records.iter().all(|record| record.packet == 1));
    assert_eq!(records[0].event, Event::Received { port: case.ingress_port, length: case.frame.len() });
    assert_eq!(records.last().unwrap().event, Event::Transmitted { port, length: frame.len() });

    let states: Vec<&str> = records
        .iter()
        .filter_map(|record| match &record.event {
            Event::ParserState(state) => Some(state.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(states.first(), Some(&"start"));
    let hit = records.iter().find_map(|record| match &record.event {
        Event::Table { table, key, hit: Some(hit), action: Some((action, arguments)) }
            if table == "Ingress.queue_policy.policy" =>
        {
            Some((key, hit, action, arguments))
        }
        _ => None,
    });
    let (key, hit, action, arguments) = hit.expect("the policy is hit");
    assert_eq!(
        key.iter().map(|field| field.name.as_str()).collect::<Vec<_>>(),
        ["egress_port", "queue", "importance"]
    );
    assert_eq!((key[0].value.clone(), hit.priority), (vec![port as u8], 0));
    assert_eq!(action, "Ingress.queue_policy.set_thresholds");
    let argument = |name| &arguments.iter().find(|field| field.name == name).unwrap().value;
    assert_eq!((argument("deep_at"), argument("deep_size")), (&vec![0], &vec![frame.len() as u8]));

    let trim = Event::Truncated { from: case.frame.len(), to: frame.len() };
    assert!(records.iter().any(|record| record.event == trim), "{records:#?}");
    // The trim queue.
    assert!(records.iter().any(|record| matches!(record.event, Event::Enqueued { queue: 6, .. })));
    for record in &records {
        assert!(to_text(record).starts_with("0.000001000 #1 "), "{}", to_text(record));
        assert_eq!(to_json(record)["packet"], 1);
    }
}

#[test]
fn every_packet_that_does_not_leave_is_said_to_be_dropped() {
    let mut switch = switch(1 << 20);
    switch.set_tracing(true);
    for (case, now_ns) in cases().iter().zip((0..).step_by(1_000_000)) {
        apply(switch.pipeline().unwrap().control(), case);
        switch.handle_frame(now_ns, case.ingress_port, &case.frame);
        let (records, _) = switch.take_trace();
        let last = &records.last().unwrap().event;
        assert_eq!(matches!(last, Event::Dropped(_)), case.expect.is_none(), "{}: {last:?}", case.name);
        while switch.poll_transmit().is_some() {}
    }
}

#[test]
fn a_full_queue_shows_in_the_trace() {
    let mut switch = switch(1);
    switch.set_tracing(true);
    let case = &cases()[0];
    switch.handle_frame(0, case.ingress_port, &case.frame);
    let (records, _) = switch.take_trace();
    assert_eq!(to_json(records.last().unwrap())["reason"], "queue full");
}

#[test]
fn nothing_is_noted_while_the_trace_is_off_and_answers_are_the_same() {
    let (mut off, mut on) = (switch(1 << 20), switch(1 << 20));
    on.set_tracing(true);
    let cases = cases();
    for case in &cases {
        for switch in [&mut off, &mut on] {
            apply(switch.pipeline().unwrap().control(), case);
            switch.handle_frame(0, case.ingress_port, &case.frame);
        }
        assert_eq!(off.poll_transmit(), on.poll_transmit(), "{}", case.name);
    }
    assert_eq!(off.take_trace(), (Vec::new(), 0));
    assert!(on.take_trace().0.len() > cases.len());
}

#[test]
fn records_that_nobody_takes_are_lost_and_counted() {
    let mut switch = switch(1 << 20);
    switch.set_tracing(true);
    let case = &cases()[0];
    for _ in 0..10_000 {
        switch.handle_frame(0, case.ingress_port, &case.frame);
        while switch.poll_transmit().is_some() {}
    }
    let (records, lost) = switch.take_trace();
    assert!(records.len() == 1 << 16 && lost > 0, "{} {lost}", records.len());
    assert_eq!(switch.take_trace(), (Vec::new(), 0));
}
