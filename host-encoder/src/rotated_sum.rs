//! Sums of messages that share a rotation, taken before it is undone.

use crate::decode_row::Put;
use crate::decoder::Decoder;
use crate::hadamard::hadamard;
use crate::layout::Layout;
use crate::rotation::{self, RotationKey};
use crate::simd::Isa;

/// Why a message cannot be added to a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RotatedSumError {
    /// Another division into rows.
    #[error(
        "a message of {got} coordinates in rows of 2^{got_row_log2} added to a sum of {expected} in rows of 2^{row_log2}"
    )]
    Layout {
        /// The message's coordinates.
        got: usize,
        /// log2 of its row length.
        got_row_log2: u8,
        /// The sum's coordinates.
        expected: usize,
        /// log2 of its row length.
        row_log2: u8,
    },
    /// Another rotation: the sum would mean nothing.
    #[error(
        "a message rotated under {got:?} added to a sum under {expected:?}: ranks must share the rotation (rank 0)"
    )]
    Key {
        /// The message's.
        got: RotationKey,
        /// The sum's.
        expected: RotationKey,
    },
    /// A row was decoded already ([`Decoder::finish_row_into`]), and its packets' planes are gone.
    #[error("row {row} of the message was decoded before the message was added to a sum")]
    Taken {
        /// The first such row.
        row: usize,
    },
    /// A codec that does not rotate.
    #[error("codec {0} does not rotate: add its messages with Decoder::add_into")]
    NotRotated(crate::codec::Codec),
}

/// A sum in the rotated domain: one inverse transform a row, however many messages are added.
///
/// Add every rank's decoder, then take the sum out once. Equal to the sum of the decoded messages up to f32 rounding. Call
/// order: [`Self::add`] any number of times, [`Self::finish_into`]; then [`Self::reset`] for the next sum.
#[derive(Debug, Clone)]
pub struct RotatedSum {
    layout: Layout,
    key: RotationKey,
    isa: Isa,
    /// Padded; scaled so that an unnormalised transform gives the coordinates.
    sum: Vec<f32>,
}

impl RotatedSum {
    /// An empty sum of messages rotated under `key`.
    pub fn new(layout: Layout, key: RotationKey) -> Self {
        Self { layout, key, isa: Isa::best(), sum: vec![0.0; layout.padded_coordinates()] }
    }

    /// On another instruction set. The result is the same, bit for bit.
    pub fn with_isa(self, isa: Isa) -> Self {
        Self { isa, ..self }
    }

    /// Adds what `decoder` holds. Nothing is changed on an error.
    pub fn add(&mut self, decoder: &Decoder) -> Result<(), RotatedSumError> {
        let shape = |layout: Layout| (layout.coordinates(), layout.row_log2());
        let (expected, got) = (shape(self.layout), shape(decoder.layout()));
        if expected != got {
            return Err(RotatedSumError::Layout {
                got: got.0,
                got_row_log2: got.1,
                expected: expected.0,
                row_log2: expected.1,
            });
        }
        if !decoder.codec().rotates() {
            return Err(RotatedSumError::NotRotated(decoder.codec()));
        }
        if decoder.key() != self.key {
            return Err(RotatedSumError::Key { got: decoder.key(), expected: self.key });
        }
        if let Some(row) = decoder.first_taken() {
            return Err(RotatedSumError::Taken { row });
        }
        decoder.decode(&mut self.sum, Put::AddRotated);
        Ok(())
    }

    /// Rotates the sum back into `out` (shape: `layout.coordinates()`; a longer or shorter slice is filled as far as both
    /// reach). The sum is used up: [`Self::reset`] before the next one.
    pub fn finish_into(&mut self, out: &mut [f32]) {
        let row_length = self.layout.row_range(0).len();
        let mut signs = Vec::new();
        for (row, values) in self.sum.chunks_mut(row_length).enumerate() {
            let start = (row * row_length).min(out.len());
            let end = (start + values.len()).min(out.len());
            hadamard(self.isa, values);
            rotation::signs_of(self.isa, self.key, row as u32, values.len(), &mut signs);
            rotation::flip_row(self.isa, values, &signs);
            out[start..end].copy_from_slice(&values[..end - start]);
        }
    }

    /// Empties the sum for messages rotated under `key`; keeps the buffer.
    pub fn reset(&mut self, key: RotationKey) {
        self.key = key;
        self.sum.fill(0.0);
    }
}
