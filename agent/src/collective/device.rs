// SPDX-License-Identifier: Apache-2.0
//! Where the packets of rows are that are coded elsewhere.

use crate::interface::RowPlaces;
use std::sync::Arc;
use trimwire_encoder::{Codec, Layout, RowMemory};

/// Whose memory the packets of an operation are received into that is done elsewhere.
pub trait Device: Send + Sync + std::fmt::Debug {
    /// Memory for the packets of a row of `shard` that come from rank `from` (this rank's own,
    /// where what it has sent is decoded later): `length` bytes, as they lie `offset` bytes into
    /// all the message's packets without tags. It comes back by being dropped.
    fn place(&self, shard: u16, from: u16, offset: usize, length: usize) -> Box<dyn RowMemory>;

    /// To find one's own device again.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// The rows of one message on a device.
#[derive(Debug)]
pub(super) struct MessagePlaces {
    pub(super) device: Arc<dyn Device>,
    pub(super) shard: u16,
    pub(super) from: u16,
    pub(super) layout: Layout,
    pub(super) planes: u8,
}

impl RowPlaces for MessagePlaces {
    fn place(&self, row: usize) -> Box<dyn RowMemory> {
        let Self { layout, planes, .. } = self;
        let offset = layout.row_start(Codec::Rht, row, *planes, false);
        let length = layout.row_len(Codec::Rht, row, *planes, false);
        self.device.place(self.shard, self.from, offset, length)
    }

    fn planes(&self) -> u8 {
        self.planes
    }
}
