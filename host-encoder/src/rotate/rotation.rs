// SPDX-License-Identifier: Apache-2.0
//! Rotations of a row: random signs, then the transform.

use super::RotationKey;
use super::hadamard;
use super::key::Job;
use super::signs::philox_words;
use crate::simd::{Isa, Kernel, Lanes, Planes};
use crate::wire::Envelope;

/// Keeps the words of a second rotation's signs apart from the others of a row: ranks have ten
/// bits.
const SECOND: u32 = 1 << 17;

/// Rotates a row of a message once, in place: H·S·x / √d. Its length is a power of two of at least
/// 32.
pub fn forward(isa: Isa, row: &mut [f32], job: Job, envelope: Envelope, row_index: u32) {
    let mut signs = Vec::new();
    signs_of(isa, job.key(envelope), row_index, row.len(), &mut signs);
    flip_row(isa, row, &signs);
    hadamard::hadamard(isa, row);
    normalise(row);
}

/// Undoes [`forward`]: H and D are their own inverses up to the factor 1/d.
pub fn inverse(isa: Isa, row: &mut [f32], job: Job, envelope: Envelope, row_index: u32) {
    hadamard::hadamard(isa, row);
    normalise(row);
    let mut signs = Vec::new();
    signs_of(isa, job.key(envelope), row_index, row.len(), &mut signs);
    flip_row(isa, row, &signs);
}

/// The unnormalised Walsh–Hadamard transform, natural order, in place. The length is a power of
/// two; others are left alone.
pub fn transform(isa: Isa, row: &mut [f32]) {
    hadamard::hadamard(isa, row);
}

fn normalise(row: &mut [f32]) {
    let scale = (1.0 / (row.len() as f64).sqrt()) as f32;
    row.iter_mut().for_each(|c| *c *= scale);
}

/// A row's signs: coordinate 32·w + i is negated where bit i of word w is set.
pub(crate) fn signs_of(isa: Isa, key: RotationKey, row: u32, length: usize, signs: &mut Vec<u32>) {
    philox_words(isa, key, row, 0, length / 32, signs);
}

/// The signs of a row's second rotation, likewise.
pub(crate) fn second_signs_of(isa: Isa, key: RotationKey, row: u32, length: usize, signs: &mut Vec<u32>) {
    philox_words(isa, key, row, SECOND, length / 32, signs);
}

/// Flips a row's signs in place.
pub(crate) fn flip_row(isa: Isa, row: &mut [f32], signs: &[u32]) {
    isa.run(Flip { row, signs });
}

struct Flip<'a> {
    row: &'a mut [f32],
    signs: &'a [u32],
}

impl Kernel for Flip<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Planes>(self, lanes: L) {
        flip(lanes, self.row, self.signs);
    }
}

/// [`flip_row`], for kernels that have more to do with the row.
#[inline(always)]
pub(crate) fn flip<L: Lanes>(lanes: L, row: &mut [f32], signs: &[u32]) {
    for (block, word) in row.as_chunks_mut::<32>().0.iter_mut().zip(signs) {
        for (at, line) in L::lines_mut(block).iter_mut().enumerate() {
            let v = lanes.load(line);
            lanes.store(line, lanes.flip(v, *word, at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::wire::StreamId;

    const KEY: RotationKey = RotationKey { job_seed: 0x0123_4567_89ab_cdef, message: 7, rank: 3 };

    fn ramp(length: usize) -> Vec<f32> {
        (0..length).map(|i| ((i * 2_654_435_761) % 1000) as f32 / 500.0 - 1.0).collect()
    }

    #[test]
    fn the_inverse_gives_the_row_back_and_energy_is_kept() {
        for isa in Isa::available() {
            for log2 in 5..=15 {
                let row = ramp(1 << log2);
                let mut rotated = row.clone();
                let job = Job::new(KEY.job_seed);
                let envelope = Envelope { stream: StreamId::new(0, 3).unwrap(), message: 7 };
                forward(isa, &mut rotated, job, envelope, 2);
                let energy = |v: &[f32]| v.iter().map(|c| f64::from(*c).powi(2)).sum::<f64>();
                assert!((energy(&rotated) / energy(&row) - 1.0).abs() < 1e-5);
                inverse(isa, &mut rotated, job, envelope, 2);
                let error: f64 = rotated.iter().zip(&row).map(|(a, b)| f64::from(a - b).powi(2)).sum();
                assert!(error / energy(&row) < 1e-12);
            }
        }
    }

    #[test]
    fn another_rank_message_or_row_has_other_signs() {
        let signs = |key, row_index| {
            let mut signs = Vec::new();
            signs_of(Isa::PORTABLE, key, row_index, 256, &mut signs);
            signs
        };
        let base = signs(KEY, 0);
        for other in [
            signs(RotationKey { rank: 4, ..KEY }, 0),
            signs(RotationKey { message: 8, ..KEY }, 0),
            signs(RotationKey { job_seed: 1, ..KEY }, 0),
            signs(KEY, 1),
        ] {
            let differ: u32 = base.iter().zip(&other).map(|(a, b)| (a ^ b).count_ones()).sum();
            assert!((64..192).contains(&differ), "{differ} of 256 signs differ");
        }
    }
}
