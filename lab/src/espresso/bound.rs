// SPDX-License-Identifier: Apache-2.0
//! The upper bound on throughput of §5.1: compression for nothing.

use super::cluster::{Cluster, DeviceCost, Rate};
use super::model::Model;
use super::select::{Evaluator, Selected, select};
use super::task::CompressionOption;

/// The least iteration time if compression took no time and no device, ns from the beginning of the
/// backward pass: algorithm 1's with that, or the given strategy's where that is less. It is not
/// above any time of `selected`, but it is the paper's bound, not a proof: algorithm 1 need not
/// find the best strategy without costs, either.
pub fn upper_bound(
    model: &Model,
    cluster: &Cluster,
    options: &[CompressionOption],
    selected: &Selected,
) -> f64 {
    let nothing = Rate { launch_us: 0.0, gbytes_per_s: f64::INFINITY };
    let free = DeviceCost { compress: nothing, decompress: nothing };
    let mut without = cluster.clone();
    (without.compressor.gpu, without.compressor.cpu) = (without.compressor.gpu.map(|_| free), free);
    if let Some(trimming) = &mut without.trimming {
        (trimming.gpu, trimming.cpu) = (free, free);
    }
    let best = select(model, &without, options);
    let mut evaluator = Evaluator::new(model, cluster);
    let given: Vec<Vec<_>> =
        selected.chains.iter().map(|chains| chains.iter().map(super::Chain::free).collect()).collect();
    evaluator.end(&best.chains).min(evaluator.end(&given))
}
