// SPDX-License-Identifier: Apache-2.0
//! How much to compress: a step's measurements in, a ratio out.
//!
//! ```text
//!  Step ─► Controller ─────────────► ratio in [k_min, k_max]
//!          checks │ ▲ clamps
//!                 ▼ │
//!                Law: NetSense │ Da1 … Da5 │ TrimFeedback │ Progress
//! ```
//!
//! A *ratio* is what is sent over what an uncompressed gradient would take: 1 sends everything. A
//! [`Law`] is the arithmetic of a paper (or ours) and may divide by what it likes; the
//! [`Controller`] around it refuses measurements that make no sense, keeps the last good ratio
//! then, and lets nothing leave the limits. State is serde's, so that a job that goes on from a
//! checkpoint goes on with what it knows of the network.
//!
//! In a job, [`Adaptive`] puts all ranks' [`Counts`] together into a step, and says how many planes
//! the next one is sent with, and at which share of the line's rate.
//!
//! [`LawName::parse`](parse) reads what users write: `netsense`, `da5:k_min=0.01,alpha=1.5`,
//! `trim-feedback:high=0.08`.

mod adaptive;
mod controller;
mod counts;
mod dc2;
mod delay_monitor;
mod extremes;
pub mod fit;
mod ladder;
mod netsense;
mod parse;
mod progress;
mod step;
mod trim_feedback;

pub use adaptive::{Adaptive, RestoreError};
pub use controller::{Controller, Law, Laws, Limits};
pub use counts::{COUNTS, Counts};
pub use dc2::{Da1, Da2, Da3, Da4, Da5};
pub use delay_monitor::{DelayMonitor, Delays};
pub use netsense::NetSense;
pub use parse::{LAWS, LawError, parse};
pub use progress::Progress;
pub use step::{Step, StepError};
pub use trim_feedback::TrimFeedback;

#[cfg(test)]
mod adaptive_tests;
#[cfg(test)]
mod tests;
