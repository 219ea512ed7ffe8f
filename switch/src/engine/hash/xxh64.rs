// SPDX-License-Identifier: Apache-2.0
//! XXH64 with seed 0, as its specification describes it (version 0.1.1, "XXH64 algorithm
//! description").

const PRIMES: [u64; 5] = [
    0x9e37_79b1_85eb_ca87,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0x85eb_ca77_c2b2_ae63,
    0x27d4_eb2f_1656_67c5,
];

fn round(accumulator: u64, lane: u64) -> u64 {
    accumulator.wrapping_add(lane.wrapping_mul(PRIMES[1])).rotate_left(31).wrapping_mul(PRIMES[0])
}

fn merged(hash: u64, accumulator: u64) -> u64 {
    (hash ^ round(0, accumulator)).wrapping_mul(PRIMES[0]).wrapping_add(PRIMES[3])
}

pub(super) fn hash(data: &[u8]) -> u64 {
    let (stripes, rest) = data.as_chunks::<32>();
    let mut hash = PRIMES[4];
    if !stripes.is_empty() {
        let mut lanes = [PRIMES[0].wrapping_add(PRIMES[1]), PRIMES[1], 0, PRIMES[0].wrapping_neg()];
        for stripe in stripes {
            let (words, _) = stripe.as_chunks::<8>();
            for (lane, &word) in lanes.iter_mut().zip(words) {
                *lane = round(*lane, u64::from_le_bytes(word));
            }
        }
        let turns = [1, 7, 12, 18];
        hash =
            lanes.iter().zip(turns).fold(0, |hash, (lane, turn)| hash.wrapping_add(lane.rotate_left(turn)));
        hash = lanes.iter().fold(hash, |hash, &lane| merged(hash, lane));
    }
    hash = hash.wrapping_add(data.len() as u64);
    let (words, rest) = rest.as_chunks::<8>();
    for &word in words {
        hash ^= round(0, u64::from_le_bytes(word));
        hash = hash.rotate_left(27).wrapping_mul(PRIMES[0]).wrapping_add(PRIMES[3]);
    }
    let (halves, rest) = rest.as_chunks::<4>();
    for &half in halves {
        hash ^= u64::from(u32::from_le_bytes(half)).wrapping_mul(PRIMES[0]);
        hash = hash.rotate_left(23).wrapping_mul(PRIMES[1]).wrapping_add(PRIMES[2]);
    }
    for &byte in rest {
        hash ^= u64::from(byte).wrapping_mul(PRIMES[4]);
        hash = hash.rotate_left(11).wrapping_mul(PRIMES[0]);
    }
    hash = (hash ^ hash >> 33).wrapping_mul(PRIMES[1]);
    hash = (hash ^ hash >> 29).wrapping_mul(PRIMES[2]);
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use super::hash;

    #[test]
    fn short_and_long_texts_give_the_published_hashes() {
        assert_eq!(hash(b""), 0xef46_db37_51d8_e999);
        assert_eq!(hash(b"abc"), 0x44bc_2cf5_ad77_0999);
        assert_eq!(hash(b"Nobody inspects the spammish repetition"), 0xfbce_a83c_8a37_8bf1);
    }
}
