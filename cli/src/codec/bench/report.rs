// SPDX-License-Identifier: Apache-2.0
//! What the timings say: best and median rounds, and how they compare with memcpy.

use super::super::clock::HAS_TICKS;
use super::Options;
use super::work::{Op, Sample, Shape};
use crate::output::table;
use serde::Serialize;
use trimwire_encoder::Isa;

const NOTE: &str = "bytes are those of the gradient, in f32 or bf16; decode and accumulate include receiving; transform is compared with \
                    memcpy of one row in the cache (memcpy-row), the others with memcpy of their gradient on as many threads; ratios \
                    are those of the best rounds; cycles are ticks of the time-stamp counter, all threads' coordinates together";

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
    threads: usize,
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
    threads: usize,
    bytes_per_second: f64,
    median_bytes_per_second: f64,
    memcpy: &'static str,
    memcpy_ratio: f64,
    median_memcpy_ratio: f64,
    cycles_per_coordinate: Option<f64>,
    /// Of one thread's speed; `None` of one thread.
    one_thread_ratio: Option<f64>,
}

impl Report {
    /// Sums the samples up.
    pub(super) fn new(options: &Options, shape: &Shape, half: &Shape, samples: &[Sample]) -> Self {
        // Memcpys first, then one instruction set after another; all of that for each number of threads.
        let mut kinds: Vec<(usize, Option<Isa>)> = Vec::new();
        for kind in samples.iter().map(|sample| (sample.threads, sample.isa)) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        let lines = kinds.iter().flat_map(|(threads, isa)| {
            Op::ALL.into_iter().filter_map(|op| line(samples, op, *isa, *threads))
        });
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
            threads: options.threads,
            rounds: options.rounds,
            note: NOTE,
            results: lines.collect(),
        }
    }

    /// The table for people.
    pub(super) fn render(&self) -> String {
        let titles = [
            "op",
            "isa",
            "threads",
            "GB/s best",
            "median",
            "cycles/coordinate",
            "of memcpy, best",
            "median",
            "against",
            "of one thread",
        ];
        let rows: Vec<Vec<String>> = self.results.iter().map(Line::cells).collect();
        // Nobody who asked for one thread needs to be told what that is of one.
        let columns = if self.threads > 1 { titles.len() } else { titles.len() - 1 };
        format!(
            "codec {}, {} of its planes ({} of bf16), {} coordinates ({:.0} MiB of f32) in {} rows, {} thread(s), {} rounds\n\n{}\n{}.\n",
            self.codec,
            self.planes,
            self.bf16_planes,
            self.coordinates,
            self.coordinates as f64 * 4.0 / f64::from(1 << 20),
            self.rows,
            self.threads,
            self.rounds,
            table(&titles[..columns], &rows, 2),
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
            self.threads.to_string(),
            giga(self.bytes_per_second),
            giga(self.median_bytes_per_second),
            or_dash(self.cycles_per_coordinate.map(|cycles| format!("{cycles:.2}"))),
            format!("{:.2} ×", self.memcpy_ratio),
            format!("{:.2} ×", self.median_memcpy_ratio),
            self.memcpy.to_owned(),
            or_dash(self.one_thread_ratio.map(|ratio| format!("{ratio:.2} ×"))),
        ]
    }
}

/// What an op's samples say; `None` where there are none.
fn line(samples: &[Sample], op: Op, isa: Option<Isa>, threads: usize) -> Option<Line> {
    let of = |op: Op, isa: Option<Isa>, threads: usize| -> Vec<&Sample> {
        let wanted = |s: &&Sample| s.op == op && s.isa == isa && s.threads == threads;
        let mut chosen: Vec<&Sample> = samples.iter().filter(wanted).collect();
        chosen.sort_by(|a, b| a.span.seconds.total_cmp(&b.span.seconds));
        chosen
    };
    let speed = |sample: &&Sample| {
        (sample.op.element_bytes() * sample.coordinates) as f64 / sample.span.seconds.max(1e-12)
    };
    let (own, reference) = (of(op, isa, threads), of(op.reference(), None, threads));
    let best = |sorted: &[&Sample]| sorted.first().map_or(0.0, speed);
    let median = |sorted: &[&Sample]| sorted.get(sorted.len() / 2).map_or(0.0, speed);
    let cycles = own.first()?.span.ticks as f64 / own.first()?.coordinates as f64;
    Some(Line {
        op: op.name(),
        isa: isa.map_or("libc", Isa::name),
        threads,
        bytes_per_second: best(&own),
        median_bytes_per_second: median(&own),
        memcpy: op.reference().name(),
        memcpy_ratio: best(&own) / best(&reference),
        median_memcpy_ratio: median(&own) / median(&reference),
        cycles_per_coordinate: HAS_TICKS.then_some(cycles),
        one_thread_ratio: (threads > 1).then(|| best(&own) / best(&of(op, isa, 1))),
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
