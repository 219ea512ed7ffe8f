//! `trimwire codec plot`: error against bytes kept of each packet, for every codec.

mod svg;

use super::cut::{Choice, Depth, FRAME_OVERHEAD, message_shares};
use super::measure::{DecodingName, Experiment, closed_form};
use super::source::{Distribution, Dtype};
use crate::failure::{EXIT_CODES, Failure, Outcome};
use crate::output::{print, print_json, table};
use crate::progress::Progress;
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use trimwire_encoder::{Codec, DEFAULT_COORDINATES_PER_PACKET, DEFAULT_ROW_LOG2, HEADER_LEN, Layout};

const HELP: &str = "\
Examples:
  trimwire codec plot -o error.svg                                  all codecs, every packet cut
  trimwire codec plot -o error.svg --codec rht --codec rht-paper --trim-rate 0.25
  trimwire codec plot -o heavy.svg --dist student-t
  trimwire codec plot --json                                        the points as JSON

Bytes are those of an untagged Ethernet frame without its checksum: 42 bytes of headers, then the UDP payload. Lines are closed forms
for Gaussian coordinates, points are measured; dotted lines join points where there is no closed form.";

/// Draw the error of cut packets against the bytes that are kept of them.
#[derive(Debug, Clone, Args)]
#[command(after_help = HELP, after_long_help = format!("{HELP}\n\n{EXIT_CODES}"))]
pub(crate) struct Options {
    /// SVG file to write; a table of the points goes to stdout. Without it, the SVG goes to stdout.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Codecs to draw, several times for several [default: all].
    #[arg(long, value_parser = super::nmse::codec)]
    pub codec: Vec<Codec>,
    /// Share of packets that is cut, above 0 to 1.
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    pub trim_rate: f64,
    /// Coordinates: gaussian, lognormal, student-t, sparse, one-spike, or a FILE of raw little-endian numbers.
    #[arg(long, value_name = "NAME|FILE", default_value = "gaussian")]
    pub dist: Distribution,
    /// Number format of FILE, and the one that codecs are handed.
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    pub dtype: Dtype,
    /// How cut coordinates are filled in.
    #[arg(long, value_enum, default_value_t = DecodingName::Unbiased)]
    pub decoding: DecodingName,
    /// Coordinates of a message [default: 131072, or all of FILE].
    #[arg(long, value_name = "N")]
    pub coordinates: Option<usize>,
    /// Most coordinates of a packet, a multiple of 32.
    #[arg(long, value_name = "n", default_value_t = DEFAULT_COORDINATES_PER_PACKET)]
    pub per_packet: usize,
    /// Messages for every point.
    #[arg(long, value_name = "M", default_value_t = 2)]
    pub messages: u32,
    /// Seed of everything random.
    #[arg(long, value_name = "S", default_value_t = 1)]
    pub seed: u64,
    /// Print the points as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Coordinates of a message when no flag says so.
const DEFAULT_COORDINATES: usize = 1 << 17;

/// A measured error.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Point {
    codec: &'static str,
    /// Frames were cut to this many bytes.
    frame_bytes: usize,
    nmse: f64,
    expected: Option<f64>,
}

/// What is drawn of a codec.
#[derive(Debug, Clone, PartialEq)]
struct Series {
    codec: Codec,
    points: Vec<Point>,
    /// Closed form at every frame size.
    curve: Vec<(usize, Option<f64>)>,
}

/// Measures, draws and writes.
pub(super) fn run(options: &Options) -> Outcome {
    options.check().map_err(Failure::usage)?;
    let gradient = match &options.dist {
        Distribution::File(path) => {
            Some(super::source::read(path, options.dtype, options.coordinates).map_err(Failure::input)?)
        }
        _ => None,
    };
    let count = gradient.as_ref().map_or(options.coordinates.unwrap_or(DEFAULT_COORDINATES), Vec::len);
    let layout = super::nmse::layout(count, options.per_packet, DEFAULT_ROW_LOG2).map_err(Failure::usage)?;
    let all = options.measure(layout, gradient.as_deref())?;
    let points: Vec<Point> = all.iter().flat_map(|series| series.points.iter().copied()).collect();
    let drawing = svg::draw(&all, &options.title());
    match &options.output {
        Some(file) => {
            std::fs::write(file, &drawing)
                .with_context(|| format!("cannot write --output {}", file.display()))?;
        }
        None if !options.json => print(&drawing)?,
        None => {}
    }
    if options.json {
        print_json(&serde_json::json!({ "points": points }))?;
    } else if options.output.is_some() {
        print(&render(&points))?;
    }
    Ok(())
}

impl Options {
    fn check(&self) -> Result<()> {
        let rate = self.trim_rate;
        ensure!(rate > 0.0 && rate <= 1.0, "--trim-rate {rate}: valid are above 0 to 1");
        ensure!(
            (1..=100_000).contains(&self.messages),
            "--messages {}: valid are 1 to 100000",
            self.messages
        );
        Ok(())
    }

    fn title(&self) -> String {
        let coordinates = match &self.dist {
            Distribution::File(path) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            named => format!("{named} coordinates"),
        };
        let decoding = format!("{:?}", self.decoding).to_lowercase();
        format!("{} % of packets cut, {coordinates}, {decoding} decoding", 100.0 * self.trim_rate)
    }

    fn measure(&self, layout: Layout, gradient: Option<&[f32]>) -> Result<Vec<Series>> {
        let codecs = if self.codec.is_empty() { Codec::ALL.to_vec() } else { self.codec.clone() };
        let sizes = codecs.iter().map(|codec| frames(*codec, self.per_packet).len()).sum::<usize>();
        let progress = Progress::new(sizes as u64, "points");
        let mut all = Vec::new();
        for codec in codecs {
            let mut points = Vec::new();
            for bytes in frames(codec, self.per_packet) {
                let experiment = self.experiment(layout, codec, Depth::frame(bytes));
                let measured = experiment.run(&self.dist, gradient, || ())?;
                let (nmse, expected) = (measured.nmse, measured.expected);
                points.push(Point { codec: codec.name(), frame_bytes: bytes, nmse, expected });
                progress.step();
            }
            let whole = FRAME_OVERHEAD + HEADER_LEN + codec.body_len(self.per_packet);
            let sizes = FRAME_OVERHEAD + HEADER_LEN..=whole;
            let curve = sizes.map(|bytes| (bytes, self.expected(layout, codec, bytes))).collect();
            all.push(Series { codec, points, curve });
        }
        progress.finish();
        Ok(all)
    }

    fn expected(&self, layout: Layout, codec: Codec, frame: usize) -> Option<f64> {
        let shares = message_shares(layout, codec, Depth::frame(frame), self.trim_rate);
        closed_form(codec, self.decoding.into(), &shares)
    }

    fn experiment(&self, layout: Layout, codec: Codec, depth: Depth) -> Experiment {
        Experiment {
            codec,
            decoding: self.decoding.into(),
            layout,
            dtype: self.dtype,
            depth,
            trim_rate: self.trim_rate,
            choice: Choice::Exact,
            messages: self.messages,
            seed: self.seed,
        }
    }
}

/// Frame sizes to measure at: where the planes of the largest packets end, and halves of the wide ones.
fn frames(codec: Codec, per_packet: usize) -> Vec<usize> {
    let head = FRAME_OVERHEAD + HEADER_LEN;
    let planes = (0..=Codec::Rht.planes()).map(|plane| Codec::Rht.plane_offset(plane, per_packet));
    let halves = (9..=Codec::Rht.planes()).map(|plane| {
        Codec::Rht.plane_offset(plane - 1, per_packet).midpoint(Codec::Rht.plane_offset(plane, per_packet))
    });
    let mut sizes: Vec<usize> =
        planes.chain(halves).chain([codec.body_len(per_packet)]).map(|body| head + body).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn render(points: &[Point]) -> String {
    let rows: Vec<Vec<String>> = points
        .iter()
        .map(|point| {
            let expected = point.expected.map_or_else(|| "-".to_owned(), |e| format!("{e:.3e}"));
            vec![
                point.codec.to_owned(),
                point.frame_bytes.to_string(),
                format!("{:.3e}", point.nmse),
                expected,
            ]
        })
        .collect();
    table(&["codec", "frame, bytes", "NMSE", "closed form"], &rows, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_lie_at_every_plane_of_the_largest_packets_and_at_the_whole_packet() {
        let rht = frames(Codec::Rht, 352);
        for bytes in [60, 104, 148, 236, 412, 764, 1116, 1468] {
            assert!(rht.contains(&bytes), "{bytes} in {rht:?}");
        }
        assert_eq!(frames(Codec::SubtractiveDithering, 352).last(), Some(&1512));
    }
}
