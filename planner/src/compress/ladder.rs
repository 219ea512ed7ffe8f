// SPDX-License-Identifier: Apache-2.0
//! From a law's ratio to what Trimwire sends.

use serde::Serialize;
use trimwire_encoder::{Codec, DEFAULT_COORDINATES_PER_PACKET, PLANES};

/// A rung of the continuum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rung {
    /// All rows, with so many planes of the default codec.
    Planes(u8),
    /// Below one plane: the largest so many coordinates, with error feedback. No message of the codec's carries them.
    TopK(usize),
}

/// Bytes of an entry, place and value, with its share of headers, at densities down to 0.1 %
/// (docs/project/removed.md, sparse messages).
const ENTRY: f64 = 2.5;

/// Bytes of a packet of so many planes over those of its f32s.
pub(crate) fn packet_share(planes: u8) -> f64 {
    let whole = 4 * DEFAULT_COORDINATES_PER_PACKET;
    Codec::Rht.packet_len(planes, DEFAULT_COORDINATES_PER_PACKET, false) as f64 / whole as f64
}

/// The most that a ratio of the f32s' bytes has room for, for a tensor of so many coordinates.
pub fn rung(ratio: f64, coordinates: usize) -> Rung {
    if let Some(planes) = (1..=PLANES).rev().find(|&planes| packet_share(planes) <= ratio) {
        return Rung::Planes(planes);
    }
    let entries = (4.0 * coordinates as f64 * ratio.max(0.0) / ENTRY) as usize;
    Rung::TopK(entries.clamp(coordinates.min(1), coordinates))
}
