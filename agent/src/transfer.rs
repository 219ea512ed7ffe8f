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
//! - The *sender* decides what is lost, from its own clock (`flight`), and repairs it at once.
//! - Every question is repeated until it is answered, with exponential backoff, until it is given
//!   up.
#![forbid(unsafe_code)]

pub(crate) mod finals;
mod flight;
mod forward;
pub(crate) mod incoming;
mod inquiry;
pub(crate) mod outgoing;
pub(crate) mod path;
mod received;
mod repairs;
mod silence;
mod trial;
mod untold;

pub use crate::outcome::{TransferError, TransferStats, Way, WorstPath};
pub use path::{Overtaken, PathEstimate};
pub use silence::{Silence, Slowdown};

use crate::rate::Feedback;
use crate::row::Run;

/// Exponential backoff: `base` doubled `times` times, at most `most`.
pub(crate) fn backoff(base_ns: u64, times: u32, most_ns: u64) -> u64 {
    base_ns.saturating_mul(1 << times.min(20)).min(most_ns.max(base_ns))
}

/// What to do after something happened to a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Wait for the timer, which is set.
    Wait,
    /// There is data to send.
    Data,
    /// Send a PROBE.
    Probe,
    /// Consistent replicas: everything was sent once, and the receiver has said what it has of it.
    Passed,
    /// The receiver is content.
    Done,
    /// Give up.
    Failed(TransferError),
}

/// When a control packet is taken, and when it came to this host: what it has waited between is no
/// part of a round trip.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "all are times")]
pub(crate) struct When {
    pub(crate) now_ns: u64,
    pub(crate) arrived_ns: u64,
    /// And when the rate was reduced last.
    pub(crate) slowed_ns: u64,
}

/// What a report says that is news.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Heard {
    pub(crate) feedback: Feedback,
    /// Of the lost packets, those that left before the rate was reduced last: that was the answer
    /// to what took them (RFC 9002 §7.3.2).
    pub(crate) answered: u32,
}

/// Datagrams of data that leave together.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) run: Run,
    pub(crate) important: bool,
    pub(crate) repair: bool,
}
