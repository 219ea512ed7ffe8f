//! What the timings say: best and median rounds, and how they compare with memcpy.

use super::super::clock::HAS_TICKS;
use super::Options;
use super::work::{Op, Sample};
use crate::output::table;
use serde::Serialize;
use trimwire_encoder::{Isa, Layout};

const NOTE: &str = "bytes are those of the f32 gradient; decode and accumulate include receive; transform is compared with memcpy of \
                    one row in the cache (memcpy-row), the others with memcpy of the gradient (memcpy); ratios are those of the \
                    best rounds; cycles are ticks of the time-stamp counter, all threads' coordinates together";

/// The outcome of a bench.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    codec: &'static str,
    planes: u8,
    coordinates: usize,
    coordinates_per_packet: usize,
    row_log2: u8,
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
    bytes_per_second: f64,
    median_bytes_per_second: f64,
    memcpy: &'static str,
    memcpy_ratio: f64,
    median_memcpy_ratio: f64,
    cycles_per_coordinate: Option<f64>,
}

/// Every op in the order of the table.
const CODEC_OPS: [Op; 5] = [Op::Transform, Op::Encode, Op::Receive, Op::Decode, Op::Accumulate];

impl Report {
    /// Sums the samples up.
    pub(super) fn new(options: &Options, layout: Layout, planes: u8, samples: &[Sample]) -> Self {
        let mut sets: Vec<Isa> = Vec::new();
        for isa in samples.iter().filter_map(|sample| sample.isa) {
            if !sets.contains(&isa) {
                sets.push(isa);
            }
        }
        let memcpys = [Op::MemcpyRow, Op::Memcpy].map(|op| (op, None));
        let codec = sets.iter().flat_map(|isa| CODEC_OPS.map(|op| (op, Some(*isa))));
        let results = memcpys.into_iter().chain(codec);
        Self {
            codec: options.codec.name(),
            planes,
            coordinates: layout.coordinates(),
            coordinates_per_packet: layout.coordinates_per_packet(),
            row_log2: layout.row_log2(),
            threads: options.threads,
            rounds: options.rounds,
            note: NOTE,
            results: results.map(|(op, isa)| line(samples, op, isa)).collect(),
        }
    }

    /// The table for people.
    pub(super) fn render(&self) -> String {
        let titles =
            ["op", "isa", "GB/s best", "median", "cycles/coordinate", "of memcpy, best", "median", "against"];
        let rows: Vec<Vec<String>> = self
            .results
            .iter()
            .map(|line| {
                let giga = |rate: f64| format!("{:.2}", rate / 1e9);
                vec![
                    line.op.to_owned(),
                    line.isa.to_owned(),
                    giga(line.bytes_per_second),
                    giga(line.median_bytes_per_second),
                    line.cycles_per_coordinate
                        .map_or_else(|| "-".to_owned(), |cycles| format!("{cycles:.2}")),
                    format!("{:.2} ×", line.memcpy_ratio),
                    format!("{:.2} ×", line.median_memcpy_ratio),
                    line.memcpy.to_owned(),
                ]
            })
            .collect();
        format!(
            "codec {}, {} of its planes, {} coordinates ({:.0} MiB of f32), {} thread(s), {} rounds\n\n{}\n{}.\n",
            self.codec,
            self.planes,
            self.coordinates,
            self.coordinates as f64 * 4.0 / f64::from(1 << 20),
            self.threads,
            self.rounds,
            table(&titles, &rows, 2),
            wrapped(self.note),
        )
    }
}

fn line(samples: &[Sample], op: Op, isa: Option<Isa>) -> Line {
    let of = |op: Op, isa: Option<Isa>| -> Vec<&Sample> {
        let mut chosen: Vec<&Sample> = samples.iter().filter(|s| s.op == op && s.isa == isa).collect();
        chosen.sort_by(|a, b| a.span.seconds.total_cmp(&b.span.seconds));
        chosen
    };
    let speed = |sample: &&Sample| 4.0 * sample.coordinates as f64 / sample.span.seconds.max(1e-12);
    let (own, reference) = (of(op, isa), of(op.reference(), None));
    let best = |sorted: &[&Sample]| sorted.first().map_or(0.0, speed);
    let median = |sorted: &[&Sample]| sorted.get(sorted.len() / 2).map_or(0.0, speed);
    let cycles = own.first().map(|sample| sample.span.ticks as f64 / sample.coordinates as f64);
    Line {
        op: op.name(),
        isa: isa.map_or("libc", Isa::name),
        bytes_per_second: best(&own),
        median_bytes_per_second: median(&own),
        memcpy: op.reference().name(),
        memcpy_ratio: best(&own) / best(&reference),
        median_memcpy_ratio: median(&own) / median(&reference),
        cycles_per_coordinate: cycles.filter(|_| HAS_TICKS),
    }
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
