// SPDX-License-Identifier: Apache-2.0
//! Promises where switches drop instead of trimming: of packets that are lost nobody hears, and a
//! rank does not go on as if all were well.

use crate::network::{Datagram, Faults, LINE_BPS, Network, Random, encode, expectation, kind, layout};
use trimwire_agent::endpoint::{EndpointConfig, Event, Expectation, Outbound, Reliability};
use trimwire_agent::pacing::Pace;
use trimwire_agent::rate::{DctcpConfig, RateConfig};
use trimwire_agent::row::Row;
use trimwire_agent::transfer::TransferError;
use trimwire_encoder::PLANES;
use trimwire_encoder::wire::Kind;

const US: u64 = 1_000;
const SECOND: u64 = 1_000_000_000;
/// 1,120 packets, which take 1.26 ms at line rate; a round trip takes 10 us.
const LENGTH: usize = 490 * 1_024;

/// Rank 0 sends to rank 1 at line rate, and what `lost` says of its data vanishes.
fn network(lost: fn(usize, &Datagram, u64) -> bool) -> Network {
    network_of(Faults::NONE, RateConfig::Fixed(None), lost)
}

fn network_of(faults: Faults, rate: RateConfig, lost: fn(usize, &Datagram, u64) -> bool) -> Network {
    let mut network = Network::with(2, faults, 1, |config: &mut EndpointConfig| {
        (config.reliability, config.rate) = (Reliability::Full, rate);
    });
    (network.script, network.keep_log) = (Some(lost), true);
    network
}

fn begin(network: &mut Network, length: usize) {
    network.expect(1, 0, 5, length);
    network.send(0, 1, 5, &Random(1).gradient(length));
}

/// When rank 0 sent packets of a kind.
fn times(network: &Network, of: Kind) -> Vec<u64> {
    let sent = network.log.iter().filter(|(_, from, datagram)| *from == 0 && kind(datagram) == of);
    sent.map(|(at_ns, ..)| *at_ns).collect()
}

fn is_data(datagram: &Datagram) -> bool {
    kind(datagram) == Kind::Data
}

#[test]
fn a_rank_of_which_nothing_gets_through_asks_soon_and_sends_less_and_less() {
    let mut network = network(|_, datagram, _| is_data(datagram));
    begin(&mut network, LENGTH);
    network.finish(1_000 * US);
    let (data, probes) = (times(&network, Kind::Data), times(&network, Kind::Probe));
    let first_ns = data[0];
    assert!(probes.first().is_some_and(|&at_ns| at_ns < first_ns + 200 * US), "{probes:?}");
    let by = |us: u64| data.iter().filter(|&&at_ns| at_ns < first_ns + us * US).count();
    // At line rate 89 leave in 100 us.
    let (early, late) = (by(100), by(900) - by(800));
    assert!(early > 80, "nothing was wrong yet: {early}");
    assert!(late < 20, "{late} of the ninth 100 us");
    assert!(data.len() < 500, "{} of the first millisecond", data.len());
}

#[test]
fn who_has_vanished_is_asked_less_and_less_often_and_sent_little() {
    let mut network = network(|_, _, _| false);
    begin(&mut network, LENGTH);
    network.finish(100 * US);
    network.dead[1] = true;
    let before = times(&network, Kind::Data).len();
    network.finish(1_000 * US);
    let sent = times(&network, Kind::Data).len() - before;
    assert!(sent < 400, "{sent} packets in 900 us, of some 800 at line rate");
    network.finish(SECOND / 2);
    let probes = times(&network, Kind::Probe);
    assert!((3..20).contains(&probes.len()), "{probes:?}");
}

#[test]
fn who_was_not_heard_of_is_sent_to_at_full_speed_as_soon_as_he_is() {
    let mut network = network(|_, datagram, before| is_data(datagram) && before < 100);
    begin(&mut network, LENGTH);
    let events = network.finish(SECOND);
    assert!(events.iter().any(|(rank, event)| *rank == 1 && matches!(event, Event::Received { .. })));
    // 1,220 packets at line rate take 1.37 ms; the silence lasts 0.1 ms.
    let data = times(&network, Kind::Data);
    let took_ns = data[data.len() - 1] - data[0];
    assert!(took_ns < 1_600 * US, "{took_ns} ns");
}

/// Rank 0 sends so many rows of ten packets each, and has no more for now.
fn first_rows(network: &mut Network, rows: usize, best_effort: bool) {
    let gradient = Random(1).gradient(LENGTH);
    let layout = layout(LENGTH);
    let wanted = Expectation { layout: layout.clone(), ..expectation(&network.endpoints[1], LENGTH) };
    network.endpoints[1].expect(0, 0, 5, wanted).expect("expected once");
    let message = encode(&network.endpoints[0], 5, &gradient, PLANES);
    let outbound =
        Outbound { message: 5, layout, planes: PLANES, want_map: false, best_effort, pace: Pace::LINE };
    network.endpoints[0].open(0, 1, &outbound).expect("opened once");
    for (number, row) in
        Row::of_message(&message, network.endpoints[0].mask()).into_iter().enumerate().take(rows)
    {
        network.endpoints[0].supply(0, 1, 5, number, row).expect("in order");
    }
}

/// Number of a DATA packet.
fn index(datagram: &Datagram) -> u32 {
    datagram.header().expect("own").index
}

/// When packets left again.
fn again(network: &Network, which: std::ops::Range<u32>) -> Vec<u64> {
    let data = network.log.iter().filter(|(_, from, datagram)| *from == 0 && is_data(datagram));
    let mut seen = std::collections::BTreeSet::new();
    data.filter(|(_, _, datagram)| which.contains(&index(datagram)) && !seen.insert(index(datagram)))
        .map(|(at_ns, ..)| *at_ns)
        .collect()
}

#[test]
fn a_repair_that_arrives_tells_of_losses_of_what_left_before_it() {
    // One in the middle is lost, and the last half; what is sent for the first time goes before the
    // repair.
    let mut network = network(|_, datagram, before| {
        is_data(datagram) && before < 100 && (index(datagram) == 10 || index(datagram) >= 50)
    });
    first_rows(&mut network, 10, true);
    network.finish(10_000 * US);
    let (repair, tail) = (again(&network, 10..11), again(&network, 50..100));
    assert_eq!((repair.len(), tail.len()), (1, 50), "each once");
    // A round trip after the repair, and the time for which its acknowledgement may be held back;
    // the fifty take 56 us.
    assert!(tail[0] > repair[0] && tail[49] < repair[0] + 100 * US, "{repair:?} {tail:?}");
    assert!(times(&network, Kind::Probe).iter().all(|&at_ns| at_ns > tail[49]), "nobody had to ask");
}

#[test]
fn a_tail_behind_which_nothing_is_sent_for_now_is_asked_about_soon() {
    let mut network = network(|_, datagram, before| is_data(datagram) && (50..100).contains(&before));
    first_rows(&mut network, 10, false);
    network.finish(10_000 * US);
    let tail = again(&network, 50..100);
    assert_eq!(tail.len(), 50, "each once");
    assert!(tail[0] < times(&network, Kind::Data)[99] + 250 * US, "{tail:?}");
    assert!(tail[49] < tail[0] + 100 * US, "{tail:?}");
}

/// Rank 0's rate to rank 1, and its losses.
fn rate_and_losses(network: &Network) -> (u64, u64) {
    let endpoint = &network.endpoints[0];
    (endpoint.rate_bps(1).expect("a rank"), endpoint.peer_stats(1).expect("a rank").lost)
}

#[test]
fn losses_that_are_found_out_later_do_not_slow_down_who_has_slowed_down_since() {
    let faults = Faults { data_delay_ns: 100 * US, control_delay_ns: 100 * US, ..Faults::NONE };
    let algorithm = RateConfig::Dctcp(DctcpConfig::default());
    // Of 270 packets at line rate some in the middle are lost, which those behind tell, and the
    // last forty.
    let mut network = network_of(faults, algorithm, |_, datagram, before| {
        is_data(datagram)
            && ((100..130).contains(&index(datagram)) && before < 270 || (230..270).contains(&before))
    });
    first_rows(&mut network, 27, false);
    let mut slow = (LINE_BPS, 0);
    let told = (1..100).map(|step| step * 20 * US).find_map(|until_ns| {
        network.finish(until_ns);
        let now = rate_and_losses(&network);
        let before = std::mem::replace(&mut slow, now);
        (now.1 > 30).then_some((before, now))
    });
    let ((before_bps, before), (bps, lost)) = told.expect("found out within two milliseconds");
    assert!(before_bps < LINE_BPS * 3 / 4 && before == 30, "{before_bps} bit/s after {before} losses");
    network.finish(10_000 * US);
    let (later_bps, all) = rate_and_losses(&network);
    assert!(bps >= before_bps && later_bps >= bps, "{before_bps}, {bps}, {later_bps} bit/s");
    assert!(lost > 30 && all == 70, "{lost}, {all} losses");
}

/// Rank 0 sends to rank 1, which only receives; where `runs`, each knows from elsewhere that the
/// other runs after twenty seconds.
fn never_met(runs: bool) -> Network {
    // What rank 1 sends is dropped, and it hears rank 0: a firewall lets one direction through.
    let mut network = network(|from, _, _| from == 1);
    for rank in 0..2 {
        if runs {
            network.endpoints[rank].expect_answer(20 * SECOND, 1 - rank as u16);
        }
    }
    begin(&mut network, LENGTH);
    network
}

#[test]
fn who_runs_and_is_never_heard_is_given_up_by_senders_and_receivers_and_not_before_its_time() {
    let mut network = never_met(true);
    assert!(network.finish(29 * SECOND).is_empty(), "ten seconds after the twentieth");
    let events = network.finish(31 * SECOND);
    let why = |event: &Event| if let Event::Failed { error, .. } = event { Some(*error) } else { None };
    let unanswered = |event| matches!(why(event), Some(TransferError::Unanswered { peer: 1, .. }));
    let silent = |event| matches!(why(event), Some(TransferError::Silent { peer: 0, .. }));
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(events.iter().any(|(rank, event)| *rank == 0 && unanswered(event)), "{events:?}");
    assert!(events.iter().any(|(rank, event)| *rank == 1 && silent(event)), "{events:?}");
}

#[test]
fn who_comes_within_its_time_or_is_not_known_to_run_is_waited_for() {
    let mut network = network(|_, _, _| false);
    network.endpoints[0].expect_answer(20 * SECOND, 1);
    network.dead[1] = true;
    network.send(0, 1, 5, &Random(1).gradient(LENGTH));
    assert!(network.finish(29 * SECOND).is_empty());
    network.dead[1] = false;
    network.expect(1, 0, 5, LENGTH);
    let events = network.finish(40 * SECOND);
    assert!(matches!(&events[..], [(1, Event::Received { .. }), (0, Event::Sent { .. })]), "{events:?}");
    assert!(never_met(false).finish(300 * SECOND).is_empty(), "it may start yet");
}
