// SPDX-License-Identifier: Apache-2.0
//! Whether one rotation makes a row normal (docs/reference/wire-format.md §3).

use crate::rotate::entry::Seen;
use crate::rotate::scale::RowScale;
use crate::simd::Format;
use std::ops::Range;

/// Rows of this q are rotated twice: of fewer than 256 equal non-zeros, but not of a single one.
const TWICE: Range<f64> = 1.0 / 256.0..0.995;
/// How far q, computed in f32, may be off, with a reserve. Rounding takes 3·10⁻⁵ at most (2^7
/// values a lane and piece, 2^8 pieces). Underflow of 2^20 fourth powers beside one of 2^−120 takes
/// 2^−10.
const MARGIN: f64 = 1.0 / 512.0;

/// Whether a row has to be rotated twice. `seen` are sums over its values at the working scale.
#[inline(always)]
pub(super) fn is_concentrated<F: Format>(seen: Seen, row: &[F], scale: RowScale) -> bool {
    let q = f64::from(seen.fourths) / f64::from(seen.squares).powi(2);
    let q = if needs_exact_q(q) { exact(row, scale) } else { q };
    TWICE.start < q && q < TWICE.end
}

/// Whether q, computed in f32, is too near a limit, or not finite.
#[inline(always)]
fn needs_exact_q(q: f64) -> bool {
    !q.is_finite() || [TWICE.start, TWICE.end].into_iter().any(|limit| (q / limit - 1.0).abs() < MARGIN)
}

/// q = Σx⁴ / (Σx²)²: 1/k for k equal non-zeros. The order of the sums is binding.
#[cold]
fn exact<F: Format>(row: &[F], scale: RowScale) -> f64 {
    let (mut squares, mut fourths) = ([0.0; 16], [0.0; 16]);
    let (chunks, rest) = row.as_chunks::<16>();
    let mut last = [F::ZERO; 16];
    last[..rest.len()].copy_from_slice(rest);
    for chunk in chunks.iter().chain([&last]) {
        for lane in 0..16 {
            let x = f64::from(scale.up(chunk[lane].wide()));
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

    /// What a first pass sees of a row.
    fn seen(row: &[f32], scale: RowScale) -> Seen {
        let mut seen = Seen::default();
        for x in row {
            let x = scale.up(*x);
            seen = seen.and(Seen { largest: x.abs().to_bits(), squares: x * x, fourths: x.powi(4) });
        }
        seen
    }

    #[test]
    fn equal_non_zeros_have_the_concentration_of_one_by_their_number() {
        for k in [1, 2, 3, 40, 255, 256, 257] {
            for size in [0.5, 1e-35, 1e30] {
                let mut row = vec![0.0f32; 1000];
                (0..k).for_each(|i| row[i * 3] = if i % 2 == 0 { size } else { -size });
                let scale = RowScale::for_largest(size);
                assert!((exact(&row, scale) * k as f64 - 1.0).abs() < 1e-12);
                let twice = is_concentrated(seen(&row, scale), &row, scale);
                assert_eq!(twice, (2..256).contains(&k), "{k} of {size}");
            }
        }
        let zeros = [0.0f32; 64];
        let twice = is_concentrated(Seen::default(), &zeros, RowScale::ONE);
        assert!(!twice, "a row of zeros has no q");
    }

    #[test]
    fn sums_in_f32_decide_nothing_near_a_limit() {
        assert!(
            [f64::NAN, f64::INFINITY, 1.0 / 256.0, 1.0 / 256.4, 1.0 / 255.6, 0.994, 0.996]
                .into_iter()
                .all(needs_exact_q)
        );
        assert!(![0.0, 1.0 / 257.0, 1.0 / 255.0, 0.5, 0.99, 1.0].into_iter().any(needs_exact_q));
    }

    #[test]
    fn rows_of_the_smallest_and_largest_ordinary_values_are_judged_by_their_exact_q() {
        // Of values below 2^−38 the fourth powers are 0 in f32, and of 2^20 of 2^30 their sum is
        // infinite.
        for (spike, rest) in
            [(2f32.powi(-30), 2f32.powi(-38)), (2f32.powi(29), 2f32.powi(29)), (2f32.powi(-29), 0.0)]
        {
            let mut row = vec![rest; 1 << 20];
            row[77] = spike;
            let scale = RowScale::ONE;
            let q = exact(&row, scale);
            assert_eq!(
                is_concentrated(seen(&row, scale), &row, scale),
                TWICE.start < q && q < TWICE.end,
                "{spike}"
            );
        }
    }
}
