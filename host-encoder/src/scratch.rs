// SPDX-License-Identifier: Apache-2.0
//! Working memory of a row on its way to packets or back.

use crate::aligned::{AlignedRow, lend};
use crate::encode::packet::QuantiseScratch;
use crate::encode::replica::ReplicaScratch;
use std::cell::RefCell;

/// Buffers that a row is worked on in. They grow to the longest row and stay, so that neither way
/// allocates in steady state; one set a thread, because rows may be worked on by many threads at once.
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
    /// A packet between the loops of its quantisation.
    pub(crate) room: QuantiseScratch,
    /// What is between a row's packets and what their receiver holds.
    pub(crate) own: ReplicaScratch,
    /// The body of a packet, filled up where it was trimmed.
    pub(crate) body: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Lends the thread's buffers.
pub(crate) fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with(|cell| lend(cell, work))
}
