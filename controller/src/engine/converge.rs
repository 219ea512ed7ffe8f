// SPDX-License-Identifier: Apache-2.0
//! Brings one switch, whose primary controller we are, to what it should hold.

use std::collections::BTreeMap;

use trimwire_p4runtime::client::{Client, WriteError};
use trimwire_p4runtime::status;
use trimwire_p4runtime::v1::set_forwarding_pipeline_config_request::Action;
use trimwire_p4runtime::v1::write_request::Atomicity;

use super::lines;
use crate::compile::Desired;
use crate::device::{self, DeviceError};
use crate::fleet::Shared;
use crate::program::Artifacts;
use crate::reconcile::{self, Change};
use crate::report::{ChangeReport, Counts, PipelineState, Refusal, SwitchReport};

/// Pushes the pipeline if the switch runs another, writes what differs, and looks at what became of
/// it. An error leaves in the report what was done before it. Unless it may replace a program, a
/// switch that runs another one is left as it is, and the report says that nothing was begun.
///
/// May be dropped at any time: nothing is written after that.
pub(crate) async fn converge(
    client: &Client,
    shared: &Shared,
    wanted: &Desired,
    may_replace: bool,
    report: &mut SwitchReport,
) -> Result<(), DeviceError> {
    let artifacts = shared.artifacts(&report.switch);
    let index = artifacts.index();
    report.pipeline_before = pipeline_state(client, artifacts).await?;
    if !may_replace && matches!(report.pipeline_before, PipelineState::Different { .. }) {
        report.not_begun = true;
        return Ok(());
    }
    let saves =
        shared.compiler.fabric().switches.get(&report.switch).is_some_and(|s| s.target.saves_programs());
    let is_saved = report.pipeline_before != PipelineState::Same && saves;
    if report.pipeline_before != PipelineState::Same {
        let (p4info, config) = (artifacts.p4info().clone(), artifacts.device_config().to_vec());
        let action = if saves { Action::VerifyAndSave } else { Action::VerifyAndCommit };
        client.set_pipeline(p4info, config, Some(artifacts.cookie()), action).await?;
        report.pipeline_pushed = true;
        tracing::debug!(switch = %report.switch, "pushed the pipeline");
    }
    client.use_index(index.clone());
    report.warnings.extend(lines::warnings(client, &shared.ports(&report.switch)).await);
    let changes = reconcile::difference(wanted, &device::actual(client, index).await?, index);
    report.found = changes.iter().map(ChangeReport::from).collect();
    if changes.is_empty() && !is_saved {
        report.in_place = Some(wanted.len());
        report.remaining = Some(Vec::new());
        return Ok(());
    }
    let mut outcome = write(client, &changes, shared, report).await;
    if is_saved && outcome.is_ok() {
        // Until here the switch has gone on with the program that it had, and its tables.
        outcome = if report.refused.is_empty() {
            client.commit_pipeline().await.map_err(DeviceError::from)
        } else {
            Err(DeviceError::NotCommitted { address: client.address().to_owned() })
        };
    }
    // Whatever became of the writes: what counts is what the switch holds now.
    if let Ok(actual) = device::actual(client, index).await {
        let remaining = reconcile::difference(wanted, &actual, index);
        report.in_place = Some(reconcile::in_place(wanted, &remaining));
        report.remaining = Some(remaining.iter().map(ChangeReport::from).collect());
    }
    outcome
}

/// The pipeline that a switch runs, next to ours.
pub(crate) async fn pipeline_state(
    client: &Client,
    artifacts: &Artifacts,
) -> Result<PipelineState, DeviceError> {
    Ok(match device::cookie(client).await? {
        None => PipelineState::Absent,
        Some(cookie) if cookie == artifacts.cookie() => PipelineState::Same,
        Some(cookie) => PipelineState::Different { cookie },
    })
}

/// Writes batch after batch. A refused update does not keep the others from being written; a lost
/// switch does.
pub(crate) async fn write(
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
                let lost = |reason| DeviceError::Call {
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
