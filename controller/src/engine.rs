// SPDX-License-Identifier: Apache-2.0
//! What brings switches in place, for a `run` and for a roll-out alike.
//!
//! ```text
//!   turns: whose turn it is      faults: what routes leave out      election: who leads
//!     ▲ seen  │ order               ▲ failed, well  │ avoid            ▲ view  │ leads
//!     │       ▼                     │               ▼                  │       ▼
//!   driver, one a switch: own connection, real clock ◄──► task: what happened ─► what to do next
//!     │ does
//!     ▼
//!   work: converge, routes, health, filled ─► report, board
//! ```
//!
//! `turns`, `faults`, `election` and `task` are state machines without sockets or a clock.

mod backoff;
pub(crate) mod board;
pub(crate) mod converge;
pub(crate) mod driver;
pub(crate) mod election;
pub(crate) mod faults;
mod filled;
mod health;
mod interfaces;
pub(crate) mod lines;
pub(crate) mod prober;
mod reporter;
mod routes;
pub(crate) mod status;
pub(crate) mod task;
mod trim_events;
mod trimming;
pub(crate) mod turns;
pub(crate) mod wanted;
pub(crate) mod wires;
mod work;
