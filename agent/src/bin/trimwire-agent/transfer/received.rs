// SPDX-License-Identifier: Apache-2.0
//! A gradient at its receiver: decoded, compared with what was sent, and kept.

use super::TransferArgs;
use super::flow::{maybe_rate, rate_bps};
use super::greeting::Offer;
use crate::{Failure, bad_input, failed, gradient, npy, report};
use anyhow::anyhow;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use trimwire_agent::transfer::TransferStats;
use trimwire_encoder::{Codec, Decoding, Layout, PLANES, RowReceiver, expected_nmse, nmse};

/// Rows of a message, as they came.
pub(super) type Rows = Vec<Box<RowReceiver>>;

/// A message that is there and not decoded.
pub(super) struct Arrived {
    pub(super) from: u16,
    pub(super) message: u32,
    pub(super) offer: Offer,
    pub(super) rows: Rows,
    pub(super) transfer: TransferStats,
    /// From its first packet to its last.
    pub(super) took_ns: u64,
    /// Payload bytes that came of it.
    pub(super) bytes: u64,
}

/// A message at its receiver.
#[derive(Debug, Serialize)]
pub(super) struct Received {
    from: u16,
    message: u32,
    coordinates: usize,
    seed: u64,
    packets: u32,
    full: u32,
    trimmed: u32,
    missing: u32,
    duplicates: u32,
    /// Packets by whole planes held.
    planes: BTreeMap<u8, u32>,
    /// `null` of a file's: only its sender knows what was sent.
    nmse: Option<f64>,
    /// By the formula of docs/reference/wire-format.md §9 from `planes`, row by row.
    nmse_expected: Option<f64>,
    /// From its first packet to its last.
    seconds: f64,
    /// Bits of its payloads per second; `null` where there was no second packet.
    goodput_bps: Option<f64>,
    /// Bits of the gradient as f32, per second.
    gradient_bps: Option<f64>,
    /// Where it was kept.
    saved: Option<PathBuf>,
}

impl Arrived {
    /// Memory that it holds, about.
    pub(super) fn bytes(&self) -> usize {
        self.offer.coordinates * 4
    }

    /// Decodes and compares it.
    pub(super) fn measure(self, args: &TransferArgs) -> Result<Received, Failure> {
        let Self { from, message, offer, rows, transfer, took_ns, bytes } = self;
        let layout = offer.layout().map_err(bad_input)?;
        let mut planes = BTreeMap::new();
        let mut got = vec![0.0; offer.coordinates];
        for row in &rows {
            for index in layout.row_packets(row.row()) {
                *planes.entry(row.coverage(index)).or_insert(0) += 1;
            }
            row.decode_into(&mut got[layout.row_coordinates(row.row())]).map_err(failed)?;
        }
        let sent = offer.made.then(|| gradient::gaussian(offer.coordinates, offer.seed, from, message));
        let predict = |sent: &Vec<f32>| predicted(&layout, &rows, args.decoding.into(), sent);
        let saved = match &args.save {
            Some(path) => {
                let several = args.senders > 1 || offer.messages != Some(1);
                let path = if several { numbered(path, from, message) } else { path.clone() };
                std::fs::write(&path, npy::write(&got))
                    .map_err(|error| failed(anyhow!("{}: {error}", path.display())))?;
                Some(path)
            }
            None => None,
        };
        Ok(Received {
            from,
            message,
            coordinates: offer.coordinates,
            seed: offer.seed,
            packets: transfer.packets,
            full: transfer.full,
            trimmed: transfer.trimmed,
            missing: transfer.missing,
            duplicates: transfer.duplicates,
            planes,
            nmse: sent.as_ref().map(|sent| nmse(&got, sent)),
            nmse_expected: sent.as_ref().map(predict),
            seconds: took_ns as f64 / 1e9,
            goodput_bps: rate_bps(bytes, took_ns),
            gradient_bps: rate_bps(offer.coordinates as u64 * 4, took_ns),
            saved,
        })
    }
}

/// `got.npy` → `got.1.0.npy`.
fn numbered(path: &Path, from: u16, message: u32) -> PathBuf {
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    let dot = if extension.is_empty() { "" } else { "." };
    path.with_extension(format!("{from}.{message}{dot}{extension}"))
}

/// The formula of docs/reference/wire-format.md §9 for each row, weighted by the rows' energies.
fn predicted(layout: &Layout, rows: &Rows, decoding: Decoding, expected: &[f32]) -> f64 {
    let (mut error, mut energy) = (0.0, 0.0);
    for receiver in rows {
        let row = receiver.row();
        let range = layout.row_range(row);
        let mut shares: BTreeMap<u8, f64> = BTreeMap::new();
        for index in layout.row_packets(row) {
            let planes = receiver.coverage(index);
            if planes < PLANES {
                let share = layout.packet_range(index).len() as f64 / range.len() as f64;
                *shares.entry(planes).or_default() += share;
            }
        }
        let shares: Vec<(u8, f64)> = shares.into_iter().collect();
        // A row of which nothing arrived is decoded as zeros.
        let row_error =
            Some(expected_nmse(Codec::Rht, decoding, &shares)).filter(|nmse| nmse.is_finite()).unwrap_or(1.0);
        let values = expected.get(layout.row_coordinates(row)).unwrap_or_default();
        let row_energy: f64 = values.iter().map(|&v| f64::from(v).powi(2)).sum();
        error += row_error * row_energy;
        energy += row_energy;
    }
    if energy == 0.0 { 0.0 } else { error / energy }
}

/// A line a message.
pub(super) fn table(messages: &[Received]) -> String {
    let maybe = |nmse: Option<f64>| nmse.map_or_else(|| "-".to_owned(), |nmse| format!("{nmse:.3e}"));
    if messages.len() > super::LINES {
        let sum = |count: fn(&Received) -> u32| messages.iter().map(|got| u64::from(count(got))).sum::<u64>();
        let (packets, cut, missing) =
            (sum(|got| got.packets), sum(|got| got.trimmed), sum(|got| got.missing));
        let worst = messages.iter().filter_map(|got| got.nmse).max_by(f64::total_cmp);
        let worst = maybe(worst);
        let count = messages.len();
        return format!(
            "{count} messages: {packets} packets, {cut} trimmed, {missing} missing, nmse at most {worst} (--json has each)"
        );
    }
    let rows: Vec<Vec<String>> = messages
        .iter()
        .map(|got| {
            vec![
                got.from.to_string(),
                got.message.to_string(),
                got.packets.to_string(),
                got.full.to_string(),
                got.trimmed.to_string(),
                got.missing.to_string(),
                maybe(got.nmse),
                maybe(got.nmse_expected),
                format!("{:.3}", got.seconds * 1e3),
                maybe_rate(got.goodput_bps),
                maybe_rate(got.gradient_bps),
            ]
        })
        .collect();
    let headings = [
        "from", "message", "packets", "full", "trimmed", "missing", "nmse", "expected", "time ms", "goodput",
        "gradient",
    ];
    report::table(&headings, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_several_messages_are_told_apart_before_the_extension() {
        assert_eq!(numbered(Path::new("a/got.npy"), 2, 7), Path::new("a/got.2.7.npy"));
        assert_eq!(numbered(Path::new("got"), 1, 0), Path::new("got.1.0"));
    }
}
