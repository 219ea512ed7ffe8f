// SPDX-License-Identifier: Apache-2.0
//! The six networks of Espresso's evaluation, from their architectures' published shapes.
//!
//! Table 5 counts their tensors (32, 314, 148, 207, 148, 10) and table 4 their MB; both come out of
//! the shapes. Which variant each is follows from these two numbers: GPT-2 is the 124-million one,
//! the LSTM the 2 × 1500 with tied embeddings of PyTorch's language-model example, UGATIT the full
//! one with both generators and all four discriminators, BERT-base the one with the heads of its
//! pre-training, the vocabulary's bias counted in the head and in the decoder.
//!
//! Computation times are no measurements: [`Device`] says what they are made of. Replace them by a
//! trace before you believe a plan's milliseconds.

mod language;
mod shape;
mod ugatit;
mod vision;

use crate::espresso::Model;
pub use shape::Device;

/// A network's name, and its generator.
type Network = (&'static str, fn() -> shape::Network);

const NETWORKS: [Network; 6] = [
    ("vgg16", vision::vgg16),
    ("resnet101", vision::resnet101),
    ("ugatit", ugatit::ugatit),
    ("bert-base", language::bert_base),
    ("gpt-2", language::gpt2),
    ("lstm", language::lstm),
];

/// Names of the networks, in table 5's order.
pub fn names() -> impl Iterator<Item = &'static str> {
    NETWORKS.iter().map(|(name, _)| *name)
}

/// A network as a model, its computation times those of `device`.
pub fn model(name: &str, device: Device) -> Option<Model> {
    NETWORKS.iter().find(|(other, _)| *other == name).map(|(_, network)| network().model(device))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_and_bytes_are_those_of_tables_4_and_5() {
        let wanted = [
            ("vgg16", 32, 528),
            ("resnet101", 314, 170),
            ("ugatit", 148, 2559),
            ("bert-base", 207, 420),
            ("gpt-2", 148, 475),
            ("lstm", 10, 328),
        ];
        for (name, tensors, mib) in wanted {
            let model = model(name, Device::default()).unwrap().check().unwrap();
            assert_eq!(model.tensors.len(), tensors, "{name}");
            let elements: i64 = model.tensors.iter().map(|tensor| tensor.elements).sum();
            let has = elements as f64 * 4.0 / f64::from(1 << 20);
            assert!((has - f64::from(mib)).abs() < 1.0, "{name}: {has} MiB");
        }
    }

    /// What torchvision and the papers say of the models as a whole.
    #[test]
    fn parameters_are_the_published_ones() {
        let parameters = |name| {
            model(name, Device::default()).unwrap().tensors.iter().map(|tensor| tensor.elements).sum::<i64>()
        };
        assert_eq!(parameters("vgg16"), 138_357_544);
        assert_eq!(parameters("resnet101"), 44_549_160);
        assert_eq!(parameters("gpt-2"), 124_439_808);
        // 110,106,428 of BERT with the heads of its pre-training, and the bias once more.
        assert_eq!(parameters("bert-base"), 110_106_428 + 30_522);
        assert!((parameters("ugatit") as f64 / 670.8e6 - 1.0).abs() < 1e-3);
    }

    /// The backward pass begins at the loss; 4.1 G and 15.5 G multiplications a picture of 224 ×
    /// 224 are the published ones of the convolutional networks.
    #[test]
    fn computation_is_the_networks_multiplications() {
        let device = Device { tflops: 1.0, launch_us: 0.0 };
        for (name, multiplications, first) in
            [("vgg16", 15.5e9, "classifier.6.bias"), ("resnet101", 7.8e9, "fc.bias")]
        {
            let model = model(name, device).unwrap();
            assert_eq!(model.tensors[0].name, first);
            // Four operations a multiplication on the way back, 32 pictures.
            let seconds: f64 = model.tensors.iter().map(|tensor| tensor.compute_us / 1e6).sum();
            let has = seconds * 1e12 / 4.0 / 32.0;
            assert!((has / multiplications - 1.0).abs() < 0.01, "{name}: {has}");
            assert!((model.forward_ms * 2.0 / 1e3 / seconds - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn the_files_are_what_the_generator_writes() {
        for name in names() {
            let path = format!("{}/../examples/plans/{name}.yaml", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
            let read = Model::from_yaml(&text, name).unwrap();
            let made = model(name, Device::default()).unwrap();
            assert_eq!(read.tensors.len(), made.tensors.len(), "{name}");
            for (read, made) in read.tensors.iter().zip(&made.tensors) {
                assert_eq!((&read.name, read.elements), (&made.name, made.elements), "{name}");
                assert!((read.compute_us - made.compute_us).abs() <= 0.0006, "{name}: {made:?}");
            }
        }
    }
}
