// SPDX-License-Identifier: Apache-2.0
//! What every codec promises: closed forms, special rows, number formats, threads and instruction
//! sets.

use crate::input::gaussian;
use trimwire_encoder::{
    Codec, Decoder, Decoding, Element, EncodeError, Encoder, Envelope, HEADER_LEN, Isa, Job, Layout, Message,
    PLANES, StreamId, bf16, f16, nmse,
};

const ENVELOPE: Envelope = Envelope { stream: StreamId::new(1, 5).unwrap(), message: 77 };
const JOB: Job = Job::new(42);

fn layout(coordinates: usize) -> Layout {
    Layout::new(coordinates, 352).unwrap()
}

fn encode(codec: Codec, gradient: &[f32], job: Job) -> Message {
    let mut message = Message::default();
    let encoder = Encoder::new(layout(gradient.len()), job).with_codec(codec);
    encoder.encode(gradient, ENVELOPE, codec.planes(), &mut message).unwrap();
    message
}

/// Decodes packets that are trimmed to `planes`, 0 for lost ones.
fn decode(message: &Message, length: usize, decoding: Decoding, planes: impl Fn(usize) -> u8) -> Vec<f32> {
    let (layout, codec) = (layout(length), message.codec());
    let mut decoder = Decoder::new(layout.clone(), JOB, ENVELOPE, decoding).with_codec(codec);
    for index in 0..message.packets() {
        let n = layout.packet_range(index).len();
        let length = HEADER_LEN + codec.plane_offset(planes(index), n);
        if planes(index) > 0 {
            decoder.receive(&message.packet(index)[..length]).unwrap();
        }
    }
    let mut out = vec![f32::NAN; length];
    decoder.decode_into(&mut out).unwrap();
    out
}

#[test]
fn raw_is_bit_exact_when_whole() {
    let mut gradient = gaussian(70_000, 4);
    gradient[..6].copy_from_slice(&[0.0, -0.0, f32::MIN_POSITIVE, f32::from_bits(1), 3e38, -1e-40]);
    let got = decode(&encode(Codec::Raw, &gradient, JOB), gradient.len(), Decoding::Unbiased, |_| 1);
    assert!(got.iter().zip(&gradient).all(|(a, b)| a.to_bits() == b.to_bits()));
}

#[test]
fn raw_of_16_bits_comes_back_and_is_added_as_f32s_are() {
    // Of several rows, the last of which is neither whole nor a multiple of a vector.
    let values = gaussian(3 * 32_768 + 77, 5);
    fn holds<E: Element + PartialEq + std::fmt::Debug>(
        values: &[f32],
        from: impl Fn(f32) -> E,
        to: impl Fn(E) -> f32,
    ) {
        let narrow: Vec<E> = values.iter().map(|v| from(*v)).collect();
        for isa in Isa::available() {
            let mut message = Message::default();
            let encoder = Encoder::new(layout(values.len()), JOB).with_codec(Codec::Raw).with_isa(isa);
            encoder.encode(&narrow, ENVELOPE, 1, &mut message).unwrap();
            let decoder = Decoder::new(layout(values.len()), JOB, ENVELOPE, Decoding::Unbiased);
            let mut decoder = decoder.with_codec(Codec::Raw).with_isa(isa);
            for index in 0..message.packets() {
                decoder.receive(message.packet(index)).unwrap();
            }
            let mut out = vec![from(9.0); values.len()];
            decoder.decode_into(&mut out).unwrap();
            assert!(out == narrow, "{isa}");
            decoder.add_into(&mut out).unwrap();
            assert!(out.iter().zip(&narrow).all(|(sum, v)| *sum == from(2.0 * to(*v))), "{isa}");
        }
    }
    holds(&values, f16::from_f32, f16::to_f32);
    holds(&values, bf16::from_f32, bf16::to_f32);
}

#[test]
fn raw_packets_give_what_arrived_and_zeros_for_the_rest() {
    let gradient = gaussian(352, 6);
    let message = encode(Codec::Raw, &gradient, JOB);
    let mut decoder = Decoder::new(layout(352), JOB, ENVELOPE, Decoding::Unbiased).with_codec(Codec::Raw);
    decoder.receive(&message.packet(0)[..HEADER_LEN + 4 * 100 + 3]).unwrap();
    let mut out = vec![f32::NAN; 352];
    decoder.decode_into(&mut out).unwrap();
    assert_eq!(out[..100], gradient[..100]);
    assert!(out[100..].iter().all(|v| *v == 0.0));
}

#[test]
fn a_row_that_is_not_finite_is_nan_for_everyone_and_others_are_not_touched() {
    let clean = gaussian(3 * 4_096, 7);
    for (place, value) in [(5_000, f32::NAN), (4_096, f32::INFINITY), (8_191, f32::NEG_INFINITY)] {
        let mut gradient = clean.clone();
        gradient[place] = value;
        {
            let codec = Codec::Rht;
            let message = encode(codec, &gradient, JOB);
            // One packet of the row, trimmed to its head, is enough to know.
            let row = layout(gradient.len()).row_packets(1);
            let got = decode(&message, gradient.len(), Decoding::Unbiased, |i| match i {
                i if !row.contains(&i) => codec.planes(),
                i => u8::from(i == row.start + 3),
            });
            assert!(got[4_096..8_192].iter().all(|v| v.is_nan()), "{codec}");
            let others = got[..4_096].iter().chain(&got[8_192..]);
            assert!(
                others.zip(clean[..4_096].iter().chain(&clean[8_192..])).all(|(a, b)| (a - b).abs() < 1e-4)
            );
            assert!(message.importance(row.start), "{codec}: what stops a step must not be trimmed first");
        }
        let raw = encode(Codec::Raw, &gradient, JOB);
        let got = decode(&raw, gradient.len(), Decoding::Unbiased, |_| 1);
        assert!(
            got.iter().zip(&gradient).all(|(a, b)| a.to_bits() == b.to_bits()),
            "raw carries it as it is"
        );
        let strict = Encoder::new(layout(gradient.len()), JOB).strict(true);
        let mut out = Message::default();
        let error = strict.encode(&gradient, ENVELOPE, PLANES, &mut out).unwrap_err();
        assert!(matches!(error, EncodeError::NotFinite { index, .. } if index == place), "{error}");
        assert_eq!(out.packets(), 0, "nothing is sent by halves");
    }
}

#[test]
fn half_precision_gradients_are_encoded_as_their_f32_values() {
    let values = gaussian(40_000, 8);
    let (mut from_half, mut from_f32) = (Message::default(), Message::default());
    let encoder = Encoder::new(layout(40_000), JOB);
    let halves: Vec<f16> = values.iter().map(|v| f16::from_f32(*v)).collect();
    let widened: Vec<f32> = halves.iter().map(|v| v.to_f32()).collect();
    encoder.encode(&halves, ENVELOPE, PLANES, &mut from_half).unwrap();
    encoder.encode(&widened, ENVELOPE, PLANES, &mut from_f32).unwrap();
    assert!((0..from_f32.packets()).all(|i| from_half.packet(i) == from_f32.packet(i)));
    let brains: Vec<bf16> = values.iter().map(|v| bf16::from_f32(*v)).collect();
    let widened: Vec<f32> = brains.iter().map(|v| v.to_f32()).collect();
    encoder.encode(&brains, ENVELOPE, PLANES, &mut from_half).unwrap();
    encoder.encode(&widened, ENVELOPE, PLANES, &mut from_f32).unwrap();
    assert!((0..from_f32.packets()).all(|i| from_half.packet(i) == from_f32.packet(i)));
    let overflowed = [f16::INFINITY; 40];
    let encoder = Encoder::new(layout(40), JOB).strict(true);
    let error = encoder.encode(&overflowed, ENVELOPE, PLANES, &mut from_half);
    assert!(matches!(error, Err(EncodeError::NotFinite { index: 0, .. })));
}

#[test]
fn threads_and_instruction_sets_do_not_show_in_packets_or_results() {
    let gradient = gaussian(5 * 32_768 + 777, 9);
    let length = gradient.len();
    for codec in Codec::ALL {
        let layout = Layout::new(length, codec.coordinates_per_packet(1500, codec.planes(), false)).unwrap();
        let base = Encoder::new(layout.clone(), JOB).with_codec(codec);
        let mut expected = Message::default();
        let scalar = base.clone().with_isa(Isa::PORTABLE);
        scalar.encode(&gradient, ENVELOPE, codec.planes(), &mut expected).unwrap();
        for isa in Isa::available() {
            for parallel in [false, true] {
                let mut message = Message::default();
                let encoder = base.clone().with_isa(isa).parallel(parallel);
                encoder.encode(&gradient, ENVELOPE, codec.planes(), &mut message).unwrap();
                for index in 0..expected.packets() {
                    let same = message.packet(index) == expected.packet(index);
                    assert!(same, "{codec}, {isa}, packet {index}");
                }
            }
        }
        let decode = |isa: Isa, parallel: bool| {
            let decoder = Decoder::new(layout.clone(), JOB, ENVELOPE, Decoding::Unbiased).with_codec(codec);
            let mut decoder = decoder.with_isa(isa).parallel(parallel);
            for index in (0..expected.packets()).filter(|i| i % 7 != 3) {
                let packet = expected.packet(index);
                decoder.receive(&packet[..packet.len() - index % 5 * packet.len() / 5]).ok();
            }
            let mut out = vec![0.0; length];
            decoder.decode_into(&mut out).unwrap();
            decoder.add_into(&mut out).unwrap();
            out.into_iter().map(f32::to_bits).collect::<Vec<u32>>()
        };
        let scalar = decode(Isa::PORTABLE, false);
        for isa in Isa::available() {
            assert!(decode(isa, false) == scalar && decode(isa, true) == scalar, "{codec}, {isa}");
        }
    }
}

/// Rows of messages as long as this are written past the caches.
#[test]
fn a_long_message_has_the_same_bits_on_every_set_wherever_its_output_begins() {
    let gradient: Vec<f32> = gaussian(1 << 20, 10).into_iter().cycle().take((1 << 22) + 33_000).collect();
    for codec in Codec::ALL {
        let layout = Layout::new(gradient.len(), 352).unwrap();
        let mut message = Message::default();
        let encoder = Encoder::new(layout.clone(), JOB).with_codec(codec);
        encoder.encode(&gradient, ENVELOPE, codec.planes(), &mut message).unwrap();
        let mut expected = Vec::new();
        for isa in Isa::available() {
            let decoder = Decoder::new(layout.clone(), JOB, ENVELOPE, Decoding::Unbiased).with_codec(codec);
            let mut decoder = decoder.with_isa(isa);
            for index in 0..message.packets() {
                decoder.receive(message.packet(index)).unwrap();
            }
            let mut room = vec![f32::NAN; gradient.len() + 17];
            let line = room.as_ptr().align_offset(64);
            for start in [line, line + 1] {
                let out = &mut room[start..start + gradient.len()];
                decoder.decode_into(out).unwrap();
                let bits: Vec<u32> = out.iter().map(|v| v.to_bits()).collect();
                if expected.is_empty() {
                    assert!(nmse(out, &gradient) < 1e-12, "{codec}");
                    expected.clone_from(&bits);
                }
                assert!(bits == expected, "{codec}, {isa}, at a line: {}", start == line);
            }
        }
    }
}

#[test]
fn packets_of_another_codec_are_refused_by_name() {
    let message = encode(Codec::Raw, &gaussian(100, 1), JOB);
    let mut decoder = Decoder::new(layout(100), JOB, ENVELOPE, Decoding::Unbiased);
    let error = decoder.receive(message.packet(0)).unwrap_err();
    assert_eq!(error.to_string(), "a packet of codec raw in a message of codec rht");
    let encoder = Encoder::new(layout(100), JOB).with_codec(Codec::Raw);
    let error = encoder.encode(&[0.0f32; 100], ENVELOPE, 2, &mut Message::default()).unwrap_err();
    assert_eq!(error.to_string(), "2 planes of codec raw (valid: 1 to 1, which keep everything)");
}
