// SPDX-License-Identifier: Apache-2.0
//! A tensor's memory of what was not sent.

use serde::{Deserialize, Serialize};

use super::message::Compressed;
use super::method::Method;

/// Error feedback for one tensor at one rank.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Feedback {
    /// What was not sent.
    residual: Vec<f32>,
    /// DGC's accumulated momentum; empty for the others.
    momentum: Vec<f32>,
}

/// Why a gradient was not compressed; the memory stays what it was.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CompressError {
    /// NaN or an infinity, which would stay in the residual for ever.
    #[error("gradient[{place}] is {value}: residuals take finite values only")]
    NotFinite {
        /// The first such place.
        place: usize,
        /// Its value.
        value: f32,
    },
    /// Another tensor's memory.
    #[error("{given} values for a memory of {kept}")]
    Length {
        /// Values given.
        given: usize,
        /// Values kept.
        kept: usize,
    },
}

impl Feedback {
    /// For a tensor of so many values, nothing of which has been kept yet.
    pub fn new(count: usize) -> Self {
        Self { residual: vec![0.0; count], momentum: Vec::new() }
    }

    /// What has been kept, a value each.
    pub fn residual(&self) -> &[f32] {
        &self.residual
    }

    /// Compresses the gradient and what was kept, and keeps what is not sent now.
    pub fn compress(&mut self, gradient: &[f32], method: Method) -> Result<Compressed, CompressError> {
        self.check(gradient)?;
        if let Method::Dgc { momentum, .. } = method {
            return Ok(self.corrected(gradient, momentum as f32, method));
        }
        let sum: Vec<f32> =
            gradient.iter().zip(&self.residual).map(|(new, kept)| bounded(new + kept)).collect();
        let sent = method.compress(&sum);
        self.keep(&sum, &sent);
        Ok(sent)
    }

    pub(super) fn check(&self, gradient: &[f32]) -> Result<(), CompressError> {
        if gradient.len() != self.residual.len() {
            return Err(CompressError::Length { given: gradient.len(), kept: self.residual.len() });
        }
        match gradient.iter().enumerate().find(|(_, value)| !value.is_finite()) {
            Some((place, value)) => Err(CompressError::NotFinite { place, value: *value }),
            None => Ok(()),
        }
    }

    pub(super) fn keep(&mut self, sum: &[f32], sent: &Compressed) {
        let mut decoded = vec![0.0; sum.len()];
        sent.decode_into(&mut decoded);
        for ((kept, sum), decoded) in self.residual.iter_mut().zip(sum).zip(decoded) {
            *kept = bounded(sum - decoded);
        }
    }

    /// DGC, algorithm 4: u ← m u + g, v ← v + u; what is sent is taken out of both.
    fn corrected(&mut self, gradient: &[f32], momentum: f32, method: Method) -> Compressed {
        self.momentum.resize(gradient.len(), 0.0);
        for ((u, v), g) in self.momentum.iter_mut().zip(&mut self.residual).zip(gradient) {
            *u = bounded(momentum * *u + g);
            *v = bounded(*v + *u);
        }
        let sent = method.compress(&self.residual);
        if let Compressed::Sparse { places, .. } = &sent {
            for place in places {
                self.residual[*place as usize] = 0.0;
                self.momentum[*place as usize] = 0.0;
            }
        }
        sent
    }
}

/// Sums of huge values stay finite.
pub(super) fn bounded(value: f32) -> f32 {
    value.clamp(f32::MIN, f32::MAX)
}
