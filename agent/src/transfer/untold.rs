// SPDX-License-Identifier: Apache-2.0
//! Packets that no report has covered yet: the content of the next ACK.
//!
//! A report holds the state of some thousand packets, and a message has up to 2^24. So an ACK tells
//! what has changed since earlier ones, anywhere in the message: it costs what arrived, not what is
//! missing. What does not fit follows in turns, so that repeated changes do not keep other packets
//! waiting.

use std::ops::Range;

/// Packets told of before the first untold one: those of some ACKs before, which may have been
/// lost.
const RETOLD: u32 = 128;
/// Packets that one report covers at most: what fits into one whatever their states (coarse ones;
/// of exact ones half of it).
const MOST: u32 = 4_096;

/// A set of packets, and where the next report begins.
#[derive(Debug)]
pub(super) struct Untold {
    /// One bit a packet.
    words: Vec<u64>,
    packets: u32,
    count: u32,
    /// Reports go round. What lies behind this one's end comes first, and with it recent changes:
    /// packets that were sent again.
    cursor: u32,
    /// The last report found nothing behind the cursor. The next one does not look back, or
    /// repeated changes would keep the rest waiting.
    stalled: bool,
}

impl Untold {
    pub(super) fn new(packets: u32) -> Self {
        Self { words: vec![0; packets.div_ceil(64) as usize], packets, count: 0, cursor: 0, stalled: false }
    }

    /// There is news of a packet.
    pub(super) fn add(&mut self, packet: u32) {
        let Some(word) = self.words.get_mut(packet as usize / 64) else { return };
        let bit = 1 << (packet % 64);
        self.count += u32::from(*word & bit == 0);
        *word |= bit;
    }

    /// Whether there is news.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The range of the next report: from some packets before the first with news, behind the end
    /// of the report before, to the last with news that fits.
    pub(super) fn next(&self) -> Option<Range<u32>> {
        let back = if self.stalled { 0 } else { MOST - RETOLD };
        let from = self.cursor.saturating_sub(back);
        let first = self.first(from..self.packets).or_else(|| self.first(0..from))?;
        let last = self.last(first..first.saturating_add(MOST).min(self.packets))?;
        Some(first.saturating_sub(RETOLD)..last + 1)
    }

    /// A report has told of these.
    pub(super) fn told(&mut self, range: Range<u32>) {
        self.stalled = range.end <= self.cursor;
        if !self.stalled || range.end + MOST < self.cursor {
            self.cursor = range.end;
        }
        let mut from = range.start;
        while let Some(packet) = self.first(from..range.end) {
            let (word, bit) = (packet as usize / 64, packet % 64);
            // All of the word that are told of.
            let until = (range.end - (packet - bit)).min(64);
            let mask = if until == 64 { u64::MAX } else { (1 << until) - 1 } & u64::MAX << bit;
            self.count -= (self.words[word] & mask).count_ones();
            self.words[word] &= !mask;
            from = packet - bit + until;
        }
    }

    fn first(&self, within: Range<u32>) -> Option<u32> {
        let mut at = within.start;
        while at < within.end {
            let rest = self.words.get(at as usize / 64)? >> (at % 64);
            if rest != 0 {
                return Some(at + rest.trailing_zeros()).filter(|&packet| packet < within.end);
            }
            at = (at | 63) + 1;
        }
        None
    }

    fn last(&self, within: Range<u32>) -> Option<u32> {
        let mut end = within.end;
        while end > within.start {
            let at = end - 1;
            let rest = self.words.get(at as usize / 64)? << (63 - at % 64);
            if rest != 0 {
                return Some(at - rest.leading_zeros()).filter(|&packet| packet >= within.start);
            }
            end = at - at % 64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn reports_tell_of_all_news_within_one_round(
            packets in 1_u32..20_000, news in prop::collection::vec((0.0_f64..1.0, 1_u32..300), 0..40), fits in 200_u32..8_000,
        ) {
            let mut untold = Untold::new(packets);
            let mut model = BTreeSet::new();
            for (from, count) in news {
                let from = (from * f64::from(packets)) as u32;
                (from..(from + count).min(packets)).for_each(|packet| {
                    untold.add(packet);
                    model.insert(packet);
                });
                let Some(range) = untold.next() else { continue };
                prop_assert!(range.end <= packets && range.end - range.start <= MOST + RETOLD);
                prop_assert!(model.contains(&(range.end - 1)));
                // It holds as much as it holds.
                let told = range.start..range.end.min(range.start + fits);
                model.retain(|packet| !told.contains(packet));
                untold.told(told);
                prop_assert_eq!(untold.count as usize, model.len());
            }
            for _ in 0..=packets / 64 + 2 {
                let Some(range) = untold.next() else { break };
                let told = range.start..range.end.min(range.start + fits);
                model.retain(|packet| !told.contains(packet));
                untold.told(told);
            }
            prop_assert!(untold.is_empty() && model.is_empty());
        }
    }

    #[test]
    fn repairs_and_what_is_new_are_told_in_one() {
        let mut untold = Untold::new(100_000);
        (0..5_000).for_each(|packet| untold.add(packet));
        while let Some(range) = untold.next() {
            untold.told(range);
        }
        [2_000, 2_100].into_iter().chain(5_000..5_032).for_each(|packet| untold.add(packet));
        assert_eq!(untold.next(), Some(1_872..5_032));
    }

    #[test]
    fn what_changes_again_and_again_does_not_keep_the_rest_waiting() {
        let mut untold = Untold::new(100_000);
        untold.add(90_000);
        for _ in 0..3 {
            (0..32).for_each(|packet| untold.add(packet));
            let range = untold.next().expect("news");
            untold.told(range);
        }
        assert!(untold.first(32..100_000).is_none(), "the other end has been told of");
    }
}
