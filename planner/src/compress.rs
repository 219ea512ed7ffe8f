// SPDX-License-Identifier: Apache-2.0
//! Compressors with error feedback: what is not sent is kept, and added to the next gradient.
//!
//! ```text
//!  gradient + residual ─► Method ─► Compressed ─► bytes on the network
//!        ▲                   │           └──────► decode_into
//!        └──── residual ◄────┘ what decoding it does not give back
//! ```
//!
//! A [`Feedback`] is a tensor's memory; it is serde's, so that residuals survive a checkpoint. [`rung`] turns a law's ratio into what Trimwire sends:
//! planes of the default codec, and below one plane a top-k.
//!
//! These are reference implementations in plain code, to compare laws and to train with where the network is the limit; they are not kernels.

mod feedback;
mod ladder;
mod message;
mod method;
mod netsense;
mod select;

pub use feedback::{CompressError, Feedback};
pub(crate) use ladder::packet_share;
pub use ladder::{Rung, rung};
pub use message::Compressed;
pub use method::Method;
pub use netsense::NetSenseCompression;

#[cfg(test)]
mod tests;
