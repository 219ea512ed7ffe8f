// SPDX-License-Identifier: Apache-2.0
//! Algorithm 2: which of the tensors that GPUs compress the processors should compress instead.

use std::collections::BTreeMap;

use super::chain::{Chain, chain};
use super::cluster::Cluster;
use super::model::Model;
use super::select::{Evaluator, Selected, put, wanted};
use super::task::{CompressionOption, Device};

/// What became of it.
#[derive(Debug, Clone, Default)]
pub struct Offloaded {
    /// Tensors that moved, in the order of the backward pass.
    pub tensors: Vec<usize>,
    /// How many GPUs compressed.
    pub considered: usize,
    /// Whether all combinations that lemma 1 leaves were tried, or ruled out; otherwise groups were
    /// gone through in turns.
    pub is_exhaustive: bool,
    /// How often F(S) was worked out.
    pub evaluations: u64,
}

/// Combinations up to which all are tried.
const MOST: usize = 500;
/// Tensors up to which all subsets are tried, whatever lemma 1 says.
const FEW: usize = 10;

/// Moves tensors from GPUs to processors where that is faster, and changes `selected`'s options and
/// chains accordingly. `options` has both kinds.
///
/// Tensors of a size and an option are alike: of such a group it is always the first ones of the
/// backward pass that move (lemma 1: those farthest from what the paper calls the output layer,
/// which is the last that the backward pass computes). So there are Π (|G_i| + 1) combinations.
///
/// The lemma looks at compression. Where decompression waits in the same queues as everything else,
/// moving another tensor is better now and then, and so is another option's: up to ten tensors all
/// subsets are tried, and behind more of them single moves that help. Of 150 random models with
/// eight tensors, what is done for more than ten missed the best one in six, by up to 3.7 %.
pub fn offload(
    model: &Model,
    cluster: &Cluster,
    options: &[CompressionOption],
    selected: &mut Selected,
) -> Offloaded {
    let mut evaluator = Evaluator::new(model, cluster);
    let mut groups: BTreeMap<(i64, usize), Vec<usize>> = BTreeMap::new();
    for (tensor, option) in selected.options.iter().enumerate() {
        if options[*option].uses(Device::Gpu) {
            groups.entry((model.tensors[tensor].elements, *option)).or_default().push(tensor);
        }
    }
    let considered = groups.values().map(Vec::len).sum();
    let mut moves = Vec::new();
    for ((elements, option), tensors) in groups {
        let moved = options[option].on(Device::Cpu);
        let Some(place) = options.iter().position(|option| *option == moved) else { continue };
        let on = |option: &CompressionOption| -> Vec<Chain> {
            evaluator.states.iter().map(|state| chain(option, elements as f64, cluster, *state)).collect()
        };
        moves.push(Move { gpu: on(&options[option]), cpu: on(&moved), place, tensors });
    }
    let mut best = evaluator.set(&selected.chains);
    let mut outcome = Offloaded { considered, is_exhaustive: true, ..Offloaded::default() };
    // If GPUs compressed for nothing the iteration would hardly be longer than by any offloading:
    // queues that are served in order have their anomalies.
    let mut free = selected.chains.clone();
    for group in &moves {
        for tensor in &group.tensors {
            let chains: Vec<Chain> = group.gpu.iter().map(Chain::free).collect();
            put(&mut free, *tensor, &chains);
        }
    }
    if moves.is_empty() || considered > FEW && evaluator.end(&free) >= best * (1.0 - 1e-9) {
        outcome.evaluations = evaluator.evaluations;
        return outcome;
    }
    if considered <= FEW {
        // Each tensor a group of its own, so that the combinations are the subsets.
        let alone = |group: &Move| -> Vec<Move> {
            group.tensors.iter().map(|tensor| Move { tensors: vec![*tensor], ..group.clone() }).collect()
        };
        moves = moves.iter().flat_map(alone).collect();
    }
    let combinations = moves.iter().try_fold(1_usize, |product, group| {
        product.checked_mul(group.tensors.len() + 1).filter(|product| *product <= MOST)
    });
    // The best so far, and the one that is tried.
    let (mut chains, mut tried) = (selected.chains.clone(), selected.chains.clone());
    let mut counts = vec![0; moves.len()];
    let mut found = counts.clone();
    let mut differing = Vec::new();
    if combinations.is_some() {
        // An odometer: each step moves one tensor, or brings a whole group back.
        loop {
            let mut carried = true;
            for (group, count) in moves.iter().zip(&mut counts) {
                if *count < group.tensors.len() {
                    put(&mut tried, group.tensors[*count], &group.cpu);
                    *count += 1;
                    carried = false;
                    break;
                }
                for tensor in &group.tensors {
                    put(&mut tried, *tensor, &group.gpu);
                }
                *count = 0;
            }
            if carried {
                break;
            }
            differing.clear();
            for (group, count) in moves.iter().zip(&counts) {
                differing.extend_from_slice(&group.tensors[..*count]);
            }
            differing.sort_unstable();
            let end = evaluator.end_of(&chains, &tried, &differing, wanted(best));
            if end < wanted(best) {
                best = end;
                found.clone_from(&counts);
            }
        }
        for (group, count) in moves.iter().zip(&found) {
            group.move_first(*count, &mut chains);
        }
        evaluator.set(&chains);
    } else {
        outcome.is_exhaustive = false;
        let mut helped = true;
        while helped {
            helped = false;
            for (i, group) in moves.iter().enumerate() {
                let had = found[i];
                for count in (0..=group.tensors.len()).filter(|count| *count != had) {
                    group.move_first(count, &mut tried);
                    differing.clear();
                    differing.extend_from_slice(&group.tensors[count.min(had)..count.max(had)]);
                    let end = evaluator.end_of(&chains, &tried, &differing, wanted(best));
                    if end < wanted(best) {
                        (best, found[i], helped) = (end, count, true);
                    }
                }
                group.move_first(found[i], &mut tried);
                if found[i] != had {
                    group.move_first(found[i], &mut chains);
                    evaluator.changed(&chains, group.first(), group.last());
                }
            }
        }
    }
    let mut moved: Vec<Vec<bool>> = Vec::new();
    for (group, count) in moves.iter().zip(&found) {
        moved.push((0..group.tensors.len()).map(|place| place < *count).collect());
    }
    let mut helped = true;
    while helped {
        helped = false;
        for (group, moved) in moves.iter().zip(&mut moved) {
            for (tensor, on_cpu) in group.tensors.iter().zip(moved) {
                let other = if *on_cpu { &group.gpu } else { &group.cpu };
                let end = evaluator.end_with(&chains, *tensor, other, wanted(best));
                if end < wanted(best) {
                    (best, *on_cpu, helped) = (end, !*on_cpu, true);
                    put(&mut chains, *tensor, other);
                    evaluator.changed(&chains, *tensor, *tensor);
                }
            }
        }
    }
    for (group, moved) in moves.iter().zip(&moved) {
        for (tensor, _) in group.tensors.iter().zip(moved).filter(|(_, on_cpu)| **on_cpu) {
            put(&mut selected.chains, *tensor, &group.cpu);
            selected.options[*tensor] = group.place;
            outcome.tensors.push(*tensor);
        }
    }
    outcome.tensors.sort_unstable();
    outcome.evaluations = evaluator.evaluations;
    outcome
}

/// A group of equal tensors, in the order of the backward pass, on either device.
#[derive(Clone)]
struct Move {
    gpu: Vec<Chain>,
    cpu: Vec<Chain>,
    place: usize,
    tensors: Vec<usize>,
}

impl Move {
    /// Gives the first so many tensors to processors, and the others to GPUs.
    fn move_first(&self, count: usize, chains: &mut [Vec<Chain>]) {
        for (place, tensor) in self.tensors.iter().enumerate() {
            put(chains, *tensor, if place < count { &self.cpu } else { &self.gpu });
        }
    }

    fn first(&self) -> usize {
        self.tensors.first().copied().unwrap_or(0)
    }

    fn last(&self) -> usize {
        self.tensors.last().copied().unwrap_or(0)
    }
}
