//! The pieces of work that are timed.

use super::super::clock::{Span, time};
use super::super::source::Distribution;
use anyhow::{Context as _, Result};
use rayon::iter::{IndexedParallelIterator as _, ParallelIterator as _};
use rayon::slice::{ParallelSlice as _, ParallelSliceMut as _};
use std::hint::black_box;
use std::ops::Range;
use trimwire_encoder::{
    Codec, Decoder, Decoding, Encoder, Envelope, Isa, Layout, PacketError, RotationKey, StreamId, rotation,
};

/// Transforms (and copies) of one row between two looks at the clock. Unnormalised transforms grow values by √d each; eight of
/// the longest rows stay far inside f32.
const ROW_REPEATS: usize = 8;
/// Samples of a row are short, so each round takes the best of several.
const ROW_SAMPLES: usize = 16;
/// Distinct coordinates; the gradient repeats them, and no codec notices.
const PATTERN: usize = 1 << 20;
/// How far ahead packets are asked for: they lie in memory, and one is received in less time than memory takes to answer.
const AHEAD: usize = 2;
const KEY: RotationKey = RotationKey { job_seed: 1, message: 1, rank: 0 };

/// What was timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    /// memcpy of a row that stays in the cache.
    MemcpyRow,
    /// memcpy of the gradient.
    Memcpy,
    /// Hadamard transform of a row that stays in the cache.
    Transform,
    /// Gradient to packets.
    Encode,
    /// Packets into the decoder.
    Receive,
    /// Packets to gradient: receive and decode.
    Decode,
    /// Packets added to a sum: receive and decode.
    Accumulate,
}

/// One timing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    /// What.
    pub op: Op,
    /// On which instruction set; `None` for memcpy.
    pub isa: Option<Isa>,
    /// Coordinates that went through.
    pub coordinates: usize,
    /// How long it took.
    pub span: Span,
}

/// The buffers that the work is done in.
pub(super) struct Bench {
    layout: Layout,
    codec: Codec,
    planes: u8,
    parallel: bool,
    gradient: Aligned,
    row: Aligned,
    packets: Vec<u8>,
    /// Where each packet lies in them.
    places: Vec<Range<usize>>,
    /// Taken out while it moves to another instruction set.
    decoder: Option<Decoder>,
    out: Aligned,
}

impl Op {
    /// Its name in tables and JSON.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::MemcpyRow => "memcpy-row",
            Self::Memcpy => "memcpy",
            Self::Transform => "transform",
            Self::Encode => "encode",
            Self::Receive => "receive",
            Self::Decode => "decode",
            Self::Accumulate => "accumulate",
        }
    }

    /// The memcpy that moves the same bytes through the same part of the memory.
    pub(super) fn reference(self) -> Self {
        match self {
            Self::MemcpyRow | Self::Transform => Self::MemcpyRow,
            _ => Self::Memcpy,
        }
    }
}

impl Bench {
    /// Allocates for a message of `layout`. Work on several rows at once where `parallel`, in the rayon pool of the caller.
    pub(super) fn new(layout: Layout, codec: Codec, planes: u8, parallel: bool) -> Self {
        let count = layout.coordinates();
        let place = |index| {
            let start = layout.packet_offset(codec, index, planes);
            start..start + layout.packet_len(codec, index, planes)
        };
        let decoder = Decoder::new(layout, KEY, Decoding::Unbiased).with_codec(codec).with_planes(planes);
        let pattern = Distribution::Gaussian.draw(1, count.min(PATTERN), PATTERN);
        let mut gradient = Aligned::new(count);
        gradient.values().iter_mut().zip(pattern.iter().cycle()).for_each(|(to, from)| *to = *from);
        Self {
            layout,
            codec,
            planes,
            parallel,
            gradient,
            row: Aligned::new(layout.row_range(0).len()),
            packets: vec![0; layout.message_len(codec, planes)],
            places: (0..layout.packets()).map(place).collect(),
            decoder: Some(decoder.parallel(parallel)),
            out: Aligned::new(count),
        }
    }

    /// Times both memcpys.
    pub(super) fn memcpy(&mut self) -> Vec<Sample> {
        let (gradient, row, out) = (self.gradient.values(), self.row.values(), self.out.values());
        let length = row.len().min(gradient.len());
        let (from, to) = (&gradient[..length], &mut row[..length]);
        let row = best_of_rows(|| {
            time(|| {
                for _ in 0..ROW_REPEATS {
                    black_box(&mut *to).copy_from_slice(black_box(from));
                }
            })
        });
        let (from, to, parallel) = (&*gradient, out, self.parallel);
        let all = time(|| {
            if parallel {
                let share = from.len().div_ceil(rayon::current_num_threads());
                let shares = to.par_chunks_mut(share).zip(from.par_chunks(share));
                shares.for_each(|(to, from)| to.copy_from_slice(black_box(from)));
            } else {
                black_box(&mut *to).copy_from_slice(black_box(from));
            }
        });
        vec![
            Sample { op: Op::MemcpyRow, isa: None, coordinates: ROW_REPEATS * length, span: row },
            Sample { op: Op::Memcpy, isa: None, coordinates: from.len(), span: all },
        ]
    }

    /// Times everything that the codec does, on one instruction set.
    pub(super) fn codec(&mut self, isa: Isa) -> Result<Vec<Sample>> {
        let transform = self.transform(isa);
        let (layout, codec, planes) = (self.layout, self.codec, self.planes);
        let count = layout.coordinates();
        let encoder = Encoder::new(layout, KEY).with_codec(codec).with_isa(isa).parallel(self.parallel);
        let stream = StreamId::new(0, 0).context("job 0 and rank 0 are valid")?;
        let envelope = Envelope { stream, message: KEY.message, layer_class: 0 };
        let (gradient, packets) = (&*self.gradient.values(), &mut self.packets);
        let mut encoded = Ok(());
        let encode = time(|| encoded = encoder.encode_into(gradient, envelope, planes, black_box(packets)));
        encoded.context("cannot encode")?;

        let decoder = self.decoder.take().context("the decoder is always put back")?.with_isa(isa);
        let decoder = self.decoder.insert(decoder);
        let (packets, out) = (&self.packets, self.out.values());
        let mut spans = [Span::default(); 3];
        for (span, put) in spans.iter_mut().zip([None, Some(Put::Store), Some(Put::Add)]) {
            decoder.reset(KEY);
            let mut received = Ok(());
            *span = time(|| {
                let mut soon = self.places.iter().skip(AHEAD);
                received = self.places.iter().try_for_each(|place| {
                    if let Some(place) = soon.next() {
                        Decoder::prefetch(&packets[place.clone()]);
                    }
                    let receipt = decoder.receive(black_box(&packets[place.clone()]))?;
                    // Several threads decode when all is there; one decodes rows while their packets are in its cache.
                    if let (Some(row), Some(put), false) = (receipt.completed, put, self.parallel) {
                        put.row(decoder, row, black_box(&mut out[layout.row_coordinates(row)]));
                    }
                    Ok::<_, PacketError>(())
                });
                if let Some(put) = put {
                    put.rest(decoder, black_box(out));
                }
            });
            received.context("a packet of our own was refused")?;
        }
        let [receive, decode, accumulate] = spans;
        let whole = |op, span| Sample { op, isa: Some(isa), coordinates: count, span };
        Ok(vec![
            Sample {
                op: Op::Transform,
                isa: Some(isa),
                coordinates: ROW_REPEATS * self.row.values().len(),
                span: transform,
            },
            whole(Op::Encode, encode),
            whole(Op::Receive, receive),
            whole(Op::Decode, decode),
            whole(Op::Accumulate, accumulate),
        ])
    }

    fn transform(&mut self, isa: Isa) -> Span {
        let (gradient, row) = (&*self.gradient.values(), self.row.values());
        best_of_rows(|| {
            row.iter_mut().zip(gradient).for_each(|(to, from)| *to = *from);
            time(|| {
                for _ in 0..ROW_REPEATS {
                    rotation::hadamard(isa, black_box(&mut *row));
                }
            })
        })
    }
}

/// What becomes of decoded coordinates.
#[derive(Debug, Clone, Copy)]
enum Put {
    Store,
    Add,
}

impl Put {
    /// Decodes a complete row.
    fn row(self, decoder: &mut Decoder, row: usize, out: &mut [f32]) {
        match self {
            Self::Store => decoder.finish_row_into(row, out),
            Self::Add => decoder.add_row_into(row, out),
        };
    }

    /// Decodes what is left.
    fn rest(self, decoder: &Decoder, out: &mut [f32]) {
        match self {
            Self::Store => decoder.finish_into(out),
            Self::Add => decoder.add_into(out),
        }
    }
}

/// Coordinates that begin at a cache line, as tensors of machine learning frameworks do: vectors that straddle two lines cost twice.
struct Aligned {
    room: Vec<f32>,
    start: usize,
}

impl Aligned {
    const LINE: usize = 16;

    fn new(length: usize) -> Self {
        let room = vec![0.0_f32; length + Self::LINE];
        let start = room.as_ptr().align_offset(64).min(Self::LINE);
        Self { room, start }
    }

    fn values(&mut self) -> &mut [f32] {
        let length = self.room.len() - Self::LINE;
        &mut self.room[self.start..self.start + length]
    }
}

fn best_of_rows(mut sample: impl FnMut() -> Span) -> Span {
    let spans = (0..ROW_SAMPLES).map(|_| sample());
    spans.min_by(|a, b| a.seconds.total_cmp(&b.seconds)).unwrap_or_default()
}
