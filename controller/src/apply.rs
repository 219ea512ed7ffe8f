//! `apply` and `plan`: every switch on its own, many at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use trimwire_p4runtime::client::{Client, WriteError};
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::status;
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::write_request::Atomicity;

use crate::artifacts::{Artifacts, ArtifactsError};
use crate::desired::{self, Desired, DesiredError};
use crate::device::{self, DeviceError, Observer};
use crate::reconcile::{self, Change};
use crate::report::{ChangeReport, Counts, PipelineState, Plan, Refusal, Report, SwitchPlan, SwitchReport};
use crate::show;
use crate::spec::{Fabric, Switch};
use crate::topology::Routes;

/// What a caller may set beside the fabric file.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Instead of the file's.
    pub election_id: Option<u128>,
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
    pub timeout: Duration,
    batch: usize,
}

impl Shared {
    pub(crate) fn new(fabric: &Fabric, artifacts: &Artifacts, options: &Options) -> Arc<Self> {
        Arc::new(Self {
            artifacts: artifacts.clone(),
            election_id: options.election_id.unwrap_or(fabric.controller.election_id),
            timeout: Duration::from_nanos(fabric.controller.timeout_ns),
            batch: fabric.controller.batch,
        })
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
    let switches = each(fabric, all, |name, switch, wanted| {
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
    let switches = each(fabric, all, |name, switch, wanted| {
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
/// nobody but itself and one of the places.
pub(crate) async fn each<P, T, W, F>(
    fabric: &Fabric,
    mut parts: BTreeMap<String, P>,
    work: W,
) -> Result<Vec<T>, ApplyError>
where
    P: Default + Send + 'static,
    T: Send + 'static,
    W: Fn(String, Switch, P) -> F,
    F: Future<Output = T> + Send + 'static,
{
    let places = Arc::new(Semaphore::new(fabric.controller.concurrency.max(1)));
    let mut tasks = JoinSet::new();
    for (name, switch) in &fabric.switches {
        let future = work(name.clone(), switch.clone(), parts.remove(name).unwrap_or_default());
        let (name, places) = (name.clone(), Arc::clone(&places));
        tasks.spawn(async move {
            // Never closed, so there is always a permit to be had.
            let _permit = places.acquire().await;
            (name, future.await)
        });
    }
    let mut done = BTreeMap::new();
    while let Some(result) = tasks.join_next().await {
        let (name, result) = result.map_err(|error| ApplyError::Abnormal(error.to_string()))?;
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
    let observer = Observer::connect(&switch.address, switch.device_id, shared.timeout).await?;
    let artifacts = shared.artifacts.of(name);
    let index = artifacts.index();
    plan.pipeline = pipeline_state(observer.cookie().await?, artifacts);
    let actual = if plan.pipeline == PipelineState::Same {
        observer.actual(index).await?
    } else {
        // A new pipeline starts with what the program itself puts into its tables.
        let address = || switch.address.clone();
        reconcile::actual(Vec::new(), index)
            .map_err(|source| DeviceError::Foreign { address: address(), source: Box::new(source) })?
    };
    plan.changes = reconcile::difference(wanted, &actual, index).iter().map(ChangeReport::from).collect();
    Ok(())
}

fn pipeline_state(cookie: Option<u64>, artifacts: &Artifacts) -> PipelineState {
    match cookie {
        None => PipelineState::Absent,
        Some(cookie) if cookie == artifacts.cookie() => PipelineState::Same,
        Some(cookie) => PipelineState::Different { cookie },
    }
}

async fn apply_switch(name: &str, switch: &Switch, wanted: &Desired, shared: &Shared) -> SwitchReport {
    let mut report = SwitchReport::new(name, &switch.address);
    if let Err(error) = reconcile_switch(switch, wanted, shared, &mut report).await {
        report.error = Some(error.to_string());
    }
    if !report.is_ok() {
        tracing::warn!(switch = name, "not in place");
    }
    report
}

async fn reconcile_switch(
    switch: &Switch,
    wanted: &Desired,
    shared: &Shared,
    report: &mut SwitchReport,
) -> Result<(), DeviceError> {
    let Switch { address, device_id, .. } = switch;
    let client = device::primary(address, *device_id, shared.election_id, shared.timeout).await?;
    let observer = Observer::connect(address, *device_id, shared.timeout).await?;
    let artifacts = shared.artifacts.of(&report.switch);
    let index = artifacts.index();
    report.pipeline_before = pipeline_state(observer.cookie().await?, artifacts);
    if report.pipeline_before != PipelineState::Same {
        let (p4info, config) = (artifacts.p4info().clone(), artifacts.device_config().to_vec());
        client.set_pipeline(p4info, config, Some(artifacts.cookie()), Action::VerifyAndCommit).await?;
        report.pipeline_pushed = true;
        tracing::info!(switch = %report.switch, "pushed the pipeline");
    }
    client.use_index(index.clone());
    let changes = reconcile::difference(wanted, &observer.actual(index).await?, index);
    let outcome = write(&client, &changes, shared, report).await;
    // Whatever became of the writes: what counts is what the switch holds now.
    if let Ok(actual) = observer.actual(index).await {
        let remaining = reconcile::difference(wanted, &actual, index);
        let missing =
            remaining.iter().filter(|change| change.operation != reconcile::Operation::Delete).count();
        report.in_place = Some(wanted.len().saturating_sub(missing));
        report.remaining = Some(remaining.iter().map(ChangeReport::from).collect());
    }
    outcome
}

/// Writes batch after batch. A refused update does not keep the others from being written; a lost switch does.
async fn write(
    client: &Client,
    changes: &[Change],
    shared: &Shared,
    report: &mut SwitchReport,
) -> Result<(), DeviceError> {
    for batch in reconcile::batches(changes, shared.batch) {
        let updates = batch.iter().map(Change::update).collect();
        let mut refused = BTreeMap::new();
        match client.write(updates, Atomicity::ContinueOnError).await {
            Ok(()) => {}
            Err(WriteError::Rejected(rejection)) => {
                for update in rejection.updates {
                    let code = status::name(update.code as i32);
                    let error = if update.message.is_empty() {
                        code.to_owned()
                    } else {
                        format!("{code}: {}", update.message)
                    };
                    refused.insert(update.index, error);
                }
            }
            Err(WriteError::Client(error)) => return Err(error.into()),
            Err(error) => {
                let lost = |reason| DeviceError::Look {
                    address: client.address().to_owned(),
                    operation: "Write",
                    reason,
                };
                return Err(lost(error.to_string()));
            }
        }
        count(batch, &mut refused, &mut report.written, &mut report.refused);
    }
    Ok(())
}

fn count(
    batch: &[Change],
    errors: &mut BTreeMap<usize, String>,
    written: &mut Counts,
    refused: &mut Vec<Refusal>,
) {
    for (position, change) in batch.iter().enumerate() {
        match errors.remove(&position) {
            Some(error) => refused.push(Refusal { change: change.into(), error }),
            None => written.add(change.operation),
        }
    }
}
