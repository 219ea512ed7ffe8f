// SPDX-License-Identifier: Apache-2.0
//! What receivers tell of who sends to them: ranks from which messages are arriving, in every
//! report.

use crate::network::{Faults, Network, Random, kind};
use trimwire_agent::endpoint::Reliability;
use trimwire_agent::wire::{Control, Reason, content_of};
use trimwire_encoder::wire::{Kind, PREFIX_LEN};

const MS: u64 = 1_000_000;
/// 2.4 ms at the line's rate.
const LONG: usize = 1_000_000;
const SHORT: usize = 40_000;

fn network(world: u16, reliability: Reliability) -> Network {
    let mut network = Network::new(world, Faults::NONE, 1, reliability);
    network.keep_log = true;
    network
}

/// What rank 0 told a rank, each number once as long as it stayed the same.
fn told(network: &Network, to: usize) -> Vec<u16> {
    let mut numbers: Vec<u16> = Vec::new();
    for (_, from, datagram) in &network.log {
        let kind = kind(datagram);
        if *from != 0 || datagram.to != to || !matches!(kind, Kind::Ack | Kind::Status) {
            continue;
        }
        let (_, control) = {
            let content = content_of(&datagram.payload).expect("own packet");
            Control::parse(kind, &content[PREFIX_LEN..]).expect("own packet")
        };
        let (Control::Ack(progress) | Control::Status(progress)) = control else { continue };
        let number = progress.report.senders.map_or(0, u16::from);
        if numbers.last() != Some(&number) {
            numbers.push(number);
        }
    }
    numbers
}

fn run(network: &mut Network, until_ns: u64) {
    network.run(until_ns, |_, _, _| {});
}

#[test]
fn reports_tell_from_how_many_ranks_messages_are_arriving() {
    for reliability in [Reliability::Full, Reliability::Bounded { loss: 0.1 }] {
        let mut network = network(4, reliability);
        for (from, length) in [(1, LONG), (2, SHORT), (3, SHORT)] {
            network.expect(0, from, 1, length);
        }
        // Rank 2 is to send another one, and does not begin; rank 3 does not begin at all.
        network.expect(0, 2, 2, SHORT);
        network.send(1, 0, 1, &Random(1).gradient(LONG));
        run(&mut network, MS);
        assert_eq!(told(&network, 1), [1], "who has yet to begin does not count");
        network.send(2, 0, 1, &Random(2).gradient(SHORT));
        run(&mut network, 20 * MS);
        assert_eq!(told(&network, 1), [1, 2, 1], "nor who is between two messages");
        assert_eq!(told(&network, 2), [2]);
        // Rank 2's second message, when everybody else is done.
        network.send(2, 0, 2, &Random(3).gradient(SHORT));
        run(&mut network, 40 * MS);
        assert_eq!(told(&network, 2), [2, 1]);
    }
}

#[test]
fn a_rank_counts_once_however_many_messages_are_arriving_from_it() {
    let mut network = network(2, Reliability::Full);
    for message in 1..=5 {
        network.expect(0, 1, message, SHORT);
        network.send(1, 0, message, &Random(message.into()).gradient(SHORT));
    }
    run(&mut network, 20 * MS);
    assert_eq!(told(&network, 1), [1]);
}

#[test]
fn who_is_given_up_or_not_asked_for_does_not_count() {
    let mut network = network(4, Reliability::Full);
    for rank in 1..=2 {
        network.expect(0, rank, 1, LONG);
    }
    for rank in 1..=3_u16 {
        network.send(usize::from(rank), 0, 1, &Random(rank.into()).gradient(LONG));
    }
    run(&mut network, MS);
    assert_eq!(told(&network, 1).last(), Some(&2), "nobody has asked for rank 3's");
    assert_eq!(told(&network, 3), [0], "and of what waits nothing is told");
    let now_ns = network.now_ns;
    network.endpoints[0].abort_expect(now_ns, 2, 1, 0, Reason::Cancelled);
    run(&mut network, 2 * MS);
    assert_eq!(told(&network, 1).last(), Some(&1));
    // It comes in at once with what has arrived of it already.
    network.expect(0, 3, 1, LONG);
    run(&mut network, 3 * MS);
    assert_eq!((told(&network, 1).last(), told(&network, 3).last()), (Some(&2), Some(&2)));
}
