// SPDX-License-Identifier: Apache-2.0
//! From readings of counters to what happened between them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::counters::Counters;
use crate::model::Fabric;
use crate::show::{self, CounterRow};

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

/// Remembers each switch's last reading.
#[derive(Debug, Default)]
pub(super) struct Rates(BTreeMap<String, (u64, Counters)>);

impl Rates {
    /// What happened at a switch since its last reading; nothing for the first.
    pub(super) fn update(
        &mut self,
        fabric: &Fabric,
        switch: &str,
        at_ns: u64,
        now: Counters,
    ) -> Vec<CounterRow<Rate>> {
        let last = self.0.insert(switch.to_owned(), (at_ns, now));
        let (Some((from_ns, before)), Some((_, now))) = (last, self.0.get(switch)) else {
            return Vec::new();
        };
        let seconds = at_ns.saturating_sub(from_ns) as f64 / 1e9;
        show::counter_rows(fabric, switch, now, |place, counter, now| {
            let before = before.queues.get(&place).and_then(|queue| queue.counts.get(counter));
            let before = before.unwrap_or_default();
            let packets = increase(before.packets, now.packets);
            // Two readings at one moment have no rate.
            let packets_per_second = if seconds > 0.0 { packets as f64 / seconds } else { 0.0 };
            Some(Rate { packets, bytes: increase(before.bytes, now.bytes), packets_per_second })
        })
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
    use crate::counters::{Count, Counter, QueueCounters, Waiting};

    fn read(transmitted: i64, tail: i64) -> Counters {
        let count = |packets| Count { packets, bytes: packets * 100 };
        let held = [(Counter::Transmitted, count(transmitted)), (Counter::TailDropped, count(tail))];
        let counts = held.into_iter().collect();
        let queue = QueueCounters { counts, waiting: Some(Waiting { now: 7, peak: Some(9) }) };
        Counters { queues: BTreeMap::from([((3, 5), queue)]), ..Counters::default() }
    }

    fn fabric() -> Fabric {
        let text = include_str!("../../../examples/fabrics/single-switch.yaml");
        Fabric::from_yaml(text, "fabric.yaml").unwrap()
    }

    #[test]
    fn rates_are_differences_over_the_time_between_readings_of_a_switch() {
        let (fabric, mut rates) = (fabric(), Rates::default());
        assert_eq!(rates.update(&fabric, "s1", 0, read(1000, 0)), []);
        let rows = rates.update(&fabric, "s1", 500_000_000, read(1250, 2));
        assert_eq!((rows[0].port, rows[0].queue, rows[0].name.as_str()), (Some(3), Some(5), "class0"));
        let rate = Rate { packets: 250, bytes: 25_000, packets_per_second: 500.0 };
        assert_eq!(rows[0].counters["transmitted"], rate);
        assert_eq!(rows[0].counters["tail_dropped"].packets_per_second, 4.0);
        assert_eq!((rows[0].occupancy_bytes, rows[0].peak_bytes), (Some(7), Some(9)));
        // Another switch has its own times, and one moment has no rate.
        assert_eq!(rates.update(&fabric, "s2", 1_000_000_000, read(5, 0)), []);
        let rows = rates.update(&fabric, "s1", 500_000_000, read(1260, 2));
        assert_eq!(rows[0].counters["transmitted"].packets_per_second, 0.0);
    }

    #[test]
    fn a_counter_that_starts_anew_gives_what_it_has_counted_since_and_nothing_negative() {
        let (fabric, mut rates) = (fabric(), Rates::default());
        rates.update(&fabric, "s1", 0, read(1000, 9));
        let rows = rates.update(&fabric, "s1", 1_000_000_000, read(40, 0));
        let packets = ["transmitted", "tail_dropped"].map(|counter| rows[0].counters[counter].packets);
        assert_eq!(packets, [40, 0]);
    }
}
