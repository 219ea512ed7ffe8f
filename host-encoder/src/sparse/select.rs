//! The k largest magnitudes, the same on every machine.

/// Magnitudes as whole numbers have 31 bits, of which passes look at 11, 10 and 10.
const PASSES: [(u32, u32); 3] = [(20, 11), (10, 10), (0, 10)];
/// Counters side by side, so that neighbours of like size do not wait for each other.
const SIDE_BY_SIDE: usize = 4;

type Counts = [[u32; 1 << 11]; SIDE_BY_SIDE];

#[inline]
fn magnitude(value: f32) -> u32 {
    value.to_bits() & 0x7fff_ffff
}

/// Replaces `out` by the coordinates of the `k` largest magnitudes, in ascending order; of equal ones those of lower coordinates. Zeros are not among
/// them; NaNs are larger than all, and then infinities.
///
/// Reads `values` twice: the first pass finds the k-th largest magnitude to an eighth of an octave, the second one what is not below that; the others look at
/// nothing else.
pub(super) fn largest(values: &[f32], k: usize, out: &mut Vec<u32>) {
    out.clear();
    if k == 0 {
        return;
    }
    let mut counts = vec![[0; 1 << 11]; SIDE_BY_SIDE].into_boxed_slice();
    let Ok(counts) = <&mut Counts>::try_from(&mut counts[..]) else { return };
    // The k-th largest magnitude, from its upper bits on; `left` is which one it is of those that share them.
    let (mut threshold, mut left) = (0u32, k as u64);
    let [(shift, bits), rest @ ..] = PASSES;
    for values in values.chunks(SIDE_BY_SIDE) {
        for (value, counts) in values.iter().zip(&mut *counts) {
            counts[(magnitude(*value) >> shift) as usize] += 1;
        }
    }
    threshold |= find(counts, bits, &mut left) << shift;
    let least = threshold.max(1);
    out.extend((0..).zip(values).filter(|(_, value)| magnitude(**value) >= least).map(|(index, _)| index));
    for (shift, bits) in rest {
        counts.iter_mut().for_each(|counts| counts.fill(0));
        let (above, mask) = (shift + bits, (1 << bits) - 1);
        for index in &*out {
            let magnitude = magnitude(values[*index as usize]);
            if magnitude >> above == threshold >> above {
                counts[0][(magnitude >> shift & mask) as usize] += 1;
            }
        }
        threshold |= find(counts, bits, &mut left) << shift;
    }
    if threshold == 0 {
        return;
    }
    out.retain(|index| {
        let magnitude = magnitude(values[*index as usize]);
        let equal = magnitude == threshold;
        let taken = magnitude > threshold || equal && left > 0;
        left -= u64::from(equal && taken);
        taken
    });
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
            let mut out = vec![7];
            largest(&values, k, &mut out);
            prop_assert_eq!(out, by_sorting(&values, k));
        }
    }
}
