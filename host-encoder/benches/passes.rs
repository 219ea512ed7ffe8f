// SPDX-License-Identifier: Apache-2.0
//! What each pass over a row costs in the cache, and all of them together from memory: the roofline.
//!
//! `cargo bench -p trimwire-encoder --bench passes [-- PART-OF-A-NAME]`: nanoseconds a coordinate, the least of many, beside memcpy of the same gradient.
#![allow(missing_docs, reason = "a program")]

use std::hint::black_box;
use std::time::{Duration, Instant};
use trimwire_encoder::{
    Codec, Decoder, Decoding, Element, Encoder, Envelope, Isa, Job, Layout, RowChoice, RowJob, RowReceiver,
    SealKey, Sealer, StreamId, bf16, rotate,
};

/// Coordinates of a gradient beyond every cache.
const MEMORY: usize = 1 << 24;
const ROW: usize = 1 << 15;
const JOB: Job = Job::new(1);

/// Rows, their packets and who receives them.
struct Rows {
    isa: Isa,
    codec: Codec,
    encoder: Encoder,
    planes: u8,
    sealer: Option<Sealer>,
    packets: Vec<u8>,
    places: Vec<std::ops::Range<usize>>,
}

impl Rows {
    fn new(isa: Isa, count: usize, codec: Codec, planes: u8, sealer: Option<Sealer>) -> Self {
        let layout =
            Layout::new(count, codec.coordinates_per_packet(1500, planes, sealer.is_some())).unwrap();
        let mut end = 0;
        let place = |index| {
            let start = end;
            end += codec.packet_len(planes, layout.packet_range(index).len(), sealer.is_some());
            start..end
        };
        let places: Vec<_> = (0..layout.packets()).map(place).collect();
        let encoder = Encoder::new(layout, JOB).with_codec(codec).with_isa(isa);
        let encoder = match &sealer {
            Some(sealer) => encoder.sealed(sealer.clone()),
            None => encoder,
        };
        Self { isa, codec, encoder, planes, sealer, packets: vec![0; end], places }
    }

    fn encode<E: Element>(&mut self, values: &[E], mut own: Option<&mut [E]>) {
        let (layout, mut rest) = (self.encoder.layout().clone(), &mut self.packets[..]);
        let choice = RowChoice { planes: self.planes, ..RowChoice::whole(self.codec) };
        for row in 0..layout.rows() {
            let (packets, tail) = rest.split_at_mut(self.encoder.row_len(row, self.planes));
            rest = tail;
            let place = layout.row_coordinates(row);
            let here = RowJob::of(&values[place.clone()]);
            // As collectives do it.
            let job = match &mut own {
                Some(own) => here.keeping(&mut own[place]),
                None => here.before(&values[place.end..]),
            };
            self.encoder.encode_row(row, job, envelope(), choice, black_box(packets)).unwrap();
        }
    }

    fn receiver(&self, row: usize) -> RowReceiver {
        let receiver = RowReceiver::new(self.encoder.layout(), row, JOB, envelope(), Decoding::Unbiased);
        let receiver = receiver.with_codec(self.codec).with_planes(self.planes).with_isa(self.isa);
        match &self.sealer {
            Some(sealer) => receiver.sealed(sealer.clone()),
            None => receiver,
        }
    }

    /// Receives, and decodes to `out` where it is as long as a row.
    fn receive<E: Element>(&self, spent: &mut Option<RowReceiver>, out: &mut [E]) {
        let layout = self.encoder.layout();
        for row in 0..layout.rows() {
            let mut receiver = match spent.take() {
                Some(mut spent) if layout.rows() == 1 => {
                    spent.reset(envelope());
                    spent
                }
                Some(spent) => self.receiver(row).reusing(spent),
                None => self.receiver(row),
            };
            for index in layout.row_packets(row) {
                if let Some(soon) = self.places.get(index + 2) {
                    Decoder::prefetch(&self.packets[soon.clone()]);
                }
                receiver.receive(black_box(&self.packets[self.places[index].clone()])).unwrap();
            }
            if !out.is_empty() {
                receiver.decode_into(black_box(&mut out[layout.row_coordinates(row)])).unwrap();
            }
            *spent = Some(receiver);
        }
    }
}

fn envelope() -> Envelope {
    Envelope { stream: StreamId::new(0, 3).unwrap(), message: 1 }
}

fn gaussian(count: usize) -> Vec<f32> {
    let mut state = 1u64;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 + 0.5) / (1u64 << 24) as f32
    };
    (0..count)
        .map(|_| (-2.0f32 * uniform().ln()).sqrt() * (std::f32::consts::TAU * uniform()).cos())
        .collect()
}

/// The least nanoseconds a coordinate over at least `least` of time.
#[expect(clippy::disallowed_methods, reason = "a measurement of real time is the point")]
fn time(count: usize, least: Duration, mut work: impl FnMut()) -> f64 {
    let (mut best, begin) = (f64::INFINITY, Instant::now());
    let mut turns = 0;
    while begin.elapsed() < least || turns < 3 {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed().as_secs_f64());
        turns += 1;
    }
    best * 1e9 / count as f64
}

struct Table<'a> {
    filter: &'a str,
    count: usize,
    memcpy: f64,
}

impl Table<'_> {
    fn line(&mut self, name: &str, mut work: impl FnMut()) -> f64 {
        if !name.contains(self.filter) && name != "memcpy" {
            return f64::NAN;
        }
        let least = Duration::from_millis(if self.count == ROW { 60 } else { 400 });
        work();
        let ns = time(self.count, least, work);
        if name == "memcpy" {
            self.memcpy = ns;
        }
        println!(
            "{name:24} {ns:8.4} ns  {:8.3} x memcpy's time, {:6.3} of its speed",
            ns / self.memcpy,
            self.memcpy / ns
        );
        ns
    }
}

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with("--")).unwrap_or_default();
    for isa in Isa::available().filter(|isa| *isa != Isa::PORTABLE) {
        for count in [ROW, MEMORY] {
            println!(
                "{isa}, {count} coordinates, {}",
                if count == ROW { "in the cache" } else { "from memory" }
            );
            all(Table { filter: &filter, count, memcpy: f64::NAN }, isa);
        }
    }
}

fn all(mut table: Table<'_>, isa: Isa) {
    let count = table.count;
    let (values, mut room) = (gaussian(count), vec![0f32; count + 16]);
    // Rows that begin at a cache line go past the caches.
    let line = room.as_ptr().align_offset(64);
    let out = &mut room[line..line + count];
    table.line("memcpy", || black_box(&mut *out).copy_from_slice(black_box(&values)));
    table.line("read", || {
        black_box(black_box(&values).iter().fold(0, |all, value| all ^ value.to_bits()));
    });
    table.line("write", || black_box(&mut *out).fill(1.0));
    let mut row = values[..ROW].to_vec();
    if count == ROW {
        table.line("transform", || {
            row.copy_from_slice(&values[..ROW]);
            rotate::transform(isa, black_box(&mut row));
        });
    }
    for planes in [10, 9, 8, 1] {
        let mut rows = Rows::new(isa, count, Codec::Rht, planes, None);
        table.line(&format!("encode-{planes}"), || rows.encode(black_box(&values), None));
        if planes == 10 {
            table.line("keeping", || rows.encode(black_box(&values), Some(&mut *out)));
            let sparse: Vec<f32> =
                values.iter().enumerate().map(|(i, v)| if i % 97 == 0 { *v } else { 0.0 }).collect();
            table.line("encode-sparse", || rows.encode(black_box(&sparse), None));
        }
    }
    let key = SealKey::from_bytes(&[1; 16]).unwrap();
    for (name, codec, planes, sealed) in (1..=10)
        .rev()
        .map(|planes| (format!("{planes}"), Codec::Rht, planes, false))
        .chain([("raw".to_owned(), Codec::Raw, 1, false), ("sealed".to_owned(), Codec::Rht, 10, true)])
    {
        if count == MEMORY && ["2", "3", "4", "5", "6", "7", "9"].contains(&&*name) {
            continue;
        }
        let mut rows = Rows::new(isa, count, codec, planes, sealed.then(|| Sealer::new(&key, 1)));
        rows.encode(&values, None);
        if codec == Codec::Raw || sealed {
            table.line(&format!("encode-{name}"), || rows.encode(black_box(&values), None));
        }
        let mut spent = None;
        table.line(&format!("receive-{name}"), || rows.receive::<f32>(&mut spent, &mut []));
        if count == ROW {
            let mut receiver = rows.receiver(0);
            rows.places.iter().for_each(|place| {
                receiver.receive(&rows.packets[place.clone()]).unwrap();
            });
            table
                .line(&format!("decode-only-{name}"), || receiver.decode_into(black_box(&mut *out)).unwrap());
        }
        table.line(&format!("decode-{name}"), || rows.receive(&mut spent, &mut *out));
    }
    let halves: Vec<bf16> = values.iter().map(|value| bf16::from_f32(*value)).collect();
    let (mut rows, mut half_out, mut spent) =
        (Rows::new(isa, count, Codec::Rht, 9, None), vec![bf16::ZERO; count], None);
    table.line("memcpy-bf16", || black_box(&mut half_out).copy_from_slice(black_box(&halves)));
    table.line("encode-bf16", || rows.encode(black_box(&halves), None));
    table.line("decode-bf16", || rows.receive(&mut spent, &mut half_out));
}
