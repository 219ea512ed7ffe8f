// SPDX-License-Identifier: Apache-2.0
//! The embedded quantiser (docs/reference/wire-format.md §5) and the statistics that it goes by
//! (§4).

pub(crate) mod moments;
mod peak;
pub mod quantiser;
pub(crate) mod statistics;
#[expect(clippy::unreadable_literal, clippy::excessive_precision, reason = "a table of computed figures")]
mod tables;
