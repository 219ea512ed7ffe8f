//! The embedded quantiser: an 8-bit index for N(0, 1) of which every prefix is a near-optimal coarser index.
//!
//! Plane 0 is the sign; planes 1 to 7 walk down a binary tree over |x|. Three byte-planes then say where in
//! its cell the coordinate lies. The outermost cell has no end of its own: the packet's peak bounds it.

#[path = "quantiser_tables.rs"]
#[expect(clippy::unreadable_literal, clippy::excessive_precision, reason = "a table of computed figures")]
mod tables;

use crate::packet::BLOCK;
use tables::{CENTROIDS, DISTORTION, EDGES};

/// Steps of |x| per unit in the look-up table: finer than the narrowest cell, so that a step meets one edge at most.
const STEPS: f32 = 64.0;
const STEP_COUNT: usize = 288;

/// For each step, the cell its lower end lies in.
const CELL_OF_STEP: [u8; STEP_COUNT] = {
    let mut table = [0; STEP_COUNT];
    let (mut step, mut cell) = (0, 0);
    while step < STEP_COUNT {
        while cell < 127 && EDGES[cell + 1] <= step as f32 / STEPS {
            cell += 1;
        }
        table[step] = cell as u8;
        step += 1;
    }
    table
};

/// The cell, 0 … 127, that a magnitude lies in.
#[inline]
pub fn cell(magnitude: f32) -> u8 {
    // `as` saturates: NaN gives 0, everything large the last step.
    let step = ((magnitude * STEPS) as usize).min(STEP_COUNT - 1);
    let cell = CELL_OF_STEP[step];
    // The outermost cell's end is infinite: an infinite magnitude must not go beyond it.
    (cell + u8::from(magnitude >= NEXT_EDGES[usize::from(cell & 127)])).min(127)
}

/// The cells of a block of magnitudes.
#[inline]
pub(crate) fn cells(magnitudes: &[f32; BLOCK]) -> [u8; BLOCK] {
    /// Adding it to a number of steps below 2^23 rounds that to a whole number; a saturating cast does not vectorise.
    const WHOLE: f32 = 8_388_608.0;
    let mut steps = [0u32; BLOCK];
    for (step, magnitude) in steps.iter_mut().zip(magnitudes) {
        let exact = magnitude * STEPS;
        let exact = if exact < (STEP_COUNT - 1) as f32 { exact } else { (STEP_COUNT - 1) as f32 };
        let rounded = exact + WHOLE;
        *step = rounded.to_bits() - WHOLE.to_bits() - u32::from(rounded - WHOLE > exact);
    }
    let mut cells = [0; BLOCK];
    for i in 0..BLOCK {
        let cell = CELL_OF_STEP[(steps[i] as usize).min(STEP_COUNT - 1)] & 127;
        cells[i] = (cell + u8::from(magnitudes[i] >= NEXT_EDGES[usize::from(cell)])).min(127);
    }
    cells
}

/// Upper ends of the cells.
const NEXT_EDGES: [f32; 128] = {
    let mut next = [f32::INFINITY; 128];
    let mut cell = 0;
    while cell < 127 {
        next[cell] = EDGES[cell + 1];
        cell += 1;
    }
    next
};

/// Where in its cell a magnitude lies: 24 bits, finer than f32's own rounding of the rotation.
///
/// One table a packet, because the outermost cell ends at the packet's own peak.
#[derive(Debug, Clone)]
pub struct Cells {
    low: [f32; 128],
    width: [f32; 128],
    /// 2^24 / width; 0 for a cell of no width.
    steps: [f32; 128],
}

/// Positions in a cell.
const POSITIONS: f32 = 16_777_216.0;

impl Cells {
    /// The cells of a packet whose largest magnitude, in units of σ, is at most `peak`.
    pub fn new(peak: f32) -> Self {
        let mut cells = Self { low: EDGES, width: WIDTHS, steps: STEPS_OF_WIDTHS };
        let width = (peak - EDGES[127]).max(0.0);
        cells.width[127] = width;
        cells.steps[127] = if width > 0.0 { POSITIONS / width } else { 0.0 };
        cells
    }

    /// The positions, 0 … 2^24 − 1, of a block of magnitudes in their cells.
    #[inline]
    pub(crate) fn offsets(&self, cells: &[u8; BLOCK], magnitudes: &[f32; BLOCK]) -> [u32; BLOCK] {
        let (mut low, mut steps) = ([0.0; BLOCK], [0.0; BLOCK]);
        for i in 0..BLOCK {
            low[i] = self.low[usize::from(cells[i] & 127)];
            steps[i] = self.steps[usize::from(cells[i] & 127)];
        }
        let mut offsets = [0; BLOCK];
        for i in 0..BLOCK {
            offsets[i] = floor_24((magnitudes[i] - low[i]) * steps[i]);
        }
        offsets
    }

    /// The magnitudes in the middle of the positions that a block's `offsets` leave open: their lowest `open_bits` bits
    /// are unknown (and zero).
    #[inline]
    pub(crate) fn magnitudes(
        &self,
        cells: &[u8; BLOCK],
        offsets: &[u32; BLOCK],
        open_bits: u32,
    ) -> [f32; BLOCK] {
        let (mut low, mut width) = ([0.0; BLOCK], [0.0; BLOCK]);
        for i in 0..BLOCK {
            low[i] = self.low[usize::from(cells[i] & 127)];
            width[i] = self.width[usize::from(cells[i] & 127)];
        }
        let middle = (1u32 << open_bits) as f32 * 0.5;
        let mut magnitudes = [0.0; BLOCK];
        for i in 0..BLOCK {
            // Positions have 24 bits: a cast from i32 is exact, and vectorises where one from u32 does not.
            magnitudes[i] = low[i] + width[i] * ((offsets[i] as i32 as f32 + middle) * (1.0 / POSITIONS));
        }
        magnitudes
    }
}

/// The whole part of 0 ≤ x, at most 2^24 − 1. Arithmetic that vectorises everywhere, unlike a saturating cast.
#[inline]
fn floor_24(x: f32) -> u32 {
    /// From here on an f32 is a whole number; adding it to a smaller one rounds to a whole number.
    const WHOLE: f32 = 8_388_608.0;
    let x = if x < 16_777_215.0 { x } else { 16_777_215.0 };
    let (rest, high) = if x >= WHOLE { (x - WHOLE, 1 << 23) } else { (x, 0) };
    let rounded = rest + WHOLE;
    let excess = u32::from(rounded - WHOLE > rest);
    (rounded.to_bits() - WHOLE.to_bits() - excess) + high
}

const WIDTHS: [f32; 128] = {
    let mut widths = [0.0; 128];
    let mut cell = 0;
    while cell < 127 {
        widths[cell] = EDGES[cell + 1] - EDGES[cell];
        cell += 1;
    }
    widths
};

const STEPS_OF_WIDTHS: [f32; 128] = {
    let mut steps = [0.0; 128];
    let mut cell = 0;
    while cell < 127 {
        steps[cell] = POSITIONS / WIDTHS[cell];
        cell += 1;
    }
    steps
};

/// What a magnitude is decoded to when the first `planes` (1 … 8) planes of its index are known: the centroid of
/// the cell at that depth. `cell` needs to be right in its upper `planes − 1` bits only.
#[inline]
pub fn centroid(cell: u8, planes: u8) -> f32 {
    let depth = usize::from(planes.clamp(1, 8) - 1);
    CENTROIDS[(1 << depth) - 1 + (usize::from(cell & 127) >> (7 - depth))]
}

/// D_b: E (x − x̂)² of N(0, 1) when `planes` planes arrived. Beyond the eighth every byte-plane divides a cell by 256.
pub fn distortion(planes: u8) -> f64 {
    match planes {
        0..=8 => DISTORTION[usize::from(planes)],
        9 => DISTORTION[8] / 65_536.0,
        _ => 0.0,
    }
}

/// 2^(k/32), k = 0 … 31.
const ROOTS: [f64; 32] = {
    const ROOT: f64 = 1.021_897_148_654_116_7;
    let mut roots = [1.0; 32];
    let mut k = 1;
    while k < 32 {
        roots[k] = roots[k - 1] * ROOT;
        k += 1;
    }
    roots
};

/// The magnitude that a peak byte stands for, 2^(peak/32), in units of σ.
pub fn peak_magnitude(peak: u8) -> f32 {
    (ROOTS[usize::from(peak % 32)] * (1u64 << (peak / 32)) as f64) as f32
}

/// The smallest peak byte whose magnitude is not below `ratio`. (A packet has at most 8,160 coordinates, so its
/// largest is at most √8160 ≈ 90 σ; the byte reaches 250 σ.)
pub fn peak_byte(ratio: f32) -> u8 {
    let (mut low, mut high) = (0u8, 255u8);
    while low < high {
        let middle = low + (high - low) / 2;
        if peak_magnitude(middle) >= ratio { high = middle } else { low = middle + 1 }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
        for planes in 1..=8u8 {
            let width = 128usize >> (planes - 1);
            let mut error = 0.0;
            for cell in (0..128).step_by(width) {
                let high = EDGES.get(cell + width).map_or(f64::INFINITY, |e| f64::from(*e));
                let (mass, first, second) = moments(f64::from(EDGES[cell]), high);
                let c = f64::from(centroid(cell as u8, planes));
                assert!((c - first / mass).abs() < 1e-5, "cell {cell} at {planes} planes");
                error += 2.0 * (second - 2.0 * c * first + c * c * mass);
            }
            assert!((error / distortion(planes) - 1.0).abs() < 1e-3, "{planes} planes: {error}");
        }
    }

    #[test]
    fn every_depth_is_near_the_best_known() {
        // DESIGN §9: unbiased NMSE of EDEN at 1, 2, 4, 8 bits.
        for (planes, best) in [(1, 0.5708), (2, 0.133), (4, 0.0096), (8, 4.1e-5)] {
            let nmse = 1.0 / (1.0 - distortion(planes)) - 1.0;
            assert!(nmse / best < 1.05, "{planes} planes: {nmse} against {best}");
        }
    }

    #[test]
    fn a_peak_byte_is_never_below_its_magnitude() {
        for tenth in 1..2_500u16 {
            let ratio = f32::from(tenth) / 10.0;
            let byte = peak_byte(ratio);
            assert!(peak_magnitude(byte) >= ratio);
            assert!(byte == 0 || peak_magnitude(byte - 1) < ratio);
        }
    }

    proptest! {
        #[test]
        fn the_table_finds_the_cell_that_a_search_finds(magnitude in 0.0f32..8.0) {
            let slow = EDGES.iter().rposition(|edge| *edge <= magnitude).unwrap();
            prop_assert_eq!(usize::from(cell(magnitude)), slow);
        }
    }

    #[test]
    fn edges_themselves_belong_to_the_cell_above() {
        for (index, edge) in EDGES.iter().enumerate() {
            assert_eq!(usize::from(cell(*edge)), index);
        }
        assert_eq!((cell(f32::NAN), cell(f32::MAX), cell(f32::INFINITY)), (0, 127, 127));
    }

    proptest! {
        #[test]
        fn floor_24_is_a_saturating_cast(x in 0.0f32..1.7e7) {
            prop_assert_eq!(floor_24(x), (x as u32).min(0x00ff_ffff));
        }
    }

    #[test]
    fn floor_24_holds_at_the_borders() {
        for x in [0.0, 0.5, 0.999_999_9, 1.0, 1.5, 2.5, 8_388_607.5, 8_388_608.0, 16_777_215.0, 16_777_216.0]
        {
            assert_eq!(floor_24(x), (x as u32).min(0x00ff_ffff), "{x}");
        }
    }
}
