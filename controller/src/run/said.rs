// SPDX-License-Identifier: Apache-2.0
//! How often the log has a queue that starts and stops to trim: once in a while, with the turns between.

use std::collections::BTreeMap;

use super::trim_events::TrimEvent;
use super::turns::News;

/// Between two lines of a queue.
const PAUSE_NS: u64 = 5_000_000_000;

/// What is to be logged of a queue: how it was left, and the turns since its line before.
pub(super) type Line = (TrimEvent, News);

/// [`Said::told`] for all news of a queue; [`Said::due`] from time to time, so that the last turn is logged, too.
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
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn turn(port: u16, starts: bool) -> (TrimEvent, News) {
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
            let (event, news) = turn(2, at % 2 == 0);
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
            let (event, news) = turn(port, true);
            assert!(said.told(u64::from(port), event, news).is_some());
        }
    }
}
