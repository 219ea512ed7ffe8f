// SPDX-License-Identifier: Apache-2.0
//! Promises of ranks with several interfaces, over a network that misbehaves.

use crate::network::{Faults, Network, Random, address, encode, expectation, interface};
use std::net::{IpAddr, Ipv4Addr};
use trimwire_agent::burst::Arrived;
use trimwire_agent::endpoint::{Event, Reliability};
use trimwire_agent::wire::{CONTROL_LEN_MAX, Identity, Writer, checked};
use trimwire_encoder::wire::StreamId;

const SECOND: u64 = 1_000_000_000;
/// Longer than a time-out, and than what a path takes to be avoided.
const MILLISECOND: u64 = 1_000_000;

/// Ranks with so many interfaces each.
fn network(interfaces: &'static [usize], faults: Faults) -> Network {
    Network::with(interfaces.len() as u16, faults, 1, |config| {
        let rank = usize::from(config.rank);
        if interfaces[rank] > 1 {
            config.addresses = (0..interfaces[rank]).map(|index| interface(rank, index)).collect();
        }
        config.reliability = Reliability::Full;
    })
}

/// Sends a gradient from rank 0 to rank 1; gives how long that took, ns.
fn deliver(network: &mut Network, message: u32) -> u64 {
    let gradient = Random(u64::from(message)).gradient(60_000);
    let encoded = encode(&network.endpoints[0], message, &gradient, 9);
    let mut expected = expectation(&network.endpoints[1], gradient.len());
    expected.planes = 9;
    let start_ns = network.now_ns;
    network.endpoints[1].expect(start_ns, 0, message, expected).expect("expected once");
    network.endpoints[0].send(start_ns, 1, &encoded).expect("sent once");
    let mut done_ns = None;
    network.run(start_ns + 100 * SECOND, |network, rank, event| match event {
        Event::Received { stats, .. } if rank == 1 => {
            assert_eq!((stats.full, stats.missing), (stats.packets, 0));
            done_ns = Some(network.now_ns);
        }
        Event::Sent { .. } | Event::Row { .. } => {}
        other => panic!("rank {rank}: {other:?}"),
    });
    done_ns.expect("delivered") - start_ns
}

fn data_ways(network: &Network) -> Vec<(IpAddr, IpAddr)> {
    network.ways.iter().filter(|(.., data)| *data).map(|&(from, to, _)| (from, to)).collect()
}

#[test]
fn data_goes_from_every_interface_to_the_one_of_the_same_place() {
    let mut network = network(&[3, 3], Faults::NONE);
    deliver(&mut network, 1);
    let expected: Vec<_> = (0..3).map(|index| (interface(0, index), interface(1, index))).collect();
    assert_eq!(data_ways(&network), expected);
    let control = |&&(from, to, data): &&(IpAddr, IpAddr, bool)| {
        !data
            && ![interface(0, 0), interface(1, 0)].contains(&from)
            && ![interface(0, 0), interface(1, 0)].contains(&to)
    };
    assert_eq!(network.ways.iter().find(control), None, "control packets keep to one way while it is good");
}

#[test]
fn ranks_need_not_have_equally_many() {
    for interfaces in [&[1, 2], &[2, 1], &[3, 2]] {
        let mut network = network(interfaces, Faults::NONE);
        deliver(&mut network, 1);
        let ways = data_ways(&network);
        for index in 0..interfaces[0] {
            assert!(ways.iter().any(|&(from, _)| from == interface(0, index)), "{interfaces:?}: {ways:?}");
        }
        for index in 0..interfaces[1] {
            assert!(ways.iter().any(|&(_, to)| to == interface(1, index)), "{interfaces:?}: {ways:?}");
        }
    }
}

#[test]
fn an_interface_that_goes_down_takes_nothing_with_it_whichever_it_is() {
    for rank in 0..2 {
        for index in 0..2 {
            let mut network = network(&[2, 2], Faults::NONE);
            deliver(&mut network, 1);
            network.down.insert(interface(rank, index));
            // At first half of the packets are sent in vain; later hardly any are.
            let first_ns = deliver(&mut network, 2);
            let later_ns = (3..20).map(|message| deliver(&mut network, message)).min();
            assert!(first_ns < 100 * MILLISECOND, "rank {rank}, interface {index}: {first_ns} ns");
            assert!(
                later_ns.is_some_and(|later_ns| later_ns < 10 * MILLISECOND),
                "rank {rank}, interface {index}: {later_ns:?} ns"
            );
            network.down.clear();
            deliver(&mut network, 20);
        }
    }
}

#[test]
fn what_claims_to_listen_where_nobody_can_is_sent_to_where_it_is_known_to_be() {
    let identity = |network: &Network| Identity {
        from: network.endpoints[1].config().incarnation,
        to: network.endpoints[0].config().incarnation,
    };
    let stream = StreamId::new(0, 1).expect("fits");
    let nobody: [IpAddr; 4] = [
        Ipv4Addr::BROADCAST.into(),
        Ipv4Addr::UNSPECIFIED.into(),
        Ipv4Addr::new(224, 0, 0, 1).into(),
        // Somebody, but without the address that it is known by.
        interface(7, 0),
    ];
    for other in nobody {
        let mut network = network(&[1, 1], Faults::NONE);
        deliver(&mut network, 1);
        let known = if other == interface(7, 0) { interface(7, 1) } else { address(1).ip() };
        let ports = network.endpoints[1].config().source_ports.clone();
        let hello = Writer { stream, identity: identity(&network), room: CONTROL_LEN_MAX }.hello(
            false,
            &ports,
            &[known, other],
        );
        let now_ns = network.now_ns;
        network.endpoints[0].handle_datagram(now_ns, Arrived::now(address(1), 0), &checked(hello));
        deliver(&mut network, 2);
        assert_eq!(data_ways(&network), [(interface(0, 0), interface(1, 0))], "{other}");
    }
}
