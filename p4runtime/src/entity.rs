// SPDX-License-Identifier: Apache-2.0
//! Entities: building them from names, checking them, telling them apart, and putting them in
//! words.
//!
//! A controller builds entities with [`TableEntryBuilder`] and the functions here, and compares
//! what it wants with what it reads by [`EntityKey`]. A switch takes what arrives through
//! [`check`], which gives back the canonical form or the error, with gRPC code, that the
//! specification asks for. Both know the same [`Index`] and so the same words.
//!
//! ```
//! # use trimwire_p4runtime::p4info::{Index, P4Info};
//! use std::net::Ipv4Addr;
//! use trimwire_p4runtime::entity::{TableEntryBuilder, describe};
//!
//! # let p4info = P4Info::from_text(r#"
//! # tables { preamble { id: 33554433 name: "Ingress.route" }
//! #   match_fields { id: 1 name: "dst_addr" bitwidth: 32 match_type: LPM } action_refs { id: 16777217 } }
//! # actions { preamble { id: 16777217 name: "Ingress.forward" } params { id: 1 name: "port" bitwidth: 9 } }"#)?;
//! let index = Index::new(&p4info)?;
//! let entry = TableEntryBuilder::new(&index, "Ingress.route")
//!     .lpm("dst_addr", Ipv4Addr::new(10, 0, 1, 0), 24)
//!     .action("Ingress.forward")
//!     .param("port", 3_u16)
//!     .build()?;
//! assert_eq!(
//!     describe(&entry.into(), Some(&index)),
//!     "Ingress.route{dst_addr=10.0.1.0/24} -> Ingress.forward(port=3)"
//! );
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod builder;
mod check;
mod construct;
mod describe;
mod error;
mod key;
mod table;

pub use self::builder::{ActionBuilder, TableEntryBuilder};
pub use self::check::{check, check_update};
pub use self::construct::{
    counter, delete, insert, member, member_group, meter, modify, packet_metadata, register, watching_group,
};
pub use self::describe::{describe, describe_action, describe_update, describe_value, describe_watching};
pub use self::error::{EntityError, Purpose};
pub use self::key::EntityKey;
#[cfg(doc)]
use crate::p4info::Index;
use crate::v1;
use crate::v1::entity::Entity as Kind;

macro_rules! into_entity {
    ($($type:ident),*) => {$(
        impl From<v1::$type> for v1::Entity {
            fn from(entity: v1::$type) -> Self {
                Self { entity: Some(Kind::$type(entity)) }
            }
        }
    )*};
}

into_entity!(
    ExternEntry,
    TableEntry,
    ActionProfileMember,
    ActionProfileGroup,
    MeterEntry,
    DirectMeterEntry,
    CounterEntry,
    DirectCounterEntry,
    PacketReplicationEngineEntry,
    ValueSetEntry,
    RegisterEntry,
    DigestEntry
);

impl From<v1::MulticastGroupEntry> for v1::Entity {
    fn from(entry: v1::MulticastGroupEntry) -> Self {
        use v1::packet_replication_engine_entry::Type;
        v1::PacketReplicationEngineEntry { r#type: Some(Type::MulticastGroupEntry(entry)) }.into()
    }
}

impl From<v1::CloneSessionEntry> for v1::Entity {
    fn from(entry: v1::CloneSessionEntry) -> Self {
        use v1::packet_replication_engine_entry::Type;
        v1::PacketReplicationEngineEntry { r#type: Some(Type::CloneSessionEntry(entry)) }.into()
    }
}

#[cfg(test)]
mod tests;
