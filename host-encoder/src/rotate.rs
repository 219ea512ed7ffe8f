// SPDX-License-Identifier: Apache-2.0
//! The randomised Hadamard transform (docs/reference/wire-format.md §3): keys, Philox's signs, the
//! transform, working scales.

pub(crate) mod entry;
pub(crate) mod hadamard;
mod key;
pub mod philox;
pub(crate) mod rotation;
pub(crate) mod scale;
pub(crate) mod signs;

pub use key::Job;
pub(crate) use key::RotationKey;
pub use rotation::{forward, inverse, transform};
