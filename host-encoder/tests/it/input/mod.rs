// SPDX-License-Identifier: Apache-2.0
//! Coordinates that tests encode: functions of a seed, the same on every machine.

use trimwire_encoder::rotate::philox::philox4x32;

/// Uniform numbers in (0, 1) from a counter.
pub(crate) fn uniform(seed: u32, index: u32) -> f64 {
    (f64::from(philox4x32([index, 0, 0, 0], [seed, 99])[0]) + 0.5) / 4_294_967_296.0
}

/// Gaussian coordinates by Box and Muller.
pub(crate) fn gaussian(length: usize, seed: u32) -> Vec<f32> {
    (0..length as u32)
        .map(|i| {
            let (u, v) = (uniform(seed, 2 * i), uniform(seed, 2 * i + 1));
            ((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()) as f32
        })
        .collect()
}
