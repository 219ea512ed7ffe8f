// SPDX-License-Identifier: Apache-2.0
//! What a controller writes, without a connection: for simulations of many switches.

use super::batch;
use super::entities::Target;
use super::ledger::Ledger;
use super::role::Access;
use crate::engine::Pipeline;
use trimwire_p4runtime::entity::describe_update;
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::v1::Update;

/// An update that a program does not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{update}: {reason}")]
pub struct InstallError {
    /// The update, in the program's words.
    pub update: String,
    /// Why, as a client of P4Runtime would be told.
    pub reason: String,
}

/// Carries out `updates` in their order on a program that has just been loaded, as a Write would;
/// `index` is its P4Info's. What P4Runtime remembers beside the tables (one-shot groups, digests'
/// subscriptions) is forgotten: no server goes on from here.
///
/// # Errors
/// The first update that is refused; those before it were carried out.
pub fn install(pipeline: &mut Pipeline, index: &Index, updates: &[Update]) -> Result<(), InstallError> {
    let mut ledger = Ledger::default();
    let mut target = Target { control: pipeline.control(), ledger: &mut ledger, index, now_ns: 0 };
    for update in updates {
        let refused = batch::one(&mut target, &Access::default(), update);
        if refused.canonical_code != 0 {
            let update = describe_update(update, Some(index));
            return Err(InstallError { update, reason: refused.message });
        }
    }
    Ok(())
}
