// SPDX-License-Identifier: Apache-2.0
//! What a group counts of its operations.

use super::locks::lock;
use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

/// Totals over all operations.
#[derive(Debug, Default)]
pub(super) struct Totals {
    pub(super) operations: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) packets: AtomicU64,
    pub(super) trimmed: AtomicU64,
    pub(super) missing: AtomicU64,
    pub(super) sent: AtomicU64,
    pub(super) repaired: AtomicU64,
    pub(super) bytes_sent: AtomicU64,
    pub(super) busy_ns: AtomicU64,
    /// How long the latest operations took that may be trimmed.
    pub(super) lossy_ns: Mutex<VecDeque<u64>>,
}

/// So many durations are kept: enough for a 99th percentile.
const DURATIONS: usize = 1_024;

impl Totals {
    pub(super) fn took(&self, duration_ns: u64) {
        let mut latest = lock(&self.lossy_ns);
        if latest.len() == DURATIONS {
            latest.pop_front();
        }
        latest.push_back(duration_ns);
    }
}
