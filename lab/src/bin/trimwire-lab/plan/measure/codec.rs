// SPDX-License-Identifier: Apache-2.0
//! What encoding and decoding take on this processor.

use anyhow::{Context as _, Result};
use trimwire_encoder::{
    DEFAULT_COORDINATES_PER_PACKET, Decoder, Decoding, Encoder, Envelope, Importance, Job, Layout, Message,
    RowChoice, StreamId,
};

/// Coordinates, from a bias to a large layer.
const SIZES: [usize; 8] = [1 << 10, 1 << 12, 1 << 14, 1 << 15, 1 << 17, 1 << 19, 1 << 20, 1 << 22];

/// Sizes and times: (bytes, seconds).
pub(super) type Samples = Vec<(f64, f64)>;

/// Of encoding, and of receiving and adding what was decoded, by bytes of f32: medians.
pub(super) fn times(planes: u8, rounds: u32) -> Result<[Samples; 2]> {
    let (mut encoding, mut decoding) = (Vec::new(), Vec::new());
    for size in SIZES {
        let (encode, decode) = one(size, planes, rounds)?;
        let bytes = 4.0 * size as f64;
        encoding.push((bytes, encode));
        decoding.push((bytes, decode));
    }
    Ok([encoding, decoding])
}

fn one(size: usize, planes: u8, rounds: u32) -> Result<(f64, f64)> {
    let layout = Layout::new(size, DEFAULT_COORDINATES_PER_PACKET)?;
    let values: Vec<f32> = (0..size).map(|i| ((i * 7_919) % 2_001) as f32 / 1e3 - 1.0).collect();
    let job = Job::new(1);
    let stream = StreamId::new(0, 0).context("rank 0 of job 0")?;
    let envelope = Envelope { stream, message: 1 };
    let encoder = Encoder::new(layout.clone(), job);
    let mut decoder = Decoder::new(layout, job, envelope, Decoding::Unbiased).with_planes(planes);
    let (mut message, mut out) = (Message::default(), vec![0.0_f32; size]);
    let (mut encodes, mut decodes) = (Vec::new(), Vec::new());
    // The first round touches the memory.
    for round in 0..=rounds {
        let choice = |_| RowChoice { planes, importance: Importance::Always };
        let mut encoded = Ok(());
        let encode = time(|| encoded = encoder.encode_with(&values, envelope, choice, &mut message));
        encoded?;
        decoder.reset(envelope);
        let mut decoded = Ok(());
        let decode = time(|| {
            for index in 0..message.packets() {
                // Own packets fit.
                let _ = decoder.receive(message.packet(index));
            }
            decoded = decoder.add_into(&mut out);
        });
        decoded?;
        if round > 0 {
            encodes.push(encode);
            decodes.push(decode);
        }
    }
    Ok((median(encodes), median(decodes)))
}

/// Seconds that `work` takes.
#[expect(clippy::disallowed_methods, reason = "a measurement of real time is the point")]
pub(super) fn time(work: impl FnOnce()) -> f64 {
    let start = std::time::Instant::now();
    work();
    start.elapsed().as_secs_f64()
}

/// The middle one of an odd number, else the upper of two; 0 of none.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
