// SPDX-License-Identifier: Apache-2.0
//! Which rows matter more: importance within a message.
//!
//! MLT's `prio_func` (NSDI'24, §4.2) lets a sender order packets by what their loss would cost.
//! After a rotation every coordinate of a row is as important as any other, so all packets of a row
//! count as much as its energy.

/// Whether a row is important: switches trim and drop the others first
/// (docs/reference/wire-format.md §7). Final when the row is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Importance {
    /// It is, whatever it holds.
    #[default]
    Always,
    /// It is not, unless it holds NaN or an infinity.
    Never,
    /// If its energy per coordinate (mean square of its coordinates, in the gradient's units
    /// squared) is at least this.
    AtLeast(f64),
}

impl Importance {
    /// The answer for a row of that energy per coordinate; NaN for a row that is not finite.
    pub(crate) fn of(self, figure: f64) -> bool {
        figure.is_nan()
            || match self {
                Self::Always => true,
                Self::Never => false,
                Self::AtLeast(threshold) => figure >= threshold,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_not_finite_are_important_whatever_was_chosen() {
        for importance in [Importance::Always, Importance::Never, Importance::AtLeast(1.0)] {
            assert!(importance.of(f64::NAN));
        }
        assert!(!Importance::Never.of(f64::MAX) && Importance::AtLeast(2.0).of(2.0));
    }
}
