// SPDX-License-Identifier: Apache-2.0
//! What the timings say: best and median rounds, and how they compare with memcpy.

use super::super::clock::HAS_TICKS;
use super::Options;
use super::work::{Sample, Shape, element_bytes, reference};
use crate::output::table;
use serde::Serialize;
use trimwire_encoder::Isa;

const NOTE: &str = "bytes are those of the gradient, in f32 or bf16; decode and accumulate include receiving; transform is compared with \
                    memcpy of one row in the cache (memcpy-row), the others with memcpy of their gradient; ratios \
                    are those of the best rounds; cycles are ticks of the time-stamp counter";

/// The outcome of a bench.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    codec: &'static str,
    planes: u8,
    coordinates: usize,
    rows: usize,
    coordinates_per_packet: usize,
    /// Of gradients in bf16.
    bf16_planes: u8,
    bf16_coordinates_per_packet: usize,
    row_log2: u8,
    sealed: bool,
    rounds: usize,
    note: &'static str,
    results: Vec<Line>,
}

/// One operation on one instruction set.
#[derive(Debug, Serialize)]
struct Line {
    op: &'static str,
    /// `libc` for memcpy.
    isa: &'static str,
    bytes_per_second: f64,
    median_bytes_per_second: f64,
    memcpy: &'static str,
    memcpy_ratio: f64,
    median_memcpy_ratio: f64,
    cycles_per_coordinate: Option<f64>,
}

impl Report {
    /// Sums the samples up.
    pub(super) fn new(options: &Options, shape: &Shape, half: &Shape, samples: &[Sample]) -> Self {
        // Memcpys first, then one instruction set after another.
        let mut kinds: Vec<Kind> = Vec::new();
        for sample in samples {
            let kind = (sample.isa, sample.op);
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        let lines = kinds.into_iter().filter_map(|kind| line(samples, kind));
        Self {
            codec: options.codec.name(),
            planes: shape.sent.planes,
            coordinates: shape.layout.coordinates(),
            rows: shape.layout.rows(),
            coordinates_per_packet: shape.layout.coordinates_per_packet(),
            bf16_planes: half.sent.planes,
            bf16_coordinates_per_packet: half.layout.coordinates_per_packet(),
            row_log2: shape.layout.row_log2(),
            sealed: options.sealed,
            rounds: options.rounds,
            note: NOTE,
            results: lines.collect(),
        }
    }

    /// The table for people.
    pub(super) fn render(&self) -> String {
        let titles =
            ["op", "isa", "GB/s best", "median", "cycles/coordinate", "of memcpy, best", "median", "against"];
        let rows: Vec<Vec<String>> = self.results.iter().map(Line::cells).collect();
        format!(
            "codec {}, {} of its planes ({} of bf16), {} coordinates ({:.0} MiB of f32) in {} rows, {} rounds\n\n{}\n{}.\n",
            self.codec,
            self.planes,
            self.bf16_planes,
            self.coordinates,
            self.coordinates as f64 * 4.0 / f64::from(1 << 20),
            self.rows,
            self.rounds,
            table(&titles, &rows, 2),
            wrapped(self.note),
        )
    }
}

impl Line {
    fn cells(&self) -> Vec<String> {
        let giga = |rate: f64| format!("{:.2}", rate / 1e9);
        let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        vec![
            self.op.to_owned(),
            self.isa.to_owned(),
            giga(self.bytes_per_second),
            giga(self.median_bytes_per_second),
            or_dash(self.cycles_per_coordinate.map(|cycles| format!("{cycles:.2}"))),
            format!("{:.2} ×", self.memcpy_ratio),
            format!("{:.2} ×", self.median_memcpy_ratio),
            self.memcpy.to_owned(),
        ]
    }
}

/// On which instruction set what was timed.
type Kind = (Option<Isa>, &'static str);

/// What samples of a kind say; `None` where there are none.
fn line(samples: &[Sample], (isa, op): Kind) -> Option<Line> {
    let of = |kind: Kind| -> Vec<&Sample> {
        let wanted = |s: &&Sample| (s.isa, s.op) == kind;
        let mut chosen: Vec<&Sample> = samples.iter().filter(wanted).collect();
        chosen.sort_by(|a, b| a.span.seconds.total_cmp(&b.span.seconds));
        chosen
    };
    let speed =
        |sample: &&Sample| (element_bytes(op) * sample.coordinates) as f64 / sample.span.seconds.max(1e-12);
    let memcpy = reference(op);
    let (own, reference) = (of((isa, op)), of((None, memcpy)));
    let best = |sorted: &[&Sample]| sorted.first().map_or(0.0, speed);
    let median = |sorted: &[&Sample]| sorted.get(sorted.len() / 2).map_or(0.0, speed);
    let cycles = own.first()?.span.ticks as f64 / own.first()?.coordinates as f64;
    Some(Line {
        op,
        isa: isa.map_or("libc", Isa::name),
        bytes_per_second: best(&own),
        median_bytes_per_second: median(&own),
        memcpy,
        memcpy_ratio: best(&own) / best(&reference),
        median_memcpy_ratio: median(&own) / median(&reference),
        cycles_per_coordinate: HAS_TICKS.then_some(cycles),
    })
}

/// Breaks a sentence at 100 columns.
fn wrapped(text: &str) -> String {
    let (mut out, mut column) = (String::new(), 0);
    for word in text.split_whitespace() {
        if column > 0 && column + 1 + word.len() > 100 {
            out.push('\n');
            column = 0;
        } else if column > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += word.len();
    }
    out
}
