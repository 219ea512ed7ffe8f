// SPDX-License-Identifier: Apache-2.0
//! The first pass over a row: its values are loaded, looked at, flipped, and go through the first
//! levels of the transform while they are in registers.

use super::hadamard::{across, group_len, short};
use super::scale::RowScale;
use crate::simd::{Ahead, Format, Kernel, Lanes, Planes, each_vector};
use crate::wire::BLOCK;

/// Values of the longest group.
const LONGEST: usize = 256;

/// What was seen of values on the way, at their working scale.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen {
    /// The bits of the largest |x|, which are above those of all finite values where there is NaN
    /// or an infinity.
    pub(crate) largest: u32,
    /// About Σ x²: the order of the sum is the backend's own, so nothing on the wire may depend on
    /// it.
    pub(crate) squares: f32,
    /// About Σ x⁴, likewise.
    pub(crate) fourths: f32,
}

impl Seen {
    /// Together with other values.
    #[inline(always)]
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            largest: self.largest.max(other.largest),
            squares: self.squares + other.squares,
            fourths: self.fourths + other.fourths,
        }
    }
}

/// Fills `to`, a power of two of values, with those of `from`, which is not longer, at their scale,
/// flipped (no signs: as they are) and transformed over each [`group_len`], or over all of them
/// where they are fewer. What `from` lacks is +0. `zeros` says of each block whether all of it is
/// ±0 at its scale.
///
/// In a function of its own: unrolled as it is, one copy for each format is enough.
#[inline(always)]
pub(crate) fn enter<L: Planes, F: Format>(
    lanes: L,
    from: &[F],
    signs: &[u32],
    scale: RowScale,
    to: &mut [f32],
    zeros: &mut [bool],
    ahead: &mut Ahead,
) -> Seen {
    lanes.outlined(Enter { from, signs, scale, to, zeros, ahead })
}

struct Enter<'a, F> {
    from: &'a [F],
    signs: &'a [u32],
    scale: RowScale,
    to: &'a mut [f32],
    zeros: &'a mut [bool],
    ahead: &'a mut Ahead,
}

impl<F: Format> Kernel for Enter<'_, F> {
    type Output = Seen;

    #[inline(always)]
    fn run<L: Planes>(self, lanes: L) -> Seen {
        let Self { from, signs, scale, to, zeros, ahead } = self;
        if scale.is_one() {
            enter_at::<L, F, false>(lanes, from, signs, scale, to, zeros, ahead)
        } else {
            enter_at::<L, F, true>(lanes, from, signs, scale, to, zeros, ahead)
        }
    }
}

#[inline(always)]
fn enter_at<L: Lanes, F: Format, const SCALED: bool>(
    lanes: L,
    from: &[F],
    signs: &[u32],
    scale: RowScale,
    to: &mut [f32],
    zeros: &mut [bool],
    ahead: &mut Ahead,
) -> Seen {
    let group = group_len::<L>();
    let blocks = group / BLOCK;
    let [first, second] = scale.factors();
    let factors = [lanes.splat(first), lanes.splat(second)];
    let mut sums = Sums { largest: lanes.splat_u(0), squares: lanes.splat(0.0), fourths: lanes.splat(0.0) };
    let whole = from.len() / group;
    let (head, tail) = to.split_at_mut(whole * group);
    let (zeros, zeros_of_tail) = zeros.split_at_mut(whole * blocks);
    let none = [0; LONGEST / BLOCK];
    let groups = L::lines_mut(head).chunks_exact_mut(L::N).zip(zeros.chunks_exact_mut(blocks));
    for (nth, (to, zeros)) in groups.enumerate() {
        for _ in 0..L::N / 4 {
            ahead.line();
        }
        let from = from[nth * group..][..group].as_chunks().0;
        let words = signs.get(nth * blocks..(nth + 1) * blocks).unwrap_or(&none[..blocks]);
        let mut v = [lanes.splat(0.0); 16];
        let mut any = lanes.splat_u(0);
        each_vector!(L, I => {
            let (block, at) = (I / (BLOCK / L::N), I % (BLOCK / L::N));
            let mut x = F::load(lanes, &from[block], at);
            if SCALED {
                x = lanes.mul(lanes.mul(x, factors[0]), factors[1]);
            }
            let magnitude = sums.see(lanes, x);
            any = if at == 0 { magnitude } else { lanes.or(any, magnitude) };
            if at + 1 == BLOCK / L::N {
                zeros[block] = lanes.is_zero(any);
            }
            v[I] = lanes.butterflies(lanes.flip(x, words[block], at));
        });
        v = across(lanes, v);
        each_vector!(L, I => {
            lanes.store(&mut to[I], v[I]);
        });
    }
    // A group that begins with values and ends with padding, groups of padding; or a row that is
    // shorter than a group.
    let mut rest = from[whole * group..].iter();
    for (nth, to) in tail.chunks_mut(group).enumerate() {
        let blocks = (whole + nth) * blocks;
        to.fill(0.0);
        for (to, x) in to.iter_mut().zip(&mut rest) {
            *to = if SCALED { scale.up(x.wide()) } else { x.wide() };
        }
        for line in L::lines(to) {
            sums.see(lanes, lanes.load(line));
        }
        for (block, to) in to.chunks_mut(BLOCK).enumerate() {
            zeros_of_tail[nth * group / BLOCK + block] = to.iter().all(|x| *x == 0.0);
            let given = from.len().saturating_sub((blocks + block) * BLOCK);
            let word = signs.get(blocks + block).copied().unwrap_or_default();
            for (i, x) in to.iter_mut().enumerate().take(given) {
                *x = f32::from_bits(x.to_bits() ^ (word >> i & 1) << 31);
            }
        }
        if to.len() < group {
            short(to);
            continue;
        }
        let to = L::lines_mut(to);
        let mut v = [lanes.splat(0.0); 16];
        for i in 0..L::N {
            v[i] = lanes.butterflies(lanes.load(&to[i]));
        }
        v = across(lanes, v);
        for i in 0..L::N {
            lanes.store(&mut to[i], v[i]);
        }
    }
    sums.total(lanes)
}

/// The bits of a row's largest |x|.
#[inline(always)]
pub(crate) fn largest<L: Lanes, F: Format>(lanes: L, row: &[F]) -> u32 {
    let (blocks, rest) = row.as_chunks();
    let magnitude = lanes.splat_u(0x7fff_ffff);
    let mut largest = [lanes.splat_u(0); 2];
    for block in blocks {
        for at in 0..BLOCK / L::N {
            let bits = lanes.and(lanes.bits(F::load(lanes, block, at)), magnitude);
            largest[at % 2] = lanes.max_u(largest[at % 2], bits);
        }
    }
    let of_rest = rest.iter().fold(0, |largest, x| largest.max(x.wide().to_bits() & 0x7fff_ffff));
    let mut all = [0; 16];
    lanes.to_array(lanes.max_u(largest[0], largest[1]), &mut all);
    all.into_iter().fold(of_rest, u32::max)
}

struct Sums<L: Lanes> {
    largest: L::U,
    squares: L::F,
    fourths: L::F,
}

impl<L: Lanes> Sums<L> {
    #[inline(always)]
    fn see(&mut self, lanes: L, x: L::F) -> L::U {
        let square = lanes.mul(x, x);
        let magnitude = lanes.and(lanes.bits(x), lanes.splat_u(0x7fff_ffff));
        self.largest = lanes.max_u(self.largest, magnitude);
        self.squares = lanes.add(self.squares, square);
        self.fourths = lanes.add_square(square, self.fourths);
        magnitude
    }

    #[inline(always)]
    fn total(self, lanes: L) -> Seen {
        let zero = lanes.splat(0.0);
        Seen {
            largest: lanes.largest([self.largest, lanes.splat_u(0)]),
            squares: lanes.sum([self.squares, zero]),
            fourths: lanes.sum([self.fourths, zero]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rotate::hadamard::hadamard;
    use crate::simd::Isa;
    use half::{bf16, f16};

    struct Entering<'a, F>(&'a [F], &'a [u32], RowScale, &'a mut [f32], &'a mut [bool]);

    impl<F: Format> Kernel for Entering<'_, F> {
        type Output = (Seen, u32);

        #[inline(always)]
        fn run<L: Planes>(self, lanes: L) -> Self::Output {
            let seen = enter(lanes, self.0, self.1, self.2, self.3, self.4, &mut Ahead::none());
            (seen, largest(lanes, self.0))
        }
    }

    /// Against flipping and transforming each group with the textbook's loop.
    fn holds<F: Format>(isa: Isa, group: usize, given: usize, length: usize, size: f32) {
        let scale = RowScale::for_largest(size);
        // A third of the blocks is zero, or but for one value.
        let zero = |i: usize| i / 32 % 3 == 1 && i % 192 != 77;
        let row: Vec<F> = (0..given)
            .map(|i| (((i * 2_654_435_761) % 1000) as f32 / 500.0 - 1.0) * size)
            .enumerate()
            .map(|(i, x)| F::narrow(if zero(i) { 0.0_f32.copysign(x) } else { x }))
            .collect();
        let signs: Vec<u32> = (0..length as u32 / 32).map(|i| i.wrapping_mul(0x9e37_79b9) | 1).collect();
        let (mut to, mut zeros) = (vec![f32::NAN; length], vec![given.is_multiple_of(2); length / 32]);
        let (seen, largest) = isa.run(Entering(&row, &signs, scale, &mut to, &mut zeros));
        for (block, zero) in zeros.into_iter().enumerate() {
            let of = row.iter().skip(32 * block).take(32);
            assert_eq!(zero, of.into_iter().all(|x| scale.up(x.wide()) == 0.0), "{isa}, block {block}");
        }
        let mut expected = vec![0.0; length];
        let (mut squares, mut fourths, mut most) = (0.0, 0.0, 0.0f32);
        for (i, x) in row.iter().enumerate() {
            let x = scale.up(x.wide());
            most = most.max(x.abs());
            squares += f64::from(x).powi(2);
            fourths += f64::from(x).powi(4);
            expected[i] = if signs[i / 32] >> (i % 32) & 1 == 1 { -x } else { x };
        }
        for group in expected.chunks_mut(group) {
            hadamard(Isa::PORTABLE, group);
        }
        let same = to.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits());
        assert!(same, "{isa}, {given} of {length}");
        assert_eq!(f32::from_bits(seen.largest), most);
        assert_eq!(scale.up(f32::from_bits(largest)), most);
        for (got, exact) in [(seen.squares, squares), (seen.fourths, fourths)] {
            assert!((f64::from(got) - exact).abs() <= 1e-5 * exact, "{isa}, {given}: {got}, {exact}");
        }
    }

    #[test]
    fn entering_is_scaling_flipping_and_transforming_groups_in_every_format() {
        for isa in Isa::available() {
            let group = if isa.name() == "avx512" { 256 } else { 64 };
            for length in [32, 64, 128, 256, 1024, 4096] {
                for given in [1, 31, 32, 33, 63, 64, 100, 255, 256, 300, 1000, 4095, 4096] {
                    if given > length {
                        continue;
                    }
                    holds::<f16>(isa, group, given, length, 1.0);
                    for size in [1.0, 1e-20, 1e-40, 1e20, 3e38] {
                        holds::<f32>(isa, group, given, length, size);
                        holds::<bf16>(isa, group, given, length, size);
                    }
                }
            }
        }
    }
}
