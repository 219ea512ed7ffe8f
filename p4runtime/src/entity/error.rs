// SPDX-License-Identifier: Apache-2.0
//! What is done with an entity, and why it is not a valid one.

use tonic::Code;

use crate::bytes::BytesError;
use crate::p4info::LookupError;
use crate::v1;

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

    pub(super) fn invalid(place: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid { place: place.into(), reason: reason.into() }
    }
}
