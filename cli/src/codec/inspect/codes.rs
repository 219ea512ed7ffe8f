// SPDX-License-Identifier: Apache-2.0
//! Code words of coordinates, and what is known of the values behind them
//! (docs/reference/wire-format.md).

use serde::Serialize;
use trimwire_encoder::quantiser::{magnitude_of_code, peak_magnitude};
use trimwire_encoder::{Codec, PacketView};

/// The largest magnitude code of rht.
const LAST_CODE: f64 = ((1_u32 << 23) - 1) as f64;

/// What a packet says about one coordinate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Coordinate {
    /// Its place in the packet.
    pub index: usize,
    /// The code word; bits that did not arrive are 0.
    pub code: u32,
    /// Which bits of the code word arrived.
    pub known: u32,
    /// Bits that arrived.
    pub bits: u32,
    /// Least value that the coordinate can have; of rotated codecs, after the rotation.
    pub low: f64,
    /// Largest value that it can have.
    pub high: f64,
}

/// The first `count` coordinates of a packet.
pub(super) fn coordinates(view: &PacketView, count: usize) -> Vec<Coordinate> {
    (0..count.min(view.header().coordinates)).map(|index| coordinate(view, index)).collect()
}

fn coordinate(view: &PacketView, index: usize) -> Coordinate {
    let (header, body) = (view.header(), view.body());
    let (codec, n) = (header.codec(), header.coordinates);
    let offset = |plane| codec.plane_offset(plane, n) - codec.plane_offset(header.first_plane, n);
    let (mut code, mut known) = (0, 0);
    for plane in header.first_plane..codec.planes() {
        let width = 8 * (offset(plane + 1) - offset(plane)) / n;
        let mask = if plane == 0 { codec.mask_len(n) } else { 0 };
        let at = offset(plane) + mask + index * width / 8;
        let Some(bytes) = body.get(at..at + width.div_ceil(8)) else { break };
        let value = bytes.iter().fold(0, |value: u32, byte| value << 8 | u32::from(*byte));
        match (width, plane) {
            (1, _) => {
                code |= (value >> (index % 8) & 1) << (31 - plane);
                known |= 1 << (31 - plane);
            }
            (8, _) => {
                let shift = 8 * (10 - plane.min(10));
                code |= value << shift;
                known |= 0xff << shift;
            }
            _ => (code, known) = (value, u32::MAX),
        }
    }
    let bits = known.count_ones();
    let (low, high) = range(view, code, known);
    Coordinate { index, code, known, bits, low, high }
}

/// Bounds of a coordinate's value.
fn range(view: &PacketView, code: u32, known: u32) -> (f64, f64) {
    let header = view.header();
    let codec = header.codec();
    // Every f32 is exact in f64; the peak's own byte is rounded up, so the bound holds up to
    // rounding.
    let (sigma, peak) = (f64::from(header.sigma), f64::from(peak_magnitude(header.peak)));
    let bound = sigma * peak;
    if header.is_not_finite() {
        return (f64::NAN, f64::NAN);
    }
    // Only what is known from the top down narrows a value; a repair's planes alone do not.
    let leading = known.leading_ones();
    let open = u32::MAX.checked_shr(leading).unwrap_or(0);
    match codec {
        _ if leading == 0 => (-bound, bound),
        Codec::Raw if leading == 32 => {
            let value = f64::from(f32::from_bits(code));
            (value, value)
        }
        Codec::Raw => (-bound, bound),
        Codec::Rht => {
            let magnitude_code = |word: u32| f64::from((word & 0x7fff_ffff) >> 8);
            let magnitude = |code| sigma * magnitude_of_code(code, header.peak);
            // Codes are rounded: each stands for what lies half a code to either side, the last one
            // for all beyond.
            let low = (magnitude_code(code & !open) - 0.5).max(0.0);
            let high = magnitude_code(code | open) + 0.5;
            let high = if high > LAST_CODE { LAST_CODE + 1.0 } else { high };
            signed(code, magnitude(low), magnitude(high).min(bound))
        }
    }
}

fn signed(code: u32, low: f64, high: f64) -> (f64, f64) {
    if code >> 31 == 1 { (-high, 0.0 - low) } else { (low, high) }
}
