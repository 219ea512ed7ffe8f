//! `trimwire codec plot`: error against bytes kept of each packet, for every codec.

mod svg;

use super::cut::{Choice, Depth, FRAME_OVERHEAD, message_shares};
use super::gradient::Input;
use super::measure::{DecodingName, Experiment, closed_form};
use super::source::{Distribution, Dtype};
use crate::failure::{EXIT_CODES, Failure, Outcome};
use crate::output::{print, print_json, table};
use crate::progress::Progress;
use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;
use trimwire_encoder::{Codec, DEFAULT_ROW_LOG2, HEADER_LEN, Layout};

const HELP: &str = "\
Examples:
  trimwire codec plot -o error.svg                                  all codecs, every packet cut
  trimwire codec plot -o error.svg --codec rht --codec rht-paper --trim-rate 0.25
  trimwire codec plot -o heavy.svg --dist student-t
  trimwire codec plot --json                                        the points as JSON

Bytes are those of an untagged Ethernet frame without its checksum: 42 bytes of headers, then the UDP payload. Lines are closed forms
for Gaussian coordinates, points are measured; dotted lines join points where there is no closed form. Unless --per-packet says
otherwise, every codec has the largest packets that an MTU of 1500 bytes holds over IPv4 and IPv6.";

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
    #[command(flatten)]
    pub input: Input,
    /// How cut coordinates are filled in.
    #[arg(long, value_enum, default_value_t = DecodingName::Unbiased)]
    pub decoding: DecodingName,
    /// Coordinates of a message [default: 131072, or all of FILE].
    #[arg(long, value_name = "N")]
    pub coordinates: Option<usize>,
    /// Most coordinates of a packet, a multiple of 32 [default: what an MTU of 1500 bytes holds over IPv4 and IPv6].
    #[arg(long, value_name = "n")]
    pub per_packet: Option<usize>,
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
    let input = &options.input;
    let gradient = input.read(options.coordinates, 1 << DEFAULT_ROW_LOG2).map_err(Failure::input)?;
    let count =
        gradient.as_ref().map_or(options.coordinates.unwrap_or(DEFAULT_COORDINATES), |g| g.values.len());
    let dtype = gradient.as_ref().map_or(input.dtype(), |gradient| gradient.dtype);
    let values = gradient.as_ref().map(|gradient| gradient.values.as_slice());
    let layouts = options.layouts(count).map_err(Failure::usage)?;
    let all = options.measure(&layouts, dtype, values)?;
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
        self.input.check()?;
        if let Some(output) = &self.output {
            let svg = output.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("svg"));
            ensure!(svg, "--output {}: drawings are SVG (valid: names that end in .svg)", output.display());
        }
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
        let coordinates = match &self.input.dist {
            Distribution::File(path) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            named => format!("{named} coordinates"),
        };
        let decoding = format!("{:?}", self.decoding).to_lowercase();
        format!("{} % of packets cut, {coordinates}, {decoding} decoding", 100.0 * self.trim_rate)
    }

    /// The codecs to draw, each in packets of its own size: what trim sizes in bytes leave of a packet depends on it.
    fn layouts(&self, count: usize) -> Result<Vec<(Codec, Layout)>> {
        let codecs = if self.codec.is_empty() { &Codec::ALL[..] } else { &self.codec };
        let layout = |codec: Codec| {
            let per_packet = self.per_packet.unwrap_or(codec.coordinates_per_packet());
            super::nmse::layout(count, per_packet, DEFAULT_ROW_LOG2)
        };
        codecs.iter().map(|codec| Ok((*codec, layout(*codec)?))).collect()
    }

    fn measure(
        &self,
        layouts: &[(Codec, Layout)],
        dtype: Dtype,
        gradient: Option<&[f32]>,
    ) -> Result<Vec<Series>, Failure> {
        let frames = |codec, layout: Layout| frames(codec, layout.coordinates_per_packet());
        let sizes = layouts.iter().map(|(codec, layout)| frames(*codec, *layout).len()).sum::<usize>();
        let progress = Progress::new(sizes as u64, "points");
        let mut all = Vec::new();
        for &(codec, layout) in layouts {
            let mut points = Vec::new();
            for bytes in frames(codec, layout) {
                let experiment = self.experiment(layout, codec, dtype, Depth::frame(bytes));
                let measured = experiment.run(&self.input.dist, gradient, || ())?;
                let checked = measured.check(codec, gradient);
                checked.with_context(|| self.input.dist.to_string()).map_err(Failure::input)?;
                let (nmse, expected) = (measured.nmse, measured.expected);
                points.push(Point { codec: codec.name(), frame_bytes: bytes, nmse, expected });
                progress.step();
            }
            let whole = FRAME_OVERHEAD + HEADER_LEN + codec.body_len(layout.coordinates_per_packet());
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

    fn experiment(&self, layout: Layout, codec: Codec, dtype: Dtype, depth: Depth) -> Experiment {
        Experiment {
            codec,
            decoding: self.decoding.into(),
            layout,
            dtype,
            depth,
            trim_rate: self.trim_rate,
            choice: Choice::Exact,
            messages: self.messages,
            seed: self.seed,
        }
    }
}

/// Frame sizes to measure at: where the planes of the largest packets end, and halves of the wide ones. Raw packets, of one plane, are
/// measured where other f32s' planes would end.
fn frames(codec: Codec, per_packet: usize) -> Vec<usize> {
    let codec = if codec == Codec::Raw { Codec::RhtPaper } else { codec };
    let planes: Vec<usize> =
        (0..=codec.planes()).map(|plane| codec.plane_offset(plane, per_packet)).collect();
    let wide = planes.windows(2).filter(|plane| plane[1] - plane[0] >= per_packet);
    let halves: Vec<usize> = wide.map(|plane| plane[0].midpoint(plane[1])).collect();
    let mut sizes: Vec<usize> =
        planes.into_iter().chain(halves).map(|body| FRAME_OVERHEAD + HEADER_LEN + body).collect();
    sizes.sort_unstable();
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
        let bits = [60, 116, 172, 228, 284, 340, 396, 452];
        assert_eq!(frames(Codec::Rht, 448), [&bits[..], &[508, 732, 956, 1180, 1404]].concat());
        let bits = [60, 104, 148, 192, 236, 280, 324, 368];
        let floats = [&bits[..], &[412, 588, 764, 940, 1116, 1292, 1468]].concat();
        assert_eq!(frames(Codec::RhtPaper, 352), floats);
        assert_eq!(frames(Codec::Raw, 352), floats);
        let bits = [60, 100, 140, 180, 220, 260, 300, 340];
        let dithered = [&bits[..], &[380, 540, 700, 860, 1020, 1180, 1340, 1380]].concat();
        assert_eq!(frames(Codec::SubtractiveDithering, 320), dithered);
    }
}
