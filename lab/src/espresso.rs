// SPDX-License-Identifier: Apache-2.0
//! Which tensors to compress, how, and on which device (Espresso, EuroSys 2023).
//!
//! ```text
//!  task ─► tree: 4,341 options of a tensor          model: tensors, times          cluster: links, devices, compressor
//!             │                                        │                             │
//!             └────────────► chain: an option's operations and how long each takes ◄─┘      collective: α–β times
//!                               │
//!                            timeline: F(S), who runs when on GPU, CPU, and both links
//!                               │
//!                neighbours: the same of strategies that differ in little
//!                               │
//!        frontier ─► select (algorithm 1) ─► offload (algorithm 2) ─► plan          brute_force, bound: what it is held against
//! ```
//!
//! Where the paper gives no formula (it cites the literature for collectives, and profiles
//! everything else), the module says which one is taken. One step further than the paper: options
//! whose packets switches may trim ([`Payload::Trimmed`]), and clusters whose network is a
//! distribution.

mod baselines;
mod bound;
#[cfg(test)]
mod brute_force;
mod chain;
mod cluster;
mod collective;
mod crippled;
mod file;
mod frontier;
mod model;
mod name;
mod neighbours;
mod offload;
mod plan;
mod scaling;
mod select;
mod task;
mod timeline;
mod tree;

pub use baselines::{Baseline, baseline};
pub use bound::upper_bound;
pub use chain::{Chain, Operation, Resource, chain};
pub use cluster::{Cluster, ClusterError, CompressorCost, Congestion, DeviceCost, LinkCost, Rate, Trimming};
pub use collective::time;
pub use crippled::{Crippled, crippled};
pub use file::{FileError, LARGEST};
pub use model::{Model, ModelError, Tensor};
pub use offload::{Offloaded, offload};
pub use plan::{Choice, Plan, PlanError, check, plan};
pub use scaling::scaling_factor;
pub use select::{Selected, Why, select};
pub use task::{CompressionOption, Device, Payload, Routine, Scope, Task};
pub use timeline::{Schedule, Span, Timeline};
pub use tree::{Devices, options, trimmed_options};

#[cfg(test)]
mod file_tests;
#[cfg(test)]
mod tests;
