// SPDX-License-Identifier: Apache-2.0
//! One row to packets (docs/reference/wire-format.md §3–§5).

mod concentration;
pub(crate) mod importance;
pub(crate) mod packet;
pub(crate) mod repack;
mod replica;
pub(crate) mod row;
pub(crate) mod task;
