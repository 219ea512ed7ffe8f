// SPDX-License-Identifier: Apache-2.0
//! One scenario from an unconfigured switch to its figures.

use super::options::Options;
use super::outcome::{Curves, Run, quantile};
use super::scenario::Scenario;
use crate::training::digits::Digits;
use crate::training::job::{Hyper, Job, exact_sum};
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use trimwire_agent::collective::{self, CommunicatorConfig};
use trimwire_agent::endpoint::{EndpointConfig, Reliability, Traffic};
use trimwire_controller as controller;
use trimwire_controller::show::{Rows, What, show_blocking};
use trimwire_controller::{Artifacts, Fabric, apply_blocking};
use trimwire_encoder::{Decoding, nmse};
use trimwire_fabric::cluster::{Cluster, ClusterConfig};
use trimwire_fabric::cross_traffic::CrossTraffic;
use trimwire_switch::{PortConfig, SharedSwitch, Switch, SwitchConfig, server};

/// Speed of every link, bit/s.
pub(super) const LINK_BPS: u64 = 10_000_000_000;
/// Virtual time that a rank computes before each all-reduce.
const COMPUTE_NS: u64 = 500_000;
/// UDP port of the agents.
const UDP_PORT: u16 = 9217;
/// Propagation delay of a link: a hundred metres of fibre and two transceivers.
const DELAY_NS: u64 = 1_000;
/// Mean burst and mean silence of the neighbours: a fifth of the time is congested.
const BURST_NS: u64 = 200_000;
const GAP_NS: u64 = 800_000;
/// DSCP of the neighbours' packets: the droppable code point of the same queue as the gradients',
/// so that strict priority saves neither from the other. ECT: they are as important as anybody's.
const CROSS_TOS: u8 = 19 << 2 | 0b10;
/// A 1500-byte IP packet.
const CROSS_PAYLOAD: u16 = 1472;
/// Bytes that a queue of the switch can hold beyond the policy's `drop_at`: the P4 program is to
/// decide, not the buffer.
const QUEUE_LIMIT: u64 = 16 << 20;
/// Accuracy is measured every so many steps.
const EVALUATE_EVERY: u32 = 5;
/// Virtual time for which the report shows queue occupancy.
const OCCUPANCY_SHOWN_NS: u64 = 10_000_000;

/// The cluster that a scenario runs on.
pub(super) fn cluster_config(scenario: Scenario, options: &Options) -> ClusterConfig {
    ClusterConfig {
        workers: options.workers,
        link_bps: LINK_BPS,
        delay_ns: DELAY_NS,
        cross_groups: options.workers.div_ceil(4),
        cross_per_group: options.congestion - 1,
        cross: scenario.congested().then_some(CrossTraffic {
            burst_ns: BURST_NS,
            gap_ns: GAP_NS,
            payload: CROSS_PAYLOAD,
            tos: CROSS_TOS,
        }),
        seed: options.seed,
        sample_ns: 20_000,
    }
}

/// Runs a scenario; `step_done` is called after every training step. The time to the baseline's
/// accuracy is left open.
pub(super) fn run(scenario: Scenario, options: &Options, step_done: impl Fn()) -> Result<Run> {
    let config = cluster_config(scenario, options);
    let switch = switch(&config, options);
    let server = server::serve(switch.clone(), SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
        .context("the simulated switch's P4Runtime server does not start")?;
    let fabric = configure(scenario, &config, server.local_addr())?;

    let mut cluster = Cluster::new(&config, switch, UDP_PORT, |rank| rank_config(scenario, options, rank))?;
    let mut job = Job::new(Hyper::default(), Digits::load()?, usize::from(options.workers), options.seed);
    let mut totals = Totals::default();
    for step in 0..options.steps {
        cluster.run_until(cluster.now_ns() + COMPUTE_NS);
        let gradients = job.gradients();
        let exact = exact_sum(&gradients);
        let start_ns = cluster.now_ns();
        let completed = cluster.all_reduce(step, gradients)?;
        for (rank, done) in completed.iter().enumerate() {
            totals.nmse += nmse(&done.outcome.sum, &exact);
            job.apply(rank, &done.outcome.sum);
        }
        totals.samples += completed.len();
        let slowest_ns = completed.iter().map(|done| done.at_ns).max().unwrap_or(start_ns);
        totals.curves.allreduce_s.push(seconds(slowest_ns - start_ns));
        if (step + 1) % EVALUATE_EVERY == 0 || step + 1 == options.steps {
            totals.curves.accuracy.push((seconds(cluster.now_ns()), job.accuracy()));
        }
        step_done();
    }
    let switch_counters = switch_counters(&fabric)?;
    Ok(totals.finish(scenario, &cluster, &job, switch_counters))
}

fn switch(config: &ClusterConfig, options: &Options) -> SharedSwitch {
    let line = PortConfig { rate_bps: LINK_BPS, queue_limit_bytes: QUEUE_LIMIT };
    let ports = (1..=config.workers + config.cross_senders()).map(|port| (port, line)).collect();
    let switch =
        Switch::new(SwitchConfig { device_id: 1, ports, seed: options.seed, ..SwitchConfig::default() });
    Arc::new(Mutex::new(switch))
}

/// Has the controller bring the switch up, over gRPC.
fn configure(scenario: Scenario, config: &ClusterConfig, address: SocketAddr) -> Result<Fabric> {
    let yaml = scenario.fabric_yaml(config, address);
    let fabric = Fabric::from_yaml(&yaml, &format!("{}.yaml", scenario.name()))?;
    let report = apply_blocking(&fabric, &Artifacts::embedded()?, &controller::Options::default())?;
    ensure!(report.is_ok(), "the controller could not bring the fabric up:\n{report}");
    Ok(fabric)
}

/// Packets by counter, over all ports and queues of the switch, as the controller reads them.
fn switch_counters(fabric: &Fabric) -> Result<BTreeMap<String, i64>> {
    let shown =
        show_blocking(fabric, &Artifacts::embedded()?, &controller::Options::default(), What::Counters)?;
    if let Some((switch, error)) = shown.errors.iter().next() {
        bail!("cannot read the counters of {switch}: {error}");
    }
    let mut totals = BTreeMap::new();
    if let Rows::Counters(rows) = shown.rows {
        for (name, count) in rows.into_iter().flat_map(|row| row.counters) {
            *totals.entry(name).or_insert(0) += count.packets;
        }
    }
    Ok(totals)
}

fn rank_config(
    scenario: Scenario,
    options: &Options,
    rank: u16,
) -> (EndpointConfig, CommunicatorConfig, collective::Options) {
    let (reliability, traffic) = if scenario.trims() {
        // No packet may be missing in the end: what is lost in a full trim queue is repaired, what
        // is trimmed is not.
        (Reliability::Bounded { loss: 0.0 }, Traffic::Trimmable)
    } else {
        (Reliability::Full, Traffic::Droppable)
    };
    let endpoint = EndpointConfig {
        reliability,
        traffic,
        seed: options.seed,
        ..EndpointConfig::new(rank, options.workers, LINK_BPS)
    };
    let communicator =
        CommunicatorConfig { job_seed: options.seed, ..CommunicatorConfig::new(rank, options.workers) };
    let all_reduce = collective::Options {
        decoding: if scenario == Scenario::TrimPaper { Decoding::Paper } else { Decoding::Unbiased },
        ..collective::Options::default()
    };
    (endpoint, communicator, all_reduce)
}

/// Sums while a scenario runs.
#[derive(Default)]
struct Totals {
    nmse: f64,
    samples: usize,
    curves: Curves,
}

impl Totals {
    fn finish(
        mut self,
        scenario: Scenario,
        cluster: &Cluster,
        job: &Job,
        switch_counters: BTreeMap<String, i64>,
    ) -> Run {
        let stats = cluster.endpoint_totals();
        let share = |count: u64| count as f64 / stats.data_sent.max(1) as f64;
        self.curves.occupancy = opening(cluster.occupancy());
        Run {
            name: scenario.name(),
            final_accuracy: job.accuracy(),
            seconds_to_baseline_accuracy: None,
            allreduce_p50_s: quantile(&self.curves.allreduce_s, 0.5),
            allreduce_p99_s: quantile(&self.curves.allreduce_s, 0.99),
            trimmed_share: share(stats.trimmed_received),
            dropped_share: share(stats.data_sent.saturating_sub(stats.data_received)),
            repaired_share: share(stats.repairs_sent),
            nmse: self.nmse / self.samples.max(1) as f64,
            replica_drift: job.drift(),
            parameters: job.parameters(),
            packet_hops: cluster.packet_hops(),
            switch_counters,
            curves: self.curves,
        }
    }
}

/// The first stretch of the samples: a whole run's bursts would be a solid block of ink.
fn opening(samples: &[(u64, u64)]) -> Vec<(f64, f64)> {
    let shown = samples.iter().take_while(|(at_ns, _)| *at_ns <= OCCUPANCY_SHOWN_NS);
    shown.map(|&(at_ns, bytes)| (seconds(at_ns), bytes as f64)).collect()
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
