// SPDX-License-Identifier: Apache-2.0
//! Under whose mask a DATA packet's header is (docs/reference/wire-format.md §1, "The mask").

use std::collections::{BTreeMap, BTreeSet};
use trimwire_encoder::wire::PREFIX_LEN;
use trimwire_encoder::{HEADER_LEN, Header, HeaderMask, Kind, PacketError, Prefix, StreamId};

/// Incarnations whose masks are tried.
#[derive(Debug, Default)]
pub(super) struct Masks {
    /// Of any sender, as the user says.
    given: Vec<u32>,
    /// As control packets say, which name their sender's.
    heard: BTreeMap<StreamId, BTreeSet<u32>>,
}

/// A DATA packet without its mask.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unmasked {
    pub(super) bare: Vec<u8>,
    pub(super) mask: Mask,
}

/// What became of the mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mask {
    /// There is none, or none of those that are known.
    None,
    /// That of an incarnation.
    Of(u32),
    /// The sender's incarnation is not known: the check is made right, the message's number means
    /// nothing.
    Unknown,
}

impl Masks {
    pub(super) fn new(given: &[u32]) -> Self {
        Self { given: given.to_vec(), heard: BTreeMap::new() }
    }

    /// Takes note of whom a control packet is from.
    pub(super) fn hear(&mut self, payload: &[u8]) {
        let Ok(prefix) = Prefix::parse(payload) else { return };
        let from =
            payload.get(PREFIX_LEN..).and_then(<[u8]>::first_chunk).map(|from| u32::from_be_bytes(*from));
        if let (true, Some(from)) = (prefix.kind != Kind::Data, from.filter(|from| *from > 0)) {
            self.heard.entry(prefix.stream).or_default().insert(from);
        }
    }

    /// Takes the mask off a DATA packet of a sender. `captured`: it came from a network, where most
    /// are masked.
    pub(super) fn take_off(&self, sender: StreamId, payload: &[u8], captured: bool) -> Unmasked {
        let bare = |mask| Unmasked { bare: payload.to_vec(), mask };
        let Err(PacketError::Check { expected, .. }) = Header::parse(payload) else {
            return bare(Mask::None);
        };
        let heard = self.heard.get(&sender).into_iter().flatten();
        let mut known = self.given.iter().chain(heard).copied().peekable();
        let unknown = known.peek().is_none();
        let right = known.find(|incarnation| {
            let header = Header::parse_masked(payload, HeaderMask::of(*incarnation));
            !matches!(header, Err(PacketError::Check { .. }))
        });
        let mut out = bare(right.map_or(Mask::None, Mask::Of));
        if let Some(incarnation) = right {
            HeaderMask::of(incarnation).apply(&mut out.bare);
        } else if let (true, true, Some(check)) =
            (captured, unknown, out.bare.get_mut(HEADER_LEN - 2..HEADER_LEN))
        {
            check.copy_from_slice(&expected.to_be_bytes());
            out.mask = Mask::Unknown;
        }
        out
    }
}
