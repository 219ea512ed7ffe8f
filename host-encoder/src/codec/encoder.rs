//! Gradient in, packets out.

use thiserror::Error;

use super::{Envelope, Layout, Message, RotationKey};

/// Why a gradient was not encoded.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A gradient of another length than the layout's.
    #[error("gradient has {coordinates} coordinates where the layout has {expected}")]
    Length {
        /// Coordinates given.
        coordinates: usize,
        /// Coordinates of the layout.
        expected: usize,
    },
    /// NaN or infinity, which no scale can hold.
    #[error("gradient coordinate {index} is {value}; only finite values can be encoded")]
    NotFinite {
        /// The first offending coordinate.
        index: usize,
        /// Its value.
        value: f32,
    },
    /// A number of planes that does not exist.
    #[error("{0} planes: 1 to 11 are possible (11 keeps everything)")]
    Planes(u8),
    /// An envelope that does not fit the header.
    #[error("envelope does not fit the packet header")]
    Envelope(#[from] crate::packet::PacketError),
}

/// Encodes gradients of one layout under one rotation key.
#[derive(Debug, Clone)]
pub struct Encoder {
    layout: Layout,
    key: RotationKey,
}

impl Encoder {
    /// An encoder for messages of `layout`, rotated under `key`.
    pub fn new(layout: Layout, key: RotationKey) -> Self {
        Self { layout, key }
    }

    /// Encodes `gradient` into `out`, keeping the first `planes` (1 to 11; 11 = everything) of each packet: sender truncation is the
    /// same operation as a switch's. On error `out` holds no packets.
    pub fn encode(
        &self,
        gradient: &[f32],
        envelope: Envelope,
        planes: u8,
        out: &mut Message,
    ) -> Result<(), EncodeError> {
        let _ = (self.layout, self.key, gradient, envelope, planes, out);
        todo!()
    }
}
