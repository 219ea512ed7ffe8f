// SPDX-License-Identifier: Apache-2.0
//! What a program may take of memory and of the time to load it.

use super::error::LoadError;
use std::cell::Cell;

/// Limits of a program; all but the first two are far above what compilers write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgramLimits {
    /// Bytes of memory that its JSON takes while it is read, of which p4c writes about an eighth as
    /// text.
    pub json_bytes: usize,
    /// Bytes of all counters, registers and meters.
    pub state_bytes: usize,
    /// Limbs of 64 bits of all headers and metadata, which every packet carries.
    pub header_limbs: usize,
    /// Instructions, and elsewhere the pieces that are put together from shared parts of a program.
    pub instructions: usize,
}

impl Default for ProgramLimits {
    fn default() -> Self {
        Self::within(20 << 20)
    }
}

impl ProgramLimits {
    /// For programs of the operator's own.
    pub const TRUSTED: Self =
        Self { json_bytes: 1 << 30, state_bytes: 1 << 30, header_limbs: 16_384, instructions: 1 << 22 };

    /// Bytes of memory that a packet's header, a digest's message, an entry or a cell may take:
    /// what waits for a controller has room for a few of them.
    pub fn message_bytes(&self) -> usize {
        (self.json_bytes / 320).min(64 << 10)
    }

    /// All of them from the first, in proportions of what p4c writes.
    pub fn within(json_bytes: usize) -> Self {
        Self {
            json_bytes,
            state_bytes: json_bytes / 5 * 4,
            header_limbs: (json_bytes / 1_280).min(Self::TRUSTED.header_limbs),
            instructions: (json_bytes / 80).min(Self::TRUSTED.instructions),
        }
    }
}

/// Counts what a program takes where a few bytes of it may be used many times.
#[derive(Debug)]
pub(super) struct Pieces {
    left: Cell<usize>,
    most: usize,
}

impl Pieces {
    pub(super) fn new(most: usize) -> Self {
        Self { left: Cell::new(most), most }
    }

    /// Takes so many.
    pub(super) fn take(&self, pieces: usize) -> Result<(), LoadError> {
        match self.left.get().checked_sub(pieces) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(too_large(self.most)),
        }
    }
}

/// The program takes more instructions than it may.
pub(super) fn too_large(most: usize) -> LoadError {
    LoadError::Unsupported {
        construct: format!(
            "a program of more than {most} instructions and references to actions (--limit program)"
        ),
        location: String::new(),
    }
}
