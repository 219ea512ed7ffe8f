//! The planes of a packet's body, addressed block by block.

use super::Split;
use crate::packet::BLOCK;

/// Where the eight bit-planes and the three byte-planes of n coordinates lie: one behind the other.
///
/// Made from a body that is long enough; every later access needs no check but that of the block.
pub(crate) struct PlanesMut<'a> {
    body: &'a mut [u8],
    blocks: usize,
}

/// The same, to read from.
#[derive(Clone, Copy)]
pub(crate) struct Planes<'a> {
    body: &'a [u8],
    blocks: usize,
}

impl<'a> PlanesMut<'a> {
    /// `None` where `body` is shorter than eleven planes of `n` coordinates, n a multiple of 32.
    #[inline(always)]
    pub(crate) fn new(body: &'a mut [u8], n: usize) -> Option<Self> {
        let blocks = n / BLOCK;
        (body.len() >= blocks * 128).then_some(Self { body, blocks })
    }

    /// Writes all planes of a block.
    #[inline(always)]
    pub(crate) fn put(&mut self, block: usize, planes: &Split) {
        assert!(block < self.blocks, "block {block} of {}", self.blocks);
        let (stride, n) = (4 * self.blocks, BLOCK * self.blocks);
        let body = self.body.as_mut_ptr();
        // SAFETY: the body has 128 bytes a block: 8 · stride of bit-planes, whose blocks have 4 bytes each, then 3 · n of
        // byte-planes, whose blocks have 32 bytes each; `block` is one of them.
        unsafe {
            for (p, bits) in planes.bits.iter().enumerate() {
                body.add(p * stride + 4 * block).cast::<[u8; 4]>().write(bits.to_le_bytes());
            }
            for (p, bytes) in planes.bytes.iter().enumerate() {
                body.add((p + 1) * n + BLOCK * block).cast::<[u8; BLOCK]>().write(*bytes);
            }
        }
    }
}

impl<'a> Planes<'a> {
    /// `None` where `body` is shorter than eleven planes of `n` coordinates, n a multiple of 32.
    #[inline(always)]
    pub(crate) fn new(body: &'a [u8], n: usize) -> Option<Self> {
        let blocks = n / BLOCK;
        (body.len() >= blocks * 128).then_some(Self { body, blocks })
    }

    /// Reads all planes of a block.
    #[inline(always)]
    pub(crate) fn read(self, block: usize, planes: &mut Split) {
        assert!(block < self.blocks, "block {block} of {}", self.blocks);
        let (stride, n) = (4 * self.blocks, BLOCK * self.blocks);
        let body = self.body.as_ptr();
        // SAFETY: as in `PlanesMut::put`.
        unsafe {
            for (p, bits) in planes.bits.iter_mut().enumerate() {
                *bits = u32::from_le_bytes(body.add(p * stride + 4 * block).cast::<[u8; 4]>().read());
            }
            for (p, bytes) in planes.bytes.iter_mut().enumerate() {
                *bytes = body.add((p + 1) * n + BLOCK * block).cast::<[u8; BLOCK]>().read();
            }
        }
    }
}
