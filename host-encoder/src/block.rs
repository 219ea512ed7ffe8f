//! Thirty-two quantiser indices at a time, to and from bit-planes.

use crate::packet::BLOCK;

/// Writes the first `planes` planes of a block's indices: four bytes into each `plane_len` bytes of `bits`, at `4 · block`.
#[inline]
pub(crate) fn scatter(indices: &[u8; BLOCK], bits: &mut [u8], plane_len: usize, planes: u8, block: usize) {
    let (groups, _) = indices.as_chunks::<8>();
    let mut turned = [[0u8; 8]; 4];
    for group in 0..4 {
        turned[group] = transpose(u64::from_be_bytes(groups[group])).to_be_bytes();
    }
    let [a, b, c, d] = turned;
    for (plane, (((a, b), c), d)) in a.into_iter().zip(b).zip(c).zip(d).enumerate().take(planes.into()) {
        let at = plane * plane_len + 4 * block;
        // An array's copy is one store where a slice's may be a call.
        if let Some(to) = bits.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *to = [a, b, c, d];
        }
    }
}

/// Reads a block's indices from `planes` planes of `bits`; the bits of the others are zero.
#[inline]
pub(crate) fn gather(bits: &[u8], plane_len: usize, planes: u8, block: usize) -> [u8; BLOCK] {
    let mut turned = [0u64; 4];
    for plane in 0..usize::from(planes.min(8)) {
        let at = plane * plane_len + 4 * block;
        let bytes: [u8; 4] = bits.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
        for group in 0..4 {
            turned[group] |= u64::from(bytes[group]) << (56 - 8 * plane);
        }
    }
    let mut indices = [0; BLOCK];
    let (groups, _) = indices.as_chunks_mut::<8>();
    for group in 0..4 {
        groups[group] = transpose(turned[group]).to_be_bytes();
    }
    indices
}

/// Transposes an 8 × 8 matrix of bits whose rows are the bytes, most significant first (Hacker's Delight, §7-3).
#[inline]
fn transpose(mut x: u64) -> u64 {
    let mut swap = |shift: u32, mask: u64| {
        let t = (x ^ (x >> shift)) & mask;
        x ^= t ^ (t << shift);
    };
    swap(7, 0x00aa_00aa_00aa_00aa);
    swap(14, 0x0000_cccc_0000_cccc);
    swap(28, 0x0000_0000_f0f0_f0f0);
    x
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bit_p_of_index_i_is_bit_i_of_plane_p(indices: [u8; BLOCK], blocks in 1usize..4, block in 0usize..3, planes in 0u8..9) {
            let block = block % blocks;
            let mut bits = vec![0; 8 * 4 * blocks];
            scatter(&indices, &mut bits, 4 * blocks, 8, block);
            for (i, index) in indices.iter().enumerate() {
                for plane in 0..8 {
                    let byte = bits[plane * 4 * blocks + 4 * block + i / 8];
                    prop_assert_eq!(byte >> (7 - i % 8) & 1, index >> (7 - plane) & 1);
                }
            }
            let kept = !(0xffu16 >> planes) as u8;
            prop_assert_eq!(gather(&bits, 4 * blocks, planes, block), indices.map(|index| index & kept));
        }
    }
}
