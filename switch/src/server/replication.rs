//! Multicast groups and clone sessions (P4Runtime, "PacketReplicationEngineEntry").

use super::translate::{Refusal, Result};
use crate::engine::Control;
use crate::engine::entity::Replica;
use tonic::Code;
use trimwire_p4runtime::bytes;
use trimwire_p4runtime::v1::packet_replication_engine_entry::Type as Pre;
use trimwire_p4runtime::v1::replica::PortKind;
use trimwire_p4runtime::v1::update::Type;
use trimwire_p4runtime::v1::{self, CloneSessionEntry, MulticastGroupEntry};

/// v1model's `standard_metadata.egress_port`.
const PORT_BITS: u32 = 9;

/// Carries out an update.
pub(super) fn write(
    control: &mut Control,
    kind: Type,
    entry: &v1::PacketReplicationEngineEntry,
) -> Result<()> {
    match &entry.r#type {
        Some(Pre::MulticastGroupEntry(group)) => {
            let place = format!("multicast group {}", group.multicast_group_id);
            let id = short(group.multicast_group_id, &place, "ids run from 1 to 65535")?;
            if kind == Type::Delete {
                return Ok(control.multicast_delete(id)?);
            }
            if !group.metadata.is_empty() {
                return Err(Refusal::unsupported("metadata of multicast groups"));
            }
            let replicas = replicas(&group.replicas, &place)?;
            match kind {
                Type::Insert => control.multicast_insert(id, &replicas)?,
                _ => control.multicast_modify(id, &replicas)?,
            }
        }
        Some(Pre::CloneSessionEntry(session)) => {
            let place = format!("clone session {}", session.session_id);
            let id = short(session.session_id, &place, "ids run from 1 to 32767")?;
            if kind == Type::Delete {
                return Ok(control.clone_session_delete(id)?);
            }
            if session.class_of_service != 0 {
                return Err(Refusal::unsupported("a class of service of clone sessions"));
            }
            if session.packet_length_bytes != 0 {
                return Err(Refusal::unsupported("clone sessions that cut packets; truncate in the program"));
            }
            let replicas = replicas(&session.replicas, &place)?;
            match kind {
                Type::Insert => control.clone_session_insert(id, &replicas)?,
                _ => control.clone_session_modify(id, &replicas)?,
            }
        }
        None => return Err(empty()),
    }
    Ok(())
}

/// What a filter of a Read asks for; id 0 asks for all.
pub(super) fn read(
    control: &Control,
    filter: &v1::PacketReplicationEngineEntry,
) -> Result<Vec<v1::PacketReplicationEngineEntry>> {
    let asked = |wanted: u32, id: u16| wanted == 0 || wanted == u32::from(id);
    let found: Vec<Pre> = match &filter.r#type {
        Some(Pre::MulticastGroupEntry(filter)) => {
            let groups = control.multicast_groups().into_iter();
            let groups = groups.filter(|(id, _)| asked(filter.multicast_group_id, *id));
            let entry = |(id, replicas): (u16, Vec<Replica>)| {
                Pre::MulticastGroupEntry(MulticastGroupEntry {
                    multicast_group_id: id.into(),
                    replicas: replicas.into_iter().map(replica).collect(),
                    ..MulticastGroupEntry::default()
                })
            };
            groups.map(entry).collect()
        }
        Some(Pre::CloneSessionEntry(filter)) => {
            let sessions = control.clone_sessions().into_iter();
            let sessions = sessions.filter(|(id, _)| asked(filter.session_id, *id));
            let entry = |(id, replicas): (u16, Vec<Replica>)| {
                Pre::CloneSessionEntry(CloneSessionEntry {
                    session_id: id.into(),
                    replicas: replicas.into_iter().map(replica).collect(),
                    ..CloneSessionEntry::default()
                })
            };
            sessions.map(entry).collect()
        }
        None => return Err(empty()),
    };
    Ok(found.into_iter().map(|entry| v1::PacketReplicationEngineEntry { r#type: Some(entry) }).collect())
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
            let port =
                port.map_err(|error| Refusal::new(Code::InvalidArgument, format!("{place}: port: {error}")))?;
            Ok(Replica { instance, port: port as u16 })
        })
        .collect()
}

fn replica(Replica { instance, port }: Replica) -> v1::Replica {
    v1::Replica {
        port_kind: Some(PortKind::Port(bytes::encode(port.into()))),
        instance: instance.into(),
        ..v1::Replica::default()
    }
}
