// SPDX-License-Identifier: Apache-2.0
//! A recurrent network for DC2's figures 6 and 8: two LSTM layers (Hochreiter and Schmidhuber 1997) that read an image row by row.
//!
//! ```text
//!  row 0 ─► LSTM ─► LSTM        All parameters stand in one flat vector. A layer is its inputs' weights (inputs, 4 × units),
//!             ▼       ▼         its state's (units, 4 × units), and biases; gates are input, forget, candidate, output.
//!  row 1 ─► LSTM ─► LSTM
//!             ⋮       ⋮
//!  row 7 ─► LSTM ─► LSTM ─► class
//! ```

use crate::training::digits::{CLASSES, Digits, Images, PIXELS};
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Rows of an image, and pixels of a row.
const STEPS: usize = 8;
const WIDTH: usize = PIXELS / STEPS;
const LAYERS: usize = 2;
/// Units of a layer.
const UNITS: usize = 48;
const GATES: usize = 4 * UNITS;

/// Images that a worker sees in a step, rate, momentum, and the norm that a gradient is cut down to: it learns in some 150 steps of eight workers.
const BATCH: usize = 8;
const RATE: f32 = 0.3;
const MOMENTUM: f32 = 0.9;
const CLIP: f32 = 1.0;

/// What a layer reads: rows, or the layer below.
fn inputs(layer: usize) -> usize {
    if layer == 0 { WIDTH } else { UNITS }
}

/// A layer's parameters, or their gradient: of inputs, of the state, biases.
struct Layer<T> {
    from_inputs: T,
    from_state: T,
    bias: T,
}

/// Where the parameters of a layer end.
fn end(layer: usize) -> usize {
    (0..=layer).map(|layer| (inputs(layer) + UNITS + 1) * GATES).sum()
}

fn parameters() -> usize {
    end(LAYERS - 1) + (UNITS + 1) * CLASSES
}

fn layer(parameters: &[f32], layer: usize) -> Layer<&[f32]> {
    let (from_inputs, rest) =
        parameters[end(layer) - (inputs(layer) + UNITS + 1) * GATES..].split_at(inputs(layer) * GATES);
    let (from_state, rest) = rest.split_at(UNITS * GATES);
    Layer { from_inputs, from_state, bias: &rest[..GATES] }
}

fn layer_mut(parameters: &mut [f32], layer: usize) -> Layer<&mut [f32]> {
    let (from_inputs, rest) =
        parameters[end(layer) - (inputs(layer) + UNITS + 1) * GATES..].split_at_mut(inputs(layer) * GATES);
    let (from_state, rest) = rest.split_at_mut(UNITS * GATES);
    Layer { from_inputs, from_state, bias: &mut rest[..GATES] }
}

/// What one image leaves in one layer, by step, for the way back.
#[derive(Clone)]
struct Passed {
    inputs: [Vec<f32>; STEPS],
    /// Behind their activations.
    gates: [[f32; GATES]; STEPS],
    cells: [[f32; UNITS]; STEPS],
    outputs: [[f32; UNITS]; STEPS],
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

fn tanh(x: f32) -> f32 {
    2.0 * sigmoid(2.0 * x) - 1.0
}

fn add_scaled(out: &mut [f32], values: &[f32], factor: f32) {
    out.iter_mut().zip(values).for_each(|(out, value)| *out += value * factor);
}

/// Over eight partial sums, in an order that does not depend on the machine.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0_f32; 8];
    for (a, b) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
        (0..8).for_each(|lane| sums[lane] += a[lane] * b[lane]);
    }
    sums.iter().sum()
}

/// All of an image's layers, and its logits.
fn forward(parameters: &[f32], pixels: &[f32]) -> (Vec<Passed>, [f32; CLASSES]) {
    let mut below: [Vec<f32>; STEPS] = std::array::from_fn(|step| pixels[step * WIDTH..][..WIDTH].to_vec());
    let mut layers = Vec::with_capacity(LAYERS);
    for number in 0..LAYERS {
        let Layer { from_inputs, from_state, bias } = layer(parameters, number);
        let mut passed = Passed {
            inputs: below,
            gates: [[0.0; GATES]; STEPS],
            cells: [[0.0; UNITS]; STEPS],
            outputs: [[0.0; UNITS]; STEPS],
        };
        let (mut cells, mut state) = ([0.0; UNITS], [0.0; UNITS]);
        for step in 0..STEPS {
            let gates = &mut passed.gates[step];
            gates.copy_from_slice(bias);
            for (x, weights) in passed.inputs[step].iter().zip(from_inputs.chunks_exact(GATES)) {
                add_scaled(gates, weights, *x);
            }
            for (h, weights) in state.iter().zip(from_state.chunks_exact(GATES)) {
                add_scaled(gates, weights, *h);
            }
            for unit in 0..UNITS {
                let [input, forget, candidate, output] = [0, 1, 2, 3].map(|gate| gate * UNITS + unit);
                [input, forget, output].iter().for_each(|&gate| gates[gate] = sigmoid(gates[gate]));
                gates[candidate] = tanh(gates[candidate]);
                cells[unit] = gates[forget] * cells[unit] + gates[input] * gates[candidate];
                state[unit] = gates[output] * tanh(cells[unit]);
            }
            (passed.cells[step], passed.outputs[step]) = (cells, state);
        }
        below = passed.outputs.map(|output| output.to_vec());
        layers.push(passed);
    }
    let (weights, bias) = parameters[end(LAYERS - 1)..].split_at(UNITS * CLASSES);
    let mut logits = [0.0; CLASSES];
    logits.copy_from_slice(bias);
    for (h, weights) in below[STEPS - 1].iter().zip(weights.chunks_exact(CLASSES)) {
        add_scaled(&mut logits, weights, *h);
    }
    (layers, logits)
}

/// Adds an image's part of the gradient of the mean cross-entropy over `batch` images.
fn backward(parameters: &[f32], pixels: &[f32], label: u8, batch: usize, gradient: &mut [f32]) {
    let (layers, logits) = forward(parameters, pixels);
    let top = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut delta = logits.map(|logit| (logit - top).exp());
    let total: f32 = delta.iter().sum();
    delta.iter_mut().for_each(|delta| *delta /= total * batch as f32);
    delta[usize::from(label)] -= 1.0 / batch as f32;
    // By step, what the outputs of the layer at hand are asked to change by.
    let mut asked = [[0.0; UNITS]; STEPS];
    let head = end(LAYERS - 1);
    let (weights, bias) = gradient[head..].split_at_mut(UNITS * CLASSES);
    add_scaled(bias, &delta, 1.0);
    for unit in 0..UNITS {
        add_scaled(
            &mut weights[unit * CLASSES..][..CLASSES],
            &delta,
            layers[LAYERS - 1].outputs[STEPS - 1][unit],
        );
        let own = &parameters[head + unit * CLASSES..][..CLASSES];
        asked[STEPS - 1][unit] = own.iter().zip(&delta).map(|(weight, delta)| weight * delta).sum();
    }
    for (number, passed) in layers.iter().enumerate().rev() {
        let own = layer(parameters, number);
        let gradient = layer_mut(gradient, number);
        let mut below = [[0.0; UNITS]; STEPS];
        let (mut of_state, mut of_cells) = ([0.0; UNITS], [0.0; UNITS]);
        for step in (0..STEPS).rev() {
            let (gates, zeros) = (&passed.gates[step], [0.0; UNITS]);
            let [cells_before, state_before] = match step.checked_sub(1) {
                Some(before) => [&passed.cells[before], &passed.outputs[before]],
                None => [&zeros, &zeros],
            };
            let mut delta = [0.0; GATES];
            for unit in 0..UNITS {
                let places = [0, 1, 2, 3].map(|gate| gate * UNITS + unit);
                let [input, forget, candidate, output] = places.map(|gate| gates[gate]);
                let (asked, squashed) = (asked[step][unit] + of_state[unit], tanh(passed.cells[step][unit]));
                let of_cell = of_cells[unit] + asked * output * (1.0 - squashed * squashed);
                let slopes = [
                    of_cell * candidate * input * (1.0 - input),
                    of_cell * cells_before[unit] * forget * (1.0 - forget),
                    of_cell * input * (1.0 - candidate * candidate),
                    asked * squashed * output * (1.0 - output),
                ];
                places.iter().zip(slopes).for_each(|(&place, slope)| delta[place] = slope);
                of_cells[unit] = of_cell * forget;
            }
            add_scaled(gradient.bias, &delta, 1.0);
            for (at, x) in passed.inputs[step].iter().enumerate() {
                add_scaled(&mut gradient.from_inputs[at * GATES..][..GATES], &delta, *x);
            }
            for (unit, h) in state_before.iter().enumerate() {
                add_scaled(&mut gradient.from_state[unit * GATES..][..GATES], &delta, *h);
                of_state[unit] = dot(&own.from_state[unit * GATES..][..GATES], &delta);
                if number > 0 {
                    below[step][unit] = dot(&own.from_inputs[unit * GATES..][..GATES], &delta);
                }
            }
        }
        asked = below;
    }
}

/// Mean cross-entropy's gradient over images.
fn gradient(parameters: &[f32], images: &Images) -> Vec<f32> {
    let mut gradient = vec![0.0; parameters.len()];
    for (pixels, label) in images.pixels.chunks_exact(PIXELS).zip(&images.labels) {
        backward(parameters, pixels, *label, images.len(), &mut gradient);
    }
    gradient
}

/// Workers that train the network together. All of them get the same sums, so that their weights are one.
pub(super) struct Recurrent {
    digits: Digits,
    weights: Vec<f32>,
    velocity: Vec<f32>,
    workers: usize,
    order: Vec<usize>,
    rng: ChaCha8Rng,
}

impl Recurrent {
    /// With parameters from −1/√units to 1/√units, drawn from the seed.
    pub(super) fn new(digits: Digits, workers: usize, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let bound = 1.0 / (UNITS as f32).sqrt();
        let weights = (0..parameters()).map(|_| (rng.random::<f32>() * 2.0 - 1.0) * bound).collect();
        Self { digits, weights, velocity: vec![0.0; parameters()], workers, order: Vec::new(), rng }
    }

    pub(super) fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// Every worker's gradient on its share of the next batch; epochs are reshuffled.
    pub(super) fn gradients(&mut self) -> Vec<Vec<f32>> {
        let share = |_| {
            if self.order.len() < BATCH {
                self.order = (0..self.digits.train.len()).collect();
                self.order.shuffle(&mut self.rng);
            }
            let picked = self.order.split_off(self.order.len() - BATCH);
            gradient(&self.weights, &self.digits.train.select(&picked))
        };
        (0..self.workers).map(share).collect()
    }

    /// A step of gradient descent with momentum; the sum is over the workers.
    pub(super) fn apply(&mut self, sum: &[f32]) {
        let mean = 1.0 / self.workers as f32;
        let norm =
            sum.iter().map(|value| f64::from(*value) * f64::from(*value)).sum::<f64>().sqrt() as f32 * mean;
        let scale = mean * (CLIP / norm.max(CLIP));
        for ((weight, velocity), value) in self.weights.iter_mut().zip(&mut self.velocity).zip(sum) {
            *velocity = MOMENTUM * *velocity + value * scale;
            *weight -= RATE * *velocity;
        }
    }

    /// Share of the held-out images whose largest logit is the right one.
    pub(super) fn accuracy(&self) -> f64 {
        let test = &self.digits.test;
        let is_right = |(pixels, label): &(&[f32], &u8)| {
            let (_, logits) = forward(&self.weights, pixels);
            let best =
                (0..CLASSES).fold(0, |best, class| if logits[class] > logits[best] { class } else { best });
            best == usize::from(**label)
        };
        let right = test.pixels.chunks_exact(PIXELS).zip(&test.labels).filter(is_right).count();
        right as f64 / test.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(parameters: &[f32], images: &Images) -> f64 {
        let of = |(pixels, label): (&[f32], &u8)| {
            let (_, logits) = forward(parameters, pixels);
            let logits = logits.map(f64::from);
            let total: f64 = logits.iter().map(|logit| logit.exp()).sum();
            total.ln() - logits[usize::from(*label)]
        };
        images.pixels.chunks_exact(PIXELS).zip(&images.labels).map(of).sum::<f64>() / images.len() as f64
    }

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let mut recurrent = Recurrent::new(Digits::load().unwrap(), 1, 1);
        // Larger ones, at which all parameters matter.
        recurrent.weights.iter_mut().for_each(|weight| *weight *= 4.0);
        let images = recurrent.digits.train.select(&[0, 1, 2, 3]);
        let gradient = gradient(&recurrent.weights, &images);
        let (mut error, mut energy) = (0.0, 0.0);
        for index in (0..parameters()).step_by(61) {
            let at = |shift: f32| {
                let mut moved = recurrent.weights.clone();
                moved[index] += shift;
                loss(&moved, &images)
            };
            let (slope, own) = ((at(1e-2) - at(-1e-2)) / 2e-2, f64::from(gradient[index]));
            assert!((slope - own).abs() < 1e-3 + 0.02 * slope.abs(), "{index}: {slope} against {own}");
            error += (slope - own).powi(2);
            energy += slope * slope;
        }
        assert!(error.sqrt() < 0.01 * energy.sqrt() && energy > 0.01, "{error} of {energy}");
    }

    #[test]
    fn workers_together_learn_the_digits() {
        let mut recurrent = Recurrent::new(Digits::load().unwrap(), 2, 2);
        assert!(recurrent.accuracy() < 0.3);
        for _ in 0..250 {
            let [a, b] = &recurrent.gradients()[..] else { panic!("two workers") };
            let sum: Vec<f32> = a.iter().zip(b).map(|(a, b)| a + b).collect();
            recurrent.apply(&sum);
        }
        assert!(recurrent.accuracy() > 0.8, "{}", recurrent.accuracy());
    }
}
