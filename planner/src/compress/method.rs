// SPDX-License-Identifier: Apache-2.0
//! The compressors.

use half::{bf16, f16};
use serde::{Deserialize, Serialize};

use super::message::Compressed;
use super::select::{largest, random, share, threshold};

/// How a gradient is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// The largest share of the values (Aji and Heafield, EMNLP 2017).
    TopK {
        /// Share of the values.
        ratio: f64,
    },
    /// Some of the values by chance, the same at all ranks (Stich et al., NeurIPS 2018).
    RandomK {
        /// Share of the values.
        ratio: f64,
        /// The ranks' common seed; mix the step in.
        seed: u64,
    },
    /// Values above a threshold that a sample gives, with momentum correction and momentum factor masking: DGC (Lin et al., ICLR 2018).
    Dgc {
        /// Share of the values that the threshold aims at.
        ratio: f64,
        /// Of SGD; the optimiser must not apply it again.
        momentum: f64,
    },
    /// Half precision.
    F16,
    /// The same with f32's exponent.
    Bf16,
    /// Signs and the mean magnitude (EF-SignSGD, Karimireddy et al., ICML 2019).
    EfSign,
    /// 8 bits, linear (Dettmers, ICLR 2016, has other spacings).
    EightBit,
}

/// A hundredth is sampled, of long tensors.
const STRIDE: usize = 100;
const SAMPLED: usize = 10_000;

impl Method {
    /// Compresses finite values.
    pub(super) fn compress(&self, values: &[f32]) -> Compressed {
        match *self {
            Self::TopK { ratio } => sparse(values, largest(values, share(values.len(), ratio))),
            Self::RandomK { ratio, seed } => {
                sparse(values, random(values.len(), share(values.len(), ratio), seed))
            }
            Self::Dgc { ratio, .. } => {
                let stride = if values.len() >= SAMPLED { STRIDE } else { 1 };
                let least = threshold(values, ratio, stride);
                let above = |place: &u32| {
                    let value = values[*place as usize].abs();
                    value >= least && value > 0.0
                };
                sparse(values, (0..values.len() as u32).filter(above).collect())
            }
            Self::F16 => Compressed::F16(values.iter().map(|value| bounded(*value)).collect()),
            Self::Bf16 => Compressed::Bf16(values.iter().map(|value| bf16::from_f32(*value)).collect()),
            Self::EfSign => {
                let mut bits = vec![0_u8; values.len().div_ceil(8)];
                for (i, value) in values.iter().enumerate() {
                    bits[i / 8] |= u8::from(value.is_sign_negative()) << (i % 8);
                }
                let sum: f64 = values.iter().map(|value| f64::from(value.abs())).sum();
                let scale = (sum / values.len().max(1) as f64) as f32;
                Compressed::Signs { bits, count: values.len(), scale }
            }
            Self::EightBit => {
                let most = values.iter().fold(0.0_f32, |most, value| most.max(value.abs()));
                let scale = most / 127.0;
                let code = |value: &f32| if scale > 0.0 { (value / scale).round() as i8 } else { 0 };
                Compressed::EightBit { codes: values.iter().map(code).collect(), scale }
            }
        }
    }
}

/// f16 without infinities: what is too large for it is the largest that there is, and the rest is residual.
pub(super) fn bounded(value: f32) -> f16 {
    f16::from_f32(value.clamp(-f16::MAX.to_f32(), f16::MAX.to_f32()))
}

pub(super) fn sparse(values: &[f32], places: Vec<u32>) -> Compressed {
    let values = places.iter().map(|place| values[*place as usize]).collect();
    Compressed::Sparse { places, values, value_bytes: 4 }
}
