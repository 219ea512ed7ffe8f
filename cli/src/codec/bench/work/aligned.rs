// SPDX-License-Identifier: Apache-2.0
//! Buffers as tensors of machine learning frameworks are.

/// Coordinates that begin at a cache line: vectors that straddle two lines cost twice.
pub(super) struct Aligned<E> {
    room: Vec<E>,
    start: usize,
}

impl<E: Copy + Default> Aligned<E> {
    /// Coordinates of a cache line.
    const LINE: usize = 64 / size_of::<E>();

    /// Zeros.
    pub(super) fn new(length: usize) -> Self {
        let room = vec![E::default(); length + Self::LINE];
        let start = room.as_ptr().align_offset(64).min(Self::LINE);
        Self { room, start }
    }

    /// The coordinates.
    pub(super) fn values(&mut self) -> &mut [E] {
        let length = self.room.len() - Self::LINE;
        &mut self.room[self.start..self.start + length]
    }
}
