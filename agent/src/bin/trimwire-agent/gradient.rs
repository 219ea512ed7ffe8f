// SPDX-License-Identifier: Apache-2.0
//! The gradients that tests move: seeded Gaussian ones, which every rank can work out, or a file's.

use crate::units::{bytes, time_ns};
use crate::{Failure, bad_input};
use anyhow::{Context, bail};
use clap::Args;
use std::path::{Path, PathBuf};

/// What is sent.
#[derive(Args)]
pub(crate) struct GradientArgs {
    /// Send gradients of this many bytes: seeded N(0, 1) coordinates of four bytes each.
    #[arg(short = 'n', long, default_value = "4M", value_parser = bytes)]
    pub(crate) bytes: u64,
    /// Send this file instead: .npy of float32, or little-endian f32.
    #[arg(long, value_name = "FILE", conflicts_with = "bytes")]
    pub(crate) file: Option<PathBuf>,
    /// Send this many gradients, one after the other.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) messages: u32,
    /// Send gradients for this long instead, and finish the last one.
    #[arg(short = 't', long, value_parser = time_ns, value_name = "TIME", conflicts_with = "messages")]
    pub(crate) time: Option<u64>,
}

impl GradientArgs {
    /// How many there will be; `None`: until the time is over.
    pub(crate) fn messages(&self) -> Option<u32> {
        self.time.is_none().then_some(self.messages)
    }

    /// The file's gradient, and the number of coordinates.
    pub(crate) fn load(&self) -> Result<(Option<Vec<f32>>, usize), Failure> {
        match &self.file {
            Some(path) => {
                let values = from_file(path).map_err(bad_input)?;
                let count = values.len();
                Ok((Some(values), count))
            }
            None => Ok((None, (self.bytes as usize / 4).max(1))),
        }
    }
}

/// SplitMix64.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// N(0, 1) coordinates (Box–Muller), the same on every host for the same seed, rank and message.
pub(crate) fn gaussian(coordinates: usize, seed: u64, rank: u16, message: u32) -> Vec<f32> {
    let mut state = seed ^ u64::from(rank) << 48 ^ u64::from(message) << 8;
    state = next(&mut state);
    // (0, 1]: the logarithm of 0 is not finite.
    let mut uniform = || ((next(&mut state) >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    let mut out = Vec::with_capacity(coordinates + 1);
    while out.len() < coordinates {
        let radius = (-2.0 * uniform().ln()).sqrt();
        let (sine, cosine) = (std::f64::consts::TAU * uniform()).sin_cos();
        out.extend([(radius * cosine) as f32, (radius * sine) as f32]);
    }
    out.truncate(coordinates);
    out
}

/// The little-endian f32s of a file, which may be a .npy.
pub(crate) fn from_file(path: &Path) -> anyhow::Result<Vec<f32>> {
    let name = path.display();
    let file = std::fs::read(path).with_context(|| format!("cannot read {name}"))?;
    let bytes = crate::npy::data(&file).with_context(|| name.to_string())?.unwrap_or(&file);
    let (words, rest) = bytes.as_chunks::<4>();
    if words.is_empty() || !rest.is_empty() {
        bail!("{name}: {} bytes are no gradient (a positive multiple of 4: little-endian f32)", bytes.len());
    }
    let values: Vec<f32> = words.iter().map(|&word| f32::from_le_bytes(word)).collect();
    if let Some(at) = values.iter().position(|value| !value.is_finite()) {
        bail!("{name}: coordinate {at} is {}; gradients are finite", values[at]);
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaussian_has_the_moments_of_one_and_differs_by_rank_and_message() {
        let x = gaussian(100_000, 1, 0, 0);
        let mean = x.iter().map(|&v| f64::from(v)).sum::<f64>() / 1e5;
        let second = x.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / 1e5;
        let fourth = x.iter().map(|&v| f64::from(v).powi(4)).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.02 && (second - 1.0).abs() < 0.03 && (fourth - 3.0).abs() < 0.15);
        assert_ne!(x[..8], gaussian(8, 1, 1, 0)[..]);
        assert_ne!(x[..8], gaussian(8, 1, 0, 1)[..]);
        assert_eq!(x[..7], gaussian(7, 1, 0, 0)[..]);
    }

    #[test]
    fn a_file_that_is_no_gradient_is_refused_with_its_name() {
        let path = std::env::temp_dir().join(format!("trimwire-gradient-{}", std::process::id()));
        let error = |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("writes");
            from_file(&path).expect_err("bad").to_string()
        };
        assert!(error(&[1, 2, 3]).contains("3 bytes"));
        assert!(error(&[]).contains("0 bytes"));
        assert!(error(&f32::NAN.to_le_bytes()).contains("coordinate 0"));
        std::fs::write(&path, 1.5_f32.to_le_bytes()).expect("writes");
        assert_eq!(from_file(&path).expect("good"), [1.5]);
        std::fs::remove_file(&path).expect("removes");
    }
}
