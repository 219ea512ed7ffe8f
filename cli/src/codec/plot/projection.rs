// SPDX-License-Identifier: Apache-2.0
//! The mean projection of what is decoded on what was encoded: 1 where decoding is unbiased.
//!
//! Few equal non-zeros are what a rotation has most trouble with: sums of few random signs are not normal, and the quantiser's constants are
//! those of normal coordinates.

use super::super::cut::Sent;
use super::super::measure::{envelope, mean_and_standard_error};
use super::super::nmse;
use super::super::source::gaussians;
use super::{Options, Plotted};
use crate::failure::Failure;
use crate::output::table;
use crate::page::{Axis, Figure, Mark, Page, Series, Unit};
use crate::progress::Progress;
use anyhow::{Context as _, Result, anyhow};
use rand::seq::index::sample;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::Serialize;
use trimwire_encoder::papers::Scheme;
use trimwire_encoder::{Codec, Decoding, Encoder, Job, Layout, RowChoice, RowReceiver, Tensor};

/// Equal non-zeros of a row: primes, powers of two and their neighbours alike.
const NON_ZEROS: [usize; 11] = [1, 2, 3, 4, 7, 16, 40, 64, 128, 256, 1024];
/// Rows for every point when no flag says so.
const DEFAULT_MESSAGES: u32 = 100;
/// What is farther from 1 than this is worth a look.
const BAND: f64 = 0.01;

/// The projections of rows of one kind at one depth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Point {
    /// Coordinates that are not zero, all ±1; `null` where all are drawn from N(0, 1).
    non_zeros: Option<usize>,
    /// Planes that were left.
    planes: u8,
    /// Mean of ⟨decoded, exact⟩ / ‖exact‖².
    projection: f64,
    /// Of the mean; `None` of a single row.
    standard_error: Option<f64>,
}

/// What is measured.
#[derive(Debug, Clone)]
struct Experiment {
    codec: Codec,
    decoding: Decoding,
    /// Of one row.
    layout: Layout,
    /// Rows for every point.
    messages: u32,
    seed: u64,
}

/// Measures and draws.
pub(super) fn plot(options: &Options) -> Result<Plotted, Failure> {
    let codec = match options.codec.first() {
        None => Codec::default(),
        Some(Scheme::Wire(codec)) => *codec,
        Some(figure) => {
            let error =
                anyhow!("--codec {figure}: --what projection draws codecs that are sent (valid: rht, raw)");
            return Err(Failure::usage(error));
        }
    };
    let sent = Sent { codec: Scheme::Wire(codec), planes: codec.planes() };
    let per_packet = options.per_packet.unwrap_or_else(|| nmse::per_packet(sent));
    // The row length is checked with the layout; a wrong one must not be a shift by as much.
    let coordinates = 1_usize.checked_shl(options.row_log2.into()).unwrap_or(1);
    let layout = nmse::layout(&[Tensor { coordinates, layer_class: 0 }], per_packet, options.row_log2);
    let experiment = Experiment {
        codec,
        decoding: options.decoding.into(),
        layout: layout.map_err(Failure::usage)?,
        messages: options.messages.unwrap_or(DEFAULT_MESSAGES),
        seed: options.seed,
    };
    let progress = Progress::new(experiment.kinds().len() as u64, "kinds of rows");
    let points = experiment.run(|| progress.step())?;
    progress.finish();
    let subtitle = format!(
        "codec {codec}, {:?} decoding, rows of 2^{} coordinates, {} of each kind; every packet trimmed",
        experiment.decoding, options.row_log2, experiment.messages
    );
    Ok(Plotted {
        json: serde_json::json!({ "codec": codec.name(), "row_log2": options.row_log2, "points": points }),
        page: page(&points, subtitle.replace("Unbiased", "unbiased")),
    })
}

fn page(points: &[Point], summary: String) -> Page {
    let depths = points.iter().map(|point| point.planes).max().unwrap_or(1);
    let kinds: Vec<Option<usize>> =
        points.iter().filter(|at| at.planes == 1).map(|at| at.non_zeros).collect();
    let series = |planes: u8| {
        let here: Vec<&Point> = points.iter().filter(|point| point.planes == planes).collect();
        // Two standard errors, in which the true mean lies nineteen times of twenty.
        let errors = here.iter().map(|point| 2.0 * point.standard_error.unwrap_or(0.0)).collect();
        // Side by side, from one plane to all.
        let shift = 0.7 * (f64::from(planes) / f64::from(depths + 1) - 0.5);
        let points = here.iter().enumerate().map(|(kind, at)| (kind as f64 + shift, at.projection));
        let name = format!("{planes} plane{}", if planes == 1 { "" } else { "s" });
        Series { name, points: points.collect(), mark: Mark::Within(errors) }
    };
    let names = kinds.iter().enumerate().map(|(place, kind)| (place as f64, name(*kind))).collect();
    let label = "coordinates of the row that are not zero, all ±1 (Gaussian: all, from N(0, 1))";
    Page {
        title: "Projection of trimmed packets".to_owned(),
        summary,
        table: render(points),
        columns: vec![
            ("projection", "mean of ⟨decoded, exact⟩ / ‖exact‖²"),
            ("±", "standard error of the mean"),
        ],
        figures: vec![Figure {
            title: "Projection of the decoded row on the exact one",
            caption: "Unbiased decoding keeps it at 1. Bars are two standard errors to either side.",
            x: Axis { names, ..Axis::linear(label, Unit::Plain) },
            y: Axis::linear("projection: ⟨decoded, exact⟩ / ‖exact‖²", Unit::Plain),
            series: (1..=depths).map(series).collect(),
            levels: vec![("+ 1 %", 1.0 + BAND), ("unbiased", 1.0), ("− 1 %", 1.0 - BAND)],
        }],
    }
}

impl Experiment {
    /// Rows of so many non-zeros; `None` are Gaussian ones.
    fn kinds(&self) -> Vec<Option<usize>> {
        let fit = NON_ZEROS.into_iter().filter(|count| *count <= self.layout.coordinates());
        fit.map(Some).chain([None]).collect()
    }

    /// Every kind at every depth of bit-planes. `done` is called after every kind.
    fn run(&self, done: impl Fn()) -> Result<Vec<Point>> {
        let (layout, codec, job) = (&self.layout, self.codec, Job::new(self.seed));
        let encoder = Encoder::new(layout.clone(), job).with_codec(codec);
        let mut receiver = RowReceiver::new(layout, 0, job, envelope(0), self.decoding).with_codec(codec);
        let mut packets = vec![0; encoder.row_len(0, codec.planes())];
        let mut decoded = vec![0.0; layout.coordinates()];
        let depths = codec.planes().min(8);
        let mut points = Vec::new();
        for (kind, non_zeros) in self.kinds().into_iter().enumerate() {
            let mut projections = vec![Vec::new(); depths.into()];
            for number in 0..self.messages {
                // A message of its own for every row: no two have the same signs.
                let message = envelope(number * 16 + kind as u32);
                let exact = self.row(non_zeros, message.message);
                encoder
                    .encode_row(0, &exact, message, RowChoice::whole(codec), &mut packets)
                    .context("cannot encode a row")?;
                for (planes, projections) in (1..).zip(&mut projections) {
                    receiver.reset(message);
                    let mut rest = &packets[..];
                    for (_, place) in layout.row_places(0) {
                        let whole = codec.packet_len(codec.planes(), place.len(), false);
                        let (packet, tail) = rest.split_at(whole);
                        let cut = codec.packet_len(planes, place.len(), false);
                        receiver.receive(&packet[..cut]).context("a packet of our own was refused")?;
                        rest = tail;
                    }
                    receiver.decode_into(&mut decoded).context("the row is as long as the output")?;
                    projections.push(projection(&decoded, &exact));
                }
            }
            for (planes, projections) in (1..).zip(&projections) {
                let (projection, standard_error) = mean_and_standard_error(projections);
                points.push(Point { non_zeros, planes, projection, standard_error });
            }
            done();
        }
        Ok(points)
    }

    fn row(&self, non_zeros: Option<usize>, message: u32) -> Vec<f32> {
        let length = self.layout.coordinates();
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(message.into());
        let Some(count) = non_zeros else { return gaussians(&mut rng, length) };
        let mut row = vec![0.0; length];
        for place in sample(&mut rng, length, count) {
            row[place] = if rng.random() { 1.0 } else { -1.0 };
        }
        row
    }
}

fn projection(decoded: &[f32], exact: &[f32]) -> f64 {
    let dot = |a: &[f32]| a.iter().zip(exact).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    dot(decoded) / dot(exact)
}

/// What rows of that kind are called.
fn name(non_zeros: Option<usize>) -> String {
    non_zeros.map_or_else(|| "Gaussian".to_owned(), |count| count.to_string())
}

fn render(points: &[Point]) -> String {
    let rows: Vec<Vec<String>> = points
        .iter()
        .map(|point| {
            let error = point.standard_error.map_or_else(|| "-".to_owned(), |e| format!("{e:.5}"));
            vec![name(point.non_zeros), point.planes.to_string(), format!("{:.5}", point.projection), error]
        })
        .collect();
    table(&["non-zeros", "planes", "projection", "±"], &rows, 1)
}

#[cfg(test)]
mod tests;
