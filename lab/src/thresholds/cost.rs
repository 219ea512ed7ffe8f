// SPDX-License-Identifier: Apache-2.0
//! What a trim costs: the codec's error at that size, from the codec's own constants.

use trimwire_encoder::wire::TAG_LEN;
use trimwire_encoder::{BIT_PLANES, Codec, Decoding, HEADER_LEN, expected_nmse};

/// Ethernet, IPv4 and UDP, and the packet's own header, bytes.
const HEAD: usize = 42 + HEADER_LEN;

/// Share of a packet's energy that is lost when its frame is trimmed to `frame` bytes: D_b of the
/// planes that are left, 1 when nothing is, 0 for a whole packet, which has eight.
///
/// Of a plane that is trimmed through, the coordinates that arrived count
/// (docs/reference/wire-format.md §6). Of a sealed packet, only planes in front of the last whole
/// tag do (docs/reference/wire-format.md §12).
///
/// `coordinates` are those of a whole packet, a multiple of 32; `sealed` says whether tags lie
/// between its planes.
pub fn of_trimmed(frame: u64, coordinates: u64, sealed: bool) -> f64 {
    let codec = Codec::Rht;
    let body = frame.saturating_sub(HEAD as u64) as usize;
    let end_of = |planes: u8| codec.plane_offset(planes, coordinates as usize);
    if sealed {
        let tagged = codec.tagged_planes(0, BIT_PLANES);
        let ends = tagged.planes().iter().map(|plane| plane + 1).zip(1..);
        let believed = ends.filter(|(planes, tags)| end_of(*planes) + TAG_LEN * tags <= body).last();
        return match believed.map(|(planes, _)| planes) {
            Some(BIT_PLANES) => 0.0,
            planes => expected_nmse(codec, Decoding::Mmse, &[(planes.unwrap_or(0), 1.0)]),
        };
    }
    let whole = (0..=BIT_PLANES).rev().find(|planes| end_of(*planes) <= body).unwrap_or(0);
    if whole == BIT_PLANES {
        return 0.0;
    }
    let part = (body - end_of(whole)) as f64 / (end_of(whole + 1) - end_of(whole)) as f64;
    // Without λ the loss of a row is the sum of its packets' (docs/reference/wire-format.md §9),
    // which is what can be weighted and added up.
    expected_nmse(codec, Decoding::Mmse, &[(whole, 1.0 - part), (whole + 1, part)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Coordinates of a packet that fills an MTU of 1500.
    const N: u64 = 1_376;

    fn frame(planes: u8, sealed: bool) -> u64 {
        // A tag behind the last plane is there only when the packet is whole; in front, all of the
        // planes that are left.
        let tagged = Codec::Rht.tagged_planes(0, BIT_PLANES);
        let tags = tagged.planes().iter().filter(|tagged| sealed && **tagged < planes).count();
        (HEAD + Codec::Rht.plane_offset(planes, N as usize) + TAG_LEN * tags) as u64
    }

    /// Max's table (Quantizing for Minimum Distortion, 1960), not the crate's: an embedded
    /// quantiser comes near the best of each size.
    #[test]
    fn a_cut_costs_little_more_than_the_best_quantiser_of_as_many_bits() {
        for (planes, distortion) in [(1, 0.3634), (2, 0.1175), (4, 0.0095)] {
            let cost = of_trimmed(frame(planes, false), N, false);
            assert!((cost / distortion - 1.0).abs() < 0.05, "{planes} planes: {cost}");
        }
        assert_eq!(of_trimmed(frame(8, false), N, false), 0.0);
        assert_eq!(of_trimmed(60, N, false), 1.0);
        // SONiC's default leaves 66 bytes, a third of the signs, and Spectrum's least 194: all of
        // them and 16 of the second plane's 172 bytes.
        assert!((0.3634..1.0).contains(&of_trimmed(128, N, false)));
        let [one, two] = [1, 2].map(|planes| of_trimmed(frame(planes, false), N, false));
        let spectrum = one - 16.0 / 172.0 * (one - two);
        assert!((of_trimmed(256, N, false) - spectrum).abs() < 1e-4);
        // Of smaller packets the same bytes are more planes (4.4 planes, error 0.007).
        assert!((of_trimmed(256, 352, false) - 0.007).abs() < 0.001);
    }

    #[test]
    fn a_byte_more_never_costs_more() {
        for sealed in [false, true] {
            let costs: Vec<f64> = (0..=1500).map(|frame| of_trimmed(frame, N, sealed)).collect();
            assert!(costs.is_sorted_by(|shorter, longer| shorter >= longer));
        }
    }

    #[test]
    fn a_cut_of_a_sealed_packet_is_worth_the_planes_in_front_of_its_last_whole_tag() {
        let cost = |planes: u8, less: u64| of_trimmed(frame(planes, true) - less, N, true);
        let signs = of_trimmed(frame(1, false), N, false);
        assert_eq!([cost(1, 1), cost(1, 0), cost(4, 0), cost(8, 1)], [1.0, signs, signs, signs]);
        assert_eq!(cost(8, 0), 0.0);
    }
}
