// SPDX-License-Identifier: Apache-2.0
//! The scales of a row that follow from what arrived of it (docs/reference/wire-format.md §8).

use super::precision::Precision;
use crate::quantise::quantiser;
use crate::quantise::statistics::Statistics;

/// Largest λ, and f in units of the largest σ. No encoder's packets come near it; headers made up
/// by others must not overflow a row into NaN.
const LARGEST_SCALE: f64 = (1u64 << 30) as f64;

/// Sums over a row from which the two scales follow.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RowWeights {
    /// Coordinates of the row, and of its packets that arrived.
    coordinates: f64,
    arrived: f64,
    /// Σ n σ², and the part of it that survived: Σ n σ² (1 − D_b).
    energy: f64,
    kept: f64,
    /// Σ n σ κ, in 1/255.
    magnitude: f64,
    /// The largest σ.
    largest: f32,
}

/// Whether a packet's magnitudes are nearly alike, as those of a lone spike's row are: then σ is
/// nearer to them than the normal distribution's centroids are.
#[inline]
pub(crate) fn is_flat(kappa: u8, planes: u8) -> bool {
    kappa == u8::MAX && (2..8).contains(&planes)
}

/// Whether trimmed coordinates of rht are ±κσ: with one plane, and with up to five where magnitudes
/// are nearly alike. (Rows that are rotated once have a q of at least 0.995 then, so magnitudes are
/// off by 0.0025 σ² at most, which is D_5.)
#[inline]
pub(crate) fn decodes_by_sign(kappa: u8, planes: u8) -> bool {
    planes == 1 || is_flat(kappa, planes) && planes <= 5
}

/// Whether σ stands for the magnitudes of the cell that it is in: with six planes, and with seven
/// where no magnitude is far from it.
#[inline]
pub(crate) fn sigma_is_its_cell(statistics: Statistics, planes: u8) -> bool {
    is_flat(statistics.kappa, planes) && (planes == 6 || planes == 7 && statistics.peak <= 1)
}

/// 1 − D_1: exact whatever the distribution.
#[inline]
fn kept_by_sign(kappa: u8) -> f64 {
    (f64::from(kappa) / 255.0).powi(2)
}

/// 1 − D_b of a coordinate of rht of which `planes` planes arrived.
#[inline]
fn kept(kappa: u8, planes: u8) -> f64 {
    if planes == 1 || is_flat(kappa, planes) {
        kept_by_sign(kappa)
    } else {
        1.0 - quantiser::distortion(planes)
    }
}

impl RowWeights {
    /// Over no packets yet of a row of `coordinates`.
    pub(crate) fn new(coordinates: usize) -> Self {
        Self { coordinates: coordinates as f64, ..Self::default() }
    }

    /// Adds a packet of `n` coordinates of which something arrived.
    #[inline]
    pub(crate) fn add(&mut self, n: usize, precision: Precision) {
        let Precision { statistics, planes, more, .. } = precision;
        let (n, more) = (n as f64, f64::from(more));
        let sigma = f64::from(statistics.sigma);
        let kept = |planes| kept(statistics.kappa, planes);
        let share = if more > 0.0 { more * kept(planes + 1) } else { 0.0 };
        self.arrived += n;
        self.energy += n * sigma * sigma;
        self.kept += sigma * sigma * (share + (n - more) * kept(planes));
        self.magnitude += n * sigma * f64::from(statistics.kappa);
        self.largest = self.largest.max(statistics.sigma);
    }

    /// The largest σ of the packets that arrived; `None` where none did.
    pub(crate) fn largest(&self) -> Option<f32> {
        (self.arrived > 0.0).then_some(self.largest)
    }

    /// λ = 1 / (1 − Σ p_b D_b). Packets that arrived are weighed by their energy, which makes the
    /// projection on the true row exact; a missing one by the mean of the others, since the
    /// rotation spreads a row's energy evenly.
    pub(crate) fn lambda(&self) -> f64 {
        if self.kept > 0.0 {
            (self.energy * self.coordinates / self.arrived / self.kept).min(LARGEST_SCALE)
        } else {
            0.0
        }
    }

    /// f = ‖V‖² / ‖R(V)‖₁.
    pub(crate) fn paper_scale(&self) -> f64 {
        let limit = LARGEST_SCALE * f64::from(self.largest);
        if self.magnitude > 0.0 { (255.0 * self.energy / self.magnitude).min(limit) } else { 0.0 }
    }
}
