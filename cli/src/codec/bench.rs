//! `trimwire codec bench`: how fast the codec is on this machine, next to memcpy in the same run.

mod report;
mod work;

use crate::failure::{EXIT_CODES, Failure, Outcome};
use crate::output::{print, print_json};
use crate::progress::Progress;
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use report::Report;
use trimwire_encoder::{Codec, DEFAULT_ROW_LOG2, Isa};
use work::{Bench, Sample};

const HELP: &str = "\
Examples:
  trimwire codec bench                                  every instruction set of this machine, one core
  trimwire codec bench --isa avx2 --codec sign-magnitude
  trimwire codec bench --planes 1                       packets of one plane, as after the deepest cut
  trimwire codec bench --threads 8 --json

GB/s are 1e9 bytes of f32 gradient a second, whatever the packets' size. `transform` is the Hadamard transform of one row (128 KiB
by default) that stays in the cache, next to memcpy of a row; everything else works on the whole gradient, next to memcpy of that.
`decode` and `accumulate` include `receive`: one thread decodes rows as soon as they are complete, several when all are. Cycles are
ticks of the time-stamp counter, which runs at the processor's nominal frequency, not at the one that it happens to have. A ratio of
0.4 means: as long as it takes memcpy to move the gradient 2.5 times.";

/// Measure the codec's speed next to memcpy.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP, after_long_help = format!("{HELP}\n\n{EXIT_CODES}"))]
pub(crate) struct Options {
    /// Instruction set: portable, avx2 or avx512 [default: each that this machine has].
    #[arg(long)]
    pub isa: Option<String>,
    /// Codec: rht, rht-paper, sign-magnitude, sq, sd or raw.
    #[arg(long, default_value_t, value_parser = super::nmse::codec)]
    pub codec: Codec,
    /// Planes that packets carry [default: all].
    #[arg(long, value_name = "B")]
    pub planes: Option<u8>,
    /// Coordinates of the gradient; 16777216 are 64 MiB, beyond every cache.
    #[arg(long, value_name = "N", default_value_t = 1 << 24)]
    pub coordinates: usize,
    /// log2 of the row length, 5 to 20.
    #[arg(long, value_name = "L", default_value_t = DEFAULT_ROW_LOG2)]
    pub row_log2: u8,
    /// Most coordinates of a packet, a multiple of 32 [default: what an MTU of 1500 bytes holds over IPv4 and IPv6].
    #[arg(long, value_name = "n")]
    pub per_packet: Option<usize>,
    /// Threads that rows, and memcpy, are shared out among. Packets are received and rows in the cache transformed by one.
    #[arg(long, value_name = "T", default_value_t = 1)]
    pub threads: usize,
    /// Interleaved rounds; the best and the median one are shown.
    #[arg(long, value_name = "R", default_value_t = 7)]
    pub rounds: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Measures and prints.
pub(super) fn run(options: &Options) -> Outcome {
    options.check().map_err(Failure::usage)?;
    let per_packet = options.per_packet.unwrap_or(options.codec.coordinates_per_packet());
    let layout = super::nmse::layout(options.coordinates, per_packet, options.row_log2);
    let layout = layout.map_err(Failure::usage)?;
    let sets = options.sets().map_err(Failure::usage)?;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(options.threads).build();
    let pool = pool.context("cannot start the threads of --threads")?;
    let planes = options.planes.unwrap_or(options.codec.planes());
    let samples = pool.install(|| -> Result<Vec<Sample>> {
        let mut bench = Bench::new(layout, options.codec, planes, options.threads > 1);
        let progress = Progress::new((options.rounds * (1 + sets.len())) as u64, "measurements");
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
        Ok(samples)
    })?;
    let report = Report::new(options, layout, planes, &samples);
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
        ensure!((1..=1024).contains(&self.threads), "--threads {}: valid are 1 to 1024", self.threads);
        ensure!((1..=1000).contains(&self.rounds), "--rounds {}: valid are 1 to 1000", self.rounds);
        Ok(())
    }

    fn sets(&self) -> Result<Vec<Isa>> {
        match &self.isa {
            Some(name) => Ok(vec![name.parse().context("--isa")?]),
            None => Ok(Isa::available().collect()),
        }
    }
}
