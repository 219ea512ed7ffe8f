// SPDX-License-Identifier: Apache-2.0
//! Working memory of a row on its way to packets or back.

use crate::aligned::{AlignedRow, lend};
use crate::encode::packet::QuantiseScratch;
use crate::quantise::statistics::Statistics;
use std::cell::RefCell;

/// Buffers for encoding or decoding a row, one set for each thread. They grow to the longest row
/// and stay, so that neither way allocates in steady state.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The row as f32, where it came in another format and is only copied.
    pub(crate) wide: Vec<f32>,
    /// The row, padded.
    pub(crate) row: AlignedRow<f32>,
    /// Philox words of the row: signs.
    pub(crate) signs: Vec<u32>,
    /// Philox words of the row: signs of its second rotation.
    pub(crate) second_signs: Vec<u32>,
    /// Which blocks of the row are zero.
    pub(crate) zeros: Vec<bool>,
    /// A packet between the loops of its quantisation.
    pub(crate) room: QuantiseScratch,
    /// What is between a row's packets and what their receiver holds.
    pub(crate) own: ReplicaScratch,
    /// The body of a packet, filled up where it was trimmed.
    pub(crate) body: Vec<u8>,
}

/// What is between a row's packets and what their receiver holds.
#[derive(Debug, Default)]
pub(crate) struct ReplicaScratch {
    /// Of each packet, with what multiplies working values into zone widths.
    pub(crate) statistics: Vec<(Statistics, f32)>,
    /// The code words of one packet.
    pub(crate) words: AlignedRow<u32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Lends the thread's buffers.
pub(crate) fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with(|cell| lend(cell, work))
}
