// SPDX-License-Identifier: Apache-2.0
//! From a model and a cluster to a plan that can be read, kept and applied.

use serde::{Deserialize, Serialize};

use super::bound::upper_bound;
use super::chain::{Chain, chain};
use super::cluster::Cluster;
use super::model::Model;
use super::name::printable;
use super::offload::{Offloaded, offload};
use super::select::{Evaluator, Selected, Why, select, select_from, wanted};
use super::task::{CompressionOption, Device};
use super::timeline::{Schedule, Timeline};
use super::tree::{Devices, options, trimmed_options};

/// A plan.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Name of the model.
    pub model: String,
    /// Name of the cluster.
    pub cluster: String,
    /// Compressed bytes over those of f32, of the cluster's compressor.
    pub compressor_share: f64,
    /// How many tensors.
    pub tensors: usize,
    /// How many options a tensor has.
    pub options: usize,
    /// What selection took (algorithm 1).
    pub selection_seconds: f64,
    /// What offloading took (algorithm 2).
    pub offload_seconds: f64,
    /// Whether all of offloading's combinations were tried, or ruled out.
    pub offload_is_exhaustive: bool,
    /// An iteration with the strategy, the mean over the states of the network.
    pub iteration_seconds: f64,
    /// By state of the network, in the order of the cluster's file.
    pub iteration_seconds_by_congestion: Vec<f64>,
    /// An iteration without compression.
    pub uncompressed_seconds: f64,
    /// An iteration if compression cost nothing: the bound on throughput.
    pub upper_bound_seconds: f64,
    /// By tensor, in the order of the backward pass.
    pub strategy: Vec<Choice>,
}

/// What is done to a tensor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Its name.
    pub tensor: String,
    /// Its elements.
    pub elements: i64,
    /// The option: its tasks, in order.
    pub option: String,
    /// Why, in a sentence.
    pub why: String,
}

/// Why a plan cannot be used for a model.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Other tensors.
    #[error("the plan was made for {planned}: {difference}")]
    OtherModel {
        /// The model that it was made for.
        planned: String,
        /// Where they differ first.
        difference: String,
    },
    /// An option that there is not.
    #[error("{tensor}: no option of this cluster is '{option}'")]
    UnknownOption {
        /// Whose.
        tensor: String,
        /// As written.
        option: String,
    },
}

/// Everything a tensor can have: GPU options first, then the same on processors; where no GPU
/// compresses, processors' alone.
pub(super) fn catalogue(cluster: &Cluster) -> (Vec<CompressionOption>, usize) {
    let mut all = options(Devices::Gpu);
    if cluster.compressor.gpu.is_none() {
        all = all.iter().map(|option| option.on(Device::Cpu)).collect();
    }
    for planes in cluster.trimming.iter().flat_map(|trimming| &trimming.planes) {
        all.extend(trimmed_options(Devices::Gpu, *planes));
    }
    let on_gpus = all.len();
    let moved: Vec<CompressionOption> =
        all.iter().filter(|option| option.uses(Device::Gpu)).map(|option| option.on(Device::Cpu)).collect();
    all.extend(moved);
    (all, on_gpus)
}

/// Plans. `now_ns` is any clock that does not run backwards: it only tells what planning itself
/// took.
pub fn plan(
    model: &Model,
    cluster: &Cluster,
    now_ns: &mut dyn FnMut() -> u64,
) -> Result<(Plan, Schedule), PlanError> {
    let (all, on_gpus) = catalogue(cluster);
    let Search { selected, offloaded, took_ns } = search(model, cluster, &all, on_gpus, now_ns);
    let mut evaluator = Evaluator::new(model, cluster);
    let before = model.forward_ms * 1e6;
    let seconds = |ns: f64| (before + ns) / 1e9;
    let iteration = evaluator.end(&selected.chains);
    let bound = upper_bound(model, cluster, &all[..on_gpus], &selected);
    let mut why: Vec<String> = selected.why.iter().map(|why| sentence(*why)).collect();
    for tensor in &offloaded.tensors {
        why[*tensor] += "; on processors, as that leaves the GPU to compute";
    }
    let names: Vec<String> = selected.options.iter().map(|option| all[*option].to_string()).collect();
    let mut every = options(Devices::Both);
    for planes in cluster.trimming.iter().flat_map(|trimming| &trimming.planes) {
        every.extend(trimmed_options(Devices::Both, *planes));
    }
    let mut timeline = Timeline::default();
    let by_state: Vec<f64> =
        selected.chains.iter().map(|chains| seconds(timeline.end(&evaluator.compute, chains))).collect();
    let schedule = timeline.schedule(&evaluator.compute, selected.chains.first().map_or(&[], Vec::as_slice));
    let strategy = model.tensors.iter().zip(names).zip(why);
    let plan = Plan {
        model: model.model.clone(),
        cluster: cluster.cluster.clone(),
        compressor_share: cluster.compressor.share,
        tensors: model.tensors.len(),
        options: every.len(),
        selection_seconds: took_ns[0] as f64 / 1e9,
        offload_seconds: took_ns[1] as f64 / 1e9,
        offload_is_exhaustive: offloaded.is_exhaustive,
        iteration_seconds: seconds(iteration),
        iteration_seconds_by_congestion: by_state,
        uncompressed_seconds: seconds(uncompressed_ns(model, cluster)),
        upper_bound_seconds: seconds(bound.min(iteration)),
        strategy: strategy
            .map(|((tensor, option), why)| Choice {
                tensor: tensor.name.clone(),
                elements: tensor.elements,
                option,
                why,
            })
            .collect(),
    };
    Ok((plan, schedule))
}

/// What a search has found, and what selection and offloading took.
struct Search {
    selected: Selected,
    offloaded: Offloaded,
    took_ns: [u64; 2],
}

/// Where a search begins. The paper's begins without compression. Where many tensors have to be
/// compressed before one of them is worth it, it stays there: two others begin with all of them
/// compressed.
const BEGINS: [Begin; 3] = [
    Begin { offloads: true, may: |_| true, with: |option| !option.compresses() },
    Begin { offloads: true, may: CompressionOption::compresses, with: CompressionOption::compresses },
    Begin { offloads: false, may: |_| true, with: |option| option.compresses() && !option.uses(Device::Gpu) },
];

/// No other search is made where a strategy takes so many times what it would if compression cost
/// nothing.
const NEAR: f64 = 1.005;

struct Begin {
    /// Processors get tensors of GPUs alone.
    offloads: bool,
    /// What it may choose.
    may: fn(&CompressionOption) -> bool,
    with: fn(&CompressionOption) -> bool,
}

/// The best of searches that begin differently, the first of equals.
fn search(
    model: &Model,
    cluster: &Cluster,
    all: &[CompressionOption],
    on_gpus: usize,
    now_ns: &mut dyn FnMut() -> u64,
) -> Search {
    let mut best: Option<(f64, Selected, Offloaded)> = None;
    let mut took_ns = [0; 2];
    for (number, begin) in BEGINS.into_iter().enumerate() {
        // Looking is a part of the search.
        let looked = now_ns();
        if number == 1
            && let Some((end, selected, _)) = &best
        {
            let is_near = *end <= NEAR * upper_bound(model, cluster, &all[..on_gpus], selected);
            took_ns[0] += now_ns().saturating_sub(looked);
            if is_near {
                break;
            }
        }
        let places = 0..if begin.offloads { on_gpus } else { all.len() };
        let places: Vec<usize> = places.filter(|at| (begin.may)(&all[*at])).collect();
        let options: Vec<CompressionOption> = places.iter().map(|at| all[*at].clone()).collect();
        let began = now_ns();
        let mut selected = select_from(model, cluster, &options, begin.with);
        selected.options.iter_mut().for_each(|option| *option = places[*option]);
        let between = now_ns();
        let offloaded = offload(model, cluster, all, &mut selected);
        took_ns[0] += between.saturating_sub(began);
        took_ns[1] += now_ns().saturating_sub(between);
        // A cluster may have no option to begin with.
        if selected.options.len() < model.tensors.len() {
            continue;
        }
        let end = Evaluator::new(model, cluster).end(&selected.chains);
        if best.as_ref().is_none_or(|(least, ..)| end < wanted(*least)) {
            best = Some((end, selected, offloaded));
        }
    }
    let (_, selected, offloaded) =
        best.unwrap_or_else(|| (0.0, select(model, cluster, &all[..on_gpus]), Offloaded::default()));
    Search { selected, offloaded, took_ns }
}

/// The backward pass and its communication without compression, ns.
pub(super) fn uncompressed_ns(model: &Model, cluster: &Cluster) -> f64 {
    let mut plain = options(Devices::Gpu);
    plain.retain(|option| !option.compresses());
    let selected = select(model, cluster, &plain);
    Evaluator::new(model, cluster).end(&selected.chains)
}

fn sentence(why: Why) -> String {
    match why {
        Why::BeforeBubble => {
            "its communication ends before a bubble: compressing it gains nothing".to_owned()
        }
        Why::NothingFaster => "no other option makes the iteration shorter".to_owned(),
        Why::Saves(ns) => format!("makes the iteration {:.3} ms shorter", ns / 1e6),
    }
}

/// What an iteration takes with a plan made earlier, s, by state of the network; an error where it
/// was made for another model.
pub fn check(plan: &Plan, model: &Model, cluster: &Cluster) -> Result<Vec<f64>, PlanError> {
    let other = |difference: String| PlanError::OtherModel { planned: printable(&plan.model), difference };
    if plan.strategy.len() != model.tensors.len() {
        let (had, has) = (plan.strategy.len(), model.tensors.len());
        return Err(other(format!("it has {had} tensors, and {} {has}", model.model)));
    }
    let mut every = options(Devices::Both);
    for planes in cluster.trimming.iter().flat_map(|trimming| &trimming.planes) {
        every.extend(trimmed_options(Devices::Both, *planes));
    }
    let names: std::collections::BTreeMap<String, usize> =
        every.iter().enumerate().map(|(i, option)| (option.to_string(), i)).collect();
    let evaluator = Evaluator::new(model, cluster);
    let mut chains: Vec<Vec<Chain>> = vec![Vec::new(); evaluator.states.len()];
    for (choice, tensor) in plan.strategy.iter().zip(&model.tensors) {
        if choice.tensor != tensor.name || choice.elements != tensor.elements {
            return Err(other(format!(
                "it has '{}' of {} elements where {} has '{}' of {}",
                printable(&choice.tensor),
                choice.elements,
                model.model,
                tensor.name,
                tensor.elements
            )));
        }
        let usable = |option: &&usize| super::frontier::usable(&every[**option], cluster);
        let Some(option) = names.get(&choice.option).filter(usable) else {
            let (tensor, option) = (choice.tensor.clone(), printable(&choice.option));
            return Err(PlanError::UnknownOption { tensor, option });
        };
        for (state, chains) in evaluator.states.iter().zip(&mut chains) {
            chains.push(chain(&every[*option], tensor.elements as f64, cluster, *state));
        }
    }
    let mut timeline = Timeline::default();
    let end = |chains: &Vec<Chain>| (model.forward_ms * 1e6 + timeline.end(&evaluator.compute, chains)) / 1e9;
    Ok(chains.iter().map(end).collect())
}
