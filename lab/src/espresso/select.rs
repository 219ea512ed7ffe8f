// SPDX-License-Identifier: Apache-2.0
//! Algorithm 1: an option for every tensor, the largest first.

use serde::Serialize;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::chain::Chain;
use super::cluster::{Cluster, Congestion};
use super::frontier::{Candidate, candidates, frontier, patterns};
use super::model::Model;
use super::neighbours::{Neighbours, is_too_late};
use super::task::CompressionOption;
use super::timeline::Timeline;

/// Why a tensor has the option that it has.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// Its communication ends before a bubble (property 1).
    BeforeBubble,
    /// Nothing else makes the iteration shorter.
    NothingFaster,
    /// It makes the iteration so much shorter, ns, given the options that had been chosen then.
    Saves(f64),
}

/// A strategy: an option for each tensor.
#[derive(Debug, Clone)]
pub struct Selected {
    /// By tensor, in the order of the backward pass: places among the options.
    pub options: Vec<usize>,
    /// By tensor.
    pub why: Vec<Why>,
    /// By state of the network, then by tensor.
    pub chains: Vec<Vec<Chain>>,
    /// How often F(S) was worked out.
    pub evaluations: u64,
}

/// F(S) over all states of the network, ns from the beginning of the backward pass: of any
/// strategy, and, faster, of those that differ little from one ([`Neighbours`]).
pub(super) struct Evaluator {
    pub compute: Vec<f64>,
    pub states: Vec<Congestion>,
    timeline: Timeline,
    /// One a state of the network.
    neighbours: Vec<Neighbours>,
    /// By state: before which a strategy that is looked at cannot end.
    least: Vec<f64>,
    pub evaluations: u64,
}

impl Evaluator {
    pub(super) fn new(model: &Model, cluster: &Cluster) -> Self {
        let compute = model.tensors.iter().map(|tensor| tensor.compute_us * 1e3).collect();
        let states = cluster.states();
        let neighbours = vec![Neighbours::default(); states.len()];
        Self { compute, states, timeline: Timeline::default(), neighbours, least: Vec::new(), evaluations: 0 }
    }

    /// The mean over the states of the network.
    pub(super) fn end(&mut self, chains: &[Vec<Chain>]) -> f64 {
        self.evaluations += 1;
        let states = self.states.iter().zip(chains);
        states.map(|(state, chains)| state.share * self.timeline.end(&self.compute, chains)).sum()
    }

    /// The same of the strategy from which others differ.
    pub(super) fn set(&mut self, chains: &[Vec<Chain>]) -> f64 {
        self.evaluations += 1;
        let states = self.states.iter().zip(&mut self.neighbours).zip(chains);
        states.map(|((state, of), chains)| state.share * of.set(&self.compute, chains)).sum()
    }

    /// `chains` are that strategy's; those of `first` to `last`, or some of them, are others than
    /// before.
    pub(super) fn changed(&mut self, chains: &[Vec<Chain>], first: usize, last: usize) {
        for (of, chains) in self.neighbours.iter_mut().zip(chains) {
            of.changed(&self.compute, chains, first, last);
        }
    }

    /// With `with` for `tensor`'s chains, where that is below `limit`, else anything that is not.
    /// `chains` are those that [`Self::set`] or [`Self::changed`] was told last.
    pub(super) fn end_with(
        &mut self,
        chains: &[Vec<Chain>],
        tensor: usize,
        with: &[Chain],
        limit: f64,
    ) -> f64 {
        self.evaluations += 1;
        let compute = &self.compute;
        self.least.clear();
        for (of, (chains, with)) in self.neighbours.iter().zip(chains.iter().zip(with)) {
            self.least.push(of.least_with(compute, chains, (tensor, with)));
        }
        let states = self.neighbours.iter_mut().zip(chains.iter().zip(with));
        let ends = states
            .map(|(of, (chains, with))| move |limit| of.end_with(compute, chains, (tensor, with), limit));
        mean_below(&self.states, &self.least, ends, limit)
    }

    /// The same with `others` for all chains, which differ in the tensors `differing`, in order.
    pub(super) fn end_of(
        &mut self,
        chains: &[Vec<Chain>],
        others: &[Vec<Chain>],
        differing: &[usize],
        limit: f64,
    ) -> f64 {
        self.evaluations += 1;
        let compute = &self.compute;
        self.least.clear();
        self.least.resize(self.states.len(), compute.iter().sum());
        let states = self.neighbours.iter_mut().zip(chains.iter().zip(others));
        let ends = states
            .map(|(of, (chains, others))| move |limit| of.end_of(compute, chains, others, differing, limit));
        mean_below(&self.states, &self.least, ends, limit)
    }

    /// The last bubble that there is in every state.
    fn bubble(&self) -> usize {
        self.neighbours.iter().map(Neighbours::bubble).min().unwrap_or(0)
    }
}

/// The mean of ends, by share, where it is below `limit`; else something that is not, as soon as
/// that is known: no end is below its `least`.
fn mean_below(
    states: &[Congestion],
    least: &[f64],
    ends: impl Iterator<Item = impl FnOnce(f64) -> f64>,
    limit: f64,
) -> f64 {
    // With the least for what has not been worked out.
    let mut bound: f64 = states.iter().zip(least).map(|(state, least)| state.share * least).sum();
    if is_too_late(bound, limit) {
        return bound;
    }
    let mut mean = 0.0;
    for ((state, least), end) in states.iter().zip(least).zip(ends) {
        // What this state may take at most, if the others take the least.
        let own = if state.share > 0.0 { least + (limit - bound) / state.share } else { f64::INFINITY };
        let end = end(own);
        if is_too_late(end, own) {
            return end.max(limit);
        }
        bound += state.share * (end - least);
        mean += state.share * end;
    }
    mean
}

/// Rounds over all tensors. The paper has one; a second one sees what the options chosen behind a
/// tensor did to it, and ends where nothing helps.
const ROUNDS: usize = 3;
/// Tensors up to which no option is left out before its time is worked out, and up to which there
/// are rounds after the first.
const FEW: usize = 10;
/// Tensors up to which two at a time are looked at as well.
const FEWEST: usize = 5;
const SEVERAL: usize = 64;
/// Options of a size that are tried again, in models of more tensors.
const RANKED: usize = 4;

/// Selects among `options`, of which the first has to be without compression.
pub fn select(model: &Model, cluster: &Cluster, options: &[CompressionOption]) -> Selected {
    select_from(model, cluster, options, |option| !option.compresses())
}

/// The same from another strategy: the options that take the least by themselves, of those that
/// `begins` holds for.
pub(super) fn select_from(
    model: &Model,
    cluster: &Cluster,
    options: &[CompressionOption],
    begins: impl Fn(&CompressionOption) -> bool,
) -> Selected {
    let mut evaluator = Evaluator::new(model, cluster);
    let mut by_size: BTreeMap<i64, Rc<OfSize>> = BTreeMap::new();
    let patterns = patterns(options, cluster, &evaluator.states);
    for tensor in &model.tensors {
        by_size.entry(tensor.elements).or_insert_with(|| {
            let all = candidates(&patterns, tensor.elements as f64);
            let first = shortest(&all, |option| begins(&options[option])).cloned();
            let worth = if model.tensors.len() <= FEW { all } else { frontier(all) };
            Rc::new(OfSize { first, worth })
        });
    }
    let of: Vec<Rc<OfSize>> =
        model.tensors.iter().filter_map(|tensor| by_size.get(&tensor.elements).cloned()).collect();
    let first: Vec<&Candidate> = of.iter().filter_map(|of| of.first.as_ref()).collect();
    let mut selected = Selected {
        options: first.iter().map(|candidate| candidate.option).collect(),
        why: vec![Why::NothingFaster; first.len()],
        chains: (0..evaluator.states.len())
            .map(|state| first.iter().map(|candidate| candidate.chains[state]).collect())
            .collect(),
        evaluations: 0,
    };
    if first.len() < model.tensors.len() {
        return selected;
    }
    let mut order: Vec<usize> = (0..model.tensors.len()).collect();
    // Larger ones first, and of equal ones those that are computed last, nearest to the paper's
    // output layer (property 2).
    order.sort_by_key(|i| (std::cmp::Reverse(model.tensors[*i].elements), std::cmp::Reverse(*i)));
    let mut best = evaluator.set(&selected.chains);
    let mut ranking: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for _ in 0..if model.tensors.len() <= SEVERAL { ROUNDS } else { 1 } {
        let mut helped = false;
        let mut bubble = evaluator.bubble();
        for tensor in &order {
            let tensor = *tensor;
            let is_plain = !options[selected.options[tensor]].compresses();
            if tensor < bubble && is_plain {
                selected.why[tensor] = Why::BeforeBubble;
                continue;
            }
            let before = best;
            let mut chosen: Option<&Candidate> = None;
            // Equal tensors want the same few options: in models of many tensors, those that were
            // best for the first of them.
            let size = model.tensors[tensor].elements;
            let is_first = model.tensors.len() > SEVERAL && !ranking.contains_key(&size);
            let few = ranking.get(&size);
            let mut ranked = Vec::new();
            // The ends of the best few, of which no worse one is wanted.
            let mut top = [f64::INFINITY; RANKED];
            for candidate in &of[tensor].worth {
                if candidate.option == selected.options[tensor]
                    || few.is_some_and(|few| !few.contains(&candidate.option))
                {
                    continue;
                }
                let limit =
                    if is_first { wanted(best).max(top[RANKED - 1] * (1.0 - 1e-11)) } else { wanted(best) };
                let end = evaluator.end_with(&selected.chains, tensor, &candidate.chains, limit);
                if is_first && end < top[RANKED - 1] {
                    top[RANKED - 1] = end;
                    top.sort_by(f64::total_cmp);
                    ranked.push((end, candidate.option));
                }
                if end < wanted(best) {
                    (best, chosen) = (end, Some(candidate));
                }
            }
            if is_first {
                ranked.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
                ranking
                    .insert(size, ranked.iter().take(RANKED).map(|(_, option)| *option).collect::<Vec<_>>());
            }
            if let Some(candidate) = chosen {
                put(&mut selected.chains, tensor, &candidate.chains);
                selected.options[tensor] = candidate.option;
                selected.why[tensor] = Why::Saves(before - best);
                evaluator.changed(&selected.chains, tensor, tensor);
                bubble = evaluator.bubble();
                helped = true;
            }
        }
        if model.tensors.len() <= FEWEST {
            let of: Vec<Vec<Candidate>> = of.iter().map(|of| frontier(of.worth.clone())).collect();
            helped |= pairs(&of, &order, &mut evaluator, &mut selected, &mut best);
        }
        if !helped {
            break;
        }
    }
    selected.evaluations = evaluator.evaluations;
    selected
}

/// What a better strategy has to end before: less than rounding is no reason. Where computation is
/// what takes so long, this is known to be out of reach at once.
pub(super) fn wanted(best: f64) -> f64 {
    best * (1.0 - 1e-9)
}

/// What a tensor of a size can have.
struct OfSize {
    /// What it begins with.
    first: Option<Candidate>,
    worth: Vec<Candidate>,
}

/// The candidate whose way through is shortest.
fn shortest(all: &[Candidate], of: impl Fn(usize) -> bool) -> Option<&Candidate> {
    let through = |candidate: &Candidate| {
        candidate.chains.iter().map(|chain| chain.totals().iter().sum::<f64>()).sum::<f64>()
    };
    let among = all.iter().filter(|candidate| of(candidate.option));
    among.min_by(|a, b| through(a).total_cmp(&through(b)))
}

/// Two tensors at once, over the options that no other beats: what a search of one after the other
/// cannot leave.
fn pairs(
    of: &[Vec<Candidate>],
    order: &[usize],
    evaluator: &mut Evaluator,
    selected: &mut Selected,
    best: &mut f64,
) -> bool {
    let mut helped = false;
    for (i, first) in order.iter().enumerate() {
        for second in &order[i + 1..] {
            let (mut chosen, before) = (None, *best);
            for a in &of[*first] {
                let kept_first = put(&mut selected.chains, *first, &a.chains);
                evaluator.changed(&selected.chains, *first, *first);
                for b in &of[*second] {
                    let end = evaluator.end_with(&selected.chains, *second, &b.chains, wanted(*best));
                    if end < wanted(*best) {
                        (*best, chosen) = (end, Some((a, b)));
                    }
                }
                put(&mut selected.chains, *first, &kept_first);
            }
            evaluator.changed(&selected.chains, *first, *first);
            if let Some((a, b)) = chosen {
                for (tensor, candidate) in [(*first, a), (*second, b)] {
                    put(&mut selected.chains, tensor, &candidate.chains);
                    selected.options[tensor] = candidate.option;
                    selected.why[tensor] = Why::Saves(before - *best);
                    evaluator.changed(&selected.chains, tensor, tensor);
                }
                helped = true;
            }
        }
    }
    helped
}

/// Gives a tensor other chains, and back those that it had.
pub(super) fn put(chains: &mut [Vec<Chain>], tensor: usize, with: &[Chain]) -> Vec<Chain> {
    chains.iter_mut().zip(with).map(|(chains, with)| std::mem::replace(&mut chains[tensor], *with)).collect()
}
