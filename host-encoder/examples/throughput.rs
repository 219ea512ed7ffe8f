//! Codec throughput on one core, next to memcpy of the same bytes in the same run.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::time::Instant;
use trimwire_encoder::packet::StreamId;
use trimwire_encoder::{Decoder, Decoding, Encoder, Envelope, Isa, Layout, Message, RotationKey, rotation};

/// Best of seven runs, GB/s of f32 gradient.
fn rate(bytes: usize, mut work: impl FnMut()) -> f64 {
    (0..7)
        .map(|_| {
            let start = Instant::now();
            work();
            bytes as f64 / start.elapsed().as_secs_f64() / 1e9
        })
        .fold(0.0, f64::max)
}

fn main() {
    let coordinates =
        std::env::args().nth(2).map_or(128, |rows| rows.parse().expect("a number of rows")) << 15;
    let gradient: Vec<f32> =
        (0..coordinates as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 - 8e6).collect();
    let bytes = coordinates * 4;
    let layout = Layout::new(coordinates, 352).expect("a valid layout");
    let key = RotationKey { job_seed: 1, message: 1, rank: 0 };
    let envelope =
        Envelope { stream: StreamId::new(0, 0).expect("a valid stream"), message: 1, layer_class: 0 };
    let mut copy = vec![0.0f32; coordinates];
    let memcpy = rate(bytes, || copy.copy_from_slice(&gradient));
    let mut room = vec![0.0f32; (1 << 15) + 16];
    let start = room.as_ptr().align_offset(64);
    let mut row = &mut room[start..][..1 << 15];
    let copy_row = rate(row.len() * 4 * 64, || {
        (0..64).for_each(|_| {
            std::hint::black_box(&mut row).copy_from_slice(std::hint::black_box(&gradient[..1 << 15]));
        });
    });
    println!("memcpy {memcpy:.2} GB/s, of a row {copy_row:.2} GB/s");
    let only = std::env::args().nth(1);
    for isa in Isa::available().filter(|isa| only.as_ref().is_none_or(|name| isa.name() == name)) {
        row.fill(0.0);
        let transform = rate(row.len() * 4 * 64, || {
            (0..64).for_each(|_| rotation::hadamard(isa, std::hint::black_box(&mut row)));
        });
        let encoder = Encoder::new(layout, key).with_isa(isa);
        let mut message = Message::default();
        let encode = rate(bytes, || encoder.encode(&gradient, envelope, 11, &mut message).expect("finite"));
        let mut decoder = Decoder::new(layout, key, Decoding::Unbiased).with_isa(isa);
        let receive = rate(bytes, || {
            decoder.reset(key);
            for i in 0..message.packets() {
                let _ = decoder.receive(message.packet(i));
            }
        });
        let decode = rate(bytes, || decoder.finish_into(&mut copy));
        let add = rate(bytes, || decoder.add_into(&mut copy));
        println!("{isa}");
        for (name, value, base) in [
            ("transform", transform, copy_row),
            ("encode", encode, memcpy),
            ("receive", receive, memcpy),
            ("decode", decode, memcpy),
            ("both", 1.0 / (1.0 / receive + 1.0 / decode), memcpy),
            ("add", add, memcpy),
        ] {
            println!("  {name:<10} {value:7.3} GB/s  {:6.3} × memcpy", value / base);
        }
    }
}
