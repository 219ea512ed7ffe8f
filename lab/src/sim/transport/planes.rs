// SPDX-License-Identifier: Apache-2.0
//! How many bit-planes a packet of so many bytes holds (docs/reference/wire-format.md), and what
//! they are worth.

use crate::sim::packet::HEAD;
use trimwire_encoder::quantiser;

/// All planes.
pub(crate) const WHOLE: u8 = 10;

/// Bits of a coordinate in so many planes: one for each of the first eight, eight for the two
/// others.
pub(crate) fn bits(planes: u8) -> u32 {
    u32::from(planes) + 7 * u32::from(planes.saturating_sub(8))
}

/// Coordinates of a packet, `whole` planes of which take `payload` bytes.
pub(crate) fn coordinates(payload: u32, whole: u8) -> u32 {
    8 * payload / bits(whole).max(1)
}

/// Bytes of the first `planes` planes of a packet whose `whole` planes take `payload` bytes.
pub(crate) fn bytes_of(planes: u8, payload: u32, whole: u8) -> u32 {
    let coordinates = coordinates(payload, whole);
    match planes {
        _ if planes >= whole => payload,
        0..=8 => coordinates.div_ceil(8) * u32::from(planes),
        _ => coordinates * bits(planes) / 8,
    }
}

/// Planes that a frame holds whole, of a packet whose `whole` planes take `payload` bytes, when it
/// begins behind `skipped` bytes of them.
pub(crate) fn held(length: u32, skipped: u32, payload: u32, whole: u8) -> u8 {
    let end = skipped + length.saturating_sub(HEAD);
    (0..=whole).rev().find(|&planes| bytes_of(planes, payload, whole) <= end).unwrap_or(0)
}

/// The share of a Gaussian coordinate's energy that so many planes keep: 1 − D_b
/// (docs/reference/wire-format.md, §5).
pub(crate) fn share_kept(planes: u8) -> f64 {
    1.0 - quantiser::distortion(planes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_are_those_of_the_wire_format() {
        // 448 coordinates: signs in a frame of 118 bytes, eight planes in 510, nine in 958, ten in
        // 1,406.
        for (planes, frame) in [(1, 118), (8, 510), (9, 958), (10, 1_406)] {
            assert_eq!(bytes_of(planes, 1_344, WHOLE) + HEAD, frame);
            assert_eq!(held(frame, 0, 1_344, WHOLE), planes);
            assert_eq!(held(frame - 1, 0, 1_344, WHOLE), planes - 1);
            // A packet that has no more planes than these holds the same coordinates.
            assert_eq!(coordinates(frame - HEAD, planes), 448);
            assert_eq!(bytes_of(1, frame - HEAD, planes) + HEAD, 118);
            assert_eq!(held(frame, 0, frame - HEAD, planes), planes);
        }
        // What follows eight planes is the two others.
        assert_eq!(held(HEAD + 896, 448, 1_344, WHOLE), 10);
    }

    #[test]
    fn a_sign_only_message_has_the_closed_forms_error() {
        // docs/reference/wire-format.md §13: π/2 − 1.
        let nmse = 1.0 / share_kept(1) - 1.0;
        assert!((nmse - (std::f64::consts::FRAC_PI_2 - 1.0)).abs() < 1e-3, "{nmse}");
    }
}
