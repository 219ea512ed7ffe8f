// SPDX-License-Identifier: Apache-2.0
//! Promises at the edges: sparse and subnormal rows, made-up headers, trimmed repairs in any order.

use proptest::prelude::*;
use trimwire_encoder::wire::plane_offset;
use trimwire_encoder::{
    Codec, DEFAULT_COORDINATES_PER_PACKET, Decoder, Decoding, Encoder, Envelope, HEADER_LEN, Header, Job,
    Layout, Message, PLANES, StreamId, expected_nmse, nmse,
};

const ENVELOPE: Envelope = Envelope { stream: StreamId::new(1, 5).unwrap(), message: 77 };
const JOB: Job = Job::new(42);

fn encode(gradient: &[f32], layout: &Layout) -> Message {
    let mut message = Message::default();
    Encoder::new(layout.clone(), JOB).encode(gradient, ENVELOPE, PLANES, &mut message).unwrap();
    message
}

fn decode<'a>(layout: &Layout, packets: impl IntoIterator<Item = &'a [u8]>) -> Vec<f32> {
    let mut decoder = Decoder::new(layout.clone(), JOB, ENVELOPE, Decoding::Unbiased);
    packets.into_iter().for_each(|packet| {
        decoder.receive(packet).unwrap();
    });
    let mut out = vec![0.0; layout.coordinates()];
    decoder.decode_into(&mut out).unwrap();
    out
}

fn spike(value: f32) -> Vec<f32> {
    let mut row = vec![0.0; 32_768];
    row[12_345] = value;
    row
}

#[test]
fn a_lone_spike_is_exact_at_any_trim_but_that_to_its_cell() {
    let layout = Layout::new(32_768, DEFAULT_COORDINATES_PER_PACKET).unwrap();
    let row = spike(-3.0);
    let sent = encode(&row, &layout);
    for planes in 1..=PLANES {
        let trimmed = |i| &sent.packet(i)[..HEADER_LEN + plane_offset(planes, layout.packet_range(i).len())];
        let got = decode(&layout, (0..sent.packets()).map(trimmed));
        // With all bit-planes it is decoded by its cell: the square of half a cell's width, (17/32
        // / 29.5 / 2)².
        let bound = if planes == 8 { 8.2e-5 } else { 1e-9 };
        assert!(nmse(&got, &row) < bound, "{planes} planes: {}", nmse(&got, &row));
    }
}

/// Rows that are rotated once although their magnitudes are not all alike: κ is 255, and one plane
/// does not say everything.
#[test]
fn what_is_nearly_a_lone_spike_has_the_error_of_its_depth_and_no_bias() {
    let layout = Layout::new(32_768, DEFAULT_COORDINATES_PER_PACKET).unwrap();
    for share in [1e-6, 1e-5, 1e-4, 3e-4, 1e-3, 2.4e-3] {
        // Noise of that share of the energy.
        let uniform = |i: u32| f64::from(i.wrapping_mul(2_654_435_761) >> 8) / f64::from(1 << 23) - 1.0;
        let mut row: Vec<f32> =
            (0..32_768).map(|i| (0..4).map(|k| uniform(4 * i + k)).sum::<f64>() as f32).collect();
        let noise: f64 = row.iter().map(|x| f64::from(*x).powi(2)).sum();
        row[12_345] = (noise / share).sqrt() as f32;
        let sent = encode(&row, &layout);
        assert!(!sent.rows()[0].twice, "{share}");
        for planes in 2..=8 {
            let trimmed =
                |i| &sent.packet(i)[..HEADER_LEN + plane_offset(planes, layout.packet_range(i).len())];
            let got = decode(&layout, (0..sent.packets()).map(trimmed));
            let promise = expected_nmse(Codec::Rht, Decoding::Unbiased, &[(planes, 1.0)]);
            let error = nmse(&got, &row);
            assert!(
                error <= 1.05 * promise,
                "{planes} planes, {share}: {error:e} where {promise:e} is promised"
            );
            let product = |a: &[f32], b: &[f32]| -> f64 {
                a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
            };
            let projection = product(&got, &row) / product(&row, &row);
            assert!((projection - 1.0).abs() < 0.01, "{planes} planes, {share}: projection {projection}");
        }
    }
}

/// docs/reference/wire-format.md §8, "Three decodings": a few equal non-zeros are what one rotation
/// makes no normal coordinates of.
#[test]
fn the_mean_projection_of_equal_non_zeros_is_as_near_to_1_as_is_promised_for_their_row_s_length() {
    const ROWS: usize = 400;
    for (log2, promise) in [(5, 0.08), (6, 0.08), (7, 0.08), (8, 0.035), (9, 0.02), (10, 0.01)] {
        let d = 1usize << log2;
        let layout = Layout::new(ROWS * d, 448).and_then(|layout| layout.with_row_log2(log2)).unwrap();
        for k in [1, 2, 3, 4, 7, 16, d / 2, d] {
            // Of 256 and more, which are rotated once, sums lie on a lattice that edges of cells
            // divide unevenly.
            let promise = if k < 256 { promise } else { 0.035 };
            let mut gradient = vec![0.0f32; ROWS * d];
            for (row, values) in gradient.chunks_mut(d).enumerate() {
                for i in 0..k {
                    let random = ((row * k + i) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
                    // Places an odd number apart do not meet.
                    let place = (row * 7 + i * (d / 3 * 2 + 1)) % d;
                    values[place] = if random.is_multiple_of(2) { 1.0 } else { -1.0 };
                }
            }
            let sent = encode(&gradient, &layout);
            for planes in 1..=8 {
                let trimmed =
                    |i| &sent.packet(i)[..HEADER_LEN + plane_offset(planes, layout.packet_range(i).len())];
                let got = decode(&layout, (0..sent.packets()).map(trimmed));
                let projections: Vec<f64> = got
                    .chunks(d)
                    .zip(gradient.chunks(d))
                    .map(|(a, b)| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>() / k as f64)
                    .collect();
                let mean = projections.iter().sum::<f64>() / ROWS as f64;
                let variance =
                    projections.iter().map(|p| (p - mean).powi(2)).sum::<f64>() / (ROWS - 1) as f64;
                // Three standard errors.
                let room = 3.0 * (variance / ROWS as f64).sqrt();
                assert!((mean - 1.0).abs() < promise + room, "{k} of {d}, {planes} planes: {mean} ± {room}");
            }
        }
    }
}

#[test]
fn a_row_whose_rms_underflows_is_not_lost() {
    let layout = Layout::new(32_768, DEFAULT_COORDINATES_PER_PACKET).unwrap();
    for value in [1e-42, 1e-43, 1e-44, f32::from_bits(1)] {
        let sent = encode(&spike(value), &layout);
        assert_eq!(decode(&layout, (0..sent.packets()).map(|i| sent.packet(i))), spike(value), "{value:e}");
    }
}

#[test]
fn a_short_last_row_is_as_important_as_its_energy_per_coordinate() {
    let layout = Layout::new(4_096 + 200, 352).unwrap();
    let sent = encode(&vec![1.0; layout.coordinates()], &layout);
    let figures: Vec<f64> = sent.rows().iter().map(|row| row.figure).collect();
    // σ has eleven bits of fraction.
    assert!((figures[0] - 1.0).abs() < 5e-4, "{figures:?}");
    // 200 coordinates padded to 256.
    assert!((figures[1] * 256.0 / 200.0 - 1.0).abs() < 5e-4, "{figures:?}");
}

#[test]
fn whole_packets_are_expected_to_have_no_error() {
    for decoding in [Decoding::Unbiased, Decoding::Mmse, Decoding::Paper] {
        assert_eq!(expected_nmse(Codec::Rht, decoding, &[(PLANES, 1.0)]), 0.0);
    }
}

proptest! {
    #[test]
    fn trimmed_repairs_decode_the_same_in_any_order(
        pieces in prop::collection::vec((0..PLANES, 1..=PLANES, 0usize..1_500), 1..8),
        order in prop::collection::vec(any::<prop::sample::Index>(), 8),
    ) {
        let layout = Layout::new(352, 352).unwrap();
        let gradient: Vec<f32> = (0..352u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 1e6 - 8.0).collect();
        let sent = encode(&gradient, &layout);
        let packets: Vec<Vec<u8>> = pieces
            .iter()
            .map(|&(first, count, length)| {
                let packet = sent.repair(0, first..(first + count).min(PLANES)).unwrap();
                packet[..(HEADER_LEN + length).min(packet.len())].to_vec()
            })
            .collect();
        let mut shuffled = packets.clone();
        for (i, index) in order.iter().enumerate().take(packets.len()) {
            shuffled.swap(i, index.index(packets.len()));
        }
        prop_assert_eq!(
            decode(&layout, packets.iter().map(Vec::as_slice)),
            decode(&layout, shuffled.iter().map(Vec::as_slice))
        );
    }

    #[test]
    fn made_up_headers_never_decode_to_nan(
        headers in prop::collection::vec((0.0f32..3.4e38, -90i32..39, any::<u8>(), any::<u8>(), 0usize..140), 4),
        paper: bool,
    ) {
        let layout = Layout::new(128, 32).unwrap();
        let decoding = if paper { Decoding::Paper } else { Decoding::Unbiased };
        let mut decoder = Decoder::new(layout.clone(), JOB, ENVELOPE, decoding);
        for (index, &(sigma, power, kappa, peak, length)) in headers.iter().enumerate() {
            let sigma = if power < -45 { sigma } else { 10f32.powi(power) };
            let sent = encode(&[1.0; 128], &layout);
            let (mut packet, header) = (sent.packet(index).to_vec(), sent.header(index).unwrap());
            let made_up = Header { sigma, kappa: kappa % 3, peak, ..header };
            packet[..HEADER_LEN].copy_from_slice(&made_up.to_bytes());
            packet.truncate(HEADER_LEN + length);
            decoder.receive(&packet).unwrap();
        }
        let mut out = vec![0.0; 128];
        decoder.decode_into(&mut out).unwrap();
        prop_assert!(out.iter().all(|v| !v.is_nan()), "{:?}", out);
    }
}

#[test]
fn a_row_whose_rms_is_beyond_f32_is_marked_and_one_with_such_a_sum_alone_is_not() {
    let layout = Layout::new(4_096 + 64, 448).unwrap();
    let mut gradient = vec![f32::MAX; 4_096];
    gradient.extend((0..64).map(|i| i as f32 - 20.0));
    for strict in [false, true] {
        let mut sent = Message::default();
        let encoder = Encoder::new(layout.clone(), JOB).strict(strict);
        encoder.encode(&gradient, ENVELOPE, PLANES, &mut sent).expect("all values are finite");
        assert!(sent.rows()[0].figure.is_nan() && sent.rows()[0].important);
        assert!(sent.header(3).is_some_and(|header| header.is_not_finite() && header.zeros == 0));
        let got = decode(&layout, (0..sent.packets()).map(|i| sent.packet(i)));
        assert!(got[..4_096].iter().all(|v| v.is_nan()));
        assert!(nmse(&got[4_096..], &gradient[4_096..]) < 1e-12);
    }
    gradient[..4_096].fill(0.0);
    gradient[77] = f32::MAX;
    let sent = encode(&gradient, &layout);
    let got = decode(&layout, (0..sent.packets()).map(|i| sent.packet(i)));
    assert!(got[77] >= 0.999 * f32::MAX, "{}", got[77]);
    assert!(got[..64].iter().all(|v| *v == 0.0));
}
