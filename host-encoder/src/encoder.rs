//! Gradient in, packets out.

use crate::block;
use crate::layout::Layout;
use crate::message::Message;
use crate::packet::{BIT_PLANES, BLOCK, Header, Kind, PLANES, Prefix, StreamId, plane_offset};
use crate::quantiser::{self, Cells};
use crate::rotation::{self, RotationKey};
use crate::scale::{RowScale, largest_magnitude};

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
    /// A layer class that does not fit the header's three bits.
    #[error("layer class {0} (valid: 0 to 7)")]
    LayerClass(u8),
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
        if envelope.layer_class > 7 {
            return Err(EncodeError::LayerClass(envelope.layer_class));
        }
        if gradient.len() != layout.coordinates() {
            return Err(EncodeError::Length { got: gradient.len(), expected: layout.coordinates() });
        }
        // 0 · v is 0 for finite values and NaN for others; sums of it vectorise where a search does not.
        let all_finite = gradient.chunks(4096).all(|chunk| sum_of_zeros(chunk) == 0.0);
        if !all_finite
            && let Some((index, &value)) = gradient.iter().enumerate().find(|(_, v)| !v.is_finite())
        {
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
            if scale.is_one() {
                rotated.extend_from_slice(source);
            } else {
                rotated.extend(source.iter().map(|v| scale.up(*v)));
            }
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

    /// The energy per coordinate of every row, and their upper median. Per coordinate, because cutting a packet of a
    /// short last row costs as much as cutting one of a long row.
    fn row_energies(&self, gradient: &[f32]) -> (Vec<f64>, f64) {
        let energies: Vec<f64> = (0..self.layout.rows())
            .map(|row| {
                let range = self.layout.row_range(row);
                energy(&gradient[range.start..range.end.min(gradient.len())]) / range.len() as f64
            })
            .collect();
        let mut sorted = energies.clone();
        sorted.sort_by(f64::total_cmp);
        let median = sorted[sorted.len() / 2];
        (energies, median)
    }
}

/// 0 for finite values, NaN otherwise.
fn sum_of_zeros(values: &[f32]) -> f32 {
    let mut sums = [0.0f32; 8];
    let (chunks, rest) = values.as_chunks::<8>();
    for chunk in chunks {
        for i in 0..8 {
            sums[i] += chunk[i] * 0.0;
        }
    }
    sums.iter().sum::<f32>() + rest.iter().map(|v| v * 0.0).sum::<f32>()
}

/// Sum of squares over eight partial sums: an order that does not depend on the machine.
fn energy(values: &[f32]) -> f64 {
    sum_over_lanes(values, |v| v * v)
}

fn mean_magnitude(values: &[f32]) -> f64 {
    sum_over_lanes(values, f64::abs) / values.len() as f64
}

#[inline]
fn sum_over_lanes(values: &[f32], term: impl Fn(f64) -> f64) -> f64 {
    let mut sums = [0.0f64; 8];
    let (chunks, rest) = values.as_chunks::<8>();
    for chunk in chunks {
        for i in 0..8 {
            sums[i] += term(f64::from(chunk[i]));
        }
    }
    for (sum, v) in sums.iter_mut().zip(rest) {
        *sum += term(f64::from(*v));
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
    let energy = energy(r);
    let sigma = scale.down((energy / n as f64).sqrt());
    // A σ that underflows is rounded up instead: 0 means that all coordinates are zero.
    let sigma = if sigma == 0.0 && energy > 0.0 { f32::from_bits(1) } else { sigma };
    if !sigma.is_finite() {
        return false;
    }
    // The receiver scales by the σ on the wire, so the encoder divides by that one, rounding included.
    let sigma_up = scale.up64(sigma);
    let inverse = if sigma_up > 0.0 { (1.0 / sigma_up) as f32 } else { 0.0 };
    let largest = largest_magnitude(r) * inverse;
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
    let (bits, positions) = out[start..].split_at_mut(plane_offset(planes.min(BIT_PLANES), n));
    let cells = Cells::new(quantiser::peak_magnitude(peak));
    let (blocks, _) = r.as_chunks::<BLOCK>();
    // Indexed loops over arrays of a known length: they vectorise where chains of adapters do not.
    for (block, r) in blocks.iter().enumerate() {
        let mut magnitudes = [0.0; BLOCK];
        for i in 0..BLOCK {
            magnitudes[i] = r[i].abs() * inverse;
        }
        let mut indices = quantiser::cells(&magnitudes);
        if planes > BIT_PLANES {
            let within = cells.offsets(&indices, &magnitudes);
            for plane in 0..usize::from(planes - BIT_PLANES) {
                let to = &mut positions[plane * n + block * BLOCK..][..BLOCK];
                let shift = 16 - 8 * plane;
                for i in 0..BLOCK {
                    to[i] = (within[i] >> shift) as u8;
                }
            }
        }
        for i in 0..BLOCK {
            indices[i] |= (r[i].to_bits() >> 24) as u8 & 0x80;
        }
        block::scatter(&indices, bits, n / 8, planes, block);
    }
    true
}
