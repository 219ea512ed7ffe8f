//! The randomised Hadamard transform R(V) = H·D·V / √d of a row (DESIGN §4).

use crate::philox::philox4x32;

/// What the random signs of a message depend on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RotationKey {
    /// Seed that all ranks of a job share.
    pub job_seed: u64,
    /// The message.
    pub message: u32,
    /// The encoding rank for independent rotations, 0 for a shared one.
    pub rank: u16,
}

/// Rotates a row in place. Its length is a power of two of at least 32.
pub fn forward(row: &mut [f32], key: RotationKey, row_index: u32) {
    flip_signs(row, key, row_index);
    hadamard(row);
    normalise(row);
}

/// Undoes [`forward`]: H and D are their own inverses up to the factor 1/d.
pub fn inverse(row: &mut [f32], key: RotationKey, row_index: u32) {
    hadamard(row);
    normalise(row);
    flip_signs(row, key, row_index);
}

/// Multiplies coordinate 128·b + 32·w + i by −1 where bit i of word w of Philox block b is set.
fn flip_signs(row: &mut [f32], key: RotationKey, row_index: u32) {
    let seed = [key.job_seed as u32, (key.job_seed >> 32) as u32];
    for (block, coordinates) in row.chunks_mut(128).enumerate() {
        let words = philox4x32([block as u32, row_index, key.message, u32::from(key.rank)], seed);
        for (coordinates, word) in coordinates.chunks_mut(32).zip(words) {
            for (i, c) in coordinates.iter_mut().enumerate() {
                *c = f32::from_bits(c.to_bits() ^ (word >> i & 1) << 31);
            }
        }
    }
}

fn normalise(row: &mut [f32]) {
    let scale = (1.0 / (row.len() as f64).sqrt()) as f32;
    row.iter_mut().for_each(|c| *c *= scale);
}

/// The unnormalised fast Walsh–Hadamard transform, natural order. Additions only, in an order fixed by
/// the length: the same bits on every machine.
fn hadamard(row: &mut [f32]) {
    for chunk in row.chunks_exact_mut(16) {
        hadamard_16(chunk);
    }
    let mut half = 16;
    // Two levels at a time halve the passes over memory.
    while half * 4 <= row.len() {
        for block in row.chunks_exact_mut(half * 4) {
            let (ab, cd) = block.split_at_mut(half * 2);
            let (a, b) = ab.split_at_mut(half);
            let (c, d) = cd.split_at_mut(half);
            for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
                let (s0, d0) = (*a + *b, *a - *b);
                let (s1, d1) = (*c + *d, *c - *d);
                (*a, *b, *c, *d) = (s0 + s1, d0 + d1, s0 - s1, d0 - d1);
            }
        }
        half *= 4;
    }
    if half * 2 <= row.len() {
        let (a, b) = row.split_at_mut(half);
        for (a, b) in a.iter_mut().zip(b) {
            (*a, *b) = (*a + *b, *a - *b);
        }
    }
}

fn hadamard_16(chunk: &mut [f32]) {
    for half in [1, 2, 4, 8] {
        for start in (0..16).step_by(half * 2) {
            for i in start..start + half {
                let (a, b) = (chunk[i], chunk[i + half]);
                chunk[i] = a + b;
                chunk[i + half] = a - b;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: RotationKey = RotationKey { job_seed: 0x0123_4567_89ab_cdef, message: 7, rank: 3 };

    fn ramp(length: usize) -> Vec<f32> {
        (0..length).map(|i| ((i * 2_654_435_761) % 1000) as f32 / 500.0 - 1.0).collect()
    }

    #[test]
    fn the_transform_is_the_matrix_of_bit_parities() {
        for log2 in 5..=9 {
            let row = ramp(1 << log2);
            let mut fast = row.clone();
            hadamard(&mut fast);
            for (i, got) in fast.iter().enumerate() {
                let slow: f64 = row
                    .iter()
                    .enumerate()
                    .map(|(j, v)| if (i & j).count_ones() % 2 == 0 { f64::from(*v) } else { -f64::from(*v) })
                    .sum();
                assert!((f64::from(*got) - slow).abs() < 1e-3, "2^{log2}, coordinate {i}");
            }
        }
    }

    #[test]
    fn the_inverse_gives_the_row_back_and_energy_is_kept() {
        for log2 in 5..=15 {
            let row = ramp(1 << log2);
            let mut rotated = row.clone();
            forward(&mut rotated, KEY, 2);
            let energy = |v: &[f32]| v.iter().map(|c| f64::from(*c).powi(2)).sum::<f64>();
            assert!((energy(&rotated) / energy(&row) - 1.0).abs() < 1e-5);
            inverse(&mut rotated, KEY, 2);
            let error: f64 = rotated.iter().zip(&row).map(|(a, b)| f64::from(a - b).powi(2)).sum();
            assert!(error / energy(&row) < 1e-12);
        }
    }

    #[test]
    fn another_rank_message_or_row_has_other_signs() {
        let signs = |key, row_index| {
            let mut row = vec![1.0f32; 256];
            flip_signs(&mut row, key, row_index);
            row
        };
        let base = signs(KEY, 0);
        for other in [
            signs(RotationKey { rank: 4, ..KEY }, 0),
            signs(RotationKey { message: 8, ..KEY }, 0),
            signs(RotationKey { job_seed: 1, ..KEY }, 0),
            signs(KEY, 1),
        ] {
            let equal = base.iter().zip(&other).filter(|(a, b)| a == b).count();
            assert!((64..192).contains(&equal), "{equal} of 256 signs agree");
        }
    }
}
