//! Thresholds from a model's layers: MLT appendix B, and its extension to trimming.
//!
//! ```text
//!  layers.yaml ─► model ─► classes ─► port ────────────► solve ─► report, fragment, plot
//!  sizes, sensitivities    λ, weight   loss of given      the least loss
//!                          by class    thresholds
//! ```
//!
//! A congested port is a handful of queues, one per class of layers, served by strict priority. Layers are offered in
//! proportion to their sizes; what a queue refuses is lost, or cut and sent through the trim queue. The loss of a class is
//! weighted by what the model suffers from it (its layers' sensitivities), and the thresholds are those of least weighted
//! loss that fit the buffer. [`appendix_b`] is the paper's own formulation; [`port`] is the one that the answer comes from.
//! `docs/thresholds.md` has the formulas and where they come from.
//!
//! Nothing here talks to a switch or changes a fabric: the result is a piece of YAML.

pub mod appendix_b;
mod classes;
mod cost;
mod fragment;
mod model;
mod plot;
pub mod port;
pub mod queue;
mod report;
pub mod solve;

pub use self::classes::Class;
pub use self::fragment::fragment;
pub use self::model::{Grouping, Layer, Model};
pub use self::plot::draw;
pub use self::report::{Answer, Curve, answer};

/// JSON Schema of the layers file, for editors.
pub const LAYERS_SCHEMA: &str = include_str!("../layers.schema.json");

#[cfg(test)]
mod tests;
