// SPDX-License-Identifier: Apache-2.0
//! Scaling factors (§2.2): the throughput of n devices over n times that of one.

use super::cluster::Cluster;
use super::model::Model;
use super::plan::uncompressed_ns;

/// Without compression: an iteration's computation over its whole time.
pub fn scaling_factor(model: &Model, cluster: &Cluster) -> f64 {
    let backward_us: f64 = model.tensors.iter().map(|tensor| tensor.compute_us).sum();
    let alone_ns = model.forward_ms * 1e6 + backward_us * 1e3;
    alone_ns / (model.forward_ms * 1e6 + uncompressed_ns(model, cluster)).max(1.0)
}
