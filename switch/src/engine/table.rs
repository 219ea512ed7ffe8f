// SPDX-License-Identifier: Apache-2.0
//! Match-action tables: what they match on, their entries, and finding the entry for a packet.
//!
//! Keys are packed into limbs. Exact and longest-prefix tables are one hash map per mask, longest
//! prefix first; a table with ternary or range keys is a tuple space (see `tuples`).

pub(super) mod call;
pub(super) mod compile;
pub(super) mod key;
mod tuples;

use std::collections::BTreeSet;
use std::ops::Range;

use super::calculation::{Inputs, Scratch};
use super::entity::{CounterValue, MatchKind, TableEntry, TableInfo};
use super::hasher::FixedMap;
use super::layout::{Layout, Slot};
use super::meter::{Meter, MeterUnit};
use super::profile::Profile;
use call::{Call, Target};
use key::CompiledKey;
use tuples::{Rank, TupleSpace};

/// One key of a table.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) slot: Slot,
    /// A constant mask that the program applies to the field.
    pub(super) mask: Option<Box<[u64]>>,
    /// The limb with the validity of the field's header: a field of a header that is not valid
    /// reads as 0 here.
    pub(super) valid: Option<usize>,
    pub(super) kind: MatchKind,
}

impl Key {
    fn is_there(&self, phv: &[u64]) -> bool {
        self.valid.is_none_or(|valid| phv[valid] != 0)
    }

    /// The first limb, masked: all of a field of at most 64 bits.
    fn word(&self, phv: &[u64]) -> u64 {
        let mask = self.mask.as_ref().map_or(u64::MAX, |mask| mask[0]);
        if self.is_there(phv) { phv[self.slot.at as usize] & mask } else { 0 }
    }

    /// Appends the limbs, masked.
    pub(super) fn extend(&self, phv: &[u64], key: &mut Vec<u64>) {
        let at = key.len();
        key.extend_from_slice(&phv[self.slot.limbs()]);
        if !self.is_there(phv) {
            key[at..].fill(0);
        } else if let Some(mask) = &self.mask {
            key[at..].iter_mut().zip(mask).for_each(|(limb, mask)| *limb &= mask);
        }
    }
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_field_names, reason = "the control plane's entry inside the data plane's")]
pub(super) struct Entry {
    /// As the control plane wrote it, in canonical form.
    pub(super) entry: TableEntry,
    pub(super) key: CompiledKey,
    pub(super) target: Target,
    pub(super) direct: Direct,
    pub(super) is_const: bool,
    pub(super) idle: Idle,
}

/// An entry's own counter and meter, used where its table has them.
#[derive(Clone, Debug, Default)]
pub(super) struct Direct {
    pub(super) counter: CounterValue,
    pub(super) meter: Meter,
}

/// An entry's idle time-out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Idle {
    /// 0 for none.
    pub(super) timeout_ns: u64,
    /// Tells this time-out from those that the handle had before.
    pub(super) generation: u64,
    pub(super) last_hit_ns: u64,
    /// The last hit of the idle period that was reported last.
    pub(super) reported: Option<u64>,
}

/// Where to go on after a table.
#[derive(Clone, Debug)]
pub(super) enum NextNodes {
    HitMiss { hit: Option<u32>, miss: Option<u32> },
    ByAction(Vec<(u32, Option<u32>)>),
}

/// The entries that share a mask.
#[derive(Clone, Debug)]
struct Level<K> {
    prefix_len: u32,
    mask: K,
    entries: FixedMap<K, u32>,
}

#[derive(Clone, Debug)]
enum Index {
    /// Keys of at most 64 bits, packed into one limb.
    Narrow(Vec<Level<u64>>),
    Wide(Vec<Level<Box<[u64]>>>),
    Tuples(TupleSpace),
}

#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) info: TableInfo,
    pub(super) keys: Vec<Key>,
    /// All keys fit one limb together.
    pub(super) packed: bool,
    /// Indices of the actions that entries may call, in the order of `info.actions`.
    pub(super) actions: Vec<u32>,
    pub(super) profile: Option<u32>,
    pub(super) next: NextNodes,
    pub(super) base_next: Option<u32>,
    pub(super) direct_meter: Option<(MeterUnit, Slot)>,
    pub(super) default: Option<Target>,
    pub(super) program_default: Option<Target>,
    pub(super) default_is_const: bool,
    /// The default entry's.
    pub(super) default_direct: Direct,
    pub(super) entries: Vec<Option<Entry>>,
    free: BTreeSet<u32>,
    by_key: FixedMap<Box<[u64]>, u32>,
    index: Index,
    /// Handles by key, where that is exact, short, and worth the memory; [`NOTHING`] where there is
    /// none.
    direct: Vec<u32>,
}

/// Widest key that is an index of an array, bits; what the array may take for each entry, bytes;
/// and no entry.
const DIRECT_BITS: u32 = 16;
const DIRECT_BYTES: usize = 1024;
const NOTHING: u32 = u32::MAX;

/// The result of a look-up: the entry's handle, if there is one.
pub(super) type Hit = Option<u32>;

impl Table {
    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Entries are found by priority.
    pub(super) fn has_priority(&self) -> bool {
        matches!(self.index, Index::Tuples(_))
    }

    pub(super) fn find(&self, key: &CompiledKey, priority: i32) -> Option<u32> {
        self.by_key.get(&key.identity(priority)[..]).copied()
    }

    /// The lowest free handle, which BMv2 takes: ties in priority go to the lower one.
    pub(super) fn free_place(&self) -> u32 {
        self.free.first().copied().unwrap_or(self.entries.len() as u32)
    }

    /// Whether another table of the same name and program does the same with every packet, and
    /// nothing in it changes as packets come.
    pub(super) fn holds_what(&self, other: &Self) -> bool {
        let same = |own: &Option<Entry>, other: &Option<Entry>| match (own, other) {
            (Some(own), Some(other)) => {
                own.entry == other.entry
                    && own.target == other.target
                    && own.key == other.key
                    && own.is_const == other.is_const
            }
            (own, other) => own.is_none() && other.is_none(),
        };
        !self.notes_packets()
            && self.default == other.default
            && self.entries.len() == other.entries.len()
            && self.entries.iter().zip(&other.entries).all(|(own, other)| same(own, other))
    }

    /// Whether counters, meters or ages change as packets come.
    #[inline]
    pub(super) fn notes_packets(&self) -> bool {
        self.info.has_counter || self.info.has_idle_timeout || self.direct_meter.is_some()
    }

    /// Actions that an entry or a default may call, now or after any write.
    pub(super) fn callable(&self, profiles: &[Profile]) -> Vec<u32> {
        let default = match &self.program_default {
            Some(Target::Call(call)) => Some(call.action),
            _ => None,
        };
        let profile = self.profile.and_then(|profile| profiles.get(profile as usize));
        let members = profile.map_or(&[][..], |profile| &profile.actions);
        let all: BTreeSet<u32> = self.actions.iter().chain(members).copied().chain(default).collect();
        all.into_iter().collect()
    }

    /// No fewer than [`callable`](Self::callable) gives, without a look at them.
    pub(super) fn calls(&self, profiles: &[Profile]) -> usize {
        let profile = self.profile.and_then(|profile| profiles.get(profile as usize));
        self.actions.len() + profile.map_or(0, |profile| profile.actions.len()) + 1
    }

    /// The limbs that say which action a packet meets; `None` where more than those does, or time
    /// has a part in it.
    pub(super) fn reads(&self, profiles: &[Profile], layout: &Layout) -> Option<Vec<Range<usize>>> {
        if self.direct_meter.is_some() {
            return None;
        }
        let mut limbs = Vec::new();
        for key in &self.keys {
            limbs.push(key.slot.limbs());
            limbs.extend(key.valid.map(|valid| valid..valid + 1));
        }
        let profile = self.profile.and_then(|profile| profiles.get(profile as usize));
        if let Some(selector) = profile.and_then(|profile| profile.selector.as_ref()) {
            limbs.extend(selector.limbs(layout)?);
        }
        Some(limbs)
    }

    /// Adds an entry at a free place.
    pub(super) fn put(&mut self, handle: u32, entry: Entry) {
        self.free.remove(&handle);
        let priority = entry.entry.priority;
        self.by_key.insert(entry.key.identity(priority).into(), handle);
        let (value, mask) = (&entry.key.value, &entry.key.mask);
        match &mut self.index {
            Index::Narrow(levels) => {
                let (value, mask) = (value[0], mask[0]);
                level(levels, mask, entry.key.prefix_len).entries.insert(value & mask, handle);
            }
            Index::Wide(levels) => {
                level(levels, mask.clone(), entry.key.prefix_len).entries.insert(value.clone(), handle);
            }
            Index::Tuples(tuples) => tuples.add(value, mask, Rank::new(priority, handle)),
        }
        let key = entry.key.value[0] & entry.key.mask[0];
        match self.entries.get_mut(handle as usize) {
            Some(place) => *place = Some(entry),
            None => self.entries.push(Some(entry)),
        }
        if let Some(place) = self.direct.get_mut(key as usize) {
            *place = handle;
        } else {
            self.index_directly();
        }
    }

    /// Makes keys places in an array, as soon as there are entries enough.
    fn index_directly(&mut self) {
        let Index::Narrow(levels) = &self.index else { return };
        let bits: u32 = self.keys.iter().map(|key| key.slot.width).sum();
        let exact = self.keys.iter().all(|key| key.kind == MatchKind::Exact);
        if !exact || bits > DIRECT_BITS || (size_of::<u32>() << bits) > DIRECT_BYTES * (self.len() + 8) {
            return;
        }
        self.direct = vec![NOTHING; 1 << bits];
        for (key, handle) in levels.iter().flat_map(|level| &level.entries) {
            if let Some(place) = self.direct.get_mut(*key as usize) {
                *place = *handle;
            }
        }
    }

    /// Brings a place back to what it was.
    pub(super) fn restore(&mut self, handle: u32, before: Option<Entry>) {
        self.remove(handle);
        if let Some(entry) = before {
            self.put(handle, entry);
        }
    }

    pub(super) fn remove(&mut self, handle: u32) -> Option<Entry> {
        let entry = self.entries.get_mut(handle as usize)?.take()?;
        self.free.insert(handle);
        self.by_key.remove(&entry.key.identity(entry.entry.priority)[..]);
        if let Some(place) = self.direct.get_mut((entry.key.value[0] & entry.key.mask[0]) as usize) {
            *place = NOTHING;
        }
        match &mut self.index {
            Index::Narrow(levels) => {
                let mask = entry.key.mask[0];
                level(levels, mask, entry.key.prefix_len).entries.remove(&(entry.key.value[0] & mask));
                levels.retain(|level| !level.entries.is_empty());
            }
            Index::Wide(levels) => {
                let mask = entry.key.mask.clone();
                level(levels, mask, entry.key.prefix_len).entries.remove(&entry.key.value);
                levels.retain(|level| !level.entries.is_empty());
            }
            Index::Tuples(tuples) => {
                tuples.remove(&entry.key.value, &entry.key.mask, Rank::new(entry.entry.priority, handle));
            }
        }
        Some(entry)
    }

    /// The entry that matches the packet. `key` and `masked` are scratch space.
    pub(super) fn lookup(&self, phv: &[u64], key: &mut Vec<u64>, masked: &mut Vec<u64>) -> Hit {
        if self.keys.is_empty() || self.len() == 0 {
            return None;
        }
        if self.packed {
            let word = self.keys.iter().fold(0, |word, key| shift_in(word, key.slot.width) | key.word(phv));
            return self.lookup_word(word, masked);
        }
        key.clear();
        self.keys.iter().for_each(|part| part.extend(phv, key));
        match &self.index {
            Index::Narrow(_) => None,
            Index::Wide(levels) => levels.iter().find_map(|level| {
                masked.clear();
                masked.extend(key.iter().zip(&level.mask).map(|(key, mask)| key & mask));
                level.entries.get(&masked[..]).copied()
            }),
            Index::Tuples(tuples) => self.in_tuples(tuples, key, masked),
        }
    }

    /// The keys, where they are one word together, from the high end on.
    #[cfg(feature = "native")]
    pub(super) fn word_keys(&self) -> Option<&[Key]> {
        (self.packed && !self.keys.is_empty()).then_some(&self.keys[..])
    }

    /// The entry that matches the word of its [keys](Self::word_keys). `masked` is scratch space.
    #[inline]
    pub(super) fn lookup_word(&self, word: u64, masked: &mut Vec<u64>) -> Hit {
        if let Some(&handle) = self.direct.get(word as usize) {
            return (handle != NOTHING).then_some(handle);
        }
        match &self.index {
            _ if self.len() == 0 => None,
            Index::Narrow(levels) => {
                levels.iter().find_map(|level| level.entries.get(&(word & level.mask)).copied())
            }
            Index::Tuples(tuples) => self.in_tuples(tuples, &[word], masked),
            Index::Wide(_) => None,
        }
    }

    fn in_tuples(&self, tuples: &TupleSpace, key: &[u64], masked: &mut Vec<u64>) -> Hit {
        tuples.find(key, masked, |handle| {
            let entry = self.entries.get(handle as usize).and_then(Option::as_ref);
            entry.is_some_and(|entry| entry.key.in_ranges(key))
        })
    }

    pub(super) fn next(&self, hit: bool, action: Option<u32>) -> Option<u32> {
        match (&self.next, action) {
            (NextNodes::HitMiss { hit: next, .. }, _) if hit => *next,
            (NextNodes::HitMiss { miss, .. }, _) => *miss,
            (NextNodes::ByAction(_), None) => self.base_next,
            (NextNodes::ByAction(nodes), Some(action)) => {
                nodes.iter().find(|(other, _)| *other == action).map_or(self.base_next, |(_, next)| *next)
            }
        }
    }
}

/// Makes room for `width` more bits at the low end.
pub(super) fn shift_in(packed: u64, width: u32) -> u64 {
    packed.checked_shl(width).unwrap_or(0)
}

/// The level of that mask, made where it is missing; levels are kept longest prefix first.
fn level<K: PartialEq>(levels: &mut Vec<Level<K>>, mask: K, prefix_len: u32) -> &mut Level<K> {
    let at = levels.partition_point(|level| level.prefix_len > prefix_len);
    if levels.get(at).is_none_or(|level| level.prefix_len != prefix_len) {
        levels.insert(at, Level { prefix_len, mask, entries: FixedMap::default() });
    }
    &mut levels[at]
}

/// The action that a target stands for, for this packet.
pub(super) fn resolve<'a>(
    target: &'a Target,
    profile: Option<&'a Profile>,
    inputs: &Inputs<'_>,
    scratch: &mut Scratch,
) -> Option<&'a Call> {
    match target {
        Target::Call(call) => Some(call),
        Target::Member(place) => profile?.call(*place),
        Target::Group(place) => profile?.choose(*place, inputs, scratch),
    }
}
