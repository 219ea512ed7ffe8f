// SPDX-License-Identifier: Apache-2.0
//! What a switch needs to serve P4Runtime.
//!
//! Implement [`P4Runtime`], wrap it with [`service`] and add it to a `tonic::transport::Server`.
//! Answers to Write come from [`status::from_updates`](crate::status::from_updates), checked
//! entities from [`entity::check`](crate::entity::check).

pub use tonic;
pub use tonic::async_trait;

pub use crate::v1::p4_runtime_server::{P4Runtime, P4RuntimeServer};

/// Largest message that is sent or taken, bytes. gRPC's default of 4 MiB is less than a pipeline
/// for Tofino takes.
pub const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// The API version to answer Capabilities with.
pub const API_VERSION: &str = "1.5.0";

/// A gRPC service around `switch` that takes messages up to [`MAX_MESSAGE_BYTES`].
pub fn service<T: P4Runtime>(switch: T) -> P4RuntimeServer<T> {
    P4RuntimeServer::new(switch)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES)
}
