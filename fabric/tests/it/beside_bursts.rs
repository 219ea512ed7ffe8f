// SPDX-License-Identifier: Apache-2.0
//! All-reduces of the real agent, over slow links through the real program, beside neighbours'
//! bursts.

use crate::fabric_program::programmed;
use trimwire_agent::collective::{CommunicatorConfig, Options};
use trimwire_agent::endpoint::{EndpointConfig, Reliability, Traffic};
use trimwire_fabric::cluster::{Cluster, ClusterConfig};
use trimwire_fabric::cross_traffic::CrossTraffic;

const RATE: u64 = 50_000_000;
/// The thresholds of the program are bytes, those of 10 Gbit/s: times are so many times longer
/// here.
const SLOWER: u64 = 10_000_000_000 / RATE;
/// A mebibyte of f32.
const LENGTH: usize = 262_144;

/// How long `steps` all-reduces took, shortest first, ns. With `others` times the line rate of
/// neighbours, a fifth of the time, or with nobody else; over a switch that trims, or one that
/// drops.
fn durations(workers: u16, trims: bool, others: u16, steps: u32) -> Vec<u64> {
    let config = ClusterConfig {
        workers,
        link_bps: RATE,
        delay_ns: 10_000,
        cross_groups: 1,
        cross_per_group: others,
        cross: (others > 0).then_some(CrossTraffic {
            burst_ns: 200_000 * SLOWER,
            gap_ns: 800_000 * SLOWER,
            payload: 1_472,
            tos: 19 << 2 | 2,
        }),
        seed: 1,
        sample_ns: 1_000_000_000,
    };
    let switch = programmed(&config, trims);
    let mut cluster = Cluster::new(&config, switch, 9217, |rank| {
        let endpoint = EndpointConfig {
            reliability: if trims { Reliability::Bounded { loss: 0.0 } } else { Reliability::Full },
            traffic: if trims { Traffic::Trimmable } else { Traffic::Droppable },
            trim_delay_ns: 20_000 * SLOWER,
            ..EndpointConfig::new(rank, workers, RATE)
        };
        (endpoint, CommunicatorConfig::new(rank, workers), Options::default())
    })
    .unwrap();
    let value = |rank: usize, i: usize| ((i * 7919 + rank * 104_729) % 2_001) as f32 / 1e3 - 1.0;
    let gradients: Vec<Vec<f32>> =
        (0..usize::from(workers)).map(|rank| (0..LENGTH).map(|i| value(rank, i)).collect()).collect();
    let mut durations: Vec<u64> = (0..steps)
        .map(|step| {
            let start_ns = cluster.now_ns() + 100_000 * SLOWER;
            cluster.run_until(start_ns);
            let done = cluster.all_reduce(step, gradients.clone()).unwrap();
            done.iter().map(|rank| rank.at_ns).max().unwrap() - start_ns
        })
        .collect();
    durations.sort_unstable();
    durations
}

/// No rank goes below its part while it is trimmed. (When it did, the slowest of forty of two ranks
/// took 1.7 times what it takes alone.)
#[test]
fn beside_bursts_no_all_reduce_takes_longer_than_without() {
    for workers in [2, 4, 8] {
        let idle_ns = durations(workers, true, 0, 2)[1] as f64;
        for others in [2, 7] {
            let slowest = durations(workers, true, others, 40)[39] as f64 / idle_ns;
            println!("trims, {workers} ranks, {others} others: {slowest:.2} of idle");
            assert!(slowest < 1.1, "{workers} ranks, {others} others: {slowest}");
        }
    }
}

/// What Gloo's slowest takes, over TCP in namespaces beside 3:1, with two, four and eight ranks
/// (docs/figures/congestion.md).
const GLOOS_NS: [(u16, u64); 3] = [(2, 857_000_000), (4, 901_000_000), (8, 992_000_000)];

/// What a burst takes off a rate comes back as soon as it is over. (By additions alone two ranks'
/// slowest took 1.1 s, and 3.5 s beside 8:1.)
#[test]
fn beside_bursts_over_a_switch_that_drops_no_all_reduce_takes_half_as_long_as_gloos_slowest() {
    for (workers, gloo_ns) in GLOOS_NS {
        for others in [2, 7] {
            let slowest_ns = durations(workers, false, others, 40)[39];
            println!("drops, {workers} ranks, {others} others: {} ms", slowest_ns / 1_000_000);
            // Of 8:1 there is no figure of Gloo's: it is no faster there.
            let most_ns = if others == 2 { gloo_ns / 2 } else { gloo_ns };
            assert!(slowest_ns < most_ns, "{workers} ranks, {others} others: {slowest_ns} ns");
        }
    }
}
