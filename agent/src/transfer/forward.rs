// SPDX-License-Identifier: Apache-2.0
//! Packets that are lost and not resent. The receiver is told, as by FORWARD TSN (RFC 3758 §3.2),
//! so that rows without them need not wait for the message's end.

use crate::wire::trim_map::{Detail, FULL};
use crate::wire::{MapSource, Writer};
use std::collections::BTreeSet;

/// Those of one message of which the receiver is to be told. It is told once: if that is lost, the
/// rows wait.
#[derive(Debug, Default)]
pub(super) struct Forward {
    packets: BTreeSet<u32>,
}

impl Forward {
    pub(super) fn add(&mut self, packet: u32) {
        self.packets.insert(packet);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// They are sent again after all.
    pub(super) fn clear(&mut self) {
        self.packets.clear();
    }

    /// The next FORWARD of message `id` of so many packets, about as many of them as it has room
    /// for.
    pub(super) fn write(&mut self, id: u32, packets: u32, writer: Writer) -> Option<Vec<u8>> {
        let (&first, &last) = self.packets.first().zip(self.packets.last())?;
        let planes = |packet: u32| if self.packets.contains(&packet) { 0 } else { FULL };
        let source = MapSource { planes: &planes, packets: last + 1, offset: first, detail: Detail::Planes };
        let (payload, end) = writer.forward(id, packets, &source);
        self.packets = self.packets.split_off(&end);
        Some(payload)
    }
}
