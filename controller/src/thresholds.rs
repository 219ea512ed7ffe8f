// SPDX-License-Identifier: Apache-2.0
//! Thresholds from a model's layers: MLT appendix B, and its extension to trimming.
//!
//! ```text
//!  layers.yaml ─► model ─► trimwire_planner::thresholds ─► report, fragment
//!  fabric.yaml      │            ▲
//!                   └► settings ─┘
//! ```
//!
//! The arithmetic is the planner's: classes, the loss that given thresholds lead to, the thresholds of least loss. Here is what surrounds it: reading
//! the layers file with its lines, what a fabric adds, and the answer as tables, as a piece of a fabric file and as a drawing.
//! `docs/explanation/thresholds.md` has the formulas and where they come from.
//!
//! Nothing here talks to a switch or changes a fabric: the result is a piece of YAML.

mod fragment;
mod model;
mod report;

pub use self::fragment::fragment;
pub use self::model::Model;
pub use self::report::{Answer, Curve, answer};

/// JSON Schema of the layers file, for editors.
pub const LAYERS_SCHEMA: &str = include_str!("../layers.schema.json");

#[cfg(test)]
mod tests;
