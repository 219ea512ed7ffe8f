// SPDX-License-Identifier: Apache-2.0
//! What a program starts with.

use std::sync::Arc;

use super::action::Action;
use super::arrays::Arrays;
use super::meter::MeterArray;
use super::parser::ValueSet;
use super::profile::Profile;
use super::table::Table;

/// What the program starts with, and the control plane and packets change.
#[derive(Debug)]
pub(super) struct InitialState {
    pub(super) actions: Arc<[Action]>,
    pub(super) tables: Vec<Table>,
    pub(super) profiles: Vec<Profile>,
    pub(super) arrays: Arrays,
    pub(super) meters: Vec<MeterArray>,
    pub(super) value_sets: Vec<ValueSet>,
}
