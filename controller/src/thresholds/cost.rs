//! What a cut costs: the codec's error at that size, from the codec's own constants.

use trimwire_encoder::{Codec, Decoding, HEADER_LEN, expected_nmse};

use crate::units::FRAME_HEAD;

/// Share of a packet's energy that is lost when its frame is cut to `frame` bytes: D_b of the planes that are left, 1 when
/// nothing is, 0 for a whole packet of `coordinates` coordinates.
///
/// Of a plane that is cut through, the coordinates that arrived count (docs/wire-format.md §6).
pub(super) fn of_cut(frame: u64, coordinates: u64) -> f64 {
    let codec = Codec::Rht;
    let body = frame.saturating_sub(FRAME_HEAD + HEADER_LEN as u64) as usize;
    let end_of = |planes: u8| codec.plane_offset(planes, coordinates as usize);
    let whole = (0..=codec.planes()).rev().find(|planes| end_of(*planes) <= body).unwrap_or(0);
    if whole == codec.planes() {
        return 0.0;
    }
    let part = (body - end_of(whole)) as f64 / (end_of(whole + 1) - end_of(whole)) as f64;
    // Without λ the loss of a row is the sum of its packets' (docs/wire-format.md §9), which is what can be weighted and added up.
    expected_nmse(codec, Decoding::Mmse, &[(whole, 1.0 - part), (whole + 1, part)]).unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::CutSize;

    /// Max's table (Quantizing for Minimum Distortion, 1960), not the crate's: an embedded quantiser comes near the best of each size.
    #[test]
    fn a_cut_costs_little_more_than_the_best_quantiser_of_as_many_bits() {
        for (planes, distortion) in [(1, 0.3634), (2, 0.1175), (4, 0.0095), (8, 4.1e-5)] {
            let cost = of_cut(CutSize::Planes(planes).bytes(448), 448);
            assert!((cost / distortion - 1.0).abs() < 0.05, "{planes} planes: {cost}");
        }
        assert_eq!(of_cut(CutSize::Planes(10).bytes(448), 448), 0.0);
        assert_eq!(of_cut(60, 448), 1.0);
        // SONiC's default leaves 68 bytes, 1.21 planes, and Spectrum's least 196: three planes and half of the fourth. The wire
        // format's D_3 and D_4.
        assert!((0.1175..0.3634).contains(&of_cut(128, 448)));
        let spectrum = 0.03547_f64.midpoint(0.00962);
        assert!((of_cut(256, 448) - spectrum).abs() < 1e-4);
        // Of smaller packets the same bytes are more planes (4.4 planes, error 0.007).
        assert!((of_cut(256, 352) - 0.007).abs() < 0.001);
    }

    #[test]
    fn a_byte_more_never_costs_more() {
        let costs: Vec<f64> = (0..=1500).map(|frame| of_cut(frame, 448)).collect();
        assert!(costs.is_sorted_by(|shorter, longer| shorter >= longer));
    }
}
