//! What P4Runtime remembers of a program's entities and the engine has no use for: the form in which they were written.
//!
//! Everything here is by name, so that it survives a change of ids (RECONCILE_AND_COMMIT), and may be cloned as a whole, so
//! that a batch can be undone.

use std::collections::BTreeMap;
use trimwire_p4runtime::v1;

/// The ledger of one pipeline.
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
}

impl Ledger {
    pub(super) fn selector(&mut self, profile: &str) -> &mut Selector {
        if !self.selectors.contains_key(profile) {
            self.selectors.insert(profile.to_owned(), Selector::default());
        }
        self.selectors.entry(profile.to_owned()).or_default()
    }
}

/// How an action profile is programmed: with members and groups, or in one shot, never both ("One Shot Action Selector
/// Programming").
#[derive(Debug, Clone, Default)]
pub(super) struct Selector {
    /// Members and groups that the controller wrote itself.
    pub(super) manual: usize,
    /// By the engine's group id, which is the server's choice.
    pub(super) one_shots: BTreeMap<u32, OneShot>,
    /// Watch ports of the controller's own groups: group, then member.
    pub(super) watches: BTreeMap<u32, BTreeMap<u32, v1::action_profile_group::member::WatchKind>>,
    /// The next ids for one-shots.
    pub(super) next_member: u32,
    pub(super) next_group: u32,
}

/// A one-shot action set: a group of the server's, with a member for each share of weight (as BMv2's P4Runtime server makes
/// them, so that the same hash chooses the same action).
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

/// The controller's own bytes of a table entry, in both forms that P4Runtime has had, in one string for the engine to keep.
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
