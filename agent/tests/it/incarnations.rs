// SPDX-License-Identifier: Apache-2.0
//! Endpoints whose incarnations a rendezvous has agreed on.

use crate::network::{Faults, Network, Random, config, kind};
use std::net::SocketAddr;
use trimwire_agent::burst::Arrived;
use trimwire_agent::config::EndpointConfig;
use trimwire_agent::endpoint::{Endpoint, Event, Reliability};
use trimwire_encoder::wire::Kind;

const SECOND: u64 = 1_000_000_000;

fn agree(config: &mut EndpointConfig) {
    config.reliability = Reliability::Full;
    // Those of the network's endpoints.
    config.incarnations = (0..config.world).map(|rank| (rank, u32::from(rank) + 1)).collect();
}

fn two(agreed: bool) -> Network {
    Network::with(2, Faults::NONE, 1, |config| {
        config.reliability = Reliability::Full;
        if agreed {
            agree(config);
        }
    })
}

/// Sends a message from rank 0 to rank 1; gives when it was over, and how many HELLOs it took.
fn deliver(network: &mut Network, id: u32) -> (u64, usize) {
    network.keep_log = true;
    network.expect(1, 0, id, 2_000);
    network.send(0, 1, id, &Random(1).gradient(2_000));
    let events = network.finish(network.now_ns + SECOND);
    assert!(matches!(&events[..], [(1, Event::Received { .. }), (0, Event::Sent { .. })]), "{events:?}");
    let hellos = network.log.iter().filter(|(_, _, datagram)| kind(datagram) == Kind::Hello).count();
    (network.now_ns, hellos)
}

#[test]
fn ranks_that_have_met_know_each_other_after_one_round_trip() {
    let (learned_ns, learned) = deliver(&mut two(false), 1);
    let (agreed_ns, agreed) = deliver(&mut two(true), 1);
    assert_eq!(agreed, 2, "there and back");
    assert!(learned > 2 && agreed_ns < learned_ns, "{learned} HELLOs, {agreed_ns} ns and {learned_ns} ns");
}

#[test]
fn an_incarnation_that_was_not_agreed_on_is_nobodys_though_it_comes_from_the_right_address() {
    let mut network = two(true);
    deliver(&mut network, 1);
    // Somebody with rank 1's address, who knows everything of rank 0.
    let mut other = config(1, 2);
    agree(&mut other);
    other.incarnation = 77;
    network.restart(1, Endpoint::new(other));
    let stats = network.endpoints[0].stats();
    let (before, received) = (stats.foreign, stats.data_received);
    network.expect(0, 1, 5, 2_000);
    network.send(1, 0, 5, &Random(2).gradient(2_000));
    let mut events = Vec::new();
    network.run(network.now_ns + SECOND, |_, rank, event| events.push((rank, event)));
    let stats = network.endpoints[0].stats();
    assert!(
        stats.foreign > before && stats.data_received == received && events.is_empty(),
        "{stats:?} {events:?}"
    );
    // Who was agreed on goes on where it was.
    let mut back = config(1, 2);
    agree(&mut back);
    network.restart(1, Endpoint::new(back));
    network.send(1, 0, 5, &Random(2).gradient(2_000));
    let events = network.finish(network.now_ns + SECOND);
    assert!(matches!(&events[..], [(0, Event::Received { .. }), (1, Event::Sent { .. })]), "{events:?}");
}

#[test]
fn a_rank_that_speaks_another_version_of_the_wire_format_is_named_and_a_stranger_is_not() {
    let mut network = two(false);
    network.keep_log = true;
    network.send(0, 1, 1, &[1.0; 100]);
    network.finish(network.now_ns + SECOND);
    let hello = &network.log[0].2;
    assert_eq!(kind(hello), Kind::Hello);
    let mut older = hello.payload.clone();
    older[0] = 3 << 4 | Kind::Hello as u8;
    let elsewhere = SocketAddr::new([10, 9, 9, 9].into(), hello.source.port());
    for (source, known) in [(elsewhere, None), (hello.source, Some((3, hello.source)))] {
        let before = network.endpoints[1].stats().malformed;
        network.endpoints[1].handle_datagram(network.now_ns, Arrived::now(source, 0), &older);
        assert_eq!(network.endpoints[1].other_version(), known);
        assert_eq!(network.endpoints[1].stats().malformed, before + 1);
    }
}
