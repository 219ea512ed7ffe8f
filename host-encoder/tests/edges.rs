//! Promises at the edges: sparse and subnormal rows, made-up headers, cut repairs in any order.

use proptest::prelude::*;
use trimwire_encoder::packet::{HEADER_LEN, PacketError, StreamId, plane_offset};
use trimwire_encoder::{
    Codec, DEFAULT_COORDINATES_PER_PACKET, Decoder, Decoding, EncodeError, Encoder, Envelope, Layout,
    Message, PLANES, RotationKey, expected_nmse, nmse,
};

const ENVELOPE: Envelope = Envelope { stream: StreamId::new(1, 5).unwrap(), message: 77, layer_class: 2 };
const KEY: RotationKey = RotationKey { job_seed: 42, message: 77, rank: 5 };

fn encode(gradient: &[f32], layout: Layout) -> Message {
    let mut message = Message::default();
    Encoder::new(layout, KEY).encode(gradient, ENVELOPE, PLANES, &mut message).unwrap();
    message
}

fn decode<'a>(layout: Layout, packets: impl IntoIterator<Item = &'a [u8]>) -> Vec<f32> {
    let mut decoder = Decoder::new(layout, KEY, Decoding::Unbiased);
    packets.into_iter().for_each(|packet| {
        decoder.receive(packet).unwrap();
    });
    let mut out = vec![0.0; layout.coordinates()];
    decoder.finish_into(&mut out);
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
    let sent = encode(&row, layout);
    for planes in 1..=PLANES {
        let cut = |i| &sent.packet(i)[..HEADER_LEN + plane_offset(planes, layout.packet_range(i).len())];
        let got = decode(layout, (0..sent.packets()).map(cut));
        // With all bit-planes it is decoded by its cell: the square of half a cell's width, (17/32 / 29.5 / 2)².
        let bound = if planes == 8 { 8.2e-5 } else { 1e-9 };
        assert!(nmse(&got, &row) < bound, "{planes} planes: {}", nmse(&got, &row));
    }
}

#[test]
fn a_row_whose_rms_underflows_is_not_lost() {
    let layout = Layout::new(32_768, DEFAULT_COORDINATES_PER_PACKET).unwrap();
    for value in [1e-42, 1e-43, 1e-44, f32::from_bits(1)] {
        let sent = encode(&spike(value), layout);
        assert_eq!(decode(layout, (0..sent.packets()).map(|i| sent.packet(i))), spike(value), "{value:e}");
    }
}

#[test]
fn a_short_last_row_is_as_important_as_its_energy_per_coordinate() {
    let layout = Layout::new(32_768 + 352, 352).unwrap();
    let sent = encode(&vec![1.0; layout.coordinates()], layout);
    // 352 coordinates padded to 512 have 352/512 of the first row's energy per coordinate; three times that is more.
    assert!(!sent.importance(sent.packets() - 1));
    let mut louder = vec![1.0; layout.coordinates()];
    louder[32_768..].fill(1.5);
    let sent = encode(&louder, layout);
    assert!(sent.importance(sent.packets() - 1) && !sent.importance(0));
}

#[test]
fn planes_of_two_encodings_do_not_mix() {
    let layout = Layout::new(352, 352).unwrap();
    let (one, other) = (encode(&[1.0; 352], layout), encode(&[2.0; 352], layout));
    let mut decoder = Decoder::new(layout, KEY, Decoding::Unbiased);
    decoder.receive(&one.packet(0)[..200]).unwrap();
    assert_eq!(decoder.receive(other.packet(0)), Err(PacketError::Contradiction(0)));
    assert_eq!(decoder.coverage(0), decoder.receive(&one.packet(0)[..200]).unwrap().planes_now);
}

#[test]
fn a_layer_class_beyond_three_bits_is_named() {
    let encoder = Encoder::new(Layout::new(10, 32).unwrap(), KEY);
    let envelope = Envelope { layer_class: 8, ..ENVELOPE };
    let error = encoder.encode(&[1.0; 10], envelope, PLANES, &mut Message::default());
    assert_eq!(error, Err(EncodeError::LayerClass(8)));
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
        let sent = encode(&gradient, layout);
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
            decode(layout, packets.iter().map(Vec::as_slice)),
            decode(layout, shuffled.iter().map(Vec::as_slice))
        );
    }

    #[test]
    fn made_up_headers_never_decode_to_nan(
        headers in prop::collection::vec((0.0f32..3.4e38, -90i32..39, any::<u8>(), any::<u8>(), 0usize..140), 4),
        paper: bool,
    ) {
        let layout = Layout::new(128, 32).unwrap();
        let mut decoder = Decoder::new(layout, KEY, if paper { Decoding::Paper } else { Decoding::Unbiased });
        for (index, &(sigma, power, kappa, peak, length)) in headers.iter().enumerate() {
            let sigma = if power < -45 { sigma } else { 10f32.powi(power) };
            let mut packet = encode(&[1.0; 128], layout).packet(index).to_vec();
            packet[12..16].copy_from_slice(&sigma.to_be_bytes());
            packet[16..18].copy_from_slice(&[kappa % 3, peak]);
            packet.truncate(HEADER_LEN + length);
            decoder.receive(&packet).unwrap();
        }
        let mut out = vec![0.0; 128];
        decoder.finish_into(&mut out);
        prop_assert!(out.iter().all(|v| !v.is_nan()), "{:?}", out);
    }
}
