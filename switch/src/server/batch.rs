// SPDX-License-Identifier: Apache-2.0
//! The updates of a Write (P4Runtime, "Batch Atomicity").
//!
//! Callers hold the switch's lock for a whole batch of all or none: no packet is processed between
//! two updates, so that it is atomic for packets that are not in the switch yet. Packets in a
//! queue, which ingress has processed and egress has not, are the concern of
//! [`Stages::splits`](super::stages::Stages::splits).

use super::entities::Target;
use super::limits::MOST_PARTS;
use super::refusal::Refusal;
use super::role::Access;
use tonic::Code;
use trimwire_p4runtime::entity::check_update;
use trimwire_p4runtime::{status, v1};

/// Carries out one update, and tells what became of it.
pub(super) fn one(target: &mut Target<'_>, access: &Access, update: &v1::Update) -> v1::Error {
    outcome(apply(target, access, update))
}

/// Carries out all updates or none.
pub(super) fn all_or_none(
    target: &mut Target<'_>,
    access: &Access,
    updates: &[v1::Update],
) -> Vec<v1::Error> {
    target.ledger.begin_batch();
    target.control.begin_batch();
    for (at, update) in updates.iter().enumerate() {
        let Err(refusal) = apply(target, access, update) else { continue };
        target.control.undo_batch();
        target.ledger.undo_batch();
        let aborted = |other: usize| {
            let what = if other < at { "undone" } else { "not attempted" };
            status::error(Code::Aborted, format!("{what}, because update {at} failed"))
        };
        let mut outcomes: Vec<_> = (0..updates.len()).map(aborted).collect();
        outcomes[at] = outcome(Err(refusal));
        return outcomes;
    }
    target.control.end_batch();
    target.ledger.end_batch();
    vec![status::ok(); updates.len()]
}

/// Whether a Write may be all or none for a client without a lane: packets wait meanwhile.
pub(super) fn is_small(target: &Target<'_>, updates: &[v1::Update]) -> Result<(), Refusal> {
    let entities = updates.iter().filter_map(|update| update.entity.as_ref()?.entity.as_ref());
    let parts: u64 = entities.map(|entity| target.weight(entity)).sum();
    if parts <= MOST_PARTS {
        return Ok(());
    }
    Err(Refusal::new(
        Code::ResourceExhausted,
        format!(
            "an atomic Write of {parts} updates, cells, replicas and members; only a primary or a named controller may \
             write more than {MOST_PARTS} at once; CONTINUE_ON_ERROR has no such limit"
        ),
    ))
}

fn apply(target: &mut Target<'_>, access: &Access, update: &v1::Update) -> Result<(), Refusal> {
    let update = check_update(update, target.index)?;
    let Some(entity) = update.entity.as_ref().and_then(|entity| entity.entity.as_ref()) else {
        return Err(Refusal::invalid("an update without an entity"));
    };
    if !access.allows(target.index, entity) {
        let entity = update.entity.clone().unwrap_or_default();
        let entity = trimwire_p4runtime::entity::describe(&entity, Some(target.index));
        return Err(Refusal::new(Code::PermissionDenied, format!("{entity}: not within this role's config")));
    }
    target.write(update.r#type(), entity)
}

fn outcome(result: Result<(), Refusal>) -> v1::Error {
    match result {
        Ok(()) => status::ok(),
        Err(refusal) => status::error(refusal.code, refusal.message),
    }
}
