// SPDX-License-Identifier: Apache-2.0
//! Rows under reception whose packets are kept as bytes, for a GPU to decode.

use super::receiver::{Packet, RowReceiver};
use crate::decode::kept::{Kept, RowMemory};
use crate::wire::HEADER_LEN;

impl RowReceiver {
    /// Keeps packets as bytes in `memory`, for a GPU to decode ([`Self::kept`]), instead of making
    /// code words of them as they arrive. Each has its place in a row of whole packets with so many
    /// planes and no tags ([`Layout::row_len`]); repairs are joined. What does not fit is not
    /// received. Decoding on the host works, too, and joins them first.
    pub fn keeping(self, memory: Box<dyn RowMemory>, planes: u8) -> Self {
        Self { kept: Some(Kept::new(memory, planes.clamp(1, self.codec.planes()))), ..self }
    }

    /// What is kept of the row's packets ([`Self::keeping`]): the memory's bytes, and how many of
    /// each packet count, header included (0: it is lost). `None` without such memory.
    pub fn kept(&self) -> Option<(&[u8], Vec<usize>)> {
        let kept = self.kept.as_ref()?;
        let length = |(nth, packet): (usize, &Packet)| {
            let n = (packet.end - packet.start) as usize;
            let at = kept.start(self.codec, &self.layout, self.row, nth);
            let limit = self.codec.plane_offset(packet.limit, n);
            match (&packet.reception, packet.most) {
                (Some(reception), Some(most))
                    if packet.limit > 0 && at + HEADER_LEN <= kept.bytes().len() =>
                {
                    HEADER_LEN + reception.prefix(self.codec).min(most.into()).min(limit)
                }
                _ => 0,
            }
        };
        Some((kept.bytes(), self.packets.iter().enumerate().map(length).collect()))
    }

    /// The same receiver with code words made of what it keeps.
    pub(super) fn joined(&self, kept: &Kept) -> Self {
        let mut joined = Self { kept: None, sealer: None, ..self.clone() };
        joined.reset(self.envelope);
        for (nth, packet) in self.packets.iter().enumerate() {
            let Some(reception) = &packet.reception else { continue };
            let at = kept.start(self.codec, &self.layout, self.row, nth);
            let end = at + HEADER_LEN + reception.prefix(self.codec);
            // No packet is refused: all have been received before.
            let _ = kept.bytes().get(at..end).map(|bytes| joined.receive(bytes));
            if let Some(joined) = joined.packets.get_mut(nth) {
                (joined.limit, joined.most) = (packet.limit, packet.most);
            }
        }
        joined
    }
}
