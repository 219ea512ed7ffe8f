// SPDX-License-Identifier: Apache-2.0
//! A small multi-layer perceptron, written out so that every run gives the same bits.
//!
//! All parameters stand in one flat vector, as a data-parallel trainer's gradient bucket does. A
//! layer is a weight matrix of shape (inputs, outputs), row-major, followed by its bias.

use super::digits::Images;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;

/// The shape of the network: widths from input to output; ReLU between layers, softmax
/// cross-entropy at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mlp {
    widths: Vec<usize>,
}

impl Mlp {
    /// A network with the given layer widths.
    pub fn new(widths: &[usize]) -> Self {
        Self { widths: widths.to_vec() }
    }

    /// Number of parameters.
    pub fn parameters(&self) -> usize {
        self.layers().map(|(inputs, outputs)| (inputs + 1) * outputs).sum()
    }

    fn layers(&self) -> impl DoubleEndedIterator<Item = (usize, usize)> + ExactSizeIterator + '_ {
        self.widths.windows(2).map(|pair| (pair[0], pair[1])).collect::<Vec<_>>().into_iter()
    }

    /// He initialisation (He et al. 2015), with a uniform distribution of variance 2 / inputs; zero
    /// biases.
    pub fn initial(&self, rng: &mut ChaCha8Rng) -> Vec<f32> {
        let mut parameters = Vec::with_capacity(self.parameters());
        for (inputs, outputs) in self.layers() {
            let bound = (6.0 / inputs as f32).sqrt();
            parameters.extend((0..inputs * outputs).map(|_| (rng.random::<f32>() * 2.0 - 1.0) * bound));
            parameters.extend(std::iter::repeat_n(0.0, outputs));
        }
        parameters
    }

    /// Activations of every layer, the input's first; the last holds the logits.
    fn forward(&self, parameters: &[f32], images: &Images) -> Vec<Vec<f32>> {
        let batch = images.len();
        let mut activations = vec![images.pixels.clone()];
        let mut rest = parameters;
        let last = self.layers().len() - 1;
        for (index, (inputs, outputs)) in self.layers().enumerate() {
            let (weights, tail) = rest.split_at(inputs * outputs);
            let (bias, tail) = tail.split_at(outputs);
            rest = tail;
            let mut next = Vec::with_capacity(batch * outputs);
            for row in activations[index].chunks_exact(inputs) {
                let start = next.len();
                next.extend_from_slice(bias);
                let out = &mut next[start..];
                for (&x, weights) in row.iter().zip(weights.chunks_exact(outputs)) {
                    add_scaled(out, weights, x);
                }
                if index != last {
                    out.iter_mut().for_each(|v| *v = v.max(0.0));
                }
            }
            activations.push(next);
        }
        activations
    }

    /// Mean cross-entropy over the batch and its gradient, shaped like `parameters`.
    pub fn gradient(&self, parameters: &[f32], images: &Images) -> (f32, Vec<f32>) {
        let batch = images.len();
        let activations = self.forward(parameters, images);
        let (loss, mut delta) = cross_entropy(&activations[activations.len() - 1], &images.labels);
        let mut gradient = vec![0.0; parameters.len()];
        let mut end = parameters.len();
        for (index, (inputs, outputs)) in self.layers().enumerate().rev() {
            let start = end - (inputs + 1) * outputs;
            let (weights, input) = (&parameters[start..start + inputs * outputs], &activations[index]);
            let (weight_gradient, bias_gradient) = gradient[start..end].split_at_mut(inputs * outputs);
            let mut previous = vec![0.0; batch * inputs];
            for ((x, d), p) in input
                .chunks_exact(inputs)
                .zip(delta.chunks_exact(outputs))
                .zip(previous.chunks_exact_mut(inputs))
            {
                add_scaled(bias_gradient, d, 1.0);
                for (i, (&x, p)) in x.iter().zip(p).enumerate() {
                    // A unit that ReLU silenced passes nothing back; inputs need no gradient.
                    if x > 0.0 {
                        add_scaled(&mut weight_gradient[i * outputs..][..outputs], d, x);
                        if index > 0 {
                            *p = dot(&weights[i * outputs..][..outputs], d);
                        }
                    }
                }
            }
            delta = previous;
            end = start;
        }
        (loss, gradient)
    }

    /// Share of images whose largest logit is the right one.
    pub fn accuracy(&self, parameters: &[f32], images: &Images) -> f64 {
        let activations = self.forward(parameters, images);
        let logits = &activations[activations.len() - 1];
        let classes = self.widths[self.widths.len() - 1];
        let right = logits
            .chunks_exact(classes)
            .zip(&images.labels)
            .filter(|(row, label)| {
                let best = (0..classes).fold(0, |best, i| if row[i] > row[best] { i } else { best });
                best == usize::from(**label)
            })
            .count();
        right as f64 / images.len() as f64
    }
}

fn add_scaled(out: &mut [f32], values: &[f32], factor: f32) {
    for (o, v) in out.iter_mut().zip(values) {
        *o += v * factor;
    }
}

/// Dot product over eight partial sums, in an order that does not depend on the machine.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0f32; 8];
    let (a8, b8) = (a.chunks_exact(8), b.chunks_exact(8));
    let tail: f32 = a8.remainder().iter().zip(b8.remainder()).map(|(x, y)| x * y).sum();
    for (x, y) in a8.zip(b8) {
        for i in 0..8 {
            sums[i] += x[i] * y[i];
        }
    }
    sums.iter().sum::<f32>() + tail
}

/// Mean loss and its derivative with respect to the logits.
fn cross_entropy(logits: &[f32], labels: &[u8]) -> (f32, Vec<f32>) {
    let batch = labels.len();
    let classes = logits.len() / batch;
    let mut loss = 0.0;
    let mut delta = Vec::with_capacity(logits.len());
    for (row, &label) in logits.chunks_exact(classes).zip(labels) {
        let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f32 = row.iter().map(|v| (v - top).exp()).sum();
        loss -= row[usize::from(label)] - top - total.ln();
        delta.extend(row.iter().enumerate().map(|(class, v)| {
            let hit = if class == usize::from(label) { 1.0 } else { 0.0 };
            ((v - top).exp() / total - hit) / batch as f32
        }));
    }
    (loss / batch as f32, delta)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::training::digits::Digits;
    use rand::SeedableRng as _;

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let network = Mlp::new(&[64, 12, 10]);
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let parameters = network.initial(&mut rng);
        let images = Digits::load().unwrap().train.select(&[0, 1, 2, 3, 4]);
        let (_, gradient) = network.gradient(&parameters, &images);
        for index in (0..parameters.len()).step_by(37) {
            let loss_at = |shift: f32| {
                let mut moved = parameters.clone();
                moved[index] += shift;
                network.gradient(&moved, &images).0
            };
            let slope = (loss_at(1e-2) - loss_at(-1e-2)) / 2e-2;
            assert!((slope - gradient[index]).abs() < 2e-3, "{index}: {slope} against {}", gradient[index]);
        }
    }

    #[test]
    fn plain_descent_learns_the_digits() {
        let network = Mlp::new(&[64, 32, 10]);
        let digits = Digits::load().unwrap();
        let mut parameters = network.initial(&mut ChaCha8Rng::seed_from_u64(2));
        assert!(network.accuracy(&parameters, &digits.test) < 0.3);
        for _ in 0..150 {
            let (_, gradient) = network.gradient(&parameters, &digits.train);
            add_scaled(&mut parameters, &gradient, -0.5);
        }
        assert!(network.accuracy(&parameters, &digits.test) > 0.9);
    }
}
