// SPDX-License-Identifier: Apache-2.0
//! What the demo trains: the data, the model, and the replicas of a data-parallel job.
pub mod digits;
pub mod job;
pub mod mlp;
