// SPDX-License-Identifier: Apache-2.0
//! The three numbers about a packet's coordinates that its header carries.

use super::moments::Moments;
use super::quantiser::{self, ZONE};
use crate::wire::{Header, SIGMA_UNSENT};

/// σ, κ and peak as they go on the wire, and the header's bits of zero blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Statistics {
    pub(crate) sigma: f32,
    pub(crate) kappa: u8,
    pub(crate) peak: u8,
    pub(crate) zeros: u16,
}

impl From<&Header> for Statistics {
    fn from(header: &Header) -> Self {
        Self { sigma: header.sigma, kappa: header.kappa, peak: header.peak, zeros: header.zeros }
    }
}

impl PartialEq for Statistics {
    /// NaN, which marks rows, equals itself.
    fn eq(&self, other: &Self) -> bool {
        let bits = |of: &Self| (of.sigma.to_bits(), of.kappa, of.peak, of.zeros);
        bits(self) == bits(other)
    }
}

impl Statistics {
    /// σ of a row that holds NaN or an infinity, or is beyond f32: its packets decode to NaN.
    pub(crate) const NOT_FINITE: Self = Self { sigma: f32::NAN, kappa: 0, peak: 0, zeros: 0 };

    /// Of coordinates that have no moments.
    pub(crate) const NONE: Self = Self { sigma: 0.0, ..Self::NOT_FINITE };

    /// Whether the packet belongs to a row that holds NaN or an infinity.
    pub(crate) fn is_not_finite(self) -> bool {
        self.sigma.is_nan()
    }
}

/// σ with as many bits of fraction as are sent: to nearest, ties to even; infinite where that is
/// beyond f32.
#[inline(always)]
fn to_wire(sigma: f32) -> f32 {
    let (bits, half) = (sigma.to_bits(), (1 << (SIGMA_UNSENT - 1)) - 1);
    let rounded = bits.wrapping_add(half + (bits >> SIGMA_UNSENT & 1)) >> SIGMA_UNSENT << SIGMA_UNSENT;
    if sigma.is_finite() { f32::from_bits(rounded) } else { sigma }
}

/// The statistics of eight packets, worked out together: divisions and roots take long, but not
/// each other's time.
pub(crate) struct EightStatistics {
    sigma: [f32; Self::LEN],
    kappa: [u8; Self::LEN],
    peak: [u8; Self::LEN],
    inverse: [f32; Self::LEN],
}

impl EightStatistics {
    /// Packets that are worked on together. Their coordinates stay in the first-level cache
    /// meanwhile.
    pub(crate) const LEN: usize = 8;

    /// Nobody's.
    pub(crate) const fn new() -> Self {
        Self {
            sigma: [0.0; Self::LEN],
            kappa: [0; Self::LEN],
            peak: [0; Self::LEN],
            inverse: [0.0; Self::LEN],
        }
    }

    /// From how many working values the packets have, and their moments. Working values are `unit`
    /// times the values themselves. Column by column, so that divisions and roots are of vectors.
    #[inline(always)]
    pub(crate) fn of(sums: &[(usize, Moments); Self::LEN], unit: f64) -> Self {
        let mut all = Self::new();
        let (mut n, mut squares, mut magnitudes) = ([1.0; Self::LEN], [0.0; Self::LEN], [0.0; Self::LEN]);
        let mut largest = [0.0; Self::LEN];
        for (i, (length, moments)) in sums.iter().enumerate() {
            n[i] = f64::from(*length as u32);
            squares[i] = f64::from(moments.squares);
            magnitudes[i] = f64::from(moments.magnitudes);
            largest[i] = moments.largest;
        }
        for i in 0..Self::LEN {
            let sigma = to_wire(((squares[i] / n[i]).sqrt() / unit) as f32);
            // A σ that underflows is rounded up instead: 0 means that all coordinates are zero.
            let least = f32::from_bits(1 << SIGMA_UNSENT);
            all.sigma[i] = if sigma == 0.0 && squares[i] > 0.0 { least } else { sigma };
        }
        for i in 0..Self::LEN {
            // The receiver scales by the σ on the wire, so the encoder divides by that one,
            // rounding included.
            let exact = (1.0 / (f64::from(all.sigma[i]) * unit * ZONE)) as f32;
            all.inverse[i] = if all.sigma[i] > 0.0 { exact } else { 0.0 };
        }
        for i in 0..Self::LEN {
            let mean = magnitudes[i] / n[i] * f64::from(all.inverse[i]) * ZONE;
            // Rounded: the largest f64 below 1/2, so that no sum is rounded up to a whole number
            // that it does not reach.
            all.kappa[i] = (255.0 * mean + 0.499_999_999_999_999_94) as u8;
        }
        for (i, largest) in largest.into_iter().enumerate() {
            all.peak[i] = quantiser::peak_byte(largest * all.inverse[i] * ZONE as f32);
        }
        all
    }

    /// A packet's statistics, and what multiplies working values into zone widths. `None` where σ
    /// is beyond f32.
    #[inline]
    pub(crate) fn get(&self, packet: usize) -> Option<(Statistics, f32)> {
        let Self { sigma, kappa, peak, inverse } = self;
        let statistics =
            Statistics { sigma: sigma[packet], kappa: kappa[packet], peak: peak[packet], zeros: 0 };
        statistics.sigma.is_finite().then_some((statistics, inverse[packet]))
    }
}
