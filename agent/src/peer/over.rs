// SPDX-License-Identifier: Apache-2.0
//! Messages that are over: a watermark, and how those above it ended.
//!
//! Ids are serial numbers (RFC 1982): used in ascending order, give or take those that are on their
//! way at the same time, and compared modulo 2^32. The application says below which number
//! everything is over ([`Over::retire`]), and of that only the latest endings are remembered. Where
//! it does not, old endings are kept as ranges of numbers, of which there is one where every number
//! is used. Where there are too many, the oldest is forgotten; what is said of such numbers is that
//! nothing is known, never that they were delivered.

use crate::transfer::incoming::Epitaph;
use crate::wire::Abort;
use std::collections::{BTreeMap, VecDeque};

/// Endings that are remembered above the watermark.
const REMEMBERED: usize = 256;

/// Ranges of older endings.
const RANGES: usize = 256;

/// How a message ended.
#[derive(Debug, Clone, Copy)]
pub(super) enum Ending {
    /// Well.
    Delivered(Epitaph),
    /// Not well.
    Aborted(Abort),
    /// Not well, or nobody remembers.
    Forgotten,
}

/// Messages in one direction that are over.
#[derive(Debug, Default)]
pub(super) struct Over {
    below: Option<u32>,
    endings: BTreeMap<u32, Ending>,
    order: VecDeque<u32>,
    /// Older ones: first number → (last, whether they ended well).
    ranges: BTreeMap<u32, (u32, bool)>,
    /// Nothing is known of what is below.
    forgotten: Option<u32>,
}

/// Whether serial number `a` comes before `b`.
pub(super) fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

impl Over {
    /// How a message ended; `None` for one that may still come.
    pub(super) fn ending(&self, id: u32) -> Option<Ending> {
        if let Some(&ending) = self.endings.get(&id) {
            return Some(ending);
        }
        let range = self.ranges.range(..=id).next_back().filter(|(_, (last, _))| *last >= id);
        let past = |below: Option<u32>| below.is_some_and(|below| before(id, below));
        match range {
            Some((_, (_, true))) => Some(Ending::Delivered(Epitaph::RETIRED)),
            Some((_, (_, false))) => Some(Ending::Forgotten),
            None => (past(self.below) || past(self.forgotten)).then_some(Ending::Forgotten),
        }
    }

    /// Takes note of a message's end.
    pub(super) fn end(&mut self, id: u32, ending: Ending) {
        if self.endings.insert(id, ending).is_none() {
            self.order.push_back(id);
        }
        while self.order.len() > REMEMBERED {
            let Some(oldest) = self.order.pop_front() else { return };
            let ending = self.endings.remove(&oldest);
            self.put_into_ranges(oldest, matches!(ending, Some(Ending::Delivered(_))));
        }
    }

    fn put_into_ranges(&mut self, id: u32, well: bool) {
        if self.below.is_some_and(|below| before(id, below)) {
            return;
        }
        let (mut first, mut last) = (id, id);
        if let Some((&start, &(end, kind))) = self.ranges.range(..=id).next_back()
            && kind == well
            && end.checked_add(1) >= Some(id)
        {
            (first, last) = (start, end.max(id));
        }
        if let Some(next) = id.checked_add(1)
            && let Some(&(end, kind)) = self.ranges.get(&next)
            && kind == well
        {
            self.ranges.remove(&next);
            last = end;
        }
        self.ranges.insert(first, (last, well));
        if self.ranges.len() > RANGES {
            let oldest = self.ranges.keys().copied().reduce(|a, b| if before(b, a) { b } else { a });
            let Some((last, _)) = oldest.and_then(|oldest| self.ranges.remove(&oldest)) else { return };
            if self.forgotten.is_none_or(|old| before(old, last.wrapping_add(1))) {
                self.forgotten = Some(last.wrapping_add(1));
            }
        }
    }

    /// Everything below is over.
    pub(super) fn retire(&mut self, below: u32) {
        if self.below.is_some_and(|old| !before(old, below)) {
            return;
        }
        let old = self.below.replace(below);
        // Numbers go round: what the watermark has left half their circle behind would lie in front
        // of it.
        let round = |id: u32| old.is_some_and(|old| before(id, old)) && !before(id, below);
        self.endings.retain(|&id, _| !round(id));
        let endings = &self.endings;
        self.order.retain(|id| endings.contains_key(id));
        // The latest endings are remembered for longer: the other end may not have heard of them
        // yet.
        self.ranges.retain(|_, (last, _)| !before(*last, below));
    }

    /// Endings remembered.
    pub(super) fn remembered(&self) -> usize {
        self.endings.len() + self.ranges.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Reason;

    fn may_begin(over: &Over, id: u32) -> bool {
        over.ending(id).is_none()
    }

    const ABORT: Abort = Abort { reason: Reason::Cancelled, culprit: 3 };

    #[test]
    fn what_ended_is_remembered_until_the_watermark_passes_and_never_begins_again() {
        let mut over = Over::default();
        assert!(may_begin(&over, 7));
        over.end(7, Ending::Delivered(Epitaph::default()));
        assert!(!may_begin(&over, 7) && may_begin(&over, 6) && may_begin(&over, 8));
        over.retire(8);
        assert!(
            matches!(over.ending(7), Some(Ending::Delivered(_)))
                && matches!(over.ending(6), Some(Ending::Forgotten))
        );
        assert!(!may_begin(&over, 7) && !may_begin(&over, 6) && may_begin(&over, 8));
    }

    #[test]
    fn an_abort_outlives_the_watermark() {
        let mut over = Over::default();
        over.end(7, Ending::Aborted(ABORT));
        over.retire(100);
        assert!(matches!(over.ending(7), Some(Ending::Aborted(ABORT))));
        assert!(matches!(over.ending(8), Some(Ending::Forgotten)));
    }

    #[test]
    fn ten_thousand_messages_take_no_more_memory_than_a_few() {
        let mut over = Over::default();
        for id in 0..10_000 {
            assert!(may_begin(&over, id));
            over.end(id, Ending::Aborted(ABORT));
        }
        assert!(over.remembered() <= REMEMBERED + 1);
        assert!(!may_begin(&over, 5) && may_begin(&over, 10_000));
    }

    #[test]
    fn what_waits_while_many_later_ones_end_may_still_begin() {
        let mut over = Over::default();
        for id in (0..1_000).filter(|id| id % 500 != 7) {
            over.end(id, Ending::Delivered(Epitaph::default()));
        }
        assert!(may_begin(&over, 7) && may_begin(&over, 507) && !may_begin(&over, 6) && !may_begin(&over, 8));
        assert!(over.remembered() <= REMEMBERED + 3);
    }

    #[test]
    fn what_is_forgotten_is_never_said_to_have_been_delivered() {
        let mut over = Over::default();
        for id in 0..10_000 {
            over.end(id * 4, Ending::Delivered(Epitaph::default()));
        }
        assert!(over.remembered() <= REMEMBERED + RANGES);
        assert!(matches!(over.ending(4), Some(Ending::Forgotten)) && may_begin(&over, 39_997));
        let mut over = Over::default();
        (0..1_000).for_each(|id| over.end(id, Ending::Aborted(ABORT)));
        assert!(matches!(over.ending(4), Some(Ending::Forgotten)));
    }

    #[test]
    fn numbers_go_round() {
        let mut over = Over::default();
        over.retire(u32::MAX - 1);
        over.retire(3);
        assert!(!may_begin(&over, u32::MAX) && !may_begin(&over, 2) && may_begin(&over, 3));
    }
}
