//! Normalised mean squared error: measured, and the closed forms that the decoder promises (DESIGN §4).

use crate::codec::Decoding;

/// ‖a − b‖² / ‖a‖², `a` being the truth. Zero for two zero vectors, infinite where only the truth is zero.
///
/// Coordinates beyond the shorter slice count as zero in it.
pub fn nmse(truth: &[f32], estimate: &[f32]) -> f64 {
    let _ = (truth, estimate);
    todo!()
}

/// NMSE that a decoder of rotated, hence Gaussian, coordinates has when `shares` of them, `(share, planes)` with shares summing to
/// at most 1 (the rest is missing), arrived with so many whole planes.
pub fn expected_nmse(decoding: Decoding, shares: &[(f64, u8)]) -> f64 {
    let _ = (decoding, shares);
    todo!()
}
