// SPDX-License-Identifier: Apache-2.0
//! Actions, and what table entries do.

use super::target::{Refusal, Result, Target};
use crate::engine::entity::{ActionCall, ActionSpec};
use trimwire_p4runtime::p4info::Index;
use trimwire_p4runtime::v1;
use trimwire_p4runtime::v1::table_action::Type as ActionType;

/// An action with its arguments in the program's order.
pub(super) fn call_of(index: &Index, action: Option<&v1::Action>) -> Result<ActionCall> {
    let action = action.ok_or_else(|| Refusal::invalid("an action is missing"))?;
    let known = index.action(action.action_id)?;
    let params = known
        .action
        .params
        .iter()
        .map(|param| {
            let given = action.params.iter().find(|given| given.param_id == param.id);
            given.map(|given| given.value.clone()).ok_or_else(|| {
                Refusal::invalid(format!("action {}: parameter {} is missing", known.name(), param.name))
            })
        })
        .collect::<Result<_>>()?;
    Ok(ActionCall { action: known.name().to_owned(), params })
}

/// The way back.
pub(super) fn action_of(index: &Index, call: &ActionCall) -> Result<v1::Action> {
    let known = index.action(call.action.as_str())?;
    let params = known.action.params.iter().zip(&call.params);
    Ok(v1::Action {
        action_id: known.id(),
        params: params
            .map(|(param, value)| v1::action::Param { param_id: param.id, value: value.clone() })
            .collect(),
    })
}

impl Target<'_> {
    /// What an entry of a table does, as the controller wrote it.
    pub(super) fn table_action(&self, profile: Option<&str>, action: &ActionSpec) -> Result<v1::TableAction> {
        let of = match action {
            ActionSpec::Direct(call) => ActionType::Action(action_of(self.index, call)?),
            ActionSpec::Member(id) => ActionType::ActionProfileMemberId(*id),
            ActionSpec::Group(id) => match profile.and_then(|profile| self.action_set(profile, *id)) {
                Some(set) => ActionType::ActionProfileActionSet(set?),
                None => ActionType::ActionProfileGroupId(*id),
            },
        };
        Ok(v1::TableAction { r#type: Some(of) })
    }
}
