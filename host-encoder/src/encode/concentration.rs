//! Whether one rotation makes a row normal (docs/wire-format.md §3).

use crate::rotate::scale::RowScale;
use std::ops::Range;

/// Rows of this q are rotated twice: of fewer than 256 equal non-zeros, but not of a single one.
const TWICE: Range<f64> = 1.0 / 256.0..0.995;
/// A q above a 256th has a largest coordinate whose square is more than a 256th of the energy; the energy may be off by its rounding.
const SUSPECT: f32 = 300.0;

/// Whether a row is worth a closer look: cheap, and never wrong about rows that have to be rotated twice.
#[inline(always)]
pub(super) fn is_suspect(largest: f32, energy: f32) -> bool {
    // Rows whose sums could overflow are not at their working scale, and are looked at whatever this says.
    energy.is_nan() || largest * largest * SUSPECT > energy
}

/// Whether a row, of values at its working scale, has to be rotated twice.
#[inline(always)]
pub(super) fn is_concentrated(row: &[f32], scale: RowScale) -> bool {
    let q = if scale.is_one() { concentration(row, |x| x) } else { concentration(row, |x| scale.up(x)) };
    TWICE.start < q && q < TWICE.end
}

/// q = Σx⁴ / (Σx²)²: 1/k for k equal non-zeros. The order of the sums is binding.
#[inline(always)]
fn concentration(row: &[f32], at_scale: impl Fn(f32) -> f32) -> f64 {
    let (mut squares, mut fourths) = ([0.0; 16], [0.0; 16]);
    let (chunks, rest) = row.as_chunks::<16>();
    let mut last = [0.0; 16];
    last[..rest.len()].copy_from_slice(rest);
    for chunk in chunks.iter().chain([&last]) {
        for lane in 0..16 {
            let x = f64::from(at_scale(chunk[lane]));
            let square = x * x;
            squares[lane] += square;
            fourths[lane] += square * square;
        }
    }
    for half in [8, 4, 2, 1] {
        for lane in 0..half {
            squares[lane] += squares[lane + half];
            fourths[lane] += fourths[lane + half];
        }
    }
    fourths[0] / (squares[0] * squares[0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_non_zeros_have_the_concentration_of_one_by_their_number() {
        for k in [1, 2, 3, 40, 255, 256, 257] {
            let mut row = vec![0.0f32; 1000];
            (0..k).for_each(|i| row[i * 3] = if i % 2 == 0 { 0.5 } else { -0.5 });
            let q = concentration(&row, |x| x);
            assert!((q * k as f64 - 1.0).abs() < 1e-12);
            assert_eq!(is_concentrated(&row, RowScale::for_largest(0.5)), (2..256).contains(&k), "{k}");
            // The quick look is never less suspicious.
            let energy = row.iter().map(|x| x * x).sum();
            assert!(is_suspect(0.5, energy) || k >= 256);
        }
        assert!(!is_concentrated(&[0.0; 64], RowScale::for_largest(0.0)), "a row of zeros has no q");
    }

    #[test]
    fn the_quick_look_suspects_what_it_cannot_judge() {
        assert!(is_suspect(1.0, f32::NAN));
        assert!(!is_suspect(0.0, 0.0), "zeros need no second rotation");
    }
}
