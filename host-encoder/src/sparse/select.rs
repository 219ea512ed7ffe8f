//! The k largest magnitudes, the same on every machine.

/// Magnitudes as whole numbers have 31 bits, of which a pass looks at 11, 10 and 10.
const PASSES: [(u32, u32); 3] = [(20, 11), (10, 10), (0, 10)];
/// Counters side by side, so that neighbours of like size do not wait for each other.
const SIDE_BY_SIDE: usize = 4;

#[inline]
fn magnitude(value: f32) -> u32 {
    value.to_bits() & 0x7fff_ffff
}

/// Replaces `out` by the coordinates of the `k` largest magnitudes, in ascending order; of equal ones those of lower coordinates. Zeros are not among
/// them; NaNs are larger than all, and then infinities. Reads `values` four times, and needs no room of their size.
pub(super) fn largest(values: &[f32], k: usize, out: &mut Vec<u32>) {
    out.clear();
    if k == 0 {
        return;
    }
    // The k-th largest magnitude, from its upper bits on; `left` is which one it is of those that share them.
    let (mut threshold, mut left) = (0u32, k as u64);
    let mut counts = vec![[0u32; 1 << 11]; SIDE_BY_SIDE];
    for (shift, bits) in PASSES {
        counts.iter_mut().for_each(|counts| counts.fill(0));
        let mask = (1 << bits) - 1;
        let above = shift + bits;
        for values in values.chunks(SIDE_BY_SIDE) {
            for (value, counts) in values.iter().zip(&mut counts) {
                let magnitude = magnitude(*value);
                if magnitude >> above == threshold >> above {
                    counts[(magnitude >> shift & mask) as usize] += 1;
                }
            }
        }
        let digit = (1..=mask).rev().find(|digit| {
            let here = counts.iter().map(|counts| u64::from(counts[*digit as usize])).sum();
            let found = left <= here;
            left -= if found { 0 } else { here };
            found
        });
        threshold |= digit.unwrap_or(0) << shift;
    }
    if threshold == 0 {
        left = 0;
    }
    out.reserve(k.min(values.len()));
    for (index, value) in values.iter().enumerate() {
        let magnitude = magnitude(*value);
        if magnitude < threshold || magnitude == threshold && left == 0 {
            continue;
        }
        left -= u64::from(magnitude == threshold);
        out.push(index as u32);
    }
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
