// SPDX-License-Identifier: Apache-2.0
//! A queue's starts and stops of trimming, from digests that come late, twice, or never.

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
/// [`Turns::begin`] when a switch may have begun to count anew, or told others what is not known here; [`Turns::told`] for each digest.
#[derive(Debug, Default)]
pub(super) struct Turns(BTreeMap<(u16, u8), u32>);

impl Turns {
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The `turns`-th turn of a queue.
    fn turn(turns: u32) -> TrimEvent {
        TrimEvent { port: 2, queue: 5, starts: turns % 2 == 1, queue_bytes: 0, turns: Some(turns) }
    }

    proptest! {
        /// Digests that come late, twice or never: what is believed in the end is the last that came, by the switch's order, and starts and
        /// stops are as many as it counted. A plain model keeps the largest number.
        #[test]
        fn the_latest_turn_decides_in_whatever_order_digests_come(
            first in prop_oneof![Just(1_u32), Just(u32::MAX - 8)],
            order in proptest::collection::vec(1_u32..30, 1..60),
        ) {
            let mut turns = Turns::default();
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
        let mut turns = Turns::default();
        assert!(turns.told(&turn(7)).is_some());
        assert_eq!(turns.told(&turn(1)), None);
        turns.begin();
        assert_eq!(turns.told(&turn(1)), Some(News { starts: 1, stops: 0 }));
        let uncounted = TrimEvent { turns: None, ..turn(2) };
        assert_eq!(turns.told(&uncounted), Some(News { starts: 0, stops: 1 }));
        assert_eq!(turns.told(&uncounted), Some(News { starts: 0, stops: 1 }));
    }
}
