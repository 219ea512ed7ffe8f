// SPDX-License-Identifier: Apache-2.0
//! UGATIT (Kim et al., ICLR 2020, tables of its appendix): two generators, two global and two local
//! discriminators, 256 × 256, the full model.

use super::shape::Network;

const WIDTH: i64 = 64;

pub(super) fn ugatit() -> Network {
    let mut network = Network::new("UGATIT", 2.0);
    for name in ["genA2B", "genB2A"] {
        generator(&mut network, name);
    }
    for (name, layers) in [("disGA", 7), ("disGB", 7), ("disLA", 5), ("disLB", 5)] {
        discriminator(&mut network, name, layers);
    }
    network
}

/// Down, four residual blocks, attention, four residual blocks with adaptive normalisation, up.
/// Convolutions have no biases.
fn generator(network: &mut Network, name: &str) {
    let at = |part: &str| format!("{name}.{part}");
    let deep = 4 * WIDTH;
    network.convolution(&at("down.0.weight"), 3, WIDTH, 7, 256);
    network.convolution(&at("down.1.weight"), WIDTH, 2 * WIDTH, 3, 128);
    network.convolution(&at("down.2.weight"), 2 * WIDTH, deep, 3, 64);
    for block in 0..4 {
        for part in 1..=2 {
            network.convolution(&at(&format!("residual.{block}.conv{part}.weight")), deep, deep, 3, 64);
        }
    }
    network.matrix(at("gap_fc.weight"), deep, 1);
    network.matrix(at("gmp_fc.weight"), deep, 1);
    network.convolution(&at("conv1x1.weight"), 2 * deep, deep, 1, 64);
    network.plain(at("conv1x1.bias"), deep);
    network.matrix(at("FC.0.weight"), 64 * 64 * deep * deep, 1);
    network.matrix(at("FC.1.weight"), deep * deep, 1);
    network.matrix(at("gamma.weight"), deep * deep, 1);
    network.matrix(at("beta.weight"), deep * deep, 1);
    for block in 0..4 {
        for part in 1..=2 {
            network.convolution(&at(&format!("adaptive.{block}.conv{part}.weight")), deep, deep, 3, 64);
            network.plain(at(&format!("adaptive.{block}.norm{part}.rho")), deep);
        }
    }
    for (layer, (from, side)) in [(deep, 128), (2 * WIDTH, 256)].into_iter().enumerate() {
        network.convolution(&at(&format!("up.{layer}.weight")), from, from / 2, 3, side);
        for part in ["rho", "gamma", "beta"] {
            network.plain(at(&format!("up.{layer}.norm.{part}")), from / 2);
        }
    }
    network.convolution(&at("up.2.weight"), WIDTH, 3, 7, 256);
}

/// Convolutions of 4 × 4 that halve the picture and double the channels, then attention.
fn discriminator(network: &mut Network, name: &str, layers: i64) {
    let at = |part: &str| format!("{name}.{part}");
    let (mut from, mut to, mut side) = (3, WIDTH, 128);
    for layer in 0..layers - 1 {
        // The last one has stride 1: a row and a column less.
        let last = layer == layers - 2;
        if last {
            side = 2 * side - 1;
        }
        network.convolution(&at(&format!("conv{layer}.weight")), from, to, 4, side);
        network.plain(at(&format!("conv{layer}.bias")), to);
        (from, to) = (to, 2 * to);
        if !last {
            side /= 2;
        }
    }
    network.matrix(at("gap_fc.weight"), from, 1);
    network.matrix(at("gmp_fc.weight"), from, 1);
    network.convolution(&at("conv1x1.weight"), 2 * from, from, 1, side);
    network.plain(at("conv1x1.bias"), from);
    network.convolution(&at("conv.weight"), from, 1, 4, side - 1);
}
