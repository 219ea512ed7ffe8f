// SPDX-License-Identifier: Apache-2.0
//! Every strategy there is, tried: the oracle that tests hold algorithms 1 and 2 against.

use super::chain::chain;
use super::cluster::Cluster;
use super::frontier::{Candidate, candidates, patterns};
use super::model::Model;
use super::select::{Evaluator, Selected, put};
use super::task::{CompressionOption, Device};

/// Why nothing was tried.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{tensors} tensors have about 10^{digits:.0} strategies; brute force tries up to {most}")]
pub(super) struct TooMany {
    /// Tensors of the model.
    pub tensors: usize,
    /// log10 of the strategies.
    pub digits: f64,
    /// What is tried.
    pub most: u64,
}

/// The strategy of least iteration time among all of `options`, and that time, ns from the
/// beginning of the backward pass. Options that do the same to a tensor count once; nothing else is
/// left out.
pub(super) fn brute_force(
    model: &Model,
    cluster: &Cluster,
    options: &[CompressionOption],
    most: u64,
) -> Result<(Vec<usize>, f64), TooMany> {
    let mut evaluator = Evaluator::new(model, cluster);
    let mut of: Vec<Vec<Candidate>> = Vec::new();
    let patterns = patterns(options, cluster, &evaluator.states);
    for tensor in &model.tensors {
        let mut distinct: Vec<Candidate> = Vec::new();
        for candidate in candidates(&patterns, tensor.elements as f64) {
            if !distinct.iter().any(|other| other.chains == candidate.chains) {
                distinct.push(candidate);
            }
        }
        of.push(distinct);
    }
    let digits: f64 = of.iter().map(|all| (all.len().max(1) as f64).log10()).sum();
    if digits > (most as f64).log10() {
        return Err(TooMany { tensors: of.len(), digits, most });
    }
    let mut places = vec![0; of.len()];
    let mut chains: Vec<_> = (0..evaluator.states.len())
        .map(|state| {
            of.iter().filter_map(|all| all.first()).map(|first| first.chains[state]).collect::<Vec<_>>()
        })
        .collect();
    let (mut best, mut found) = (evaluator.end(&chains), places.clone());
    loop {
        let mut carried = true;
        for (tensor, place) in places.iter_mut().enumerate() {
            *place += 1;
            carried = *place == of[tensor].len();
            if carried {
                *place = 0;
            }
            put(&mut chains, tensor, &of[tensor][*place].chains);
            if !carried {
                break;
            }
        }
        if carried {
            break;
        }
        let end = evaluator.end(&chains);
        if end < best {
            best = end;
            found.clone_from(&places);
        }
    }
    let options = found.iter().zip(&of).map(|(place, all)| all[*place].option).collect();
    Ok((options, best))
}

/// The least time of all subsets of tensors that GPUs compress moved to processors; up to 24
/// tensors.
pub(super) fn brute_force_offload(
    model: &Model,
    cluster: &Cluster,
    options: &[CompressionOption],
    selected: &Selected,
) -> Option<f64> {
    let mut evaluator = Evaluator::new(model, cluster);
    let movable: Vec<usize> =
        (0..selected.options.len()).filter(|i| options[selected.options[*i]].uses(Device::Gpu)).collect();
    if movable.len() > 24 {
        return None;
    }
    let mut best = f64::INFINITY;
    for subset in 0..1_u32 << movable.len() {
        let mut chains = selected.chains.clone();
        for (bit, tensor) in movable.iter().enumerate() {
            if subset >> bit & 1 == 1 {
                let moved = options[selected.options[*tensor]].on(Device::Cpu);
                let elements = model.tensors[*tensor].elements as f64;
                let with: Vec<_> =
                    evaluator.states.iter().map(|state| chain(&moved, elements, cluster, *state)).collect();
                put(&mut chains, *tensor, &with);
            }
        }
        best = best.min(evaluator.end(&chains));
    }
    Some(best)
}
