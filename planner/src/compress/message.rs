// SPDX-License-Identifier: Apache-2.0
//! What a compressor sends.

use half::{bf16, f16};

/// A compressed gradient.
#[derive(Debug, Clone, PartialEq)]
pub enum Compressed {
    /// Values and their places, ascending.
    Sparse {
        /// Places.
        places: Vec<u32>,
        /// Values.
        values: Vec<f32>,
        /// Bytes of a value as it travels: 4, or 2 where values are f16.
        value_bytes: u8,
    },
    /// Every value in 16 bits.
    F16(Vec<f16>),
    /// The same with f32's exponent.
    Bf16(Vec<bf16>),
    /// A sign each, ones being negative, and the magnitude of all.
    Signs {
        /// Eight to a byte, the first in the lowest bit.
        bits: Vec<u8>,
        /// How many.
        count: usize,
        /// Mean magnitude.
        scale: f32,
    },
    /// Every value in 255 equal steps from the negative greatest magnitude to it.
    EightBit {
        /// −127 to 127.
        codes: Vec<i8>,
        /// A step.
        scale: f32,
    },
}

impl Compressed {
    /// Bytes on the network, places counting four each.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Sparse { places, value_bytes, .. } => places.len() * (4 + usize::from(*value_bytes)),
            Self::F16(values) => 2 * values.len(),
            Self::Bf16(values) => 2 * values.len(),
            Self::Signs { bits, .. } => bits.len() + 4,
            Self::EightBit { codes, .. } => codes.len() + 4,
        }
    }

    /// Writes what a receiver has; values that were not sent are 0. Places beyond `out` are left out.
    pub fn decode_into(&self, out: &mut [f32]) {
        out.fill(0.0);
        match self {
            Self::Sparse { places, values, .. } => {
                for (place, value) in places.iter().zip(values) {
                    if let Some(slot) = out.get_mut(*place as usize) {
                        *slot = *value;
                    }
                }
            }
            Self::F16(values) => out.iter_mut().zip(values).for_each(|(out, value)| *out = value.to_f32()),
            Self::Bf16(values) => out.iter_mut().zip(values).for_each(|(out, value)| *out = value.to_f32()),
            Self::Signs { bits, count, scale } => {
                for (i, slot) in out.iter_mut().enumerate().take(*count) {
                    let negative = bits.get(i / 8).is_some_and(|byte| byte >> (i % 8) & 1 == 1);
                    *slot = if negative { -scale } else { *scale };
                }
            }
            Self::EightBit { codes, scale } => {
                out.iter_mut().zip(codes).for_each(|(out, code)| *out = f32::from(*code) * scale);
            }
        }
    }
}
