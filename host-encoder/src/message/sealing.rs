//! Packets with tags between their planes (docs/wire-format.md §12), and without.
//!
//! Whoever works on planes sees packets without tags: they are spread out when they are sealed, and put together again when they are believed.

use crate::simd::Ahead;
use crate::wire::seal::Sealer;
use crate::wire::{Codec, HEADER_LEN, Header, Layout, TAG_LEN};
use std::cell::RefCell;

/// The planes of a packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) codec: Codec,
    /// Coordinates.
    pub(super) n: usize,
    /// First plane, and the one behind the last.
    pub(super) first: u8,
    pub(super) end: u8,
}

impl Part {
    /// Where pieces between tags end in a packet without tags.
    fn pieces(&self) -> ([usize; 3], usize) {
        let Self { codec, n, first, end } = *self;
        let tagged = codec.tagged_planes(first, end);
        let mut ends = [0; 3];
        for (to, plane) in ends.iter_mut().zip(tagged.planes()) {
            *to = HEADER_LEN + codec.plane_offset(plane + 1, n) - codec.plane_offset(first, n);
        }
        (ends, tagged.planes().len())
    }

    /// Length without tags and with them.
    fn lengths(&self) -> (usize, usize) {
        let (ends, count) = self.pieces();
        let bare = ends[..count].last().copied().unwrap_or(HEADER_LEN);
        (bare, bare + TAG_LEN * count)
    }

    /// Copies a packet without tags to `out`, as long as it is with them, and seals it.
    pub(super) fn seal(&self, sealer: &Sealer, bare: &[u8], out: &mut [u8]) {
        let (ends, count) = self.pieces();
        let (mut from, mut places) = (0, [0; 3]);
        for (nth, end) in ends[..count].iter().enumerate() {
            let to = from + TAG_LEN * nth;
            places[nth] = to + end - from;
            out[to..places[nth]].copy_from_slice(&bare[from..*end]);
            from = *end;
        }
        sealer.seal(out, &places[..count]);
    }

    /// Copies what may be believed of a packet that arrived to `bare`, without tags. Returns whether anything may.
    fn unseal(&self, sealer: &Sealer, payload: &[u8], bare: &mut Vec<u8>) -> bool {
        let (ends, count) = self.pieces();
        let mut places = ends;
        places.iter_mut().enumerate().for_each(|(nth, place)| *place += TAG_LEN * nth);
        let believed = sealer.believed(payload, &places[..count]);
        let (mut from, mut start) = (0, 0);
        for (place, end) in places[..count].iter().zip(ends) {
            if *place > believed {
                break;
            }
            bare.extend_from_slice(&payload[start..*place]);
            (from, start) = (end, place + TAG_LEN);
        }
        from > 0
    }
}

/// Seals a row's packets, which lie one behind the other in `bare` and will in `out`.
pub(super) fn seal_row(
    sealer: &Sealer,
    layout: &Layout,
    row: usize,
    (codec, planes): (Codec, u8),
    bare: &[u8],
    out: &mut [u8],
) {
    let (mut bare, mut out) = (bare, out);
    for (_, place) in layout.row_places(row) {
        let part = Part { codec, n: place.len(), first: 0, end: planes };
        let (length, sealed) = part.lengths();
        let (from, rest) = bare.split_at(length);
        let (to, tail) = out.split_at_mut(sealed);
        // Where the next packet goes: a tag takes long enough for memory to come.
        Ahead::new(&tail[..sealed.min(tail.len())]).rest();
        part.seal(sealer, from, to);
        (bare, out) = (rest, tail);
    }
}

thread_local! {
    static BARE: RefCell<Vec<u8>> = RefCell::default();
}

/// Lends `work` what may be believed of a sealed packet, without tags; `None` where that is nothing. `planes` are those that are sent.
///
/// A packet does not say how many planes it had when it was sent. Usually that is what is sent, or, of a repair, what its length tells;
/// if the tag that would be last then is wrong, the packet was cut to such a length by chance.
pub(super) fn with_believed<T>(
    sealer: &Sealer,
    header: &Header,
    planes: u8,
    payload: &[u8],
    work: impl FnOnce(&[u8]) -> T,
) -> Option<T> {
    let (codec, n, first) = (header.codec(), header.coordinates, header.first_plane);
    let part = |end| Part { codec, n, first, end };
    let whole = (first + 1..=codec.planes()).map(part).find(|part| part.lengths().1 == payload.len());
    let sent = part(planes.max(first + 1));
    let mut bare = BARE.take();
    bare.clear();
    let believed = whole.is_some_and(|part| part.unseal(sealer, payload, &mut bare))
        || sent.unseal(sealer, payload, &mut bare);
    let result = believed.then(|| work(&bare));
    BARE.replace(bare);
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
    let mut bare = Vec::new();
    if !(Part { codec, n, first: 0, end: sent }).unseal(sealer, sealed, &mut bare) {
        return None;
    }
    let end = planes.end.min(sent);
    let part = Part { codec, n, first: planes.start, end };
    let body =
        bare.get(HEADER_LEN + codec.plane_offset(planes.start, n)..HEADER_LEN + codec.plane_offset(end, n))?;
    if body.is_empty() {
        return None;
    }
    let repair = [&Header { first_plane: planes.start, ..header }.to_bytes(), body].concat();
    let mut out = vec![0; part.lengths().1];
    part.seal(sealer, &repair, &mut out);
    Some(out)
}
