// SPDX-License-Identifier: Apache-2.0
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

/// The zone whose line a code word is decoded by, in a packet whose zones decode to their own
/// numbers.
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
