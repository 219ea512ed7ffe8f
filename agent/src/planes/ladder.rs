// SPDX-License-Identifier: Apache-2.0
//! How many planes a ratio has room for.

use trimwire_encoder::{Codec, DEFAULT_COORDINATES_PER_PACKET, PLANES};

/// Bytes of a packet of so many planes over those of its f32s.
pub(crate) fn packet_share(planes: u8) -> f64 {
    let whole = 4 * DEFAULT_COORDINATES_PER_PACKET;
    Codec::Rht.packet_len(planes, DEFAULT_COORDINATES_PER_PACKET, false) as f64 / whole as f64
}

/// The most planes whose packets take at most this ratio of the f32s' bytes; `None` below one
/// plane.
pub(crate) fn planes_within(ratio: f64) -> Option<u8> {
    (1..=PLANES).rev().find(|&planes| packet_share(planes) <= ratio)
}
