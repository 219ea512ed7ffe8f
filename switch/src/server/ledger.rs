// SPDX-License-Identifier: Apache-2.0
//! What P4Runtime remembers of a program's entities and the engine has no use for: the form in
//! which they were written.
//!
//! Everything here is by name, so that it survives a change of ids (RECONCILE_AND_COMMIT).

use std::collections::BTreeMap;
use trimwire_p4runtime::v1;

/// The ledger of one pipeline. What is changed in a batch can be undone, at the cost of the batch.
#[derive(Debug, Clone, Default)]
pub(super) struct Ledger {
    /// Default entries that a controller has set, by table, with their [`Notes`], packed.
    pub(super) defaults: BTreeMap<String, Vec<u8>>,
    /// By action profile.
    pub(super) selectors: BTreeMap<String, Selector>,
    /// Multicast groups, as written.
    pub(super) multicast: BTreeMap<u32, v1::MulticastGroupEntry>,
    /// Clone sessions, as written.
    pub(super) clones: BTreeMap<u32, v1::CloneSessionEntry>,
    /// Digests that are switched on, by name.
    pub(super) digests: BTreeMap<String, v1::digest_entry::Config>,
    journal: Option<Vec<Before>>,
}

/// One thing as it was; `None`: it was not there.
#[derive(Debug, Clone)]
enum Before {
    Default(String, Option<Vec<u8>>),
    Multicast(u32, Option<v1::MulticastGroupEntry>),
    Clone(u32, Option<v1::CloneSessionEntry>),
    Digest(String, Option<v1::digest_entry::Config>),
    Manual(String, usize),
    Ids(String, u32, u32),
    OneShot(String, u32, Option<OneShot>),
    Watches(String, u32, Option<Watches>),
}

/// Watch ports of a group's members.
pub(super) type Watches = BTreeMap<u32, v1::action_profile_group::member::WatchKind>;

/// Sets what a map holds for a key, and gives what it held.
fn exchange<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) -> Option<V> {
    match value {
        Some(value) => map.insert(key, value),
        None => map.remove(&key),
    }
}

impl Ledger {
    pub(super) fn begin_batch(&mut self) {
        self.journal = Some(Vec::new());
    }

    pub(super) fn end_batch(&mut self) {
        self.journal = None;
    }

    pub(super) fn undo_batch(&mut self) {
        for before in self.journal.take().into_iter().flatten().rev() {
            self.put(before);
        }
    }

    /// Makes a thing what it is said to be; what it was is noted.
    fn put(&mut self, thing: Before) {
        let was = match thing {
            Before::Default(table, notes) => {
                Before::Default(table.clone(), exchange(&mut self.defaults, table, notes))
            }
            Before::Multicast(id, group) => Before::Multicast(id, exchange(&mut self.multicast, id, group)),
            Before::Clone(id, session) => Before::Clone(id, exchange(&mut self.clones, id, session)),
            Before::Digest(name, config) => {
                Before::Digest(name.clone(), exchange(&mut self.digests, name, config))
            }
            Before::Manual(profile, count) => {
                let was = std::mem::replace(&mut self.selector_mut(&profile).manual, count);
                Before::Manual(profile, was)
            }
            Before::Ids(profile, member, group) => {
                let selector = self.selector_mut(&profile);
                let was = (selector.next_member, selector.next_group);
                (selector.next_member, selector.next_group) = (member, group);
                Before::Ids(profile, was.0, was.1)
            }
            Before::OneShot(profile, group, one_shot) => {
                let was = exchange(&mut self.selector_mut(&profile).one_shots, group, one_shot);
                Before::OneShot(profile, group, was)
            }
            Before::Watches(profile, group, watches) => {
                let was = exchange(&mut self.selector_mut(&profile).watches, group, watches);
                Before::Watches(profile, group, was)
            }
        };
        if let Some(journal) = &mut self.journal {
            journal.push(was);
        }
    }

    pub(super) fn set_default(&mut self, table: &str, notes: Option<Vec<u8>>) {
        self.put(Before::Default(table.to_owned(), notes));
    }

    pub(super) fn set_multicast(&mut self, id: u32, group: Option<v1::MulticastGroupEntry>) {
        self.put(Before::Multicast(id, group));
    }

    pub(super) fn set_clone(&mut self, id: u32, session: Option<v1::CloneSessionEntry>) {
        self.put(Before::Clone(id, session));
    }

    pub(super) fn set_digest(&mut self, name: &str, config: Option<v1::digest_entry::Config>) {
        self.put(Before::Digest(name.to_owned(), config));
    }

    /// One more or one less member or group of the controller's own.
    pub(super) fn count_manual(&mut self, profile: &str, more: bool) {
        let count = self.selector(profile).map_or(0, |selector| selector.manual);
        let count = if more { count + 1 } else { count.saturating_sub(1) };
        self.put(Before::Manual(profile.to_owned(), count));
    }

    pub(super) fn set_watches(&mut self, profile: &str, group: u32, watches: Option<Watches>) {
        self.put(Before::Watches(profile.to_owned(), group, watches));
    }

    /// The latest ids of members and groups that were made for one-shots.
    pub(super) fn ids(&self, profile: &str) -> (u32, u32) {
        self.selector(profile).map_or((0, 0), |selector| (selector.next_member, selector.next_group))
    }

    pub(super) fn set_ids(&mut self, profile: &str, member: u32, group: u32) {
        self.put(Before::Ids(profile.to_owned(), member, group));
    }

    pub(super) fn set_one_shot(&mut self, profile: &str, group: u32, one_shot: Option<OneShot>) {
        self.put(Before::OneShot(profile.to_owned(), group, one_shot));
    }

    pub(super) fn selector(&self, profile: &str) -> Option<&Selector> {
        self.selectors.get(profile)
    }

    fn selector_mut(&mut self, profile: &str) -> &mut Selector {
        self.selectors.entry(profile.to_owned()).or_default()
    }
}

/// How an action profile is programmed: with members and groups, or in one shot, never both ("One
/// Shot Action Selector Programming").
#[derive(Debug, Clone, Default)]
pub(super) struct Selector {
    /// Members and groups that the controller wrote itself.
    pub(super) manual: usize,
    /// By the engine's group id, which is the server's choice.
    pub(super) one_shots: BTreeMap<u32, OneShot>,
    /// Watch ports of the controller's own groups: group, then member.
    pub(super) watches: BTreeMap<u32, Watches>,
    /// The latest ids for one-shots.
    pub(super) next_member: u32,
    pub(super) next_group: u32,
}

/// A one-shot action set: a group of the server's, with a member for each share of weight (as
/// BMv2's P4Runtime server makes them, so that the same hash chooses the same action).
#[derive(Debug, Clone, Default)]
pub(super) struct OneShot {
    pub(super) elements: Vec<Element>,
    pub(super) mode: i32,
    pub(super) semantics: i32,
}

/// One action of a one-shot.
#[derive(Debug, Clone)]
pub(super) struct Element {
    /// Members of the engine's, one for each share.
    pub(super) members: Vec<u32>,
    pub(super) watch: Option<v1::action_profile_action::WatchKind>,
}

/// The controller's own bytes of a table entry, in both forms that P4Runtime has had, in one string
/// for the engine to keep.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Notes {
    pub(super) metadata: Vec<u8>,
    pub(super) controller_metadata: u64,
}

impl Notes {
    #[expect(deprecated, reason = "controller_metadata is still sent by clients written for older versions")]
    pub(super) fn of(entry: &v1::TableEntry) -> Self {
        Self { metadata: entry.metadata.clone(), controller_metadata: entry.controller_metadata }
    }

    /// Empty for empty notes.
    pub(super) fn pack(&self) -> Vec<u8> {
        if *self == Self::default() {
            return Vec::new();
        }
        [&self.controller_metadata.to_be_bytes(), self.metadata.as_slice()].concat()
    }

    /// Undoes [`Notes::pack`].
    pub(super) fn unpack(packed: &[u8]) -> Self {
        match packed.split_first_chunk() {
            Some((number, metadata)) => {
                Self { metadata: metadata.to_vec(), controller_metadata: u64::from_be_bytes(*number) }
            }
            None => Self::default(),
        }
    }

    #[expect(deprecated, reason = "controller_metadata is still sent by clients written for older versions")]
    pub(super) fn write_to(self, entry: &mut v1::TableEntry) {
        entry.metadata = self.metadata;
        entry.controller_metadata = self.controller_metadata;
    }

    /// Whether a filter of a Read takes these notes: what it leaves empty, it leaves open.
    pub(super) fn pass(&self, filter: &Self) -> bool {
        (filter.metadata.is_empty() || filter.metadata == self.metadata)
            && (filter.controller_metadata == 0 || filter.controller_metadata == self.controller_metadata)
    }
}
