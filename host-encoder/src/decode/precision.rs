// SPDX-License-Identifier: Apache-2.0
//! How much of a packet is decoded.

use crate::quantise::statistics::Statistics;

/// A packet's first `more` coordinates are decoded at `planes + 1` planes, the rest at `planes`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Precision {
    pub(crate) statistics: Statistics,
    pub(crate) planes: u8,
    pub(crate) more: u16,
    /// It is known which of its blocks are zero.
    pub(crate) zeros: bool,
}
