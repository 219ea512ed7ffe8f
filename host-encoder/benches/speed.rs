//! Codec speed by criterion, for each instruction set: `cargo bench -p trimwire-encoder --bench speed`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use trimwire_encoder::{
    Codec, Decoder, Decoding, Encoder, Envelope, Isa, Job, Layout, Message, RowChoice, StreamId, rotate,
};

const COORDINATES: usize = 16 << 15;

fn gradient() -> Vec<f32> {
    (0..COORDINATES as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / 1e6 - 8.0).collect()
}

fn transform(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hadamard 2^15");
    group.throughput(Throughput::Bytes(4 << 15));
    for isa in Isa::available() {
        let mut row = vec![0.0; 1 << 15];
        group.bench_function(isa.name(), |b| b.iter(|| rotate::transform(isa, black_box(&mut row))));
    }
}

fn codec(criterion: &mut Criterion) {
    let gradient = gradient();
    let job = Job::new(1);
    let envelope = Envelope { stream: StreamId::new(0, 0).expect("a valid stream"), message: 1 };
    for codec in [Codec::Rht, Codec::SubtractiveDithering] {
        let layout = Layout::new(COORDINATES, codec.coordinates_per_packet(1500, codec.planes(), false))
            .expect("a valid layout");
        let mut group = criterion.benchmark_group(codec.name());
        group.throughput(Throughput::Bytes(4 * COORDINATES as u64)).sample_size(30);
        for isa in Isa::available() {
            let encoder = Encoder::new(layout.clone(), job).with_codec(codec).with_isa(isa);
            let mut message = Message::default();
            group.bench_function(format!("encode {isa}"), |b| {
                b.iter(|| encoder.encode(black_box(&gradient), envelope, codec.planes(), &mut message));
            });
            for (name, share) in [("whole", 1), ("cut to a quarter", 4)] {
                let mut decoder = Decoder::new(layout.clone(), job, envelope, Decoding::Unbiased)
                    .with_codec(codec)
                    .with_isa(isa);
                for index in 0..message.packets() {
                    let packet = message.packet(index);
                    decoder.receive(&packet[..packet.len() / share]).expect("a valid packet");
                }
                let mut out = vec![0.0; COORDINATES];
                group.bench_function(format!("decode {name} {isa}"), |b| {
                    b.iter(|| decoder.decode_into(black_box(&mut out)));
                });
                group.bench_function(format!("accumulate {name} {isa}"), |b| {
                    b.iter(|| decoder.add_into(black_box(&mut out)));
                });
            }
        }
    }
}

/// Rows of a gradient of 64 MiB, which comes from memory: one by one, and with the next one asked for.
fn rows(criterion: &mut Criterion) {
    const ROW: usize = 1 << 15;
    const ROWS: usize = 512;
    let gradient: Vec<f32> = gradient().into_iter().cycle().take(ROWS * ROW).collect();
    let layout = Layout::new(gradient.len(), 448).expect("a valid layout");
    let encoder = Encoder::new(layout, Job::new(1));
    let envelope = Envelope { stream: StreamId::new(0, 0).expect("a valid stream"), message: 1 };
    let choice = RowChoice::whole(Codec::Rht);
    let length = encoder.row_len(0, choice.planes);
    let mut packets = vec![0; ROWS * length];
    let mut group = criterion.benchmark_group("rows from memory");
    group.throughput(Throughput::Bytes(4 * gradient.len() as u64)).sample_size(30);
    for (name, ahead) in [("encode_row", 0), ("encode_row_before", ROW)] {
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut rest = black_box(&gradient[..]);
                for (row, packets) in packets.chunks_exact_mut(length).enumerate() {
                    let (values, others) = rest.split_at(ROW);
                    let next = &others[..ahead.min(others.len())];
                    encoder
                        .encode_row_before(row, values, next, envelope, choice, packets)
                        .expect("a row of the layout");
                    rest = others;
                }
            });
        });
    }
}

criterion_group!(benches, transform, codec, rows);
criterion_main!(benches);
