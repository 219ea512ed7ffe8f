// SPDX-License-Identifier: Apache-2.0
//! A plan carried out with care: from the tier furthest from hosts to the one nearest, a few switches at a time, and no further than
//! the first failure.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::apply::apply_switch;
use crate::artifacts::Artifacts;
use crate::fleet::{ApplyError, Options, Shared, blocking};
use crate::health;
use crate::model::{Fabric, Switch};
use crate::report::{Plan, Report, SwitchReport};

/// How far a roll-out may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rollout {
    /// Switches that are worked on at a time, from the first call to the end of their health check; at least 1.
    pub max_unavailable: usize,
    /// Goes on after a switch that cannot be reached, fails, or does not come out healthy.
    pub keep_going: bool,
    /// How long a switch's counters are looked at before the next one is begun; zero for not at all.
    pub settle: Duration,
}

impl Default for Rollout {
    fn default() -> Self {
        Self { max_unavailable: 1, keep_going: false, settle: Duration::from_secs(1) }
    }
}

/// Does what a [`plan`](crate::plan) says. Switches that it leaves as they are, are not even connected to.
///
/// Tiers with more links to hosts are more redundant: cores come first, and leaves, whose hosts have no other, last.
pub async fn roll_out(
    fabric: &Fabric,
    artifacts: &Artifacts,
    options: &Options,
    plan: &Plan,
    rollout: Rollout,
) -> Result<Report, ApplyError> {
    let shared = Shared::new(fabric, artifacts, options);
    let mut reports: BTreeMap<String, SwitchReport> = BTreeMap::new();
    let mut tiers: BTreeMap<std::cmp::Reverse<Option<usize>>, VecDeque<(String, Switch)>> = BTreeMap::new();
    let mut is_stopped = false;
    for planned in &plan.switches {
        let name = &planned.switch;
        let Some(switch) = fabric.switches.get(name) else { continue };
        let mut report = SwitchReport::new(name, &planned.address);
        report.pipeline_before = planned.pipeline;
        if let Some(error) = &planned.error {
            report.error = Some(error.clone());
            is_stopped = !rollout.keep_going;
        } else if planned.changes() {
            report.not_begun = true;
            let tier = shared.compiler.topology().tier(name);
            tiers.entry(std::cmp::Reverse(tier)).or_default().push_back((name.clone(), switch.clone()));
        } else {
            report.remaining = Some(Vec::new());
            report.in_place = Some(planned.in_place);
            report.warnings.clone_from(&planned.warnings);
        }
        reports.insert(name.clone(), report);
    }
    options.progress.begin(tiers.values().flatten().map(|(name, _)| name.clone()));
    for (_, mut waiting) in tiers {
        let mut working = JoinSet::new();
        loop {
            while !is_stopped
                && working.len() < rollout.max_unavailable.max(1)
                && let Some((name, switch)) = waiting.pop_front()
            {
                let shared = Arc::clone(&shared);
                working.spawn(async move { one(&name, &switch, &shared, rollout.settle).await });
            }
            let Some(report) = working.join_next().await else { break };
            let report = report.map_err(|error| ApplyError::Abnormal(error.to_string()))?;
            is_stopped |= !report.is_ok() && !rollout.keep_going;
            options.progress.done(&report.switch);
            reports.insert(report.switch.clone(), report);
        }
    }
    Ok(Report { switches: reports.into_values().collect(), warnings: fabric.warnings.clone() })
}

/// [`roll_out`] for callers without an async runtime. May also be called from within one.
pub fn roll_out_blocking(
    fabric: &Fabric,
    artifacts: &Artifacts,
    options: &Options,
    plan: &Plan,
    rollout: Rollout,
) -> Result<Report, ApplyError> {
    blocking(roll_out(fabric, artifacts, options, plan, rollout))
}

async fn one(name: &str, switch: &Switch, shared: &Shared, settle: Duration) -> SwitchReport {
    let mut report = apply_switch(name, switch, shared).await;
    if report.is_ok() && !settle.is_zero() {
        let checked = match shared.reach(name, switch).observe().await {
            Ok(client) => health::check(&client, shared.index(name), &shared.ports(name), settle).await,
            Err(error) => Err(error.to_string()),
        };
        report.error = checked.err().map(|reason| format!("in place, but not healthy: {reason}"));
    }
    report
}
