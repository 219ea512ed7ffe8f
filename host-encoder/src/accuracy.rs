// SPDX-License-Identifier: Apache-2.0
//! How large the error is, measured and in closed form.

use crate::decode::decoding::Decoding;
use crate::quantise::quantiser::distortion;
use crate::wire::Codec;
use std::f64::consts::FRAC_2_PI;

/// ‖got − exact‖² / ‖exact‖²; 0 when both are zero.
pub fn nmse(got: &[f32], exact: &[f32]) -> f64 {
    let (mut error, mut energy) = (0.0, 0.0);
    for (g, e) in got.iter().zip(exact) {
        error += (f64::from(*g) - f64::from(*e)).powi(2);
        energy += f64::from(*e).powi(2);
    }
    if error == 0.0 { 0.0 } else { error / energy }
}

/// Expected NMSE of Gaussian input of which share `p` of the coordinates arrived with `b` planes,
/// for each `(b, p)`; what the shares leave to 1 arrived whole. Which packets were hit is
/// independent of what is in them.
pub fn expected_nmse(codec: Codec, decoding: Decoding, shares: &[(u8, f64)]) -> f64 {
    let lost: f64 = shares.iter().map(|(planes, p)| p * distortion_of(codec, decoding, *planes)).sum();
    let scaled = codec.rotates() && decoding == Decoding::Unbiased;
    if scaled { 1.0 / (1.0 - lost) - 1.0 } else { lost }
}

/// Error of a coordinate of N(0, 1) of which `planes` planes arrived, before λ.
fn distortion_of(codec: Codec, decoding: Decoding, planes: u8) -> f64 {
    match (planes, decoding) {
        (0, _) => 1.0,
        _ if planes >= codec.planes() => 0.0,
        (_, Decoding::Paper) => by_sign(1.0 / FRAC_2_PI.sqrt()),
        _ => distortion(planes),
    }
}

/// Error of a coordinate of N(0, 1) for which ±m stands: m² − 2 m E|x| + 1, with E|x| = √(2/π).
pub(crate) fn by_sign(m: f64) -> f64 {
    m * m - 2.0 * m * FRAC_2_PI.sqrt() + 1.0
}
