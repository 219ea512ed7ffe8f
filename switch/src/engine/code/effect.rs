// SPDX-License-Identifier: Apache-2.0
//! What an instruction reads and writes of the frame, and whether anything else has a part in it.

use std::ops::Range;

/// What an instruction does to the frame.
#[derive(Debug, Default)]
pub(crate) struct Effect {
    /// Limbs that it may read.
    pub(crate) reads: Vec<Range<usize>>,
    /// Limbs that it writes, or leaves as they are.
    pub(crate) writes: Vec<Range<usize>>,
    /// What it writes, and where it goes on, follow from what it reads, and it does nothing else.
    pub(crate) pure: bool,
    /// It may read any limb of headers and metadata.
    pub(crate) reads_all: bool,
}

impl Effect {
    pub(super) fn pure() -> Self {
        Self { pure: true, ..Self::default() }
    }

    pub(super) fn other() -> Self {
        Self::default()
    }

    pub(super) fn headers() -> Self {
        Self { reads_all: true, ..Self::default() }
    }

    /// Reads so many limbs.
    pub(crate) fn read(&mut self, at: u32, limbs: usize) {
        self.reads.extend((limbs > 0).then(|| at as usize..at as usize + limbs));
    }

    pub(super) fn read_some(&mut self, at: Option<u32>, limbs: usize) {
        at.into_iter().for_each(|at| self.read(at, limbs));
    }

    /// Writes so many limbs.
    pub(crate) fn write(&mut self, at: u32, limbs: usize) {
        self.writes.push(at as usize..at as usize + limbs);
    }

    /// Reads limbs and writes them.
    pub(crate) fn update(&mut self, at: u32, limbs: usize) {
        self.read(at, limbs);
        self.write(at, limbs);
    }
}
