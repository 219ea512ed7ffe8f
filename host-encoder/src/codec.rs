//! Rotated, embedded-quantised messages: encoder and decoder (DESIGN §4).

mod decoder;
mod encoder;
mod layout;
mod message;

pub use decoder::{Decoder, Receipt, Stats};
pub use encoder::{EncodeError, Encoder};
pub use layout::{Layout, LayoutError};
pub use message::Message;

use crate::packet::StreamId;

/// What the ±1 diagonals of a message's rotations are drawn from. Any rank that knows it can draw the signs of any row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RotationKey {
    /// Shared by the ranks of a job.
    pub job_seed: u64,
    /// Message id.
    pub message: u32,
    /// The source rank, or 0 where ranks share rotations so that rotated rows can be summed.
    pub rank: u16,
}

/// What the packets of a message say about themselves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// Job and source rank.
    pub stream: StreamId,
    /// Message id.
    pub message: u32,
    /// MLT's layer class, 0 (front layers) to 7.
    pub layer_class: u8,
}

/// How cut and missing coordinates are reconstructed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Decoding {
    /// Centroids times a per-row λ: unbiased at any mix of precisions.
    #[default]
    Unbiased,
    /// Centroids: the least error of a single transfer, but biased towards zero.
    Mmse,
    /// The paper's: f·sign for every cut coordinate, f = ‖V‖² / ‖R(V)‖₁ per row (trimmable-gradients §3.2).
    Paper,
}
