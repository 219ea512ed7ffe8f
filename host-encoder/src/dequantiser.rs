//! Planes of one packet back to coordinates.

use crate::block;
use crate::packet::{BIT_PLANES, BLOCK, PLANES, plane_offset};
use crate::quantiser::{self, Cells};

/// Reads coordinates of which the same number of planes is held.
pub(crate) struct Dequantiser {
    planes: u8,
    values: Values,
}

enum Values {
    /// By the upper bits of the index, sign included.
    Table(Box<[f32; 256]>),
    /// By cell and position.
    Cells { sigma: f32, cells: Box<Cells> },
}

impl Dequantiser {
    /// Whether cut coordinates are ±κσ: with one plane, and with any number where all magnitudes are alike (a lone spike's
    /// row). Then signs say everything, while the normal distribution's centroids would be far off.
    pub(crate) fn decodes_by_sign(kappa: u8, planes: u8) -> bool {
        planes == 1 || (kappa == u8::MAX && (2..BIT_PLANES).contains(&planes))
    }

    /// `sigma` in the units of the result; `sign_only` is the magnitude of cut coordinates where only signs are used.
    pub(crate) fn new(sigma: f32, kappa: u8, peak: u8, planes: u8, sign_only: Option<f32>) -> Self {
        let peak = quantiser::peak_magnitude(peak);
        let magnitude = |cell: u8| match (planes, sign_only) {
            (0, _) => 0.0,
            (_, Some(magnitude)) => magnitude,
            (_, None) if Self::decodes_by_sign(kappa, planes) => sigma * f32::from(kappa) / 255.0,
            (_, None) => sigma * quantiser::centroid(cell, planes),
        };
        let values = if planes > BIT_PLANES && (planes >= PLANES || sign_only.is_none()) {
            Values::Cells { sigma, cells: Box::new(Cells::new(peak)) }
        } else {
            // Indices read from `planes` planes end in zeros, so only their first entries are looked up.
            let depth = if sign_only.is_some() { planes.min(1) } else { planes.min(BIT_PLANES) };
            let mut table = [0.0; 256];
            for index in (0..=255u8).step_by(256 >> depth) {
                let magnitude = magnitude(index & 127);
                table[usize::from(index)] = if index & 128 == 0 { magnitude } else { -magnitude };
            }
            Values::Table(Box::new(table))
        };
        let planes = if sign_only.is_some() && planes < PLANES { planes.min(1) } else { planes };
        Self { planes, values }
    }

    /// Writes λ times the coordinates of the blocks from `first_block` on of a packet of `n` coordinates.
    pub(crate) fn decode(&self, body: &[u8], n: usize, first_block: usize, lambda: f32, out: &mut [f32]) {
        let (blocks, _) = out.as_chunks_mut::<BLOCK>();
        for (block, out) in (first_block..).zip(blocks) {
            let indices = block::gather(body, n / 8, self.planes.min(BIT_PLANES), block);
            match &self.values {
                Values::Table(table) => {
                    for i in 0..BLOCK {
                        out[i] = table[usize::from(indices[i])] * lambda;
                    }
                }
                Values::Cells { sigma, cells } => {
                    let offsets = self.offsets(body, n, block);
                    let open_bits = 8 * u32::from(PLANES - self.planes);
                    let magnitudes = cells.magnitudes(&indices, &offsets, open_bits);
                    for i in 0..BLOCK {
                        let sign = u32::from(indices[i] & 128) << 24;
                        out[i] = f32::from_bits((sigma * magnitudes[i]).to_bits() ^ sign) * lambda;
                    }
                }
            }
        }
    }

    /// Positions within cells as far as the byte-planes held tell; the other bits are zero.
    #[inline]
    fn offsets(&self, body: &[u8], n: usize, block: usize) -> [u32; BLOCK] {
        let mut offsets = [0; BLOCK];
        for plane in BIT_PLANES..self.planes {
            let bytes = &body[plane_offset(plane, n) + block * BLOCK..][..BLOCK];
            let shift = 8 * u32::from(PLANES - 1 - plane);
            for i in 0..BLOCK {
                offsets[i] |= u32::from(bytes[i]) << shift;
            }
        }
        offsets
    }
}
