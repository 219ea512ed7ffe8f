// SPDX-License-Identifier: Apache-2.0
//! An encoded row on its way: shared by all the peers that it goes to, and sent without a copy.
#![forbid(unsafe_code)]

use bytes::Bytes;
use std::sync::Arc;
use trimwire_encoder::wire::repair;
use trimwire_encoder::{Codec, EncodedRow, HeaderMask, Layout, Message};

/// Bytes that are not a row's packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{got} bytes are not the packets of row {row}, which have {expected}")]
pub struct RowError {
    /// The row.
    pub row: usize,
    /// Bytes given.
    pub got: usize,
    /// Bytes that there should be.
    pub expected: usize,
}

/// The packets of one row. Clones share them.
#[derive(Debug, Clone)]
pub struct Row {
    bytes: Bytes,
    /// Where each packet ends, bytes.
    ends: Arc<[u32]>,
    important: bool,
    sealed: bool,
    mask: HeaderMask,
    codec: Codec,
    /// Energy per coordinate; NaN where it is not finite.
    energy: f64,
}

/// Packets that leave in one piece.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) payload: Bytes,
    /// Length of each packet but the last.
    pub(crate) segment: usize,
    pub(crate) packets: u32,
}

impl Row {
    /// The packets of row `row` of a message of `codec`, one behind the other, as
    /// [`trimwire_encoder::Encoder::encode_row`] writes them; their headers are masked here. Panics
    /// unless `row < layout.rows()`.
    ///
    /// # Errors
    /// [`RowError`] when there are more bytes or fewer.
    pub fn new(
        codec: Codec,
        layout: &Layout,
        row: usize,
        encoded: &EncodedRow,
        sealed: bool,
        mask: HeaderMask,
        mut packets: impl AsRef<[u8]> + AsMut<[u8]> + Send + 'static,
    ) -> Result<Self, RowError> {
        let mut end = 0;
        let ends: Arc<[u32]> = layout
            .row_places(row)
            .map(|(_, place)| {
                end += codec.packet_len(encoded.planes, place.len(), sealed);
                end as u32
            })
            .collect();
        let bytes = packets.as_mut();
        if bytes.len() != end {
            return Err(RowError { row, got: bytes.len(), expected: end });
        }
        for start in [0].into_iter().chain(ends.iter().map(|&end| end as usize)) {
            mask.apply(&mut bytes[start..]);
        }
        let EncodedRow { important, figure: energy, .. } = *encoded;
        Ok(Self { bytes: Bytes::from_owner(packets), ends, important, sealed, mask, codec, energy })
    }

    /// The rows of a message, copied out of it; headers are masked in the copies.
    pub fn of_message(message: &Message, mask: HeaderMask) -> Vec<Self> {
        let Some(layout) = message.layout() else { return Vec::new() };
        let rows = message.rows().iter().enumerate();
        rows.filter_map(|(row, encoded)| {
            let packets = message.row(row).to_vec();
            // A message's rows are of its layout.
            Self::new(message.codec(), layout, row, encoded, message.is_sealed(), mask, packets).ok()
        })
        .collect()
    }

    /// Whether its packets are trimmed and dropped after those of other rows.
    pub(crate) fn important(&self) -> bool {
        self.important
    }

    /// The codec of its packets, and the energy of a coordinate: what a repair is worth follows
    /// from them.
    pub(crate) fn codec_and_energy(&self) -> (Codec, f64) {
        (self.codec, self.energy)
    }

    /// Planes of a packet, from `first` to `end` (exclusive), as a packet of their own. Sealed
    /// packets are sent again whole: their tags are over all before them.
    pub(crate) fn repair(&self, nth: usize, first: u8, end: u8) -> Bytes {
        let whole = self.packet(nth);
        if first == 0 || self.sealed {
            return whole;
        }
        repair(&whole, first..end, self.mask).map_or(whole, Bytes::from)
    }

    fn edge(&self, packet: usize) -> usize {
        packet.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |&end| end as usize)
    }

    /// Bytes of a packet; 0 beyond the last.
    pub(crate) fn len_of(&self, nth: usize) -> usize {
        if nth < self.ends.len() { self.edge(nth + 1) - self.edge(nth) } else { 0 }
    }

    /// A packet; empty beyond the last.
    pub(crate) fn packet(&self, nth: usize) -> Bytes {
        if nth < self.ends.len() {
            self.bytes.slice(self.edge(nth)..self.edge(nth + 1))
        } else {
            Bytes::new()
        }
    }

    /// As many packets from `nth` on, at most `most`, as are of one length; the last one may be
    /// shorter.
    pub(crate) fn run(&self, nth: usize, most: usize) -> Option<Run> {
        if nth >= self.ends.len() {
            return None;
        }
        let start = self.edge(nth);
        let segment = self.edge(nth + 1) - start;
        let mut end = nth + 1;
        while end < self.ends.len().min(nth.saturating_add(most.max(1))) {
            let length = self.edge(end + 1) - self.edge(end);
            if length > segment || self.edge(end + 1) - start > MOST_BYTES {
                break;
            }
            end += 1;
            if length < segment {
                break;
            }
        }
        let payload = self.bytes.slice(start..self.edge(end));
        Some(Run { payload, segment, packets: (end - nth) as u32 })
    }
}

/// Longest payload of a UDP datagram over IPv4, to which segmentation offload keeps, too.
const MOST_BYTES: usize = 65_507;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use trimwire_encoder::{Codec, Encoder, Envelope, Job, StreamId};

    proptest! {
        #[test]
        fn runs_hold_every_packet_once_in_order_and_split_where_lengths_say(
            length in 1_usize..70_000, blocks in 1_usize..30, planes in 1_u8..=10, most in 1_usize..80,
        ) {
            let layout = Layout::new(length, 32 * blocks).expect("valid");
            let mut message = Message::default();
            let envelope = Envelope { stream: StreamId::new(0, 1).expect("fits"), message: 3 };
            let values: Vec<f32> = (0..length).map(|i| (i as f32).sin()).collect();
            Encoder::new(layout.clone(), Job::new(1)).encode(&values, envelope, planes, &mut message).expect("finite");
            let mut index = 0;
            for (number, row) in Row::of_message(&message, HeaderMask::NONE).iter().enumerate() {
                let mut nth = 0;
                while let Some(run) = row.run(nth, most) {
                    prop_assert!(run.packets as usize <= most);
                    for packet in run.payload.chunks(run.segment) {
                        prop_assert_eq!(packet, message.packet(index));
                        prop_assert_eq!(&row.packet(nth)[..], packet);
                        (nth, index) = (nth + 1, index + 1);
                    }
                }
                prop_assert_eq!(nth, layout.row_packets(number).len());
                let (mut pieces, mut nth) = (0, 0);
                while let Some(run) = row.run(nth, usize::MAX) {
                    (pieces, nth) = (pieces + 1, nth + run.packets as usize);
                }
                let bytes = layout.row_len(Codec::Rht, number, planes, false);
                prop_assert!(pieces <= 2 + bytes / (MOST_BYTES / 2), "{pieces} pieces: packets have two lengths at most");
            }
            prop_assert_eq!(index, message.packets());
        }
    }
}
