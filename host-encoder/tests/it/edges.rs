//! Promises at the edges: sparse and subnormal rows, made-up headers, cut repairs in any order.

use proptest::prelude::*;
use trimwire_encoder::wire::plane_offset;
use trimwire_encoder::{
    Codec, DEFAULT_COORDINATES_PER_PACKET, Decoder, Decoding, Encoder, Envelope, HEADER_LEN, Header, Job,
    Layout, Message, PLANES, PacketError, StreamId, expected_nmse, nmse,
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
fn a_lone_spike_is_exact_at_any_cut_but_that_to_its_cell() {
    let layout = Layout::new(32_768, DEFAULT_COORDINATES_PER_PACKET).unwrap();
    let row = spike(-3.0);
    let sent = encode(&row, &layout);
    for planes in 1..=PLANES {
        let cut = |i| &sent.packet(i)[..HEADER_LEN + plane_offset(planes, layout.packet_range(i).len())];
        let got = decode(&layout, (0..sent.packets()).map(cut));
        // With all bit-planes it is decoded by its cell: the square of half a cell's width, (17/32 / 29.5 / 2)².
        let bound = if planes == 8 { 8.2e-5 } else { 1e-9 };
        assert!(nmse(&got, &row) < bound, "{planes} planes: {}", nmse(&got, &row));
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
    let layout = Layout::new(32_768 + 200, 352).unwrap();
    let sent = encode(&vec![1.0; layout.coordinates()], &layout);
    let figures: Vec<f64> = sent.rows().iter().map(|row| row.figure).collect();
    assert!((figures[0] - 1.0).abs() < 1e-6, "{figures:?}");
    // 200 coordinates padded to 256.
    assert!((figures[1] - 200.0 / 256.0).abs() < 1e-6, "{figures:?}");
}

#[test]
fn planes_of_two_encodings_do_not_mix() {
    let layout = Layout::new(352, 352).unwrap();
    let (one, other) = (encode(&[1.0; 352], &layout), encode(&[2.0; 352], &layout));
    let mut decoder = Decoder::new(layout.clone(), JOB, ENVELOPE, Decoding::Unbiased);
    decoder.receive(&one.packet(0)[..200]).unwrap();
    assert_eq!(decoder.receive(other.packet(0)), Err(PacketError::Contradiction(0)));
    assert_eq!(decoder.coverage(0), decoder.receive(&one.packet(0)[..200]).unwrap().planes_now);
}

#[test]
fn whole_packets_are_expected_to_have_no_error() {
    for decoding in [Decoding::Unbiased, Decoding::Mmse, Decoding::Paper] {
        assert_eq!(expected_nmse(Codec::Rht, decoding, &[(PLANES, 1.0)]), Some(0.0));
    }
}

proptest! {
    #[test]
    fn cut_repairs_decode_the_same_in_any_order(
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
