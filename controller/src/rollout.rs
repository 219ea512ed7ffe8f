// SPDX-License-Identifier: Apache-2.0
//! A plan carried out with care: from the tier furthest from hosts to the one nearest, a few switches at a time, and no further than
//! the first failure.
//!
//! ```text
//!  device, lines ─► converge ─► apply, bypass ─► roll_out     one switch, then many (fleet, places, progress)
//!                      │                 health ──┘
//!                      └► report ─► record
//! ```

mod apply;
pub(crate) mod bypass;
pub(crate) mod converge;
pub(crate) mod device;
pub(crate) mod fleet;
pub(crate) mod health;
mod lines;
pub(crate) mod places;
mod progress;
pub mod record;
pub mod report;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use self::apply::apply_switch;
pub use self::apply::{apply, apply_blocking, plan, plan_blocking};
use self::bypass::Bypass;
pub use self::device::DeviceError;
pub use self::fleet::{ApplyError, Options};
use self::fleet::{Shared, blocking};
pub use self::progress::Progress;
use self::report::{PipelineState, Plan, Report, SwitchReport};
use crate::model::{Fabric, Switch};
use crate::program::Artifacts;

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

impl Rollout {
    /// As a fabric's file says.
    pub fn of(fabric: &Fabric) -> Self {
        let settings = &fabric.controller;
        let settle = Duration::from_nanos(settings.settle_ns);
        Self { max_unavailable: settings.max_unavailable, keep_going: false, settle }
    }
}

impl Default for Rollout {
    fn default() -> Self {
        Self { max_unavailable: 1, keep_going: false, settle: Duration::from_secs(1) }
    }
}

/// Does what a [`plan`](crate::plan) says. Switches that it leaves as they are, are not even connected to, but where routes have to lead
/// around others.
///
/// Tiers with more links to hosts are more redundant: cores come first, and leaves, whose hosts have no other, last. Before a switch is given
/// another program, routes are led around it where there is a way round, and back afterwards.
pub async fn roll_out(
    fabric: &Fabric,
    artifacts: &Artifacts,
    options: &Options,
    plan: &Plan,
    rollout: Rollout,
) -> Result<Report, ApplyError> {
    let shared = Shared::new(fabric, artifacts, options);
    let mut tiers: BTreeMap<std::cmp::Reverse<Option<usize>>, VecDeque<String>> = BTreeMap::new();
    let mut work = Work {
        bypass: None,
        shared: Arc::clone(&shared),
        options,
        rollout,
        reports: BTreeMap::new(),
        left_out: BTreeSet::new(),
        is_stopped: false,
    };
    for planned in &plan.switches {
        let name = &planned.switch;
        if !fabric.switches.contains_key(name) {
            continue;
        }
        let mut report = SwitchReport::new(name, &planned.address);
        report.pipeline_before = planned.pipeline;
        if let Some(error) = &planned.error {
            report.error = Some(error.clone());
            work.is_stopped = !rollout.keep_going;
        } else if planned.changes() {
            report.not_begun = true;
            let tier = shared.compiler.topology().tier(name);
            tiers.entry(std::cmp::Reverse(tier)).or_default().push_back(name.clone());
        } else {
            report.remaining = Some(Vec::new());
            report.in_place = Some(planned.in_place);
            report.warnings.clone_from(&planned.warnings);
        }
        work.reports.insert(name.clone(), report);
    }
    options.progress.begin(tiers.values().flatten().cloned());
    for (_, waiting) in tiers {
        let (replaced, changed): (VecDeque<_>, VecDeque<_>) =
            waiting.into_iter().partition(|name| work.may_be_left_out(name));
        // First those that keep their program: one of them may be what a roll-out that was cut off has left without its tables, and the others'
        // routes are led over it while programs are replaced.
        work.each(changed, rollout.settle).await?;
        work.replace(replaced).await?;
    }
    Ok(Report { switches: work.reports.into_values().collect(), warnings: fabric.warnings.clone() })
}

/// A roll-out under way.
struct Work<'o> {
    /// Once a program is replaced.
    bypass: Option<Bypass>,
    shared: Arc<Shared>,
    options: &'o Options,
    rollout: Rollout,
    reports: BTreeMap<String, SwitchReport>,
    /// Those that failed while no route led over them.
    left_out: BTreeSet<String>,
    is_stopped: bool,
}

impl Work<'_> {
    /// Whether a switch is given another program than it runs, and the fabric has a way round it.
    fn may_be_left_out(&self, name: &str) -> bool {
        let runs = self.reports.get(name).map(|report| report.pipeline_before);
        matches!(runs, Some(PipelineState::Different { .. }))
            && self.is_spared(&BTreeSet::from([name.to_owned()]))
    }

    fn is_spared(&self, out: &BTreeSet<String>) -> bool {
        let beside = self.shared.drained.union(&self.left_out).cloned().collect();
        self.shared.compiler.topology().spares(out, &beside)
    }

    /// Works on some switches, a few at a time.
    async fn each(&mut self, mut waiting: VecDeque<String>, settle: Duration) -> Result<(), ApplyError> {
        let mut working = JoinSet::new();
        loop {
            while !self.is_stopped
                && working.len() < self.rollout.max_unavailable.max(1)
                && let Some(name) = waiting.pop_front()
            {
                let Some(switch) = self.shared.compiler.fabric().switches.get(&name).cloned() else {
                    continue;
                };
                let shared = Arc::clone(&self.shared);
                working.spawn(async move {
                    let report = apply_switch(&name, &switch, &shared).await;
                    checked(report, &switch, &shared, settle).await
                });
            }
            let Some(report) = working.join_next().await else { return Ok(()) };
            let report = report.map_err(|error| ApplyError::Abnormal(error.to_string()))?;
            self.is_stopped |= !report.is_ok() && !self.rollout.keep_going;
            self.options.progress.done(&report.switch);
            self.reports.insert(report.switch.clone(), report);
        }
    }

    /// Replaces the programs of switches that are spared, each time as many as may be unavailable and are spared together.
    async fn replace(&mut self, mut waiting: VecDeque<String>) -> Result<(), ApplyError> {
        while !self.is_stopped && !waiting.is_empty() {
            let mut batch = BTreeSet::new();
            while batch.len() < self.rollout.max_unavailable.max(1)
                && let Some(name) = waiting.pop_front()
            {
                batch.insert(name.clone());
                if !self.is_spared(&batch) {
                    batch.remove(&name);
                    waiting.push_front(name);
                    break;
                }
            }
            let Some(first) = batch.first().cloned() else {
                // What failed before it has taken the last way round.
                let one = waiting.pop_front().into_iter().collect();
                self.each(one, self.rollout.settle).await?;
                continue;
            };
            match self.around(&batch).await {
                Ok(notes) => self.replace_batch(&batch, &notes).await?,
                Err(why) => {
                    let why = format!("not begun: no routes around {first}: {why}");
                    batch.iter().for_each(|name| self.failed(name, &why));
                    // As far as they can be: it is tried again with the next roll-out.
                    let _ = self.around(&BTreeSet::new()).await;
                }
            }
        }
        Ok(())
    }

    async fn replace_batch(&mut self, batch: &BTreeSet<String>, notes: &[String]) -> Result<(), ApplyError> {
        let mut warnings: BTreeMap<&String, Vec<String>> = BTreeMap::new();
        for name in batch {
            let bypass = self.bypass.get_or_insert_with(|| Bypass::new(&self.shared, self.options));
            let quiet = bypass.quiet(name).await;
            warnings.insert(name, notes.iter().cloned().chain(quiet).collect());
        }
        self.each(batch.iter().cloned().collect(), Duration::ZERO).await?;
        for (name, warnings) in warnings {
            if let Some(report) = self.reports.get_mut(name) {
                report.warnings.extend(warnings);
            }
        }
        self.leave_out_failed(batch);
        if let Err(why) = self.around(&BTreeSet::new()).await {
            let why = format!("in place, but routes do not lead over it again: {why}");
            batch.difference(&self.left_out.clone()).for_each(|name| self.failed(name, &why));
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        for (name, switch) in &shared.compiler.fabric().switches {
            if !batch.contains(name) {
                continue;
            }
            let Some(report) = self.reports.remove(name) else { continue };
            let report = checked(report, switch, &shared, self.rollout.settle).await;
            self.is_stopped |= !report.is_ok() && !self.rollout.keep_going;
            self.reports.insert(name.clone(), report);
        }
        let before = self.left_out.len();
        self.leave_out_failed(batch);
        if self.left_out.len() > before {
            // What is not healthy is not used.
            let _ = self.around(&BTreeSet::new()).await;
        }
        Ok(())
    }

    /// Routes leave these out, and what failed before.
    async fn around(&mut self, batch: &BTreeSet<String>) -> Result<Vec<String>, String> {
        let out = self.left_out.union(batch).cloned().collect();
        self.bypass.get_or_insert_with(|| Bypass::new(&self.shared, self.options)).around(&out).await
    }

    /// Those of these that failed stay out of routes.
    fn leave_out_failed(&mut self, batch: &BTreeSet<String>) {
        for name in batch {
            if let Some(report) = self.reports.get_mut(name)
                && !report.is_ok()
                && self.left_out.insert(name.clone())
            {
                report.warnings.push("routes leave it out until the next roll-out".to_owned());
            }
        }
    }

    fn failed(&mut self, name: &str, why: &str) {
        if let Some(report) = self.reports.get_mut(name) {
            report.not_begun = false;
            report.error = Some(why.to_owned());
        }
        self.is_stopped |= !self.rollout.keep_going;
    }
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

/// What became of a switch once its counters were looked at.
async fn checked(
    mut report: SwitchReport,
    switch: &Switch,
    shared: &Shared,
    settle: Duration,
) -> SwitchReport {
    if report.is_ok() && !settle.is_zero() {
        let name = &report.switch;
        let checked = match shared.reach(name, switch).observe().await {
            Ok(client) => health::check(&client, shared.index(name), &shared.ports(name), settle).await,
            Err(error) => Err(error.to_string()),
        };
        report.error = checked.err().map(|reason| format!("in place, but not healthy: {reason}"));
    }
    report
}
