// SPDX-License-Identifier: Apache-2.0
//! When queues start and stop to trim, from digests that come late, twice or never, and how often
//! the log says so: once in a while, with the turns between.

use std::collections::BTreeMap;

use super::trim_events::TrimEvent;

/// What a digest adds to what is known of its queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct News {
    /// Times that it started since the last news, those that no digest told of included.
    pub starts: u64,
    /// Likewise stopped.
    pub stops: u64,
}

/// How often each queue of a switch has turned, as far as is known.
///
/// [`TurnCounts::begin`] when a switch may have begun to count anew, or told others what is not
/// known here; [`TurnCounts::told`] for each digest.
#[derive(Debug, Default)]
pub(super) struct TurnCounts(BTreeMap<(u16, u8), u32>);

impl TurnCounts {
    pub(super) fn begin(&mut self) {
        self.0.clear();
    }

    /// `None` if later news of the queue, or this, came before.
    pub(super) fn told(&mut self, event: &TrimEvent) -> Option<News> {
        let alone = News { starts: event.starts.into(), stops: (!event.starts).into() };
        let Some(turns) = event.turns else { return Some(alone) };
        let Some(last) = self.0.get_mut(&(event.port, event.queue)) else {
            self.0.insert((event.port, event.queue), turns);
            return Some(alone);
        };
        // Serial numbers (RFC 1982, section 3.2).
        let since = turns.wrapping_sub(*last);
        if since == 0 || since > u32::MAX / 2 {
            return None;
        }
        *last = turns;
        // They alternate, and the last is this one.
        let (same, other) = (u64::from(since.div_ceil(2)), u64::from(since / 2));
        let (starts, stops) = if event.starts { (same, other) } else { (other, same) };
        Some(News { starts, stops })
    }
}

/// Between two lines of a queue.
const PAUSE_NS: u64 = 5_000_000_000;

/// What is to be logged of a queue: how it was left, and the turns since its line before.
pub(super) type Line = (TrimEvent, News);

/// [`Said::told`] for all news of a queue; [`Said::due`] from time to time, so that the last turn
/// is logged, too.
#[derive(Debug, Default)]
pub(super) struct Said(BTreeMap<(u16, u8), Queue>);

#[derive(Debug)]
struct Queue {
    said_ns: u64,
    waits: Option<Line>,
}

impl Said {
    /// News of a queue; what is to be logged at once.
    pub(super) fn told(&mut self, now_ns: u64, last: TrimEvent, news: News) -> Option<Line> {
        let place = (last.port, last.queue);
        let Some(queue) = self.0.get_mut(&place) else {
            self.0.insert(place, Queue { said_ns: now_ns, waits: None });
            return Some((last, news));
        };
        let (_, sum) = queue.waits.get_or_insert((last, News::default()));
        let sum = News { starts: sum.starts + news.starts, stops: sum.stops + news.stops };
        queue.waits = Some((last, sum));
        queue.due(now_ns)
    }

    /// What has waited for long enough.
    pub(super) fn due(&mut self, now_ns: u64) -> Vec<Line> {
        self.0.values_mut().filter_map(|queue| queue.due(now_ns)).collect()
    }
}

impl Queue {
    fn due(&mut self, now_ns: u64) -> Option<Line> {
        if now_ns.saturating_sub(self.said_ns) < PAUSE_NS {
            return None;
        }
        let line = self.waits.take()?;
        self.said_ns = now_ns;
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The `turns`-th turn of a queue.
    fn turn(turns: u32) -> TrimEvent {
        TrimEvent { port: 2, queue: 5, starts: turns % 2 == 1, queue_bytes: 0, turns: Some(turns) }
    }

    proptest! {
        /// Digests that come late, twice or never: what is believed in the end is the last that
        /// came, by the switch's order, and starts and stops are as many as it counted. A plain
        /// model keeps the largest number.
        #[test]
        fn the_latest_turn_decides_in_whatever_order_digests_come(
            first in prop_oneof![Just(1_u32), Just(u32::MAX - 8)],
            order in proptest::collection::vec(1_u32..30, 1..60),
        ) {
            let mut turns = TurnCounts::default();
            turns.told(&turn(first));
            let (mut trims, mut starts, mut stops, mut latest) = (true, 0, 0, 0);
            for later in order {
                let event = turn(first.wrapping_add(later));
                let news = turns.told(&event);
                prop_assert_eq!(news.is_some(), later > latest);
                if let Some(news) = news {
                    (starts, stops, trims) = (starts + news.starts, stops + news.stops, event.starts);
                }
                latest = latest.max(later);
            }
            prop_assert_eq!(trims, latest % 2 == 0);
            prop_assert_eq!((starts, stops), (u64::from(latest / 2), u64::from(latest.div_ceil(2))));
        }
    }

    #[test]
    fn a_switch_that_counts_anew_is_believed_and_one_that_does_not_count_is_taken_at_its_word() {
        let mut turns = TurnCounts::default();
        assert!(turns.told(&turn(7)).is_some());
        assert_eq!(turns.told(&turn(1)), None);
        turns.begin();
        assert_eq!(turns.told(&turn(1)), Some(News { starts: 1, stops: 0 }));
        let uncounted = TrimEvent { turns: None, ..turn(2) };
        assert_eq!(turns.told(&uncounted), Some(News { starts: 0, stops: 1 }));
        assert_eq!(turns.told(&uncounted), Some(News { starts: 0, stops: 1 }));
    }

    const SECOND: u64 = 1_000_000_000;

    fn event_at(port: u16, starts: bool) -> (TrimEvent, News) {
        let event = TrimEvent { port, queue: 5, starts, queue_bytes: 0, turns: None };
        (event, News { starts: starts.into(), stops: (!starts).into() })
    }

    #[test]
    fn a_queue_that_turns_a_hundred_times_a_second_has_a_line_in_five_seconds_and_no_turn_is_missing() {
        let mut said = Said::default();
        let mut lines = Vec::new();
        for at in 0..2_000_u64 {
            let now_ns = at * SECOND / 100;
            lines.extend(said.due(now_ns));
            let (event, news) = event_at(2, at % 2 == 0);
            lines.extend(said.told(now_ns, event, news));
        }
        lines.extend(said.due(25 * SECOND));
        assert_eq!(lines.len(), 5, "at once, and at 5, 10, 15 and 25 s: {lines:?}");
        let turns: u64 = lines.iter().map(|(_, news)| news.starts + news.stops).sum();
        assert_eq!(turns, 2_000);
        assert!(!lines[4].0.starts, "the last line tells how the queue was left");
        assert_eq!(said.due(100 * SECOND), [], "and once");
    }

    #[test]
    fn each_queue_has_lines_of_its_own() {
        let mut said = Said::default();
        for port in 1..=3 {
            let (event, news) = event_at(port, true);
            assert!(said.told(u64::from(port), event, news).is_some());
        }
    }
}
