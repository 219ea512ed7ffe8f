// SPDX-License-Identifier: Apache-2.0
//! A sparse message under reception.

use super::Entry;
use super::code::read;
use super::error::SparsePacketError;
use super::header::{SPARSE_HEAD_LEN, SparseHeader};
use super::layout::SparseLayout;
use crate::element::Element;
use crate::message::OutputError;
use crate::wire::{Envelope, PacketError};
use std::collections::BTreeMap;

/// What a packet added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SparseReceipt {
    /// Its index.
    pub index: usize,
    /// Entries held before.
    pub entries_before: usize,
    /// Entries held now.
    pub entries_now: usize,
    /// The packet brought nothing that was not held already.
    pub duplicate: bool,
    /// The packet completed the message: all entries of all packets are held now.
    pub completed: bool,
}

/// How the packets of a message fared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SparseStats {
    /// Packets of which all entries are held.
    pub full: usize,
    /// Packets of which some entries, if none but the heads, are held.
    pub cut: usize,
    /// Packets of which nothing is; `None` as long as no packet said how many there are.
    pub missing: Option<usize>,
}

/// Collects the packets of one message, whole or cut, in any order, and decodes it: a coordinate of which an entry arrived is that entry's value, exactly; every other one is zero.
///
/// It takes no memory but for entries that arrived, whatever packets say.
#[derive(Debug, Clone)]
pub struct SparseReceiver {
    layout: SparseLayout,
    envelope: Envelope,
    /// By index, and so by coordinates, too.
    held: BTreeMap<u32, Held>,
    /// Packets of the message, as soon as one said it.
    packets: Option<u32>,
    full: usize,
    not_finite: bool,
    /// Entries that may be used, by index, where they are limited.
    limits: BTreeMap<u32, usize>,
    /// Room for entries, of earlier messages.
    spare: Vec<Vec<Entry>>,
    /// Entries of the packet that is looked at.
    read: Vec<Entry>,
    /// Their places, sorted.
    places: Vec<u32>,
}

#[derive(Debug, Clone)]
struct Held {
    header: SparseHeader,
    entries: Vec<Entry>,
}

impl SparseReceiver {
    /// A receiver for the message that the sender of `envelope` encodes in the same layout.
    pub fn new(layout: SparseLayout, envelope: Envelope) -> Self {
        Self {
            layout,
            envelope,
            held: BTreeMap::new(),
            packets: None,
            full: 0,
            not_finite: false,
            limits: BTreeMap::new(),
            spare: Vec::new(),
            read: Vec::new(),
            places: Vec::new(),
        }
    }

    /// Forgets all packets and limits and expects another message of the same layout; keeps the room of entries.
    pub fn reset(&mut self, envelope: Envelope) {
        while let Some((_, held)) = self.held.pop_first() {
            self.spare.push(held.entries);
        }
        self.limits.clear();
        (self.envelope, self.packets, self.full, self.not_finite) = (envelope, None, 0, false);
    }

    /// The message's layout.
    pub fn layout(&self) -> &SparseLayout {
        &self.layout
    }

    /// Which message is expected.
    pub fn envelope(&self) -> Envelope {
        self.envelope
    }

    /// Takes the UDP payload of a DATA packet in. Its length is what arrived; nothing is changed on an error.
    pub fn receive(&mut self, payload: &[u8]) -> Result<SparseReceipt, SparsePacketError> {
        let header = SparseHeader::parse(payload)?;
        self.check(&header)?;
        let index = header.index;
        self.read.clear();
        read(&header, payload.get(SPARSE_HEAD_LEN..).unwrap_or_default(), &mut self.read)
            .map_err(|_| SparsePacketError::Code { index, entry: self.read.len() })?;
        // Keys differ, but a packet that nobody encoded may have one place at several levels.
        self.places.clear();
        self.places.extend(self.read.iter().map(|entry| entry.index));
        self.places.sort_unstable();
        if let Some(twice) = self.places.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(SparsePacketError::Twice { index, coordinate: twice[0] });
        }
        let now = self.read.len();
        let before = if let Some(held) = self.held.get_mut(&index) {
            let before = held.entries.len();
            // Of two cuts of one packet, one begins with the other.
            let common = before.min(now);
            if held.entries[..common] != self.read[..common] {
                return Err(PacketError::Contradiction(index).into());
            }
            held.entries.extend_from_slice(&self.read[common..]);
            Some(before)
        } else {
            let mut entries = self.spare.pop().unwrap_or_default();
            entries.clear();
            entries.extend_from_slice(&self.read);
            self.held.insert(index, Held { header, entries });
            None
        };
        self.packets = Some(header.packets);
        self.not_finite |= header.is_not_finite();
        let filled = now == header.entries && before.is_none_or(|before| before < now);
        self.full += usize::from(filled);
        let entries_before = before.unwrap_or(0);
        Ok(SparseReceipt {
            index: index as usize,
            entries_before,
            entries_now: entries_before.max(now),
            duplicate: before.is_some_and(|before| now <= before),
            completed: filled && self.is_complete(),
        })
    }

    /// Whether the packet is of this message, and goes with those that are held.
    fn check(&self, header: &SparseHeader) -> Result<(), SparsePacketError> {
        let got = header.prefix.envelope();
        if got != self.envelope {
            return Err(PacketError::OtherMessage { got, expected: self.envelope }.into());
        }
        let SparseHeader { index, first, last, packets: got, .. } = *header;
        let run = self.layout.run(first);
        let Some(run) = run.filter(|run| first <= last && u64::from(last) < run.coordinates.end) else {
            let coordinates = self.layout.coordinates();
            return Err(SparsePacketError::Range { index, first, last, coordinates });
        };
        let (class, expected) = (header.prefix.layer_class, run.layer_class);
        if class != expected {
            return Err(PacketError::LayerClass { index, got: class, expected }.into());
        }
        if let Some(expected) = self.packets.filter(|packets| *packets != got) {
            return Err(SparsePacketError::Packets { index, got, expected });
        }
        if let Some(held) = self.held.get(&index) {
            // Its range was checked when it came.
            let same = held.header.is_of_one_packet_with(header);
            return if same { Ok(()) } else { Err(PacketError::Contradiction(index).into()) };
        }
        let below = self.held.range(..index).next_back().filter(|(_, held)| held.header.last >= first);
        let above = self.held.range(index..).next().filter(|(_, held)| held.header.first <= last);
        match below.or(above) {
            Some((&other, _)) => Err(SparsePacketError::Overlap { index, first, last, other }),
            None => Ok(()),
        }
    }

    /// Packets of the message, as soon as one of them arrived.
    pub fn packets(&self) -> Option<usize> {
        self.packets.map(|packets| packets as usize)
    }

    /// Whether all entries of all packets are held.
    pub fn is_complete(&self) -> bool {
        self.packets() == Some(self.full)
    }

    /// Entries held of a packet.
    pub fn coverage(&self, index: usize) -> usize {
        self.held_at(index).map_or(0, |held| held.entries.len())
    }

    /// Whether anything, if only its heads, arrived of a packet.
    pub fn arrived(&self, index: usize) -> bool {
        self.held_at(index).is_some()
    }

    fn held_at(&self, index: usize) -> Option<&Held> {
        self.held.get(&u32::try_from(index).ok()?)
    }

    /// Decodes a packet as if no more than its first `entries` entries had arrived (replica-consistent decoding). An index that no packet has is ignored; so are limits where the message
    /// is not finite.
    pub fn limit(&mut self, index: usize, entries: usize) {
        if let Ok(index) = u32::try_from(index) {
            self.limits.insert(index, entries);
        }
    }

    /// How the packets fared.
    pub fn stats(&self) -> SparseStats {
        let arrived = self.held.len();
        SparseStats {
            full: self.full,
            cut: arrived - self.full,
            missing: self.packets().map(|packets| packets - arrived),
        }
    }

    /// What arrived, within limits: packet by packet, in each by magnitude. None of a message that is not finite.
    pub fn entries(&self) -> impl Iterator<Item = Entry> {
        self.held.iter().flat_map(|(index, held)| {
            let limit = self.limits.get(index).copied().unwrap_or(usize::MAX);
            held.entries.iter().take(limit).copied()
        })
    }

    /// Decodes what there is into `out` (shape: `layout.coordinates()`).
    pub fn decode_into<E: Element>(&self, out: &mut [E]) -> Result<(), OutputError> {
        self.check_output(out)?;
        out.fill(E::ZERO);
        self.put(out, |value, out| E::narrow(&[value], out));
        Ok(())
    }

    /// Decodes what there is and adds it to `out`, as a reducer does; otherwise as [`Self::decode_into`]. Touches no coordinates but those that arrived.
    pub fn add_into<E: Element>(&self, out: &mut [E]) -> Result<(), OutputError> {
        self.check_output(out)?;
        self.put(out, |value, out| E::add(&[value], out));
        Ok(())
    }

    fn check_output<E>(&self, out: &[E]) -> Result<(), OutputError> {
        let expected = self.layout.coordinates();
        if out.len() == expected { Ok(()) } else { Err(OutputError { got: out.len(), expected }) }
    }

    fn put<E: Element>(&self, out: &mut [E], put: impl Fn(f32, &mut [E])) {
        if self.not_finite {
            out.fill(E::NAN);
            return;
        }
        for Entry { index, value } in self.entries() {
            let at = index as usize;
            if let Some(out) = out.get_mut(at..=at) {
                put(value, out);
            }
        }
    }
}
