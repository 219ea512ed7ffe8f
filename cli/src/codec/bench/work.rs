// SPDX-License-Identifier: Apache-2.0
//! The pieces of work that are timed, as a training job does them: row by row.

mod aligned;
mod traffic;

use super::super::clock::{Span, time};
use super::super::source::Distribution;
use aligned::Aligned;
use anyhow::{Context as _, Result};
use rayon::iter::{IndexedParallelIterator as _, ParallelIterator as _};
use rayon::slice::{ParallelSlice as _, ParallelSliceMut as _};
use std::hint::black_box;
use traffic::{Put, Traffic};
use trimwire_encoder::{Codec, Isa, Layout, SealKey, Sealer, bf16, rotate};

/// Transforms (and copies) of one row between two looks at the clock. Unnormalised transforms grow values by √d each; eight of
/// the longest rows stay far inside f32.
const ROW_REPEATS: usize = 8;
/// Samples of a row are short, so each round takes the best of several.
const ROW_SAMPLES: usize = 16;
/// Distinct coordinates of what is drawn; the gradient repeats them, and no codec notices.
pub(super) const PATTERN: usize = 1 << 20;

/// What was timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    /// memcpy of a row that stays in the cache.
    MemcpyRow,
    /// memcpy of the gradient.
    Memcpy,
    /// memcpy of the gradient in bf16.
    MemcpyBf16,
    /// Hadamard transform of a row that stays in the cache.
    Transform,
    /// Gradient to packets.
    Encode,
    /// Gradient to packets, and to what their receivers decode.
    EncodeKeeping,
    /// Packets to code words.
    Receive,
    /// Packets to gradient: receive and decode.
    Decode,
    /// Packets added to a sum: receive and decode.
    Accumulate,
    /// Gradient to sealed packets.
    EncodeSealed,
    /// Sealed packets to gradient.
    DecodeSealed,
    /// Gradient in bf16 to packets.
    EncodeBf16,
    /// Packets to gradient in bf16.
    DecodeBf16,
    /// Gradient to packets of f32s as they are.
    EncodeRaw,
    /// Those to gradient.
    DecodeRaw,
    /// Gradient with heavy tails to packets.
    EncodeStudentT,
    /// Gradient of magnitudes over orders of magnitude to packets.
    EncodeLognormal,
    /// Gradient of which one coordinate in a hundred is not zero to packets.
    EncodeSparse,
    /// Gradient below 2^−30 to packets.
    EncodeTiny,
    /// Those to gradient.
    DecodeTiny,
    /// Gradient to packets of rows of 2^10.
    EncodeShort,
    /// Those to gradient.
    DecodeShort,
}

/// One timing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// What.
    pub op: Op,
    /// On which instruction set; `None` for memcpy.
    pub isa: Option<Isa>,
    /// On how many threads.
    pub threads: usize,
    /// Coordinates that went through.
    pub coordinates: usize,
    /// How long it took.
    pub span: Span,
}

/// What packets hold.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    /// Their codec.
    pub codec: Codec,
    /// Its planes that they carry, from the first on.
    pub planes: u8,
}

/// What packets of a bench look like.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    /// Rows and packets.
    pub layout: Layout,
    /// Codec and planes.
    pub sent: Sent,
}

/// The buffers that the work is done in.
pub(super) struct Bench {
    gradient: Aligned<f32>,
    out: Aligned<f32>,
    row: Aligned<f32>,
    plain: Traffic,
    sealed: Option<Traffic>,
    half: Half,
    classes: Option<Classes>,
}

/// Gradients of other kinds, one at a time.
struct Classes {
    gradient: Aligned<f32>,
    kinds: Vec<Kind>,
    raw: Traffic,
    short: Traffic,
}

/// A kind of gradient, and what is timed of it.
struct Kind {
    encode: Op,
    decode: Option<Op>,
    pattern: Vec<f32>,
}

/// The same in bf16.
struct Half {
    gradient: Aligned<bf16>,
    out: Aligned<bf16>,
    traffic: Traffic,
}

impl Op {
    /// All of them, in the order of the table.
    pub(super) const ALL: [Self; 22] = [
        Self::MemcpyRow,
        Self::Memcpy,
        Self::MemcpyBf16,
        Self::Transform,
        Self::Encode,
        Self::EncodeKeeping,
        Self::Receive,
        Self::Decode,
        Self::Accumulate,
        Self::EncodeSealed,
        Self::DecodeSealed,
        Self::EncodeBf16,
        Self::DecodeBf16,
        Self::EncodeRaw,
        Self::DecodeRaw,
        Self::EncodeStudentT,
        Self::EncodeLognormal,
        Self::EncodeSparse,
        Self::EncodeTiny,
        Self::DecodeTiny,
        Self::EncodeShort,
        Self::DecodeShort,
    ];

    /// Its name in tables and JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::MemcpyRow => "memcpy-row",
            Self::Memcpy => "memcpy",
            Self::MemcpyBf16 => "memcpy-bf16",
            Self::Transform => "transform",
            Self::Encode => "encode",
            Self::EncodeKeeping => "encode-keeping",
            Self::Receive => "receive",
            Self::Decode => "decode",
            Self::Accumulate => "accumulate",
            Self::EncodeSealed => "encode-sealed",
            Self::DecodeSealed => "decode-sealed",
            Self::EncodeBf16 => "encode-bf16",
            Self::DecodeBf16 => "decode-bf16",
            Self::EncodeRaw => "encode-raw",
            Self::DecodeRaw => "decode-raw",
            Self::EncodeStudentT => "encode-student-t",
            Self::EncodeLognormal => "encode-lognormal",
            Self::EncodeSparse => "encode-sparse",
            Self::EncodeTiny => "encode-tiny",
            Self::DecodeTiny => "decode-tiny",
            Self::EncodeShort => "encode-short",
            Self::DecodeShort => "decode-short",
        }
    }

    /// The memcpy that moves the same bytes through the same part of the memory.
    pub(super) fn reference(self) -> Self {
        match self {
            Self::MemcpyRow | Self::Transform => Self::MemcpyRow,
            Self::MemcpyBf16 | Self::EncodeBf16 | Self::DecodeBf16 => Self::MemcpyBf16,
            _ => Self::Memcpy,
        }
    }

    /// Bytes of one of its gradient's coordinates.
    pub(super) fn element_bytes(self) -> usize {
        if self.reference() == Self::MemcpyBf16 { 2 } else { 4 }
    }
}

impl Bench {
    /// Allocates for messages of `pattern`, over and over, in f32 and in bf16; where `seal`, for sealed ones, too; where `classes` are given, shapes of raw packets and of
    /// short rows, for other kinds of gradients.
    pub(super) fn new(
        shape: &Shape,
        half: &Shape,
        pattern: &[f32],
        seal: bool,
        classes: Option<[Shape; 2]>,
    ) -> Result<Self> {
        let count = shape.layout.coordinates();
        let mut gradient = Aligned::new(count);
        fill(gradient.values(), pattern);
        let mut narrow = Aligned::new(count);
        let wide = pattern.iter().cycle();
        narrow.values().iter_mut().zip(wide).for_each(|(to, from)| *to = bf16::from_f32(*from));
        let key = SealKey::from_bytes(&[1; 16]).context("a key of 16 bytes is valid")?;
        Ok(Self {
            gradient,
            out: Aligned::new(count),
            row: Aligned::new(shape.layout.row_range(0).len()),
            plain: Traffic::new(shape, None),
            sealed: seal.then(|| Traffic::new(shape, Some(Sealer::new(&key, 1)))),
            half: Half { gradient: narrow, out: Aligned::new(count), traffic: Traffic::new(half, None) },
            classes: classes.map(|shapes| Classes::new(&shapes, count)).transpose()?,
        })
    }

    /// Times memcpy on that many threads, which the rayon pool of the caller has.
    pub(super) fn memcpy(&mut self, threads: usize) -> Vec<Sample> {
        let (gradient, row, out) = (self.gradient.values(), self.row.values(), self.out.values());
        let coordinates = gradient.len();
        let whole = |op, span| Sample { op, isa: None, threads, coordinates, span };
        let mut samples = vec![
            whole(Op::Memcpy, copy(threads, gradient, out)),
            whole(Op::MemcpyBf16, copy(threads, self.half.gradient.values(), self.half.out.values())),
        ];
        if threads == 1 {
            let length = row.len().min(gradient.len());
            let (from, to) = (&gradient[..length], &mut row[..length]);
            let span = best_of_rows(|| {
                time(|| {
                    for _ in 0..ROW_REPEATS {
                        black_box(&mut *to).copy_from_slice(black_box(from));
                    }
                })
            });
            samples.push(Sample { coordinates: ROW_REPEATS * length, ..whole(Op::MemcpyRow, span) });
        }
        samples
    }

    /// Times everything that the codec does, on one instruction set and that many threads, which the rayon pool of the caller has.
    pub(super) fn codec(&mut self, isa: Isa, threads: usize) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        if threads == 1 {
            let (coordinates, span) = (ROW_REPEATS * self.row.values().len(), self.transform(isa));
            samples.push(Sample { op: Op::Transform, isa: Some(isa), threads, coordinates, span });
        }
        let (parallel, plain) = (threads > 1, &mut self.plain);
        let (gradient, out) = (&*self.gradient.values(), self.out.values());
        let coordinates = gradient.len();
        let mut whole = |op, span| samples.push(Sample { op, isa: Some(isa), threads, coordinates, span });
        // Own values before any of the others' packets: what is received last is what an encoder wrote without keeping.
        whole(Op::EncodeKeeping, plain.encode_keeping(isa, parallel, gradient, out)?);
        whole(Op::Encode, plain.encode(isa, parallel, gradient)?);
        whole(Op::Receive, plain.receive(isa, parallel, Put::Nowhere, out)?);
        whole(Op::Decode, plain.receive(isa, parallel, Put::Store, out)?);
        whole(Op::Accumulate, plain.receive(isa, parallel, Put::Add, out)?);
        if let Some(sealed) = &mut self.sealed {
            whole(Op::EncodeSealed, sealed.encode(isa, parallel, gradient)?);
            whole(Op::DecodeSealed, sealed.receive(isa, parallel, Put::Store, out)?);
        }
        let Half { gradient, out, traffic } = &mut self.half;
        whole(Op::EncodeBf16, traffic.encode(isa, parallel, gradient.values())?);
        whole(Op::DecodeBf16, traffic.receive(isa, parallel, Put::Store, out.values())?);
        let Some(Classes { gradient, kinds, raw, short }) = &mut self.classes else { return Ok(samples) };
        let (gradient, out) = (gradient.values(), self.out.values());
        for Kind { encode, decode, pattern } in kinds {
            fill(gradient, pattern);
            let traffic = match encode {
                Op::EncodeRaw => &mut *raw,
                Op::EncodeShort => &mut *short,
                _ => &mut self.plain,
            };
            whole(*encode, traffic.encode(isa, parallel, gradient)?);
            if let Some(decode) = decode {
                whole(*decode, traffic.receive(isa, parallel, Put::Store, out)?);
            }
        }
        Ok(samples)
    }

    fn transform(&mut self, isa: Isa) -> Span {
        let (gradient, row) = (&*self.gradient.values(), self.row.values());
        best_of_rows(|| {
            row.iter_mut().zip(gradient).for_each(|(to, from)| *to = *from);
            time(|| {
                for _ in 0..ROW_REPEATS {
                    rotate::transform(isa, black_box(&mut *row));
                }
            })
        })
    }
}

impl Classes {
    /// Allocates, for messages of so many coordinates.
    fn new([raw, short]: &[Shape; 2], count: usize) -> Result<Self> {
        let layout = Layout::new(count.min(PATTERN), raw.layout.coordinates_per_packet())?;
        let draw = |distribution: Distribution, size: f32| {
            let mut pattern = distribution.draw(1, &layout);
            pattern.iter_mut().for_each(|value| *value *= size);
            pattern
        };
        let gaussian = || draw(Distribution::Gaussian, 1.0);
        let kind = |encode, decode, pattern| Kind { encode, decode, pattern };
        let kinds = vec![
            kind(Op::EncodeRaw, Some(Op::DecodeRaw), gaussian()),
            kind(Op::EncodeStudentT, None, draw(Distribution::StudentT, 1.0)),
            kind(Op::EncodeLognormal, None, draw(Distribution::Lognormal, 1.0)),
            kind(Op::EncodeSparse, None, draw(Distribution::Sparse, 1.0)),
            kind(Op::EncodeTiny, Some(Op::DecodeTiny), draw(Distribution::Gaussian, 1e-12)),
            kind(Op::EncodeShort, Some(Op::DecodeShort), gaussian()),
        ];
        let (raw, short) = (Traffic::new(raw, None), Traffic::new(short, None));
        Ok(Self { gradient: Aligned::new(count), kinds, raw, short })
    }
}

/// Repeats a pattern.
fn fill(values: &mut [f32], pattern: &[f32]) {
    values.iter_mut().zip(pattern.iter().cycle()).for_each(|(to, from)| *to = *from);
}

fn copy<E: Copy + Send + Sync>(threads: usize, from: &[E], to: &mut [E]) -> Span {
    time(|| {
        if threads > 1 {
            let share = from.len().div_ceil(threads);
            let shares = to.par_chunks_mut(share).zip(from.par_chunks(share));
            shares.for_each(|(to, from)| to.copy_from_slice(black_box(from)));
        } else {
            black_box(&mut *to).copy_from_slice(black_box(from));
        }
    })
}

fn best_of_rows(mut sample: impl FnMut() -> Span) -> Span {
    let spans = (0..ROW_SAMPLES).map(|_| sample());
    spans.min_by(|a, b| a.seconds.total_cmp(&b.seconds)).unwrap_or_default()
}
