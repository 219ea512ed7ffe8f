//! Algorithm 1: an option for every tensor, the largest first.

use serde::Serialize;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::chain::Chain;
use super::cluster::{Cluster, Congestion};
use super::frontier::{Candidate, candidates, frontier};
use super::model::Model;
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

/// F(S) of strategies that differ in a tensor, over all states of the network.
pub(super) struct Evaluator {
    pub compute: Vec<f64>,
    pub states: Vec<Congestion>,
    timeline: Timeline,
    pub evaluations: u64,
}

impl Evaluator {
    pub(super) fn new(model: &Model, cluster: &Cluster) -> Self {
        let compute = model.tensors.iter().map(|tensor| tensor.compute_us * 1e3).collect();
        Self { compute, states: cluster.states(), timeline: Timeline::default(), evaluations: 0 }
    }

    /// The mean over the states of the network, ns from the beginning of the backward pass.
    pub(super) fn end(&mut self, chains: &[Vec<Chain>]) -> f64 {
        self.evaluations += 1;
        let mut mean = 0.0;
        for (state, chains) in self.states.iter().zip(chains) {
            mean += state.share * self.timeline.end(&self.compute, chains);
        }
        mean
    }

    /// The same where it is below `limit`, else anything that is not.
    pub(super) fn end_below(&mut self, chains: &[Vec<Chain>], limit: f64) -> f64 {
        let [only] = chains else { return self.end(chains) };
        self.evaluations += 1;
        self.timeline.end_below(&self.compute, only, limit)
    }

    /// The last bubble that there is in every state.
    fn bubble(&mut self, chains: &[Vec<Chain>]) -> usize {
        let bubbles = chains.iter().map(|chains| self.timeline.schedule(&self.compute, chains).bubble());
        bubbles.min().unwrap_or(0)
    }
}

/// Rounds over all tensors. The paper has one; a second one sees what the options chosen behind a tensor did to it, and ends where nothing helps.
const ROUNDS: usize = 3;
/// Tensors up to which no option is left out before its time is worked out, and up to which there are rounds after the first.
const FEW: usize = 10;
/// Tensors up to which two at a time are looked at as well.
const FEWEST: usize = 5;
const SEVERAL: usize = 64;
/// Options of a size that are tried again, in models of more tensors.
const RANKED: usize = 4;

/// Selects among `options`, of which the first has to be without compression.
pub fn select(model: &Model, cluster: &Cluster, options: &[CompressionOption]) -> Selected {
    let mut evaluator = Evaluator::new(model, cluster);
    let mut by_size: BTreeMap<i64, Rc<OfSize>> = BTreeMap::new();
    for tensor in &model.tensors {
        let states = &evaluator.states;
        by_size.entry(tensor.elements).or_insert_with(|| {
            let all = candidates(options, tensor.elements as f64, cluster, states);
            let plain = plainest(&all, options).cloned();
            let worth = if model.tensors.len() <= FEW { all } else { frontier(all) };
            Rc::new(OfSize { plain, worth })
        });
    }
    let of: Vec<Rc<OfSize>> =
        model.tensors.iter().filter_map(|tensor| by_size.get(&tensor.elements).cloned()).collect();
    // Without compression: the way through that is shortest.
    let plain: Vec<&Candidate> = of.iter().filter_map(|of| of.plain.as_ref()).collect();
    let mut selected = Selected {
        options: plain.iter().map(|candidate| candidate.option).collect(),
        why: vec![Why::NothingFaster; plain.len()],
        chains: (0..evaluator.states.len())
            .map(|state| plain.iter().map(|candidate| candidate.chains[state]).collect())
            .collect(),
        evaluations: 0,
    };
    if plain.len() < model.tensors.len() {
        return selected;
    }
    let mut order: Vec<usize> = (0..model.tensors.len()).collect();
    // Larger ones first, and of equal ones those that are computed last, nearest to the paper's output layer (property 2).
    order.sort_by_key(|i| (std::cmp::Reverse(model.tensors[*i].elements), std::cmp::Reverse(*i)));
    let mut best = evaluator.end(&selected.chains);
    let mut ranking: BTreeMap<i64, Vec<usize>> = BTreeMap::new();
    for _ in 0..if model.tensors.len() <= SEVERAL { ROUNDS } else { 1 } {
        let mut helped = false;
        let mut bubble = evaluator.bubble(&selected.chains);
        for tensor in &order {
            let tensor = *tensor;
            let is_plain = !options[selected.options[tensor]].compresses();
            if tensor < bubble && is_plain {
                selected.why[tensor] = Why::BeforeBubble;
                continue;
            }
            let before = best;
            let mut chosen: Option<&Candidate> = None;
            // Equal tensors want the same few options: in models of many tensors, those that were best for the first of them.
            let size = model.tensors[tensor].elements;
            let is_first = model.tensors.len() > SEVERAL && !ranking.contains_key(&size);
            let few = ranking.get(&size);
            let mut ranked = Vec::new();
            for candidate in &of[tensor].worth {
                if candidate.option == selected.options[tensor]
                    || few.is_some_and(|few| !few.contains(&candidate.option))
                {
                    continue;
                }
                let kept = put(&mut selected.chains, tensor, &candidate.chains);
                let limit = if is_first { f64::INFINITY } else { best };
                let end = evaluator.end_below(&selected.chains, limit);
                put(&mut selected.chains, tensor, &kept);
                ranked.push((end, candidate.option));
                // Less than rounding is no reason.
                if end < best * (1.0 - 1e-9) {
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
                bubble = evaluator.bubble(&selected.chains);
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

/// What a tensor of a size can have.
struct OfSize {
    /// The shortest way through without compression.
    plain: Option<Candidate>,
    worth: Vec<Candidate>,
}

fn plainest<'c>(all: &'c [Candidate], options: &[CompressionOption]) -> Option<&'c Candidate> {
    let through = |candidate: &Candidate| {
        candidate.chains.iter().map(|chain| chain.totals().iter().sum::<f64>()).sum::<f64>()
    };
    let plain = all.iter().filter(|candidate| !options[candidate.option].compresses());
    plain.min_by(|a, b| through(a).total_cmp(&through(b)))
}

/// Two tensors at once, over the options that no other beats: what a search of one after the other cannot leave.
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
                for b in &of[*second] {
                    let kept = put(&mut selected.chains, *second, &b.chains);
                    let end = evaluator.end_below(&selected.chains, *best);
                    put(&mut selected.chains, *second, &kept);
                    if end < *best * (1.0 - 1e-9) {
                        (*best, chosen) = (end, Some((a, b)));
                    }
                }
                put(&mut selected.chains, *first, &kept_first);
            }
            if let Some((a, b)) = chosen {
                for (tensor, candidate) in [(*first, a), (*second, b)] {
                    put(&mut selected.chains, tensor, &candidate.chains);
                    selected.options[tensor] = candidate.option;
                    selected.why[tensor] = Why::Saves(before - *best);
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
