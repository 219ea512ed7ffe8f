//! Codec speed by criterion, for each instruction set: `cargo bench -p trimwire-encoder --bench speed`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use trimwire_encoder::{
    Codec, Decoder, Decoding, Encoder, Envelope, Isa, Job, Layout, Message, StreamId, rotate,
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

criterion_group!(benches, transform, codec);
criterion_main!(benches);
