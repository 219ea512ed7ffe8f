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

/// E (x̂ − x)² of N(0, 1) by stochastic quantisation to ±L, L = 2.5: L² − 2 E[x · clip(x)] + 1 with E[x · clip(x)] = erf(L/√2).
const STOCHASTIC: f64 = 6.25 - 2.0 * 0.987_580_669_348_447_7 + 1.0;
/// The same by subtractive dithering: L²/3, and what the clipped tails add, E (|x| − L)²₊.
const DITHERED: f64 = 6.25 / 3.0 + 0.002_398_644_756;

/// Expected NMSE of Gaussian input of which share `p` of the coordinates arrived with `b` planes, for each `(b, p)`; what the
/// shares leave to 1 arrived whole. Which packets were hit is independent of what is in them.
///
/// `None` where there is no closed form: codecs that send f32s, cut within the mantissa.
pub fn expected_nmse(codec: Codec, decoding: Decoding, shares: &[(u8, f64)]) -> Option<f64> {
    let mut lost = 0.0;
    for &(planes, p) in shares {
        lost += p * distortion_of(codec, decoding, planes)?;
    }
    let scaled = codec.rotates() && decoding == Decoding::Unbiased;
    Some(if scaled { 1.0 / (1.0 - lost) - 1.0 } else { lost })
}

/// Error of a coordinate of N(0, 1) of which `planes` planes arrived, before λ.
fn distortion_of(codec: Codec, decoding: Decoding, planes: u8) -> Option<f64> {
    if planes == 0 {
        return Some(1.0);
    }
    if planes >= codec.planes() {
        return Some(0.0);
    }
    // ±m errs by m² − 2 m E|x| + 1; E|x| = √(2/π).
    let by_sign = |m: f64| m * m - 2.0 * m * FRAC_2_PI.sqrt() + 1.0;
    match (codec, decoding) {
        (Codec::Rht, Decoding::Paper) => Some(by_sign(1.0 / FRAC_2_PI.sqrt())),
        (Codec::RhtPaper, Decoding::Paper) if planes <= 8 => Some(by_sign(1.0 / FRAC_2_PI.sqrt())),
        (Codec::Rht, _) => Some(distortion(planes)),
        (Codec::SignMagnitude, Decoding::Paper) if planes <= 8 => Some(by_sign(1.0)),
        (Codec::RhtPaper | Codec::SignMagnitude, _) if planes <= 8 => Some(distortion(1)),
        (Codec::StochasticQuantisation, _) if planes <= 8 => Some(STOCHASTIC),
        (Codec::SubtractiveDithering, _) if planes <= 8 => Some(DITHERED),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// E f(x) of N(0, 1), by the midpoint rule.
    fn expectation(f: impl Fn(f64) -> f64) -> f64 {
        let h = 1e-4;
        (-120_000..120_000)
            .map(|i| {
                let x = (f64::from(i) + 0.5) * h;
                f(x) * (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt() * h
            })
            .sum()
    }

    #[test]
    fn closed_forms_of_the_scalar_codecs_are_their_integrals() {
        let stochastic = expectation(|x| 6.25 - 2.0 * x * x.clamp(-2.5, 2.5) + x * x);
        assert!((stochastic - STOCHASTIC).abs() < 1e-9, "{stochastic}");
        let dithered = expectation(|x| 6.25 / 3.0 + (x.abs() - 2.5).max(0.0).powi(2));
        assert!((dithered - DITHERED).abs() < 1e-9, "{dithered}");
        let sign = expectation(|x| (x.signum() - x).powi(2));
        let closed = expected_nmse(Codec::SignMagnitude, Decoding::Paper, &[(1, 1.0)]);
        assert!((sign - closed.unwrap()).abs() < 1e-6, "{sign}");
    }

    #[test]
    fn what_has_no_closed_form_is_not_made_up() {
        assert_eq!(expected_nmse(Codec::RhtPaper, Decoding::Unbiased, &[(9, 0.5)]), None);
        assert_eq!(expected_nmse(Codec::Raw, Decoding::Unbiased, &[(0, 0.25)]), Some(0.25));
    }
}
