//! An encoded message: its packets in one buffer.

use crate::packet::{HEADER_LEN, Header, PLANES, plane_offset};

/// The packets of one message, as they go on the wire. Reuse it: a second encode of the same size does not allocate.
#[derive(Debug, Clone, Default)]
pub struct Message {
    pub(crate) bytes: Vec<u8>,
    /// Where each packet begins, and behind the last one where it ends.
    pub(crate) offsets: Vec<usize>,
}

impl Message {
    /// Number of packets.
    pub fn packets(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// A packet's UDP payload; `None` beyond the last.
    pub fn packet(&self, index: usize) -> Option<&[u8]> {
        self.bytes.get(*self.offsets.get(index)?..*self.offsets.get(index + 1)?)
    }

    /// A packet's header; `None` beyond the last.
    pub fn header(&self, index: usize) -> Option<Header> {
        Header::parse(self.packet(index)?).ok()
    }

    /// Whether a packet is important (DESIGN §4: its row's energy is not below the median row's).
    pub fn importance(&self, index: usize) -> bool {
        self.header(index).is_some_and(|header| header.prefix.important)
    }

    /// A packet that carries just the planes `first_plane .. end_plane` of packet `index`, appended to `out`.
    /// False, and nothing appended, when there are no such planes.
    pub fn repair(&self, index: usize, first_plane: u8, end_plane: u8, out: &mut Vec<u8>) -> bool {
        let (Some(packet), Some(header)) = (self.packet(index), self.header(index)) else { return false };
        let n = header.coordinates;
        let start = HEADER_LEN + plane_offset(first_plane.min(PLANES), n);
        let end = (HEADER_LEN + plane_offset(end_plane.min(PLANES), n)).min(packet.len());
        if first_plane >= PLANES || start >= end {
            return false;
        }
        out.extend_from_slice(&Header { first_plane, ..header }.to_bytes());
        out.extend_from_slice(&packet[start..end]);
        true
    }
}
