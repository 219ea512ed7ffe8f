// SPDX-License-Identifier: Apache-2.0
//! What arrives decides, not how: every trim, any order, duplicates, losses, instruction sets.

use proptest::prelude::*;
use trimwire_encoder::{
    Codec, Decoder, Decoding, Encoder, Envelope, HEADER_LEN, Isa, Job, Layout, Message, RowReceiver, StreamId,
};

const JOB: Job = Job::new(11);
const ENVELOPE: Envelope = Envelope { stream: StreamId::new(1, 2).unwrap(), message: 12 };

/// Gradients with everything in them that a codec could stumble over, but NaN.
fn gradients() -> impl Strategy<Value = Vec<f32>> {
    let value = prop_oneof![
        6 => -2.0f32..2.0,
        1 => Just(0.0f32),
        1 => Just(-0.0f32),
        1 => prop::num::f32::SUBNORMAL,
        1 => -1e30f32..1e30,
        1 => -1e-30f32..1e-30,
    ];
    prop_oneof![prop::collection::vec(value, 1..400), prop::collection::vec(-1.0f32..1.0, 1..1_500)]
}

fn codecs() -> impl Strategy<Value = Codec> {
    prop::sample::select(Codec::ALL.to_vec())
}

fn decodings() -> impl Strategy<Value = Decoding> {
    prop::sample::select(vec![Decoding::Unbiased, Decoding::Mmse, Decoding::Paper])
}

/// A number that looks random, by SplitMix64.
fn shuffled(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn layout(coordinates: usize, blocks: usize, row_log2: u8) -> Layout {
    Layout::new(coordinates, 32 * blocks).and_then(|layout| layout.with_row_log2(row_log2)).unwrap()
}

fn encoded(layout: &Layout, codec: Codec, isa: Isa, planes: u8, gradient: &[f32]) -> Message {
    let mut message = Message::default();
    Encoder::new(layout.clone(), JOB)
        .with_codec(codec)
        .with_isa(isa)
        .encode(gradient, ENVELOPE, planes, &mut message)
        .unwrap();
    message
}

/// The bits of what the packets decode to.
fn decoded(
    layout: &Layout,
    codec: Codec,
    decoding: Decoding,
    isa: Isa,
    packets: &[impl AsRef<[u8]>],
) -> Vec<u32> {
    let mut decoder = Decoder::new(layout.clone(), JOB, ENVELOPE, decoding).with_codec(codec).with_isa(isa);
    for packet in packets {
        decoder.receive(packet.as_ref()).unwrap();
    }
    let mut out = vec![f32::NAN; layout.coordinates()];
    decoder.decode_into(&mut out).unwrap();
    bits(&out)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

#[test]
fn every_length_of_a_packet_of_every_codec_decodes() {
    let gradient: Vec<f32> = (0..160u32).map(|i| ((i * i) % 97) as f32 - 48.0).collect();
    for codec in Codec::ALL {
        // Two packets to a row of 256; the second arrives whole.
        let layout = layout(gradient.len(), 4, 8);
        let message = encoded(&layout, codec, Isa::best(), codec.planes(), &gradient);
        for decoding in [Decoding::Unbiased, Decoding::Mmse, Decoding::Paper] {
            let mut last_planes = 0;
            for length in 0..=message.packet(0).len() {
                let mut decoder = Decoder::new(layout.clone(), JOB, ENVELOPE, decoding).with_codec(codec);
                decoder.receive(message.packet(1)).unwrap();
                let receipt = decoder.receive(&message.packet(0)[..length]);
                assert_eq!(receipt.is_ok(), length >= HEADER_LEN, "{codec}, {length} bytes");
                assert!(decoder.coverage(0) >= last_planes);
                last_planes = decoder.coverage(0);
                let mut out = vec![f32::NAN; gradient.len()];
                decoder.decode_into(&mut out).unwrap();
                assert!(out.iter().all(|v| v.is_finite()), "{codec}, {decoding:?}, {length} bytes: {out:?}");
            }
            assert_eq!(last_planes, codec.planes());
        }
    }
}

#[test]
fn a_longer_prefix_is_never_much_worse() {
    let gradient: Vec<f32> =
        (0..4_096u32).map(|i| (0..12).map(|k| hash(12 * i + k)).sum::<f32>() - 6.0).collect();
    let energy: f64 = gradient.iter().map(|&x| f64::from(x).powi(2)).sum();
    for codec in Codec::ALL {
        let n = codec.coordinates_per_packet(1500, codec.planes(), false);
        let layout = layout(gradient.len(), n / 32, 12);
        let message = encoded(&layout, codec, Isa::best(), codec.planes(), &gradient);
        let mut before = f64::INFINITY;
        for length in (HEADER_LEN..=message.packet(0).len()).step_by(n / 8) {
            let packets: Vec<&[u8]> = (0..message.packets())
                .map(|i| &message.packet(i)[..length.min(message.packet(i).len())])
                .collect();
            let out = decoded(&layout, codec, Decoding::Mmse, Isa::best(), &packets);
            let error: f64 = out
                .iter()
                .zip(&gradient)
                .map(|(&bits, &x)| (f64::from(f32::from_bits(bits)) - f64::from(x)).powi(2))
                .sum();
            assert!(error / energy < before * 1.001 + 1e-12, "{codec}, {length} bytes: {error}, {before}");
            before = error / energy;
        }
    }
}

/// Uniform in [0, 1).
fn hash(index: u32) -> f32 {
    (trimwire_encoder::rotate::philox::philox4x32([index, 0, 0, 0], [1, 2])[0] >> 8) as f32 / 16_777_216.0
}

proptest! {
    #[test]
    fn rows_decoded_as_they_complete_are_those_of_the_whole_message(
        gradient in gradients(), codec in codecs(), decoding in decodings(), blocks in 1usize..12, row_log2 in 5u8..10,
        planes in 1u8..=12, seed: u64,
    ) {
        let layout = layout(gradient.len(), blocks, row_log2);
        let planes = planes.min(codec.planes());
        let message = encoded(&layout, codec, Isa::best(), planes, &gradient);
        // Packets come in any order, some trimmed at first, some twice, some never.
        let mut arrivals: Vec<(u64, &[u8])> = Vec::new();
        for index in 0..message.packets() {
            let (packet, luck) = (message.packet(index), shuffled(seed, index as u64));
            if luck % 3 == 0 {
                arrivals.push((shuffled(luck, 1), &packet[..HEADER_LEN + (luck >> 8) as usize % (packet.len() - HEADER_LEN + 1)]));
            }
            if luck % 13 != 0 {
                arrivals.push((shuffled(luck, 2), packet));
                arrivals.push((shuffled(luck, 3), packet));
            }
        }
        arrivals.sort_unstable();
        let decoder = || Decoder::new(layout.clone(), JOB, ENVELOPE, decoding).with_codec(codec).with_planes(planes);
        let row = |row| RowReceiver::new(&layout, row, JOB, ENVELOPE, decoding).with_codec(codec).with_planes(planes);
        let (mut late, mut rows) = (decoder(), (0..layout.rows()).map(row).collect::<Vec<_>>());
        let mut got = vec![f32::NAN; layout.coordinates()];
        let mut decoded = Vec::new();
        for (_, packet) in &arrivals {
            let index = late.receive(packet).unwrap().index;
            let row = layout.packet_row(index);
            let receipt = rows[row].receive(packet).unwrap();
            prop_assert!(!decoded.contains(&row) || (receipt.duplicate && receipt.completed.is_none()));
            if let Some(completed) = receipt.completed {
                prop_assert!(completed == row && rows[row].is_complete());
                rows[row].decode_into(&mut got[layout.row_coordinates(row)]).unwrap();
                decoded.push(row);
            }
        }
        for (row, receiver) in rows.iter().enumerate() {
            let complete = layout.row_packets(row).all(|index| late.coverage(index) >= planes);
            prop_assert_eq!(complete, decoded.contains(&row));
            if !complete {
                receiver.decode_into(&mut got[layout.row_coordinates(row)]).unwrap();
            }
        }
        let mut expected = vec![f32::NAN; layout.coordinates()];
        late.decode_into(&mut expected).unwrap();
        prop_assert_eq!(bits(&got), bits(&expected));
        // A decoder that is used again has forgotten what it held.
        late.reset(ENVELOPE);
        let (mut again, mut whole) = (expected.clone(), decoder());
        for packet in (0..message.packets()).map(|index| message.packet(index)) {
            late.receive(packet).unwrap();
            whole.receive(packet).unwrap();
        }
        late.decode_into(&mut again).unwrap();
        whole.decode_into(&mut expected).unwrap();
        prop_assert_eq!(bits(&again), bits(&expected));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn order_and_duplicates_of_what_arrives_do_not_matter(
        gradient in gradients(), codec in codecs(), decoding in decodings(), blocks in 1usize..17, row_log2 in 5u8..11,
        arrivals in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<(bool, u8, u8)>()), 0..40),
        order in any::<u64>(),
    ) {
        let layout = layout(gradient.len(), blocks, row_log2);
        let message = encoded(&layout, codec, Isa::best(), codec.planes(), &gradient);
        let mut packets: Vec<Vec<u8>> = arrivals
            .iter()
            .map(|(which, length, (repair, from, to))| {
                let index = which.index(message.packets());
                let planes = from % codec.planes()..to % (codec.planes() + 1);
                let whole = repair.then(|| message.repair(index, planes)).flatten();
                let whole = whole.unwrap_or_else(|| message.packet(index).to_vec());
                whole[..HEADER_LEN + length.index(whole.len() - HEADER_LEN + 1)].to_vec()
            })
            .collect();
        let first = decoded(&layout, codec, decoding, Isa::best(), &packets);
        // Another order, with some of them twice.
        for at in (1..packets.len()).rev() {
            packets.swap(at, (order.rotate_left(at as u32) % (at as u64 + 1)) as usize);
        }
        let twice: Vec<Vec<u8>> = packets.iter().skip(packets.len() / 2).cloned().collect();
        packets.extend(twice);
        prop_assert_eq!(&first, &decoded(&layout, codec, decoding, Isa::best(), &packets));
    }

    #[test]
    fn instruction_sets_put_the_same_bytes_on_the_wire_and_take_the_same_numbers_off_it(
        gradient in gradients(), codec in codecs(), decoding in decodings(), blocks in 1usize..17, row_log2 in 5u8..11,
        planes in any::<prop::sample::Index>(), lengths in prop::collection::vec(any::<prop::sample::Index>(), 1..20),
    ) {
        let layout = layout(gradient.len(), blocks, row_log2);
        let planes = 1 + planes.index(usize::from(codec.planes())) as u8;
        let message = encoded(&layout, codec, Isa::PORTABLE, planes, &gradient);
        let packets: Vec<&[u8]> = (0..message.packets())
            .map(|index| {
                let packet = message.packet(index);
                &packet[..HEADER_LEN + lengths[index % lengths.len()].index(packet.len() - HEADER_LEN + 1)]
            })
            .collect();
        let values = decoded(&layout, codec, decoding, Isa::PORTABLE, &packets);
        for isa in Isa::available() {
            let other = encoded(&layout, codec, isa, planes, &gradient);
            for index in 0..message.packets() {
                prop_assert_eq!(message.packet(index), other.packet(index), "packet {} under {}", index, isa);
            }
            prop_assert_eq!(&values, &decoded(&layout, codec, decoding, isa, &packets), "decoded under {}", isa);
        }
    }

    #[test]
    fn losing_packets_is_holding_none_of_their_planes(
        gradient in gradients(), codec in codecs(), decoding in decodings(), row_log2 in 5u8..9, lost in any::<u64>(),
    ) {
        let layout = layout(gradient.len(), 1, row_log2);
        let message = encoded(&layout, codec, Isa::best(), codec.planes(), &gradient);
        let arrives = |index: usize| lost >> (index % 64) & 1 == 0;
        let packets: Vec<&[u8]> = (0..message.packets()).filter(|i| arrives(*i)).map(|i| message.packet(i)).collect();
        let without = decoded(&layout, codec, decoding, Isa::best(), &packets);
        let mut decoder = Decoder::new(layout.clone(), JOB, ENVELOPE, decoding).with_codec(codec);
        for index in 0..message.packets() {
            decoder.receive(message.packet(index)).unwrap();
            if !arrives(index) {
                decoder.limit(index, 0);
            }
        }
        let mut out = vec![f32::NAN; gradient.len()];
        decoder.decode_into(&mut out).unwrap();
        prop_assert_eq!(without, out.into_iter().map(f32::to_bits).collect::<Vec<_>>());
    }
}
