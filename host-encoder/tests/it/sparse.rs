// SPDX-License-Identifier: Apache-2.0
//! Sparse messages (docs/reference/wire-format.md §13): what is promised of them whole, cut, repeated, damaged and made up.

use proptest::prelude::*;
use std::collections::BTreeMap;
use trimwire_encoder::sparse::{
    Entry, SPARSE_HEAD_LEN, SparseEncodeError, SparseEncoder, SparseHeader, SparseLayout, SparseMessage,
    SparsePacketError, SparseReceiver,
};
use trimwire_encoder::{Codec, Decoder, Decoding, Envelope, Job, Layout, StreamId, Tensor, bf16, f16};

fn envelope() -> Envelope {
    Envelope { stream: StreamId::new(1, 5).unwrap(), message: 4 }
}

/// Values of many sizes: a few in a hundred are large.
fn gradient(n: usize, seed: u32) -> Vec<f32> {
    (0..n as u32)
        .map(|i| {
            let random = (i ^ seed.wrapping_mul(0x9e37_79b9)).wrapping_mul(0x85eb_ca6b);
            let random = (random ^ random >> 13).wrapping_mul(0xc2b2_ae35) >> 8;
            let x = random as f32 / (1 << 23) as f32 - 1.0;
            x / (1.01 - x.abs())
        })
        .collect()
}

fn encoded(gradient: &[f32], k: usize, packet_bytes: usize) -> (SparseLayout, SparseMessage) {
    let layout = SparseLayout::new(gradient.len()).unwrap();
    let mut message = SparseMessage::default();
    SparseEncoder::new(layout.clone())
        .with_packet_bytes(packet_bytes)
        .unwrap()
        .encode_top(gradient, k, envelope(), &mut message)
        .unwrap();
    (layout, message)
}

fn decoded(receiver: &SparseReceiver) -> Vec<f32> {
    let mut out = vec![f32::NAN; receiver.layout().coordinates()];
    receiver.decode_into(&mut out).unwrap();
    out
}

/// A packet's entries in its order.
fn in_order(message: &SparseMessage, index: usize) -> Vec<Entry> {
    let header = message.header(index).unwrap();
    let inside = |entry: &&Entry| (header.first..=header.last).contains(&entry.index);
    let mut entries: Vec<Entry> = message.entries().iter().filter(inside).copied().collect();
    entries.sort_by(|a, b| b.value.abs().total_cmp(&a.value.abs()).then(a.index.cmp(&b.index)));
    assert_eq!(entries.len(), header.entries);
    entries
}

#[test]
fn packets_fill_an_mtu_and_no_more() {
    let gradient = gradient(1 << 20, 1);
    for k in [1, 100, 10_000, 100_000] {
        let (_, message) = encoded(&gradient, k, 1452);
        let lengths: Vec<_> = (0..message.packets()).map(|index| message.packet(index).len()).collect();
        let (last, full) = lengths.split_last().unwrap();
        // The first one is a guess, of which the others learn.
        let filled = full.iter().skip(1).all(|length| (1350..=1452).contains(length));
        assert!(filled && lengths[0].max(*last) <= 1452, "{lengths:?}");
        assert_eq!(message.entries().len(), k);
    }
}

#[test]
fn one_in_a_hundred_takes_less_than_two_bytes_each() {
    let (_, message) = encoded(&gradient(1 << 20, 2), 10_000, 1452);
    let bytes: usize = (0..message.packets()).map(|index| message.packet(index).len()).sum();
    assert!(bytes < 20_000, "{bytes} bytes");
}

#[test]
fn what_is_left_of_a_gradient_and_what_whole_packets_decode_to_are_the_gradient() {
    let gradient = gradient(50_000, 3);
    let (layout, message) = encoded(&gradient, 700, 500);
    let mut receiver = SparseReceiver::new(layout, envelope());
    for index in 0..message.packets() {
        let receipt = receiver.receive(message.packet(index)).unwrap();
        assert_eq!(receipt.completed, index + 1 == message.packets());
    }
    let mut residual = gradient.clone();
    message.subtract_from(&mut residual).unwrap();
    let received = decoded(&receiver);
    let mut sent = 0;
    for ((left, got), value) in residual.iter().zip(&received).zip(&gradient) {
        assert_eq!(left.to_bits(), if *got == 0.0 { value.to_bits() } else { (value - got).to_bits() });
        sent += usize::from(*got != 0.0);
    }
    assert_eq!(sent, 700);
    assert!(message.subtract_from(&mut [0.0f32; 3]).is_err());
}

#[test]
fn gradients_of_16_bits_are_sent_exactly_with_their_own_fraction_bits() {
    fn sent<E: trimwire_encoder::Element + PartialEq + std::fmt::Debug>(values: &[E], fraction_bits: u8) {
        let layout = SparseLayout::new(values.len()).unwrap();
        let encoder = SparseEncoder::new(layout.clone()).with_fraction_bits(fraction_bits).unwrap();
        let mut message = SparseMessage::default();
        encoder.encode_top(values, values.len(), envelope(), &mut message).unwrap();
        let mut receiver = SparseReceiver::new(layout, envelope());
        for index in 0..message.packets() {
            receiver.receive(message.packet(index)).unwrap();
        }
        let mut out = values.to_vec();
        receiver.decode_into(&mut out).unwrap();
        assert_eq!(out, values);
        message.subtract_from(&mut out).unwrap();
        receiver.add_into(&mut out).unwrap();
        assert_eq!(out, values);
    }
    let values = gradient(3_000, 4);
    sent(&values.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>(), 7);
    // Of f16, subnormal numbers among them: as f32s they have no more bits.
    sent(&values.iter().map(|x| f16::from_f32(x * 1e-5)).collect::<Vec<_>>(), 10);
    sent(&values, 23);
}

#[test]
fn equal_magnitudes_are_chosen_from_the_front() {
    let layout = SparseLayout::new(6).unwrap();
    let mut message = SparseMessage::default();
    let gradient = [1.0, -2.0, 2.0, 0.5, -2.0, 2.0f32];
    SparseEncoder::new(layout).encode_top(&gradient, 3, envelope(), &mut message).unwrap();
    let chosen: Vec<_> = message.entries().iter().map(|entry| (entry.index, entry.value)).collect();
    assert_eq!(chosen, [(1, -2.0), (2, 2.0), (4, -2.0)]);
}

#[test]
fn a_message_of_zeros_is_a_packet_that_completes_it() {
    let (layout, message) = encoded(&[0.0, -0.0, 0.0], 2, 64);
    assert_eq!((message.packets(), message.entries()), (1, &[][..]));
    let mut receiver = SparseReceiver::new(layout, envelope());
    assert!(receiver.receive(message.packet(0)).unwrap().completed && receiver.is_complete());
    assert!(receiver.receive(message.packet(0)).unwrap().duplicate);
    assert_eq!(decoded(&receiver), [0.0; 3]);
}

#[test]
fn a_message_with_nan_or_infinity_decodes_to_nan_and_strict_encoding_names_it() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut gradient = gradient(1_000, 5);
        gradient[77] = bad;
        let (layout, message) = encoded(&gradient, 1, 1452);
        assert!(message.is_not_finite() && message.entries().is_empty());
        let mut receiver = SparseReceiver::new(layout.clone(), envelope());
        receiver.receive(&message.packet(0)[..SPARSE_HEAD_LEN]).unwrap();
        assert!(receiver.is_complete() && decoded(&receiver).iter().all(|x| x.is_nan()));
        let mut sum = vec![1.0f32; 1_000];
        receiver.add_into(&mut sum).unwrap();
        assert!(sum.iter().all(|x| x.is_nan()));
        let mut residual = gradient.clone();
        message.subtract_from(&mut residual).unwrap();
        assert_eq!(residual[..77], gradient[..77]);

        let mut message = message;
        let strict = SparseEncoder::new(layout).strict(true);
        let error = strict.encode_top(&gradient, 5, envelope(), &mut message).unwrap_err();
        assert!(matches!(error, SparseEncodeError::NotFinite { index: 77, .. }), "{error}");
        assert_eq!(message.packets(), 0);
    }
}

#[test]
fn what_cannot_be_encoded_is_refused_by_name() {
    let layout = SparseLayout::new(10).unwrap();
    let encoder = SparseEncoder::new(layout);
    let mut message = SparseMessage::default();
    let mut top = |values: &[f32], k| encoder.encode_top(values, k, envelope(), &mut message).unwrap_err();
    assert_eq!(top(&[1.0; 9], 1), SparseEncodeError::Length { got: 9, expected: 10 });
    assert_eq!(top(&[1.0; 10], 0), SparseEncodeError::K { k: 0, coordinates: 10 });
    assert_eq!(top(&[1.0; 10], 11).to_string(), "k is 11 (valid: 1 to 10, the message's coordinates)");
    let mut of = |indices: &[u32]| {
        let entries: Vec<_> = indices.iter().map(|&index| Entry { index, value: 1.0 }).collect();
        encoder.encode_entries(&entries, envelope(), &mut message)
    };
    let error = of(&[1, 2, 10]).unwrap_err();
    assert_eq!(error.to_string(), "entry 2 is of coordinate 10 of a message of 10");
    for (indices, before) in [([3, 5, 5], 5), ([3, 9, 5], 9)] {
        assert_eq!(of(&indices), Err(SparseEncodeError::NotAscending { position: 2, index: 5, before }));
    }
    assert_eq!(of(&[0, 9]), Ok(()));
    let refused = encoder.clone().with_fraction_bits(24).unwrap_err();
    assert_eq!(refused.to_string(), "24 fraction bits (valid: 0 to 23)");
    let refused = encoder.with_packet_bytes(63).unwrap_err();
    assert_eq!(refused.to_string(), "packets of 63 bytes (valid: 64 to 65507)");
}

#[test]
fn packets_keep_to_the_layer_class_of_their_tensors() {
    let tensors = [(300, 1), (200, 1), (7, 7), (993, 0)]
        .map(|(coordinates, layer_class)| Tensor { coordinates, layer_class });
    let layout = SparseLayout::of_tensors(&tensors).unwrap();
    let mut message = SparseMessage::default();
    let gradient = gradient(1_500, 6);
    SparseEncoder::new(layout).encode_top(&gradient, 1_500, envelope(), &mut message).unwrap();
    let classes: Vec<_> = (0..message.packets())
        .map(|index| {
            let header = message.header(index).unwrap();
            (header.prefix.layer_class, header.first, header.last)
        })
        .collect();
    assert_eq!(classes, [(1, 0, 499), (7, 500, 506), (0, 507, 1_499)]);
}

#[test]
fn receivers_that_agree_on_a_number_of_entries_decode_alike() {
    let gradient = gradient(20_000, 7);
    let (layout, message) = encoded(&gradient, 900, 300);
    let receiver = |share: usize| {
        let mut receiver = SparseReceiver::new(layout.clone(), envelope());
        for index in 0..message.packets() {
            let packet = message.packet(index);
            let body = packet.len() - SPARSE_HEAD_LEN;
            receiver.receive(&packet[..SPARSE_HEAD_LEN + body * (share + index % 3) / 8]).unwrap();
        }
        receiver
    };
    let (mut a, mut b) = (receiver(2), receiver(4));
    assert_ne!(decoded(&a), decoded(&b));
    for index in 0..message.packets() {
        let common = a.coverage(index).min(b.coverage(index));
        a.limit(index, common);
        b.limit(index, common);
    }
    assert_eq!(decoded(&a), decoded(&b));
    let stats = a.stats();
    assert_eq!((stats.full, stats.cut, stats.missing), (0, message.packets(), Some(0)));
    a.reset(envelope());
    assert_eq!((a.packets(), decoded(&a).iter().any(|x| *x != 0.0)), (None, false));
}

#[test]
fn outputs_of_another_length_are_refused() {
    let receiver = SparseReceiver::new(SparseLayout::new(5).unwrap(), envelope());
    let error = receiver.decode_into(&mut [0.0f32; 4]).unwrap_err();
    assert_eq!((error.got, error.expected), (4, 5));
    assert!(receiver.add_into(&mut [0.0f32; 6]).is_err());
}

#[test]
fn receivers_of_planes_and_of_entries_refuse_each_other_s_packets() {
    let (layout, message) = encoded(&gradient(100, 8), 10, 1452);
    let dense = Layout::new(100, 448).unwrap();
    let mut decoder = Decoder::new(dense.clone(), Job::new(1), envelope(), Decoding::Unbiased);
    let error = decoder.receive(message.packet(0)).unwrap_err().to_string();
    assert!(error.starts_with("unknown codec 6") && error.contains("6, sparse"), "{error}");
    let mut planes = trimwire_encoder::Message::default();
    trimwire_encoder::Encoder::new(dense, Job::new(1))
        .encode(&gradient(100, 8), envelope(), Codec::Rht.planes(), &mut planes)
        .unwrap();
    let error = SparseReceiver::new(layout, envelope()).receive(planes.packet(0)).unwrap_err();
    assert_eq!(error, SparsePacketError::Dense(0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Packets in any order, cut anywhere, some of them several times: each adds the largest entries that it still holds, and none twice.
    #[test]
    fn whatever_arrives_decodes_to_the_largest_entries_of_each_packet(
        n in 1usize..3_000, share in 1usize..100, packet_bytes in 64usize..400, seed in any::<u32>(),
        arrivals in prop::collection::vec((any::<prop::sample::Index>(), 0usize..500), 0..40),
    ) {
        let gradient = gradient(n, seed);
        let (layout, message) = encoded(&gradient, (n * share / 100).max(1), packet_bytes);
        let mut receiver = SparseReceiver::new(layout, envelope());
        let mut most: BTreeMap<usize, usize> = BTreeMap::new();
        for (index, cut) in arrivals {
            let index = index.index(message.packets());
            let packet = message.packet(index);
            let packet = &packet[..packet.len().min(cut)];
            let before = receiver.coverage(index);
            match receiver.receive(packet) {
                Ok(receipt) => {
                    let longest = most.entry(index).or_default();
                    prop_assert_eq!(receipt.duplicate, packet.len() <= *longest || receiver.coverage(index) == before && *longest > 0);
                    *longest = packet.len().max(*longest);
                    prop_assert_eq!((receipt.entries_before, receipt.entries_now), (before, receiver.coverage(index)));
                }
                Err(error) => {
                    prop_assert!(packet.len() < SPARSE_HEAD_LEN, "{}", error);
                    prop_assert_eq!(receiver.coverage(index), before);
                }
            }
        }
        let mut expected = vec![0.0f32; n];
        let mut whole = 0;
        for index in 0..message.packets() {
            let held = receiver.coverage(index);
            prop_assert_eq!(receiver.arrived(index), most.contains_key(&index));
            let entries = in_order(&message, index);
            for entry in &entries[..held] {
                expected[entry.index as usize] = entry.value;
            }
            whole += usize::from(held == entries.len());
            if let Some(longest) = most.get(&index) {
                prop_assert_eq!(held == entries.len(), *longest == message.packet(index).len());
            }
        }
        prop_assert_eq!(receiver.is_complete(), whole == message.packets());
        prop_assert_eq!(&decoded(&receiver), &expected);
        let mut sum = vec![1.0f32; n];
        receiver.add_into(&mut sum).unwrap();
        for (sum, value) in sum.iter().zip(&expected) {
            prop_assert_eq!(*sum, 1.0 + value);
        }
    }

    #[test]
    fn heads_write_what_they_read(bytes in prop::collection::vec(any::<u8>(), SPARSE_HEAD_LEN), packets in 1u32..=1 << 20) {
        let (_, message) = encoded(&gradient(100, 9), 10, 1452);
        let header = SparseHeader {
            index: u32::from(bytes[0]) % packets,
            packets,
            entries: usize::from(u16::from_be_bytes([bytes[1], bytes[2]])) % 8_160 + 1,
            first: u32::from_be_bytes([bytes[3], bytes[4], bytes[5], bytes[6]]),
            last: u32::from_be_bytes([bytes[7], bytes[8], bytes[9], bytes[10]]),
            order: bytes[11] % 63,
            ..*message.header(0).unwrap()
        };
        prop_assert_eq!(SparseHeader::parse(&header.to_bytes()), Ok(header));
    }
}
