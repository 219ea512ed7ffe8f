//! Division of a gradient among the ranks.

use std::ops::Range;

/// The coordinates of a gradient of `length` that belong to rank `shard` of `world`: as even as possible, the first
/// `length mod world` shards have one more. Empty when there are fewer coordinates than ranks, or no such rank.
pub fn shard_range(length: usize, world: u16, shard: u16) -> Range<usize> {
    let (world, shard) = (usize::from(world.max(1)), usize::from(shard));
    if shard >= world {
        return length..length;
    }
    let (share, longer) = (length / world, length % world);
    let start = shard * share + shard.min(longer);
    start..start + share + usize::from(shard < longer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
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
