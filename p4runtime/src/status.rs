// SPDX-License-Identifier: Apache-2.0
//! What became of each update of a Write, in `grpc-status-details-bin` (P4Runtime, "Write RPC",
//! "Error Reporting").
//!
//! When updates of a batch fail, the RPC's code is `UNKNOWN` and its details are a
//! `google.rpc.Status` whose own details are one [`v1::Error`] per update, in the updates' order,
//! `OK` for those that succeeded.

use prost::Message;
use prost_types::Any;
use tonic::{Code, Status};

use crate::{rpc, v1};

/// `Any` type of a per-update error.
const ERROR_TYPE: &str = "type.googleapis.com/p4.v1.Error";

/// The outcome of an update that succeeded.
pub fn ok() -> v1::Error {
    v1::Error::default()
}

/// The outcome of an update that failed.
pub fn error(code: Code, message: impl Into<String>) -> v1::Error {
    v1::Error { canonical_code: code as i32, message: message.into(), ..v1::Error::default() }
}

/// The outcome of a Write from those of its updates, one each, in order: success when all
/// succeeded.
pub fn from_updates(outcomes: &[v1::Error]) -> Result<(), Status> {
    let mut failed = outcomes.iter().enumerate().filter(|(_, outcome)| outcome.canonical_code != 0);
    let Some((first, outcome)) = failed.next() else { return Ok(()) };
    // The message is all that clients without support for details show.
    let message = format!(
        "{} of {} updates failed; first, update {first}: {}: {}",
        failed.count() + 1,
        outcomes.len(),
        name(outcome.canonical_code),
        outcome.message
    );
    let status = rpc::Status {
        code: Code::Unknown as i32,
        message: message.clone(),
        details: outcomes
            .iter()
            .map(|outcome| Any { type_url: ERROR_TYPE.to_owned(), value: outcome.encode_to_vec() })
            .collect(),
    };
    Err(Status::with_details(Code::Unknown, message, status.encode_to_vec().into()))
}

/// The outcomes that a failed Write carries, one per update; `None` when it carries none (the Write
/// as a whole was refused: not primary, no pipeline, …) or when they cannot be read.
pub fn to_updates(status: &Status) -> Option<Vec<v1::Error>> {
    let details = rpc::Status::decode(status.details()).ok()?.details;
    let outcomes: Vec<_> = details
        .iter()
        .filter(|any| any.type_url.rsplit('/').next() == Some("p4.v1.Error"))
        .map(|any| v1::Error::decode(any.value.as_slice()).ok())
        .collect::<Option<_>>()?;
    (!outcomes.is_empty()).then_some(outcomes)
}

/// A canonical code as the specification writes it, `NOT_FOUND`.
pub fn name(code: i32) -> &'static str {
    rpc::Code::try_from(code).unwrap_or(rpc::Code::Unknown).as_str_name()
}
