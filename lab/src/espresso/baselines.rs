// SPDX-License-Identifier: Apache-2.0
//! The frameworks that Espresso is compared with (§5.1, §6), as strategies of the same tree: all
//! compress for inter-machine communication alone, and none looks at how tensors interact.

use super::chain::chain;
use super::cluster::Cluster;
use super::model::Model;
use super::select::Evaluator;
use super::task::{CompressionOption, Device, Payload, Routine, Scope, Task};

/// A framework.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Baseline {
    /// All tensors on GPUs, whose parts an all-gather collects (HiTopKComm).
    HiTopKComm,
    /// On GPUs, each tensor whose own compression and communication get shorter by it (HiPress's
    /// selective compression).
    HiPress,
    /// On processors, likewise by tensor; the server sums between a push and a pull
    /// (BytePS-Compress).
    BytePsCompress,
}

impl Baseline {
    /// All.
    pub const ALL: [Self; 3] = [Self::HiTopKComm, Self::HiPress, Self::BytePsCompress];

    /// As papers write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::HiTopKComm => "HiTopKComm",
            Self::HiPress => "HiPress",
            Self::BytePsCompress => "BytePS-Compress",
        }
    }

    fn compressed(self) -> CompressionOption {
        let (payload, device) = match self {
            Self::HiTopKComm | Self::HiPress => (Payload::Compressed, Device::Gpu),
            Self::BytePsCompress => (Payload::Compressed, Device::Cpu),
        };
        let inter = |routine| Task::Communicate(Scope::Inter, routine, payload);
        let between = match self {
            Self::HiTopKComm => {
                vec![Task::Compress(device, payload), inter(Routine::AllGather), Task::Decompress(device)]
            }
            _ => vec![
                Task::Compress(device, payload),
                inter(Routine::AllToAll),
                Task::Decompress(device),
                Task::Compress(device, payload),
                inter(Routine::AllGather),
                Task::Decompress(device),
            ],
        };
        hierarchical(between)
    }
}

fn hierarchical(between: Vec<Task>) -> CompressionOption {
    let mut path = vec![Task::Communicate(Scope::IntraFirst, Routine::ReduceScatter, Payload::Plain)];
    path.extend(between);
    path.push(Task::Communicate(Scope::IntraSecond, Routine::AllGather, Payload::Plain));
    CompressionOption(path)
}

/// An iteration under a framework, s, the mean over the states of the network.
pub fn baseline(model: &Model, cluster: &Cluster, which: Baseline) -> f64 {
    let plain = hierarchical(vec![Task::Communicate(Scope::Inter, Routine::AllReduce, Payload::Plain)]);
    let compressed = which.compressed();
    let mut evaluator = Evaluator::new(model, cluster);
    let mut chains = Vec::new();
    for state in &evaluator.states {
        let of = |tensor: &super::Tensor| {
            let [plain, compressed] =
                [&plain, &compressed].map(|option| chain(option, tensor.elements as f64, cluster, *state));
            let own_ns =
                |chain: &super::Chain| chain.operations().iter().map(|operation| operation.time).sum::<f64>();
            let shorter = own_ns(&compressed) < own_ns(&plain);
            if shorter || which == Baseline::HiTopKComm { compressed } else { plain }
        };
        chains.push(model.tensors.iter().map(of).collect());
    }
    (model.forward_ms * 1e6 + evaluator.end(&chains)) / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::espresso::tests::networks;
    use crate::espresso::{plan, tree};

    #[test]
    fn no_framework_beats_a_plan_and_each_uses_an_option_of_the_tree() {
        let cluster =
            Cluster::from_yaml(include_str!("../../../examples/plans/nvlink-100g.yaml"), "c").unwrap();
        let every: Vec<String> = tree::options(tree::Devices::Both).iter().map(ToString::to_string).collect();
        for which in Baseline::ALL {
            assert!(every.contains(&which.compressed().to_string()), "{}", which.compressed());
        }
        for (name, of_model) in networks() {
            let (made, _) = plan(&of_model, &cluster, &mut || 0).unwrap();
            for which in Baseline::ALL {
                let seconds = baseline(&of_model, &cluster, which);
                assert!(seconds > 0.999 * made.iteration_seconds, "{name}, {which:?}: {seconds} s");
            }
        }
    }
}
