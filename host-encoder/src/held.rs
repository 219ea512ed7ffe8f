//! What is held of the packets of a message.

use crate::codec::{Codec, MAX_PLANES};
use crate::head::Head;
use crate::simd::Isa;
use crate::words::WordsMut;

/// What is held of one packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    head: Head,
    /// Coordinates of the packet.
    coordinates: u16,
    /// Bytes held of each plane, from its beginning, unless all are held whole. Kept per plane, so that the order of arrival does not matter.
    bytes: [u16; MAX_PLANES as usize],
    /// Whole planes held from plane 0 on.
    leading: u8,
}

/// At what precision a packet is decoded: its first `more` coordinates at `planes + 1` planes, the rest at `planes`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Precision {
    pub(crate) head: Head,
    pub(crate) planes: u8,
    pub(crate) more: u16,
}

impl Held {
    /// Nothing but the head of a packet of at most 8,160 coordinates.
    pub(crate) fn new(head: Head, coordinates: usize) -> Self {
        Self { head, coordinates: coordinates as u16, bytes: [0; MAX_PLANES as usize], leading: 0 }
    }

    /// What the packet's header says about its coordinates.
    pub(crate) fn head(&self) -> Head {
        self.head
    }

    /// Takes in the planes of a body that begins with plane `first`; `words` are the packet's, which mean nothing yet when it is seen for
    /// the first time. Returns whether anything was not held before.
    #[inline]
    pub(crate) fn merge(
        &mut self,
        isa: Isa,
        codec: Codec,
        first: u8,
        body: &[u8],
        first_sight: bool,
        mut words: WordsMut<'_>,
    ) -> bool {
        // Whole packets are the rule, and nobody asks how much is held of their planes.
        if first == 0 && body.len() == codec.body_len(self.coordinates.into()) {
            words.join(isa, codec, body);
            self.leading = codec.planes();
            return true;
        }
        self.merge_part(isa, codec, first, body, first_sight, words)
    }

    #[inline(never)]
    fn merge_part(
        &mut self,
        isa: Isa,
        codec: Codec,
        first: u8,
        body: &[u8],
        first_sight: bool,
        mut words: WordsMut<'_>,
    ) -> bool {
        let n = usize::from(self.coordinates);
        if first == 0 && self.bytes == [0; MAX_PLANES as usize] {
            words.join(isa, codec, body);
            let mut left = body.len();
            for (bytes, bits) in self.bytes.iter_mut().zip(codec.plane_bits()) {
                let plane = n / 8 * usize::from(*bits);
                *bytes = left.min(plane) as u16;
                self.leading += u8::from(left >= plane);
                left = left.saturating_sub(plane);
            }
            return !body.is_empty();
        }
        if first_sight {
            words.join(isa, codec, &[]);
        }
        let (mut rest, mut gained) = (body, false);
        for plane in first..codec.planes() {
            let (start, end) = plane_range(codec, plane, n);
            let (bytes, tail) = rest.split_at(rest.len().min(end - start));
            let held = self.bytes_of(plane);
            if bytes.len() > held {
                words.add(codec, plane, held..bytes.len(), bytes);
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
        let n = usize::from(self.coordinates);
        let whole = |&plane: &u8| {
            let (start, end) = plane_range(codec, plane, n);
            self.bytes_of(plane) >= end - start
        };
        (0..codec.planes()).take_while(whole).count() as u8
    }

    /// The precision to decode at when no more than `limit` planes may be used; `None` at 0.
    #[inline]
    pub(crate) fn precision(&self, codec: Codec, limit: u8) -> Option<Precision> {
        if limit == 0 {
            return None;
        }
        let Self { head, coordinates, leading, .. } = *self;
        let mut more = 0;
        let held = self.bytes_of(leading);
        if held > 0 && leading < limit {
            let bits = codec.plane_bits().get(usize::from(leading)).copied().unwrap_or(1);
            more = (held * 8 / usize::from(bits)).min(coordinates.into()) as u16;
        }
        Some(Precision { head, planes: leading.min(limit), more })
    }

    fn bytes_of(&self, plane: u8) -> usize {
        self.bytes.get(usize::from(plane)).copied().unwrap_or_default().into()
    }
}

fn plane_range(codec: Codec, plane: u8, n: usize) -> (usize, usize) {
    (codec.plane_offset(plane, n), codec.plane_offset(plane + 1, n))
}
