// SPDX-License-Identifier: Apache-2.0
//! The options of a size that can be best of any.

use super::chain::{Chain, Pattern, Resource, pattern};
use super::cluster::{Cluster, Congestion};
use super::task::{CompressionOption, Device};

/// An option with what it does to a tensor, by state of the network.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    /// Place among the options.
    pub option: usize,
    pub chains: Vec<Chain>,
}

/// The options that make sense for a tensor in a cluster: one level where there is one level, on
/// devices that compress.
pub(super) fn usable(option: &CompressionOption, cluster: &Cluster) -> bool {
    let two_levels = cluster.machines > 1 && cluster.gpus > 1;
    let Some(planes) = option.trimmed() else {
        let is_there = cluster.compressor.gpu.is_some() || !option.uses(Device::Gpu);
        return is_there && (two_levels || !option.is_hierarchical());
    };
    let Some(trimming) = &cluster.trimming else { return false };
    let states = cluster.states();
    // Up and down: two hops.
    let nmse: f64 =
        states.iter().map(|state| 2.0 * state.share * trimming.nmse(planes, state.bandwidth)).sum();
    nmse <= trimming.max_nmse && (two_levels || !option.is_hierarchical())
}

/// Every usable option by its place, with what it takes in each state.
pub(super) fn patterns(
    options: &[CompressionOption],
    cluster: &Cluster,
    states: &[Congestion],
) -> Vec<(usize, Vec<Pattern>)> {
    let usable = options.iter().enumerate().filter(|(_, path)| usable(path, cluster));
    usable
        .map(|(option, path)| (option, states.iter().map(|state| pattern(path, cluster, *state)).collect()))
        .collect()
}

/// Every usable option as a candidate for tensors of so many elements.
pub(super) fn candidates(patterns: &[(usize, Vec<Pattern>)], elements: f64) -> Vec<Candidate> {
    let of = |(option, patterns): &(usize, Vec<Pattern>)| Candidate {
        option: *option,
        chains: patterns.iter().map(|pattern| pattern.at(elements)).collect(),
    };
    patterns.iter().map(of).collect()
}

/// Leaves out options that another one beats, or equals before them, on every resource and on the
/// way through, in every state of the network.
///
/// That an option needs less of everything does not prove that every strategy is better off with
/// it: what it needs could come at a worse time. Tests hold what selection finds among the rest
/// against brute force over all options.
pub(super) fn frontier(all: Vec<Candidate>) -> Vec<Candidate> {
    let figures: Vec<Vec<f64>> = all.iter().map(figures).collect();
    let beats = |a: usize, b: usize| {
        let no_worse = figures[a].iter().zip(&figures[b]).all(|(a, b)| *a <= *b * (1.0 + 1e-12));
        no_worse && (a < b || figures[a] != figures[b])
    };
    // A sum that is least is beaten by none, and beats most: sorted by it, few comparisons are
    // needed.
    let mut order: Vec<usize> = (0..all.len()).collect();
    let sums: Vec<f64> = figures.iter().map(|figures| figures.iter().sum()).collect();
    order.sort_by(|a, b| sums[*a].total_cmp(&sums[*b]).then(a.cmp(b)));
    let mut kept: Vec<usize> = Vec::new();
    for i in order {
        if !kept.iter().any(|k| beats(*k, i)) {
            kept.push(i);
        }
    }
    kept.sort_unstable();
    let mut all: Vec<Option<Candidate>> = all.into_iter().map(Some).collect();
    kept.into_iter().filter_map(|i| all[i].take()).collect()
}

/// Time on each resource, and what a GPU or processor does before anything is sent, by state.
fn figures(candidate: &Candidate) -> Vec<f64> {
    let mut figures = Vec::with_capacity(6 * candidate.chains.len());
    for chain in &candidate.chains {
        let totals = chain.totals();
        figures.extend(totals);
        figures.push(totals.iter().sum());
        let first = chain.operations().first();
        figures.push(first.map_or(0.0, |first| {
            if matches!(first.resource, Resource::Gpu | Resource::Cpu) { first.time } else { 0.0 }
        }));
    }
    figures
}
