// SPDX-License-Identifier: Apache-2.0
//! Errors of loading a program and of the control plane.

/// Why a program was not loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The bytes are not JSON at all.
    #[error("not a BMv2 JSON file: {0}")]
    Syntax(String),
    /// The JSON lacks something, or holds something of the wrong type or out of range.
    #[error("malformed BMv2 JSON: {what}{location}")]
    Malformed {
        /// The thing and what is wrong with it.
        what: String,
        /// Where, as ` (file.p4:12)`, or empty.
        location: String,
    },
    /// The program uses something this switch does not execute.
    #[error("unsupported by this switch: {construct}{location}")]
    Unsupported {
        /// The construct, by its BMv2 name.
        construct: String,
        /// Where, as ` (file.p4:12)`, or empty.
        location: String,
    },
}

/// The canonical status codes (google.rpc.Code) that control-plane errors map onto.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum Code {
    /// The request is wrong in itself.
    InvalidArgument = 3,
    /// Nothing of that name or key exists.
    NotFound = 5,
    /// Something of that key exists already.
    AlreadyExists = 6,
    /// The target may not be changed.
    PermissionDenied = 7,
    /// A table, profile or group is full.
    ResourceExhausted = 8,
    /// The state forbids it, such as deleting a member in use.
    FailedPrecondition = 9,
    /// An index lies beyond the array.
    OutOfRange = 11,
    /// This switch cannot do it.
    Unimplemented = 12,
}

/// Why a control-plane request was refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ControlError {
    /// The canonical code.
    pub code: Code,
    /// The culprit and the valid choices, in words.
    pub message: String,
}

impl ControlError {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(Code::NotFound, message)
    }
}
