// SPDX-License-Identifier: Apache-2.0
//! What an encoder keeps for itself is what receivers of all of its packets hold.

use proptest::prelude::*;
use trimwire_encoder::{
    Codec, Decoder, Decoding, Encoder, Envelope, Isa, Job, Layout, RowChoice, RowJob, StreamId, bf16,
};

const JOB: Job = Job::new(21);
const ENVELOPE: Envelope = Envelope { stream: StreamId::new(3, 4).unwrap(), message: 5 };

/// Noise of one magnitude, with spikes, or with hardly anything else: those rows are rotated twice.
fn gradients() -> impl Strategy<Value = Vec<f32>> {
    let spikes = prop::collection::vec((any::<prop::sample::Index>(), -8.0f32..8.0), 0..6);
    let magnitude =
        prop_oneof![4 => Just(1.0f32), 1 => Just(0.0f32), 1 => Just(1e-38f32), 1 => Just(1e30f32)];
    (1usize..40_000, magnitude, spikes, any::<u32>()).prop_map(|(length, magnitude, spikes, seed)| {
        let uniform = |i: u32| {
            let word = trimwire_encoder::rotate::philox::philox4x32([i, 0, 0, 0], [seed, 7])[0];
            (word >> 8) as f32 / 8_388_608.0 - 1.0
        };
        let mut gradient: Vec<f32> = (0..length as u32).map(|i| magnitude * uniform(i)).collect();
        for (at, spike) in spikes {
            gradient[at.index(length)] = spike * magnitude.max(1e-30);
        }
        gradient
    })
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn an_encoder_keeps_what_receivers_of_whole_packets_decode_and_its_packets_do_not_change(
        gradient in gradients(), blocks in 1usize..24, row_log2 in 5u8..16, planes in 1u8..=10,
    ) {
        let layout = Layout::new(gradient.len(), 32 * blocks).and_then(|layout| layout.with_row_log2(row_log2)).unwrap();
        let choice = RowChoice { planes, ..RowChoice::whole(Codec::Rht) };
        for isa in Isa::available() {
            let encoder = Encoder::new(layout.clone(), JOB).with_isa(isa);
            let mut decoder = Decoder::new(layout.clone(), JOB, ENVELOPE, Decoding::Unbiased).with_planes(planes).with_isa(isa);
            let mut own = vec![f32::NAN; gradient.len()];
            for row in 0..layout.rows() {
                let place = layout.row_coordinates(row);
                let mut packets = vec![0xa5; encoder.row_len(row, planes)];
                let mut plain = packets.clone();
                let values = &gradient[place.clone()];
                let kept = encoder.encode_row(row, RowJob::of(values).keeping(&mut own[place]), ENVELOPE, choice, &mut packets);
                prop_assert_eq!(kept, encoder.encode_row(row, values, ENVELOPE, choice, &mut plain));
                prop_assert_eq!(&packets, &plain);
                let mut rest = &packets[..];
                for (_, place) in layout.row_places(row) {
                    let (packet, tail) = rest.split_at(Codec::Rht.packet_len(planes, place.len(), false));
                    decoder.receive(packet).unwrap();
                    rest = tail;
                }
            }
            let mut received = vec![0.0; gradient.len()];
            decoder.decode_into(&mut received).unwrap();
            prop_assert_eq!(bits(&own), bits(&received), "{}", isa);
        }
    }
}

#[test]
fn of_raw_an_encoder_keeps_the_values_in_whatever_format_it_keeps_them() {
    let mut gradient: Vec<f32> = (0..40_000).map(|i| (i as f32).sin()).collect();
    gradient[..4].copy_from_slice(&[f32::NAN, f32::NEG_INFINITY, -0.0, f32::from_bits(1)]);
    let layout = Layout::new(gradient.len(), 352).unwrap();
    let encoder = Encoder::new(layout.clone(), JOB).with_codec(Codec::Raw);
    let (mut own, mut narrow) = (vec![0.0; gradient.len()], vec![bf16::ZERO; gradient.len()]);
    for row in 0..layout.rows() {
        let place = layout.row_coordinates(row);
        let (values, choice) = (&gradient[place.clone()], RowChoice::whole(Codec::Raw));
        let mut packets = vec![0; encoder.row_len(row, 1)];
        let job = RowJob::of(values).keeping(&mut own[place.clone()]);
        encoder.encode_row(row, job, ENVELOPE, choice, &mut packets).unwrap();
        let job = RowJob::of(values).keeping(&mut narrow[place]);
        encoder.encode_row(row, job, ENVELOPE, choice, &mut packets).unwrap();
    }
    assert_eq!(bits(&own), bits(&gradient));
    let rounded = |(kept, value): (&bf16, &f32)| kept.to_bits() == bf16::from_f32(*value).to_bits();
    assert!(narrow.iter().zip(&gradient).all(rounded));
}
