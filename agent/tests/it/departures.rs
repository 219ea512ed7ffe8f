// SPDX-License-Identifier: Apache-2.0
//! What a lead promises: data is given out before it is to leave, and leaves when it would have
//! left without.

use crate::network::{Faults, Network, Random, address, config, encode, expectation};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use trimwire_agent::burst::{Arrived, Origin};
use trimwire_agent::endpoint::{Endpoint, EndpointConfig, Event, Reliability};
use trimwire_agent::rate::RateConfig;
use trimwire_encoder::PLANES;
use trimwire_encoder::wire::{Kind, Prefix};

const SECOND: u64 = 1_000_000_000;
const DELAY_NS: u64 = 20_000;
const LEAD_NS: u64 = 250_000;
const RATE_BPS: u64 = 1_000_000_000;
const LENGTH: usize = 300_000;

/// What became of a message from rank 0 to rank 1.
struct Run {
    /// When its data left, and how much at a time.
    data: Vec<(u64, usize)>,
    /// When questions left.
    probes: Vec<u64>,
    /// Times at which data was given out.
    given_ns: BTreeSet<u64>,
    sender: Endpoint,
}

/// A paced transfer over a wire with a delay and no queue. Bursts are held until their departure,
/// unless whoever should forgets to.
fn run(lead_ns: u64, holds: bool, planes: u8, change: impl Fn(&mut EndpointConfig)) -> Run {
    let endpoint = |rank| {
        let mut config = config(rank, 2);
        config.rate = RateConfig::Fixed(Some(RATE_BPS));
        config.pace_at_line = false;
        config.burst_wire_ns = 40_000;
        config.host_jitter_ns = 100_000;
        change(&mut config);
        Endpoint::new(config)
    };
    let mut endpoints = [endpoint(0), endpoint(1)];
    endpoints[0].set_lead_ns(lead_ns);
    let gradient = Random(7).gradient(LENGTH);
    let encoded = encode(&endpoints[0], 1, &gradient, planes);
    let expected = expectation(&endpoints[1], LENGTH);
    endpoints[0].send(0, 1, &encoded).expect("sent once");
    endpoints[1].expect(0, 0, 1, expected).expect("expected once");
    let mut flying = BinaryHeap::new();
    let (mut data, mut probes, mut given_ns) = (Vec::new(), Vec::new(), BTreeSet::new());
    let (mut now_ns, mut sent, mut over) = (0, 0_u64, 0);
    loop {
        for (rank, endpoint) in endpoints.iter_mut().enumerate() {
            endpoint.handle_timeout(now_ns);
            while let Some(burst) = endpoint.poll_transmit(now_ns) {
                assert!(burst.departs_ns <= now_ns.saturating_add(lead_ns), "the lead is bounded");
                let leaves_ns = burst.departs_ns.max(now_ns);
                let kind = Prefix::parse(&burst.payload).expect("own packet").kind;
                let source = match burst.origin {
                    Origin::Path(path) => {
                        data.push((leaves_ns, burst.payload.len()));
                        given_ns.insert(now_ns);
                        (address(rank).ip(), endpoint.config().source_ports[usize::from(path)]).into()
                    }
                    Origin::Listening(_) => address(rank),
                };
                if rank == 0 && kind == Kind::Probe {
                    probes.push(leaves_ns);
                }
                for datagram in burst.datagrams() {
                    sent += 1;
                    let at_ns = if holds { leaves_ns } else { now_ns } + DELAY_NS;
                    flying.push(Reverse((at_ns, sent, 1 - rank, source, burst.tos, datagram.to_vec())));
                }
            }
            while let Some(event) = endpoint.poll_event() {
                match event {
                    Event::Sent { .. } | Event::Received { .. } => over += 1,
                    Event::Failed { .. } => panic!("{event:?}"),
                    _ => {}
                }
            }
        }
        if over == 2 {
            break;
        }
        let timeouts = endpoints.iter().filter_map(Endpoint::poll_timeout);
        let arrival = flying.peek().map(|Reverse((at_ns, ..))| *at_ns);
        let next_ns = timeouts.chain(arrival).min().expect("something is left to do");
        now_ns = now_ns.max(next_ns);
        assert!(now_ns < SECOND, "it comes to an end");
        while let Some(Reverse((at_ns, ..))) = flying.peek()
            && *at_ns <= now_ns
        {
            let Some(Reverse((_, _, rank, source, tos, payload))) = flying.pop() else { break };
            endpoints[rank].handle_datagram(now_ns, Arrived::now(source, tos), &payload);
        }
    }
    let [sender, _] = endpoints;
    Run { data, probes, given_ns, sender }
}

#[test]
fn data_leaves_when_it_would_have_left_without_a_lead() {
    let plain = run(0, true, PLANES, |_| ());
    let ahead = run(LEAD_NS, true, PLANES, |_| ());
    assert!(plain.data.len() > 200, "{} bursts", plain.data.len());
    assert_eq!(ahead.data, plain.data);
    assert_eq!(plain.given_ns.len(), plain.data.len(), "each when it is to leave");
    let took_ns = plain.data.last().map_or(0, |&(at_ns, _)| at_ns);
    let most = (took_ns / (LEAD_NS / 2)) as usize + 2;
    assert!(
        ahead.given_ns.len() <= most,
        "given out at {} times in {took_ns} ns, where {most} do",
        ahead.given_ns.len()
    );
}

#[test]
fn a_card_that_is_paced_sends_as_fast_with_a_lead_as_without() {
    let at_line = |config: &mut EndpointConfig| {
        (config.rate, config.line_rate_bps, config.pace_at_line) = (RateConfig::Fixed(None), RATE_BPS, true);
    };
    let [plain, ahead] = [0, LEAD_NS].map(|lead_ns| run(lead_ns, true, PLANES, at_line));
    let last_ns = |run: &Run| run.data.last().map_or(0, |&(at_ns, _)| at_ns);
    assert!(last_ns(&plain).abs_diff(last_ns(&ahead)) < 2_000, "{} {}", last_ns(&plain), last_ns(&ahead));
    let times = [&plain, &ahead].map(|run| run.given_ns.len());
    assert!(times[1] < times[0] / 2, "data was given out at {times:?} times");
}

#[test]
fn round_trips_count_from_the_departure() {
    for lead_ns in [0, LEAD_NS] {
        let run = run(lead_ns, true, PLANES, |_| ());
        assert_eq!(run.sender.rtt_ns(1), Some(2 * DELAY_NS), "a lead of {lead_ns} ns");
        assert_eq!(run.sender.stats().unheld, 0);
    }
}

#[test]
fn questions_do_not_overtake_the_data_that_they_are_about() {
    // Fewer planes than all are told in advance, so that there is a question at the beginning, too.
    let run = run(LEAD_NS, true, 4, |_| ());
    let last_ns = run.data.last().map_or(0, |&(at_ns, _)| at_ns);
    let first = run.probes.first().zip(run.data.first());
    assert!(first.is_some_and(|(&asked_ns, &(data_ns, _))| asked_ns <= data_ns), "{:?}", run.probes);
    assert!(
        run.probes.iter().skip(1).all(|&at_ns| at_ns >= last_ns),
        "{:?}, last data {last_ns}",
        run.probes
    );
}

#[test]
fn whoever_does_not_hold_packets_is_noticed() {
    let run = run(LEAD_NS, false, PLANES, |_| ());
    let unheld = run.sender.stats().unheld;
    assert!(unheld >= 16, "{unheld} packets were reported before they were to leave");
}

/// Messages both ways over a network that loses, trims and reorders. Repairs, and when all is over.
fn on_a_bad_day(lead_ns: u64, seed: u64) -> (u64, u64) {
    let faults =
        Faults { drop_data: 0.02, drop_control: 0.02, trim: 0.02, jitter_ns: 10_000, ..Faults::NONE };
    let mut network = Network::with(2, faults, seed, |config| {
        config.rate = RateConfig::Fixed(Some(RATE_BPS));
        config.pace_at_line = false;
        config.reliability = Reliability::Full;
        config.host_jitter_ns = 100_000;
    });
    for rank in 0..2 {
        let other = 1 - rank;
        network.endpoints[rank].set_lead_ns(lead_ns);
        network.expect(rank, other as u16, 1, LENGTH);
        network.send(rank, other as u16, 1, &Random(seed).gradient(LENGTH));
    }
    let mut ended_ns = 0;
    let mut received = 0;
    network.run(SECOND, |network, _, event| match event {
        Event::Received { .. } => (received, ended_ns) = (received + 1, network.now_ns),
        Event::Failed { .. } => panic!("{event:?}"),
        _ => {}
    });
    assert_eq!(received, 2);
    assert!(network.endpoints.iter().all(|endpoint| endpoint.stats().unheld == 0));
    (network.endpoints.iter().map(|endpoint| endpoint.stats().repairs_sent).sum(), ended_ns)
}

#[test]
fn losses_are_found_and_mended_with_a_lead_as_without() {
    let totals = [0, LEAD_NS].map(|lead_ns| {
        let runs = (0..8).map(|seed| on_a_bad_day(lead_ns, seed));
        runs.fold((0, 0), |sum, run| (sum.0 + run.0, sum.1 + run.1))
    });
    let [(repairs, took_ns), (ahead_repairs, ahead_took_ns)] = totals;
    assert!(repairs > 100, "{repairs} repairs");
    assert!(ahead_repairs * 10 <= repairs * 11, "{ahead_repairs} repairs with a lead, {repairs} without");
    // Each message may end later by the lead or two: repairs leave behind what was given out
    // before.
    assert!(ahead_took_ns <= took_ns + 8 * 2 * LEAD_NS, "{ahead_took_ns} ns with a lead, {took_ns} without");
}
