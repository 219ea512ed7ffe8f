// SPDX-License-Identifier: Apache-2.0
//! `trimwire codec nmse`: the error of trimmed packets, measured, next to its closed form.

use super::gradient::{Gradient, Input, Origin};
use super::measure::{DecodingName, Experiment, Measured};
use super::source::Dtype;
use super::trim::{Depth, Sent};
use crate::failure::{EXIT_CODES, Failure, Outcome};
use crate::output::{print, print_json, table};
use crate::progress::Progress;
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use clap::Args;
use serde::Serialize;
use trimwire_encoder::papers::{Scheme, UnknownScheme};
use trimwire_encoder::{Codec, DEFAULT_ROW_LOG2, Layout, LayoutError, Tensor};

const HELP: &str = "\
Examples:
  trimwire codec nmse --trim-rate 0.25                           a quarter of the packets trimmed to the sign plane
  trimwire codec nmse --trim-rate 1 --planes 4                   every packet trimmed to four planes
  trimwire codec nmse --trim-rate 1 --frame 256                  every frame trimmed to 256 bytes
  trimwire codec nmse --codec sq --decoding paper --trim-rate 0.1 --dist lognormal
  trimwire codec nmse --dist gradients.safetensors --tensor fc.weight
  trimwire codec nmse --dist gradients.f16 --dtype f16 --trim-rate 0.5 --json
  trimwire codec nmse --trim-rate 0.5 --within 2                 exit code 1 unless within 2 % of the closed form

Error: ||decoded - exact||^2 / ||exact||^2, mean over --messages. The closed form is that of Gaussian coordinates.
Rotated codecs make coordinates nearly Gaussian; the other codecs do not.";

/// Measure the error of trimmed packets against the closed form.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP, after_long_help = format!("{HELP}\n\n{EXIT_CODES}"))]
pub(crate) struct Options {
    /// Codec: rht or raw, or one of the papers' as figures: rht-paper, sign-magnitude, sq or sd.
    /// Theirs have two planes: a bit of each coordinate, and the rest.
    #[arg(long, default_value_t = Scheme::Wire(Codec::Rht), value_parser = codec)]
    pub codec: Scheme,
    /// Share of packets to trim, 0 to 1: of every row's, to within one packet.
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    pub trim_rate: f64,
    /// Whole planes left in a trimmed packet; 0 loses the packet.
    #[arg(long, value_name = "B", default_value_t = 1, conflicts_with = "frame")]
    pub planes: u8,
    /// Trim to frames of this many bytes instead, wherever that falls. Ethernet, IPv4 and UDP
    /// headers are 42 of them.
    #[arg(long, value_name = "BYTES")]
    pub frame: Option<usize>,
    #[command(flatten)]
    pub input: Input,
    /// How to reconstruct trimmed coordinates.
    #[arg(long, value_enum, default_value_t = DecodingName::Unbiased)]
    pub decoding: DecodingName,
    /// Coordinates of a message [default: 262144, or all of FILE].
    #[arg(long, value_name = "N")]
    pub coordinates: Option<usize>,
    /// log2 of the row length, 5 to 20.
    #[arg(long, value_name = "L", default_value_t = DEFAULT_ROW_LOG2)]
    pub row_log2: u8,
    /// Planes of a packet when sent [default: nine of rht's ten for f16 and bf16, otherwise all].
    #[arg(long, value_name = "B")]
    pub sent_planes: Option<u8>,
    /// Put at most this many coordinates into a packet, a multiple of 32 [default: what fits an MTU
    /// of 1500 bytes with these planes].
    #[arg(long, value_name = "n")]
    pub per_packet: Option<usize>,
    /// Encode this many messages, each with its own coordinates (FILE: the same), signs and trims.
    #[arg(long, value_name = "M", default_value_t = 16)]
    pub messages: u32,
    /// Seed of everything random: the same seed gives the same figures.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Fail unless the measured error is within this many percent of the closed form (below 1e-12
    /// where that is 0).
    #[arg(long, value_name = "PERCENT")]
    pub within: Option<f64>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Coordinates of a message when no flag says so: eight rows, so that 16 messages pin the sign-only
/// error down to 0.1 %.
const DEFAULT_COORDINATES: usize = 1 << 18;
/// Bytes of an IP packet on an Ethernet.
pub(super) const MTU: usize = 1500;
/// Where the closed form is 0, rounding is all that may be left.
const EXACT: f64 = 1e-12;
/// Work of more coordinates than this takes seconds.
const SLOW: usize = 1 << 24;

#[derive(Debug, Serialize)]
struct Report<'a> {
    codec: &'a str,
    decoding: String,
    distribution: String,
    /// What `distribution` is where it names a file.
    file: Option<Origin>,
    dtype: &'static str,
    trim_rate: f64,
    planes: Option<u8>,
    frame_bytes: Option<usize>,
    /// Planes that packets carry when they are sent.
    sent_planes: u8,
    coordinates: usize,
    /// Rows that the message is divided into.
    rows: usize,
    row_log2: u8,
    coordinates_per_packet: usize,
    messages: u32,
    seed: u64,
    #[serde(flatten)]
    measured: Measured,
}

/// Reads a codec's name for clap.
fn codec(name: &str) -> Result<Scheme, UnknownScheme> {
    name.parse()
}

/// Measures and prints.
pub(super) fn run(options: &Options) -> Outcome {
    options.check().map_err(Failure::usage)?;
    let gradient = options.input.read(options.coordinates).map_err(Failure::input)?;
    let dtype = gradient.as_ref().map_or(options.input.dtype(), |gradient| gradient.dtype);
    let sent = options.sent(dtype).map_err(Failure::usage)?;
    let tensors = tensors(gradient.as_ref(), options.coordinates.unwrap_or(DEFAULT_COORDINATES));
    let per_packet = options.per_packet.unwrap_or_else(|| per_packet(sent));
    let layout = layout(&tensors, per_packet, options.row_log2).map_err(Failure::usage)?;
    if let Some(gradient) = &gradient {
        options.input.warn(gradient, &layout);
    }
    let experiment = options.experiment(layout, sent, dtype);
    let count = experiment.layout.coordinates();
    let work = count.saturating_mul(options.messages as usize);
    let progress = (work > SLOW).then(|| Progress::new(u64::from(options.messages), "messages"));
    let values = gradient.as_ref().map(|gradient| gradient.values.as_slice());
    let measured = experiment.run(&options.input.dist, values, || {
        if let Some(progress) = &progress {
            progress.step();
        }
    })?;
    if let Some(progress) = progress {
        progress.finish();
    }
    let checked = measured.check(sent.codec, values);
    checked.with_context(|| options.input.dist.to_string()).map_err(Failure::input)?;
    let report = options.report(&experiment, gradient.map(|gradient| gradient.origin), measured);
    if options.json {
        print_json(&report)?;
    } else {
        print(&render(&report))?;
    }
    options.verdict(&report.measured).map_err(Failure::failed)
}

/// The tensors of a gradient; of none that was read, one of `count` coordinates.
pub(super) fn tensors(gradient: Option<&Gradient>, count: usize) -> Vec<Tensor> {
    gradient.map_or_else(|| vec![Tensor { coordinates: count, layer_class: 0 }], Gradient::shapes)
}

/// Coordinates of packets that fill an Ethernet's frames.
fn per_packet(sent: Sent) -> usize {
    sent.codec.coordinates_per_packet(MTU, sent.planes, false)
}

/// A layout, or what is wrong with its flags.
pub(super) fn layout(tensors: &[Tensor], per_packet: usize, row_log2: u8) -> Result<Layout> {
    let layout = Layout::of_tensors(tensors, per_packet).and_then(|layout| layout.with_row_log2(row_log2));
    layout.map_err(|error| match error {
        LayoutError::Empty | LayoutError::EmptyTensor(_) => anyhow!("--coordinates 0: valid are 1 and above"),
        LayoutError::CoordinatesPerPacket(_) => anyhow!("--per-packet: {error}"),
        LayoutError::RowLog2(_) => anyhow!("--row-log2: {error}"),
        _ => {
            let coordinates: usize = tensors.iter().map(|tensor| tensor.coordinates).sum();
            anyhow!("--coordinates {coordinates}: {error}")
        }
    })
}

impl Options {
    fn check(&self) -> Result<()> {
        ensure!((0.0..=1.0).contains(&self.trim_rate), "--trim-rate {}: valid are 0 to 1", self.trim_rate);
        ensure!(
            (1..=1_000_000).contains(&self.messages),
            "--messages {}: valid are 1 to 1000000",
            self.messages
        );
        self.input.check()?;
        if let Some(within) = self.within {
            ensure!(within > 0.0, "--within {within}: valid are percentages above 0");
        }
        Ok(())
    }

    /// What packets carry, the gradient being of that format.
    fn sent(&self, dtype: Dtype) -> Result<Sent> {
        let (codec, all) = (self.codec, self.codec.planes());
        if let Some(planes) = self.sent_planes {
            ensure!(
                (1..=all).contains(&planes),
                "--sent-planes {planes}: valid are 1 to {all} for codec {codec}"
            );
        }
        let planes = self.sent_planes.unwrap_or(codec.default_planes(dtype.bytes()));
        ensure!(
            self.planes <= planes,
            "--planes {}: valid are 0 (lost) to {planes} (whole, as {} is sent with codec {codec}; see --sent-planes)",
            self.planes,
            dtype.name(),
        );
        Ok(Sent { codec, planes })
    }

    fn experiment(&self, layout: Layout, sent: Sent, dtype: Dtype) -> Experiment {
        let depth = self.frame.map_or(Depth::Planes(self.planes), Depth::frame);
        Experiment {
            sent,
            decoding: self.decoding.into(),
            layout,
            dtype,
            depth,
            trim_rate: self.trim_rate,
            messages: self.messages,
            seed: self.seed,
        }
    }

    fn report(&self, experiment: &Experiment, file: Option<Origin>, measured: Measured) -> Report<'static> {
        let layout = &experiment.layout;
        Report {
            codec: self.codec.name(),
            decoding: format!("{:?}", self.decoding).to_lowercase(),
            distribution: self.input.dist.to_string(),
            file,
            dtype: experiment.dtype.name(),
            trim_rate: self.trim_rate,
            planes: self.frame.is_none().then_some(self.planes),
            frame_bytes: self.frame,
            sent_planes: experiment.sent.planes,
            coordinates: layout.coordinates(),
            rows: layout.rows(),
            row_log2: layout.row_log2(),
            coordinates_per_packet: layout.coordinates_per_packet(),
            messages: self.messages,
            seed: self.seed,
            measured,
        }
    }

    fn verdict(&self, measured: &Measured) -> Result<()> {
        let Some(percent) = self.within else { return Ok(()) };
        let Some(expected) = measured.expected else {
            bail!("--within: there is no closed form for codec {} trimmed here", self.codec);
        };
        let near = if expected > 0.0 {
            (measured.nmse / expected - 1.0).abs() <= percent / 100.0
        } else {
            measured.nmse < EXACT
        };
        ensure!(
            near,
            "NMSE {:.4e} is not within {percent} % of {expected:.4e}, the closed form for Gaussian coordinates",
            measured.nmse
        );
        Ok(())
    }
}

fn render(report: &Report) -> String {
    let trimmed = match (report.frame_bytes, report.planes) {
        (Some(bytes), _) => format!("trimmed to frames of {bytes} bytes"),
        (None, Some(0)) => "lost".to_owned(),
        (None, planes) => format!("trimmed to {} plane(s)", planes.unwrap_or_default()),
    };
    let measured = &report.measured;
    let or_dash = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let row = vec![
        report.codec.to_owned(),
        report.decoding.clone(),
        report.distribution.clone(),
        format!("{:.2} %", 100.0 * measured.trimmed_share),
        format!("{:.2} %", 100.0 * measured.bytes_share),
        format!("{:.4e}", measured.nmse),
        or_dash(measured.standard_error.map(|e| format!("{e:.1e}"))),
        or_dash(measured.expected.map(|e| format!("{e:.4e}"))),
        or_dash(measured.ratio.map(|r| format!("{r:.4}"))),
    ];
    let titles = [
        "codec",
        "decoding",
        "coordinates",
        "trimmed",
        "bytes",
        "NMSE",
        "±",
        "closed form",
        "measured/closed form",
    ];
    let file = report.file.as_ref().map_or_else(String::new, |file| {
        let tensor = match &file.tensor {
            Some(name) => format!("tensor {name}"),
            None => format!("{} tensor(s)", file.tensors),
        };
        format!("\n{} is {}: {tensor}, as {}.", report.distribution, file.format, report.dtype)
    });
    format!(
        "{}\n{} message(s) of {} coordinates in {} row(s), sent with {} planes of {}; {:.2} % of the packets {trimmed}.{file}\n",
        table(&titles, &[row], 3),
        report.messages,
        report.coordinates,
        report.rows,
        report.sent_planes,
        report.dtype,
        100.0 * report.measured.trimmed_share,
    )
}
