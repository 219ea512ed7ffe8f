// SPDX-License-Identifier: Apache-2.0
//! The search space without one of its four dimensions (§5.3): what each is worth.

use super::chain::chain;
use super::cluster::Cluster;
use super::model::Model;
use super::offload::offload;
use super::plan::catalogue;
use super::select::{Evaluator, select, select_from};
use super::task::{CompressionOption, Device, Payload, Routine, Scope, Task};

/// What a search may not do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Crippled {
    /// Leave a tensor uncompressed.
    AllCompression,
    /// See how tensors interact: each has the option that takes the least by itself.
    Myopic,
    /// Compress on processors.
    GpuCompression,
    /// Compress on GPUs.
    CpuCompression,
    /// Compress inside machines, or collect parts between them by anything but an all-gather.
    InterAllGather,
    /// Compress inside machines, or sum between them by anything but an all-to-all and an
    /// all-gather.
    InterAllToAll,
    /// Compress for one level alone: an all-to-all inside machines, another one and an all-gather
    /// between them.
    AllToAllTwice,
}

impl Crippled {
    /// All.
    pub const ALL: [Self; 7] = [
        Self::AllCompression,
        Self::Myopic,
        Self::GpuCompression,
        Self::CpuCompression,
        Self::InterAllGather,
        Self::InterAllToAll,
        Self::AllToAllTwice,
    ];

    /// As the paper writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllCompression => "All compression",
            Self::Myopic => "Myopic compression",
            Self::GpuCompression => "GPU compression",
            Self::CpuCompression => "CPU compression",
            Self::InterAllGather => "Inter Allgather",
            Self::InterAllToAll => "Inter Alltoall",
            Self::AllToAllTwice => "Alltoall+Alltoall",
        }
    }

    /// Whether the search may choose an option.
    fn allows(self, option: &CompressionOption) -> bool {
        let compressed: Vec<(Scope, Routine)> =
            option.tasks().iter().copied().filter_map(sent_compressed).collect();
        let inter = [(Scope::Inter, Routine::AllToAll), (Scope::Inter, Routine::AllGather)];
        match self {
            Self::AllCompression => option.compresses(),
            Self::Myopic => true,
            Self::GpuCompression => !option.uses(Device::Cpu),
            Self::CpuCompression => !option.uses(Device::Gpu),
            _ if !option.compresses() => true,
            Self::InterAllGather => compressed == inter[1..],
            Self::InterAllToAll => compressed == inter,
            Self::AllToAllTwice => {
                let first = (Scope::IntraFirst, Routine::AllToAll);
                let last = (Scope::IntraSecond, Routine::AllGather);
                compressed == [first, inter[0], inter[1], last] && has_summed_inside(option)
            }
        }
    }
}

fn sent_compressed(task: Task) -> Option<(Scope, Routine)> {
    match task {
        Task::Communicate(scope, routine, Payload::Compressed) => Some((scope, routine)),
        _ => None,
    }
}

/// Whether what came inside the machine is decompressed and compressed again before it leaves it.
fn has_summed_inside(option: &CompressionOption) -> bool {
    let inter = |task: &Task| matches!(task, Task::Communicate(Scope::Inter, ..));
    let before = option.tasks().iter().take_while(|task| !inter(task));
    before.filter(|task| matches!(task, Task::Decompress(_))).count() == 1
}

/// An iteration with the best strategy that is found without a dimension, s, the mean over the
/// states of the network.
pub fn crippled(model: &Model, cluster: &Cluster, which: Crippled) -> f64 {
    let (all, on_gpus) = catalogue(cluster);
    let mut evaluator = Evaluator::new(model, cluster);
    let chains = match which {
        Crippled::Myopic => {
            let of_state = |state: &super::Congestion| {
                let usable = all.iter().filter(|option| super::frontier::usable(option, cluster));
                let options: Vec<&CompressionOption> = usable.collect();
                let shortest = |tensor: &super::Tensor| {
                    let all = options.iter().map(|o| chain(o, tensor.elements as f64, cluster, *state));
                    let took = |chain: &super::Chain| chain.totals().iter().sum::<f64>();
                    all.min_by(|a, b| took(a).total_cmp(&took(b)))
                };
                model.tensors.iter().filter_map(shortest).collect()
            };
            evaluator.states.iter().map(of_state).collect()
        }
        Crippled::AllCompression => {
            let compressing = |options: &[CompressionOption]| -> Vec<CompressionOption> {
                options.iter().filter(|option| which.allows(option)).cloned().collect()
            };
            let on_gpus = compressing(&all[..on_gpus]);
            let mut selected = select_from(model, cluster, &on_gpus, CompressionOption::compresses);
            offload(model, cluster, &compressing(&all), &mut selected);
            selected.chains
        }
        _ => {
            let allowed: Vec<CompressionOption> =
                all.iter().filter(|option| which.allows(option)).cloned().collect();
            select(model, cluster, &allowed).chains
        }
    };
    (model.forward_ms * 1e6 + evaluator.end(&chains)) / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::espresso::plan;
    use crate::espresso::tests::networks;

    fn cluster() -> Cluster {
        Cluster::from_yaml(include_str!("../../../examples/plans/nvlink-100g.yaml"), "c").unwrap()
    }

    #[test]
    fn a_search_that_may_do_less_finds_nothing_better() {
        for (name, of_model) in networks() {
            let (made, _) = plan(&of_model, &cluster(), &mut || 0).unwrap();
            for which in Crippled::ALL {
                let seconds = crippled(&of_model, &cluster(), which);
                assert!(seconds > 0.999 * made.iteration_seconds, "{name}, {which:?}: {seconds} s");
            }
        }
    }

    #[test]
    fn each_has_the_options_that_its_name_says() {
        let (all, _) = catalogue(&cluster());
        let plain = all.iter().filter(|option| !option.compresses()).count();
        let allowed = |which: Crippled| all.iter().filter(|option| which.allows(option)).count() - plain;
        // One scheme, on GPUs or on processors.
        assert_eq!(
            [allowed(Crippled::InterAllGather), allowed(Crippled::InterAllToAll)].map(|n| n > 1),
            [true; 2]
        );
        assert!(allowed(Crippled::AllToAllTwice) > 1);
        assert_eq!(allowed(Crippled::GpuCompression), allowed(Crippled::CpuCompression));
    }
}
