// SPDX-License-Identifier: Apache-2.0
//! How a gradient's energy is shared out among its rows.

use trimwire_encoder::Layout;

/// A row that outweighs all others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Heaviest {
    /// Which.
    pub row: usize,
    /// Of how many.
    pub rows: usize,
    /// Its share of the energy, 0 to 1.
    pub share: f64,
}

/// Share of the energy from which a row drowns the others' errors in an NMSE, which is weighted by
/// energy.
const NEARLY_ALL: f64 = 0.99;
/// Fewer rows are few enough to expect it.
const FEWEST_ROWS: usize = 4;

/// The row that holds nearly all the energy, where one does.
pub(crate) fn heaviest(values: &[f32], layout: &Layout) -> Option<Heaviest> {
    let energy = |row| {
        let values = values.get(layout.row_coordinates(row)).unwrap_or_default();
        values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>()
    };
    let energies: Vec<f64> = (0..layout.rows()).map(energy).collect();
    let (at, most) = energies.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let share = most / energies.iter().sum::<f64>();
    let outweighs = energies.len() >= FEWEST_ROWS && share >= NEARLY_ALL;
    outweighs.then_some(Heaviest { row: at, rows: energies.len(), share })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_that_drowns_the_others_is_found() {
        let layout = |rows: usize| Layout::new(32 * rows, 32).and_then(|l| l.with_row_log2(5)).unwrap();
        let mut values = vec![1.0; 128];
        assert_eq!(heaviest(&values, &layout(4)), None);
        values[70] = 200.0;
        let found = heaviest(&values, &layout(4)).unwrap();
        assert_eq!((found.row, found.rows), (2, 4));
        assert!((found.share - 40_031.0 / 40_127.0).abs() < 1e-12);
        assert_eq!(heaviest(&values[32..], &layout(3)), None, "three rows");
        assert_eq!(heaviest(&[0.0; 128], &layout(4)), None);
    }
}
