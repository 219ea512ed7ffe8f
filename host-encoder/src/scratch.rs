//! Working memory of one row.

use crate::quantise::Room;
use std::cell::RefCell;

/// Words of a cache line.
const LINE: usize = 16;
/// Bytes after which a first-level cache begins again.
const PAGE: usize = 4096;

/// A row of f32s or code words that begins at a cache line: vectors that straddle two lines cost twice.
#[derive(Debug, Default)]
pub(crate) struct AlignedRow<T> {
    room: Vec<T>,
    /// Where the row lies in its room.
    start: usize,
    length: usize,
}

impl<T: Copy + Default> AlignedRow<T> {
    /// The row, `length` long from now on; its content is left from whatever it was used for before.
    pub(crate) fn of(&mut self, length: usize) -> &mut [T] {
        if self.room.len() < length + LINE {
            self.room.resize(length + LINE, T::default());
        }
        self.start = self.room.as_ptr().align_offset(LINE * size_of::<T>()).min(LINE);
        self.length = length;
        self.get_mut()
    }

    /// [`Self::of`], half a page away from where `other` lies in its page: caches put what lies alike in pages at the same places.
    pub(crate) fn apart_from(&mut self, other: *const T, length: usize) -> &mut [T] {
        let page = PAGE / size_of::<T>();
        if self.room.len() < length + page + LINE {
            self.room.resize(length + page + LINE, T::default());
        }
        let offset = |at: *const T| at as usize / (LINE * size_of::<T>()) * LINE % page;
        let line = self.room.as_ptr().align_offset(LINE * size_of::<T>()).min(LINE);
        let here = self.room.as_ptr().wrapping_add(line);
        self.start = line + (offset(other) + page + page / 2 - offset(here)) % page;
        self.length = length;
        self.get_mut()
    }

    /// The row as it is.
    pub(crate) fn get(&self) -> &[T] {
        self.room.get(self.start..self.start + self.length).unwrap_or_default()
    }

    /// The same, to be written.
    pub(crate) fn get_mut(&mut self) -> &mut [T] {
        self.room.get_mut(self.start..self.start + self.length).unwrap_or_default()
    }
}

impl<T: Copy + Default> Clone for AlignedRow<T> {
    fn clone(&self) -> Self {
        // A copy's room begins elsewhere in its cache line.
        let mut copy = Self::default();
        copy.of(self.length).copy_from_slice(self.get());
        copy
    }
}

/// Buffers that a row is worked on in. They grow to the longest row and stay, so that encoding and decoding do not
/// allocate in steady state; one set a thread, because rows may be worked on by many threads at once.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The row as f32, where it came in another format.
    pub(crate) wide: Vec<f32>,
    /// The row, padded.
    pub(crate) row: AlignedRow<f32>,
    /// Philox words of the row: signs.
    pub(crate) signs: Vec<u32>,
    /// Philox words of the row: dither.
    pub(crate) dither: Vec<u32>,
    /// A packet between the loops of its quantisation.
    pub(crate) room: Room,
    /// The body of a packet, filled up where it was cut.
    pub(crate) body: Vec<u8>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_lies_at_a_line_half_a_page_apart_from_any_other() {
        let other = [0_f32; 2048];
        let mut row = AlignedRow::<f32>::default();
        for start in 0..1100 {
            let at = other[start..].as_ptr();
            let row = row.apart_from(at, 64);
            assert_eq!((row.as_ptr() as usize % 64, row.len()), (0, 64));
            let apart = (row.as_ptr() as usize).wrapping_sub(at as usize) % PAGE;
            assert!(PAGE / 2 - 64 < apart && apart <= PAGE / 2, "{apart} bytes");
        }
    }
}
