// SPDX-License-Identifier: Apache-2.0
//! Where switches trim: MLT appendix B, and its extension to trimming.
//!
//! ```text
//!  layers ─► classes ─► port ────────────► solve ─► answer: thresholds of least weighted loss
//!            λ, weight   loss of given
//!                        thresholds
//! ```
//!
//! A congested port is a handful of queues, one per class of layers, served by strict priority.
//! Layers are offered in proportion to their sizes; what a queue refuses is lost, or trimmed and
//! sent through the trim queue. The loss of a class is weighted by what the model suffers from it
//! (its layers' sensitivities), and the thresholds are those of least weighted loss that fit the
//! buffer. [`appendix_b`] is the paper's own formulation; [`port`] is the one that the answer comes
//! from. `docs/explanation/thresholds.md` has the formulas and where they come from.

pub mod answer;
pub mod appendix_b;
mod classes;
mod cost;
pub mod layers;
pub mod port;
pub mod queue;
pub mod solve;

pub use self::classes::{Class, Grouping, Layer};
pub use self::cost::of_trimmed;

#[cfg(test)]
mod tests;
