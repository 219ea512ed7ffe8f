// SPDX-License-Identifier: Apache-2.0
//! Packets with tags between their planes (docs/reference/wire-format.md §12), and without.
//!
//! Whoever works on planes sees packets without tags: they are spread out when they are sealed, and
//! put together again when they are believed.

use crate::wire::seal::Sealer;
use crate::wire::{Codec, HEADER_LEN, Header, Layout, TAG_LEN, Tagged};
use std::cell::RefCell;

/// What planes are in a packet, by where the tags go among them.
#[derive(Debug, Clone, Copy)]
struct Part {
    codec: Codec,
    first: u8,
    tagged: Tagged,
}

impl Part {
    /// Planes `first` to `end` (exclusive).
    fn new(codec: Codec, first: u8, end: u8) -> Self {
        Self { codec, first, tagged: codec.tagged_planes(first, end) }
    }

    fn tags(&self) -> usize {
        self.tagged.planes().len()
    }

    /// Where pieces between tags end in a packet of `n` coordinates without tags; as many as there
    /// are tags.
    fn ends(&self, n: usize) -> [usize; 3] {
        let Self { codec, first, tagged } = self;
        let mut ends = [HEADER_LEN; 3];
        for (end, plane) in ends.iter_mut().zip(tagged.planes()) {
            *end += codec.plane_offset(plane + 1, n) - codec.plane_offset(*first, n);
        }
        ends
    }

    /// Length of a packet of `n` coordinates without tags and with them.
    fn lengths(&self, n: usize) -> (usize, usize) {
        let bare = self.tags().checked_sub(1).map_or(HEADER_LEN, |last| self.ends(n)[last]);
        (bare, bare + TAG_LEN * self.tags())
    }

    /// Where the tags begin.
    fn places(&self, n: usize) -> [usize; 3] {
        let mut places = self.ends(n);
        places.iter_mut().enumerate().for_each(|(nth, place)| *place += TAG_LEN * nth);
        places
    }

    /// Moves a packet of `n` coordinates without tags, which begins at byte `at` of `buffer`, to
    /// its front, with room for tags. There have to be as many bytes in front of it as the tags
    /// take.
    fn spread(&self, n: usize, buffer: &mut [u8], at: usize) {
        let mut from = 0;
        for (nth, end) in self.ends(n)[..self.tags()].iter().enumerate() {
            buffer.copy_within(at + from..at + end, from + TAG_LEN * nth);
            from = *end;
        }
    }

    /// Copies the planes that may be believed of a packet that arrived to `body`. Returns whether
    /// any may.
    fn unseal(&self, sealer: &Sealer, n: usize, payload: &[u8], body: &mut Vec<u8>) -> bool {
        let places = self.places(n);
        let places = &places[..self.tags()];
        let believed = sealer.believed(payload, places);
        let mut start = HEADER_LEN;
        for place in places.iter().take_while(|place| **place <= believed) {
            body.extend_from_slice(&payload[start..*place]);
            start = place + TAG_LEN;
        }
        start > HEADER_LEN
    }
}

/// Seals a row's packets where they lie: one behind the other without tags, at the end of
/// `packets`, which they fill with tags.
pub(super) fn seal_row(
    sealer: &Sealer,
    layout: &Layout,
    row: usize,
    (codec, planes): (Codec, u8),
    packets: &mut [u8],
) {
    let part = Part::new(codec, 0, planes);
    let mut at = packets.len() - layout.row_len(codec, row, planes, false);
    let mut rest = packets;
    let mut places = layout.row_places(row).map(|(_, place)| place.len()).peekable();
    while let Some(n) = places.next() {
        let (length, sealed) = part.lengths(n);
        let mut two: [&mut [u8]; 2] = Default::default();
        let mut count = 0;
        while count == 0 || count == 1 && places.next_if_eq(&n).is_some() {
            part.spread(n, rest, at);
            (two[count], rest) = std::mem::take(&mut rest).split_at_mut(sealed);
            at = at + length - sealed;
            count += 1;
        }
        sealer.seal_all(&mut two[..count], &part.places(n)[..part.tags()]);
    }
}

thread_local! {
    static BODY: RefCell<Vec<u8>> = RefCell::default();
}

/// Lends `work` the planes of a sealed packet that may be believed; `None` where that is none.
/// `planes` are those that are sent.
///
/// A packet does not say how many planes it had when it was sent. Usually that is what is sent, or,
/// of a repair, what its length tells; if the tag that would be last then is wrong, the packet was
/// trimmed to such a length by chance.
pub(super) fn with_believed<T>(
    sealer: &Sealer,
    header: &Header,
    planes: u8,
    payload: &[u8],
    work: impl FnOnce(&[u8]) -> T,
) -> Option<T> {
    let (codec, n, first) = (header.codec(), header.coordinates, header.first_plane);
    let part = |end| Part::new(codec, first, end);
    let sent = part(planes.max(first + 1));
    let of_this_length = |part: &Part| part.lengths(n).1 == payload.len();
    let mut body = BODY.take();
    body.clear();
    let believed = !of_this_length(&sent)
        && (first + 1..=codec.planes())
            .map(part)
            .find(of_this_length)
            .is_some_and(|part| part.unseal(sealer, n, payload, &mut body))
        || sent.unseal(sealer, n, payload, &mut body);
    let result = believed.then(|| work(&body));
    BODY.replace(body);
    result
}

/// A packet of some planes of a sealed one, sealed itself; `None` where it has none of them.
pub(super) fn repair(
    sealer: &Sealer,
    sealed: &[u8],
    planes: std::ops::Range<u8>,
    sent: u8,
) -> Option<Vec<u8>> {
    let header = Header::parse(sealed).ok()?;
    let (codec, n) = (header.codec(), header.coordinates);
    let mut believed = Vec::new();
    if !Part::new(codec, 0, sent).unseal(sealer, n, sealed, &mut believed) {
        return None;
    }
    let end = planes.end.min(sent);
    let part = Part::new(codec, planes.start, end);
    let body = believed.get(codec.plane_offset(planes.start, n)..codec.plane_offset(end, n))?;
    if body.is_empty() {
        return None;
    }
    let (length, sealed) = part.lengths(n);
    let mut out = vec![0; sealed - length];
    out.extend_from_slice(&Header { first_plane: planes.start, ..header }.to_bytes());
    out.extend_from_slice(body);
    part.spread(n, &mut out, sealed - length);
    sealer.seal(&mut out, &part.places(n)[..part.tags()]);
    Some(out)
}
