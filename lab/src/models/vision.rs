// SPDX-License-Identifier: Apache-2.0
//! VGG16 (Simonyan and Zisserman, ICLR 2015, configuration D) and ResNet101 (He et al., CVPR 2016,
//! table 1), 1000 classes, 224 × 224.

use super::shape::Network;

pub(super) fn vgg16() -> Network {
    let mut network = Network::new("VGG16", 32.0);
    let (mut from, mut layer) = (3, 0);
    for (to, count, side) in [(64, 2, 224), (128, 2, 112), (256, 3, 56), (512, 3, 28), (512, 3, 14)] {
        for _ in 0..count {
            network.convolution(&format!("features.{layer}.weight"), from, to, 3, side);
            network.plain(format!("features.{layer}.bias"), to);
            from = to;
            // Rectifier, and pooling behind each group.
            layer += 2;
        }
        layer += 1;
    }
    network.linear("classifier.0", 512 * 7 * 7, 4096);
    network.linear("classifier.3", 4096, 4096);
    network.linear("classifier.6", 4096, 1000);
    network
}

pub(super) fn resnet101() -> Network {
    let mut network = Network::new("ResNet101", 32.0);
    network.convolution("conv1.weight", 3, 64, 7, 112);
    network.norm("bn1", 64);
    let mut from = 64;
    for (stage, (width, blocks, side)) in
        [(64, 3, 56), (128, 4, 28), (256, 23, 14), (512, 3, 7)].into_iter().enumerate()
    {
        for block in 0..blocks {
            let name = format!("layer{}.{block}", stage + 1);
            let to = 4 * width;
            // torchvision's stride is in the 3 × 3 convolution, so that the first of a stage's
            // blocks begins on the larger map.
            let before = if block == 0 && stage > 0 { 2 * side } else { side };
            network.convolution(&format!("{name}.conv1.weight"), from, width, 1, before);
            network.norm(&format!("{name}.bn1"), width);
            network.convolution(&format!("{name}.conv2.weight"), width, width, 3, side);
            network.norm(&format!("{name}.bn2"), width);
            network.convolution(&format!("{name}.conv3.weight"), width, to, 1, side);
            network.norm(&format!("{name}.bn3"), to);
            if block == 0 {
                network.convolution(&format!("{name}.downsample.0.weight"), from, to, 1, side);
                network.norm(&format!("{name}.downsample.1"), to);
            }
            from = to;
        }
    }
    network.linear("fc", 2048, 1000);
    network
}
