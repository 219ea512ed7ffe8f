// SPDX-License-Identifier: Apache-2.0
//! What is told of a run.

use super::line::duration_ns;
use super::packet::HEAD;
use super::run::Outcome;
use super::scenario::Prepared;
use super::setup::Setup;
use super::topology::Routes;
use super::workload::Demand;
use serde::{Deserialize, Serialize};

/// A run's figures, in the units that their names end with; shares of the DATA packets that were
/// sent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunReport {
    /// The run's.
    pub name: String,
    /// Flows of the foreground.
    pub flows: u64,
    /// Of these, not over when the run was ended.
    pub unfinished: u64,
    /// Flow completion times of those that are over; `None` of none.
    pub fct_mean_s: Option<f64>,
    /// Median, the least time that half of the flows keep to.
    pub fct_p50_s: Option<f64>,
    /// Likewise for 99 in 100.
    pub fct_p99_s: Option<f64>,
    /// Likewise for 999 in 1,000.
    pub fct_p999_s: Option<f64>,
    /// Of the slowest flow.
    pub fct_max_s: Option<f64>,
    /// From the begin of the first flow or computation to the end of the last; `None` where nothing
    /// ended.
    pub completion_s: Option<f64>,
    /// Least time in which the busiest host's link carries the payload; waits for computation are
    /// not in it.
    pub ideal_s: f64,
    /// Frames handed from node to node.
    pub packet_hops: u64,
    /// The same by the second of wall-clock time: the one figure that differs from run to run.
    pub packet_hops_per_second: f64,
    /// DATA packets that senders sent.
    pub packets: u64,
    /// Trimmed by switches.
    pub trimmed_share: f64,
    /// Dropped by switches or lost on links.
    pub dropped_share: f64,
    /// Sent again.
    pub repaired_share: f64,
    /// Marked by switches.
    pub marked_share: f64,
    /// Time-outs of senders.
    pub timeouts: u64,
    /// Error of the gradients by the codec's closed form, NMSE = λ − 1
    /// (docs/reference/wire-format.md), over all flows that are over; 0 where everything arrived.
    pub nmse: Option<f64>,
    /// Pauses that switches asked for (PFC).
    #[serde(default)]
    pub pauses: u64,
    /// Time that priorities of ports and cards were held by pauses that are over, summed over all.
    #[serde(default)]
    pub paused_s: f64,
    /// Most bytes that waited at a port.
    pub queue_max_bytes: u64,
    /// What was trained, where something was; the rest is of all its steps together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training: Option<TrainingReport>,
}

/// A training's figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainingReport {
    /// One a host.
    pub workers: u32,
    /// Steps that were over within the limit each.
    pub steps: u32,
    /// The accuracy that was aimed at.
    pub target: f64,
    /// Virtual time until then; `None` if it was not reached.
    pub seconds_to_target: Option<f64>,
    /// Of held-out data after the last step, by worker 0.
    pub accuracy: f64,
    /// Times of steps, computation included: the median.
    pub step_p50_s: f64,
    /// What 99 in 100 steps keep to.
    pub step_p99_s: f64,
    /// ‖got − exact‖² / ‖exact‖² of worker 0's sums of gradients, mean of the steps.
    pub nmse: f64,
    /// The largest ‖wᵢ − wⱼ‖ / ‖wⱼ‖ of two workers' weights at the end.
    pub drift: f64,
}

/// The figures of a run that took so many seconds of wall-clock time.
pub fn report(prepared: &Prepared, outcome: &Outcome, wall_s: f64) -> RunReport {
    let demands = &prepared.setup.demands;
    let all = outcome.flows.iter().filter(|flow| demands[flow.demand].foreground);
    let over = all.clone().filter(|flow| !demands[flow.demand].computes());
    let mut times: Vec<u64> = over.clone().map(|flow| flow.duration_ns).collect();
    times.sort_unstable();
    let some = |value: f64| (!times.is_empty()).then_some(value);
    let quantile = |share: f64| some(seconds(quantile(&times, share)));
    let mean =
        times.iter().map(|&time| u128::from(time)).sum::<u128>() as f64 / times.len().max(1) as f64 / 1e9;
    let first = all.clone().map(|flow| flow.began_ns).min();
    let last = all.map(|flow| flow.began_ns + flow.duration_ns).max();
    let (mut bytes, mut error) = (0.0, 0.0);
    for flow in over {
        let weight = demands[flow.demand].bytes as f64;
        bytes += weight;
        // A flow of which nothing arrived is an error of all of it.
        error += weight * if flow.share_kept > 0.0 { 1.0 / flow.share_kept - 1.0 } else { 1.0 };
    }
    let share = |packets: u64| packets as f64 / outcome.sent.max(1) as f64;
    RunReport {
        name: prepared.name.clone(),
        flows: demands.iter().filter(|demand| demand.foreground && !demand.computes()).count() as u64,
        unfinished: outcome.unfinished,
        fct_mean_s: some(mean),
        fct_p50_s: quantile(0.5),
        fct_p99_s: quantile(0.99),
        fct_p999_s: quantile(0.999),
        fct_max_s: quantile(1.0),
        completion_s: first.zip(last).map(|(first, last)| seconds(last - first)),
        ideal_s: prepared.ideal_s,
        packet_hops: outcome.packet_hops,
        packet_hops_per_second: (outcome.packet_hops as f64 / wall_s.max(1e-9)).round(),
        packets: outcome.sent,
        trimmed_share: share(outcome.switches.trimmed),
        dropped_share: share(outcome.switches.dropped + outcome.lost),
        repaired_share: share(outcome.repairs),
        marked_share: share(outcome.switches.marked),
        timeouts: outcome.timeouts,
        nmse: (bytes > 0.0).then_some(error / bytes),
        pauses: outcome.switches.pauses,
        paused_s: seconds(outcome.switches.paused_ns),
        queue_max_bytes: outcome.switches.most_bytes,
        training: None,
    }
}

/// Of a flow: how long it takes on an idle network, ns. Its first packet's way, and behind it the
/// rest with its headers over the slower of both hosts' links.
pub fn alone_ns(setup: &Setup) -> impl Fn(&Demand) -> u64 {
    let (routes, payload) = (Routes::new(&setup.topology), u64::from(setup.payload));
    move |demand| {
        let Demand { source, destination, bytes, .. } = *demand;
        let first = bytes.clamp(1, payload);
        let rest = bytes.saturating_sub(first) + bytes.div_ceil(payload).saturating_sub(1) * u64::from(HEAD);
        let rate = routes.card_bps(source).min(routes.card_bps(destination));
        routes.one_way_ns(source, destination, first as u32 + HEAD) + duration_ns(rest, rate)
    }
}

/// The least of ascending times that a share of them keeps to (nearest rank); 0 of none.
pub fn quantile(ascending: &[u64], share: f64) -> u64 {
    let at = (share * ascending.len() as f64).ceil() as usize;
    ascending.get(at.max(1) - 1).copied().unwrap_or(0)
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
