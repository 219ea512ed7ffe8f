//! Sums of messages that share a rotation, taken before it is undone.

use super::decoder::Decoder;
use super::receiver::{OutputError, RowReceiver};
use crate::rotate::{Job, Rotation, rotation};
use crate::simd::Isa;
use crate::wire::{Codec, Envelope, Layout};

/// Why a message cannot be added to a sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RotatedSumError {
    /// Another division into rows.
    #[error(
        "a message of {got} coordinates in {got_rows} rows added to a sum of {expected} in {rows}, or other rows"
    )]
    Layout {
        /// The message's coordinates.
        got: usize,
        /// Its rows.
        got_rows: usize,
        /// The sum's coordinates.
        expected: usize,
        /// Its rows.
        rows: usize,
    },
    /// Another rotation: the sum would mean nothing.
    #[error("a message of {got:?} added to a sum of {expected:?}: ranks must share the rotation")]
    Job {
        /// The message's.
        got: Job,
        /// The sum's.
        expected: Job,
    },
    /// Another message, so another rotation.
    #[error("message {got} added to a sum of messages {expected}")]
    Message {
        /// The message.
        got: u32,
        /// The sum's messages.
        expected: u32,
    },
    /// A row was decoded already ([`Decoder::decode_row_into`]), and its packets' planes are gone.
    #[error("row {row} of the message was decoded before the message was added to a sum")]
    Taken {
        /// The first such row.
        row: usize,
    },
    /// A codec that does not rotate.
    #[error("codec {0} does not rotate: add its messages with Decoder::add_into")]
    NotRotated(Codec),
}

/// A sum in the rotated domain: one inverse transform a row, however many messages are added.
///
/// Add every rank's decoder, then take the sum out once. Equal to the sum of the decoded messages up to f32 rounding. Call
/// order: [`Self::add`] any number of times, [`Self::finish_into`]; then [`Self::reset`] for the next sum.
#[derive(Debug, Clone)]
pub struct RotatedSum {
    layout: Layout,
    job: Job,
    envelope: Envelope,
    isa: Isa,
    /// Padded; scaled so that an unnormalised transform gives the coordinates.
    sum: Vec<f32>,
}

impl RotatedSum {
    /// An empty sum of messages of that number (whatever their rank) in a job whose ranks share rotations.
    pub fn new(layout: Layout, job_seed: u64, envelope: Envelope) -> Self {
        let sum = vec![0.0; layout.padded_coordinates()];
        let job = Job { seed: job_seed, rotation: Rotation::Shared };
        Self { layout, job, envelope, isa: Isa::best(), sum }
    }

    /// On another instruction set. The result is the same, bit for bit.
    pub fn with_isa(self, isa: Isa) -> Self {
        Self { isa, ..self }
    }

    /// Adds what `decoder` holds. Nothing is changed on an error.
    pub fn add(&mut self, decoder: &Decoder) -> Result<(), RotatedSumError> {
        let other = decoder.layout();
        let rows = |layout: &Layout| -> Vec<usize> {
            (0..layout.rows()).map(|row| layout.row_coordinates(row).end).collect()
        };
        if self.layout != *other && rows(&self.layout) != rows(other) {
            return Err(RotatedSumError::Layout {
                got: other.coordinates(),
                got_rows: other.rows(),
                expected: self.layout.coordinates(),
                rows: self.layout.rows(),
            });
        }
        if !decoder.codec().rotates() {
            return Err(RotatedSumError::NotRotated(decoder.codec()));
        }
        if decoder.job() != self.job {
            return Err(RotatedSumError::Job { got: decoder.job(), expected: self.job });
        }
        let (got, expected) = (decoder.envelope().message, self.envelope.message);
        if got != expected {
            return Err(RotatedSumError::Message { got, expected });
        }
        if let Some(row) = decoder.rows().iter().position(RowReceiver::is_taken) {
            return Err(RotatedSumError::Taken { row });
        }
        for row in decoder.rows() {
            row.add_rotated_into(&mut self.sum[self.layout.row_range(row.row())]);
        }
        Ok(())
    }

    /// Rotates the sum back into `out` (shape: `layout.coordinates()`). The sum is used up: [`Self::reset`] before the next one.
    pub fn finish_into(&mut self, out: &mut [f32]) -> Result<(), OutputError> {
        let expected = self.layout.coordinates();
        if out.len() != expected {
            return Err(OutputError { got: out.len(), expected });
        }
        let (mut signs, key) = (Vec::new(), self.job.key(self.envelope));
        for row in 0..self.layout.rows() {
            let (values, out) =
                (&mut self.sum[self.layout.row_range(row)], &mut out[self.layout.row_coordinates(row)]);
            rotation::transform(self.isa, values);
            rotation::signs_of(self.isa, key, row as u32, values.len(), &mut signs);
            rotation::flip_row(self.isa, values, &signs);
            out.copy_from_slice(&values[..out.len()]);
        }
        Ok(())
    }

    /// Empties the sum for messages of another number; keeps the buffer.
    pub fn reset(&mut self, envelope: Envelope) {
        self.envelope = envelope;
        self.sum.fill(0.0);
    }
}
