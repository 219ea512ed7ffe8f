// SPDX-License-Identifier: Apache-2.0
//! The pieces of work that are timed, as a training job does them: row by row.

mod aligned;
mod traffic;

use super::super::clock::{Span, time};
use aligned::Aligned;
use anyhow::{Context as _, Result};
use std::hint::black_box;
use traffic::{Put, Traffic};
use trimwire_encoder::{Codec, Isa, Layout, SealKey, Sealer, bf16, rotate};

/// Transforms (and copies) of one row between two looks at the clock. Unnormalised transforms grow
/// values by √d each; eight of the longest rows stay far inside f32.
const ROW_REPEATS: usize = 8;
/// Samples of a row are short, so each round takes the best of several.
const ROW_SAMPLES: usize = 16;
/// Distinct coordinates of what is drawn; the gradient repeats them, and no codec notices.
pub(super) const PATTERN: usize = 1 << 20;

/// One timing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// What.
    pub op: &'static str,
    /// On which instruction set; `None` for memcpy.
    pub isa: Option<Isa>,
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
}

/// The same in bf16.
struct Half {
    gradient: Aligned<bf16>,
    out: Aligned<bf16>,
    traffic: Traffic,
}

/// The memcpy that moves the same bytes through the same part of the memory.
pub(super) fn reference(op: &str) -> &'static str {
    match op {
        "memcpy-row" | "transform" => "memcpy-row",
        _ if op.ends_with("bf16") => "memcpy-bf16",
        _ => "memcpy",
    }
}

/// Bytes of one of its gradient's coordinates.
pub(super) fn element_bytes(op: &str) -> usize {
    if reference(op) == "memcpy-bf16" { 2 } else { 4 }
}

impl Bench {
    /// Allocates for messages of `pattern`, over and over, in f32 and in bf16; where `seal`, for
    /// sealed ones, too.
    pub(super) fn new(shape: &Shape, half: &Shape, pattern: &[f32], seal: bool) -> Result<Self> {
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
        })
    }

    /// Times memcpy.
    pub(super) fn memcpy(&mut self) -> Vec<Sample> {
        let (gradient, row, out) = (self.gradient.values(), self.row.values(), self.out.values());
        let coordinates = gradient.len();
        let whole = |op, span| Sample { op, isa: None, coordinates, span };
        let length = row.len().min(gradient.len());
        let (from, to) = (&gradient[..length], &mut row[..length]);
        let span = best_of_rows(|| {
            time(|| {
                for _ in 0..ROW_REPEATS {
                    black_box(&mut *to).copy_from_slice(black_box(from));
                }
            })
        });
        vec![
            Sample { coordinates: ROW_REPEATS * length, ..whole("memcpy-row", span) },
            whole("memcpy", copy(gradient, out)),
            whole("memcpy-bf16", copy(self.half.gradient.values(), self.half.out.values())),
        ]
    }

    /// Times everything that the codec does, on one instruction set.
    pub(super) fn codec(&mut self, isa: Isa) -> Result<Vec<Sample>> {
        let (coordinates, span) = (ROW_REPEATS * self.row.values().len(), self.transform(isa));
        let mut samples = vec![Sample { op: "transform", isa: Some(isa), coordinates, span }];
        let plain = &mut self.plain;
        let (gradient, out) = (&*self.gradient.values(), self.out.values());
        let coordinates = gradient.len();
        let mut whole = |op, span| samples.push(Sample { op, isa: Some(isa), coordinates, span });
        // Packets that are received are those of an encoder that keeps nothing.
        let keeping = plain.encode(isa, gradient, Some(&mut *out))?;
        whole("encode", plain.encode(isa, gradient, None)?);
        whole("encode-keeping", keeping);
        whole("receive", plain.receive(isa, Put::Nowhere, out)?);
        whole("decode", plain.receive(isa, Put::Store, out)?);
        whole("accumulate", plain.receive(isa, Put::Add, out)?);
        if let Some(sealed) = &mut self.sealed {
            whole("encode-sealed", sealed.encode(isa, gradient, None)?);
            whole("decode-sealed", sealed.receive(isa, Put::Store, out)?);
        }
        let Half { gradient, out, traffic } = &mut self.half;
        whole("encode-bf16", traffic.encode(isa, gradient.values(), None)?);
        whole("decode-bf16", traffic.receive(isa, Put::Store, out.values())?);
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

/// Repeats a pattern.
fn fill(values: &mut [f32], pattern: &[f32]) {
    values.iter_mut().zip(pattern.iter().cycle()).for_each(|(to, from)| *to = *from);
}

fn copy<E: Copy>(from: &[E], to: &mut [E]) -> Span {
    time(|| black_box(to).copy_from_slice(black_box(from)))
}

fn best_of_rows(mut sample: impl FnMut() -> Span) -> Span {
    let spans = (0..ROW_SAMPLES).map(|_| sample());
    spans.min_by(|a, b| a.seconds.total_cmp(&b.seconds)).unwrap_or_default()
}
