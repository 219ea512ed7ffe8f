// SPDX-License-Identifier: Apache-2.0
//! `plan` looks. `apply` and `roll_out` are a `run` until everything is in place: the same drivers,
//! which are started when it is their switch's turn, or when its routes have to lead around
//! another.
//!
//! ```text
//!  plan ─► goal ─► turns ──order──► drivers ─► reports ─► report ─► record
//!                    ▲                 │
//!                    └──────seen───────┘
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use crate::device::{self, DeviceError};
use crate::engine::board::Board;
use crate::engine::converge::pipeline_state;
use crate::engine::driver::{Common, Terms, drive};
use crate::engine::election::Elections;
use crate::engine::faults::Detector;
use crate::engine::lines;
use crate::engine::prober::Prober;
use crate::engine::turns::{Goal, Replacements, Seen};
use crate::engine::wanted::{Reports, Wanted};
use crate::engine::wires::{Wires, knows_probes};
use crate::fleet::places::Places;
use crate::fleet::progress::Progress;
use crate::fleet::{ApplyError, Options, Shared, blocking, each};
use crate::model::{Fabric, Switch};
use crate::program::Artifacts;
use crate::reconcile;
use crate::report::{ChangeReport, Links, PipelineState, Plan, Report, SwitchPlan, SwitchReport};
use crate::topology::Avoid;

/// How often it is looked whether all links were tried, and how long at most.
const TRYING: Duration = Duration::from_millis(20);
const TRIAL: Duration = Duration::from_secs(10);

/// How far a roll-out may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rollout {
    /// Switches that are worked on at a time, from the first call to the end of their health check;
    /// at least 1.
    pub max_unavailable: usize,
    /// Goes on after a switch that cannot be reached, fails, or does not come out healthy.
    pub keep_going: bool,
    /// How long a switch's counters are looked at before the next one is begun; zero for not at
    /// all.
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

/// Tells what [`apply`] would do. Needs no mastership and takes none.
pub async fn plan(fabric: &Fabric, artifacts: &Artifacts, options: &Options) -> Result<Plan, ApplyError> {
    let shared = Shared::new(fabric, artifacts, options);
    shared.fits(options)?;
    let switches = each(fabric, options, |name, switch| {
        let shared = Arc::clone(&shared);
        async move { plan_switch(&name, &switch, &shared).await }
    })
    .await?;
    let manual_steps = crate::target::manual_steps(fabric);
    Ok(Plan { switches, manual_steps, warnings: fabric.warnings.clone() })
}

async fn plan_switch(name: &str, switch: &Switch, shared: &Shared) -> SwitchPlan {
    let mut plan = SwitchPlan {
        switch: name.to_owned(),
        address: switch.address.clone(),
        pipeline: PipelineState::Unknown,
        changes: Vec::new(),
        in_place: 0,
        error: None,
        warnings: Vec::new(),
    };
    if let Err(error) = look(name, switch, shared, &mut plan).await {
        plan.error = Some(error.to_string());
    }
    plan
}

async fn look(
    name: &str,
    switch: &Switch,
    shared: &Shared,
    plan: &mut SwitchPlan,
) -> Result<(), DeviceError> {
    let client = shared.reach(name, switch).observe().await?;
    let artifacts = shared.artifacts(name);
    let index = artifacts.index();
    plan.pipeline = pipeline_state(&client, artifacts).await?;
    let actual = if plan.pipeline == PipelineState::Same {
        device::actual(&client, index).await?
    } else {
        // A new pipeline starts with what the program itself puts into its tables.
        let address = || switch.address.clone();
        reconcile::actual(Vec::new(), index)
            .map_err(|source| DeviceError::Foreign { address: address(), source: Box::new(source) })?
    };
    plan.warnings = lines::warnings(&client, &shared.ports(name)).await;
    let wanted = shared.compile(name)?;
    let changes = reconcile::difference(&wanted, &actual, index);
    plan.in_place = reconcile::in_place(&wanted, &changes);
    plan.changes = changes.iter().map(ChangeReport::from).collect();
    Ok(())
}

/// Brings every switch to what the fabric file says, writing differences only. All at once, each on
/// its own.
pub async fn apply(fabric: &Fabric, artifacts: &Artifacts, options: &Options) -> Result<Report, ApplyError> {
    let shared = Shared::new(fabric, artifacts, options);
    shared.fits(options)?;
    let meant = || fabric.switches.iter().filter(|(name, _)| options.includes(name));
    let goal = Goal {
        todo: meant().map(|(name, _)| (name.clone(), false)).collect(),
        at_once: true,
        keep_going: true,
        ..Goal::default()
    };
    let reports = meant().map(|(name, switch)| (name.clone(), SwitchReport::new(name, &switch.address)));
    let (reports, settle) = (reports.collect(), Duration::ZERO);
    Work::new(shared, options, settle).carry_out(goal, reports, BTreeMap::new()).await
}

/// Does what a [`plan`](crate::plan) says. Switches that it leaves as they are, are not even
/// connected to, but where routes have to lead around others, and for probes over their links in
/// the end.
///
/// Tiers with more links to hosts are more redundant: cores come first, and leaves, whose hosts
/// have no other, last. Before a switch is given another program, routes are led around it where
/// there is a way round, and back afterwards.
pub async fn roll_out(
    fabric: &Fabric,
    artifacts: &Artifacts,
    options: &Options,
    plan: &Plan,
    rollout: Rollout,
) -> Result<Report, ApplyError> {
    let shared = Shared::new(fabric, artifacts, options);
    let Rollout { max_unavailable: most, keep_going, settle } = rollout;
    let mut goal = Goal { most, keep_going, ..Goal::default() };
    let (mut reports, mut unreached) = (BTreeMap::new(), BTreeMap::new());
    for planned in plan.switches.iter().filter(|planned| fabric.switches.contains_key(&planned.switch)) {
        let name = &planned.switch;
        let mut report = SwitchReport::new(name, &planned.address);
        report.pipeline_before = planned.pipeline;
        if let Some(error) = &planned.error {
            goal.failed.insert(name.clone(), error.clone());
            unreached.insert(name.clone(), Seen::Unreached(error.clone()));
        } else if planned.changes() {
            let has_another = matches!(planned.pipeline, PipelineState::Different { .. });
            goal.todo.insert(name.clone(), has_another);
        } else {
            report.remaining = Some(Vec::new());
            report.in_place = Some(planned.in_place);
            report.warnings.clone_from(&planned.warnings);
        }
        reports.insert(name.clone(), report);
    }
    Work::new(shared, options, settle).carry_out(goal, reports, unreached).await
}

/// A roll-out under way.
struct Work {
    shared: Arc<Shared>,
    only: BTreeSet<String>,
    progress: Progress,
    settle: Duration,
    places: Places,
    common: Common,
    done: Reports,
    drivers: BTreeMap<String, (watch::Sender<Arc<Wanted>>, AbortHandle)>,
    tasks: JoinSet<()>,
    /// What the routes of switches without a driver leave out.
    held: BTreeMap<String, Arc<Avoid>>,
}

impl Work {
    fn new(shared: Arc<Shared>, options: &Options, settle: Duration) -> Self {
        let board = Board::default();
        let detector = Detector::new(board.clone(), false);
        let reason = |name: &String| (name.clone(), "by hand".to_owned());
        detector.change(|faults, _| faults.drain(options.drained.iter().map(reason).collect()));
        let compiler = &shared.compiler;
        detector.wires(|wires| {
            wires.begin_trial();
            wires.of(compiler.topology(), compiler.fabric().switches.keys());
        });
        let elections = Elections::new(detector.clone(), board.clone());
        let replacements = Replacements::new(detector.clone(), board.clone());
        Self {
            only: options.only.clone(),
            progress: options.progress.clone(),
            settle,
            places: Places::new(shared.compiler.fabric().controller.concurrency),
            common: Common { board, elections, detector, replacements },
            done: Reports::default(),
            drivers: BTreeMap::new(),
            tasks: JoinSet::new(),
            held: BTreeMap::new(),
            shared,
        }
    }

    async fn carry_out(
        mut self,
        goal: Goal,
        reports: BTreeMap<String, SwitchReport>,
        unreached: BTreeMap<String, Seen>,
    ) -> Result<Report, ApplyError> {
        let shared = Arc::clone(&self.shared);
        let fabric = shared.compiler.fabric();
        let begins = Arc::clone(&self.common.detector.subscribe().borrow());
        let stands = |name: &String| {
            let waits = || Seen::Another(Ok(Arc::clone(&begins)));
            (name.clone(), unreached.get(name).cloned().unwrap_or_else(waits))
        };
        let seen = fabric.switches.keys().map(stands).collect();
        self.held = fabric.switches.keys().map(|name| (name.clone(), Arc::clone(&begins))).collect();
        self.progress.begin(goal.todo.keys().cloned());
        let todo: Vec<String> = goal.todo.keys().cloned().collect();
        let replacements = self.common.replacements.clone();
        replacements.change(|replacer| replacer.roll_out(Arc::clone(&shared), seen, goal));
        while !self.step() {
            tokio::select! {
                () = replacements.changed() => {}
                Some(ended) = self.tasks.join_next() => match ended {
                    Err(error) if !error.is_cancelled() => {
                        return Err(ApplyError::Abnormal(error.to_string()));
                    }
                    _ => {}
                },
            }
        }
        let (left, failed, left_out) = replacements.look(|replacer| {
            let goal = replacer.goal();
            let left: BTreeSet<String> =
                goal.map(|goal| goal.todo.keys().cloned().collect()).unwrap_or_default();
            let failed = goal.map(|goal| goal.failed.clone()).unwrap_or_default();
            (left, failed, goal.map(|goal| goal.left_out.clone()).unwrap_or_default())
        });
        let mut switches = Vec::new();
        for (name, planned) in reports {
            let mut report = self.done.take(&name).unwrap_or_else(|| planned.clone());
            if todo.contains(&name) && report.pipeline_before == PipelineState::Unknown {
                report.pipeline_before = planned.pipeline_before;
            }
            report.not_begun = left.contains(&name);
            if let Some(why) = failed.get(&name)
                && report.error.is_none()
                && report.refused.is_empty()
            {
                report.error = Some(why.clone());
            }
            if left_out.contains(&name) {
                report.warnings.push("routes leave it out until the next roll-out".to_owned());
            }
            switches.push(report);
        }
        let mut links = Links::default();
        // What failed is no ok already.
        if switches.iter().all(SwitchReport::is_ok) {
            let meant = switches.iter().map(|report| report.switch.clone()).collect();
            let mut wrong;
            (links, wrong) = self.try_links(meant).await;
            switches.iter_mut().for_each(|report| report.error = wrong.remove(&report.switch));
        }
        Ok(Report { switches, links, warnings: fabric.warnings.clone() })
    }

    /// What is known of the links between these switches, all in place, and what is wrong with
    /// them, by the switch at whose end it shows. Those that nothing was done to are connected to
    /// for that; one that has another primary, or does not answer, is left alone.
    async fn try_links(&mut self, meant: BTreeSet<String>) -> (Links, BTreeMap<String, String>) {
        let shared = &self.shared;
        let mut connecting = JoinSet::new();
        for (name, switch) in &shared.compiler.fabric().switches {
            let has_links = !shared.compiler.topology().trunks(name).is_empty();
            let is_meant = has_links && meant.contains(name) && !self.drivers.contains_key(name);
            if is_meant && knows_probes(shared.index(name)) {
                let (name, reach, places) = (name.clone(), shared.reach(name, switch), self.places.clone());
                let election_id = shared.election_id;
                let client = async move { (name, reach.primary(election_id).await.ok()) };
                connecting.spawn(async move { places.work(client).await });
            }
        }
        let mut probers = Vec::new();
        while let Some(connected) = connecting.join_next().await {
            if let Ok((name, Some(client))) = connected {
                let detector = self.common.detector.clone();
                detector.wires(|wires| wires.ready(&name, true));
                let shared = Arc::clone(shared);
                probers.extend(client.take_streams().map(|streams| {
                    let program = move || Arc::clone(&shared);
                    Prober::start(name, Arc::new(client), streams.packets, program, detector)
                }));
            }
        }
        let detector = &self.common.detector;
        let tried = async {
            while !detector.wires(|wires| wires.are_tried()) {
                tokio::time::sleep(TRYING).await;
            }
        };
        let _ = tokio::time::timeout(TRIAL, tried).await;
        let mut wrong: BTreeMap<String, String> = BTreeMap::new();
        for ((switch, _), verdict) in detector.wires(Wires::take_verdicts) {
            if let Some((_, why)) = verdict {
                wrong.entry(switch).and_modify(|known| *known = format!("{known}; {why}")).or_insert(why);
            }
        }
        (detector.wires(|wires| wires.links(|name| meant.contains(name))), wrong)
    }

    /// Starts and ends drivers as turns and routes have it. Whether nothing is left to do.
    fn step(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let replacements = self.common.replacements.clone();
        let orders = replacements.subscribe();
        for (name, switch) in &shared.compiler.fabric().switches {
            let (is_lost, avoid, has_turn) = replacements.look(|replacer| {
                let (seen, avoid, has_turn) = replacer.known(name);
                let is_lost =
                    matches!(seen, Some(Seen::Unreached(_) | Seen::Failed(_) | Seen::Another(Err(_))));
                (is_lost, Arc::clone(avoid), has_turn)
            });
            let is_ordered = orders.borrow().contains_key(name);
            if self.drivers.contains_key(name) {
                if !is_lost {
                    continue;
                }
                // What is lost has had its turn, or kept another from its own: it is not tried
                // again.
                if let Some((_, driver)) = self.drivers.remove(name) {
                    driver.abort();
                    self.common.detector.wires(|wires| wires.ready(name, false));
                }
                self.held.insert(name.clone(), avoid);
                replacements.change(|replacer| replacer.rests(name));
                continue;
            }
            if is_ordered {
                self.start(name, switch);
                continue;
            }
            let Some(held) = self.held.get(name).filter(|held| **held != avoid) else { continue };
            // The routes of what is led around may be the old ones, and dead switches have none.
            let is_out = avoid.drained.contains(name) || has_turn;
            if is_out || shared.routes(name, held) == shared.routes(name, &avoid) {
                self.held.insert(name.clone(), avoid);
                if !is_lost {
                    replacements.change(|replacer| replacer.rests(name));
                }
            } else {
                self.start(name, switch);
            }
        }
        let waits = replacements.look(|replacer| replacer.goal().map(|goal| goal.todo.clone()));
        let has_turn = |name: &str| replacements.look(|replacer| replacer.known(name).2);
        for name in shared.compiler.fabric().switches.keys() {
            if waits.as_ref().is_some_and(|todo| !todo.contains_key(name)) && !has_turn(name) {
                self.progress.done(name);
            }
        }
        replacements.look(crate::engine::turns::Replacer::is_over)
    }

    fn start(&mut self, name: &str, switch: &Switch) {
        self.common.replacements.change(|replacer| replacer.asks(name));
        let (shared, controller) = (&self.shared, &self.shared.compiler.fabric().controller);
        let terms = Terms {
            name: name.to_owned(),
            reach: shared.reach(name, switch),
            election_id: shared.election_id,
            interval_ns: controller.interval_ns,
            audit_ns: controller.audit_ns,
            held: self.held.get(name).cloned().unwrap_or_default(),
        };
        let (wanted, told) = watch::channel(Arc::new(Wanted {
            name: name.to_owned(),
            number: 0,
            ports: shared.ports(name),
            shared: Arc::clone(shared),
            places: self.places.clone(),
            settle: self.settle,
            is_meant: self.only.is_empty() || self.only.contains(name),
            once: Some(self.done.clone()),
        }));
        let driver = self.tasks.spawn(drive(terms, told, self.common.clone()));
        self.drivers.insert(name.to_owned(), (wanted, driver));
    }
}

/// [`apply`] for callers without an async runtime. May also be called from within one.
pub fn apply_blocking(
    fabric: &Fabric,
    artifacts: &Artifacts,
    options: &Options,
) -> Result<Report, ApplyError> {
    blocking(apply(fabric, artifacts, options))
}

/// [`plan`] for callers without an async runtime. May also be called from within one.
pub fn plan_blocking(fabric: &Fabric, artifacts: &Artifacts, options: &Options) -> Result<Plan, ApplyError> {
    blocking(plan(fabric, artifacts, options))
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
