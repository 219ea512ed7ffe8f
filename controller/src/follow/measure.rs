// SPDX-License-Identifier: Apache-2.0
//! From readings of counters to what ports were offered in a window, and what became of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::counters::{Counter, Counters, QueueCounters};
use crate::model::QueuePlan;

/// What a port was offered in a window, as its counters tell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// `switch:port`.
    pub port: String,
    /// Of the window.
    pub seconds: f64,
    /// Trimmable classes' offered load in shares of the line rate, averaged over bytes: what a byte met, not what a second did.
    pub load: f64,
    /// By class: shares of the offered bytes.
    pub shares: Vec<f64>,
    /// Bytes of a mean frame.
    pub mean_packet: f64,
    /// Offered packets.
    pub packets: u64,
    /// Of these, the share that found no room: trimmed, or dropped.
    pub refused: f64,
    /// Of these, the share whose trimmed rest was dropped.
    pub trim_dropped: f64,
    /// Packets that arrive together, so that the model refuses as many; absent where too few were refused to tell.
    pub burst: Option<u64>,
    /// Most bytes that the trim queue held; absent where the switch does not tell.
    #[serde(default)]
    pub trim_peak: Option<u64>,
}

/// Counters of a port's layer classes, or differences of them.
#[derive(Debug, Clone, Default, PartialEq)]
struct Counts {
    /// By class: offered bytes.
    bytes: Vec<u64>,
    packets: u64,
    refused: u64,
    trim_dropped: u64,
}

impl Counts {
    fn of(read: &Counters, port: u16, classes: &[u8]) -> Self {
        let mut counts = Self::default();
        for queue in classes {
            let found = read.queues.get(&(port, *queue));
            let sum = |counters: &[Counter]| found.map_or([0; 2], |queue| total(queue, counters));
            let [refused, refused_bytes] = sum(&[
                Counter::Trimmed,
                Counter::TrimDropped,
                Counter::SelectiveDropped,
                Counter::TailDropped,
            ]);
            let [admitted, admitted_bytes] = sum(&[Counter::Admitted]);
            counts.bytes.push(admitted_bytes.saturating_add(refused_bytes));
            counts.packets = counts.packets.saturating_add(admitted).saturating_add(refused);
            counts.refused = counts.refused.saturating_add(refused);
            counts.trim_dropped = counts.trim_dropped.saturating_add(sum(&[Counter::TrimDropped])[0]);
        }
        counts
    }

    /// `None` where a counter is lower than before: the switch has started anew in between.
    fn since(&self, before: &Self) -> Option<Self> {
        let bytes = self.bytes.iter().zip(&before.bytes).map(|(now, before)| now.checked_sub(*before));
        Some(Self {
            bytes: bytes.collect::<Option<_>>()?,
            packets: self.packets.checked_sub(before.packets)?,
            refused: self.refused.checked_sub(before.refused)?,
            trim_dropped: self.trim_dropped.checked_sub(before.trim_dropped)?,
        })
    }
}

/// A switch may tell any number.
fn sum(values: &[u64]) -> u64 {
    values.iter().fold(0, |sum, value| sum.saturating_add(*value))
}

/// Packets and bytes of some counters.
fn total(queue: &QueueCounters, counters: &[Counter]) -> [u64; 2] {
    let unsigned = |value: i64| u64::try_from(value).unwrap_or(0);
    let counts = counters.iter().filter_map(|counter| queue.counts.get(counter));
    counts.fold([0, 0], |[packets, bytes], count| {
        [packets.saturating_add(unsigned(count.packets)), bytes.saturating_add(unsigned(count.bytes))]
    })
}

/// One port's window.
#[derive(Debug, Default)]
pub(super) struct Window {
    last: Option<(u64, Counts)>,
    sum: Counts,
    nanoseconds: u64,
    /// Σ load × bytes.
    load_bytes: f64,
    /// Bytes.
    trim_peak: Option<u64>,
}

impl Window {
    /// Takes what was counted up to `now`.
    pub(super) fn add(&mut self, now: u64, read: &Counters, port: u16, (rate_bps, plan): (u64, &QueuePlan)) {
        let classes = &plan.classes;
        let waited = read.queues.get(&(port, plan.trimmed)).and_then(|queue| queue.waiting);
        self.trim_peak = self.trim_peak.max(waited.and_then(|waiting| waiting.peak));
        let counts = Counts::of(read, port, classes);
        let before = self.last.replace((now, counts.clone()));
        let Some((from, before)) = before.filter(|(from, _)| *from < now) else { return };
        let Some(more) = counts.since(&before) else { return };
        let bytes = sum(&more.bytes);
        let time = now - from;
        self.nanoseconds = self.nanoseconds.saturating_add(time);
        let load = bytes as f64 * 8e9 / (time as f64 * rate_bps.max(1) as f64);
        self.load_bytes += load * bytes as f64;
        self.sum.bytes.resize(classes.len(), 0);
        for (sum, more) in self.sum.bytes.iter_mut().zip(&more.bytes) {
            *sum = sum.saturating_add(*more);
        }
        self.sum.packets = self.sum.packets.saturating_add(more.packets);
        self.sum.refused = self.sum.refused.saturating_add(more.refused);
        self.sum.trim_dropped = self.sum.trim_dropped.saturating_add(more.trim_dropped);
    }

    /// Packets offered, refused, and dropped though they were trimmed.
    pub(super) fn packets(&self) -> [u64; 3] {
        [self.sum.packets, self.sum.refused, self.sum.trim_dropped]
    }

    /// What it comes to; nothing where nothing was offered.
    pub(super) fn measured(&self, port: String) -> Option<Measured> {
        let [packets, refused, trim_dropped] = self.packets();
        let bytes = sum(&self.sum.bytes);
        if packets == 0 || bytes == 0 {
            return None;
        }
        let share = |count: u64| count as f64 / packets as f64;
        Some(Measured {
            port,
            seconds: self.nanoseconds as f64 / 1e9,
            load: self.load_bytes / bytes as f64,
            shares: self.sum.bytes.iter().map(|class| *class as f64 / bytes as f64).collect(),
            mean_packet: bytes as f64 / packets as f64,
            packets,
            refused: share(refused),
            trim_dropped: share(trim_dropped),
            burst: None,
            trim_peak: self.trim_peak,
        })
    }

    /// Begins another one; what was counted last stays known.
    pub(super) fn begin(&mut self) {
        let last = self.last.take();
        *self = Self { last, ..Self::default() };
    }
}

/// The port that tells most: the one that refused most packets, else the one that was offered most.
pub(super) fn worst(windows: &BTreeMap<(String, u16), Window>) -> Option<Measured> {
    let most = windows.iter().max_by_key(|(_, window)| {
        let [packets, refused, _] = window.packets();
        (refused, packets)
    });
    most.and_then(|((switch, port), window)| window.measured(format!("{switch}:{port}")))
}
