// SPDX-License-Identifier: Apache-2.0
//! `trimwire codec plot`: what trims do to a gradient, drawn.

mod error;
mod projection;

use super::gradient::Input;
use super::measure::DecodingName;
use super::source::Distribution;
use crate::failure::{EXIT_CODES, Failure, Outcome};
use crate::output::{print, print_json};
use crate::page::Page;
use anyhow::{Context as _, Result, ensure};
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use trimwire_encoder::DEFAULT_ROW_LOG2;
use trimwire_encoder::papers::Scheme;

const HELP: &str = "\
Examples:
  trimwire codec plot -o error.html                                 all codecs, every packet trimmed
  trimwire codec plot -o error.html --codec rht --codec rht-paper --trim-rate 0.25
  trimwire codec plot -o heavy.html --dist student-t
  trimwire codec plot --what projection -o projection.html          is decoding unbiased on sparse rows, too?
  trimwire codec plot --json                                        the points as JSON

error: bytes are those of an untagged Ethernet frame without its checksum: 42 bytes of headers, then the UDP
payload. Lines are closed forms for Gaussian coordinates. Points are measured.
Packets are the largest that fit an MTU of 1500 bytes, unless --per-packet says otherwise.

projection: rows are encoded, trimmed to 1 to 8 planes and decoded. They hold 1 to 1024 equal non-zeros with random
signs at random places, or Gaussian coordinates. The plot shows the mean of <decoded, exact> / ||exact||^2.
Unbiased decoding keeps it at 1.";

/// Draw what remains of a trimmed gradient: its error, or its projection on the exact one.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP, after_long_help = format!("{HELP}\n\n{EXIT_CODES}"))]
pub(crate) struct Options {
    /// What to draw.
    #[arg(long, value_enum, default_value_t = What::Error)]
    pub what: What,
    /// Write a page (HTML) with the plot to this file. The points go to stdout in any case.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Codec to draw; may be repeated [default: all; for a projection rht].
    #[arg(long, value_parser = super::nmse::codec)]
    pub codec: Vec<Scheme>,
    /// Share of packets to trim, above 0 to 1.
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    pub trim_rate: f64,
    #[command(flatten)]
    pub input: Input,
    /// How to reconstruct trimmed coordinates.
    #[arg(long, value_enum, default_value_t = DecodingName::Unbiased)]
    pub decoding: DecodingName,
    /// Coordinates of a message [default: 131072, or all of FILE; for a projection one row].
    #[arg(long, value_name = "N")]
    pub coordinates: Option<usize>,
    /// log2 of the row length, 5 to 20.
    #[arg(long, value_name = "L", default_value_t = DEFAULT_ROW_LOG2)]
    pub row_log2: u8,
    /// Put at most this many coordinates into a packet, a multiple of 32 [default: what fits an MTU of 1500
    /// bytes].
    #[arg(long, value_name = "n")]
    pub per_packet: Option<usize>,
    /// Messages for every point, each with its own signs [default: 2; of a projection 100].
    #[arg(long, value_name = "M")]
    pub messages: Option<u32>,
    /// Seed of everything random.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Print the points as JSON.
    #[arg(long)]
    pub json: bool,
}

/// What is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// NMSE against the bytes kept of a packet, for every codec.
    Error,
    /// Projection of the decoded row on the exact one, by planes and by non-zero coordinates.
    Projection,
}

/// A plot, in every form that it is wanted in. The page has the table, too.
struct Plotted {
    page: Page,
    json: serde_json::Value,
}

/// Measures, draws and writes.
pub(super) fn run(options: &Options) -> Outcome {
    options.check().map_err(Failure::usage)?;
    let plotted = match options.what {
        What::Error => error::plot(options)?,
        What::Projection => projection::plot(options)?,
    };
    if let Some(file) = &options.output {
        std::fs::write(file, plotted.page.html())
            .with_context(|| format!("cannot write --output {}", file.display()))?;
    }
    if options.json {
        print_json(&plotted.json)?;
    } else {
        print(&plotted.page.table)?;
    }
    Ok(())
}

impl Options {
    fn check(&self) -> Result<()> {
        self.input.check()?;
        if let Some(output) = &self.output {
            let html = output.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("html"));
            ensure!(html, "--output {}: plots are pages (valid: names that end in .html)", output.display());
        }
        let rate = self.trim_rate;
        ensure!(rate > 0.0 && rate <= 1.0, "--trim-rate {rate}: valid are above 0 to 1");
        if let Some(messages) = self.messages {
            ensure!((1..=100_000).contains(&messages), "--messages {messages}: valid are 1 to 100000");
        }
        if self.what == What::Projection {
            let given = [
                ("--dist", self.input.dist != Distribution::Gaussian),
                ("--dtype", self.input.dtype.is_some()),
                ("--coordinates", self.coordinates.is_some()),
                ("--trim-rate", rate < 1.0),
            ];
            if let Some((flag, _)) = given.iter().find(|(_, given)| *given) {
                anyhow::bail!(
                    "{flag} does not go with --what projection, which draws its own rows and trims all of their packets"
                );
            }
            ensure!(self.codec.len() <= 1, "--what projection draws one --codec, not {}", self.codec.len());
        }
        Ok(())
    }
}
