// SPDX-License-Identifier: Apache-2.0
//! What `perf` can measure.

/// A collective.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Operation {
    #[default]
    AllReduce,
    ReduceScatter,
    AllGather,
    Broadcast,
    Reduce,
    PushPull,
}

impl Operation {
    /// As on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllGather => "all-gather",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::PushPull => "push-pull",
        }
    }

    /// What its result is made by, in nccl-tests' column.
    pub(crate) fn reduction(self) -> &'static str {
        match self {
            Self::AllReduce | Self::ReduceScatter | Self::Reduce | Self::PushPull => "sum",
            Self::AllGather | Self::Broadcast => "none",
        }
    }

    /// Bytes that the busiest link carries at least, for each of the tensor (nccl-tests,
    /// PERFORMANCE.md).
    pub(crate) fn bus_factor(self, world: u16) -> f64 {
        let n = f64::from(world);
        match self {
            Self::AllReduce => 2.0 * (n - 1.0) / n,
            Self::ReduceScatter | Self::AllGather => (n - 1.0) / n,
            // A worker's link carries it once each way.
            Self::Broadcast | Self::Reduce | Self::PushPull => 1.0,
        }
    }
}
