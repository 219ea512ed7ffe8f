// SPDX-License-Identifier: Apache-2.0
//! What a pass over a switch's tables found, and why it failed.

use std::collections::BTreeMap;

use crate::engine::status::Drift;
use crate::reconcile::Operation;
use crate::report::{PipelineState, SwitchReport};

/// What a pass found and repaired, by kind. After a push everything is missing, which says nothing
/// new.
pub(super) fn drift(report: &SwitchReport) -> BTreeMap<Drift, u64> {
    let written = &report.written;
    let kinds = match (report.pipeline_pushed, report.pipeline_before) {
        (true, PipelineState::Different { .. }) => [(Drift::Pipeline, 1); 3],
        (true, _) => [(Drift::Restarted, 1); 3],
        (false, _) => {
            [Operation::Insert, Operation::Modify, Operation::Delete].map(|operation| match operation {
                Operation::Insert => (Drift::Missing, written.inserted),
                Operation::Modify => (Drift::Changed, written.modified),
                Operation::Delete => (Drift::Foreign, written.deleted),
            })
        }
    };
    kinds.into_iter().filter(|(_, count)| *count > 0).map(|(kind, count)| (kind, count as u64)).collect()
}

/// Why a pass did not do it.
pub(super) fn why(report: &SwitchReport) -> String {
    if let Some(error) = &report.error {
        return error.clone();
    }
    let remaining = report.remaining.as_ref().map_or_else(
        || "what is in place could not be read back".to_owned(),
        |remaining| format!("{} entities are not in place", remaining.len()),
    );
    match report.refused.first() {
        Some(refusal) => {
            format!(
                "{} updates refused ({}: {}); {remaining}",
                report.refused.len(),
                refusal.change,
                refusal.error
            )
        }
        None => remaining,
    }
}
