// SPDX-License-Identifier: Apache-2.0
//! The random signs of a row: one bit a coordinate, from Philox.

use super::RotationKey;
use crate::simd::{Isa, Kernel, Lanes, Planes};

/// The Philox words of a row: word w of block b is `words[4 · b + w]`. `words` is resized to
/// `count`, a multiple of four rounded up; `tag` separates uses of the same row from each other.
pub(crate) fn philox_words(
    isa: Isa,
    key: RotationKey,
    row: u32,
    tag: u32,
    count: usize,
    words: &mut Vec<u32>,
) {
    words.resize(count.next_multiple_of(4), 0);
    isa.run(Words {
        seed: [key.job_seed as u32, (key.job_seed >> 32) as u32],
        counter: [row, key.message, u32::from(key.rank) | tag],
        out: words,
    });
}

struct Words<'a> {
    seed: [u32; 2],
    counter: [u32; 3],
    out: &'a mut [u32],
}

impl Kernel for Words<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Planes>(self, lanes: L) {
        const COUNT: [u32; 16] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
        let ramp = {
            let mut block = [0; crate::wire::BLOCK];
            block[..16].copy_from_slice(&COUNT);
            lanes.load_words(&block, 0)
        };
        let [row, message, rank] = self.counter;
        for (group, words) in self.out.chunks_mut(4 * L::N).enumerate() {
            let blocks = lanes.add_u(ramp, lanes.splat_u((group * L::N) as u32));
            let counter = [blocks, lanes.splat_u(row), lanes.splat_u(message), lanes.splat_u(rank)];
            let out = rounds(lanes, counter, self.seed);
            let mut columns = [[0; 16]; 4];
            for (v, column) in out.into_iter().zip(&mut columns) {
                lanes.to_array(v, column);
            }
            let [a, b, c, d] = &columns;
            for (i, block) in words.as_chunks_mut::<4>().0.iter_mut().enumerate().take(16) {
                *block = [a[i], b[i], c[i], d[i]];
            }
        }
    }
}

/// [`super::philox::philox4x32`] on as many counters as there are lanes.
#[inline(always)]
fn rounds<L: Lanes>(lanes: L, mut counter: [L::U; 4], mut key: [u32; 2]) -> [L::U; 4] {
    use super::philox::{MULTIPLIERS, ROUNDS, WEYL};
    let multipliers = MULTIPLIERS.map(|m| lanes.splat_u(m));
    for _ in 0..ROUNDS {
        let (high_0, low_0) = lanes.mul_wide(multipliers[0], counter[0]);
        let (high_1, low_1) = lanes.mul_wide(multipliers[1], counter[2]);
        counter = [
            lanes.xor(lanes.xor(high_1, counter[1]), lanes.splat_u(key[0])),
            low_1,
            lanes.xor(lanes.xor(high_0, counter[3]), lanes.splat_u(key[1])),
            low_0,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rotate::philox::philox4x32;

    #[test]
    fn lanes_give_the_words_of_the_scalar_generator() {
        let key = RotationKey { job_seed: 0x0123_4567_89ab_cdef, message: 7, rank: 3 };
        for isa in Isa::available() {
            for count in [4, 5, 31, 64, 100, 1024] {
                let mut words = Vec::new();
                philox_words(isa, key, 9, 1 << 16, count, &mut words);
                for (block, got) in words.as_chunks::<4>().0.iter().enumerate() {
                    let counter = [block as u32, 9, 7, 3 | 1 << 16];
                    assert_eq!(*got, philox4x32(counter, [0x89ab_cdef, 0x0123_4567]), "{isa}, {count}");
                }
            }
        }
    }
}
