//! An encoded message: its packets in one buffer.

use crate::packet::{HEADER_LEN, Header, PLANES, plane_offset};
use std::ops::Range;

/// The packets of one message, as they go on the wire. Reuse it: a second encode of the same size does not allocate.
#[derive(Debug, Clone, Default)]
pub struct Message {
    pub(crate) planes: u8,
    pub(crate) bytes: Vec<u8>,
    /// Where each packet begins, and behind the last one where it ends.
    pub(crate) offsets: Vec<usize>,
}

impl Message {
    /// Number of packets.
    pub fn packets(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Planes that every packet carries, 1 to 11; 0 before the first encoding.
    pub fn planes(&self) -> u8 {
        self.planes
    }

    /// A packet's UDP payload; empty beyond the last packet.
    pub fn packet(&self, index: usize) -> &[u8] {
        match (self.offsets.get(index), self.offsets.get(index + 1)) {
            (Some(&start), Some(&end)) => self.bytes.get(start..end).unwrap_or_default(),
            _ => &[],
        }
    }

    /// A packet's header; `None` beyond the last.
    pub fn header(&self, index: usize) -> Option<Header> {
        Header::parse(self.packet(index)).ok()
    }

    /// Whether a packet is important (DESIGN §4: its row's energy is not below the median row's).
    pub fn importance(&self, index: usize) -> bool {
        self.header(index).is_some_and(|header| header.prefix.important)
    }

    /// A packet that carries just `planes` of packet `index`; `None` when the message does not hold any of them.
    pub fn repair(&self, index: usize, planes: Range<u8>) -> Option<Vec<u8>> {
        let (packet, header) = (self.packet(index), self.header(index)?);
        let n = header.coordinates;
        let start = HEADER_LEN + plane_offset(planes.start.min(PLANES), n);
        let end = (HEADER_LEN + plane_offset(planes.end.min(PLANES), n)).min(packet.len());
        let body = packet.get(start..end).filter(|body| !body.is_empty())?;
        Some([&Header { first_plane: planes.start, ..header }.to_bytes(), body].concat())
    }
}
