// SPDX-License-Identifier: Apache-2.0
//! What a demo run measured, in the form that `--json` writes.

use serde::Serialize;

/// All runs of one demo.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Outcome {
    /// One entry a scenario, in the order they are listed in the table.
    pub runs: Vec<Run>,
    /// The seed everything random was drawn from.
    pub seed: u64,
    /// Data-parallel workers.
    pub workers: u16,
    /// Training steps of each run.
    pub steps: u32,
    /// Speed of every link, bit/s.
    pub link_bps: u64,
    /// Offered load on a worker's link during a burst, as a multiple of its speed.
    pub congestion: u16,
    /// Coordinates of the gradient.
    pub parameters: usize,
    /// The test accuracy that `seconds_to_baseline_accuracy` waits for.
    pub baseline_accuracy: f64,
}

/// One scenario's figures. Times are virtual seconds.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Run {
    /// `idle`, `repair`, `trim-paper` or `trim`.
    pub name: &'static str,
    /// Share of the held-out images classified rightly after the last step (rank 0's replica).
    pub final_accuracy: f64,
    /// When the accuracy first reached the idle run's final one; `null` if it never did.
    pub seconds_to_baseline_accuracy: Option<f64>,
    /// Median over the steps of the time until the slowest rank had its sum.
    pub allreduce_p50_s: f64,
    /// 99th percentile of the same.
    pub allreduce_p99_s: f64,
    /// DATA packets that arrived trimmed, of all that were sent.
    pub trimmed_share: f64,
    /// DATA packets that never arrived, of all that were sent.
    pub dropped_share: f64,
    /// DATA packets that were sent again, of all that were sent.
    pub repaired_share: f64,
    /// ‖got − exact‖² / ‖exact‖² of the averaged gradient, mean over steps and ranks.
    pub nmse: f64,
    /// Largest ‖wᵢ − wⱼ‖ / ‖wⱼ‖ between two ranks' weights after the last step.
    pub replica_drift: f64,
    /// Coordinates of the gradient.
    #[serde(skip)]
    pub parameters: usize,
    /// Frames handed from node to node while this run was simulated.
    pub packet_hops: u64,
    /// Packets by counter of the P4 program, over all ports and queues, as the controller read them
    /// at the end.
    pub switch_counters: std::collections::BTreeMap<String, i64>,
    /// Curves for the report.
    #[serde(skip)]
    pub curves: Curves,
}

impl Run {
    /// Fills in when this run's accuracy first reached `target`.
    pub(super) fn wait_for(&mut self, target: f64) {
        let reached = self.curves.accuracy.iter().find(|(_, accuracy)| *accuracy >= target);
        self.seconds_to_baseline_accuracy = reached.map(|(at_s, _)| *at_s);
    }
}

/// Time series of one run.
#[derive(Debug, Clone, Default)]
pub(super) struct Curves {
    /// (virtual s, test accuracy).
    pub accuracy: Vec<(f64, f64)>,
    /// (virtual s, bytes waiting in the fullest worker port).
    pub occupancy: Vec<(f64, f64)>,
    /// Duration of every all-reduce, s, in step order.
    pub allreduce_s: Vec<f64>,
}

/// The value below which a share `q` of the samples lies (nearest rank); 0 for no samples.
pub(super) fn quantile(samples: &[f64], q: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_nearest_ranks() {
        let samples: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        assert_eq!(
            (quantile(&samples, 0.5), quantile(&samples, 0.99), quantile(&samples, 1.0)),
            (100.0, 198.0, 200.0)
        );
        assert_eq!(quantile(&[], 0.5), 0.0);
    }
}
