//! An encoded message: its packets in one buffer.

use crate::codec::Codec;
use crate::layout::Layout;
use crate::packet::{HEADER_LEN, Header};
use std::ops::Range;

/// The packets of one message, as they go on the wire. Reuse it: a second encode of the same size does not allocate.
#[derive(Debug, Clone, Default)]
pub struct Message {
    /// What was encoded; `None` before the first encoding.
    pub(crate) shape: Option<Shape>,
    pub(crate) bytes: Vec<u8>,
}

/// What decides where packets lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) layout: Layout,
    pub(crate) codec: Codec,
    pub(crate) planes: u8,
}

impl Message {
    /// Number of packets.
    pub fn packets(&self) -> usize {
        self.shape.map_or(0, |shape| shape.layout.packets())
    }

    /// Planes that every packet carries, from 1 to the codec's number; 0 before the first encoding.
    pub fn planes(&self) -> u8 {
        self.shape.map_or(0, |shape| shape.planes)
    }

    /// The codec; the default one before the first encoding.
    pub fn codec(&self) -> Codec {
        self.shape.map_or(Codec::default(), |shape| shape.codec)
    }

    /// A packet's UDP payload; empty beyond the last packet.
    pub fn packet(&self, index: usize) -> &[u8] {
        let Some(Shape { layout, codec, planes }) = self.shape.filter(|_| index < self.packets()) else {
            return &[];
        };
        let start = layout.packet_offset(codec, index, planes);
        self.bytes.get(start..start + layout.packet_len(codec, index, planes)).unwrap_or_default()
    }

    /// A packet's header; `None` beyond the last.
    pub fn header(&self, index: usize) -> Option<Header> {
        Header::parse(self.packet(index)).ok()
    }

    /// Whether a packet is important: switches cut and drop the others first (docs/wire-format.md §7).
    pub fn importance(&self, index: usize) -> bool {
        self.header(index).is_some_and(|header| header.prefix.important)
    }

    /// A packet that carries just `planes` of packet `index`; `None` when the message does not hold any of them.
    pub fn repair(&self, index: usize, planes: Range<u8>) -> Option<Vec<u8>> {
        let (packet, header) = (self.packet(index), self.header(index)?);
        let (codec, n) = (header.codec(), header.coordinates);
        let start = HEADER_LEN + codec.plane_offset(planes.start, n);
        let end = (HEADER_LEN + codec.plane_offset(planes.end, n)).min(packet.len());
        let body = packet.get(start..end).filter(|body| !body.is_empty())?;
        Some([&Header { first_plane: planes.start, ..header }.to_bytes(), body].concat())
    }
}
