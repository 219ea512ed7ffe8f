// SPDX-License-Identifier: Apache-2.0
//! Paths of any MTU: packets fit what interfaces and paths carry, whatever the operation, and a
//! path that shrinks is lived with.

use crate::group::Group;
use crate::network::{Faults, Network, Random};
use std::cell::Cell;
use trimwire_agent::collective::{Collective, Communicator, Memory, Options, Outcome};
use trimwire_agent::endpoint::{Event, Reliability};
use trimwire_agent::transfer::TransferError;
use trimwire_encoder::SealKey;
use trimwire_encoder::wire::Kind;

const SECOND_NS: u64 = 1_000_000_000;
const SIZES: [u16; 7] = [576, 1_280, 1_450, 1_500, 4_000, 9_000, 9_216];

/// What the path carries just now; each test has a thread of its own.
fn carries(now_ns: u64, from: usize, to: usize) -> usize {
    PATH.with(|path| path.get()(now_ns, from, to))
}

thread_local! {
    static PATH: Cell<fn(u64, usize, usize) -> usize> = const { Cell::new(|_, _, _| usize::MAX) };
    static MOST: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Ranks with interfaces of these MTUs, who agree on `layout`.
fn group(
    own: &[u16],
    layout: u16,
    faults: Faults,
    path: fn(u64, usize, usize) -> usize,
    sealed: bool,
) -> Group {
    PATH.with(|cell| cell.set(path));
    let world = own.len() as u16;
    let key = SealKey::from_bytes(&[7; 32]).expect("32 bytes");
    let mut network = Network::with(world, faults, 1, |config| {
        config.mtu = Some(own[usize::from(config.rank)]);
        config.reliability = Reliability::Bounded { loss: 0.01 };
        config.seal = sealed.then(|| key.clone());
    });
    network.carries = Some(carries);
    network.most = 400_000;
    let mut group = Group { network, ..Group::new(world, Faults::NONE, 1, Reliability::Full, 15) };
    for communicator in &mut group.communicators {
        let config = communicator.config().clone();
        *communicator = Communicator::new(trimwire_agent::collective::CommunicatorConfig {
            mtu: layout.into(),
            ..config
        });
    }
    group
}

/// Sums a gradient of each rank; gives the outcomes, and how far each is from the sum (NMSE).
fn all_reduce(group: &mut Group, number: u32, length: usize, options: &Options) -> Vec<(Outcome, f64)> {
    let world = group.communicators.len();
    let gradients: Vec<Vec<f32>> = (0..world).map(|rank| Random(rank as u64 + 5).gradient(length)).collect();
    let sum: Vec<f32> = (0..length).map(|at| gradients.iter().map(|gradient| gradient[at]).sum()).collect();
    for (rank, gradient) in gradients.into_iter().enumerate() {
        let tensor = Memory::from_vec(gradient);
        group.start(rank, number, Collective::AllReduce { tensor }, options).expect("valid");
    }
    let until_ns = group.network.now_ns + 60 * SECOND_NS;
    let mut outcomes = group.run(until_ns);
    outcomes.sort_by_key(|(rank, _)| *rank);
    assert_eq!(outcomes.len(), world, "all end");
    let measured = outcomes.into_iter().map(|(_, mut outcome)| {
        let got = outcome.output.take().and_then(|memory| memory.into_vec::<f32>().ok()).unwrap_or_default();
        let error = if outcome.result.is_ok() { trimwire_encoder::nmse(&got, &sum) } else { f64::NAN };
        (outcome, error)
    });
    measured.collect()
}

fn exact() -> Options {
    Options { exact: true, ..Options::default() }
}

fn bounded() -> Options {
    Options::default()
}

fn longest(group: &Group, kind: Kind) -> usize {
    let of_kind = group.network.longest.iter().filter(|((_, _, other), _)| *other == kind as u8);
    of_kind.map(|(_, &longest)| longest).max().unwrap_or(0)
}

fn pieces(group: &Group) -> u64 {
    group.network.endpoints.iter().map(|endpoint| endpoint.stats().pieces_sent).sum()
}

#[test]
fn packets_are_as_long_as_interfaces_allow_and_nothing_is_divided() {
    for size in SIZES {
        for sealed in [false, true] {
            MOST.with(|most| most.set(size.into()));
            let mut group = group(&[size; 3], size, Faults::NONE, |_, _, _| MOST.get(), sealed);
            for (number, options, most) in [(0, bounded(), 1e-10), (1, exact(), 1e-13)] {
                for (outcome, error) in all_reduce(&mut group, number, 100_000, &options) {
                    assert!(outcome.result.is_ok() && error < most, "{size}: {:?}, {error}", outcome.result);
                }
            }
            assert_eq!(pieces(&group), 0);
            let data = longest(&group, Kind::Data);
            // A block of 32 coordinates takes 128 bytes exactly; headers of IPv6 are allowed for.
            assert!(data <= size.into() && data + 150 > size.into(), "{size}: {data}");
            for rank in 0..3 {
                let other = u16::from(rank == 0);
                assert_eq!(group.network.endpoints[rank].path_mtu(other), Some(size));
            }
            assert!(group.is_quiet());
        }
    }
}

#[test]
fn a_path_that_carries_less_than_the_interfaces_is_found_before_the_first_data_and_lived_with() {
    // Layouts are of 9,000 bytes throughout.
    for (size, sealed) in [
        (576, false),
        (576, true),
        (1_280, false),
        (1_450, true),
        (1_500, false),
        (4_000, false),
        (8_000, false),
    ] {
        MOST.with(|most| most.set(size));
        let mut group = group(&[9_000; 2], 9_000, Faults::NONE, |_, _, _| MOST.get(), sealed);
        group.network.keep_log = true;
        for (number, options, most) in [(0, exact(), 1e-13), (1, bounded(), 1e-10)] {
            for (outcome, error) in all_reduce(&mut group, number, 300_000, &options) {
                assert!(outcome.result.is_ok() && error < most, "{size}: {:?}, {error}", outcome.result);
                assert_eq!(outcome.stats.missing, 0);
            }
        }
        let found = group.network.endpoints[0].path_mtu(1).expect("asked");
        assert!(usize::from(found) <= size && size - usize::from(found) <= 32, "{found} of {size}");
        let kinds = [Kind::Data as u8, Kind::Piece as u8];
        let long = group.network.log.iter().filter(|(_, _, datagram)| {
            kinds.contains(&(datagram.payload[0] & 15)) && datagram.payload.len() + 28 > size
        });
        assert_eq!(long.count(), 0, "no data was lost to the search");
        assert!(pieces(&group) > 0 && longest(&group, Kind::Piece) <= size);
        assert_eq!(group.network.endpoints[0].stats().repairs_sent, 0);
    }
}

#[test]
fn two_ranks_with_other_interfaces_send_what_the_smaller_one_takes() {
    // Whether or not the layout knew of it.
    for (layout, divided) in [(1_450, false), (9_000, true)] {
        let smaller = |_, from: usize, to: usize| if from == 2 || to == 2 { 1_450 } else { 9_000 };
        let mut group = group(&[9_000, 9_000, 1_450], layout, Faults::NONE, smaller, false);
        for (number, options, most) in [(0, bounded(), 1e-10), (1, exact(), 1e-13)] {
            for (outcome, error) in all_reduce(&mut group, number, 200_000, &options) {
                assert!(outcome.result.is_ok() && error < most, "{:?}, {error}", outcome.result);
            }
        }
        assert_eq!(group.network.endpoints[0].path_mtu(2), Some(1_450));
        assert_eq!(group.network.endpoints[0].path_mtu(1), Some(9_000));
        assert_eq!(pieces(&group) > 0, divided);
    }
}

/// When the path shrinks: in the middle of an operation that takes about so long.
const SHRINKS_NS: u64 = 1_500_000;

#[test]
fn a_path_that_shrinks_in_the_middle_of_an_operation_is_noticed_and_the_operation_ends() {
    let shrinks = |now_ns, _, _| if now_ns < SHRINKS_NS { 9_000 } else { 1_400 };
    for (options, most) in [(exact(), 1e-13), (bounded(), 0.02)] {
        for sealed in [false, true] {
            let mut group = group(&[9_000; 2], 9_000, Faults::NONE, shrinks, sealed);
            // 16 MiB: 7 ms at 10 Gbit/s each way.
            for (outcome, error) in all_reduce(&mut group, 0, 4 << 20, &options) {
                assert!(outcome.result.is_ok() && error < most, "{:?}, {error}", outcome.result);
            }
            let now_ns = group.network.now_ns;
            assert!(now_ns > SHRINKS_NS && now_ns < SECOND_NS, "{now_ns}");
            let found = group.network.endpoints[0].path_mtu(1).expect("asked");
            assert!((1_280..=1_400).contains(&found), "{found}");
            // And the next one does not wait for anything.
            let before_ns = group.network.now_ns;
            for (outcome, error) in all_reduce(&mut group, 1, 100_000, &options) {
                assert!(outcome.result.is_ok() && error < most);
            }
            assert!(group.network.now_ns - before_ns < SECOND_NS / 10);
        }
    }
}

#[test]
fn answers_that_are_too_long_for_the_way_back_are_found_out_about_by_who_misses_them() {
    const LATE_NS: u64 = 25_000_000;
    // Maps of what was trimmed at random, of as many packets as ten milliseconds hold, are long.
    let (delay_ns, trim) = (5_000_000, 0.4);
    let faults = Faults {
        trim,
        trim_to_at_least: 60,
        data_delay_ns: delay_ns,
        control_delay_ns: delay_ns,
        ..Faults::NONE
    };
    let mut network = Network::with(2, faults, 1, |config| {
        (config.mtu, config.reliability) = (Some(1_500), Reliability::Full);
    });
    network.carries = Some(|now_ns, from, _| if from == 1 && now_ns >= LATE_NS { 700 } else { 1_500 });
    network.keep_log = true;
    let gradient = network.random.gradient(8 << 20);
    network.expect(1, 0, 7, gradient.len());
    network.send(0, 1, 7, &gradient);
    let events = network.finish(60 * SECOND_NS);
    assert!(events.iter().all(|(_, event)| !matches!(event, Event::Failed { .. })), "{events:?}");
    assert_eq!(events.len(), 2, "sent and received: {events:?}");
    let answers = [Kind::Status as u8, Kind::Ack as u8];
    let lost = network.log.iter().filter(|(at_ns, _, datagram)| {
        let long = datagram.payload.len() + 28 > 700;
        *at_ns >= LATE_NS && answers.contains(&(datagram.payload[0] & 15)) && long
    });
    assert!(lost.count() > 0, "or nothing was tried");
    let back = network.endpoints[1].path_mtu(0);
    assert!(back.is_some_and(|mtu| (576..=700).contains(&mtu)), "{back:?}");
    assert_eq!(network.endpoints[0].path_mtu(1), Some(1_500));
}

#[test]
fn an_interface_that_shrinks_is_believed_at_once() {
    PATH.with(|cell| cell.set(|_, _, _| 9_000));
    let mut group = group(&[9_000; 2], 9_000, Faults::NONE, |_, _, _| 9_000, false);
    all_reduce(&mut group, 0, 10_000, &exact());
    let now_ns = group.network.now_ns;
    group.network.endpoints[0].set_mtu(now_ns, 1_280);
    assert_eq!(group.network.endpoints[0].path_mtu(1), Some(1_280));
    for (outcome, error) in all_reduce(&mut group, 1, 100_000, &exact()) {
        assert!(outcome.result.is_ok() && error < 1e-13);
    }
    assert!(longest(&group, Kind::Piece) <= 1_280 && pieces(&group) > 0);
}

#[test]
fn a_path_below_576_bytes_fails_with_an_error_that_names_the_mtu() {
    let mut group = group(&[1_500; 2], 1_500, Faults::NONE, |_, _, _| 390, false);
    for (outcome, _) in all_reduce(&mut group, 0, 50_000, &exact()) {
        let error = outcome.result.expect_err("nothing gets through").to_string();
        assert!(error.contains("576"), "{error}");
    }
    // The sender says more than the one that waits.
    let mut network = Network::with(2, Faults::NONE, 1, |config| config.mtu = Some(1_500));
    network.carries = Some(|_, _, _| 390);
    network.most = 100_000;
    let gradient = network.random.gradient(10_000);
    network.expect(1, 0, 7, gradient.len());
    network.send(0, 1, 7, &gradient);
    let events = network.finish(60 * SECOND_NS);
    let error = events.iter().find_map(|(rank, event)| match event {
        Event::Failed { error, .. } if *rank == 0 => Some(*error),
        _ => None,
    });
    let error = error.expect("fails");
    assert!(
        matches!(error, TransferError::PathMtu { peer: 1, least: 576, packet: 1_200.., .. }),
        "{error:?}"
    );
    let text = error.to_string();
    assert!(text.contains("the path to 10.0.0.2:9217 (rank 1) carries no IP packets of 576 bytes"), "{text}");
}

#[test]
fn loss_and_reordering_do_not_make_a_path_shorter_for_long() {
    let faults =
        Faults { drop_data: 0.05, drop_control: 0.3, jitter_ns: 50_000, duplicate: 0.1, ..Faults::NONE };
    let mut group = group(&[9_000; 3], 9_000, faults, |_, _, _| 4_000, false);
    for number in 0..6 {
        for (outcome, error) in all_reduce(&mut group, number, 200_000, &exact()) {
            assert!(outcome.result.is_ok() && error < 1e-13, "{:?}", outcome.result);
        }
    }
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        let found = group.network.endpoints[from].path_mtu(to).expect("asked");
        assert!((1_280..=4_000).contains(&found), "{found}");
    }
}
