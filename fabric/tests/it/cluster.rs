// SPDX-License-Identifier: Apache-2.0
//! A cluster on the committed P4 program.

use crate::fabric_program::{RATE, programmed};
use trimwire_agent::collective::{CommunicatorConfig, Options};
use trimwire_agent::endpoint::{EndpointConfig, Reliability, Traffic};
use trimwire_encoder::nmse;
use trimwire_fabric::cluster::{Cluster, ClusterConfig, ClusterError, Completed};
use trimwire_fabric::cross_traffic::CrossTraffic;
use trimwire_switch::SharedSwitch;

const WORKERS: u16 = 4;
const LENGTH: usize = 40_000;

struct Setup {
    cluster: Cluster,
    switch: SharedSwitch,
}

fn setup(congested: bool, trim: bool) -> Setup {
    let config = ClusterConfig {
        workers: WORKERS,
        link_bps: RATE,
        delay_ns: 1_000,
        cross_groups: 1,
        cross_per_group: 2,
        cross: congested.then_some(CrossTraffic {
            burst_ns: 200_000,
            gap_ns: 200_000,
            payload: 1_472,
            tos: 19 << 2 | 2,
        }),
        seed: 3,
        sample_ns: 10_000,
    };
    let switch = programmed(&config, trim);
    let cluster = Cluster::new(&config, switch.clone(), 9217, |rank| {
        let (reliability, traffic) = if trim {
            (Reliability::Bounded { loss: 0.0 }, Traffic::Trimmable)
        } else {
            (Reliability::Full, Traffic::Droppable)
        };
        let endpoint = EndpointConfig { reliability, traffic, ..EndpointConfig::new(rank, WORKERS, RATE) };
        (endpoint, CommunicatorConfig::new(rank, WORKERS), Options::default())
    })
    .unwrap();
    Setup { cluster, switch }
}

fn gradients(step: usize) -> Vec<Vec<f32>> {
    let value =
        |rank: usize, i: usize| ((i * 7919 + rank * 104_729 + step * 1_299_709) % 2_001) as f32 / 1e3 - 1.0;
    (0..usize::from(WORKERS)).map(|rank| (0..LENGTH).map(|i| value(rank, i)).collect()).collect()
}

fn exact(gradients: &[Vec<f32>]) -> Vec<f32> {
    (0..LENGTH).map(|i| gradients.iter().map(|g| f64::from(g[i])).sum::<f64>() as f32).collect()
}

fn steps(setup: &mut Setup, count: u32) -> Vec<Vec<Completed>> {
    (0..count)
        .map(|step| {
            let at_ns = setup.cluster.now_ns() + 100_000;
            setup.cluster.run_until(at_ns);
            setup.cluster.all_reduce(step, gradients(step as usize)).unwrap()
        })
        .collect()
}

#[test]
fn an_idle_fabric_sums_exactly() {
    let results = steps(&mut setup(false, false), 2);
    for (step, ranks) in results.iter().enumerate() {
        let exact = exact(&gradients(step));
        for completed in ranks {
            assert!(nmse(&completed.outcome.sum, &exact) < 1e-11);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let mut setup = setup(true, true);
        let bits: Vec<(u64, Vec<u32>)> = steps(&mut setup, 3)
            .into_iter()
            .flatten()
            .map(|c| (c.at_ns, c.outcome.sum.iter().map(|v| v.to_bits()).collect()))
            .collect();
        (bits, setup.cluster.occupancy().to_vec(), setup.cluster.packet_hops())
    };
    assert!(run() == run());
}

#[test]
fn under_congestion_packets_are_cut_and_decoded_and_nothing_waits_for_a_retransmission() {
    let mut trimmed = setup(true, true);
    let mut repaired = setup(true, false);
    let (fast, slow) = (steps(&mut trimmed, 8), steps(&mut repaired, 8));
    let totals = trimmed.cluster.endpoint_totals();
    assert!(totals.trimmed_received > 100, "{totals:?}");
    for (step, ranks) in fast.iter().enumerate() {
        let exact = exact(&gradients(step));
        for completed in ranks {
            let error = nmse(&completed.outcome.sum, &exact);
            assert!(error < 0.6, "no worse than all signs: {error}");
        }
    }
    for (step, ranks) in slow.iter().enumerate() {
        let exact = exact(&gradients(step));
        assert!(
            ranks.iter().all(|completed| nmse(&completed.outcome.sum, &exact) < 1e-11),
            "repaired is exact"
        );
    }
    let total = |runs: &[Vec<Completed>]| -> u64 {
        runs.iter().filter_map(|ranks| ranks.iter().map(|c| c.outcome.duration_ns).max()).sum()
    };
    assert!(total(&fast) < total(&slow), "{} ns with trimming, {} ns without", total(&fast), total(&slow));
}

#[test]
fn every_packet_offered_is_admitted_cut_or_dropped_and_counted() {
    for trim in [true, false] {
        let mut setup = setup(true, trim);
        steps(&mut setup, 4);
        let mut switch = setup.switch.lock().unwrap();
        let received = switch.stats().received;
        let control = switch.pipeline().unwrap().control();
        let sum = |control: &trimwire_switch::engine::Control, name: &str, cells: u64| -> u64 {
            (0..cells).map(|cell| control.counter(name, cell).unwrap().packets).sum()
        };
        let counted: u64 = ["admitted", "trimmed", "trim_dropped", "selective_dropped", "tail_dropped"]
            .iter()
            .map(|name| sum(control, &format!("Ingress.{name}"), 4096))
            .sum();
        assert_eq!(counted + sum(control, "Ingress.unroutable", 1), received);
        assert_eq!(sum(control, "Ingress.trimmed", 4096) > 0, trim);
        assert!(
            sum(control, "Ingress.selective_dropped", 4096) + sum(control, "Ingress.tail_dropped", 4096) > 0
        );
    }
}

#[test]
fn a_rank_that_vanishes_is_named() {
    let mut setup = setup(false, true);
    steps(&mut setup, 1);
    setup.cluster.set_rank_link(2, false);
    let error = setup.cluster.all_reduce(9, gradients(9)).unwrap_err();
    assert!(matches!(error, ClusterError::Rank { step: 9, .. }), "{error}");
    assert!(error.to_string().contains("rank 2 "), "{error}");
}
