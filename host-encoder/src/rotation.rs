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
    /// Comparing with constants vectorises on every machine; shifting each lane by its own count does not.
    const BITS: [u32; 32] = {
        let mut bits = [0; 32];
        let mut i = 0;
        while i < 32 {
            bits[i] = 1 << i;
            i += 1;
        }
        bits
    };
    let seed = [key.job_seed as u32, (key.job_seed >> 32) as u32];
    let (groups, _) = row.as_chunks_mut::<32>();
    for (block, groups) in groups.chunks_mut(4).enumerate() {
        let words = philox4x32([block as u32, row_index, key.message, u32::from(key.rank)], seed);
        for (group, word) in groups.iter_mut().zip(words) {
            for i in 0..32 {
                let sign = if word & BITS[i] == 0 { 0 } else { 1 << 31 };
                group[i] = f32::from_bits(group[i].to_bits() ^ sign);
            }
        }
    }
}

fn normalise(row: &mut [f32]) {
    let scale = (1.0 / (row.len() as f64).sqrt()) as f32;
    row.iter_mut().for_each(|c| *c *= scale);
}

/// Coordinates whose levels are finished while they lie in a first-level cache (16 KiB).
const CACHE_BLOCK: usize = 4096;

/// The unnormalised fast Walsh–Hadamard transform, natural order. Additions only, level after level from
/// neighbours outwards: the same bits on every machine.
fn hadamard(row: &mut [f32]) {
    for block in row.chunks_mut(CACHE_BLOCK) {
        let (chunks, _) = block.as_chunks_mut::<16>();
        chunks.iter_mut().for_each(hadamard_16);
        levels(block, 16);
    }
    levels(row, CACHE_BLOCK);
}

/// The levels at distance `half`, 2·`half`, … within the row. Three at a time save passes over memory.
fn levels(row: &mut [f32], mut half: usize) {
    while half < row.len() {
        match row.len() / half {
            2 => {
                level_1(row, half);
                half *= 2;
            }
            4 | 16 => {
                levels_2(row, half);
                half *= 4;
            }
            _ => {
                levels_3(row, half);
                half *= 8;
            }
        }
    }
}

fn level_1(row: &mut [f32], half: usize) {
    for block in row.chunks_exact_mut(half * 2) {
        let (a, b) = block.split_at_mut(half);
        for i in 0..half {
            (a[i], b[i]) = (a[i] + b[i], a[i] - b[i]);
        }
    }
}

fn levels_2(row: &mut [f32], half: usize) {
    for block in row.chunks_exact_mut(half * 4) {
        let (ab, cd) = block.split_at_mut(half * 2);
        let (a, b) = ab.split_at_mut(half);
        let (c, d) = cd.split_at_mut(half);
        // Equal, known lengths: no bounds checks remain in the loop.
        let (b, c, d) = (&mut b[..a.len()], &mut c[..a.len()], &mut d[..a.len()]);
        for i in 0..a.len() {
            [a[i], b[i], c[i], d[i]] = butterflies_4([a[i], b[i], c[i], d[i]]);
        }
    }
}

fn levels_3(row: &mut [f32], half: usize) {
    for block in row.chunks_exact_mut(half * 8) {
        let (abcd, efgh) = block.split_at_mut(half * 4);
        let (ab, cd) = abcd.split_at_mut(half * 2);
        let (ef, gh) = efgh.split_at_mut(half * 2);
        let (a, b) = ab.split_at_mut(half);
        let (c, d) = cd.split_at_mut(half);
        let (e, f) = ef.split_at_mut(half);
        let (g, h) = gh.split_at_mut(half);
        let (b, c, d) = (&mut b[..a.len()], &mut c[..a.len()], &mut d[..a.len()]);
        let (e, f, g, h) = (&mut e[..a.len()], &mut f[..a.len()], &mut g[..a.len()], &mut h[..a.len()]);
        for i in 0..a.len() {
            let low = butterflies_4([a[i], b[i], c[i], d[i]]);
            let high = butterflies_4([e[i], f[i], g[i], h[i]]);
            [a[i], b[i], c[i], d[i]] =
                [low[0] + high[0], low[1] + high[1], low[2] + high[2], low[3] + high[3]];
            [e[i], f[i], g[i], h[i]] =
                [low[0] - high[0], low[1] - high[1], low[2] - high[2], low[3] - high[3]];
        }
    }
}

#[inline]
fn butterflies_4([a, b, c, d]: [f32; 4]) -> [f32; 4] {
    let (s0, d0) = (a + b, a - b);
    let (s1, d1) = (c + d, c - d);
    [s0 + s1, d0 + d1, s0 - s1, d0 - d1]
}

#[inline]
fn hadamard_16(chunk: &mut [f32; 16]) {
    // Rows of four: the levels between rows are plain vector additions; those within rows become so by transposing.
    let mut rows = [[0.0; 4]; 4];
    for i in 0..4 {
        for j in 0..4 {
            rows[j][i] = chunk[4 * i + j];
        }
    }
    rows = vertical(rows);
    let mut turned = [[0.0; 4]; 4];
    for i in 0..4 {
        for j in 0..4 {
            turned[i][j] = rows[j][i];
        }
    }
    let turned = vertical(turned);
    for i in 0..16 {
        chunk[i] = turned[i / 4][i % 4];
    }
}

/// Both levels between four rows.
#[inline]
fn vertical(rows: [[f32; 4]; 4]) -> [[f32; 4]; 4] {
    let mut out = [[0.0; 4]; 4];
    for i in 0..4 {
        let column = butterflies_4([rows[0][i], rows[1][i], rows[2][i], rows[3][i]]);
        for (row, value) in out.iter_mut().zip(column) {
            row[i] = value;
        }
    }
    out
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
