// SPDX-License-Identifier: Apache-2.0
//! Error against the bytes that a cut leaves of a packet, for every codec.

use super::super::cut::{Choice, Depth, FRAME_OVERHEAD, Sent, message_shares};
use super::super::measure::{Experiment, closed_form};
use super::super::nmse;
use super::super::source::{Distribution, Dtype};
use super::{Options, Plotted};
use crate::failure::Failure;
use crate::output::table;
use crate::page::{self, Axis, Figure, Mark, Page, Unit};
use crate::progress::Progress;
use anyhow::{Context as _, Result};
use serde::Serialize;
use std::cmp::Ordering;
use trimwire_encoder::papers::Scheme;
use trimwire_encoder::{HEADER_LEN, Layout, Tensor};

/// Coordinates of a message when no flag says so.
const DEFAULT_COORDINATES: usize = 1 << 17;
/// Messages for every point when no flag says so.
const DEFAULT_MESSAGES: u32 = 2;

/// NMSE. What is smaller is rounding.
const LEAST: f64 = 1e-12;
/// What switches cut to out of the box (docs/how-to/sonic.md has SONiC's).
const TRIM_SIZES: [(&str, f64); 2] = [("SONiC 128 B", 128.0), ("Spectrum 256 B", 256.0)];

/// A measured error.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Point {
    codec: &'static str,
    /// Frames were trimmed to this many bytes.
    frame_bytes: usize,
    nmse: f64,
    expected: Option<f64>,
}

/// What is drawn of a codec.
#[derive(Debug, Clone, PartialEq)]
struct Series {
    codec: Scheme,
    points: Vec<Point>,
    /// Closed form at every frame size.
    curve: Vec<(usize, Option<f64>)>,
}

/// Measures and draws.
pub(super) fn plot(options: &Options) -> Result<Plotted, Failure> {
    let input = &options.input;
    let gradient = input.read(options.coordinates).map_err(Failure::input)?;
    let tensors = nmse::tensors(gradient.as_ref(), options.coordinates.unwrap_or(DEFAULT_COORDINATES));
    let dtype = gradient.as_ref().map_or(input.dtype(), |gradient| gradient.dtype);
    let layouts = layouts(options, &tensors, dtype).map_err(Failure::usage)?;
    if let (Some(gradient), Some((_, layout))) = (&gradient, layouts.first()) {
        input.warn(gradient, layout);
    }
    let values = gradient.as_ref().map(|gradient| gradient.values.as_slice());
    let all = measure(options, &layouts, dtype, values)?;
    let points: Vec<Point> = all.iter().flat_map(|series| series.points.iter().copied()).collect();
    Ok(Plotted {
        json: serde_json::json!({ "points": points }),
        page: page(&all, title(options), render(&points)),
    })
}

fn page(all: &[Series], summary: String, table: String) -> Page {
    let at = |bytes: usize, error: f64| (bytes as f64, error.max(LEAST));
    let codecs = all.iter().flat_map(|Series { codec, points, curve }| {
        let closed = curve.iter().filter_map(|(bytes, error)| Some(at(*bytes, (*error)?)));
        let measured = points.iter().map(|point| at(point.frame_bytes, point.nmse));
        let series = |points: Vec<_>, mark| page::Series { name: codec.to_string(), points, mark };
        [series(closed.collect(), Mark::Line), series(measured.collect(), Mark::Dots)]
    });
    let sizes = TRIM_SIZES.map(|(name, bytes)| {
        let points = vec![(bytes, LEAST), (bytes, 1.0)];
        page::Series { name: name.to_owned(), points, mark: Mark::Line }
    });
    Page {
        title: "Error of trimmed packets".to_owned(),
        summary,
        table,
        columns: vec![
            ("NMSE", "‖decoded − exact‖² / ‖exact‖², measured"),
            ("closed form", "what is expected of Gaussian coordinates"),
        ],
        figures: vec![Figure {
            title: "Error against bytes kept of a packet",
            caption: "Dots are measured, lines are closed forms. What is at 10⁻¹² is that or less. Upright lines are default trim sizes.",
            x: Axis::logarithmic(
                "bytes kept of each trimmed packet, an Ethernet frame without checksum",
                Unit::Bytes,
            ),
            y: Axis::logarithmic("NMSE", Unit::Plain),
            series: codecs.chain(sizes).collect(),
            levels: Vec::new(),
        }],
    }
}

fn title(options: &Options) -> String {
    let coordinates = match &options.input.dist {
        Distribution::File(path) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        named => format!("{named} coordinates"),
    };
    let decoding = format!("{:?}", options.decoding).to_lowercase();
    format!("{} % of packets trimmed, {coordinates}, {decoding} decoding", 100.0 * options.trim_rate)
}

/// The codecs to draw, each in packets of its own size: what trim sizes in bytes leave of a packet depends on it.
fn layouts(options: &Options, tensors: &[Tensor], dtype: Dtype) -> Result<Vec<(Sent, Layout)>> {
    let codecs = if options.codec.is_empty() { &Scheme::ALL[..] } else { &options.codec };
    let layout = |codec: &Scheme| {
        let sent = Sent { codec: *codec, planes: codec.default_planes(dtype.bytes()) };
        let per_packet = options.per_packet.unwrap_or_else(|| nmse::per_packet(sent));
        Ok((sent, nmse::layout(tensors, per_packet, options.row_log2)?))
    };
    codecs.iter().map(layout).collect()
}

fn measure(
    options: &Options,
    layouts: &[(Sent, Layout)],
    dtype: Dtype,
    gradient: Option<&[f32]>,
) -> Result<Vec<Series>, Failure> {
    let frames = |sent, layout: &Layout| frames(sent, layout.coordinates_per_packet());
    let sizes = layouts.iter().map(|(sent, layout)| frames(*sent, layout).len()).sum::<usize>();
    let progress = Progress::new(sizes as u64, "points");
    let mut all = Vec::new();
    for (sent, layout) in layouts {
        let (sent, codec, mut points) = (*sent, sent.codec, Vec::new());
        for bytes in frames(sent, layout) {
            let experiment = Experiment {
                sent,
                decoding: options.decoding.into(),
                layout: layout.clone(),
                dtype,
                depth: Depth::frame(bytes),
                trim_rate: options.trim_rate,
                choice: Choice::Exact,
                messages: options.messages.unwrap_or(DEFAULT_MESSAGES),
                seed: options.seed,
            };
            let measured = experiment.run(&options.input.dist, gradient, || ())?;
            let checked = measured.check(codec, gradient);
            checked.with_context(|| options.input.dist.to_string()).map_err(Failure::input)?;
            let (nmse, expected) = (measured.nmse, measured.expected);
            points.push(Point { codec: codec.name(), frame_bytes: bytes, nmse, expected });
            progress.step();
        }
        let whole = FRAME_OVERHEAD + sent.payload(layout.coordinates_per_packet());
        let expected = |frame| {
            let shares = message_shares(layout, sent, Depth::frame(frame), options.trim_rate);
            closed_form(codec, options.decoding.into(), &shares)
        };
        let curve = (FRAME_OVERHEAD + HEADER_LEN..=whole).map(|bytes| (bytes, expected(bytes))).collect();
        all.push(Series { codec, points, curve });
    }
    progress.finish();
    Ok(all)
}

/// Frame sizes to measure at: where the planes of the largest packets end, and between the ends of wide ones, halves of bytes and sixteenths of words.
fn frames(sent: Sent, per_packet: usize) -> Vec<usize> {
    let ends: Vec<usize> =
        (0..=sent.planes).map(|planes| FRAME_OVERHEAD + sent.codec.packet_len(planes, per_packet)).collect();
    let mut sizes = ends.clone();
    for plane in ends.windows(2) {
        let width = plane[1] - plane[0];
        let parts = match width.cmp(&per_packet) {
            Ordering::Less => 1,
            Ordering::Equal => 2,
            Ordering::Greater => 16,
        };
        sizes.extend((1..parts).map(|part| plane[0] + width * part / parts));
    }
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
    use trimwire_encoder::Codec;
    use trimwire_encoder::papers::PaperCodec;

    #[test]
    fn points_lie_at_every_plane_of_the_largest_packets_and_at_the_whole_packet() {
        let whole = |codec: Scheme| Sent { codec, planes: codec.planes() };
        let bits = [62, 118, 174, 230, 286, 342, 398, 454];
        let rht = Scheme::Wire(Codec::Rht);
        assert_eq!(frames(whole(rht), 448), [&bits[..], &[510, 734, 958, 1182, 1406]].concat());
        let bits = [62, 150, 238, 326, 414, 502, 590, 678];
        assert_eq!(frames(Sent { codec: rht, planes: 9 }, 704), [&bits[..], &[766, 1118, 1470]].concat());
        let of = |codec, first: usize, last: usize| {
            let sizes = frames(whole(codec), 352);
            assert_eq!((sizes.first(), sizes.last()), (Some(&first), Some(&last)));
            sizes.len()
        };
        assert_eq!(of(Scheme::Wire(Codec::Raw), 62, 1470), 17);
        assert_eq!(of(Scheme::Paper(PaperCodec::Rht), 62, 1470), 18);
    }
}
