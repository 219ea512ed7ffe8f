// SPDX-License-Identifier: Apache-2.0
//! A cluster's network in virtual time: hundreds of hosts, plain switches, other transports beside
//! ours.
//!
//! ```text
//!  scenario ─► topology, workload ─► run: domains (a switch and its hosts each) ─► report
//!                                     │ calendar of events
//!                                     ├ host: transport cores of its flows, one card
//!                                     └ switch: route, discipline of each port, line
//! ```
//!
//! [`crate::cluster`] runs the P4 program and the agent themselves, with real bytes, around one
//! switch. Here packets are heads and lengths, and switches and transports are written anew, each
//! held against its paper, the P4 engine or a closed form; docs/reference/scenario.md says what is
//! real and what is modelled. The same seed gives the same results with any number of threads. What
//! it deliberately does not do: no codec runs here, and no clock is read.

pub mod discipline;
mod domain;
mod event;
mod host;
mod line;
mod network;
pub mod packet;
pub mod pfc;
pub mod program;
mod quantity;
mod random;
pub mod report;
pub mod run;
pub mod scenario;
pub mod setup;
mod switch;
pub mod topology;
pub mod transport;
mod windows;
pub mod workload;
