// SPDX-License-Identifier: Apache-2.0
//! The laboratory: what makes figures, and is no part of the product.
//!
//! ```text
//!  scenario file ─► sim ─► report: whole networks in virtual time, packets without bytes
//!  model, cluster ─► espresso ─► which tensor to compress, how, on which device
//!  profile ─► scenarios ─► planes algorithms on one link
//!  layers, port ─► thresholds ─► where a switch trims
//! ```
//!
//! The binary `trimwire-lab` has `sim` and `plan`. The laboratory uses the product's crates, and
//! none of them uses it.
#![forbid(unsafe_code)]

pub mod espresso;
pub mod scenarios;
pub mod sim;
pub mod thresholds;
