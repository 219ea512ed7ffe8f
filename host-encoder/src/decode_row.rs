//! The packets of one row back to coordinates.

use crate::codec::Codec;
use crate::decoder::Decoding;
use crate::dequantise::Dequantiser;
use crate::dither;
use crate::finish::{LastLevels, finish};
use crate::hadamard::{CACHE_BLOCK, join_blocks, transform_block};
use crate::held::Precision;
use crate::layout::Layout;
use crate::packet::BLOCK;
use crate::rotation::{self, RotationKey};
use crate::scale::RowScale;
use crate::scratch::Scratch;
use crate::simd::{Ahead, Isa, Kernel, Lanes};
use crate::weights::RowWeights;
use crate::words::{RowWords, Words};

/// What happens to decoded coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Put {
    /// They replace what is there.
    Store,
    /// They are added to what is there.
    Add,
    /// They are added before they are rotated back.
    AddRotated,
}

/// What the rows of a message have in common.
#[derive(Clone, Copy)]
pub(crate) struct RowDecoder<'a, P: Fn(usize) -> Option<Precision>> {
    pub(crate) layout: Layout,
    pub(crate) key: RotationKey,
    pub(crate) codec: Codec,
    pub(crate) decoding: Decoding,
    pub(crate) isa: Isa,
    /// A packet's precision, if anything of it arrived.
    pub(crate) precision: &'a P,
}

impl<P: Fn(usize) -> Option<Precision>> RowDecoder<'_, P> {
    /// Decodes `row` from its words to `out`, which may be shorter than the row.
    pub(crate) fn decode(
        &self,
        row: usize,
        words: &RowWords,
        put: Put,
        scratch: &mut Scratch,
        out: &mut [f32],
    ) {
        let length = self.layout.row_range(row).len();
        let mut weights = RowWeights::new(length);
        for (index, place) in self.layout.row_places(row) {
            if let Some(precision) = (self.precision)(index) {
                if precision.head.is_not_finite() {
                    return out.fill(f32::NAN);
                }
                weights.add(self.codec, place.len(), precision);
            }
        }
        let rotates = self.codec.rotates();
        // Only a rotation spreads what rounds to σ = 0 evenly; other codecs' packets of σ = 0 still hold their values.
        let Some(largest) = weights.largest().filter(|largest| *largest > 0.0 || !rotates) else {
            // Adding zeros changes nothing (but −0, whose sign a sum of reals does not have).
            if put == Put::Store {
                out.fill(0.0);
            }
            return;
        };
        let Scratch { row: values, signs, dither, .. } = scratch;
        let values = values.apart_from(out.as_ptr(), length);
        if rotates && put != Put::AddRotated {
            rotation::signs_of(self.isa, self.key, row as u32, length, signs);
        }
        if self.codec == Codec::SubtractiveDithering {
            dither::words_of(self.isa, self.key, row as u32, length, dither);
        }
        let scale = if rotates { RowScale::for_largest(largest) } else { RowScale::for_largest(0.0) };
        self.isa.run(Job { decoder: self, row, words, weights, put, scale, values, signs, dither, out });
    }
}

struct Job<'a, P: Fn(usize) -> Option<Precision>> {
    decoder: &'a RowDecoder<'a, P>,
    row: usize,
    words: &'a RowWords,
    weights: RowWeights,
    put: Put,
    scale: RowScale,
    values: &'a mut [f32],
    signs: &'a [u32],
    dither: &'a [u32],
    out: &'a mut [f32],
}

impl<P: Fn(usize) -> Option<Precision>> Kernel for Job<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let Self { decoder, row, words, weights, put, scale, values, signs, dither, out } = self;
        let RowDecoder { layout, codec, decoding, .. } = *decoder;
        let length = values.len();
        let (mut lambda, mut paper) = (1.0, 0.0);
        if codec.rotates() && decoding != Decoding::Mmse {
            match decoding {
                Decoding::Paper => paper = weights.paper_scale(),
                _ => lambda = weights.lambda(),
            }
        }
        // 1/√d once for the transform back, and the working scale.
        let gain = if codec.rotates() { scale.factor() / (length as f64).sqrt() } else { 1.0 };
        let rotate = codec.rotates() && put != Put::AddRotated;
        // Where the row goes in the end.
        let mut ahead = Ahead::new(out);
        let mut transformed = 0;
        for (index, local) in layout.row_places(row) {
            // Pieces are transformed as soon as they are full, while they are in the cache.
            while rotate && local.start >= transformed + CACHE_BLOCK {
                transform_block(lanes, &mut values[transformed..transformed + CACHE_BLOCK], &mut ahead);
                transformed += CACHE_BLOCK;
            }
            // All of it before the last levels, which write.
            ahead.lines(local.len().div_ceil(2 * BLOCK));
            let Some(precision) = (decoder.precision)(index) else {
                values[local].fill(0.0);
                continue;
            };
            let dither = dither.get(local.clone()).unwrap_or_default();
            let dequantiser = |planes| {
                Dequantiser::new(codec, decoding, precision.head, planes, lambda * gain, paper * gain)
            };
            packet(lanes, precision, dequantiser, words.of(local.clone()), dither, &mut values[local]);
        }
        if put == Put::AddRotated {
            for (to, value) in out.iter_mut().zip(&*values) {
                *to += scale.down(*value);
            }
            return;
        }
        if rotate {
            for block in values[transformed..].chunks_mut(CACHE_BLOCK) {
                transform_block(lanes, block, &mut ahead);
            }
            if scale.is_one()
                && let Some(last) = LastLevels::new(values, signs, put == Put::Add, out)
            {
                return lanes.apart(last);
            }
            join_blocks(lanes, values, &mut ahead);
        }
        let signs = if codec.rotates() { signs } else { &[] };
        finish(lanes, values, signs, scale, put == Put::Add, out);
    }
}

/// Decodes a packet: coordinates that arrived with one plane more than the others first.
#[inline(always)]
fn packet<L: Lanes>(
    lanes: L,
    precision: Precision,
    dequantiser: impl Fn(u8) -> Dequantiser,
    words: Words<'_>,
    dither: &[u32],
    out: &mut [f32],
) {
    let (planes, more) = (precision.planes, usize::from(precision.more));
    if more == 0 {
        return dequantiser(planes).decode(lanes, words, dither, out);
    }
    let deep = more.div_ceil(BLOCK) * BLOCK;
    dequantiser(planes + 1).decode(lanes, words, dither, &mut out[..deep]);
    let shallow = dequantiser(planes);
    let from = |block| (words.skip_blocks(block), dither.get(BLOCK * block..).unwrap_or_default());
    if more % BLOCK > 0 {
        let (words, dither) = from(more / BLOCK);
        let mut mixed = [0.0; BLOCK];
        shallow.decode(lanes, words, dither, &mut mixed);
        out[more..deep].copy_from_slice(&mixed[more % BLOCK..]);
    }
    let (words, dither) = from(deep / BLOCK);
    shallow.decode(lanes, words, dither, &mut out[deep..]);
}
