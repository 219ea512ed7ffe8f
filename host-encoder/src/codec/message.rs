//! An encoded message: its packets, and repairs of them.

use std::ops::Range;

use super::Layout;

/// The packets of one message, made by [`Encoder::encode`](super::Encoder::encode). Reuse it: it keeps its buffers.
#[derive(Debug, Clone, Default)]
pub struct Message {
    pub(super) layout: Option<Layout>,
    pub(super) planes: u8,
    pub(super) stride: usize,
    pub(super) bytes: Vec<u8>,
}

impl Message {
    /// An empty message, to encode into.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of packets; 0 before the first encoding.
    pub fn packets(&self) -> usize {
        self.layout.map_or(0, |layout| layout.packets())
    }

    /// Planes that every packet carries, 1 to 11.
    pub fn planes(&self) -> u8 {
        self.planes
    }

    /// A packet's UDP payload.
    ///
    /// # Panics
    /// If `index` is not below [`packets`](Self::packets).
    pub fn packet(&self, index: usize) -> &[u8] {
        &self.bytes[index * self.stride..(index + 1) * self.stride]
    }

    /// Whether a packet belongs to a row of at least median energy.
    ///
    /// # Panics
    /// If `index` is not below [`packets`](Self::packets).
    pub fn importance(&self, index: usize) -> bool {
        self.packet(index)[1] & 0x10 != 0
    }

    /// A packet that carries just `planes` of packet `index`; none if the message does not hold them.
    pub fn repair(&self, index: usize, planes: Range<u8>) -> Option<Vec<u8>> {
        let _ = (index, planes);
        todo!()
    }
}
