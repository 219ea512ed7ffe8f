// SPDX-License-Identifier: Apache-2.0
//! What makes an entity the one it is.

use prost::Message;

use crate::v1::entity::Entity as Kind;
use crate::v1::packet_replication_engine_entry::Type as Pre;
use crate::v1::{
    ActionProfileGroup, ActionProfileMember, CloneSessionEntry, CounterEntry, DigestEntry,
    DirectCounterEntry, DirectMeterEntry, Entity, MeterEntry, MulticastGroupEntry,
    PacketReplicationEngineEntry, RegisterEntry, TableEntry, ValueSetEntry,
};

/// The identity of an entity: two entities with the same key are the same object with perhaps
/// different contents, as when a MODIFY changes one into the other. Ordered, so that maps of
/// entities have a fixed order: by kind, then by id.
///
/// Keys compare canonical entities. Pass what comes from elsewhere through [`check`](super::check)
/// first: a padded byte string makes another key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntityKey {
    kind: u8,
    id: u32,
    // The entity with all but its key left out, encoded. Prost writes fields in a fixed order.
    key: Vec<u8>,
}

impl EntityKey {
    /// The key of `entity`; none for an empty entity.
    pub fn of(entity: &Entity) -> Option<Self> {
        let (kind, id, key) = match entity.entity.as_ref()? {
            // Profiles before tables, members before groups: the order in which inserts work.
            Kind::ActionProfileMember(ActionProfileMember { action_profile_id, member_id, .. }) => {
                (0, *action_profile_id, member_id.to_be_bytes().to_vec())
            }
            Kind::ActionProfileGroup(ActionProfileGroup { action_profile_id, group_id, .. }) => {
                (1, *action_profile_id, group_id.to_be_bytes().to_vec())
            }
            Kind::TableEntry(entry) => (2, entry.table_id, table_key(entry)),
            Kind::PacketReplicationEngineEntry(PacketReplicationEngineEntry { r#type }) => match r#type {
                Some(Pre::MulticastGroupEntry(MulticastGroupEntry { multicast_group_id, .. })) => {
                    (3, *multicast_group_id, Vec::new())
                }
                Some(Pre::CloneSessionEntry(CloneSessionEntry { session_id, .. })) => {
                    (4, *session_id, Vec::new())
                }
                None => return None,
            },
            Kind::MeterEntry(MeterEntry { meter_id, index, .. }) => (5, *meter_id, element_key(*index)),
            Kind::DirectMeterEntry(DirectMeterEntry { table_entry, .. }) => {
                direct_key(6, table_entry.as_ref())
            }
            Kind::CounterEntry(CounterEntry { counter_id, index, .. }) => {
                (7, *counter_id, element_key(*index))
            }
            Kind::DirectCounterEntry(DirectCounterEntry { table_entry, .. }) => {
                direct_key(8, table_entry.as_ref())
            }
            Kind::RegisterEntry(RegisterEntry { register_id, index, .. }) => {
                (9, *register_id, element_key(*index))
            }
            Kind::ValueSetEntry(ValueSetEntry { value_set_id, .. }) => (10, *value_set_id, Vec::new()),
            Kind::DigestEntry(DigestEntry { digest_id, .. }) => (11, *digest_id, Vec::new()),
            // Only the extern's own definition tells its key from its contents.
            Kind::ExternEntry(entry) => (12, entry.extern_id, entry.encode_to_vec()),
        };
        Some(Self { kind, id, key })
    }
}

fn element_key(index: Option<crate::v1::Index>) -> Vec<u8> {
    // Indices are not negative, so their bytes sort as they do.
    index.map_or_else(Vec::new, |index| index.index.to_be_bytes().to_vec())
}

fn direct_key(kind: u8, entry: Option<&TableEntry>) -> (u8, u32, Vec<u8>) {
    entry.map_or((kind, 0, Vec::new()), |entry| (kind, entry.table_id, table_key(entry)))
}

fn table_key(entry: &TableEntry) -> Vec<u8> {
    let mut r#match = entry.r#match.clone();
    r#match.sort_by_key(|field| field.field_id);
    let key = TableEntry {
        table_id: entry.table_id,
        r#match,
        priority: entry.priority,
        is_default_action: entry.is_default_action,
        ..TableEntry::default()
    };
    key.encode_to_vec()
}
