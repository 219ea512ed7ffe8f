//! Gradient in, packets out.

use crate::codec::Codec;
use crate::element::Element;
use crate::encode_row::{RowEncoder, RowError, Source};
use crate::layout::Layout;
use crate::message::{Message, Shape};
use crate::packet::{Kind, Prefix, StreamId};
use crate::priority::{self, Guess};
use crate::rotation::RotationKey;
use crate::scratch::{with_scores, with_scratch};
use crate::simd::Isa;
use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;

/// Why a gradient cannot be encoded. The message is left empty; a buffer of the caller's holds nothing of use.
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
        /// Where the first one stands.
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
    /// A layer class that does not fit the header's three bits.
    #[error("layer class {0} (valid: 0 to 7)")]
    LayerClass(u8),
    /// A row's energy does not fit an f32.
    #[error("row {row} is too large: its root mean square exceeds the range of f32")]
    TooLarge {
        /// The row.
        row: usize,
    },
}

/// What the header says about the whole message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// Job and source rank.
    pub stream: StreamId,
    /// Message id.
    pub message: u32,
    /// Layer class, 0 (front layers) to 7.
    pub layer_class: u8,
}

/// Encodes messages of one layout.
#[derive(Debug, Clone, Copy)]
pub struct Encoder {
    layout: Layout,
    key: RotationKey,
    codec: Codec,
    isa: Isa,
    strict: bool,
    parallel: bool,
}

impl Encoder {
    /// An encoder for messages of `layout`, rotated under `key`, with the default codec, on one thread.
    pub fn new(layout: Layout, key: RotationKey) -> Self {
        Self { layout, key, codec: Codec::default(), isa: Isa::best(), strict: false, parallel: false }
    }

    /// With another codec.
    pub fn with_codec(self, codec: Codec) -> Self {
        Self { codec, ..self }
    }

    /// On another instruction set. The packets are the same, bit for bit.
    pub fn with_isa(self, isa: Isa) -> Self {
        Self { isa, ..self }
    }

    /// Refuses gradients with NaN or an infinity. Otherwise their rows are sent flagged and decode to NaN on every rank,
    /// as they would come out of an exact all-reduce; gradient scalers of mixed-precision training rely on that.
    pub fn strict(self, strict: bool) -> Self {
        Self { strict, ..self }
    }

    /// Works on rows in parallel, on the rayon pool of the caller. The packets are the same.
    pub fn parallel(self, parallel: bool) -> Self {
        Self { parallel, ..self }
    }

    /// Encodes `gradient` (shape: `layout.coordinates()`) into `out`, whose former content is replaced.
    ///
    /// Only the first `planes` planes of each packet are written, from 1 to all that the codec has: a sender that compresses
    /// ahead of time does what a switch does when it cuts.
    pub fn encode<E: Element>(
        &self,
        gradient: &[E],
        envelope: Envelope,
        planes: u8,
        out: &mut Message,
    ) -> Result<(), EncodeError> {
        let (layout, codec) = (self.layout, self.codec);
        out.shape = None;
        self.check(gradient.len(), envelope, planes)?;
        out.bytes.resize(layout.message_len(codec, planes), 0);
        self.encode_into(gradient, envelope, planes, &mut out.bytes)?;
        out.shape = Some(Shape { layout, codec, planes });
        Ok(())
    }

    /// Encodes into a buffer of the caller's, [`Layout::message_len`] bytes long: packet i begins at
    /// [`Layout::packet_offset`]. Otherwise as [`Self::encode`].
    pub fn encode_into<E: Element>(
        &self,
        gradient: &[E],
        envelope: Envelope,
        planes: u8,
        packets: &mut [u8],
    ) -> Result<(), EncodeError> {
        self.check(gradient.len(), envelope, planes)?;
        let (layout, codec) = (self.layout, self.codec);
        let expected = layout.message_len(codec, planes);
        if packets.len() != expected {
            return Err(EncodeError::Buffer { got: packets.len(), expected });
        }
        let prefix = Prefix {
            kind: Kind::Data,
            codec: codec.id(),
            important: false,
            layer_class: envelope.layer_class,
            last: false,
            stream: envelope.stream,
            message: envelope.message,
        };
        let rows = RowEncoder {
            layout,
            key: self.key,
            codec,
            isa: self.isa,
            planes,
            prefix,
            last: layout.packets() - 1,
        };
        with_scores(layout.packets(), |scores, sample| {
            self.encode_rows(&rows, gradient, packets, scores)?;
            priority::mark_important(layout, codec, planes, (scores, sample), packets);
            Ok(())
        })
    }

    fn check(&self, length: usize, envelope: Envelope, planes: u8) -> Result<(), EncodeError> {
        if planes == 0 || planes > self.codec.planes() {
            return Err(EncodeError::Planes { planes, codec: self.codec });
        }
        if envelope.layer_class > 7 {
            return Err(EncodeError::LayerClass(envelope.layer_class));
        }
        if length != self.layout.coordinates() {
            return Err(EncodeError::Length { got: length, expected: self.layout.coordinates() });
        }
        Ok(())
    }

    fn encode_rows<E: Element>(
        &self,
        rows: &RowEncoder,
        gradient: &[E],
        packets: &mut [u8],
        scores: &mut [f64],
    ) -> Result<(), EncodeError> {
        // All rows but the last have the same number of packets and bytes.
        let row_packets = rows.layout.row_packets(0).len();
        let row_bytes = rows.layout.packet_offset(rows.codec, row_packets, rows.planes);
        let encode = |(row, (out, scores)): (usize, (&mut [u8], &mut [f64]))| {
            let range = rows.layout.row_range(row);
            let (row_values, ahead) =
                gradient[range.start..].split_at(range.len().min(gradient.len() - range.start));
            with_scratch(|scratch| {
                let (wide, buffers) = scratch.split();
                let source = Source {
                    row: E::widen(row_values, wide),
                    ahead: E::as_f32(&ahead[..ahead.len().min(range.len())]),
                };
                rows.encode(row, source, self.strict, buffers, out, scores)
            })
            .map_err(|error| (row, error))
        };
        let result = if self.parallel {
            let work = packets.par_chunks_mut(row_bytes).zip(scores.par_chunks_mut(row_packets));
            work.enumerate().map(encode).try_for_each(|r| r)
        } else {
            let mut guess = Guess::default();
            let mut work = packets.chunks_mut(row_bytes).zip(scores.chunks_mut(row_packets)).enumerate();
            work.try_for_each(|(row, (out, scores))| {
                encode((row, (&mut *out, &mut *scores)))?;
                if rows.codec.rotates() && guess.important(scores[0]) {
                    priority::turn_over(rows.layout, rows.codec, rows.planes, row, out);
                }
                Ok(())
            })
        };
        result.map_err(|(row, error)| match error {
            RowError::TooLarge => EncodeError::TooLarge { row },
            RowError::NotFinite => first_not_finite(gradient),
        })
    }
}

/// The error that names a gradient's first NaN or infinity.
fn first_not_finite<E: Element>(gradient: &[E]) -> EncodeError {
    let mut wide = Vec::new();
    let values = E::widen(gradient, &mut wide);
    let (index, value) =
        values.iter().copied().enumerate().find(|(_, value)| !value.is_finite()).unwrap_or((0, f32::NAN));
    EncodeError::NotFinite { index, value }
}
