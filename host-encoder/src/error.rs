//! How large the error is, measured and in closed form.

use crate::decoder::Decoding;
use crate::packet::PLANES;
use crate::quantiser::distortion;

/// ‖got − exact‖² / ‖exact‖²; 0 when both are zero.
pub fn nmse(got: &[f32], exact: &[f32]) -> f64 {
    let (mut error, mut energy) = (0.0, 0.0);
    for (g, e) in got.iter().zip(exact) {
        error += (f64::from(*g) - f64::from(*e)).powi(2);
        energy += f64::from(*e).powi(2);
    }
    if error == 0.0 { 0.0 } else { error / energy }
}

/// Expected NMSE of a row of which share `p` of the coordinates arrived with `b` planes, for each `(b, p)`; what the
/// shares leave to 1 arrived whole. Gaussian rows, independent of which packets were hit (DESIGN §4).
pub fn expected_nmse(decoding: Decoding, shares: &[(u8, f64)]) -> f64 {
    let lost: f64 = shares.iter().map(|&(planes, p)| p * distortion(planes)).sum();
    match decoding {
        Decoding::Unbiased => 1.0 / (1.0 - lost) - 1.0,
        Decoding::Mmse => lost,
        // f · sign on a cut coordinate errs by f² − 2 f E|r| + 1 with f = 1 / E|r|: π/2 − 1.
        Decoding::Paper => shares
            .iter()
            .map(|&(planes, p)| match planes {
                0 => p,
                1..PLANES => p * (std::f64::consts::FRAC_PI_2 - 1.0),
                _ => 0.0,
            })
            .sum(),
    }
}
