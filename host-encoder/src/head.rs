//! The three numbers about a packet's coordinates that its header carries.

use crate::moments::Moments;
use crate::packet::Header;
use crate::quantiser::{self, ZONE};

/// σ, κ and peak as they go on the wire.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) sigma: f32,
    pub(crate) kappa: u8,
    pub(crate) peak: u8,
}

impl From<&Header> for Head {
    fn from(header: &Header) -> Self {
        Self { sigma: header.sigma, kappa: header.kappa, peak: header.peak }
    }
}

impl PartialEq for Head {
    /// NaN, which marks rows, equals itself.
    fn eq(&self, other: &Self) -> bool {
        let bits = |head: &Self| (head.sigma.to_bits(), head.kappa, head.peak);
        bits(self) == bits(other)
    }
}

impl Head {
    /// σ of a row that holds NaN or an infinity: its packets decode to NaN.
    pub(crate) const NOT_FINITE: Self = Self { sigma: f32::NAN, kappa: 0, peak: 0 };

    /// Of coordinates that have no moments.
    pub(crate) const NONE: Self = Self { sigma: 0.0, ..Self::NOT_FINITE };

    /// Whether the packet belongs to a row that holds NaN or an infinity.
    pub(crate) fn is_not_finite(self) -> bool {
        self.sigma.is_nan()
    }

    /// From the moments of `n` working values, which are `unit` times the values themselves; and what multiplies working values into
    /// zone widths. `None` when σ is beyond f32.
    #[inline(always)]
    pub(crate) fn of(moments: &Moments, n: usize, unit: f64) -> Option<(Self, f32)> {
        let sigma = ((f64::from(moments.squares) / n as f64).sqrt() / unit) as f32;
        // A σ that underflows is rounded up instead: 0 means that all coordinates are zero.
        let sigma = if sigma == 0.0 && moments.squares > 0.0 { f32::from_bits(1) } else { sigma };
        if !sigma.is_finite() {
            return None;
        }
        // The receiver scales by the σ on the wire, so the encoder divides by that one, rounding included.
        let inverse = if sigma > 0.0 { (1.0 / (f64::from(sigma) * unit * ZONE)) as f32 } else { 0.0 };
        let mean = f64::from(moments.magnitudes) / n as f64 * f64::from(inverse) * ZONE;
        let head = Self {
            sigma,
            kappa: (255.0 * mean).round().min(255.0) as u8,
            peak: quantiser::peak_byte(moments.largest * inverse * ZONE as f32),
        };
        Some((head, inverse))
    }
}
