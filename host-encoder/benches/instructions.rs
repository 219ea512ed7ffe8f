//! Instruction counts under valgrind, which no noisy neighbour disturbs: `cargo bench -p trimwire-encoder --bench instructions`.
//! Needs valgrind and `cargo install gungraun-runner --version 0.20.0`.
#![expect(missing_docs, reason = "gungraun's macros make public functions")]

use gungraun::prelude::*;
use std::hint::black_box;
use trimwire_encoder::{
    DEFAULT_COORDINATES_PER_PACKET, Decoder, Decoding, Encoder, Envelope, Isa, Job, Layout, Message, PLANES,
    StreamId, rotate,
};

const COORDINATES: usize = 1 << 15;
const JOB: Job = Job::new(1);

fn isa(name: &str) -> Isa {
    name.parse().unwrap_or(Isa::PORTABLE)
}

fn row(name: &str) -> (Isa, Vec<f32>) {
    let row = (0..COORDINATES as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 1e6 - 8.0);
    (isa(name), row.collect())
}

fn layout() -> Layout {
    Layout::new(COORDINATES, DEFAULT_COORDINATES_PER_PACKET).expect("a valid layout")
}

fn encoded(name: &str) -> (Encoder, Vec<f32>, Message) {
    let (isa, row) = row(name);
    let encoder = Encoder::new(layout(), JOB).with_isa(isa);
    let mut message = Message::default();
    encode(&encoder, &row, &mut message);
    (encoder, row, message)
}

fn envelope() -> Envelope {
    Envelope { stream: StreamId::new(0, 0).expect("a valid stream"), message: 1 }
}

fn encode(encoder: &Encoder, row: &[f32], message: &mut Message) {
    encoder.encode(row, envelope(), PLANES, message).expect("finite");
}

fn received(name: &str) -> (Decoder, Vec<f32>) {
    let (_, out, message) = encoded(name);
    let mut decoder = Decoder::new(layout(), JOB, envelope(), Decoding::Unbiased).with_isa(isa(name));
    for index in 0..message.packets() {
        decoder.receive(message.packet(index)).expect("a valid packet");
    }
    (decoder, out)
}

#[library_benchmark]
#[bench::portable(args = ("portable"), setup = row)]
#[bench::avx2(args = ("avx2"), setup = row)]
fn transform((isa, mut row): (Isa, Vec<f32>)) {
    rotate::transform(isa, black_box(&mut row));
}

#[library_benchmark]
#[bench::portable(args = ("portable"), setup = encoded)]
#[bench::avx2(args = ("avx2"), setup = encoded)]
fn encode_row((encoder, row, mut message): (Encoder, Vec<f32>, Message)) {
    encode(&encoder, black_box(&row), &mut message);
}

#[library_benchmark]
#[bench::portable(args = ("portable"), setup = received)]
#[bench::avx2(args = ("avx2"), setup = received)]
fn decode_row((decoder, mut out): (Decoder, Vec<f32>)) {
    decoder.decode_into(black_box(&mut out)).expect("an output of the right length");
}

library_benchmark_group!(name = codec, benchmarks = [transform, encode_row, decode_row]);
main!(library_benchmark_groups = codec);
