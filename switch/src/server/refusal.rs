// SPDX-License-Identifier: Apache-2.0
//! Why one entity was not written or read.

use crate::engine::{Code as EngineCode, ControlError};
use tonic::{Code, Status};
use trimwire_p4runtime::entity::EntityError;
use trimwire_p4runtime::p4info::LookupError;

/// A code of the specification's, and words that name the culprit and the valid choices.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    pub(super) code: Code,
    pub(super) message: String,
}

/// What became of one entity.
pub(super) type Result<T> = std::result::Result<T, Refusal>;

impl Refusal {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    pub(super) fn unsupported(what: &str) -> Self {
        Self::new(Code::Unimplemented, format!("this switch does not support {what}"))
    }

    /// No pipeline to work on. finsy looks for the words "no forwarding pipeline config".
    pub(super) fn no_pipeline() -> Self {
        Self::new(Code::FailedPrecondition, "no forwarding pipeline config has been set")
    }
}

impl From<ControlError> for Refusal {
    fn from(error: ControlError) -> Self {
        let code = match error.code {
            EngineCode::InvalidArgument => Code::InvalidArgument,
            EngineCode::NotFound => Code::NotFound,
            EngineCode::AlreadyExists => Code::AlreadyExists,
            EngineCode::PermissionDenied => Code::PermissionDenied,
            EngineCode::ResourceExhausted => Code::ResourceExhausted,
            EngineCode::FailedPrecondition => Code::FailedPrecondition,
            EngineCode::OutOfRange => Code::OutOfRange,
            EngineCode::Unimplemented => Code::Unimplemented,
        };
        Self::new(code, error.message)
    }
}

impl From<LookupError> for Refusal {
    fn from(error: LookupError) -> Self {
        Self::new(Code::NotFound, error.to_string())
    }
}

impl From<EntityError> for Refusal {
    fn from(error: EntityError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        Status::new(refusal.code, refusal.message)
    }
}
