// SPDX-License-Identifier: Apache-2.0
//! What a driver counts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Frames of one port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortStats {
    /// Received.
    pub received: u64,
    /// Sent.
    pub sent: u64,
    /// Not sent: the interface was gone, slower than the port's rate, or refused the frame (its
    /// MTU).
    pub lost: u64,
    /// Not received: the kernel's receive buffer was full.
    pub missed: u64,
    /// Not received: bursts that cannot be split into frames ([`Refusal`](super::Refusal)), and
    /// frames longer than 9,230 bytes.
    pub refused: u64,
}

/// What a driver counts, readable while it works.
#[derive(Debug, Clone)]
pub struct Counters(pub(super) Arc<Vec<(u16, PortCounter)>>);

impl Counters {
    /// Frames by port number.
    pub fn read(&self) -> BTreeMap<u16, PortStats> {
        self.0.iter().map(|(port, counter)| (*port, counter.read())).collect()
    }

    pub(super) fn publish(&self, place: usize, stats: &PortStats) {
        self.0[place].1.publish(stats);
    }
}

#[derive(Debug, Default)]
pub(super) struct PortCounter {
    received: AtomicU64,
    sent: AtomicU64,
    lost: AtomicU64,
    missed: AtomicU64,
    refused: AtomicU64,
}

impl PortCounter {
    fn read(&self) -> PortStats {
        let Self { received, sent, lost, missed, refused } = self;
        let [received, sent, lost, missed, refused] =
            [received, sent, lost, missed, refused].map(|counter| counter.load(Ordering::Relaxed));
        PortStats { received, sent, lost, missed, refused }
    }

    fn publish(&self, stats: &PortStats) {
        self.received.store(stats.received, Ordering::Relaxed);
        self.sent.store(stats.sent, Ordering::Relaxed);
        self.lost.store(stats.lost, Ordering::Relaxed);
        self.missed.store(stats.missed, Ordering::Relaxed);
        self.refused.store(stats.refused, Ordering::Relaxed);
    }
}
