//! What is held of the packets of a message.

use crate::codec::{Codec, MAX_PLANES};
use crate::packet::Header;

/// What is held of one packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    pub(crate) header: Header,
    /// Bytes held of each plane, from its beginning. Kept per plane, so that the order of arrival does not matter.
    bytes: [u16; MAX_PLANES as usize],
    /// Whole planes held from plane 0 on.
    leading: u8,
}

/// At what precision a packet is decoded: its first `more` coordinates at `planes + 1` planes, the rest at `planes`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Precision {
    pub(crate) header: Header,
    pub(crate) planes: u8,
    pub(crate) more: usize,
}

impl Held {
    /// Nothing but the head.
    pub(crate) fn new(header: Header) -> Self {
        Self { header, bytes: [0; MAX_PLANES as usize], leading: 0 }
    }

    /// Whether another packet of the same index speaks of the same numbers.
    pub(crate) fn agrees_with(&self, other: &Header) -> bool {
        let head = |h: &Header| (h.sigma.to_bits(), h.kappa, h.peak);
        head(&self.header) == head(other)
    }

    /// Takes in the planes of a body that begins with plane `first`; `slot` is the packet's place for a body that begins with
    /// plane 0. Returns whether anything was not held before.
    pub(crate) fn merge(&mut self, codec: Codec, first: u8, body: &[u8], slot: &mut [u8]) -> bool {
        let n = self.header.coordinates;
        if first == 0 && self.bytes == [0; MAX_PLANES as usize] {
            slot[..body.len()].copy_from_slice(body);
            for plane in 0..codec.planes() {
                let (start, end) = plane_range(codec, plane, n);
                self.bytes[usize::from(plane)] = body.len().clamp(start, end) as u16 - start as u16;
            }
            self.leading = self.count_leading(codec);
            return !body.is_empty();
        }
        let (mut rest, mut gained) = (body, false);
        for plane in first..codec.planes() {
            let (start, end) = plane_range(codec, plane, n);
            let (bytes, tail) = rest.split_at(rest.len().min(end - start));
            if bytes.len() > self.bytes_of(plane) {
                slot[start..start + bytes.len()].copy_from_slice(bytes);
                self.bytes[usize::from(plane)] = bytes.len() as u16;
                gained = true;
            }
            rest = tail;
        }
        self.leading = self.count_leading(codec);
        gained
    }

    /// Whole planes held from plane 0 on.
    pub(crate) fn leading(&self) -> u8 {
        self.leading
    }

    fn count_leading(&self, codec: Codec) -> u8 {
        let n = self.header.coordinates;
        let whole = |&plane: &u8| {
            let (start, end) = plane_range(codec, plane, n);
            self.bytes_of(plane) >= end - start
        };
        (0..codec.planes()).take_while(whole).count() as u8
    }

    /// The precision to decode at when no more than `limit` planes may be used; `None` at 0.
    pub(crate) fn precision(&self, codec: Codec, limit: u8) -> Option<Precision> {
        if limit == 0 {
            return None;
        }
        let leading = self.leading;
        let bits = codec.plane_bits().get(usize::from(leading)).copied().unwrap_or(1);
        let more = if leading < limit { self.bytes_of(leading) * 8 / usize::from(bits) } else { 0 };
        let header = self.header;
        Some(Precision { header, planes: leading.min(limit), more: more.min(header.coordinates) })
    }

    fn bytes_of(&self, plane: u8) -> usize {
        self.bytes.get(usize::from(plane)).copied().unwrap_or_default().into()
    }
}

fn plane_range(codec: Codec, plane: u8, n: usize) -> (usize, usize) {
    (codec.plane_offset(plane, n), codec.plane_offset(plane + 1, n))
}
