// SPDX-License-Identifier: Apache-2.0
//! Parameters of a network in the order of its forward pass, with what they multiply.

use crate::espresso::{Model, Tensor};

/// What stands for measured computation times.
///
/// A parameter's backward pass is two multiplications and additions for each of the forward pass
/// (the gradient of its input, and its own), at `tflops`, and a kernel's launch. The forward pass
/// is half of it. 7.8 TFLOP/s are half of what a V100 has on paper in f32; real networks reach
/// between a third and two thirds of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Device {
    /// Sustained, 10^12 operations a second.
    pub tflops: f64,
    /// Of each tensor, µs.
    pub launch_us: f64,
}

impl Default for Device {
    fn default() -> Self {
        Self { tflops: 7.8, launch_us: 10.0 }
    }
}

struct Parameter {
    name: String,
    elements: i64,
    /// Of a sample's forward pass.
    multiplications: f64,
}

/// A network.
pub(super) struct Network {
    name: &'static str,
    /// Pictures or tokens of a GPU's batch (table 4).
    batch: f64,
    parameters: Vec<Parameter>,
}

impl Network {
    pub(super) fn new(name: &'static str, batch: f64) -> Self {
        Self { name, batch, parameters: Vec::new() }
    }

    /// A parameter that multiplies nothing to speak of: biases, norms, look-ups.
    pub(super) fn plain(&mut self, name: impl Into<String>, elements: i64) {
        self.parameters.push(Parameter { name: name.into(), elements, multiplications: 0.0 });
    }

    /// A matrix that each sample is multiplied by, `times` times.
    pub(super) fn matrix(&mut self, name: impl Into<String>, elements: i64, times: i64) {
        let multiplications = elements as f64 * times as f64;
        self.parameters.push(Parameter { name: name.into(), elements, multiplications });
    }

    /// Weight and bias of a fully connected layer.
    pub(super) fn linear(&mut self, name: &str, from: i64, to: i64) {
        self.matrix(format!("{name}.weight"), from * to, 1);
        self.plain(format!("{name}.bias"), to);
    }

    /// Scale and shift.
    pub(super) fn norm(&mut self, name: &str, channels: i64) {
        self.plain(format!("{name}.weight"), channels);
        self.plain(format!("{name}.bias"), channels);
    }

    /// A convolution's weight: `kernel`² · from · to, for each of `side`² places of its output.
    pub(super) fn convolution(&mut self, name: &str, from: i64, to: i64, kernel: i64, side: i64) {
        self.matrix(name, kernel * kernel * from * to, side * side);
    }

    pub(super) fn model(self, device: Device) -> Model {
        // Four operations a multiplication, in µs.
        let time = |parameter: &Parameter| {
            4.0 * parameter.multiplications * self.batch / (device.tflops * 1e6) + device.launch_us
        };
        let tensors: Vec<Tensor> = self
            .parameters
            .iter()
            .rev()
            .map(|parameter| Tensor {
                name: parameter.name.clone(),
                elements: parameter.elements,
                compute_us: (time(parameter) * 1e3).round() / 1e3,
                after: Vec::new(),
            })
            .collect();
        let backward: f64 = tensors.iter().map(|tensor| tensor.compute_us).sum();
        Model { model: self.name.to_owned(), forward_ms: (backward / 2.0).round() / 1e3, tensors }
    }
}
