// SPDX-License-Identifier: Apache-2.0
//! What a queue has counted.

use std::fmt;

/// Why a packet did not stay in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DropCause {
    /// The queue's limit.
    QueueLimit,
    /// The queue's dynamic threshold in the shared buffer.
    DynamicThreshold,
    /// The shared buffer was full.
    BufferFull,
    /// The port was down, or went down while the packet waited.
    PortDown,
    /// A program was loaded while the packet waited.
    ProgramLoaded,
}

impl DropCause {
    /// All causes, in the order of [`QueueStats::drops`].
    pub const ALL: [Self; 5] =
        [Self::QueueLimit, Self::DynamicThreshold, Self::BufferFull, Self::PortDown, Self::ProgramLoaded];

    /// The cause in one word, as labels and JSON carry it.
    pub fn name(self) -> &'static str {
        match self {
            Self::QueueLimit => "queue_limit",
            Self::DynamicThreshold => "dynamic_threshold",
            Self::BufferFull => "buffer_full",
            Self::PortDown => "port_down",
            Self::ProgramLoaded => "program_loaded",
        }
    }
}

impl fmt::Display for DropCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Packets and their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Count {
    pub(super) fn add(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }
}

/// Counters of one queue. `offered = enqueued + dropped` and `enqueued = dequeued + resident`, in
/// packets and in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct QueueStats {
    /// Packets taken in.
    pub enqueued_packets: u64,
    /// Their bytes.
    pub enqueued_bytes: u64,
    /// Packets served.
    pub dequeued_packets: u64,
    /// Their bytes.
    pub dequeued_bytes: u64,
    /// Packets dropped, for whatever cause.
    pub dropped_packets: u64,
    /// Their bytes.
    pub dropped_bytes: u64,
    /// Those by cause, in [`DropCause::ALL`]'s order.
    pub drops: [Count; DropCause::ALL.len()],
    /// Most bytes that ever waited.
    pub watermark_bytes: u64,
    /// Most packets that ever waited.
    pub watermark_packets: u64,
}

impl QueueStats {
    /// Bytes waiting.
    pub fn depth_bytes(&self) -> u64 {
        self.enqueued_bytes - self.dequeued_bytes
    }

    /// Packets waiting.
    pub fn depth_packets(&self) -> u64 {
        self.enqueued_packets - self.dequeued_packets
    }

    /// What was dropped for one cause.
    pub fn dropped(&self, cause: DropCause) -> Count {
        self.drops[cause as usize]
    }

    pub(super) fn enqueue(&mut self, length: u32) {
        self.enqueued_packets += 1;
        self.enqueued_bytes += u64::from(length);
        self.watermark_bytes = self.watermark_bytes.max(self.depth_bytes());
        self.watermark_packets = self.watermark_packets.max(self.depth_packets());
    }

    pub(super) fn dequeue(&mut self, length: u32) {
        self.dequeued_packets += 1;
        self.dequeued_bytes += u64::from(length);
    }

    /// A packet that was not taken in.
    pub(super) fn refuse(&mut self, length: u32, cause: DropCause) {
        self.dropped_packets += 1;
        self.dropped_bytes += u64::from(length);
        self.drops[cause as usize].add(length);
    }

    /// A packet that waited counts as one that never came in.
    pub(super) fn discard(&mut self, length: u32, cause: DropCause) {
        self.enqueued_packets -= 1;
        self.enqueued_bytes -= u64::from(length);
        self.refuse(length, cause);
    }
}
