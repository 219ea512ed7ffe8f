// SPDX-License-Identifier: Apache-2.0
//! The unnormalised fast Walsh–Hadamard transform, natural order.
//!
//! Additions only, level after level in a fixed order: the same bits on every machine. The order is
//! that of distances 4, 1, 2, 8, 16, …, because halves of a vector are best taken apart while they
//! are loaded. The first levels are done between the lanes of as many vectors as they have lanes,
//! in registers: six levels of eight lanes, eight of sixteen. The others follow three at a time, or
//! four where there are registers for sixteen vectors. As long as a piece of the row fits a
//! first-level cache all of its levels are done before the next piece is touched.

use crate::simd::{Ahead, Isa, Kernel, Lanes, Planes, each_vector};
use crate::wire::BLOCK;

/// Coordinates whose levels are finished while they lie in a first-level cache (16 KiB).
pub(crate) const CACHE_BLOCK: usize = 4096;

/// Transforms a row in place. Its length is a power of two; other lengths are left alone.
pub(crate) fn hadamard(isa: Isa, row: &mut [f32]) {
    if row.len().is_power_of_two() {
        isa.run(Transform { row });
    }
}

struct Transform<'a> {
    row: &'a mut [f32],
}

impl Kernel for Transform<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Planes>(self, lanes: L) {
        for block in self.row.chunks_mut(CACHE_BLOCK) {
            transform_block(lanes, block, &mut Ahead::none());
        }
        join_blocks(lanes, self.row, &mut Ahead::none());
    }
}

/// Values that go through the first levels together: as many vectors as they have lanes.
#[inline(always)]
pub(crate) const fn group_len<L: Lanes>() -> usize {
    L::N * L::N
}

/// The levels within a piece of [`CACHE_BLOCK`] coordinates (or a shorter row). Kernels that fill a
/// row piece by piece call it while the piece is still in the first-level cache, and
/// [`join_blocks`] in the end. Both ask for memory that comes next.
#[inline(always)]
pub(crate) fn transform_block<L: Lanes>(lanes: L, block: &mut [f32], ahead: &mut Ahead) {
    if block.len() < group_len::<L>() {
        return short(block);
    }
    first_levels(lanes, block, ahead);
    later_levels(lanes, block, ahead);
}

/// Where the last levels of a piece of [`CACHE_BLOCK`] coordinates leave its vectors.
pub(crate) trait Leave<L: Lanes> {
    /// Takes vector `at`, which was loaded from `place`.
    fn leave(&mut self, lanes: L, at: usize, v: L::F, place: &mut L::Line);
}

/// Leaves vectors where they were.
struct InPlace;

impl<L: Lanes> Leave<L> for InPlace {
    #[inline(always)]
    fn leave(&mut self, lanes: L, _: usize, v: L::F, place: &mut L::Line) {
        lanes.store(place, v);
    }
}

/// [`transform_block`] of a piece of [`CACHE_BLOCK`] coordinates with sixteen lanes, the last step
/// of which is the caller's.
#[inline(always)]
pub(crate) fn transform_block_to<L: Lanes>(
    lanes: L,
    block: &mut [f32],
    to: &mut impl Leave<L>,
    ahead: &mut Ahead,
) {
    first_levels(lanes, block, ahead);
    four_levels(lanes, block, to, ahead);
}

/// What two rotations have between them: the levels between a row's pieces, then scale, signs, and
/// levels within pieces.
#[inline(always)]
pub(crate) fn transform_again<L: Lanes>(lanes: L, row: &mut [f32], scale: f32, signs: &[u32]) {
    let by = lanes.splat(scale);
    let words = group_len::<L>() / BLOCK;
    join_blocks(lanes, row, &mut Ahead::none());
    if row.len() < group_len::<L>() {
        for (block, word) in row.as_chunks_mut::<BLOCK>().0.iter_mut().zip(signs) {
            for (at, line) in L::lines_mut(block).iter_mut().enumerate() {
                let v = lanes.mul(lanes.load(line), by);
                lanes.store(line, lanes.flip(v, *word, at));
            }
        }
        return short(row);
    }
    for (group, words) in L::lines_mut(row).chunks_exact_mut(L::N).zip(signs.chunks_exact(words)) {
        enter_again(lanes, group, by, words);
    }
    for block in row.chunks_mut(CACHE_BLOCK) {
        later_levels(lanes, block, &mut Ahead::none());
    }
}

/// Scales and flips a group, and transforms it.
#[inline(always)]
fn enter_again<L: Lanes>(lanes: L, group: &mut [L::Line], by: L::F, words: &[u32]) {
    let per_word = BLOCK / L::N;
    let mut v = [by; 16];
    each_vector!(L, I => {
        let x = lanes.mul(lanes.load(&group[I]), by);
        v[I] = lanes.butterflies(lanes.flip(x, words[I / per_word], I % per_word));
    });
    v = across(lanes, v);
    each_vector!(L, I => {
        lanes.store(&mut group[I], v[I]);
    });
}

/// The levels within a piece beyond those of its groups.
#[inline(always)]
pub(crate) fn later_levels<L: Lanes>(lanes: L, block: &mut [f32], ahead: &mut Ahead) {
    // With sixteen lanes there are registers for sixteen vectors.
    if L::N == 16 && block.len() == CACHE_BLOCK {
        return four_levels(lanes, block, &mut InPlace, ahead);
    }
    levels(lanes, block, group_len::<L>(), ahead);
}

/// The levels between pieces.
#[inline(always)]
pub(crate) fn join_blocks<L: Lanes>(lanes: L, row: &mut [f32], ahead: &mut Ahead) {
    levels(lanes, row, CACHE_BLOCK, ahead);
}

/// Rows shorter than a group.
pub(crate) fn short(row: &mut [f32]) {
    let length = row.len();
    let outwards = (3..usize::BITS).map(|log2| 1 << log2);
    for half in [4, 1, 2]
        .into_iter()
        .chain(outwards)
        .take_while(|half| *half < length.max(5))
        .filter(|half| *half < length)
    {
        for pair in row.chunks_exact_mut(2 * half) {
            let (a, b) = pair.split_at_mut(half);
            for (a, b) in a.iter_mut().zip(b) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
    }
}

/// The levels within groups.
#[inline(always)]
fn first_levels<L: Lanes>(lanes: L, block: &mut [f32], ahead: &mut Ahead) {
    for group in L::lines_mut(block).chunks_exact_mut(L::N) {
        for _ in 0..L::N / 4 {
            ahead.line();
        }
        let mut v = [lanes.splat(0.0); 16];
        each_vector!(L, I => {
            v[I] = lanes.later_butterflies(lanes.load_butterfly_4(&group[I]));
        });
        v = across(lanes, v);
        each_vector!(L, I => {
            lanes.store(&mut group[I], v[I]);
        });
    }
}

/// The levels between as many vectors as they have lanes.
#[inline(always)]
pub(crate) fn across<L: Lanes>(lanes: L, v: [L::F; 16]) -> [L::F; 16] {
    // What happens between lanes keeps the multipliers busy already.
    if L::N == 16 {
        return sixteen::<L, false>(lanes, v);
    }
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = v;
    let [a, b, c, d, e, f, g, h] = eight::<L, false>(lanes, [a, b, c, d, e, f, g, h]);
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
}

/// The levels at distance `half`, 2·`half`, … coordinates within the row.
#[inline(always)]
fn levels<L: Lanes>(lanes: L, row: &mut [f32], half: usize, ahead: &mut Ahead) {
    let lines = L::lines_mut(row);
    let mut half = half / L::N;
    while half < lines.len() {
        match lines.len() / half {
            2 => {
                one_level(lanes, lines, half);
                half *= 2;
            }
            4 | 16 => {
                two_levels(lanes, lines, half);
                half *= 4;
            }
            _ => {
                three_levels(lanes, lines, half, ahead);
                half *= 8;
            }
        }
    }
}

#[inline(always)]
fn one_level<L: Lanes>(lanes: L, lines: &mut [L::Line], half: usize) {
    for pair in lines.chunks_exact_mut(2 * half) {
        let (a, b) = pair.split_at_mut(half);
        for (a, b) in a.iter_mut().zip(b) {
            let (sum, difference) = lanes.butterfly(lanes.load(a), lanes.load(b));
            lanes.store(a, sum);
            lanes.store(b, difference);
        }
    }
}

#[inline(always)]
fn two_levels<L: Lanes>(lanes: L, lines: &mut [L::Line], half: usize) {
    for group in lines.chunks_exact_mut(4 * half) {
        let (ab, cd) = group.split_at_mut(2 * half);
        let (a, b) = ab.split_at_mut(half);
        let (c, d) = cd.split_at_mut(half);
        for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
            let v = four::<L, true>(lanes, [lanes.load(a), lanes.load(b), lanes.load(c), lanes.load(d)]);
            lanes.store(a, v[0]);
            lanes.store(b, v[1]);
            lanes.store(c, v[2]);
            lanes.store(d, v[3]);
        }
    }
}

#[inline(always)]
fn three_levels<L: Lanes>(lanes: L, lines: &mut [L::Line], half: usize, ahead: &mut Ahead) {
    for group in lines.chunks_exact_mut(8 * half) {
        let (abcd, efgh) = group.split_at_mut(4 * half);
        let (ab, cd) = abcd.split_at_mut(2 * half);
        let (ef, gh) = efgh.split_at_mut(2 * half);
        let (a, b) = ab.split_at_mut(half);
        let (c, d) = cd.split_at_mut(half);
        let (e, f) = ef.split_at_mut(half);
        let (g, h) = gh.split_at_mut(half);
        // Equal, known lengths: no bounds checks remain in the loop.
        let (b, c, d) = (&mut b[..a.len()], &mut c[..a.len()], &mut d[..a.len()]);
        let (e, f) = (&mut e[..a.len()], &mut f[..a.len()]);
        let (g, h) = (&mut g[..a.len()], &mut h[..a.len()]);
        for i in 0..a.len() {
            for _ in 0..L::N / 8 {
                ahead.line();
            }
            let v = [&a[i], &b[i], &c[i], &d[i], &e[i], &f[i], &g[i], &h[i]];
            let v = eight::<L, true>(
                lanes,
                [
                    lanes.load(v[0]),
                    lanes.load(v[1]),
                    lanes.load(v[2]),
                    lanes.load(v[3]),
                    lanes.load(v[4]),
                    lanes.load(v[5]),
                    lanes.load(v[6]),
                    lanes.load(v[7]),
                ],
            );
            lanes.store(&mut a[i], v[0]);
            lanes.store(&mut b[i], v[1]);
            lanes.store(&mut c[i], v[2]);
            lanes.store(&mut d[i], v[3]);
            lanes.store(&mut e[i], v[4]);
            lanes.store(&mut f[i], v[5]);
            lanes.store(&mut g[i], v[6]);
            lanes.store(&mut h[i], v[7]);
        }
    }
}

/// The last four levels of a piece, which distances are constants of.
#[inline(always)]
fn four_levels<L: Lanes>(lanes: L, block: &mut [f32], to: &mut impl Leave<L>, ahead: &mut Ahead) {
    const PART: usize = CACHE_BLOCK / 256;
    for lines in L::lines_mut(block).as_chunks_mut::<{ 16 * PART }>().0 {
        for i in 0..PART {
            for _ in 0..L::N / 4 {
                ahead.line();
            }
            let mut v = [lanes.splat(0.0); 16];
            for k in 0..16 {
                v[k] = lanes.load(&lines[k * PART + i]);
            }
            v = sixteen::<L, true>(lanes, v);
            for k in 0..16 {
                to.leave(lanes, k * PART + i, v[k], &mut lines[k * PART + i]);
            }
        }
    }
}

/// (a + b, a − b): with `FUSED` the difference is taken by the multipliers. While as much is loaded
/// and stored, they take some of the adders' work off them, but not half of it: AMD's Zen 3 is
/// fastest when two levels of three are fused.
#[inline(always)]
fn butterfly<L: Lanes, const FUSED: bool>(lanes: L, a: L::F, b: L::F) -> (L::F, L::F) {
    if FUSED { lanes.butterfly(a, b) } else { (lanes.add(a, b), lanes.sub(a, b)) }
}

#[inline(always)]
fn four<L: Lanes, const FUSED: bool>(lanes: L, [a, b, c, d]: [L::F; 4]) -> [L::F; 4] {
    let (a, b) = butterfly::<L, false>(lanes, a, b);
    let (c, d) = butterfly::<L, false>(lanes, c, d);
    let (a, c) = butterfly::<L, FUSED>(lanes, a, c);
    let (b, d) = butterfly::<L, FUSED>(lanes, b, d);
    [a, b, c, d]
}

/// The levels between eight vectors.
#[inline(always)]
fn eight<L: Lanes, const FUSED: bool>(lanes: L, [a, b, c, d, e, f, g, h]: [L::F; 8]) -> [L::F; 8] {
    let [a, b, c, d] = four::<L, FUSED>(lanes, [a, b, c, d]);
    let [e, f, g, h] = four::<L, FUSED>(lanes, [e, f, g, h]);
    let (a, e) = butterfly::<L, FUSED>(lanes, a, e);
    let (b, f) = butterfly::<L, FUSED>(lanes, b, f);
    let (c, g) = butterfly::<L, FUSED>(lanes, c, g);
    let (d, h) = butterfly::<L, FUSED>(lanes, d, h);
    [a, b, c, d, e, f, g, h]
}

/// The levels between sixteen vectors.
#[inline(always)]
fn sixteen<L: Lanes, const FUSED: bool>(lanes: L, v: [L::F; 16]) -> [L::F; 16] {
    let [a, b, c, d, e, f, g, h, rest @ ..] = v;
    let low = eight::<L, FUSED>(lanes, [a, b, c, d, e, f, g, h]);
    let high = eight::<L, FUSED>(lanes, rest);
    let mut out = v;
    for i in 0..8 {
        (out[i], out[i + 8]) = butterfly::<L, FUSED>(lanes, low[i], high[i]);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(length: usize) -> Vec<f32> {
        (0..length).map(|i| ((i * 2_654_435_761) % 1000) as f32 / 500.0 - 1.0).collect()
    }

    #[test]
    fn the_transform_is_the_matrix_of_bit_parities() {
        for isa in Isa::available() {
            for log2 in 0..=10 {
                let row = ramp(1 << log2);
                let mut fast = row.clone();
                hadamard(isa, &mut fast);
                for (i, got) in fast.iter().enumerate() {
                    let slow: f64 = row
                        .iter()
                        .enumerate()
                        .map(
                            |(j, v)| {
                                if (i & j).count_ones() % 2 == 0 { f64::from(*v) } else { -f64::from(*v) }
                            },
                        )
                        .sum();
                    assert!((f64::from(*got) - slow).abs() < 1e-3, "{isa}, 2^{log2}, coordinate {i}");
                }
            }
        }
    }

    #[test]
    fn every_path_gives_the_bits_of_the_textbook_loop() {
        for isa in Isa::available() {
            for log2 in 0..=17 {
                let (mut slow, mut fast) = (ramp(1 << log2), ramp(1 << log2));
                short(&mut slow);
                hadamard(isa, &mut fast);
                assert!(slow.iter().zip(&fast).all(|(a, b)| a.to_bits() == b.to_bits()), "{isa}, 2^{log2}");
            }
        }
    }
}
