// SPDX-License-Identifier: Apache-2.0
//! When a plan is to be made again: sensing says that the network is another one.

use serde::{Deserialize, Serialize};

use super::cluster::Cluster;
use trimwire_agent::planes::{Step, StepError};

/// Watches the bandwidth between machines that a plan was made for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Watch {
    /// Gbit/s that the plan was made for.
    pub planned_gbps: f64,
    /// Share by which bandwidth may differ.
    pub tolerance: f64,
    /// Steps in a row that have to differ, so that a burst makes no plan.
    pub patience: u32,
    differing: Vec<f64>,
    at_ns: Option<u64>,
}

impl Watch {
    /// A watch on a cluster's inter-machine links: a quarter more or less, eight steps in a row.
    pub fn new(cluster: &Cluster) -> Self {
        Self {
            planned_gbps: cluster.inter.gbps,
            tolerance: 0.25,
            patience: 8,
            differing: Vec::new(),
            at_ns: None,
        }
    }

    /// Takes a step's measurements; when the network has changed, the cluster to plan for: `cluster` with the median bandwidth of the steps that differed.
    pub fn step(&mut self, step: &Step, cluster: &Cluster) -> Result<Option<Cluster>, StepError> {
        step.check(self.at_ns)?;
        self.at_ns = Some(step.at_ns);
        let gbps = step.bandwidth() * 8.0 * step.arrived;
        let ratio = gbps / self.planned_gbps;
        if (1.0 / (1.0 + self.tolerance)..=1.0 + self.tolerance).contains(&ratio) {
            self.differing.clear();
            return Ok(None);
        }
        // A link that grew faster and one that grew slower in turns is not another link.
        if self.differing.last().is_some_and(|last| (*last > self.planned_gbps) != (gbps > self.planned_gbps))
        {
            self.differing.clear();
        }
        self.differing.push(gbps);
        if self.differing.len() < self.patience.max(1) as usize {
            return Ok(None);
        }
        self.differing.sort_by(f64::total_cmp);
        let median = self.differing[self.differing.len() / 2].clamp(1e-6, 1e6);
        self.differing.clear();
        self.planned_gbps = median;
        let mut changed = cluster.clone();
        changed.inter.gbps = median;
        Ok(Some(changed))
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self { planned_gbps: 1.0, tolerance: 0.25, patience: 8, differing: Vec::new(), at_ns: None }
    }
}
