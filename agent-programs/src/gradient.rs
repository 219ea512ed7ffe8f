// SPDX-License-Identifier: Apache-2.0
//! The gradients that tests move: seeded Gaussian ones, which every rank can work out.

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
}
