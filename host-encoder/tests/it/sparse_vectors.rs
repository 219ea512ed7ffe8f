// SPDX-License-Identifier: Apache-2.0
//! `sparse_vectors.json`, which an independent implementation in Python made from the wire format's page (`reference/sparse.py`), against this
//! crate: bytes, decoded values and refusals.

use serde::Deserialize;
use trimwire_encoder::sparse::{
    Entry, SparseEncoder, SparseLayout, SparseMessage, SparsePacketError, SparseReceiver,
};
use trimwire_encoder::{Envelope, PacketError, StreamId, Tensor};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vectors {
    #[serde(rename = "format")]
    _format: String,
    envelope: Outside,
    cases: Vec<Case>,
    refused: Refused,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Outside {
    job: u8,
    rank: u16,
    message: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TensorOf {
    coordinates: usize,
    layer_class: u8,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    tensors: Vec<TensorOf>,
    fraction_bits: u8,
    packet_bytes: usize,
    important: bool,
    gradient: Option<String>,
    k: Option<usize>,
    pairs: Option<Vec<(u32, String)>>,
    packets: Vec<String>,
    decoded: Vec<Decoded>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decoded {
    lengths: Vec<Option<usize>>,
    then: Vec<usize>,
    entries: Option<Vec<(u32, String)>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refused {
    tensors: Vec<TensorOf>,
    packets: Vec<RefusedPacket>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RefusedPacket {
    why: String,
    after: Vec<String>,
    packet: String,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../sparse_vectors.json")).expect("the file is what this test reads")
}

fn bytes(digits: &str) -> Vec<u8> {
    (0..digits.len() / 2).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect()
}

fn float(digits: &str) -> f32 {
    f32::from_bits(u32::from_str_radix(digits, 16).unwrap())
}

fn envelope(of: &Outside) -> Envelope {
    Envelope { stream: StreamId::new(of.job, of.rank).unwrap(), message: of.message }
}

fn layout(tensors: &[TensorOf]) -> SparseLayout {
    let tensors: Vec<_> = tensors
        .iter()
        .map(|&TensorOf { coordinates, layer_class }| Tensor { coordinates, layer_class })
        .collect();
    SparseLayout::of_tensors(&tensors).unwrap()
}

#[test]
fn packets_agree_to_the_byte() {
    let vectors = vectors();
    for case in &vectors.cases {
        let encoder = SparseEncoder::new(layout(&case.tensors))
            .with_fraction_bits(case.fraction_bits)
            .and_then(|encoder| encoder.with_packet_bytes(case.packet_bytes))
            .unwrap()
            .important(case.important);
        let (envelope, mut message) = (envelope(&vectors.envelope), SparseMessage::default());
        if let (Some(gradient), Some(k)) = (&case.gradient, case.k) {
            let gradient: Vec<f32> =
                (0..gradient.len() / 8).map(|at| float(&gradient[8 * at..8 * at + 8])).collect();
            encoder.encode_top(&gradient, k, envelope, &mut message).unwrap();
        } else {
            let entry = |(index, value): &(u32, String)| Entry { index: *index, value: float(value) };
            let entries: Vec<Entry> = case.pairs.iter().flatten().map(entry).collect();
            encoder.encode_entries(&entries, envelope, &mut message).unwrap();
        }
        assert_eq!(message.packets(), case.packets.len(), "{}", case.name);
        for (index, packet) in case.packets.iter().enumerate() {
            assert_eq!(message.packet(index), bytes(packet), "{}, packet {index}", case.name);
        }
    }
}

#[test]
fn cut_lost_and_repeated_packets_decode_alike() {
    let vectors = vectors();
    for case in &vectors.cases {
        let packets: Vec<_> = case.packets.iter().map(|packet| bytes(packet)).collect();
        for decoded in &case.decoded {
            let layout = layout(&case.tensors);
            let mut receiver = SparseReceiver::new(layout.clone(), envelope(&vectors.envelope));
            for (packet, length) in packets.iter().zip(&decoded.lengths) {
                if let Some(length) = length {
                    receiver.receive(&packet[..*length]).unwrap();
                }
            }
            for index in &decoded.then {
                receiver.receive(&packets[*index]).unwrap();
            }
            let mut entries: Vec<_> = receiver.entries().collect();
            entries.sort_by_key(|entry| entry.index);
            let expected = decoded.entries.iter().flatten();
            assert!(
                entries
                    .iter()
                    .map(|entry| (entry.index, entry.value.to_bits()))
                    .eq(expected.map(|(index, value)| (*index, float(value).to_bits()))),
                "{}",
                case.name
            );
            if layout.coordinates() <= 1 << 16 {
                let mut out = vec![1.0f32; layout.coordinates()];
                receiver.decode_into(&mut out).unwrap();
                assert_eq!(out.iter().all(|x| x.is_nan()), decoded.entries.is_none(), "{}", case.name);
            }
        }
    }
}

#[test]
fn what_the_page_refuses_is_refused_and_changes_nothing() {
    let vectors = vectors();
    for RefusedPacket { why, after, packet } in &vectors.refused.packets {
        let mut receiver = SparseReceiver::new(layout(&vectors.refused.tensors), envelope(&vectors.envelope));
        for earlier in after {
            receiver.receive(&bytes(earlier)).unwrap();
        }
        let (before, stats): (Vec<_>, _) = (receiver.entries().collect(), receiver.stats());
        let refused = receiver.receive(&bytes(packet));
        let error = refused.expect_err(why);
        let by_check = matches!(error, SparsePacketError::Packet(PacketError::Check { .. }));
        assert_eq!(by_check, why == "check", "{why}: {error}");
        assert!(receiver.entries().eq(before) && receiver.stats() == stats, "{why}");
    }
}
