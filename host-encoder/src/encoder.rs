//! Gradient in, packets out.

use crate::layout::Layout;
use crate::message::Message;
use crate::packet::{BIT_PLANES, Header, Kind, PLANES, Prefix, StreamId, plane_offset};
use crate::quantiser::{self, Cells};
use crate::rotation::{self, RotationKey};
use crate::scale::RowScale;

/// Why a gradient cannot be encoded. Nothing has been written to the message.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// Another length than the layout's.
    #[error("a gradient of {got} coordinates for a layout of {expected}")]
    Length {
        /// Coordinates given.
        got: usize,
        /// Coordinates of the layout.
        expected: usize,
    },
    /// NaN or infinity.
    #[error("coordinate {index} is {value}: only finite values can be encoded")]
    NotFinite {
        /// Where the first one stands.
        index: usize,
        /// What stands there.
        value: f32,
    },
    /// No planes, or more than there are.
    #[error("{0} planes (valid: 1 to {PLANES}; {PLANES} keep everything)")]
    Planes(u8),
    /// A row's energy does not fit an f32.
    #[error("row {row} is too large: its root mean square exceeds the range of f32")]
    TooLarge {
        /// The row.
        row: usize,
    },
}

/// What the header says about the whole message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// Job and source rank.
    pub stream: StreamId,
    /// Message id.
    pub message: u32,
    /// Layer class, 0 (front layers) to 7.
    pub layer_class: u8,
}

/// Encodes messages of one layout.
#[derive(Debug, Clone, Copy)]
pub struct Encoder {
    layout: Layout,
    key: RotationKey,
}

impl Encoder {
    /// An encoder for messages of `layout`, rotated under `key`.
    pub fn new(layout: Layout, key: RotationKey) -> Self {
        Self { layout, key }
    }

    /// Encodes `gradient` (shape: `layout.coordinates()`) into `out`, whose former content is replaced.
    ///
    /// Only the first `planes` (1 to 11) planes of each packet are written: a sender that compresses ahead of time does
    /// what a congested switch does (DESIGN §3).
    pub fn encode(
        &self,
        gradient: &[f32],
        envelope: Envelope,
        planes: u8,
        out: &mut Message,
    ) -> Result<(), EncodeError> {
        let layout = self.layout;
        if !(1..=PLANES).contains(&planes) {
            return Err(EncodeError::Planes(planes));
        }
        if gradient.len() != layout.coordinates() {
            return Err(EncodeError::Length { got: gradient.len(), expected: layout.coordinates() });
        }
        if let Some((index, &value)) = gradient.iter().enumerate().find(|(_, v)| !v.is_finite()) {
            return Err(EncodeError::NotFinite { index, value });
        }
        let (energies, median) = self.row_energies(gradient);
        let mut rotated = Vec::new();
        out.planes = planes;
        out.bytes.clear();
        out.offsets.clear();
        for (row, energy) in energies.iter().enumerate() {
            let range = layout.row_range(row);
            let source = &gradient[range.start..range.end.min(gradient.len())];
            let scale = RowScale::of(source);
            rotated.clear();
            rotated.extend(source.iter().map(|v| scale.up(*v)));
            rotated.resize(range.len(), 0.0);
            rotation::forward(&mut rotated, self.key, row as u32);
            for index in layout.row_packets(row) {
                let place = layout.packet_range(index);
                let prefix = Prefix {
                    kind: Kind::Data,
                    codec: 0,
                    important: *energy >= median,
                    layer_class: envelope.layer_class,
                    last: index + 1 == layout.packets(),
                    stream: envelope.stream,
                    message: envelope.message,
                };
                out.offsets.push(out.bytes.len());
                let part = &rotated[place.start - range.start..place.end - range.start];
                if !encode_packet(part, scale, prefix, index as u32, planes, &mut out.bytes) {
                    out.bytes.clear();
                    out.offsets.clear();
                    return Err(EncodeError::TooLarge { row });
                }
            }
        }
        out.offsets.push(out.bytes.len());
        Ok(())
    }

    /// The energy of every row, and their upper median.
    fn row_energies(&self, gradient: &[f32]) -> (Vec<f64>, f64) {
        let energies: Vec<f64> = (0..self.layout.rows())
            .map(|row| {
                let range = self.layout.row_range(row);
                energy(&gradient[range.start..range.end.min(gradient.len())])
            })
            .collect();
        let mut sorted = energies.clone();
        sorted.sort_by(f64::total_cmp);
        let median = sorted[sorted.len() / 2];
        (energies, median)
    }
}

/// Sum of squares over eight partial sums: an order that does not depend on the machine.
fn energy(values: &[f32]) -> f64 {
    let mut sums = [0.0f64; 8];
    for chunk in values.chunks(8) {
        for (sum, v) in sums.iter_mut().zip(chunk) {
            *sum += f64::from(*v) * f64::from(*v);
        }
    }
    sums.iter().sum()
}

/// Appends one packet; false when its σ is beyond f32.
fn encode_packet(
    r: &[f32],
    scale: RowScale,
    prefix: Prefix,
    index: u32,
    planes: u8,
    out: &mut Vec<u8>,
) -> bool {
    let n = r.len();
    let sigma = scale.down((energy(r) / n as f64).sqrt());
    if !sigma.is_finite() {
        return false;
    }
    // The receiver scales by the σ on the wire, so the encoder divides by that one, rounding included.
    let sigma_up = scale.up64(sigma);
    let inverse = if sigma_up > 0.0 { (1.0 / sigma_up) as f32 } else { 0.0 };
    let largest = r.iter().fold(0.0f32, |m, v| m.max(v.abs())) * inverse;
    let mean = mean_magnitude(r) * f64::from(inverse);
    let peak = quantiser::peak_byte(largest);
    let header = Header {
        prefix,
        first_plane: 0,
        index,
        coordinates: n,
        sigma,
        kappa: (mean * 255.0).round().min(255.0) as u8,
        peak,
    };
    out.extend_from_slice(&header.to_bytes());
    let start = out.len();
    out.resize(start + plane_offset(planes, n), 0);
    let body = &mut out[start..];
    let (bits, positions) = body.split_at_mut(plane_offset(planes.min(BIT_PLANES), n));
    let cells = Cells::new(quantiser::peak_magnitude(peak));
    for (group, r) in r.chunks_exact(8).enumerate() {
        let (mut indices, mut offsets) = ([0u8; 8], [0u32; 8]);
        for lane in 0..8 {
            let magnitude = r[lane].abs() * inverse;
            let cell = quantiser::cell(magnitude);
            indices[lane] = u8::from(r[lane].is_sign_negative()) << 7 | cell;
            offsets[lane] = cells.offset(cell, magnitude);
        }
        let transposed = transpose(u64::from_be_bytes(indices)).to_be_bytes();
        for (plane, byte) in bits.chunks_exact_mut(n / 8).zip(transposed) {
            plane[group] = byte;
        }
        for (plane, shift) in positions.chunks_exact_mut(n).zip([16, 8, 0]) {
            plane[group * 8..][..8].copy_from_slice(&offsets.map(|offset| (offset >> shift) as u8));
        }
    }
    true
}

fn mean_magnitude(r: &[f32]) -> f64 {
    let mut sums = [0.0f64; 8];
    for chunk in r.chunks(8) {
        for (sum, v) in sums.iter_mut().zip(chunk) {
            *sum += f64::from(v.abs());
        }
    }
    sums.iter().sum::<f64>() / r.len() as f64
}

/// Transposes an 8 × 8 matrix of bits whose rows are the bytes, most significant first (Hacker's Delight, §7-3).
pub(crate) fn transpose(mut x: u64) -> u64 {
    let mut swap = |shift: u32, mask: u64| {
        let t = (x ^ (x >> shift)) & mask;
        x ^= t ^ (t << shift);
    };
    swap(7, 0x00aa_00aa_00aa_00aa);
    swap(14, 0x0000_cccc_0000_cccc);
    swap(28, 0x0000_0000_f0f0_f0f0);
    x
}

#[cfg(test)]
mod tests {
    use super::transpose;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn transposing_swaps_rows_and_columns(bytes: [u8; 8]) {
            let out = transpose(u64::from_be_bytes(bytes)).to_be_bytes();
            for (row, byte) in out.iter().enumerate() {
                for (column, source) in bytes.iter().enumerate() {
                    prop_assert_eq!(byte >> (7 - column) & 1, source >> (7 - row) & 1);
                }
            }
        }
    }
}
