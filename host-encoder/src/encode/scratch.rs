//! Working memory of a row on its way to packets.

use super::packet::QuantiseScratch;
use crate::aligned::{AlignedRow, lend};
use std::cell::RefCell;

/// Buffers that a row is worked on in. They grow to the longest row and stay, so that encoding does not
/// allocate in steady state; one set a thread, because rows may be worked on by many threads at once.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The row as f32, where it came in another format.
    pub(crate) wide: Vec<f32>,
    /// The row, padded.
    pub(crate) row: AlignedRow<f32>,
    /// Philox words of the row: signs.
    pub(crate) signs: Vec<u32>,
    /// Philox words of the row: signs of its second rotation.
    pub(crate) second_signs: Vec<u32>,
    /// A packet between the loops of its quantisation.
    pub(crate) room: QuantiseScratch,
    /// Code words, thirty-third bits and thresholds of a baseline.
    pub(crate) codes: Vec<u32>,
    pub(crate) last: Vec<u32>,
    pub(crate) dither: Vec<u32>,
    /// What is between a row's packets and what their receiver holds.
    pub(crate) own: super::replica::ReplicaScratch,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Lends the thread's buffers.
pub(crate) fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with(|cell| lend(cell, work))
}
