// SPDX-License-Identifier: Apache-2.0
//! The code words of one packet back to coordinates.

use super::decoding::Decoding;
use super::precision::Precision;
use super::weights::{decodes_by_sign, sigma_is_its_cell};
use crate::quantise::quantiser::{Expander, Zones, cell_of_sigma};
use crate::quantise::statistics::Statistics;
use crate::simd::{Kernel, Planes};
use crate::wire::{BLOCK, PLANES};
use std::borrow::Cow;
use std::sync::LazyLock;

/// Magnitudes by the seven bits behind the sign.
type Magnitudes = [f32; 128];

/// Of two to eight planes in packets with the usual zones, in σ. Bits that are not known do not
/// matter.
static USUAL: LazyLock<[Magnitudes; 9]> = LazyLock::new(|| {
    let mut all = [[0.0; 128]; 9];
    (2..=8).for_each(|planes| all[usize::from(planes)] = cells_of(&Zones::of(0), planes));
    all
});

fn cells_of(zones: &Zones, planes: u8) -> Magnitudes {
    let mut cells = [0.0; 128];
    zones.centroids(planes, |index, c| cell_mut(&mut cells, index, planes).fill(c));
    cells
}

/// What a cell of that depth is at full depth.
fn cell_mut(cells: &mut Magnitudes, first: u8, planes: u8) -> &mut [f32] {
    let first = usize::from(first);
    &mut cells[first..first + (256 >> planes)]
}

/// The scales of a row that is decoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scales {
    pub(crate) decoding: Decoding,
    /// What normalised coordinates are multiplied by.
    pub(crate) unit: f64,
    /// The magnitude of trimmed coordinates where the paper's decoding is asked for.
    pub(crate) paper: f64,
}

/// How coordinates are read of which the same number of planes is held.
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
    let Precision { statistics, planes, more, .. } = precision;
    let more = usize::from(more);
    let shallow = Values::new(statistics, planes, scales);
    if more == 0 {
        return shallow.decode(lanes, words, out);
    }
    let deep = more.div_ceil(BLOCK) * BLOCK;
    Values::new(statistics, planes + 1, scales).decode(lanes, words, &mut out[..deep]);
    if more % BLOCK > 0 {
        let mut mixed = [0.0; BLOCK];
        shallow.decode(lanes, &words[deep - BLOCK..], &mut mixed);
        out[more..deep].copy_from_slice(&mixed[more % BLOCK..]);
    }
    shallow.decode(lanes, &words[deep..], &mut out[deep..]);
}

impl Values {
    #[inline]
    fn new(statistics: Statistics, planes: u8, scales: Scales) -> Self {
        let Statistics { sigma, kappa, peak, .. } = statistics;
        let Scales { decoding, unit, paper } = scales;
        let sigma = f64::from(sigma);
        let trimmed = planes < PLANES;
        if planes == 0 {
            Self::Zero
        } else if decoding == Decoding::Paper && trimmed {
            Self::Signs(paper as f32)
        } else if decodes_by_sign(kappa, planes) {
            Self::Signs((sigma * f64::from(kappa) / 255.0 * unit) as f32)
        } else if planes <= 8 {
            let sigma_is_its_cell = sigma_is_its_cell(statistics, planes);
            Self::Indices { peak, unit: (sigma * unit) as f32, planes, sigma_is_its_cell }
        } else {
            // Of whole codes, which are rounded ones, nothing is open.
            Self::Codes { peak, unit: (sigma * unit) as f32, open_bits: if trimmed { 16 } else { 0 } }
        }
    }

    /// Writes as many coordinates as `out` holds, a multiple of 32.
    #[inline(always)]
    fn decode<L: Planes>(&self, lanes: L, words: &[u32], out: &mut [f32]) {
        let words = &words[..out.len()];
        match self {
            Self::Zero => out.fill(0.0),
            Self::Signs(magnitude) => {
                let value = lanes.splat_u(magnitude.to_bits());
                for (words, out) in words.as_chunks().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
                    for (at, line) in L::lines_mut(out).iter_mut().enumerate() {
                        let sign = lanes.and(lanes.load_words(words, at), lanes.splat_u(1 << 31));
                        lanes.store(line, lanes.floats(lanes.xor(value, sign)));
                    }
                }
            }
            Self::Indices { peak, unit, planes, sigma_is_its_cell } => {
                let mut cells = match Zones::of(*peak) {
                    Cow::Borrowed(_) => USUAL[usize::from(*planes)],
                    Cow::Owned(zones) => cells_of(&zones, *planes),
                };
                if *sigma_is_its_cell {
                    cell_mut(&mut cells, cell_of_sigma(*planes), *planes).fill(1.0);
                }
                for magnitude in &mut cells {
                    *magnitude *= unit;
                }
                if *planes > 4 {
                    return lanes.outlined(Cells { words, magnitudes: &cells, out });
                }
                let mut magnitudes = [0.0; 8];
                for (magnitude, cells) in magnitudes.iter_mut().zip(cells.as_chunks::<16>().0) {
                    *magnitude = cells[0];
                }
                lanes.outlined(LookUp { words, magnitudes: &magnitudes, out });
            }
            Self::Codes { peak, unit, open_bits } => {
                let zones = Zones::of(*peak);
                lanes.outlined(Expand { words, zones: &zones, unit: *unit, open_bits: *open_bits, out });
            }
        }
    }
}

/// Decodes code words of the embedded quantiser. In a function of its own, so that its tables stay
/// in registers.
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

/// Decodes indices of at most eight planes. In a function of its own, so that its table stays in
/// registers.
struct Cells<'a> {
    words: &'a [u32],
    magnitudes: &'a Magnitudes,
    out: &'a mut [f32],
}

impl Kernel for Cells<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Planes>(self, lanes: L) {
        lanes.of_cells(self.magnitudes, self.words, self.out);
    }
}

/// Decodes indices of at most four planes. In a function of its own, so that its table stays in a
/// register.
struct LookUp<'a> {
    words: &'a [u32],
    /// By the three bits behind the sign.
    magnitudes: &'a [f32; 8],
    out: &'a mut [f32],
}

impl Kernel for LookUp<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Planes>(self, lanes: L) {
        let Self { words, magnitudes, out } = self;
        let table = lanes.table(magnitudes);
        for (words, out) in words.as_chunks().0.iter().zip(out.as_chunks_mut::<BLOCK>().0) {
            for (at, line) in L::lines_mut(out).iter_mut().enumerate() {
                let word = lanes.load_words(words, at);
                let magnitude = lanes.bits(lanes.lookup(table, lanes.shift_right_28(word)));
                lanes.store(line, lanes.floats(lanes.or(magnitude, lanes.and(word, lanes.splat_u(1 << 31)))));
            }
        }
    }
}
