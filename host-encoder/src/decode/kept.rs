// SPDX-License-Identifier: Apache-2.0
//! A row's packets kept as bytes, for somebody else to decode.

use crate::wire::{Codec, HEADER_LEN, Header, Layout};

/// Where the packets of a row are kept: memory of the caller's choice, such as a GPU's driver
/// reads. Its length never changes.
pub trait RowMemory: AsRef<[u8]> + AsMut<[u8]> + Send + Sync + std::fmt::Debug {}

impl RowMemory for Vec<u8> {}

/// The bytes of a row's packets, each at the place that it has when all are whole.
#[derive(Debug)]
pub(crate) struct Kept {
    memory: Box<dyn RowMemory>,
    /// Planes that there is room for.
    planes: u8,
}

impl Clone for Kept {
    /// In ordinary memory.
    fn clone(&self) -> Self {
        Self { memory: Box::new(self.memory.as_ref().as_ref().to_vec()), planes: self.planes }
    }
}

impl Kept {
    pub(crate) fn new(memory: Box<dyn RowMemory>, planes: u8) -> Self {
        Self { memory, planes }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.memory.as_ref().as_ref()
    }

    /// First byte of packet `nth` of a row; of one beyond the last, their length.
    pub(crate) fn start(&self, codec: Codec, layout: &Layout, row: usize, nth: usize) -> usize {
        layout.bytes_before(codec, row, nth, self.planes, false)
    }

    /// A packet's planes, to be written, behind its header, which is: that of the packet whole.
    /// Empty where the memory is too short.
    pub(crate) fn body(&mut self, header: &Header, layout: &Layout, row: usize, nth: usize) -> &mut [u8] {
        let at = |nth| self.start(header.codec(), layout, row, nth);
        let place = at(nth)..at(nth + 1);
        let Some(packet) = self.memory.as_mut().as_mut().get_mut(place) else { return &mut [] };
        let (head, body) = packet.split_at_mut(HEADER_LEN);
        head.copy_from_slice(&Header { first_plane: 0, ..*header }.to_bytes());
        body
    }
}
