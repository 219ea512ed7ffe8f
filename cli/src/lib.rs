// SPDX-License-Identifier: Apache-2.0
//! What the `trimwire` command shares with the laboratory's: exit codes, tables, pages, and the
//! small network that both train.

pub mod failure;
pub mod output;
pub mod page;
pub mod training;
