// SPDX-License-Identifier: Apache-2.0
//! What to compress ahead of time, how much, and where switches cut.
//!
//! ```text
//!  a step's measurements ─► sensing ─► ratio: what the next step sends
//!  model, cluster ────────► espresso ─► strategy: which tensor, how, on which device; timeline, bound
//!  layers, port ──────────► thresholds ─► where a switch cuts
//! ```
//!
//! A switch's cut answers a burst of microseconds. It cannot answer a link that is slow for minutes, nor choose which tensors are worth
//! compressing: that is what this crate is for. Everything is a pure function of measurements: there is no clock, socket, thread or random
//! generator but what callers pass in, and the same input gives the same output on every machine.
//!
//! It does not measure anything, and applies nothing: who calls it does.
#![forbid(unsafe_code)]

pub mod espresso;
pub mod fit;
pub mod models;
pub mod scenarios;
pub mod sensing;
pub mod thresholds;
