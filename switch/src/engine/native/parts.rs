// SPDX-License-Identifier: Apache-2.0
//! What code names beside limbs.

use super::super::arrays::Arrays;
use super::super::calculation::{Calculation, Checksum};
use super::super::layout::Layout;
use super::super::parser::Deparser;
use super::super::program::Program;
use super::super::state::InitialState;
use super::super::table::Table;

/// What code names beside limbs.
pub(super) struct Parts<'a> {
    pub(super) layout: &'a Layout,
    pub(super) deparser: &'a Deparser,
    pub(super) calculations: &'a [Calculation],
    pub(super) checksums: &'a [Checksum],
    pub(super) tables: &'a [Table],
    pub(super) arrays: &'a Arrays,
}

impl<'a> Parts<'a> {
    pub(super) fn new(program: &'a Program, state: &'a InitialState) -> Self {
        let Program { layout, deparser, calculations, checksums, .. } = program;
        Self { layout, deparser, calculations, checksums, tables: &state.tables, arrays: &state.arrays }
    }
}
