// SPDX-License-Identifier: Apache-2.0
//! Sixty-four ranks in virtual time, over the committed P4 program: every way to sum, its bits, its
//! bytes.

use crate::fabric_program::{RATE, programmed};
use trimwire_agent::collective::{Algorithm, CommunicatorConfig, Options};
use trimwire_agent::endpoint::{EndpointConfig, Reliability, Traffic};
use trimwire_encoder::nmse;
use trimwire_fabric::cluster::{Cluster, ClusterConfig, Completed};

const RANKS: u16 = 64;
/// Ranks on a host, for two levels.
const TOGETHER: u32 = 8;
const LENGTH: usize = 1 << 17;

/// All ranks' results, bytes that the busiest of them sent, and when the last one had its sum, ns.
fn run(algorithm: Algorithm, trim: bool, gradients: &[Vec<f32>]) -> (Vec<Completed>, u64, u64) {
    let config = ClusterConfig {
        workers: RANKS,
        link_bps: RATE,
        delay_ns: 1_000,
        cross_groups: 0,
        cross_per_group: 0,
        cross: None,
        seed: 3,
        sample_ns: 1_000_000,
    };
    let switch = programmed(&config, trim);
    let mut cluster = Cluster::new(&config, switch, 9217, |rank| {
        let (reliability, traffic) = if trim {
            (Reliability::Bounded { loss: 0.0 }, Traffic::Trimmable)
        } else {
            (Reliability::Full, Traffic::Droppable)
        };
        let endpoint = EndpointConfig { reliability, traffic, ..EndpointConfig::new(rank, RANKS, RATE) };
        let hosts = (0..u32::from(RANKS)).map(|rank| rank / TOGETHER).collect();
        let communicator = CommunicatorConfig { hosts, ..CommunicatorConfig::new(rank, RANKS) };
        (endpoint, communicator, Options { algorithm, ..Options::default() })
    })
    .expect("a cluster");
    let start_ns = cluster.now_ns();
    let completed = cluster.all_reduce(0, gradients.to_vec()).expect("it ends");
    let most = completed.iter().map(|done| done.outcome.stats.bytes_sent).max().unwrap_or(0);
    let end_ns = completed.iter().map(|done| done.at_ns).max().unwrap_or(0);
    (completed, most, end_ns - start_ns)
}

#[test]
fn every_way_of_64_ranks_gives_the_sum_with_hardly_more_bytes_than_it_needs() {
    let value = |rank: usize, i: usize| ((i * 7919 + rank * 104_729) % 2_001) as f32 / 1e3 - 1.0;
    let gradients: Vec<Vec<f32>> =
        (0..usize::from(RANKS)).map(|rank| (0..LENGTH).map(|i| value(rank, i)).collect()).collect();
    let exact: Vec<f32> = (0..LENGTH)
        .map(|i| gradients.iter().map(|gradient| f64::from(gradient[i])).sum::<f64>() as f32)
        .collect();
    // An all-reduce needs 2 (n − 1) / n of the tensor from every rank, at three bytes a coordinate;
    // a host's ranks share what leaves it.
    let least = 2.0 * f64::from(RANKS - 1) / f64::from(RANKS) * 3.0 * LENGTH as f64;
    println!(
        "| algorithm | switch | time | bytes of the busiest rank, of the least | trimmed | NMSE |\n|---|---|---|---|---|---|"
    );
    for (algorithm, bound) in
        [(Algorithm::Direct, 1.15), (Algorithm::Ring, 1.15), (Algorithm::TwoLevel, 1.15)]
    {
        for trim in [false, true] {
            let (completed, bytes, time_ns) = run(algorithm, trim, &gradients);
            let errors = completed.iter().map(|done| nmse(&done.outcome.sum, &exact));
            let error = errors.fold(0.0, f64::max);
            let (trimmed, packets) = completed.iter().fold((0, 0), |(trimmed, packets), done| {
                (trimmed + done.outcome.stats.trimmed, packets + done.outcome.stats.packets)
            });
            let share = bytes as f64 / least;
            println!(
                "| {algorithm} | {} | {:.2} ms | {share:.2} | {:.2} % | {error:.1e} |",
                if trim { "trims" } else { "drops" },
                time_ns as f64 / 1e6,
                trimmed as f64 * 100.0 / packets as f64,
            );
            assert_eq!(completed.len(), usize::from(RANKS));
            if trimmed == 0 {
                assert!(error < 1e-10, "{algorithm}: {error}");
                assert!(
                    completed.iter().all(|done| done.outcome.sum == completed[0].outcome.sum),
                    "{algorithm}"
                );
            } else {
                assert!(error < 0.5, "{algorithm}: {error}");
            }
            if !trim {
                continue;
            }
            assert!(share < bound, "{algorithm}: {share}");
        }
    }
}
