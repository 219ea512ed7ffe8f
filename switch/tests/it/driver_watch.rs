// SPDX-License-Identifier: Apache-2.0
//! Watch ports on real interfaces: a group's member is not chosen while its interface is down.

use crate::driver_support::{Running, Wire, ip, isolate, until, veth_pairs};
use std::sync::{Arc, Mutex};
use trimwire_switch::engine::entity::{ActionCall, ActionSpec, Group, GroupMember, MatchValue, TableEntry};
use trimwire_switch::{Switch, SwitchConfig};

const PROGRAM: &[u8] = include_bytes!("../../testdata/server/server.json");
const KEY: u8 = 5;

/// Two members, ports 1 and 2, each watching its own port.
fn switch() -> Switch {
    let mut switch = Switch::new(SwitchConfig::default());
    switch.load_pipeline(PROGRAM).unwrap();
    let control = switch.pipeline().unwrap().control();
    for port in [1_u8, 2] {
        let call = ActionCall { action: "I.forward".to_owned(), params: vec![vec![port]] };
        control.member_insert("I.spread", port.into(), &call).unwrap();
    }
    let members = vec![GroupMember { id: 1, weight: 1 }, GroupMember { id: 2, weight: 1 }];
    control.group_insert("I.spread", &Group { id: 1, max_size: 0, members }).unwrap();
    control.watch_group("I.spread", 1, &[(1, 1), (2, 2)]).unwrap();
    let entry = TableEntry {
        matches: vec![MatchValue::Exact(vec![KEY])],
        priority: 0,
        action: ActionSpec::Group(1),
        metadata: Vec::new(),
    };
    control.table_insert("I.balanced", &entry).unwrap();
    switch
}

/// Frames of 64 flows, and how many of them each far end gets.
fn spread(near: &Wire, far: &[Wire; 2]) -> [usize; 2] {
    for flow in 0..64_u8 {
        let mut frame = vec![0; 64];
        (frame[0], frame[4], frame[7]) = (KEY, flow, flow);
        assert!(near.send(&frame));
    }
    // The driver serves one port after the other: what has not come after a while was not sent.
    [0, 1].map(|port| std::iter::from_fn(|| far[port].receive(100)).count())
}

#[test]
fn flows_move_away_from_an_interface_that_is_down_and_return_to_it() {
    if !isolate("driver_watch: watch ports") {
        return;
    }
    let _running = Running::start(Arc::new(Mutex::new(switch())), veth_pairs(3));
    let (near, far) = (Wire::open("h0"), [Wire::open("h1"), Wire::open("h2")]);
    until("both get their share", || !spread(&near, &far).contains(&0));
    ip("link set s1 down");
    until("one gets them all", || spread(&near, &far) == [0, 64]);
    ip("link set s1 up");
    until("both get their share again", || !spread(&near, &far).contains(&0));
    // A cable that is pulled leaves the interface up.
    ip("link set h1 down");
    until("one gets them all", || spread(&near, &far) == [0, 64]);
    ip("link set h1 up");
    until("both get their share again", || !spread(&near, &far).contains(&0));
}
