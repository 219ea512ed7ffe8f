// SPDX-License-Identifier: Apache-2.0
//! Division of a gradient among the ranks.

use std::ops::Range;
use trimwire_encoder::wire::BLOCK;

/// The coordinates of a gradient of `length` that belong to rank `shard` of `world`: as even as
/// possible, the first `length mod world` shards have one more. Empty when there are fewer
/// coordinates than ranks, or no such rank.
pub fn shard_range(length: usize, world: u16, shard: u16) -> Range<usize> {
    let (world, shard) = (usize::from(world.max(1)), usize::from(shard));
    if shard >= world {
        return length..length;
    }
    let (share, longer) = (length / world, length % world);
    let start = shard * share + shard.min(longer);
    start..start + share + usize::from(shard < longer)
}

/// The coordinates of shard `shard` of `shards` that begin at multiples of a block: so each of the
/// gradient's blocks of zeros is one of a shard, too, and stays zero. As even as possible
/// otherwise.
pub(super) fn block_range(length: usize, shards: u16, shard: u16) -> Range<usize> {
    let blocks = shard_range(length.div_ceil(BLOCK), shards, shard);
    (blocks.start * BLOCK).min(length)..(blocks.end * BLOCK).min(length)
}

/// The coordinates, of `length`, that all ranks take bit for bit after step `step`, by an exact
/// broadcast: free replicas drift apart where packets are trimmed. Each coordinate is taken every
/// `every` steps (0 counts as 1), a different slice each step, so that all steps cost the same.
pub fn resync_range(length: usize, every: u32, step: u64) -> Range<usize> {
    let slices = u64::from(every.max(1));
    let slice = (step % slices) as usize;
    let at = |slice: usize| (length as u128 * slice as u128 / u128::from(slices)) as usize;
    at(slice)..at(slice + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_parameter_is_taken_anew_once_in_so_many_steps(length in 0_usize..10_000, every in 0_u32..300, first: u32) {
            let first = u64::from(first) * u64::from(every.max(1));
            let mut next = 0;
            for step in 0..u64::from(every.max(1)) {
                let range = resync_range(length, every, first + step);
                prop_assert_eq!(range.start, next);
                prop_assert!(range.len() <= length.div_ceil(every.max(1) as usize));
                next = range.end;
            }
            prop_assert_eq!(next, length);
        }

        #[test]
        fn shards_of_whole_blocks_tile_the_gradient_and_are_even(length in 0_usize..10_000, shards in 1_u16..200) {
            let (mut next, mut lengths) = (0, Vec::new());
            for shard in 0..shards {
                let range = block_range(length, shards, shard);
                prop_assert_eq!(range.start, next);
                prop_assert!(range.start.is_multiple_of(BLOCK) || range.is_empty());
                lengths.push(range.len());
                next = range.end;
            }
            prop_assert_eq!(next, length);
            let (least, most) = (lengths.iter().min(), lengths.iter().max());
            prop_assert!(least.zip(most).is_some_and(|(least, most)| most - least < 2 * BLOCK));
        }

        #[test]
        fn shards_tile_the_gradient_and_differ_by_at_most_one(length in 0_usize..10_000, world in 1_u16..200) {
            let mut next = 0;
            for shard in 0..world {
                let range = shard_range(length, world, shard);
                prop_assert_eq!(range.start, next);
                prop_assert!((length / usize::from(world)..=length.div_ceil(usize::from(world))).contains(&range.len()));
                next = range.end;
            }
            prop_assert_eq!(next, length);
        }
    }
}
