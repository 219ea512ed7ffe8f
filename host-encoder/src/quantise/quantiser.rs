// SPDX-License-Identifier: Apache-2.0
//! The embedded quantiser: an 8-bit index for N(0, 1) of which every prefix is a near-optimal
//! coarser index.
//!
//! Plane 0 is the sign; planes 1 to 7 are the upper bits of a piecewise linear, monotone function
//! of the magnitude, and two byte-planes its lower bits. Eight linear pieces, the *zones*, are
//! enough for every depth to come within 4 % of the Lloyd–Max quantiser of its size. They are
//! equally wide, so that a coordinate's zone is the whole part of its magnitude in zone widths, and
//! few enough for their tables to lie in registers. The outermost zone has no end of its own: the
//! packet's peak bounds it.

pub use super::peak::{peak_byte, peak_magnitude};
use super::tables::CENTROIDS;
pub use super::tables::distortion;
use crate::simd::Lanes;
use std::borrow::Cow;

/// Width of a zone, σ. Chosen, together with [`CELLS`], to minimise the sum over b of D_b /
/// D_b(Lloyd–Max).
pub(crate) const ZONE: f64 = 17.0 / 32.0;
/// Zones of the magnitude.
const ZONES: usize = 8;
/// The cell that each zone begins in, in eighths of a cell: zones need not begin where cells do.
const CELLS: [u16; ZONES + 1] = [0, 257, 493, 682, 822, 916, 972, 1004, 1024];
/// log2 of the positions in an eighth of a cell.
const EIGHTH_LOG2: u32 = 13;
/// Codes of a magnitude: seven bits of a cell and sixteen of the position in it, so that an f32
/// holds each exactly.
const CODES: u32 = 1 << 23;
/// Where the last zone ends unless the peak is above, in zone widths.
const USUAL_END: f64 = 8.625;
/// Cells from this one on lie wholly in the last zone.
const FIRST_OUTER_CELL: u8 = 126;

/// The zones of a packet: the last one reaches as far as the packet's peak.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Zones {
    /// Codes per zone width.
    slope: [f32; ZONES],
    /// 2^23 and the code that the zone's line has at magnitude 0. A sum of at least 2^23 has no
    /// places behind the point: adding this rounds to a whole code, which is then the sum's lower
    /// bits.
    offset: [f32; ZONES],
    /// For decoding, at [`place`]: the code word at which the zone's line is 0.
    zero: [f32; ZONES],
    /// For decoding, at [`place`]: σ per unit of a code word.
    width: [f32; ZONES],
    /// Where the last zone ends, in zone widths.
    end: f64,
}

/// The zones of packets whose peak is not above the usual end.
static USUAL: Zones = {
    let none = [0.0; ZONES];
    let mut zones = Zones { slope: none, offset: none, zero: none, width: none, end: USUAL_END };
    let mut zone = 0;
    while zone < ZONES {
        zones = zones.with(zone, codes_of(zone));
        zone += 1;
    }
    zones.with(ZONES - 1, codes_of(ZONES - 1) / (USUAL_END - (ZONES - 1) as f64))
};

/// The smallest peak byte whose magnitude is beyond the usual end.
const STRETCHING: u8 = {
    let mut peak = 0;
    while (peak_magnitude(peak) as f64) <= USUAL_END * ZONE {
        peak += 1;
    }
    peak
};

/// The code that a zone begins at.
const fn base(zone: usize) -> f64 {
    ((CELLS[zone] as u32) << EIGHTH_LOG2) as f64
}

/// Codes that a zone holds.
const fn codes_of(zone: usize) -> f64 {
    base(zone + 1) - base(zone)
}

impl Zones {
    const fn with(mut self, zone: usize, slope: f64) -> Self {
        let codes = slope as f32;
        let offset = (CODES as f64 + base(zone) - zone as f64 * codes as f64) as f32;
        self.slope[zone] = codes;
        self.offset[zone] = offset;
        // What was rounded for the encoder has to be so for the decoder.
        self.zero[place(zone)] = (WORD * (offset as f64 - CODES as f64)) as f32;
        self.width[place(zone)] = (ZONE / codes as f64 / WORD) as f32;
        self
    }

    /// The zones of a packet of that peak byte.
    #[inline]
    pub(crate) fn of(peak: u8) -> Cow<'static, Self> {
        if peak < STRETCHING {
            Cow::Borrowed(&USUAL)
        } else {
            Cow::Owned(USUAL.stretched_to(peak_magnitude(peak)))
        }
    }

    /// The zones of a packet whose largest magnitude, in units of σ, is at most `peak`.
    #[cold]
    fn stretched_to(self, peak: f32) -> Self {
        let (end, last) = (f64::from(peak) / ZONE, ZONES - 1);
        Self { end, ..self.with(last, codes_of(last) / (end - last as f64)) }
    }

    /// Calls `put` with what every magnitude is decoded to of whose index the first `planes` (2 …
    /// 8) planes are known: the first index of the cell at that depth, of seven bits, and the
    /// cell's centroid.
    #[inline]
    pub(crate) fn centroids(&self, planes: u8, mut put: impl FnMut(u8, f32)) {
        let depth = planes.clamp(2, 8) - 1;
        let (cells, width) = (1usize << depth, 128u8 >> depth);
        for (cell, centroid) in CENTROIDS[cells - 1..][..cells].iter().enumerate() {
            put(cell as u8 * width, *centroid);
        }
        // In a zone stretched by an outlier the normal distribution's centroids mean nothing.
        if self.end > USUAL_END && depth >= 6 {
            for first in (FIRST_OUTER_CELL..128).step_by(width.into()) {
                let last = ZONES - 1;
                let middle = f64::from(first) + 0.5 * f64::from(width);
                let share = (8.0 * middle - f64::from(CELLS[last])) / f64::from(CELLS[ZONES] - CELLS[last]);
                put(first, (ZONE * (last as f64 + share * (self.end - last as f64))) as f32);
            }
        }
    }
}

/// [`Zones`] in vectors, for encoding.
#[derive(Clone, Copy)]
pub(crate) struct Compander<L: Lanes> {
    slope: L::F,
    offset: L::F,
}

impl<L: Lanes> Compander<L> {
    #[inline(always)]
    pub(crate) fn new(lanes: L, zones: &Zones) -> Self {
        Self { slope: lanes.table(&zones.slope), offset: lanes.table(&zones.offset) }
    }

    /// The codes of magnitudes in zone widths. Of the bits above a code's 23 the lowest is clear,
    /// the others mean nothing.
    #[inline(always)]
    pub(crate) fn codes<const K: usize>(&self, lanes: L, y: [L::F; K]) -> [L::U; K] {
        const LARGEST: u32 = (2.0 * CODES as f32).to_bits() - 1;
        let mut code = [lanes.splat_u(ZONES as u32 - 1); K];
        for i in 0..K {
            code[i] = lanes.min_u(lanes.truncate(y[i]), code[i]);
        }
        for i in 0..K {
            let steps = lanes.mul(y[i], lanes.lookup(self.slope, code[i]));
            code[i] = lanes.bits(lanes.add(steps, lanes.lookup(self.offset, code[i])));
        }
        for code in &mut code {
            *code = lanes.min_u(*code, lanes.splat_u(LARGEST));
        }
        code
    }
}

/// [`Zones`] in vectors, for decoding into units of the caller's choice.
///
/// The zone of a code is one of two neighbours by the exponent and the first mantissa bit of the
/// code's distance from a point a little beyond the last code: both become finer towards the outer
/// zones. A comparison with where the farther one begins decides.
#[derive(Clone, Copy)]
pub(crate) struct Expander<L: Lanes> {
    /// The bits of a magnitude that are known.
    known: L::U,
    /// Where the farther zone begins, less one.
    below: L::U,
    zero: L::F,
    width: L::F,
}

/// Code words are codes times this.
const WORD: f64 = 256.0;
/// The point that distances are counted from, a code word: between any two halves of an octave from
/// it lies at most one beginning of a zone, and beyond the first half octave exactly one.
const FAR: f32 = 141.0 / 128.0 * (1u32 << 31) as f32;

/// Where a zone stands in tables: at the half octave of distance that it begins in, modulo eight,
/// less one.
const fn place(zone: usize) -> usize {
    /// The half octave in which code word 0 lies.
    const FIRST: usize = ((FAR.to_bits() >> 22) % 8) as usize;
    (FIRST + ZONES - 1 - zone) % ZONES
}

/// Where the farther of the two zones of a half octave begins, less one, a code word.
static BELOW: [u32; ZONES] = {
    let mut below = [0; ZONES];
    let mut zone = 0;
    while zone < ZONES {
        below[(place(zone) + 1) % ZONES] = ((base(zone) * WORD) as u32).wrapping_sub(1);
        zone += 1;
    }
    below
};

impl<L: Lanes> Expander<L> {
    /// Magnitudes in σ are multiplied by `unit`; of code words the lowest `open_bits`, less than
    /// 32, are unknown.
    #[inline(always)]
    pub(crate) fn new(lanes: L, zones: &Zones, unit: f32, open_bits: u32) -> Self {
        let middle = ((1u64 << open_bits) / 2) as f32;
        Self {
            known: lanes.splat_u(0x7fff_ffff & u32::MAX << open_bits),
            below: lanes.table_u(&BELOW),
            zero: lanes.sub(lanes.table(&zones.zero), lanes.splat(middle)),
            width: lanes.mul(lanes.table(&zones.width), lanes.splat(unit)),
        }
    }

    /// Coordinates in the middle of what their code words leave open. Several vectors step by step,
    /// so that the processor need not look far ahead for something to do. (Loops, not closures:
    /// what the compiler does not inline here has no vector instructions.)
    #[inline(always)]
    pub(crate) fn coordinates<const K: usize>(&self, lanes: L, words: [L::U; K]) -> [L::F; K] {
        let (mut magnitude, mut zone) = (words, words);
        let mut code = [self.zero; K];
        for i in 0..K {
            magnitude[i] = lanes.and(words[i], self.known);
            code[i] = lanes.convert(magnitude[i]);
        }
        for i in 0..K {
            zone[i] = lanes.shift_right_22(lanes.bits(lanes.sub(lanes.splat(FAR), code[i])));
        }
        for i in 0..K {
            zone[i] = lanes.less_where_greater(zone[i], magnitude[i], lanes.lookup_u(self.below, zone[i]));
        }
        for i in 0..K {
            let into = lanes.sub(code[i], lanes.lookup(self.zero, zone[i]));
            code[i] = lanes.mul(into, lanes.lookup(self.width, zone[i]));
        }
        for i in 0..K {
            code[i] =
                lanes.floats(lanes.or(lanes.bits(code[i]), lanes.and(words[i], lanes.splat_u(1 << 31))));
        }
        code
    }
}

/// The magnitude, in units of σ, at which `code` (0 to 2^23, and between two codes) begins in a
/// packet of that peak.
pub fn magnitude_of_code(code: f64, peak: u8) -> f64 {
    let end = USUAL_END.max(f64::from(peak_magnitude(peak)) / ZONE);
    let zone = (0..ZONES).rev().find(|zone| code >= base(*zone)).unwrap_or(0);
    let width = if zone == ZONES - 1 { end - zone as f64 } else { 1.0 };
    ZONE * (zone as f64 + width * (code - base(zone)) / codes_of(zone))
}

/// The first index, of seven bits, of the cell that σ itself is in when the first `planes` (2 … 8)
/// planes are known.
pub(crate) const fn cell_of_sigma(planes: u8) -> u8 {
    /// 1/ZONE = 1.88 zone widths: 0.88 of zone 1, in eighths of a cell.
    const CELL: f64 = (CELLS[1] as f64 + (1.0 / ZONE - 1.0) * (CELLS[2] - CELLS[1]) as f64) / 8.0;
    CELL as u8 & u8::MAX << (8 - planes)
}

#[cfg(test)]
mod tests;
