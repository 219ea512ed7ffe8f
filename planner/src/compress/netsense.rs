// SPDX-License-Identifier: Apache-2.0
//! NetSenseML, algorithm 2: quantise, prune, send the largest.

use half::f16;
use serde::{Deserialize, Serialize};

use super::feedback::{CompressError, Feedback, bounded};
use super::message::Compressed;
use super::method;
use super::select::{largest, share};

/// Algorithm 2, line by line. As printed, line 6 doubles the ratio whenever it is below tr_q, whether line 5 has quantised or not; the text speaks of
/// the halved bytes of quantised values. The printed algorithm is what is done here; the ratio stays at most 1.
///
/// The paper gives neither threshold. Ours are tr_q = 0.05 and tr_d = 0: quantise whenever the ratio is small.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NetSenseCompression {
    /// tr_q: ratio below which values may be quantised.
    pub quantise_below: f64,
    /// tr_d: L2 norm of the gradient above which they are.
    pub norm_above: f64,
}

impl Default for NetSenseCompression {
    fn default() -> Self {
        Self { quantise_below: 0.05, norm_above: 0.0 }
    }
}

impl NetSenseCompression {
    /// Compresses `gradient`, and what `feedback` has kept, of parameters whose values are `weights`.
    pub fn compress(
        &self,
        feedback: &mut Feedback,
        gradient: &[f32],
        weights: &[f32],
        ratio: f64,
    ) -> Result<Compressed, CompressError> {
        feedback.check(gradient)?;
        if weights.len() != gradient.len() {
            return Err(CompressError::Length { given: weights.len(), kept: gradient.len() });
        }
        let sum: Vec<f32> =
            gradient.iter().zip(feedback.residual()).map(|(g, kept)| bounded(g + kept)).collect();
        let mut grads = sum.clone();
        let mut ratio = ratio.clamp(0.0, 1.0);
        let mut value_bytes = 4;
        if ratio < self.quantise_below {
            let norm = grads.iter().map(|value| f64::from(*value) * f64::from(*value)).sum::<f64>().sqrt();
            if norm > self.norm_above {
                grads.iter_mut().for_each(|value| *value = f16::to_f32(method::bounded(*value)));
                value_bytes = 2;
            }
            ratio = (2.0 * ratio).min(1.0);
        }
        let pruning_rate = 0.5 * (1.0 - ratio);
        let pruned = (gradient.len() as f64 * pruning_rate) as usize;
        // The smallest weights: all but the largest ones.
        let kept = largest(weights, weights.len() - pruned);
        let mut is_kept = vec![false; grads.len()];
        kept.iter().for_each(|place| is_kept[*place as usize] = true);
        for (value, is_kept) in grads.iter_mut().zip(&is_kept) {
            *value = if *is_kept { *value } else { 0.0 };
        }
        let places = largest(&grads, share(grads.len(), ratio));
        let values = places.iter().map(|place| grads[*place as usize]).collect();
        let sent = Compressed::Sparse { places, values, value_bytes };
        feedback.keep(&sum, &sent);
        Ok(sent)
    }
}
