//! The planes of a whole packet of the default codec, addressed block by block.

use super::Split;
use crate::packet::BLOCK;

/// Bytes that a block has in all planes together: 4 in each bit-plane, 32 in each byte-plane.
const BLOCK_LEN: usize = 8 * 4 + 2 * BLOCK;

/// Where the eight bit-planes and the two byte-planes of n coordinates lie: one behind the other.
///
/// Made from a body that is long enough; every later access needs no check but that of the block.
pub(crate) struct PlanesMut<'a> {
    body: &'a mut [u8],
    blocks: usize,
}

impl<'a> PlanesMut<'a> {
    /// `None` where `body` is shorter than ten planes of `n` coordinates, n a multiple of 32.
    #[inline(always)]
    pub(crate) fn new(body: &'a mut [u8], n: usize) -> Option<Self> {
        let blocks = n / BLOCK;
        (body.len() >= blocks * BLOCK_LEN).then_some(Self { body, blocks })
    }

    /// Writes all planes of a block; the third of `bytes` has none.
    #[inline(always)]
    pub(crate) fn put(&mut self, block: usize, planes: &Split) {
        assert!(block < self.blocks, "block {block} of {}", self.blocks);
        let (stride, n) = (4 * self.blocks, BLOCK * self.blocks);
        let body = self.body.as_mut_ptr();
        // SAFETY: the body has `BLOCK_LEN` bytes a block: 8 · stride of bit-planes, whose blocks have 4 bytes each, then 2 · n of
        // byte-planes, whose blocks have 32 bytes each; `block` is one of them.
        unsafe {
            for (p, bits) in planes.bits.iter().enumerate() {
                body.add(p * stride + 4 * block).cast::<[u8; 4]>().write(bits.to_le_bytes());
            }
            for (p, bytes) in planes.bytes[..2].iter().enumerate() {
                body.add((p + 1) * n + BLOCK * block).cast::<[u8; BLOCK]>().write(*bytes);
            }
        }
    }
}
