//! `apply` and `plan`: every switch on its own, many at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use trimwire_p4runtime::client::Tls;
use trimwire_p4runtime::p4info::Index;

use crate::artifacts::{Artifacts, ArtifactsError};
use crate::converge::{converge, pipeline_state};
use crate::desired::{self, Desired, DesiredError};
use crate::device::{self, DeviceError, Reach};
use crate::places::Places;
use crate::progress::Progress;
use crate::reconcile;
use crate::report::{ChangeReport, PipelineState, Plan, Report, SwitchPlan, SwitchReport};
use crate::show;
use crate::spec::{Fabric, Switch};
use crate::topology::Routes;

/// What a caller may set beside the fabric file.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Instead of the file's.
    pub election_id: Option<u128>,
    /// Names of the switches to work on; empty for all.
    pub only: BTreeSet<String>,
    /// Kept up to date while the work goes on.
    pub progress: Progress,
}

/// Why nothing was done at all. What goes wrong on a switch is in the report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// The program does not read.
    #[error(transparent)]
    Artifacts(#[from] ArtifactsError),
    /// The program cannot hold the fabric.
    #[error(transparent)]
    Desired(#[from] DesiredError),
    /// No threads to be had.
    #[error("cannot start the runtime: {0}")]
    Runtime(#[from] std::io::Error),
    /// A bug: work on a switch panicked.
    #[error("work on a switch ended abnormally: {0}")]
    Abnormal(String),
}

/// What work on any switch needs.
pub(crate) struct Shared {
    pub artifacts: Artifacts,
    pub election_id: u128,
    /// Most updates in one Write.
    pub batch: usize,
    timeout: Duration,
    tls: BTreeMap<String, Tls>,
}

impl Shared {
    pub(crate) fn new(fabric: &Fabric, artifacts: &Artifacts, options: &Options) -> Arc<Self> {
        Arc::new(Self {
            artifacts: artifacts.clone(),
            election_id: options.election_id.unwrap_or(fabric.controller.election_id),
            timeout: Duration::from_nanos(fabric.controller.timeout_ns),
            batch: fabric.controller.batch,
            tls: fabric.tls.clone(),
        })
    }

    pub(crate) fn reach(&self, name: &str, switch: &Switch) -> Reach {
        Reach {
            address: switch.address.clone(),
            device_id: switch.device_id,
            timeout: self.timeout,
            tls: self.tls.get(name).cloned(),
        }
    }

    /// Names of the program that a switch runs.
    pub(crate) fn index(&self, switch: &str) -> &Index {
        self.artifacts.of(switch).index()
    }
}

/// Brings every switch to what the fabric file says, writing differences only.
pub async fn apply(fabric: &Fabric, artifacts: &Artifacts, options: &Options) -> Result<Report, ApplyError> {
    let all = desired::desired(fabric, &Routes::of(fabric), artifacts)?;
    let shared = Shared::new(fabric, artifacts, options);
    let switches = each(fabric, options, all, |name, switch, wanted| {
        let shared = Arc::clone(&shared);
        async move { apply_switch(&name, &switch, &wanted, &shared).await }
    })
    .await?;
    Ok(Report { switches, warnings: fabric.warnings.clone() })
}

/// Tells what [`apply`] would do. Needs no mastership and takes none.
pub async fn plan(fabric: &Fabric, artifacts: &Artifacts, options: &Options) -> Result<Plan, ApplyError> {
    let all = desired::desired(fabric, &Routes::of(fabric), artifacts)?;
    let shared = Shared::new(fabric, artifacts, options);
    let switches = each(fabric, options, all, |name, switch, wanted| {
        let shared = Arc::clone(&shared);
        async move { plan_switch(&name, &switch, &wanted, &shared).await }
    })
    .await?;
    Ok(Plan {
        switches,
        thresholds: show::planned(fabric),
        manual_steps: crate::target::manual_steps(fabric),
        warnings: fabric.warnings.clone(),
    })
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

/// Runs on a thread and a runtime of its own: blocking inside somebody else's runtime would panic.
pub(crate) fn blocking<T: Send>(
    work: impl Future<Output = Result<T, ApplyError>> + Send,
) -> Result<T, ApplyError> {
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(work)
        });
        worker.join().unwrap_or_else(|_| Err(ApplyError::Abnormal("it panicked".to_owned())))
    })
}

/// Works on all switches, a bounded number at a time; the results are in order of names. A slow or dead switch holds up
/// nobody but itself.
pub(crate) async fn each<P, T, W, F>(
    fabric: &Fabric,
    options: &Options,
    mut parts: BTreeMap<String, P>,
    work: W,
) -> Result<Vec<T>, ApplyError>
where
    P: Default + Send + 'static,
    T: Send + 'static,
    W: Fn(String, Switch, P) -> F,
    F: Future<Output = T> + Send + 'static,
{
    let wanted = |name: &String| options.only.is_empty() || options.only.contains(name);
    options.progress.begin(fabric.switches.keys().filter(|name| wanted(name)).cloned());
    let places = Places::new(fabric.controller.concurrency);
    let mut tasks = JoinSet::new();
    for (name, switch) in fabric.switches.iter().filter(|(name, _)| wanted(name)) {
        let future = work(name.clone(), switch.clone(), parts.remove(name).unwrap_or_default());
        let (name, places) = (name.clone(), places.clone());
        tasks.spawn(async move { (name, places.work(future).await) });
    }
    let mut done = BTreeMap::new();
    while let Some(result) = tasks.join_next().await {
        let (name, result) = result.map_err(|error| ApplyError::Abnormal(error.to_string()))?;
        options.progress.done(&name);
        done.insert(name, result);
    }
    Ok(done.into_values().collect())
}

async fn plan_switch(name: &str, switch: &Switch, wanted: &Desired, shared: &Shared) -> SwitchPlan {
    let mut plan = SwitchPlan {
        switch: name.to_owned(),
        address: switch.address.clone(),
        pipeline: PipelineState::Unknown,
        changes: Vec::new(),
        error: None,
    };
    if let Err(error) = look(name, switch, wanted, shared, &mut plan).await {
        plan.error = Some(error.to_string());
    }
    plan
}

async fn look(
    name: &str,
    switch: &Switch,
    wanted: &Desired,
    shared: &Shared,
    plan: &mut SwitchPlan,
) -> Result<(), DeviceError> {
    let client = shared.reach(name, switch).observe().await?;
    let artifacts = shared.artifacts.of(name);
    let index = artifacts.index();
    plan.pipeline = pipeline_state(device::cookie(&client).await?, artifacts);
    let actual = if plan.pipeline == PipelineState::Same {
        device::actual(&client, index).await?
    } else {
        // A new pipeline starts with what the program itself puts into its tables.
        let address = || switch.address.clone();
        reconcile::actual(Vec::new(), index)
            .map_err(|source| DeviceError::Foreign { address: address(), source: Box::new(source) })?
    };
    plan.changes = reconcile::difference(wanted, &actual, index).iter().map(ChangeReport::from).collect();
    Ok(())
}

async fn apply_switch(name: &str, switch: &Switch, wanted: &Desired, shared: &Shared) -> SwitchReport {
    let mut report = SwitchReport::new(name, &switch.address);
    let outcome = match shared.reach(name, switch).primary(shared.election_id).await {
        Ok(client) => converge(&client, wanted, shared, &mut report).await,
        Err(error) => Err(error),
    };
    report.error = outcome.err().map(|error| error.to_string());
    if !report.is_ok() {
        tracing::warn!(switch = name, "not in place");
    }
    report
}
