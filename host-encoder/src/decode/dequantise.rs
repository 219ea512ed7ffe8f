// SPDX-License-Identifier: Apache-2.0
//! The code words of one packet back to coordinates.

use super::decoding::Decoding;
use super::reception::Precision;
use super::weights::{decodes_by_sign, sigma_is_its_cell};
use crate::quantise::quantiser::{Expander, Zones, cell_of_sigma};
use crate::quantise::statistics::Statistics;
use crate::simd::{Kernel, Planes};
use crate::wire::{BLOCK, PLANES};

/// The scales of a row that is decoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scales {
    pub(crate) decoding: Decoding,
    /// What normalised coordinates are multiplied by.
    pub(crate) unit: f64,
    /// The magnitude of cut coordinates where the paper's decoding is asked for.
    pub(crate) paper: f64,
}

/// Reads coordinates of which the same number of planes is held.
struct Dequantiser {
    /// Bits of code words that are known.
    known: u32,
    values: Values,
}

enum Values {
    /// Nothing arrived.
    Zero,
    /// ±magnitude by plane 0.
    Signs(f32),
    /// By the first two to eight planes of the index, sign included, in the given unit.
    Indices { peak: u8, unit: f32, planes: u8, sigma_is_its_cell: bool },
    /// By the code of the embedded quantiser, in the given unit.
    Codes { peak: u8, unit: f32, open_bits: u32 },
}

/// Decodes a packet: coordinates that arrived with one plane more than the others first.
#[inline(always)]
pub(crate) fn packet<L: Planes>(
    lanes: L,
    precision: Precision,
    scales: Scales,
    words: &[u32],
    out: &mut [f32],
) {
    let Precision { statistics, planes, more } = precision;
    let more = usize::from(more);
    let shallow = Dequantiser::new(statistics, planes, scales);
    if more == 0 {
        return shallow.decode(lanes, words, out);
    }
    let deep = more.div_ceil(BLOCK) * BLOCK;
    Dequantiser::new(statistics, planes + 1, scales).decode(lanes, words, &mut out[..deep]);
    if more % BLOCK > 0 {
        let mut mixed = [0.0; BLOCK];
        shallow.decode(lanes, &words[deep - BLOCK..], &mut mixed);
        out[more..deep].copy_from_slice(&mixed[more % BLOCK..]);
    }
    shallow.decode(lanes, &words[deep..], &mut out[deep..]);
}

impl Dequantiser {
    #[inline]
    fn new(statistics: Statistics, planes: u8, scales: Scales) -> Self {
        let Statistics { sigma, kappa, peak } = statistics;
        let Scales { decoding, unit, paper } = scales;
        let sigma = f64::from(sigma);
        let cut = planes < PLANES;
        let values = if planes == 0 {
            Values::Zero
        } else if decoding == Decoding::Paper && cut {
            Values::Signs(paper as f32)
        } else if decodes_by_sign(kappa, planes) {
            Values::Signs((sigma * f64::from(kappa) / 255.0 * unit) as f32)
        } else if planes <= 8 {
            let sigma_is_its_cell = sigma_is_its_cell(statistics, planes);
            Values::Indices { peak, unit: (sigma * unit) as f32, planes, sigma_is_its_cell }
        } else {
            // Of whole codes, which are rounded ones, nothing is open.
            Values::Codes { peak, unit: (sigma * unit) as f32, open_bits: if cut { 16 } else { 0 } }
        };
        let bits = match planes {
            0..=8 => u32::from(planes),
            _ => 8 * (u32::from(planes) - 7).min(4),
        };
        Self { known: u32::MAX.checked_shl(32 - bits).unwrap_or_default(), values }
    }

    /// Writes as many coordinates as `out` holds, a multiple of 32.
    #[inline(always)]
    fn decode<L: Planes>(&self, lanes: L, words: &[u32], out: &mut [f32]) {
        let words = &words[..out.len()];
        match &self.values {
            Values::Zero => out.fill(0.0),
            Values::Signs(magnitude) => {
                let value = lanes.splat_u(magnitude.to_bits());
                for (words, out) in words.as_chunks().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
                    for (at, line) in L::lines_mut(out).iter_mut().enumerate() {
                        let sign = lanes.and(lanes.load_words(words, at), lanes.splat_u(1 << 31));
                        lanes.store(line, lanes.floats(lanes.xor(value, sign)));
                    }
                }
            }
            Values::Indices { peak, unit, planes: planes @ ..=4, .. } => {
                let mut magnitudes = [0.0; 8];
                Zones::of(*peak)
                    .centroids(*planes, |index, c| magnitudes[usize::from(index >> 4)] = unit * c);
                lanes.outlined(LookUp { words, known: self.known, magnitudes: &magnitudes, out });
            }
            Values::Indices { peak, unit, planes, sigma_is_its_cell } => {
                let mut table = [0.0; 256];
                let first = cell_of_sigma(*planes);
                Zones::of(*peak).centroids(*planes, |index, c| {
                    let c = if *sigma_is_its_cell && index == first { 1.0 } else { c };
                    let magnitude = unit * c;
                    table[usize::from(index)] = magnitude;
                    table[usize::from(index | 128)] = -magnitude;
                });
                for (out, word) in out.iter_mut().zip(words) {
                    *out = table[((word & self.known) >> 24) as usize];
                }
            }
            Values::Codes { peak, unit, open_bits } => {
                let zones = Zones::of(*peak);
                lanes.outlined(Expand { words, zones: &zones, unit: *unit, open_bits: *open_bits, out });
            }
        }
    }
}

/// Decodes code words of the embedded quantiser. In a function of its own, so that its tables stay in registers.
struct Expand<'a> {
    words: &'a [u32],
    zones: &'a Zones,
    unit: f32,
    open_bits: u32,
    out: &'a mut [f32],
}

impl Kernel for Expand<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Planes>(self, lanes: L) {
        let Self { words, zones, unit, open_bits, out } = self;
        let expander = Expander::new(lanes, zones, unit, open_bits);
        for (words, out) in words.as_chunks::<BLOCK>().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
            // A block is two vectors of sixteen lanes or four of eight.
            for (pair, [first, second]) in L::lines_mut(out).as_chunks_mut::<2>().0.iter_mut().enumerate() {
                let (a, b) = (lanes.load_words(words, 2 * pair), lanes.load_words(words, 2 * pair + 1));
                let [a, b] = expander.coordinates(lanes, [a, b]);
                lanes.store(first, a);
                lanes.store(second, b);
            }
        }
    }
}

/// Decodes indices of at most four planes. In a function of its own, so that its table stays in a register.
struct LookUp<'a> {
    words: &'a [u32],
    /// The bits of words that are known.
    known: u32,
    /// By the three bits behind the sign.
    magnitudes: &'a [f32; 8],
    out: &'a mut [f32],
}

impl Kernel for LookUp<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Planes>(self, lanes: L) {
        let Self { words, known, magnitudes, out } = self;
        let (table, known) = (lanes.table(magnitudes), lanes.splat_u(known));
        for (words, out) in words.as_chunks().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
            for (at, line) in L::lines_mut(out).iter_mut().enumerate() {
                let word = lanes.and(lanes.load_words(words, at), known);
                let magnitude = lanes.bits(lanes.lookup(table, lanes.shift_right_28(word)));
                lanes.store(line, lanes.floats(lanes.or(magnitude, lanes.and(word, lanes.splat_u(1 << 31)))));
            }
        }
    }
}
