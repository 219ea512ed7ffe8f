// SPDX-License-Identifier: Apache-2.0
//! Entities: building them from names, checking them, telling them apart, and putting them in words.
//!
//! A controller builds entities with [`TableEntryBuilder`] and the functions here, and compares what it wants with what it
//! reads by [`EntityKey`]. A switch takes what arrives through [`check`], which gives back the canonical form or the error,
//! with gRPC code, that the specification asks for. Both know the same [`Index`] and so the same words.
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
mod key;
mod table;

use tonic::Code;

pub use self::builder::{ActionBuilder, TableEntryBuilder};
pub use self::check::{check, check_update};
pub use self::construct::{
    counter, delete, insert, member, member_group, meter, modify, packet_metadata, register, watching_group,
};
pub use self::describe::{describe, describe_action, describe_update, describe_value, describe_watching};
pub use self::key::EntityKey;
use crate::bytes::BytesError;
#[cfg(doc)]
use crate::p4info::Index;
use crate::p4info::LookupError;
use crate::v1;
use crate::v1::entity::Entity as Kind;

/// What is to be done with an entity; the rules differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// INSERT of a Write.
    Insert,
    /// MODIFY of a Write.
    Modify,
    /// DELETE of a Write: only the key counts.
    Delete,
    /// A Read's filter: 0 and absence are wildcards.
    Read,
}

/// Why an entity is not a valid one of the program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntityError {
    /// A name or id that the program does not have.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// A byte string that is no value of its type.
    #[error("{place}: {source}")]
    Value {
        /// Match field and table, parameter and action, …
        place: String,
        /// What is wrong with it.
        source: BytesError,
    },
    /// Anything else that breaks the specification's rules.
    #[error("{place}: {reason}")]
    Invalid {
        /// The entity, or its part.
        place: String,
        /// The broken rule, with the offending value and the valid ones.
        reason: String,
    },
    /// Something that the program has made constant, or an action outside of its scope.
    #[error("{place}: {reason}")]
    Denied {
        /// The entity, or its part.
        place: String,
        /// What is constant.
        reason: String,
    },
    /// More than there is room for.
    #[error("{place}: {reason}")]
    Exhausted {
        /// The entity, or its part.
        place: String,
        /// What was asked for, and the limit.
        reason: String,
    },
    /// The same thing twice where each may be there once.
    #[error("{place}: {reason}")]
    Duplicate {
        /// The entity, or its part.
        place: String,
        /// What is there twice.
        reason: String,
    },
    /// Something that the specification leaves to the target, and this target does not do.
    #[error("{place}: {reason}")]
    Unsupported {
        /// The entity, or its part.
        place: String,
        /// What is not done.
        reason: String,
    },
    /// An element beyond the end of an array.
    #[error("{place}: index {index} is beyond its size of {size}")]
    Index {
        /// The counter, meter or register.
        place: String,
        /// As given.
        index: i64,
        /// Elements it has.
        size: i64,
    },
}

impl EntityError {
    /// The code that a server answers an update with.
    pub fn code(&self) -> Code {
        match self {
            Self::Denied { .. } => Code::PermissionDenied,
            Self::Index { .. } => Code::OutOfRange,
            Self::Exhausted { .. } => Code::ResourceExhausted,
            Self::Duplicate { .. } => Code::AlreadyExists,
            Self::Unsupported { .. } => Code::Unimplemented,
            Self::Lookup(_) | Self::Value { .. } | Self::Invalid { .. } => Code::InvalidArgument,
        }
    }

    /// This error as the outcome of an update.
    pub fn to_outcome(&self) -> v1::Error {
        crate::status::error(self.code(), self.to_string())
    }

    fn invalid(place: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { place: place.into(), reason: reason.into() }
    }
}

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
