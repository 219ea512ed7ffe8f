// SPDX-License-Identifier: Apache-2.0
//! `vectors.json`, which an independent implementation in Python made from the wire format's page
//! (`reference/`), against this crate: bytes and decoded values.

use std::collections::BTreeMap;

use serde::Deserialize;
use sha2::{Digest, Sha256};
use trimwire_encoder::rotate::philox::philox4x32;
use trimwire_encoder::{
    Codec, Decoder, Decoding, Encoder, Envelope, HeaderMask, Importance, Isa, Job, Layout, Message,
    PacketView, RowChoice, RowJob, RowReceiver, StreamId, Tensor, f16,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vectors {
    #[serde(rename = "format")]
    _format: String,
    tolerance: Tolerance,
    job_seed: String,
    message: u32,
    envelope: Outside,
    masks: Vec<MaskVector>,
    #[serde(rename = "check")]
    _check: serde_json::Value,
    philox: Vec<Philox>,
    #[serde(rename = "centroids")]
    _centroids: serde_json::Value,
    #[serde(rename = "distortions")]
    _distortions: Vec<f64>,
    gradients: BTreeMap<String, Values>,
    refused: Refused,
    long_rows: Vec<LongRow>,
    last_rows: LastRows,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tolerance {
    relative_to_row_rms: f64,
    absolute: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Outside {
    job: u8,
    rank: u16,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TensorOf {
    coordinates: usize,
    layer_class: u8,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Philox {
    key: String,
    counter: String,
    output: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Values {
    begins: Vec<String>,
    values: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refused {
    codec: String,
    tensors: Vec<TensorOf>,
    coordinates_per_packet: usize,
    row_log2: u8,
    packets: Vec<RefusedPacket>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RefusedPacket {
    why: String,
    codec: Option<String>,
    #[serde(default)]
    after: Vec<String>,
    packet: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    codec: String,
    gradient: String,
    tensors: Vec<TensorOf>,
    coordinates_per_packet: usize,
    row_log2: u8,
    planes: Vec<u8>,
    important_from: Option<f64>,
    packets: Vec<String>,
    decoded: Vec<Decoded>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Decoded {
    decoding: String,
    lengths: Vec<Option<usize>>,
    #[serde(default)]
    then: Vec<String>,
    begins: Vec<String>,
    values: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LongRow {
    row_log2: u8,
    coordinates_per_packet: usize,
    seed: u32,
    every: usize,
    planes: u8,
    bytes: usize,
    sha256: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LastRows {
    codec: String,
    tensors: Vec<TensorOf>,
    coordinates_per_packet: usize,
    row_log2: u8,
    planes: u8,
    rows: Vec<LastRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LastRow {
    row: usize,
    values: String,
    packet: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MaskVector {
    incarnation: String,
    packet: String,
    masked: String,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../vectors.json")).expect("vectors.json is as its README says")
}

fn words(hex: &str) -> Vec<u32> {
    hex.as_bytes()
        .chunks(8)
        .map(|digits| u32::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap())
        .collect()
}

fn floats(hex: &str) -> Vec<f32> {
    words(hex).into_iter().map(f32::from_bits).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|digits| u8::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap())
        .collect()
}

fn decoding(name: &str) -> Decoding {
    match name {
        "unbiased" => Decoding::Unbiased,
        "mmse" => Decoding::Mmse,
        "paper" => Decoding::Paper,
        other => panic!("decoding {other}"),
    }
}

fn layout(tensors: &[TensorOf], per_packet: usize, row_log2: u8) -> Layout {
    let tensors: Vec<Tensor> =
        tensors.iter().map(|t| Tensor { coordinates: t.coordinates, layer_class: t.layer_class }).collect();
    Layout::of_tensors(&tensors, per_packet).and_then(|layout| layout.with_row_log2(row_log2)).unwrap()
}

impl Vectors {
    fn job(&self) -> Job {
        Job::new(u64::from_str_radix(&self.job_seed, 16).unwrap())
    }

    fn envelope(&self) -> Envelope {
        let stream = StreamId::new(self.envelope.job, self.envelope.rank).unwrap();
        Envelope { stream, message: self.message }
    }

    /// The case's gradient and layout.
    fn input(&self, case: &Case) -> (Vec<f32>, Layout) {
        let gradient = floats(&self.gradients[&case.gradient].values);
        let layout = layout(&case.tensors, case.coordinates_per_packet, case.row_log2);
        assert_eq!(layout.coordinates(), gradient.len(), "{}", case.name);
        (gradient, layout)
    }
}

impl Case {
    fn choice(&self, row: usize) -> RowChoice {
        let importance = self.important_from.map_or(Importance::Always, Importance::AtLeast);
        RowChoice { planes: self.planes[row], importance }
    }

    /// An encoder of the case's messages, and a decoder that expects them.
    fn ends(&self, vectors: &Vectors, layout: &Layout, isa: Isa, decoding: Decoding) -> (Encoder, Decoder) {
        let (job, codec) = (vectors.job(), self.codec.parse().unwrap());
        let decoder = Decoder::new(layout.clone(), job, vectors.envelope(), decoding)
            .with_codec(codec)
            .with_planes(self.planes.iter().copied().max().unwrap())
            .with_isa(isa);
        (Encoder::new(layout.clone(), job).with_codec(codec).with_isa(isa), decoder)
    }
}

/// The first coordinate that lies further off than the tolerance, and by how much.
fn first_difference(layout: &Layout, tolerance: &Tolerance, got: &[f32], want: &[f32]) -> Option<String> {
    let absolute = f64::from(floats(&tolerance.absolute)[0]);
    for row in 0..layout.rows() {
        let range = layout.row_coordinates(row);
        let (got, want) = (&got[range.clone()], &want[range.clone()]);
        let square: f64 = want.iter().map(|&x| f64::from(x).powi(2)).sum();
        let allowed = tolerance.relative_to_row_rms * (square / want.len() as f64).sqrt() + absolute;
        for (at, (&got, &want)) in range.zip(got.iter().zip(want)) {
            let same = got == want || (got.is_nan() && want.is_nan());
            let close = (f64::from(got) - f64::from(want)).abs() <= allowed;
            if !same && !close {
                return Some(format!("coordinate {at}: got {got:e}, expected {want:e} ± {allowed:e}"));
            }
        }
    }
    None
}

/// What differs between packets, for a person to find it.
fn packet_difference(got: &[u8], want: &[u8]) -> String {
    let at = got.iter().zip(want).position(|(a, b)| a != b).unwrap_or(got.len().min(want.len()));
    format!(
        "{} and {} bytes, {} of them differ, the first one byte {at}; headers {:02x?} and {:02x?}",
        got.len(),
        want.len(),
        got.iter().zip(want).filter(|(a, b)| a != b).count(),
        &got[..20.min(got.len())],
        &want[..20.min(want.len())],
    )
}

/// Fails with everything that went wrong, one a line.
fn report(differences: &[String]) {
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

#[test]
fn philox_gives_the_published_words() {
    for one in vectors().philox {
        let key = words(&one.key).try_into().unwrap();
        let counter = words(&one.counter).try_into().unwrap();
        assert_eq!(philox4x32(counter, key).to_vec(), words(&one.output));
    }
}

#[test]
fn long_rows_become_the_packets_of_the_reference_on_every_set() {
    let vectors = vectors();
    assert!(!vectors.long_rows.is_empty());
    for row in &vectors.long_rows {
        let LongRow { row_log2, coordinates_per_packet, seed, every, planes, bytes: length, sha256 } = row;
        let word = |i: u32| philox4x32([i / 4, 0, 0, 0], [*seed, 0])[i as usize % 4];
        let uniform = |i: u32| (word(i) >> 8) as f32 / 8_388_608.0 - 1.0;
        let value = |i: u32| if (i as usize).is_multiple_of(*every) { uniform(i) } else { 0.0 };
        let gradient: Vec<f32> = (0..1 << row_log2).map(value).collect();
        let layout = Layout::new(gradient.len(), *coordinates_per_packet)
            .and_then(|layout| layout.with_row_log2(*row_log2))
            .unwrap();
        for isa in Isa::available() {
            let mut message = Message::default();
            let encoder = Encoder::new(layout.clone(), vectors.job()).with_isa(isa);
            encoder.encode(&gradient, vectors.envelope(), *planes, &mut message).unwrap();
            assert_eq!(message.rows()[0].twice, *every > 1);
            let hash = Sha256::digest(message.row(0)).to_vec();
            let expected = (*length, bytes(sha256));
            assert_eq!((message.row(0).len(), hash), expected, "{isa}, every {every}, {planes} planes");
        }
    }
}

#[test]
fn the_last_rows_of_the_largest_message_are_the_reference_s() {
    let vectors = vectors();
    let LastRows { codec, tensors, coordinates_per_packet, row_log2, planes, rows } = &vectors.last_rows;
    let (codec, layout) = (codec.parse().unwrap(), layout(tensors, *coordinates_per_packet, *row_log2));
    let encoder = Encoder::new(layout.clone(), vectors.job()).with_codec(codec);
    for LastRow { row, values, packet } in rows {
        let choice = RowChoice { planes: *planes, importance: Importance::Always };
        let mut packets = vec![0; encoder.row_len(*row, *planes)];
        encoder.encode_row(*row, &floats(values), vectors.envelope(), choice, &mut packets).unwrap();
        assert!(packets == bytes(packet), "row {row}: {}", packet_difference(&packets, &bytes(packet)));
        let decoding = Decoding::Unbiased;
        let mut receiver = RowReceiver::new(&layout, *row, vectors.job(), vectors.envelope(), decoding);
        assert_eq!(receiver.receive(&packets).map(|receipt| receipt.index), Ok(*row));
    }
}

#[test]
fn an_incarnation_s_mask_is_the_reference_s_and_comes_off() {
    for MaskVector { incarnation, packet, masked } in vectors().masks {
        let (packet, mut covered) = (bytes(&packet), bytes(&packet));
        let mask = HeaderMask::of(words(&incarnation)[0]);
        mask.apply(&mut covered);
        assert_eq!(covered, bytes(&masked), "incarnation {incarnation}");
        assert_eq!(PacketView::parse_masked(&covered, mask), PacketView::parse(&packet));
        assert_eq!(PacketView::parse(&covered).is_ok(), mask == HeaderMask::NONE);
    }
}

#[test]
fn the_decimals_are_those_of_the_bits() {
    let vectors = vectors();
    let decoded = vectors.cases.iter().flat_map(|case| &case.decoded).map(|d| (&d.begins, &d.values));
    for (begins, values) in vectors.gradients.values().map(|g| (&g.begins, &g.values)).chain(decoded) {
        for (text, value) in begins.iter().zip(floats(values)) {
            let read: f32 = text.parse().unwrap();
            assert!(read.to_bits() == value.to_bits() || (read.is_nan() && value.is_nan()), "{text}");
        }
    }
}

#[test]
fn every_packet_is_the_reference_byte_for_byte_under_every_instruction_set() {
    let vectors = vectors();
    let mut differences = Vec::new();
    for case in &vectors.cases {
        let (gradient, layout) = vectors.input(case);
        for isa in Isa::available() {
            let mut message = Message::default();
            let (encoder, _) = case.ends(&vectors, &layout, isa, Decoding::Unbiased);
            encoder.encode_with(&gradient, vectors.envelope(), |row| case.choice(row), &mut message).unwrap();
            assert_eq!(message.packets(), case.packets.len(), "{}", case.name);
            for (index, want) in case.packets.iter().enumerate() {
                let (got, want) = (message.packet(index), bytes(want));
                if got != want {
                    let what = packet_difference(got, &want);
                    differences.push(format!("{} ({isa}), packet {index}: {what}", case.name));
                }
            }
        }
    }
    report(&differences);
}

#[test]
fn every_trim_decodes_to_the_reference_under_every_instruction_set() {
    let vectors = vectors();
    let mut differences = Vec::new();
    for case in &vectors.cases {
        let (gradient, layout) = vectors.input(case);
        for (number, decoded) in case.decoded.iter().enumerate() {
            for isa in Isa::available() {
                let (_, mut decoder) = case.ends(&vectors, &layout, isa, decoding(&decoded.decoding));
                let sent = case.packets.iter().zip(&decoded.lengths);
                let arrived = sent.filter_map(|(packet, length)| length.map(|l| bytes(packet)[..l].to_vec()));
                for packet in arrived.chain(decoded.then.iter().map(|packet| bytes(packet))) {
                    decoder.receive(&packet).unwrap();
                }
                let mut out = vec![f32::MAX; gradient.len()];
                decoder.decode_into(&mut out).unwrap();
                let want = floats(&decoded.values);
                if let Some(what) = first_difference(&layout, &vectors.tolerance, &out, &want) {
                    differences.push(format!("{} ({isa}), decoded {number}: {what}", case.name));
                }
            }
        }
    }
    report(&differences);
}

#[test]
fn the_encoder_s_own_reconstruction_is_what_receivers_of_whole_packets_get_bit_for_bit() {
    let vectors = vectors();
    for case in &vectors.cases {
        let (gradient, layout) = vectors.input(case);
        for isa in Isa::available() {
            let (encoder, mut decoder) = case.ends(&vectors, &layout, isa, Decoding::Unbiased);
            let (mut own, mut halves) = (vec![0.0; gradient.len()], vec![f16::ZERO; gradient.len()]);
            for row in 0..layout.rows() {
                let (place, choice) = (layout.row_coordinates(row), case.choice(row));
                let mut packets = vec![0; encoder.row_len(row, choice.planes)];
                let values = &gradient[place.clone()];
                let envelope = vectors.envelope();
                let job = RowJob::of(values).keeping(&mut own[place.clone()]);
                encoder.encode_row(row, job, envelope, choice, &mut packets).unwrap();
                let job = RowJob::of(values).keeping(&mut halves[place]);
                encoder.encode_row(row, job, envelope, choice, &mut packets).unwrap();
                let mut rest = &packets[..];
                for index in layout.row_packets(row) {
                    let n = layout.packet_range(index).len();
                    let (packet, tail) = rest.split_at(encoder_len(case, choice.planes, n));
                    decoder.receive(packet).unwrap();
                    rest = tail;
                }
            }
            let mut received = vec![0.0; gradient.len()];
            decoder.decode_into(&mut received).unwrap();
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&own), bits(&received), "{} ({isa})", case.name);
            let narrow: Vec<u16> = received.iter().map(|v| f16::from_f32(*v).to_bits()).collect();
            assert_eq!(halves.iter().map(|v| v.to_bits()).collect::<Vec<_>>(), narrow, "{}", case.name);
        }
    }
}

fn encoder_len(case: &Case, planes: u8, n: usize) -> usize {
    case.codec.parse::<Codec>().unwrap().packet_len(planes, n, false)
}

#[test]
fn what_is_to_be_refused_is_refused() {
    let vectors = vectors();
    let refused = &vectors.refused;
    let layout = layout(&refused.tensors, refused.coordinates_per_packet, refused.row_log2);
    for one in &refused.packets {
        let codec = one.codec.as_ref().unwrap_or(&refused.codec);
        let job = vectors.job();
        let mut decoder = Decoder::new(layout.clone(), job, vectors.envelope(), Decoding::Unbiased)
            .with_codec(codec.parse().unwrap());
        for packet in &one.after {
            decoder.receive(&bytes(packet)).unwrap();
        }
        assert!(decoder.receive(&bytes(&one.packet)).is_err(), "{}", one.why);
    }
}
