// SPDX-License-Identifier: Apache-2.0
//! Gradients to measure on: drawn from a distribution, or named by a file.

use clap::ValueEnum;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use std::convert::Infallible;
use std::f32::consts::TAU;
use std::path::PathBuf;
use std::str::FromStr;
use trimwire_encoder::{Layout, bf16, f16};

/// Where coordinates come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Distribution {
    /// N(0, 1).
    Gaussian,
    /// ±exp(N(0, 1)): magnitudes over orders of magnitude.
    Lognormal,
    /// Student's t with three degrees of freedom: heavy tails.
    StudentT,
    /// One coordinate in a hundred is N(0, 1), the others are zero.
    Sparse,
    /// One coordinate of every row is 1, the others are zero.
    OneSpike,
    /// A file, or `-` for stdin.
    File(PathBuf),
}

/// Names on the command line; everything else is a file.
const NAMES: [(&str, Distribution); 5] = [
    ("gaussian", Distribution::Gaussian),
    ("lognormal", Distribution::Lognormal),
    ("student-t", Distribution::StudentT),
    ("sparse", Distribution::Sparse),
    ("one-spike", Distribution::OneSpike),
];

/// Number format that a gradient is encoded from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Dtype {
    /// 32-bit IEEE 754.
    F32,
    /// 16-bit IEEE 754.
    F16,
    /// The upper half of an f32.
    Bf16,
}

impl FromStr for Distribution {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        let named = NAMES.iter().find(|(name, _)| *name == text);
        Ok(named.map_or_else(|| Self::File(text.into()), |(_, distribution)| distribution.clone()))
    }
}

impl std::fmt::Display for Distribution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Self::File(path) = self {
            return path.display().fmt(f);
        }
        let named = NAMES.iter().find(|(_, distribution)| distribution == self);
        f.write_str(named.map_or("", |(name, _)| name))
    }
}

impl Dtype {
    /// Its name on command lines.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }

    /// Bytes of a number.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// Rounds to what the format can hold.
    pub(crate) fn round(self, values: &mut [f32]) {
        match self {
            Self::F32 => {}
            Self::F16 => values.iter_mut().for_each(|v| *v = f16::from_f32(*v).to_f32()),
            Self::Bf16 => values.iter_mut().for_each(|v| *v = bf16::from_f32(*v).to_f32()),
        }
    }
}

impl Distribution {
    /// The names that are no files, as error messages list them.
    pub(crate) fn names() -> String {
        NAMES.map(|(name, _)| name).join(", ")
    }

    /// Draws a message. The same seed gives the same numbers; of files there are none.
    pub(crate) fn draw(&self, seed: u64, layout: &Layout) -> Vec<f32> {
        let (mut rng, count) = (ChaCha8Rng::seed_from_u64(seed), layout.coordinates());
        match self {
            Self::Gaussian => gaussians(&mut rng, count),
            Self::Lognormal => {
                let magnitudes = gaussians(&mut rng, count);
                magnitudes.into_iter().map(|m| if rng.random() { m.exp() } else { -m.exp() }).collect()
            }
            Self::StudentT => {
                let [a, b, c] = [(); 3].map(|()| gaussians(&mut rng, count));
                let z = gaussians(&mut rng, count);
                let chi = a.iter().zip(&b).zip(&c).map(|((a, b), c)| a * a + b * b + c * c);
                z.iter().zip(chi).map(|(z, chi)| z / (chi / 3.0).max(f32::MIN_POSITIVE).sqrt()).collect()
            }
            Self::Sparse => {
                let values = gaussians(&mut rng, count);
                values.into_iter().map(|v| if rng.random::<f32>() < 0.01 { v } else { 0.0 }).collect()
            }
            Self::OneSpike => {
                let mut values = vec![0.0; count];
                for row in 0..layout.rows() {
                    values[rng.random_range(layout.row_coordinates(row))] = 1.0;
                }
                values
            }
            Self::File(_) => Vec::new(),
        }
    }
}

/// Draws from N(0, 1): Box and Muller's two for the price of two.
fn gaussians(rng: &mut ChaCha8Rng, count: usize) -> Vec<f32> {
    let mut values = Vec::with_capacity(count + 1);
    while values.len() < count {
        // In (0, 1], so that the logarithm is finite.
        let radius = (-2.0 * (1.0 - rng.random::<f32>()).ln()).sqrt();
        let (sin, cos) = (TAU * rng.random::<f32>()).sin_cos();
        values.extend([radius * cos, radius * sin]);
    }
    values.truncate(count);
    values
}
