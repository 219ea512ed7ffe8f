// SPDX-License-Identifier: Apache-2.0
//! Rows and messages: gradient in, packets out.

use super::choice::{EncodedRow, RowChoice, RowJob};
use super::message::{Message, Shape};
use super::sealing::seal_row;
use crate::element::{Element, Values, ValuesMut};
use crate::encode::task::{RowTask, Written};
use crate::raw;
use crate::rotate::Job;
use crate::scratch::{Scratch, with_scratch};
use crate::simd::Isa;
use crate::wire::seal::Sealer;
use crate::wire::{Codec, Envelope, Kind, Layout, Prefix};
use rayon::iter::{IndexedParallelIterator, IntoParallelIterator, ParallelIterator};

/// Why a row or a gradient cannot be encoded. The message is left empty; a buffer of the caller's
/// holds nothing of use.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// Another length than the layout's.
    #[error("a gradient of {got} coordinates for a layout of {expected}")]
    Length {
        /// Coordinates given.
        got: usize,
        /// Coordinates of the layout.
        expected: usize,
    },
    /// A row that the layout does not have.
    #[error("row {row} of a layout of {rows} rows")]
    NoSuchRow {
        /// The row asked for.
        row: usize,
        /// Rows of the layout.
        rows: usize,
    },
    /// Another length than the row's.
    #[error("{got} coordinates for row {row}, which has {expected}")]
    RowLength {
        /// The row.
        row: usize,
        /// Coordinates given.
        got: usize,
        /// Coordinates of the row, without padding.
        expected: usize,
    },
    /// A buffer of another length than the packets'.
    #[error("a buffer of {got} bytes for packets of {expected}")]
    Buffer {
        /// Bytes given.
        got: usize,
        /// Bytes needed.
        expected: usize,
    },
    /// NaN or infinity, in strict mode.
    #[error("coordinate {index} is {value}: strict encoding takes finite values only")]
    NotFinite {
        /// Where the first one stands in the message.
        index: usize,
        /// What stands there.
        value: f32,
    },
    /// No planes, or more than the codec has.
    #[error("{planes} planes of codec {codec} (valid: 1 to {}, which keep everything)", codec.planes())]
    Planes {
        /// Planes asked for.
        planes: u8,
        /// The codec.
        codec: Codec,
    },
}

/// Encodes the messages of one layout, row by row.
///
/// A row's packets are final when it is encoded, so that they can leave while later rows are still
/// being rotated. Rows do not depend on each other: any thread may encode any of them
/// ([`Self::encode_row`]); [`Self::encode`] is a loop over all.
#[derive(Debug, Clone)]
pub struct Encoder {
    layout: Layout,
    job: Job,
    codec: Codec,
    isa: Isa,
    strict: bool,
    parallel: bool,
    sealer: Option<Sealer>,
    origin: Option<Envelope>,
}

impl Encoder {
    /// An encoder for messages of `layout` in a job, with the default codec, on one thread.
    pub fn new(layout: Layout, job: Job) -> Self {
        let (codec, isa) = (Codec::default(), Isa::best());
        Self { layout, job, codec, isa, strict: false, parallel: false, sealer: None, origin: None }
    }

    /// With another codec.
    pub fn with_codec(self, codec: Codec) -> Self {
        Self { codec, ..self }
    }

    /// On another instruction set. The packets are the same, bit for bit.
    pub fn with_isa(self, isa: Isa) -> Self {
        Self { isa, ..self }
    }

    /// Refuses gradients with NaN or an infinity. Otherwise their rows are sent flagged and decode
    /// to NaN on every rank, as they would come out of an exact all-reduce; gradient scalers of
    /// mixed-precision training rely on that. Rows whose root mean square is beyond f32 always are.
    pub fn strict(self, strict: bool) -> Self {
        Self { strict, ..self }
    }

    /// Works on a message's rows in parallel, on the rayon pool of the caller. The packets are the
    /// same.
    pub fn parallel(self, parallel: bool) -> Self {
        Self { parallel, ..self }
    }

    /// Seals the packets (docs/reference/wire-format.md §12).
    pub fn sealed(self, sealer: Sealer) -> Self {
        Self { sealer: Some(sealer), ..self }
    }

    /// Rotates under the keys of another envelope than the packets': of a message that is passed
    /// on, and whose rows are encoded anew where they came damaged. Receivers have to know
    /// ([`super::RowReceiver::with_origin`]).
    pub fn with_origin(self, origin: Envelope) -> Self {
        Self { origin: Some(origin), ..self }
    }

    /// The messages' layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Bytes of a row's packets together; `row < layout.rows()`.
    pub fn row_len(&self, row: usize, planes: u8) -> usize {
        self.layout.row_len(self.codec, row, planes, self.sealer.is_some())
    }

    /// Encodes a row into `packets`, [`Self::row_len`] bytes long: one packet behind the other,
    /// each [`Codec::packet_len`] of its coordinates long ([`Layout::row_places`]). The job is the
    /// row's values (of shape `layout.row_coordinates(row)`), or a [`RowJob`], which says what else
    /// is to be done on the way.
    pub fn encode_row<'a>(
        &self,
        row: usize,
        job: impl Into<RowJob<'a>>,
        envelope: Envelope,
        choice: RowChoice,
        packets: &mut [u8],
    ) -> Result<EncodedRow, EncodeError> {
        let job = job.into();
        self.check_row(row, job.values.len(), choice, packets)?;
        if let Some(own) = &job.own
            && own.len() != job.values.len()
        {
            return Err(EncodeError::RowLength { row, got: own.len(), expected: job.values.len() });
        }
        self.row(row, job, envelope, choice, packets)
    }

    /// Writes a row's packets that were encoded elsewhere, `bare` of tags, as [`Self::encode_row`]
    /// writes them: sealed where this encoder seals.
    pub fn seal_row(
        &self,
        row: usize,
        planes: u8,
        bare: &[u8],
        packets: &mut [u8],
    ) -> Result<(), EncodeError> {
        let coordinates = self.layout.row_coordinates(row.min(self.layout.rows() - 1)).len();
        self.check_row(row, coordinates, RowChoice { planes, ..RowChoice::whole(self.codec) }, packets)?;
        let expected = self.layout.row_len(self.codec, row, planes, false);
        if bare.len() != expected {
            return Err(EncodeError::Buffer { got: bare.len(), expected });
        }
        // Room for tags is left in front of the first packet.
        let tags = packets.len() - bare.len();
        packets[tags..].copy_from_slice(bare);
        if let Some(sealer) = &self.sealer {
            seal_row(sealer, &self.layout, row, (self.codec, planes), packets);
        }
        Ok(())
    }

    /// Encodes `gradient` (shape: `layout.coordinates()`) into `out`, whose former content is
    /// replaced: the first `planes` planes of each packet, all rows as important as each other.
    pub fn encode<E: Element>(
        &self,
        gradient: &[E],
        envelope: Envelope,
        planes: u8,
        out: &mut Message,
    ) -> Result<(), EncodeError> {
        let choice = RowChoice { planes, ..RowChoice::whole(self.codec) };
        self.encode_with(gradient, envelope, |_| choice, out)
    }

    /// Encodes a gradient with a choice for each row ([`super::RowFigures`] makes the usual one),
    /// otherwise as [`Self::encode`].
    pub fn encode_with<E: Element>(
        &self,
        gradient: &[E],
        envelope: Envelope,
        choice: impl Fn(usize) -> RowChoice + Sync,
        out: &mut Message,
    ) -> Result<(), EncodeError> {
        let (layout, codec) = (&self.layout, self.codec);
        out.shape = None;
        if gradient.len() != layout.coordinates() {
            return Err(EncodeError::Length { got: gradient.len(), expected: layout.coordinates() });
        }
        let mut end = 0;
        out.starts.clear();
        out.rows.clear();
        for row in 0..layout.rows() {
            let planes = choice(row).planes;
            self.check_planes(planes)?;
            out.starts.push(end);
            out.rows.push(EncodedRow { planes, figure: 0.0, important: false, twice: false });
            end += self.row_len(row, planes);
        }
        out.bytes.resize(end, 0);
        let encode = |row: usize, packets: &mut [u8], encoded: &mut EncodedRow| {
            let range = layout.row_coordinates(row);
            let (values, ahead) = gradient[range.start..].split_at(range.len());
            // Of the planes that there is room for, whatever a second answer would be.
            let choice = RowChoice { planes: encoded.planes, ..choice(row) };
            *encoded = self.row(row, RowJob::of(values).before(ahead), envelope, choice, packets)?;
            Ok(())
        };
        let mut rest = &mut out.bytes[..];
        let mut rows = out.rows.iter_mut().enumerate().map(|(row, encoded)| {
            let end = out.starts.get(row + 1).copied().unwrap_or(end);
            let (packets, tail) = std::mem::take(&mut rest).split_at_mut(end - out.starts[row]);
            rest = tail;
            (row, packets, encoded)
        });
        if self.parallel {
            let rows: Vec<_> = rows.collect();
            rows.into_par_iter()
                .with_max_len(1)
                .try_for_each(|(row, packets, encoded)| encode(row, packets, encoded))?;
        } else {
            rows.try_for_each(|(row, packets, encoded)| encode(row, packets, encoded))?;
        }
        out.shape = Some(Shape { layout: layout.clone(), codec, sealer: self.sealer.clone() });
        Ok(())
    }

    fn check_row(
        &self,
        row: usize,
        length: usize,
        choice: RowChoice,
        packets: &[u8],
    ) -> Result<(), EncodeError> {
        if row >= self.layout.rows() {
            return Err(EncodeError::NoSuchRow { row, rows: self.layout.rows() });
        }
        self.check_planes(choice.planes)?;
        let expected = self.layout.row_coordinates(row).len();
        if length != expected {
            return Err(EncodeError::RowLength { row, got: length, expected });
        }
        let expected = self.row_len(row, choice.planes);
        if packets.len() != expected {
            return Err(EncodeError::Buffer { got: packets.len(), expected });
        }
        Ok(())
    }

    fn check_planes(&self, planes: u8) -> Result<(), EncodeError> {
        if planes == 0 || planes > self.codec.planes() {
            return Err(EncodeError::Planes { planes, codec: self.codec });
        }
        Ok(())
    }

    /// Encodes a row of the right shape.
    fn row(
        &self,
        row: usize,
        job: RowJob<'_>,
        envelope: Envelope,
        choice: RowChoice,
        packets: &mut [u8],
    ) -> Result<EncodedRow, EncodeError> {
        let RowChoice { planes, importance } = choice;
        let RowJob { values, next, mut own } = job;
        with_scratch(|scratch| {
            let task = RowTask {
                layout: &self.layout,
                row,
                key: self.job.key(self.origin.unwrap_or(envelope)),
                codec: self.codec,
                isa: self.isa,
                planes,
                importance,
                strict: self.strict,
                prefix: Prefix {
                    kind: Kind::Data,
                    codec: self.codec.id(),
                    important: false,
                    layer_class: self.layout.layer_class(row),
                    last: false,
                    stream: envelope.stream,
                    message: envelope.message,
                },
                source: values,
                ahead: next.ahead(values.len()),
            };
            // Room for tags is left in front of the first packet.
            let (_, bare) =
                packets.split_at_mut(packets.len() - self.layout.row_len(self.codec, row, planes, false));
            let written = task.encode(bare, |bare| {
                if self.codec == Codec::Rht {
                    return task.write(scratch, bare, own.as_mut().map(ValuesMut::reborrow));
                }
                let Scratch { wide, row, .. } = scratch;
                let source = values.widened(wide);
                if let Some(own) = &mut own {
                    own.put(source, false);
                }
                Ok(raw::write_row(&task, source, row, bare))
            });
            if let (Ok(written), Some(own)) = (&written, &mut own)
                && written.energy.is_nan()
            {
                own.fill(f32::NAN);
            }
            if let (Ok(_), Some(sealer)) = (&written, &self.sealer) {
                seal_row(sealer, &self.layout, row, (self.codec, planes), packets);
            }
            let Written { energy, important, twice } = written.map_err(|_| self.not_finite(row, values))?;
            let figure = energy / self.layout.row_range(row).len() as f64;
            Ok(EncodedRow { planes, figure, important, twice })
        })
    }

    /// Which value of a row is not.
    fn not_finite(&self, row: usize, values: Values<'_>) -> EncodeError {
        let mut wide = Vec::new();
        let mut all = values.widened(&mut wide).iter().copied().enumerate();
        let (at, value) = all.find(|(_, value)| !value.is_finite()).unwrap_or((0, f32::NAN));
        EncodeError::NotFinite { index: self.layout.row_coordinates(row).start + at, value }
    }
}
