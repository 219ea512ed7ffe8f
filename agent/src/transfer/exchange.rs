// SPDX-License-Identifier: Apache-2.0
//! What a message on its way is told, and what it answers.

use super::TransferError;
use crate::rate::Feedback;
use crate::row::Run;

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

/// When a control packet is taken, and when it came to this host: what it has waited between is no part of a round trip.
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
    /// Of the lost packets, those that left before the rate was reduced last: that was the answer to what took them (RFC 9002 §7.3.2).
    pub(crate) answered: u32,
}

/// Datagrams of data that leave together.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub(crate) run: Run,
    pub(crate) important: bool,
    pub(crate) repair: bool,
}
