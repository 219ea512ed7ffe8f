// SPDX-License-Identifier: Apache-2.0
//! From readings of counters to what happened between them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::counters::{Count, Counter, Counters, QueueCounters};
use crate::model::QueuePlan;

/// What a counter did in an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Rate {
    /// In the interval.
    pub packets: u64,
    /// Of frames as they arrived, in the interval.
    pub bytes: u64,
    /// 1/s.
    pub packets_per_second: f64,
}

/// One queue of one port in an interval.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WatchRow {
    /// By its name in the fabric.
    pub switch: String,
    /// Egress port.
    pub port: u16,
    /// Queue number.
    pub queue: u8,
    /// The queue's name in the fabric.
    pub name: String,
    /// How long the interval was for this switch, s.
    pub seconds: f64,
    /// Waiting at the end of the interval; `None` where the target does not tell.
    pub occupancy_bytes: Option<u64>,
    /// Most that waited in the last 8 to 17 seconds in which packets came, where the program keeps that.
    pub peak_bytes: Option<u64>,
    /// Taken whole.
    pub admitted: Rate,
    /// Trimmed and taken into the trim queue.
    pub trimmed: Rate,
    /// Trimmed here and sent.
    pub trim_transmitted: Rate,
    /// Dropped for any reason.
    pub dropped: Rate,
    /// Marked CE.
    pub marked: Rate,
    /// Sent.
    pub transmitted: Rate,
}

impl WatchRow {
    /// Whether anything happened or waits.
    pub fn is_busy(&self) -> bool {
        let Self { admitted, trimmed, dropped, transmitted, .. } = self;
        self.occupancy_bytes.unwrap_or(0) > 0
            || [admitted, trimmed, dropped, transmitted].iter().any(|rate| rate.packets > 0)
    }
}

/// Remembers each switch's last reading.
#[derive(Debug)]
pub(super) struct Rates {
    queues: QueuePlan,
    last: BTreeMap<String, (u64, Counters)>,
}

impl Rates {
    pub(super) fn new(queues: QueuePlan) -> Self {
        Self { queues, last: BTreeMap::new() }
    }

    /// What happened at a switch since its last reading; nothing for the first.
    pub(super) fn update(&mut self, switch: &str, at_ns: u64, counters: Counters) -> Vec<WatchRow> {
        let Some((from_ns, before)) = self.last.insert(switch.to_owned(), (at_ns, counters.clone())) else {
            return Vec::new();
        };
        let seconds = at_ns.saturating_sub(from_ns) as f64 / 1e9;
        counters
            .queues
            .into_iter()
            .map(|(place, now)| self.row(switch, place, before.queues.get(&place), &now, seconds))
            .collect()
    }

    fn row(
        &self,
        switch: &str,
        (port, queue): (u16, u8),
        before: Option<&QueueCounters>,
        now: &QueueCounters,
        seconds: f64,
    ) -> WatchRow {
        let rate = |counters: &[Counter]| {
            let value =
                |queue: &QueueCounters, counter| queue.counts.get(&counter).copied().unwrap_or_default();
            let mut rate = Rate::default();
            for counter in counters {
                let (before, now) =
                    (before.map_or(Count::default(), |s| value(s, *counter)), value(now, *counter));
                rate.packets += increase(before.packets, now.packets);
                rate.bytes += increase(before.bytes, now.bytes);
            }
            // Two readings at one moment have no rate.
            rate.packets_per_second = if seconds > 0.0 { rate.packets as f64 / seconds } else { 0.0 };
            rate
        };
        WatchRow {
            switch: switch.to_owned(),
            port,
            queue,
            name: self.queues.name_of(queue),
            seconds,
            occupancy_bytes: now.waiting.map(|waiting| waiting.now),
            peak_bytes: now.waiting.and_then(|waiting| waiting.peak),
            admitted: rate(&[Counter::Admitted]),
            trimmed: rate(&[Counter::Trimmed]),
            trim_transmitted: rate(&[Counter::TrimTransmitted]),
            dropped: rate(&[Counter::TailDropped, Counter::SelectiveDropped, Counter::TrimDropped]),
            marked: rate(&[Counter::Marked]),
            transmitted: rate(&[Counter::Transmitted]),
        }
    }
}

/// A counter that is lower than before was reset in between, and has counted from 0 since.
fn increase(before: i64, now: i64) -> u64 {
    let increase = if now < before { now } else { now.saturating_sub(before) };
    u64::try_from(increase).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Waiting;

    fn read(transmitted: i64, tail: i64, selective: i64) -> Counters {
        let count = |packets| Count { packets, bytes: packets * 100 };
        let counters = BTreeMap::from([
            (Counter::Transmitted, count(transmitted)),
            (Counter::TailDropped, count(tail)),
            (Counter::SelectiveDropped, count(selective)),
        ]);
        let queue = QueueCounters { counts: counters, waiting: Some(Waiting { now: 7, peak: Some(9) }) };
        Counters { queues: BTreeMap::from([((3, 5), queue)]), unroutable: 0 }
    }

    #[test]
    fn rates_are_differences_over_the_time_between_readings() {
        let mut rates = Rates::new(QueuePlan::default());
        assert_eq!(rates.update("s1", 0, read(1000, 0, 0)), []);
        let rows = rates.update("s1", 500_000_000, read(1250, 2, 3));
        assert_eq!(
            (rows[0].port, rows[0].queue, rows[0].name.as_str(), rows[0].seconds),
            (3, 5, "class0", 0.5)
        );
        assert_eq!(rows[0].transmitted, Rate { packets: 250, bytes: 25_000, packets_per_second: 500.0 });
        assert_eq!(rows[0].dropped, Rate { packets: 5, bytes: 500, packets_per_second: 10.0 });
        assert_eq!(
            (rows[0].occupancy_bytes, rows[0].peak_bytes, rows[0].is_busy()),
            (Some(7), Some(9), true)
        );
    }

    #[test]
    fn a_counter_that_starts_anew_gives_what_it_has_counted_since_and_nothing_negative() {
        let mut rates = Rates::new(QueuePlan::default());
        rates.update("s1", 0, read(1000, 9, 9));
        let rows = rates.update("s1", 1_000_000_000, read(40, 0, 9));
        assert_eq!((rows[0].transmitted.packets, rows[0].dropped.packets), (40, 0));
    }

    #[test]
    fn every_switch_has_its_own_times() {
        let mut rates = Rates::new(QueuePlan::default());
        rates.update("s1", 0, read(0, 0, 0));
        assert_eq!(rates.update("s2", 1_000_000_000, read(5, 0, 0)), []);
        assert_eq!(rates.update("s1", 2_000_000_000, read(10, 0, 0))[0].transmitted.packets_per_second, 5.0);
        assert_eq!(rates.update("s1", 2_000_000_000, read(20, 0, 0))[0].transmitted.packets_per_second, 0.0);
    }
}
