// SPDX-License-Identifier: Apache-2.0
//! Transfers: one message on its way from one rank to another (MLT §4.2.3), row by row.
//!
//! ```text
//!  sender                                          receiver
//!  DATA … DATA (paced, sprayed)   ───────────►     ACK with a map, the first packet and every so many; rows are handed over as they fill up
//!  repairs of what is lost        ◄───────────     (order of arrival shows it)
//!  DATA … DATA, PROBE after the last ────────►     everything there, or enough: STOP
//!  repairs of what is lost        ◄───────────     else STATUS: the whole map
//! ```
//!
//! - The receiver sends STOP by itself as soon as everything is there. When only the loss bound
//!   holds it waits until nothing can be on its way any more: control packets overtake data, so a
//!   STATUS tells of packets as missing that are merely queued.
//! - The *sender* decides what is lost, from its own clock (`loss`), and repairs it at once.
//! - Every question is repeated until it is answered, with exponential backoff, until it is given
//!   up.
#![forbid(unsafe_code)]

pub(crate) mod finals;
pub(crate) mod incoming;
pub(crate) mod loss;
pub(crate) mod outgoing;
pub(crate) mod path;
mod received;
mod repairs;
mod untold;

pub use crate::outcome::{TransferError, TransferStats, Way, WorstPath};
pub use loss::Silence;
pub use path::{Overtaken, PathEstimate};
