// SPDX-License-Identifier: Apache-2.0
//! What an egress port does with its queues, in numbers.

use std::collections::BTreeMap;

use serde::Serialize;

/// What an egress port does with its queues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortPolicy {
    /// The link's speed, bit/s.
    pub rate_bps: u64,
    /// By queue number and importance (`[less important, important]`).
    pub queues: BTreeMap<u8, [QueuePolicy; 2]>,
    /// Code point of packets that are trimmed on their way out here.
    pub trimmed_dscp: u8,
    /// What trimmed packets may take of the line; `None` for all of it.
    pub trim_cap: Option<TrimCap>,
}

/// A token bucket for what leaves the trim queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrimCap {
    /// Millionths of the line rate.
    pub share: u32,
    /// bit/s.
    pub rate_bps: u64,
    /// Bytes that may leave at once: what the trim queue holds.
    pub burst: u32,
}

impl TrimCap {
    /// The rate as `set_cap` takes it, in bytes per 1,024 µs. A cap lets something through, however
    /// slow the line.
    pub(crate) fn table_rate(self) -> u32 {
        let bytes = u128::from(self.rate_bps) * 128 / 1_000_000;
        u32::try_from(bytes.max(1)).unwrap_or(u32::MAX)
    }

    /// And back: bit/s of a rate in the table.
    pub(crate) fn rate_of_table(rate: u32) -> u64 {
        u64::from(rate) * 1_000_000 / 128
    }
}

/// Action data of `set_thresholds` but for what the whole fabric shares. Occupancies and sizes in
/// bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct QueuePolicy {
    /// ECT packets are marked CE from here.
    pub mark_at: u32,
    /// Trimmable packets are trimmed to `shallow_size` from here; less important others are
    /// dropped.
    pub shallow_at: u32,
    /// Trimmable packets are trimmed to `deep_size` from here.
    pub deep_at: u32,
    /// Everything that is not trimmed is dropped from here.
    pub drop_at: u32,
    /// Frame bytes.
    pub shallow_size: u16,
    /// Frame bytes.
    pub deep_size: u16,
    /// The trim queue takes no more from here.
    pub trim_drop_at: u32,
}
