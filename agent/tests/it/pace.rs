// SPDX-License-Identifier: Apache-2.0
//! What a pace promises: data that leaves planes out on purpose leaves no faster for it.

use crate::group::Group;
use crate::network::{Faults, Random};
use trimwire_agent::collective::{Collective, Memory, Options};
use trimwire_agent::endpoint::Reliability;
use trimwire_agent::pacing::Pace;
use trimwire_encoder::{Codec, nmse};

const SECOND: u64 = 1_000_000_000;
const WORLD: u16 = 3;
const LENGTH: usize = 800_000;

fn gradient(rank: usize) -> Vec<f32> {
    Random(rank as u64 + 1).gradient(LENGTH)
}

/// Seconds until the last rank has the sum, and the greatest error.
fn seconds(planes: u8, pace: Pace) -> (f64, f64) {
    let mut group = Group::new(WORLD, Faults::NONE, 1, Reliability::Full, 15);
    let options = Options { planes, pace, ..Options::default() };
    for rank in 0..usize::from(WORLD) {
        let collective = Collective::AllReduce { tensor: Memory::from_vec(gradient(rank)) };
        group.start(rank, 1, collective, &options).expect("a valid operation");
    }
    let gradients: Vec<Vec<f32>> = (0..usize::from(WORLD)).map(gradient).collect();
    let sum = |i: usize| gradients.iter().map(|part| f64::from(part[i])).sum::<f64>() as f32;
    let exact: Vec<f32> = (0..LENGTH).map(sum).collect();
    let (mut slowest, mut error) = (0, 0.0_f64);
    for (_, outcome) in group.run(300 * SECOND) {
        slowest = slowest.max(outcome.duration_ns);
        error = error.max(nmse(&outcome.into_f32().expect("a sum"), &exact));
    }
    (slowest as f64 / 1e9, error)
}

#[test]
fn data_leaves_at_the_share_of_the_lines_rate_that_was_asked_for() {
    let (whole, error) = seconds(9, Pace::LINE);
    for share in [0.5, 0.2, 0.05] {
        let (paced, same) = seconds(9, Pace::of_share(share));
        let ratio = paced * share / whole;
        assert!((0.9..1.1).contains(&ratio), "{share} of the rate takes {} times as long", paced / whole);
        assert_eq!(same, error, "when packets leave does not change what they say");
    }
}

#[test]
fn fewer_planes_at_their_share_of_the_rate_take_as_long_as_all() {
    // Bytes of a coordinate.
    let length = |planes| {
        let n = Codec::Rht.coordinates_per_packet(1_500, planes, false);
        (Codec::Rht.packet_len(planes, n, false) as f64 + 42.0) / n as f64
    };
    let (whole, _) = seconds(9, Pace::LINE);
    for planes in [1, 3, 6] {
        let share = length(planes) / length(9);
        let (spaced, _) = seconds(planes, Pace::of_share(share));
        assert!((0.9..1.1).contains(&(spaced / whole)), "{planes} planes: {spaced} s for {whole}");
        let (hurried, _) = seconds(planes, Pace::LINE);
        assert!(hurried < 1.3 * share * whole, "{planes} planes at the line's rate: {hurried} s for {whole}");
    }
}
