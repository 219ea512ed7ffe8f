// SPDX-License-Identifier: Apache-2.0
//! Multicast groups and clone sessions (P4Runtime, "PacketReplicationEngineEntry").

use super::target::{Kind, Piece, Refusal, Result, Target};
use crate::engine::entity::{CloneOptions, Replica};
use std::collections::BTreeMap;
use std::ops::Range;
use trimwire_p4runtime::bytes;
use trimwire_p4runtime::v1;
use trimwire_p4runtime::v1::packet_replication_engine_entry::Type as Pre;
use trimwire_p4runtime::v1::replica::PortKind;
use trimwire_p4runtime::v1::update::Type;

/// v1model's `standard_metadata.egress_port`.
const PORT_BITS: u32 = 9;

impl Target<'_> {
    pub(super) fn write_replication(
        &mut self,
        kind: Type,
        entry: &v1::PacketReplicationEngineEntry,
    ) -> Result<()> {
        match &entry.r#type {
            Some(Pre::MulticastGroupEntry(group)) => self.write_multicast(kind, group),
            Some(Pre::CloneSessionEntry(session)) => self.write_clone(kind, session),
            None => Err(empty()),
        }
    }

    fn write_multicast(&mut self, kind: Type, group: &v1::MulticastGroupEntry) -> Result<()> {
        let number = group.multicast_group_id;
        let place = format!("multicast group {number}");
        let id = short(number, &place, "ids run from 1 to 65535")?;
        if kind == Type::Delete {
            self.control.multicast_delete(id)?;
            self.ledger.set_multicast(number, None);
            return Ok(());
        }
        let replicas = replicas(&group.replicas, &place)?;
        match kind {
            Type::Insert => self.control.multicast_insert(id, &replicas)?,
            _ => self.control.multicast_modify(id, &replicas)?,
        }
        self.ledger.set_multicast(number, Some(group.clone()));
        Ok(())
    }

    fn write_clone(&mut self, kind: Type, session: &v1::CloneSessionEntry) -> Result<()> {
        let number = session.session_id;
        let place = format!("clone session {number}");
        let id = short(number, &place, "ids run from 1 to 32767")?;
        if kind == Type::Delete {
            self.control.clone_session_delete(id)?;
            self.ledger.set_clone(number, None);
            return Ok(());
        }
        let queue =
            u8::try_from(session.class_of_service).ok().filter(|queue| *queue < 8).ok_or_else(|| {
                let class = session.class_of_service;
                Refusal::invalid(format!(
                    "{place}: class_of_service {class} is no queue; queues run from 0 to 7"
                ))
            })?;
        let options = CloneOptions { packet_length: session.packet_length_bytes.unsigned_abs(), queue };
        let replicas = replicas(&session.replicas, &place)?;
        match kind {
            Type::Insert => self.control.clone_session_insert(id, &replicas)?,
            _ => self.control.clone_session_modify(id, &replicas)?,
        }
        self.control.set_clone_options(id, options)?;
        self.ledger.set_clone(number, Some(session.clone()));
        Ok(())
    }

    /// What a filter asks for, by id; id 0 asks for all.
    pub(super) fn replication(&self, filter: &v1::PacketReplicationEngineEntry) -> Result<Piece> {
        let (wanted, last) = match &filter.r#type {
            Some(Pre::MulticastGroupEntry(filter)) => {
                (filter.multicast_group_id, self.ledger.multicast.keys().next_back())
            }
            Some(Pre::CloneSessionEntry(filter)) => {
                (filter.session_id, self.ledger.clones.keys().next_back())
            }
            None => return Err(empty()),
        };
        let ids = match (wanted, last) {
            (0, Some(last)) => 0..u64::from(*last) + 1,
            (0, None) => 0..0,
            (id, _) => u64::from(id)..u64::from(id) + 1,
        };
        Ok(Piece { filter: Kind::PacketReplicationEngineEntry(filter.clone()), cells: Some(ids) })
    }

    /// Groups or sessions of these ids, as they were written.
    pub(super) fn read_replication(
        &self,
        filter: &v1::PacketReplicationEngineEntry,
        ids: Range<u64>,
    ) -> Result<Vec<Kind>> {
        let found: Vec<Pre> = match &filter.r#type {
            Some(Pre::MulticastGroupEntry(_)) => {
                of_ids(&self.ledger.multicast, ids).cloned().map(Pre::MulticastGroupEntry).collect()
            }
            Some(Pre::CloneSessionEntry(_)) => {
                of_ids(&self.ledger.clones, ids).cloned().map(Pre::CloneSessionEntry).collect()
            }
            None => return Err(empty()),
        };
        let entry =
            |of| Kind::PacketReplicationEngineEntry(v1::PacketReplicationEngineEntry { r#type: Some(of) });
        Ok(found.into_iter().map(entry).collect())
    }

    /// Replicas of groups or sessions of these ids.
    pub(super) fn replicas_of(&self, filter: &v1::PacketReplicationEngineEntry, ids: Range<u64>) -> usize {
        match &filter.r#type {
            Some(Pre::MulticastGroupEntry(_)) => {
                of_ids(&self.ledger.multicast, ids).map(|group| group.replicas.len()).sum()
            }
            Some(Pre::CloneSessionEntry(_)) => {
                of_ids(&self.ledger.clones, ids).map(|session| session.replicas.len()).sum()
            }
            None => 0,
        }
    }
}

fn of_ids<T>(all: &BTreeMap<u32, T>, ids: Range<u64>) -> impl Iterator<Item = &T> {
    let first = u32::try_from(ids.start).unwrap_or(u32::MAX);
    all.range(first..).take_while(move |(id, _)| u64::from(**id) < ids.end).map(|(_, of)| of)
}

/// Replicas that an update writes.
pub(super) fn replicas_in(entry: &v1::PacketReplicationEngineEntry) -> usize {
    match &entry.r#type {
        Some(Pre::MulticastGroupEntry(group)) => group.replicas.len(),
        Some(Pre::CloneSessionEntry(session)) => session.replicas.len(),
        None => 0,
    }
}

fn empty() -> Refusal {
    Refusal::invalid("a packet replication engine entry is neither a multicast group nor a clone session")
}

fn short(number: u32, place: &str, valid: &str) -> Result<u16> {
    u16::try_from(number).map_err(|_| Refusal::invalid(format!("{place}: {valid}")))
}

fn replicas(given: &[v1::Replica], place: &str) -> Result<Vec<Replica>> {
    given
        .iter()
        .map(|replica| {
            if !replica.backup_replicas.is_empty() {
                return Err(Refusal::unsupported("backup replicas"));
            }
            let instance = short(
                replica.instance,
                &format!("{place}: instance {}", replica.instance),
                "instances run from 0 to 65535",
            )?;
            let port = match &replica.port_kind {
                Some(PortKind::Port(port)) => bytes::decode(port, PORT_BITS),
                #[expect(deprecated, reason = "still sent by clients written for P4Runtime before 1.4")]
                Some(PortKind::EgressPort(port)) => bytes::decode(&port.to_be_bytes(), PORT_BITS),
                None => return Err(Refusal::invalid(format!("{place}: a replica without port"))),
            };
            let port = port.map_err(|error| Refusal::invalid(format!("{place}: port: {error}")))?;
            Ok(Replica { instance, port: port as u16 })
        })
        .collect()
}
