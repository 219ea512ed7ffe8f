//! Packets in, gradient out.

use super::{Decoding, Layout, RotationKey};
use crate::packet::PacketError;

/// What one received packet changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt {
    /// Which packet of the message.
    pub index: usize,
    /// Whole leading planes held before.
    pub planes_before: u8,
    /// Whole leading planes held with it.
    pub planes_now: u8,
    /// It brought nothing that was not held already.
    pub duplicate: bool,
}

/// How many packets arrived how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Packets with all 11 planes.
    pub full: usize,
    /// Packets with at least one plane, but not all.
    pub cut: usize,
    /// Packets of which not even the first plane is whole.
    pub missing: usize,
}

/// Collects the packets of one message in any order and decodes whatever is there.
///
/// Call [`receive`](Self::receive) for each payload, then [`finish_into`](Self::finish_into) or [`add_into`](Self::add_into); more
/// packets may follow, and the result may be asked for again.
#[derive(Debug, Clone)]
pub struct Decoder {
    layout: Layout,
    key: RotationKey,
    decoding: Decoding,
}

impl Decoder {
    /// A decoder for one message of `layout` that was rotated under `key`.
    pub fn new(layout: Layout, key: RotationKey, decoding: Decoding) -> Self {
        Self { layout, key, decoding }
    }

    /// Forgets all packets and expects a message rotated under `key`; keeps the buffers.
    pub fn reset(&mut self, key: RotationKey) {
        self.key = key;
    }

    /// The layout.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Takes a UDP payload: any cut, any order, duplicates, repairs.
    ///
    /// Only what decoding needs is checked (kind, codec, index, coordinates per packet); job, rank and message id are the caller's.
    pub fn receive(&mut self, payload: &[u8]) -> Result<Receipt, PacketError> {
        let _ = payload;
        todo!()
    }

    /// Whole leading planes held of a packet: 0 (missing) to 11 (full).
    pub fn coverage(&self, index: usize) -> u8 {
        let _ = index;
        todo!()
    }

    /// Pretends that only `planes` whole planes of a packet arrived, so that all replicas decode the same (DESIGN §4,
    /// replica-consistent decode). Limits only ever go down, until [`reset`](Self::reset).
    pub fn limit(&mut self, index: usize, planes: u8) {
        let _ = (index, planes);
        todo!()
    }

    /// How many packets arrived full, cut, or not at all. Limits do not count.
    pub fn stats(&self) -> Stats {
        todo!()
    }

    /// Writes the decoded gradient.
    ///
    /// # Panics
    /// If `out` is not as long as the layout's coordinates.
    pub fn finish_into(&mut self, out: &mut [f32]) {
        let _ = (self.decoding, out);
        todo!()
    }

    /// Adds the decoded gradient to `sum`.
    ///
    /// # Panics
    /// If `sum` is not as long as the layout's coordinates.
    pub fn add_into(&mut self, sum: &mut [f32]) {
        let _ = sum;
        todo!()
    }
}
