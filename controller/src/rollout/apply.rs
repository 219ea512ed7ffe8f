// SPDX-License-Identifier: Apache-2.0
//! `apply` and `plan`: every switch on its own, many at a time.

use std::sync::Arc;

use super::converge::{converge, pipeline_state};
use super::device::{self, DeviceError};
use super::fleet::{ApplyError, Options, Shared, blocking, each};
use super::lines;
use super::report::{ChangeReport, PipelineState, Plan, Report, SwitchPlan, SwitchReport};
use crate::model::{Fabric, Switch};
use crate::program::Artifacts;
use crate::reconcile;

/// Brings every switch to what the fabric file says, writing differences only. All at once, each on its own.
pub async fn apply(fabric: &Fabric, artifacts: &Artifacts, options: &Options) -> Result<Report, ApplyError> {
    let shared = Shared::new(fabric, artifacts, options);
    shared.fits(options)?;
    let switches = each(fabric, options, |name, switch| {
        let shared = Arc::clone(&shared);
        async move { apply_switch(&name, &switch, &shared).await }
    })
    .await?;
    Ok(Report { switches, warnings: fabric.warnings.clone() })
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
    Ok(Plan {
        switches,
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

/// What would be done to one switch.
pub(crate) async fn plan_switch(name: &str, switch: &Switch, shared: &Shared) -> SwitchPlan {
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

/// Brings one switch to what it should hold.
pub(crate) async fn apply_switch(name: &str, switch: &Switch, shared: &Shared) -> SwitchReport {
    let mut report = SwitchReport::new(name, &switch.address);
    let outcome = match shared.reach(name, switch).primary(shared.election_id).await {
        Ok(client) => match shared.compile(name) {
            Ok(wanted) => converge(&client, shared, &wanted, true, &mut report).await,
            Err(error) => Err(error.into()),
        },
        Err(error) => Err(error),
    };
    report.error = outcome.err().map(|error| error.to_string());
    if !report.is_ok() {
        tracing::warn!(switch = name, "not in place");
    }
    report
}
