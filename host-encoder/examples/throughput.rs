//! Codec throughput on one core, next to memcpy of the same bytes in the same run.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::time::Instant;
use trimwire_encoder::packet::StreamId;
use trimwire_encoder::{Decoder, Decoding, Encoder, Envelope, Layout, Message, RotationKey, rotation};

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
    let coordinates = 128 << 15;
    let gradient: Vec<f32> =
        (0..coordinates as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 - 8e6).collect();
    let bytes = coordinates * 4;
    let layout = Layout::new(coordinates, 352).expect("a valid layout");
    let key = RotationKey { job_seed: 1, message: 1, rank: 0 };
    let envelope =
        Envelope { stream: StreamId::new(0, 0).expect("a valid stream"), message: 1, layer_class: 0 };
    let mut copy = vec![0.0f32; coordinates];
    let memcpy = rate(bytes, || copy.copy_from_slice(&gradient));
    let mut row = gradient[..1 << 15].to_vec();
    let transform = rate(row.len() * 4 * 64, || (0..64).for_each(|i| rotation::forward(&mut row, key, i)));
    let encoder = Encoder::new(layout, key);
    let mut message = Message::default();
    let encode = rate(bytes, || encoder.encode(&gradient, envelope, 11, &mut message).expect("finite"));
    let mut decoder = Decoder::new(layout, key, Decoding::Unbiased);
    let receive = rate(bytes, || {
        for i in 0..message.packets() {
            let _ = decoder.receive(message.packet(i));
        }
    });
    let decode = rate(bytes, || decoder.finish_into(&mut copy));
    for (name, value) in [
        ("memcpy", memcpy),
        ("transform", transform),
        ("encode", encode),
        ("receive", receive),
        ("decode", decode),
    ] {
        println!("{name:<10} {value:7.3} GB/s  {:6.3} × memcpy", value / memcpy);
    }
}
