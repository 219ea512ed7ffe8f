// SPDX-License-Identifier: Apache-2.0
//! Jobs drawn from a seed, run in virtual time: `tests/soak.rs` runs tens of them,
//! `examples/soak.rs` as many as are asked for.
//!
//! ```text
//! seed ─► Case (what is done, what the network and the ranks do) ─► run ─► Verdict
//!                                        Limits (time, control packets, memory) ─┘
//!                                        Oracle (sums in f64, error that trims cost) ┘
//! ```
#![allow(dead_code, unused_imports, reason = "the test and the example use parts")]

mod case;
mod draw;
mod limits;
mod oracle;
mod run;

pub(crate) use case::Case;
pub(crate) use draw::Size;
pub(crate) use run::{Verdict, run};
