// SPDX-License-Identifier: Apache-2.0
//! The embedded quantiser: an 8-bit index for N(0, 1) of which every prefix is a near-optimal coarser index.
//!
//! Plane 0 is the sign; planes 1 to 7 are the upper bits of a piecewise linear, monotone function of the magnitude, and
//! two byte-planes its lower bits. Eight linear pieces, the *zones*, are enough for every depth to come within 4 % of
//! the Lloyd–Max quantiser of its size. They are equally wide, so that a coordinate's zone is the whole part of its
//! magnitude in zone widths, and few enough for their tables to lie in registers. The outermost zone has no end
//! of its own: the packet's peak bounds it.

pub use super::peak::{peak_byte, peak_magnitude};
use super::tables::CENTROIDS;
pub use super::tables::distortion;
use crate::simd::Lanes;
use std::borrow::Cow;

/// Width of a zone, σ. Chosen, together with [`CELLS`], to minimise the sum over b of D_b / D_b(Lloyd–Max).
pub(crate) const ZONE: f64 = 17.0 / 32.0;
/// Zones of the magnitude.
const ZONES: usize = 8;
/// The cell that each zone begins in, in eighths of a cell: zones need not begin where cells do.
const CELLS: [u16; ZONES + 1] = [0, 257, 493, 682, 822, 916, 972, 1004, 1024];
/// log2 of the positions in an eighth of a cell.
const EIGHTH_LOG2: u32 = 13;
/// Codes of a magnitude: seven bits of a cell and sixteen of the position in it, so that an f32 holds each exactly.
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
    /// 2^23 and the code that the zone's line has at magnitude 0. A sum of at least 2^23 has no places behind the point: adding this
    /// rounds to a whole code, which is then the sum's lower bits.
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

    /// Calls `put` with what every magnitude is decoded to of whose index the first `planes` (2 … 8) planes are known: the first index of the
    /// cell at that depth, of seven bits, and the cell's centroid.
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

    /// The codes of magnitudes in zone widths. Of the bits above a code's 23 the lowest is clear, the others mean nothing.
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
/// The zone of a code is one of two neighbours by the exponent and the first mantissa bit of the code's distance from a point a
/// little beyond the last code: both become finer towards the outer zones. A comparison with where the farther one
/// begins decides.
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
/// The point that distances are counted from, a code word: between any two halves of an octave from it lies at most one beginning of a
/// zone, and beyond the first half octave exactly one.
const FAR: f32 = 141.0 / 128.0 * (1u32 << 31) as f32;

/// Where a zone stands in tables: at the half octave of distance that it begins in, modulo eight, less one.
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
    /// Magnitudes in σ are multiplied by `unit`; of code words the lowest `open_bits`, less than 32, are unknown.
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

    /// Coordinates in the middle of what their code words leave open. Several vectors step by step, so that the processor need not look
    /// far ahead for something to do. (Loops, not closures: what the compiler does not inline here has no vector instructions.)
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

/// The magnitude, in units of σ, at which `code` (0 to 2^23, and between two codes) begins in a packet of that peak.
pub fn magnitude_of_code(code: f64, peak: u8) -> f64 {
    let end = USUAL_END.max(f64::from(peak_magnitude(peak)) / ZONE);
    let zone = (0..ZONES).rev().find(|zone| code >= base(*zone)).unwrap_or(0);
    let width = if zone == ZONES - 1 { end - zone as f64 } else { 1.0 };
    ZONE * (zone as f64 + width * (code - base(zone)) / codes_of(zone))
}

/// The first index, of seven bits, of the cell that σ itself is in when the first `planes` (2 … 8) planes are known.
pub(crate) const fn cell_of_sigma(planes: u8) -> u8 {
    /// 1/ZONE = 1.88 zone widths: 0.88 of zone 1, in eighths of a cell.
    const CELL: f64 = (CELLS[1] as f64 + (1.0 / ZONE - 1.0) * (CELLS[2] - CELLS[1]) as f64) / 8.0;
    CELL as u8 & u8::MAX << (8 - planes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::{Isa, Kernel, Planes};
    use crate::wire::BLOCK;
    use proptest::prelude::*;

    /// What a cell's magnitudes are decoded to when the first `planes` (1 … 8) planes are known.
    fn centroid(zones: &Zones, cell: u8, planes: u8) -> f32 {
        let mut found = CENTROIDS[0];
        if planes > 1 {
            zones.centroids(planes, |index, centroid| {
                if index >> (8 - planes) == cell >> (8 - planes) {
                    found = centroid;
                }
            });
        }
        found
    }

    /// Lower edges of the 128 cells, from the zones, in f64.
    fn edges() -> Vec<f64> {
        (0..128)
            .map(|cell| {
                let eighths = 8 * cell;
                let zone = CELLS.iter().rposition(|c| usize::from(*c) <= eighths).unwrap();
                let into = (eighths - usize::from(CELLS[zone])) as f64;
                let share = into / f64::from(CELLS[zone + 1] - CELLS[zone]);
                let width = if zone == ZONES - 1 { USUAL_END - 7.0 } else { 1.0 };
                ZONE * (zone as f64 + share * width)
            })
            .collect()
    }

    fn density(x: f64) -> f64 {
        (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt()
    }

    /// (mass, first moment, second moment) of N(0, 1) over a cell, by Simpson's rule.
    fn moments(low: f64, high: f64) -> (f64, f64, f64) {
        let high = high.min(12.0);
        let (steps, mut sums) = (2000, [0.0; 3]);
        let h = (high - low) / f64::from(steps);
        for i in 0..=steps {
            let x = low + h * f64::from(i);
            let weight = if i == 0 || i == steps { 1.0 } else { f64::from(2 + 2 * (i % 2)) };
            for (power, sum) in sums.iter_mut().enumerate() {
                *sum += weight * h / 3.0 * density(x) * x.powi(power as i32);
            }
        }
        (sums[0], sums[1], sums[2])
    }

    #[test]
    fn centroids_and_distortions_are_those_of_the_normal_distribution() {
        let edges = edges();
        for planes in 1..=8u8 {
            let width = 128usize >> (planes - 1);
            let mut error = 0.0;
            for cell in (0..128).step_by(width) {
                let high = edges.get(cell + width).map_or(f64::INFINITY, |e| *e);
                let (mass, first, second) = moments(edges[cell], high);
                let c = f64::from(centroid(&USUAL, cell as u8, planes));
                assert!((c - first / mass).abs() < 1e-5, "cell {cell} at {planes} planes");
                error += 2.0 * (second - 2.0 * c * first + c * c * mass);
            }
            assert!((error / distortion(planes) - 1.0).abs() < 1e-3, "{planes} planes: {error}");
        }
    }

    #[test]
    fn every_depth_is_near_the_best_known() {
        // Unbiased NMSE of EDEN at 1, 2, 4, 8 bits.
        for (planes, best) in [(1, 0.5708), (2, 0.133), (4, 0.0096), (8, 4.1e-5)] {
            let nmse = 1.0 / (1.0 - distortion(planes)) - 1.0;
            assert!(nmse / best < 1.05, "{planes} planes: {nmse} against {best}");
        }
    }

    /// Code words of eight magnitudes and what they decode to.
    struct ThereAndBack {
        zones: Zones,
        magnitudes: [f32; 8],
    }

    impl Kernel for ThereAndBack {
        type Output = ([u32; 16], [u32; 16]);

        #[inline(always)]
        fn run<L: Planes>(self, lanes: L) -> Self::Output {
            let y = lanes.mul(lanes.table(&self.magnitudes), lanes.splat((1.0 / ZONE) as f32));
            let [codes] = Compander::new(lanes, &self.zones).codes(lanes, [y]);
            let (mut out, mut words) = (([0; 16], [0; 16]), [0; BLOCK]);
            lanes.to_array(codes, &mut out.0);
            out.0 = out.0.map(|code| (code & 0x00ff_ffff) << 8);
            words[..16].copy_from_slice(&out.0);
            let words = lanes.load_words(&words, 0);
            let [back] = Expander::new(lanes, &self.zones, 1.0, 0).coordinates(lanes, [words]);
            lanes.to_array(lanes.bits(back), &mut out.1);
            out
        }
    }

    proptest! {
        #[test]
        fn a_code_s_cell_is_the_one_that_a_search_finds(magnitudes in prop::array::uniform8(0.0f32..4.58)) {
            let edges = edges();
            for isa in Isa::available() {
                let (codes, _) = isa.run(ThereAndBack { zones: USUAL, magnitudes });
                for (m, code) in magnitudes.iter().zip(codes) {
                    let m = f64::from(*m);
                    let slow = edges.iter().rposition(|edge| *edge <= m).unwrap();
                    // At an edge itself f32 may round to either side.
                    let near = edges.iter().any(|edge| (edge - m).abs() < 1e-6);
                    prop_assert!(slow == (code >> 24) as usize || near, "{m}: {slow}, {code:#x}");
                }
            }
        }

        #[test]
        fn codes_are_monotone_and_decode_to_f32_precision(
            magnitudes in prop::array::uniform8(0.0f32..1.0), peak in 0.1f32..90.0,
        ) {
            let mut magnitudes = magnitudes.map(|m| m * peak);
            magnitudes.sort_by(f32::total_cmp);
            for isa in Isa::available() {
                let (codes, back) = isa.run(ThereAndBack { zones: Zones::of(peak_byte(peak)).into_owned(), magnitudes });
                prop_assert!(codes[..8].is_sorted());
                for (m, b) in magnitudes.iter().zip(back) {
                    // A position of the last zone's, and the rounding of four operations.
                    let position = (peak - 3.718_75).max(0.863_3) / (20 << 13) as f32;
                    let bound = 3e-7 * m + position;
                    prop_assert!((f32::from_bits(b) - m).abs() <= bound, "{m} came back as {}", f32::from_bits(b));
                }
            }
        }
    }

    #[test]
    fn zones_join_without_gaps() {
        for zone in 1..ZONES {
            let low = (ZONE * zone as f64) as f32;
            let below = f32::from_bits(low.to_bits() - 4);
            let magnitudes = [below, low, low, low, low, low, low, low];
            for isa in Isa::available() {
                let (codes, _) = isa.run(ThereAndBack { zones: USUAL, magnitudes });
                let [below, at] = [codes[0] >> 8, codes[1] >> 8];
                assert!(at.abs_diff(base(zone) as u32) <= 1, "{isa}, zone {zone}: {at:#x}");
                assert!(below <= at && at - below <= 2, "{isa}, zone {zone}");
            }
        }
    }

    /// The zone whose line a code word is decoded by, in a packet whose zones decode to their own numbers.
    struct ZoneOf([u32; BLOCK]);

    impl Kernel for ZoneOf {
        type Output = [f32; BLOCK];

        #[inline(always)]
        fn run<L: Planes>(self, lanes: L) -> Self::Output {
            let mut zones = Zones { zero: [0.0; ZONES], width: [0.0; ZONES], ..USUAL };
            for zone in 0..ZONES {
                zones.zero[place(zone)] = -((1u32 << 31) as f32);
                zones.width[place(zone)] = (zone + 1) as f32 / (1u32 << 31) as f32;
            }
            let (expander, mut out) = (Expander::new(lanes, &zones, 1.0, 0), [0.0; BLOCK]);
            for (at, line) in L::lines_mut(&mut out).iter_mut().enumerate() {
                let [v] = expander.coordinates(lanes, [lanes.load_words(&self.0, at)]);
                lanes.store(line, v);
            }
            out
        }
    }

    #[test]
    fn a_code_is_decoded_by_the_line_of_its_zone() {
        let mut codes: Vec<u32> = (0..1 << 16).map(|i| i << 7).collect();
        codes.extend((0..ZONES).flat_map(|zone| {
            let start = base(zone) as u32;
            [start.saturating_sub(1), start, start + 1]
        }));
        codes.push(CODES - 1);
        for isa in Isa::available() {
            for codes in codes.chunks(BLOCK) {
                let mut words = [0; BLOCK];
                words.iter_mut().zip(codes).for_each(|(word, code)| *word = code << 8);
                for (code, value) in codes.iter().zip(isa.run(ZoneOf(words))) {
                    let zone = (0..ZONES).rev().find(|zone| base(*zone) as u32 <= *code).unwrap();
                    // (code + 2^23) / 2^23 times zone + 1.
                    let expected = (1.0 + f64::from(*code) / f64::from(CODES)) * (zone + 1) as f64;
                    assert!((f64::from(value) / expected - 1.0).abs() < 1e-6, "{isa}, code {code}: {value}");
                }
            }
        }
    }

    #[test]
    fn codes_begin_where_their_magnitudes_do() {
        for (cell, edge) in edges().into_iter().enumerate() {
            let code = (cell << 16) as f64;
            assert!((magnitude_of_code(code, 0) - edge).abs() < 1e-12, "cell {cell}");
        }
        let peak = peak_byte(20.0);
        assert!((magnitude_of_code(8_388_608.0, peak) - f64::from(peak_magnitude(peak))).abs() < 1e-9);
    }

    #[test]
    fn a_stretched_zone_decodes_to_the_middle_of_its_cells() {
        let peak = peak_byte(20.0);
        let zones = Zones::of(peak);
        let (low, high) = (7.0 * ZONE, f64::from(peak_magnitude(peak)));
        let of_cell = |cell: f64| low + (cell - 125.5) / 2.5 * (high - low);
        for (cell, planes, middle) in [(126, 8, 126.5), (127, 8, 127.5), (127, 7, 127.0)] {
            assert!((f64::from(centroid(&zones, cell, planes)) - of_cell(middle)).abs() < 1e-4);
        }
        assert_eq!(centroid(&zones, 125, 8), centroid(&USUAL, 125, 8));
        assert_eq!(centroid(&zones, 127, 6), centroid(&USUAL, 127, 6));
    }
}
