// SPDX-License-Identifier: Apache-2.0
//! What is held of one packet.

use super::precision::Precision;
use super::words::WordsMut;
use crate::quantise::statistics::Statistics;
use crate::simd::Isa;
use crate::wire::{Codec, MAX_PLANES};

/// What is held of one packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reception {
    statistics: Statistics,
    /// Coordinates of the packet.
    coordinates: u16,
    /// Bytes held of each plane, from its beginning, unless all are held whole. Kept per plane, so
    /// that the order of arrival does not matter.
    bytes: [u16; MAX_PLANES as usize],
    /// Whole planes held from plane 0 on.
    leading: u8,
}

impl Reception {
    /// Nothing but the header of a packet of at most 8,160 coordinates.
    pub(crate) fn new(statistics: Statistics, coordinates: usize) -> Self {
        Self { statistics, coordinates: coordinates as u16, bytes: [0; MAX_PLANES as usize], leading: 0 }
    }

    /// What the packet's header says about its coordinates.
    pub(crate) fn statistics(&self) -> Statistics {
        self.statistics
    }

    /// Takes in the planes of a body that begins with plane `first`; `words` are the packet's,
    /// which mean nothing yet when it is seen for the first time. Returns whether anything was not
    /// held before.
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
        if first_sight && codec.rotates() {
            words.zeros_of(self.statistics.zeros);
        }
        if codec == Codec::Rht && first == 0 && body.len() == codec.body_len(self.coordinates.into()) {
            words.join(isa, body);
            self.leading = codec.planes();
            return true;
        }
        if codec == Codec::Raw && body.len() == codec.body_len(self.coordinates.into()) {
            words.add_raw(isa, 0..body.len(), body);
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
        if codec == Codec::Rht && first == 0 && self.bytes == [0; MAX_PLANES as usize] {
            words.join(isa, body);
            let mut left = body.len();
            for (plane, bytes) in (0..codec.planes()).zip(&mut self.bytes) {
                let length = codec.plane_len(plane, n);
                *bytes = left.min(length) as u16;
                self.leading += u8::from(left >= length);
                left = left.saturating_sub(length);
            }
            return !body.is_empty();
        }
        if first_sight {
            words.clear();
        }
        let (mut rest, mut gained) = (body, false);
        for plane in first..codec.planes() {
            let (bytes, tail) = rest.split_at(rest.len().min(codec.plane_len(plane, n)));
            let held = self.bytes_of(plane);
            if bytes.len() > held {
                words.add(isa, codec, plane, held..bytes.len(), bytes);
                self.bytes[usize::from(plane)] = bytes.len() as u16;
                gained = true;
            }
            rest = tail;
        }
        let whole = |&plane: &u8| self.bytes_of(plane) >= codec.plane_len(plane, n);
        self.leading = (0..codec.planes()).take_while(whole).count() as u8;
        gained
    }

    /// As [`Self::merge`], into the bytes of the packet's planes, of as many as there is room for.
    pub(crate) fn keep(&mut self, codec: Codec, first: u8, body: &[u8], room: &mut [u8]) -> bool {
        let n = usize::from(self.coordinates);
        let (mut rest, mut gained) = (body, false);
        for plane in first..codec.planes() {
            let (bytes, tail) = rest.split_at(rest.len().min(codec.plane_len(plane, n)));
            let (held, at) = (self.bytes_of(plane), codec.plane_offset(plane, n));
            let Some(to) = room.get_mut(at + held..at + bytes.len()).filter(|to| !to.is_empty()) else {
                rest = tail;
                continue;
            };
            to.copy_from_slice(&bytes[held..]);
            self.bytes[usize::from(plane)] = bytes.len() as u16;
            gained = true;
            rest = tail;
        }
        let whole = |&plane: &u8| self.bytes_of(plane) >= codec.plane_len(plane, n);
        self.leading = (0..codec.planes()).take_while(whole).count() as u8;
        gained
    }

    /// Whole planes held from plane 0 on.
    pub(crate) fn leading(&self) -> u8 {
        self.leading
    }

    /// Bytes held of the planes, from the first one on without a gap.
    pub(crate) fn prefix(&self, codec: Codec) -> usize {
        codec.plane_offset(self.leading, self.coordinates.into()) + self.bytes_of(self.leading)
    }

    /// The precision to decode at when no more than `limit` planes may be used, none at 0, and no
    /// more than the first `most` bytes of all planes; [`u16::MAX`] is more than a packet has.
    /// `None` where nothing may be used.
    #[inline]
    pub(crate) fn precision(&self, codec: Codec, limit: u8, most: u16) -> Option<Precision> {
        if limit == 0 {
            return None;
        }
        let Self { statistics, coordinates, leading, .. } = *self;
        let n = usize::from(coordinates);
        let (mut planes, mut more) = (leading, 0);
        if most < u16::MAX {
            let reach = codec.reach(self.prefix(codec).min(most.into()), n);
            (planes, more) = (reach.planes, reach.more);
        } else if self.bytes_of(leading) > 0 {
            let bits = codec.plane_bits().get(usize::from(leading)).copied().unwrap_or(1);
            let mask = if leading == 0 { codec.mask_len(n) } else { 0 };
            more = self.bytes_of(leading).saturating_sub(mask) * 8 / usize::from(bits);
        }
        let mask = codec.mask_len(n);
        let zeros = mask == 0 || self.prefix(codec).min(most.into()) >= mask;
        if planes >= limit {
            (planes, more) = (limit, 0);
        }
        Some(Precision { statistics, planes, more: more.min(n) as u16, zeros })
    }

    fn bytes_of(&self, plane: u8) -> usize {
        self.bytes.get(usize::from(plane)).copied().unwrap_or_default().into()
    }
}
