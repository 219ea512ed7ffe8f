// SPDX-License-Identifier: Apache-2.0
use super::*;

/// Sends `frames` at its start, one every `gap_ns`; notes what arrives.
#[derive(Debug, Default)]
struct Talker {
    frames: Vec<Vec<u8>>,
    gap_ns: u64,
    next_ns: u64,
    heard: Vec<(u64, u16, Vec<u8>)>,
}

impl Node for Talker {
    fn handle_frame(&mut self, now_ns: u64, port: u16, frame: Vec<u8>) {
        self.heard.push((now_ns, port, frame));
    }
    fn handle_timeout(&mut self, _now_ns: u64) {}
    fn poll_transmit(&mut self, now_ns: u64) -> Option<Departure> {
        if now_ns < self.next_ns || self.frames.is_empty() {
            return None;
        }
        self.next_ns = now_ns + self.gap_ns;
        Some(Departure { port: 0, frame: self.frames.remove(0), end_ns: self.next_ns })
    }
    fn poll_timeout(&self) -> Option<u64> {
        (!self.frames.is_empty()).then_some(self.next_ns)
    }
}

fn pair(delay_ns: u64) -> (Network<Talker>, NodeId, NodeId) {
    let mut network = Network::default();
    let talker = Talker { frames: vec![vec![1], vec![2], vec![3]], gap_ns: 100, ..Talker::default() };
    let (a, b) = (network.add(talker), network.add(Talker::default()));
    network.link((a, 0), (b, 7), delay_ns).unwrap();
    network.with_node(a, |_, _| ());
    (network, a, b)
}

#[test]
fn a_frame_arrives_one_serialisation_and_one_delay_after_it_started() {
    let (mut network, _, b) = pair(1_000);
    while network.step().is_some() {}
    assert_eq!(network.node(b).heard, vec![(1_100, 7, vec![1]), (1_200, 7, vec![2]), (1_300, 7, vec![3])]);
    assert_eq!(network.delivered(), 3);
}

#[test]
fn frames_on_a_link_that_is_down_are_lost_and_counted() {
    let (mut network, _, b) = pair(0);
    network.set_link((b, 7), false);
    while network.step().is_some() {}
    assert_eq!((network.node(b).heard.len(), network.lost()), (1, 2), "the first was on its way already");
}

#[test]
fn a_port_takes_one_link() {
    let (mut network, a, b) = pair(0);
    assert_eq!(network.link((a, 1), (b, 7), 0), Err(LinkError::PortTaken { node: 1, port: 7 }));
}

#[test]
fn the_clock_is_not_moved_past_something_that_has_to_happen_first() {
    let (mut network, _, _) = pair(0);
    assert!(!network.advance_to(1_000_000));
    while network.step().is_some() {}
    assert!(network.advance_to(1_000_000));
    assert_eq!(network.now_ns(), 1_000_000);
}

/// Wants to be woken at `at_ns`, until somebody changes it.
#[derive(Debug)]
struct Sleeper {
    at_ns: u64,
}

impl Node for Sleeper {
    fn handle_frame(&mut self, _: u64, _: u16, _: Vec<u8>) {}
    fn handle_timeout(&mut self, now_ns: u64) {
        self.at_ns = now_ns + 1_000_000;
    }
    fn poll_transmit(&mut self, _: u64) -> Option<Departure> {
        None
    }
    fn poll_timeout(&self) -> Option<u64> {
        Some(self.at_ns)
    }
}

#[test]
fn a_wake_up_that_an_earlier_one_replaced_does_not_carry_the_clock_past_its_goal() {
    let mut network = Network::default();
    let id = network.add(Sleeper { at_ns: 500 });
    network.with_node(id, |_, _| ());
    network.with_node(id, |_, sleeper| sleeper.at_ns = 100);
    // At 100 the sleeper wakes and asks for 1,000,100; the wake-up at 500 is void.
    while !network.advance_to(600) {
        network.step();
    }
    assert_eq!(network.now_ns(), 600);
}
