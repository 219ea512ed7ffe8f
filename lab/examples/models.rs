// SPDX-License-Identifier: Apache-2.0
//! Writes the model files of `examples/plans`: `cargo run -p trimwire-lab --example models --
//! examples/plans`.

use std::fmt::Write as _;
use trimwire_lab::models::{Device, model, names};

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "examples/plans".to_owned());
    for name in names() {
        let Some(model) = model(name, Device::default()) else { continue };
        let elements: i64 = model.tensors.iter().map(|tensor| tensor.elements).sum();
        let mut text = format!(
            "# {}: {} tensors, {elements} parameters, from the published shapes, in the order of the backward pass.\n\
             # Computation times are worked out at 7.8 TFLOP/s and 10 us a tensor, not measured: replace them by a trace.\n\
             # Written by: cargo run -p trimwire-lab --example models -- examples/plans\n\
             model: {}\nforward_ms: {}\ntensors:\n",
            model.model,
            model.tensors.len(),
            model.model,
            model.forward_ms
        );
        for tensor in &model.tensors {
            let (name, elements, time) = (&tensor.name, tensor.elements, tensor.compute_us);
            let _ = writeln!(text, "  - {{ name: {name}, elements: {elements}, compute_us: {time} }}");
        }
        std::fs::write(format!("{folder}/{name}.yaml"), text)?;
    }
    Ok(())
}
