// SPDX-License-Identifier: Apache-2.0
//! The k largest magnitudes, the same on every machine.

/// Magnitudes as whole numbers have 31 bits, of which passes look at 11, 10 and 10.
const PASSES: [(u32, u32); 3] = [(20, 11), (10, 10), (0, 10)];
/// Counters side by side, so that neighbours of like size do not wait for each other.
const SIDE_BY_SIDE: usize = 4;

/// How many values have each digit, side by side.
type Counts = [[u32; 1 << 11]];

#[inline]
fn magnitude(value: f32) -> u32 {
    value.to_bits() & 0x7fff_ffff
}

/// The coordinates that were selected last, and room to select others.
#[derive(Debug, Clone, Default)]
pub(super) struct Selection {
    chosen: Vec<u32>,
    counts: Vec<[u32; 1 << 11]>,
}

impl Selection {
    /// The coordinates of the `k` largest magnitudes, in ascending order; of equal ones those of lower coordinates. Zeros are not among them; NaNs are
    /// larger than all, and then infinities.
    ///
    /// Reads `values` twice: the first pass finds the k-th largest magnitude to an eighth of an octave, the second one what is not below that; the others look
    /// at nothing else.
    pub(super) fn largest(&mut self, values: &[f32], k: usize) -> &[u32] {
        let Self { chosen, counts } = self;
        chosen.clear();
        if k == 0 {
            return chosen;
        }
        counts.clear();
        counts.resize(SIDE_BY_SIDE, [0; 1 << 11]);
        // The k-th largest magnitude, from its upper bits on; `left` is which one it is of those that share them.
        let mut left = k as u64;
        let [(shift, bits), rest @ ..] = PASSES;
        let fours = values.chunks_exact(SIDE_BY_SIDE);
        let last = fours.remainder();
        if let Ok([a, b, c, d]) = <&mut [_; SIDE_BY_SIDE]>::try_from(&mut counts[..]) {
            let count =
                |counts: &mut [u32; 1 << 11], value: f32| counts[(magnitude(value) >> shift) as usize] += 1;
            for four in fours {
                count(a, four[0]);
                count(b, four[1]);
                count(c, four[2]);
                count(d, four[3]);
            }
            last.iter().for_each(|value| count(a, *value));
        }
        let mut threshold = find(counts, bits, &mut left) << shift;
        let least = threshold.max(1);
        let candidates = counts
            .iter()
            .flat_map(|counts| &counts[(threshold >> shift) as usize..])
            .fold(0, |sum, count| sum + *count as usize);
        // Each is written and then kept or not, since nobody can foresee which; the last may stand behind all that are kept.
        chosen.resize(candidates + 1, 0);
        let mut kept = 0;
        for (index, value) in (0..).zip(values) {
            chosen[kept] = index;
            kept += usize::from(magnitude(*value) >= least);
        }
        chosen.truncate(kept);
        for (shift, bits) in rest {
            counts.iter_mut().for_each(|counts| counts.fill(0));
            let (above, mask) = (shift + bits, (1 << bits) - 1);
            for index in &*chosen {
                let magnitude = magnitude(values[*index as usize]);
                if magnitude >> above == threshold >> above {
                    counts[0][(magnitude >> shift & mask) as usize] += 1;
                }
            }
            threshold |= find(counts, bits, &mut left) << shift;
        }
        // Where there are not k, all are taken.
        chosen.retain(|index| {
            let magnitude = magnitude(values[*index as usize]);
            let equal = magnitude == threshold;
            let taken = magnitude > threshold || equal && left > 0;
            left -= u64::from(equal && taken);
            taken
        });
        chosen
    }
}

/// The digit of the `left`-th largest value, which is then the `left`-th of those that share the digit; 0 where there are not so many.
fn find(counts: &Counts, bits: u32, left: &mut u64) -> u32 {
    let mut digit = (1 << bits) - 1;
    while digit > 0 {
        let here = counts.iter().map(|counts| u64::from(counts[digit as usize])).sum();
        if *left <= here {
            break;
        }
        *left -= here;
        digit -= 1;
    }
    digit
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn by_sorting(values: &[f32], k: usize) -> Vec<u32> {
        let mut order: Vec<u32> = (0..values.len() as u32).filter(|i| values[*i as usize] != 0.0).collect();
        order.sort_by_key(|i| (!magnitude(values[*i as usize]), *i));
        order.truncate(k);
        order.sort_unstable();
        order
    }

    proptest! {
        #[test]
        fn the_same_are_selected_as_by_sorting(
            values in prop::collection::vec(
                prop_oneof![any::<u32>().prop_map(f32::from_bits), (-3i8..4).prop_map(f32::from), -1.0f32..1.0], 1..200),
            k in 1usize..220,
        ) {
            let mut selection = Selection::default();
            selection.largest(&[1.0; 9], 3);
            prop_assert_eq!(selection.largest(&values, k), by_sorting(&values, k));
        }
    }
}
