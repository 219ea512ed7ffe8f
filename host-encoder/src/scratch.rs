//! Working memory of one row.

use std::cell::RefCell;

/// Bytes of a cache line, in f32s.
const LINE: usize = 16;

/// A row that begins at a cache line: vectors that straddle two lines cost twice.
#[derive(Debug, Default)]
pub(crate) struct AlignedRow(Vec<f32>);

impl AlignedRow {
    /// The row, `length` long; its content is left from whatever it was used for before.
    pub(crate) fn of(&mut self, length: usize) -> &mut [f32] {
        if self.0.len() < length + LINE {
            self.0.resize(length + LINE, 0.0);
        }
        let start = self.0.as_ptr().align_offset(LINE * size_of::<f32>()).min(LINE);
        &mut self.0[start..start + length]
    }
}

/// Buffers that a row is worked on in. They grow to the longest row and stay, so that encoding and decoding do not
/// allocate in steady state; one set a thread, because rows may be worked on by many threads at once.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The row as f32, where it came in another format.
    pub(crate) wide: Vec<f32>,
    /// The row, padded.
    pub(crate) row: AlignedRow,
    /// Philox words of the row: signs.
    pub(crate) signs: Vec<u32>,
    /// Philox words of the row: dither.
    pub(crate) dither: Vec<u32>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
    static SCORES: RefCell<(Vec<f64>, Vec<f64>)> = RefCell::default();
}

/// Lends the thread's buffers. Where they are lent already, fresh ones.
pub(crate) fn with_scratch<T>(work: impl FnOnce(&mut Scratch) -> T) -> T {
    SCRATCH.with(|cell| match cell.try_borrow_mut() {
        Ok(mut scratch) => work(&mut scratch),
        Err(_) => work(&mut Scratch::default()),
    })
}

/// Lends buffers for the packets' scores and for a sample of them. A work-stealing pool may run another encoding on a
/// thread that waits in the middle of one; that one gets fresh buffers.
pub(crate) fn with_scores<T>(packets: usize, work: impl FnOnce(&mut [f64], &mut Vec<f64>) -> T) -> T {
    let (mut scores, mut sample) = SCORES.with(RefCell::take);
    scores.clear();
    scores.resize(packets, 0.0);
    let result = work(&mut scores, &mut sample);
    SCORES.with(|cell| cell.replace((scores, sample)));
    result
}
