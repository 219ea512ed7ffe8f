// SPDX-License-Identifier: Apache-2.0
//! Working memory: rows that lie well in a cache, buffers that a thread lends.

use std::cell::RefCell;

/// Words of a cache line.
const LINE: usize = 16;
/// Bytes after which a first-level cache begins again.
const PAGE: usize = 4096;

/// A row of f32s or code words that begins at a cache line: vectors that straddle two lines cost
/// twice.
#[derive(Debug, Default)]
pub(crate) struct AlignedRow<T> {
    room: Vec<T>,
    /// Where the row lies in its room.
    start: usize,
    length: usize,
}

impl<T: Copy + Default> AlignedRow<T> {
    /// The row, `length` long from now on; its content is left from whatever it was used for
    /// before.
    pub(crate) fn of(&mut self, length: usize) -> &mut [T] {
        if self.room.len() < length + LINE {
            self.room.resize(length + LINE, T::default());
        }
        self.start = self.room.as_ptr().align_offset(LINE * size_of::<T>()).min(LINE);
        self.length = length;
        self.get_mut()
    }

    /// [`Self::of`], half a page away from where `other` lies in its page: caches put what lies
    /// alike in pages at the same places.
    pub(crate) fn away_from(&mut self, other: *const T, length: usize) -> &mut [T] {
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

/// Lends a thread's buffers. Where they are lent already, as to a job that a work-stealing pool put
/// aside, fresh ones.
pub(crate) fn lend<S: Default, T>(buffers: &RefCell<S>, work: impl FnOnce(&mut S) -> T) -> T {
    match buffers.try_borrow_mut() {
        Ok(mut buffers) => work(&mut buffers),
        Err(_) => work(&mut S::default()),
    }
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
            let row = row.away_from(at, 64);
            assert_eq!((row.as_ptr() as usize % 64, row.len()), (0, 64));
            let apart = (row.as_ptr() as usize).wrapping_sub(at as usize) % PAGE;
            assert!(PAGE / 2 - 64 < apart && apart <= PAGE / 2, "{apart} bytes");
        }
    }
}
