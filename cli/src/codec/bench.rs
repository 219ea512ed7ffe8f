// SPDX-License-Identifier: Apache-2.0
//! `trimwire codec bench`: how fast the codec is on this machine, next to memcpy in the same run.

mod report;
mod work;

use super::gradient::{Gradient, Input};
use super::source::{Distribution, Dtype};
use crate::failure::{EXIT_CODES, Failure, Outcome};
use crate::output::{print, print_json};
use crate::progress::Progress;
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use report::Report;
use trimwire_encoder::{Codec, DEFAULT_ROW_LOG2, Isa, Layout, Tensor, UnknownCodec};
use work::{Bench, PATTERN, Sent, Shape};

const HELP: &str = "\
Examples:
  trimwire codec bench                                  every instruction set of this machine, one core
  trimwire codec bench --isa avx2 --codec raw
  trimwire codec bench --coordinates 32768              one row, which stays in the cache
  trimwire codec bench --dist student-t                 another distribution; --row-log2 10 other rows
  trimwire codec bench --sealed                         sealed packets, too
  trimwire codec bench --planes 1 --per-packet 448      packets as the deepest trim leaves them
  trimwire codec bench --dist gradients.safetensors     on these gradients, in the rows that their tensors make
  trimwire codec bench --json

GB/s are 1e9 bytes of gradient a second, f32, or bf16 where a line says so. The packets' size does not matter.
Rows are encoded into one buffer, and each row is decoded when its packets are in, as in a training job.
`transform` works on one row that stays in the cache, next to memcpy of a row. All other lines work on the whole
gradient, next to memcpy of the gradient. `decode` and `accumulate` include receiving.
Cycles are ticks of the time-stamp counter, which runs at the processor's nominal frequency.
A ratio of 0.4 means: the line takes as long as memcpy takes to move the gradient 2.5 times.";

/// Measure the codec's speed next to memcpy.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP, after_long_help = format!("{HELP}\n\n{EXIT_CODES}"))]
pub(crate) struct Options {
    /// Instruction set: portable, avx2 or avx512 [default: each that this machine has].
    #[arg(long)]
    pub isa: Option<String>,
    /// Codec: rht or raw.
    #[arg(long, default_value_t, value_parser = codec)]
    pub codec: Codec,
    /// Planes of a packet [default: all; of bf16 nine of rht's ten].
    #[arg(long, value_name = "B")]
    pub planes: Option<u8>,
    /// Gradient: the name of a distribution or a FILE, as in `codec nmse`. Tensors of FILE are
    /// repeated to fill --coordinates.
    #[arg(long, value_name = "NAME|FILE", default_value = "gaussian")]
    pub dist: Distribution,
    /// Tensor of FILE to take [default: all, one after another].
    #[arg(long, value_name = "NAME")]
    pub tensor: Option<String>,
    /// Coordinates of the gradient. 16777216 are 64 MiB, beyond every cache.
    #[arg(long, value_name = "N", default_value_t = 1 << 24)]
    pub coordinates: usize,
    /// log2 of the row length, 5 to 20.
    #[arg(long, value_name = "L", default_value_t = DEFAULT_ROW_LOG2)]
    pub row_log2: u8,
    /// Put at most this many coordinates into a packet, a multiple of 32 [default: what fits an MTU
    /// of 1500 bytes with these planes].
    #[arg(long, value_name = "n")]
    pub per_packet: Option<usize>,
    /// Measure sealed packets as well.
    #[arg(long)]
    pub sealed: bool,
    /// Run this many interleaved rounds; print the best and the median.
    #[arg(long, value_name = "R", default_value_t = 7)]
    pub rounds: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Reads a codec's name for clap.
fn codec(name: &str) -> Result<Codec, UnknownCodec> {
    name.parse()
}

/// Measures and prints.
pub(super) fn run(options: &Options) -> Outcome {
    options.check().map_err(Failure::usage)?;
    let input = Input { dist: options.dist.clone(), tensor: options.tensor.clone(), dtype: None };
    input.check().map_err(Failure::usage)?;
    let file = input.read(None).map_err(Failure::input)?;
    let tensors = options.tensors(file.as_ref());
    let shape = |planes| options.shape(&tensors, planes).map_err(Failure::usage);
    let planes = |dtype: Dtype| options.planes.unwrap_or(options.codec.default_planes(dtype.bytes()));
    let (shape, half) = (shape(planes(Dtype::F32))?, shape(planes(Dtype::Bf16))?);
    let pattern = match file {
        Some(file) => file.values,
        None => options
            .dist
            .draw(1, &Layout::new(options.coordinates.clamp(1, PATTERN), 32).map_err(Failure::usage)?),
    };
    let sets = options.sets().map_err(Failure::usage)?;
    let mut bench = Bench::new(&shape, &half, &pattern, options.sealed)?;
    let progress = Progress::new(((1 + options.rounds) * (1 + sets.len())) as u64, "measurements");
    let mut samples = Vec::new();
    for round in 0..=options.rounds {
        let mut measured = bench.memcpy();
        progress.step();
        for isa in &sets {
            measured.extend(bench.codec(*isa)?);
            progress.step();
        }
        // The first round touches the memory and fills the codec's scratch buffers.
        if round > 0 {
            samples.extend(measured);
        }
    }
    progress.finish();
    let report = Report::new(options, &shape, &half, &samples);
    if options.json {
        print_json(&report)?;
    } else {
        print(&report.render())?;
    }
    Ok(())
}

impl Options {
    fn check(&self) -> Result<()> {
        let planes = self.codec.planes();
        let codec = self.codec;
        if let Some(b) = self.planes {
            ensure!((1..=planes).contains(&b), "--planes {b}: valid are 1 to {planes} for codec {codec}");
        }
        ensure!((1..=1000).contains(&self.rounds), "--rounds {}: valid are 1 to 1000", self.rounds);
        Ok(())
    }

    /// What the gradient is made of: a file's tensors, as often as it takes.
    fn tensors(&self, file: Option<&Gradient>) -> Vec<Tensor> {
        let Some(file) = file else { return super::nmse::tensors(None, self.coordinates) };
        let times = self.coordinates.div_ceil(file.values.len().max(1)).max(1);
        file.shapes().repeat(times)
    }

    /// Packets of those tensors.
    fn shape(&self, tensors: &[Tensor], planes: u8) -> Result<Shape> {
        let (codec, row_log2) = (self.codec, self.row_log2);
        let sent = Sent { codec, planes };
        let per_packet = self
            .per_packet
            .unwrap_or_else(|| codec.coordinates_per_packet(super::nmse::MTU, planes, self.sealed));
        Ok(Shape { layout: super::nmse::layout(tensors, per_packet, row_log2)?, sent })
    }

    fn sets(&self) -> Result<Vec<Isa>> {
        match &self.isa {
            Some(name) => Ok(vec![name.parse().context("--isa")?]),
            None => Ok(Isa::available().collect()),
        }
    }
}
