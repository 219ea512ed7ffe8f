//! Working memory of a row on its way back.

use crate::aligned::{AlignedRow, lend};
use std::cell::RefCell;

/// Buffers that a row is worked on in. They grow to the longest row and stay, so that decoding does not
/// allocate in steady state; one set a thread, because rows may be worked on by many threads at once.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The row as f32, where it goes out in another format.
    pub(crate) wide: Vec<f32>,
    /// The row, padded.
    pub(crate) row: AlignedRow<f32>,
    /// Philox words of the row: signs.
    pub(crate) signs: Vec<u32>,
    /// Philox words of the row: signs of its second rotation.
    pub(crate) second_signs: Vec<u32>,
    /// Thresholds of a baseline.
    pub(crate) dither: Vec<u32>,
    /// The body of a packet, filled up where it was cut.
    pub(crate) body: Vec<u8>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Lends the thread's buffers.
pub(crate) fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with(|cell| lend(cell, work))
}
