// SPDX-License-Identifier: Apache-2.0
//! What a role may do: Stratum's `P4RoleConfig`, the scheme that this switch agrees on with its
//! controllers (P4Runtime, "Role Config"). A role without a configuration has full access.

use prost::Message as _;
use prost::bytes::Bytes;
use std::collections::BTreeSet;
use std::sync::Arc;
use tonic::Status;
use trimwire_p4runtime::p4info::{Index, Named};
use trimwire_p4runtime::stratum::P4RoleConfig;
use trimwire_p4runtime::v1::{self, TableEntry, entity::Entity as Kind};
use trimwire_p4runtime::{bytes, stratum};

/// The scheme's name in an `Any`.
const SCHEME: &str = "stratum.P4RoleConfig";

/// What a role may do. Cheap to clone.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Access(Option<Arc<Limits>>);

#[derive(Debug, PartialEq)]
struct Limits {
    exclusive: BTreeSet<u32>,
    shared: BTreeSet<u32>,
    filter: Option<stratum::p4_role_config::PacketFilter>,
    receives_packet_ins: bool,
    can_push_pipeline: bool,
}

impl Access {
    /// Reads `Role.config`; none is full access.
    pub(super) fn new(config: Option<&prost_types::Any>) -> Result<Self, Status> {
        let Some(any) = config else { return Ok(Self(None)) };
        if any.type_url.rsplit('/').next() != Some(SCHEME) {
            return Err(Status::invalid_argument(format!(
                "role config of type '{}'; this switch takes '{SCHEME}', or none for full access",
                any.type_url
            )));
        }
        let config = P4RoleConfig::decode(Bytes::copy_from_slice(&any.value))
            .map_err(|error| Status::invalid_argument(format!("role config, {SCHEME}: {error}")))?;
        let (exclusive, shared): (BTreeSet<u32>, BTreeSet<u32>) =
            (config.exclusive_p4_ids.into_iter().collect(), config.shared_p4_ids.into_iter().collect());
        if let Some(both) = exclusive.intersection(&shared).next() {
            return Err(Status::invalid_argument(format!(
                "role config: P4 id {both:#010x} is both exclusive and shared"
            )));
        }
        Ok(Self(Some(Arc::new(Limits {
            exclusive,
            shared,
            filter: config.packet_in_filter,
            receives_packet_ins: config.receives_packet_ins,
            can_push_pipeline: config.can_push_pipeline,
        }))))
    }

    /// An id that one of the two has for itself and the other has too. A role with full access is
    /// no rival.
    pub(super) fn conflict(&self, other: &Self) -> Option<u32> {
        let (Self(Some(a)), Self(Some(b))) = (self, other) else { return None };
        let clash = |mine: &Limits, theirs: &Limits| {
            mine.exclusive
                .iter()
                .copied()
                .find(|id| theirs.exclusive.contains(id) || theirs.shared.contains(id))
        };
        clash(a, b).or_else(|| clash(b, a))
    }

    pub(super) fn may_push_pipeline(&self) -> bool {
        self.0.as_ref().is_none_or(|limits| limits.can_push_pipeline)
    }

    /// Whether the role has access to everything.
    pub(super) fn is_full(&self) -> bool {
        self.0.is_none()
    }

    /// Whether the object of this P4Info id is the role's, alone or with others.
    pub(super) fn has(&self, id: u32) -> bool {
        self.0.as_ref().is_none_or(|limits| limits.exclusive.contains(&id) || limits.shared.contains(&id))
    }

    /// Whether a message about `packet` goes to the role.
    pub(super) fn takes_packet_in(&self, packet: &v1::PacketIn) -> bool {
        let Some(limits) = &self.0 else { return true };
        limits.receives_packet_ins
            && limits.filter.as_ref().is_none_or(|filter| {
                packet.metadata.iter().any(|field| {
                    field.metadata_id == filter.metadata_id
                        && bytes::shortest(&field.value) == bytes::shortest(&filter.value)
                })
            })
    }

    /// Whether an entity is the role's. The packet replication engine has no P4Info id: it takes
    /// full access.
    pub(super) fn allows(&self, index: &Index, entity: &Kind) -> bool {
        if self.is_full() {
            return true;
        }
        let direct = |entry: &Option<TableEntry>, meter: bool| {
            let table_id = entry.as_ref().map_or(0, |entry| entry.table_id);
            let own = index.table(table_id).ok().and_then(|table| {
                if meter {
                    table.direct_meter().map(Named::id)
                } else {
                    table.direct_counter().map(Named::id)
                }
            });
            self.has(table_id) || own.is_some_and(|id| self.has(id))
        };
        match entity {
            Kind::TableEntry(entry) => self.has(entry.table_id),
            Kind::ActionProfileMember(member) => self.has(member.action_profile_id),
            Kind::ActionProfileGroup(group) => self.has(group.action_profile_id),
            Kind::CounterEntry(entry) => self.has(entry.counter_id),
            Kind::MeterEntry(entry) => self.has(entry.meter_id),
            Kind::RegisterEntry(entry) => self.has(entry.register_id),
            Kind::ValueSetEntry(entry) => self.has(entry.value_set_id),
            Kind::DigestEntry(entry) => self.has(entry.digest_id),
            Kind::ExternEntry(entry) => self.has(entry.extern_id),
            Kind::DirectCounterEntry(entry) => direct(&entry.table_entry, false),
            Kind::DirectMeterEntry(entry) => direct(&entry.table_entry, true),
            Kind::PacketReplicationEngineEntry(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(exclusive: &[u32], shared: &[u32]) -> Access {
        let config = P4RoleConfig {
            exclusive_p4_ids: exclusive.to_vec(),
            shared_p4_ids: shared.to_vec(),
            ..P4RoleConfig::default()
        };
        Access::new(Some(&any(&config))).unwrap()
    }

    fn any(config: &P4RoleConfig) -> prost_types::Any {
        let type_url = format!("type.googleapis.com/{SCHEME}");
        prost_types::Any { type_url, value: config.encode_to_vec() }
    }

    #[test]
    fn what_one_role_has_for_itself_no_other_may_have() {
        assert_eq!(access(&[1], &[2]).conflict(&access(&[3], &[2])), None);
        assert_eq!(access(&[1], &[2]).conflict(&access(&[1], &[])), Some(1));
        assert_eq!(access(&[1], &[2]).conflict(&access(&[2], &[])), Some(2));
        assert_eq!(access(&[1], &[2]).conflict(&Access::default()), None);
    }

    #[test]
    fn packet_ins_follow_the_filter() {
        let packet = |value: &[u8]| v1::PacketIn {
            payload: Vec::new(),
            metadata: vec![v1::PacketMetadata { metadata_id: 1, value: value.to_vec() }],
        };
        let mut config = P4RoleConfig { receives_packet_ins: true, ..P4RoleConfig::default() };
        let takes = |config: &P4RoleConfig, value: &[u8]| {
            Access::new(Some(&any(config))).unwrap().takes_packet_in(&packet(value))
        };
        assert!(takes(&config, &[7]));
        config.packet_in_filter =
            Some(stratum::p4_role_config::PacketFilter { metadata_id: 1, value: vec![0, 7] });
        assert!(takes(&config, &[7]) && !takes(&config, &[8]));
        config.receives_packet_ins = false;
        assert!(!takes(&config, &[7]));
        assert!(Access::default().takes_packet_in(&packet(&[1])));
    }

    #[test]
    fn another_scheme_and_garbage_are_named() {
        let other = prost_types::Any { type_url: "type.googleapis.com/x.Y".to_owned(), value: vec![] };
        let error = Access::new(Some(&other)).unwrap_err();
        assert!(error.message().contains("x.Y") && error.message().contains(SCHEME), "{error}");
        let garbage = prost_types::Any { value: vec![0xff; 9], ..any(&P4RoleConfig::default()) };
        assert_eq!(Access::new(Some(&garbage)).unwrap_err().code(), tonic::Code::InvalidArgument);
    }
}
