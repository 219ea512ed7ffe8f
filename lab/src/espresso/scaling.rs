// SPDX-License-Identifier: Apache-2.0
//! Scaling factors (§2.2): the throughput of n devices over n times that of one. A paper's factor
//! fixes what its models compute.

use super::cluster::Cluster;
use super::model::Model;
use super::plan::uncompressed_ns;

/// Without compression: an iteration's computation over its whole time.
pub fn scaling_factor(model: &Model, cluster: &Cluster) -> f64 {
    let backward_us: f64 = model.tensors.iter().map(|tensor| tensor.compute_us).sum();
    let alone_ns = model.forward_ms * 1e6 + backward_us * 1e3;
    alone_ns / (model.forward_ms * 1e6 + uncompressed_ns(model, cluster)).max(1.0)
}

/// The model with all of its computation so many times as long that its scaling factor on this
/// cluster is `factor`; none where no factor from a thousandth to a thousand does it.
pub fn calibrate(model: &Model, cluster: &Cluster, factor: f64) -> Option<Model> {
    let (mut less, mut more) = (1e-3_f64.ln(), 1e3_f64.ln());
    let times = |log: f64| times(model, log.exp());
    if !(scaling_factor(&times(less), cluster)..=scaling_factor(&times(more), cluster)).contains(&factor) {
        return None;
    }
    // The factor grows with computation. Forty halvings of ln 10⁶ leave 10⁻¹¹.
    for _ in 0..40 {
        let middle = f64::midpoint(less, more);
        let below = scaling_factor(&times(middle), cluster) < factor;
        *(if below { &mut less } else { &mut more }) = middle;
    }
    Some(times(more))
}

fn times(model: &Model, factor: f64) -> Model {
    let mut scaled = model.clone();
    scaled.forward_ms *= factor;
    scaled.tensors.iter_mut().for_each(|tensor| tensor.compute_us *= factor);
    scaled
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::{Device, model};

    #[test]
    fn a_calibrated_model_has_the_factor_and_the_proportions_of_its_tensors() {
        let cluster =
            Cluster::from_yaml(include_str!("../../../examples/plans/nvlink-100g.yaml"), "c").unwrap();
        let lstm = model("lstm", Device::default()).unwrap().check().unwrap();
        let calibrated = calibrate(&lstm, &cluster, 0.46).unwrap();
        assert!((scaling_factor(&calibrated, &cluster) - 0.46).abs() < 1e-6);
        let ratio = calibrated.forward_ms / lstm.forward_ms;
        for (one, other) in lstm.tensors.iter().zip(&calibrated.tensors) {
            assert!((other.compute_us / one.compute_us - ratio).abs() < 1e-9 * ratio);
        }
        assert!(calibrate(&lstm, &cluster, 1.5).is_none());
    }
}
