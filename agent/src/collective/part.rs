// SPDX-License-Identifier: Apache-2.0
//! Which part of an operation a channel does.
//!
//! An operation of several channels is as many operations of one number, each at its own endpoint.
//! A channel's part of a shard is a run of whole rows, so that packets, rows and layouts are those
//! of a shard of that length. What holds for an operation (its loss bound, common precision, order
//! of additions) holds for each part. Neighbouring rows belong to one thread, and layouts have no
//! holes, which rows `i mod k` would leave.

use super::StartError;
use super::plan::Blueprint;
use std::ops::Range;

/// Ranks times channels: a message's id names its shard and its channel in ten bits.
pub(super) const MOST: u32 = 1 << 10;

/// One channel of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    channel: u16,
    channels: u16,
}

impl Part {
    /// All there is.
    pub const WHOLE: Self = Self { channel: 0, channels: 1 };

    /// What channel `channel` of `channels` does, in a group of `world` ranks.
    ///
    /// # Errors
    /// [`StartError::Channels`] where message ids do not tell so many channels and ranks apart.
    pub fn new(channel: u16, channels: u16, world: u16) -> Result<Self, StartError> {
        if channel >= channels || u32::from(channels) * u32::from(world) > MOST {
            return Err(StartError::Channels { channels, world, most: (MOST as u16) / world.max(1) });
        }
        Ok(Self { channel, channels })
    }

    /// The channel.
    pub fn channel(self) -> u16 {
        self.channel
    }

    /// How many there are.
    pub fn channels(self) -> u16 {
        self.channels
    }

    /// Another one of them.
    pub(super) fn of(self, channel: u16) -> Self {
        Self { channel, ..self }
    }

    /// The elements of a shard of `length` that are this channel's; `row` elements make a row.
    /// Shards shorter than a row belong to the first channel, so that small operations use one
    /// channel. In longer ones the first rows belong to channel 0 in shard 0, to channel 1 in shard
    /// 1, and so on: many shards of few rows keep all channels busy.
    fn range(self, shard: u16, length: usize, row: usize) -> Range<usize> {
        let (channels, rows) = (usize::from(self.channels), length.div_ceil(row.max(1)));
        let turn = if length < row { 0 } else { usize::from(shard) };
        let nth = (usize::from(self.channel) + channels - turn % channels) % channels;
        let at = |nth: usize| (rows * nth).div_ceil(channels).saturating_mul(row).min(length);
        at(nth)..at(nth + 1)
    }

    /// What is left of a plan. Shards are numbered so that each channel's have numbers of their
    /// own.
    pub(super) fn narrow(self, plan: Vec<Blueprint>, row: usize) -> Vec<Blueprint> {
        if self.channels == 1 {
            return plan;
        }
        let (mut narrowed, mut places) = (Vec::new(), Vec::new());
        for part in plan {
            let range = self.range(part.shard, part.length, row);
            places.push((!range.is_empty()).then_some(narrowed.len()));
            if range.is_empty() {
                continue;
            }
            let moved = |place: Option<super::plan::Place>| {
                place.map(|place| super::plan::Place { start: place.start + range.start, ..place })
            };
            narrowed.push(Blueprint {
                shard: part.shard * self.channels + self.channel,
                length: range.len(),
                own: moved(part.own),
                write: moved(part.write),
                // What reads a row and what writes it are of one shard, and have one range.
                after: part.after.and_then(|after| places.get(after).copied().flatten()),
                ..part
            });
        }
        narrowed
    }

    /// Whether a channel has anything to do.
    pub(super) fn is_used(self, plan: &[Blueprint], row: usize) -> bool {
        plan.iter().any(|part| !self.range(part.shard, part.length, row).is_empty())
    }
}

/// The elements of a shard of `length` that are each channel's, `row` elements a row: those of whom
/// a message is numbered `shard * channels + channel`.
pub fn channel_parts(shard: u16, length: usize, channels: u16, row: usize) -> Vec<Range<usize>> {
    (0..channels).map(|channel| Part { channel, channels }.range(shard, length, row)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Phase;
    use super::super::plan::{Place, Tensor};
    use super::*;
    use proptest::prelude::*;

    fn parts(channels: u16) -> impl Iterator<Item = Part> {
        (0..channels).map(move |channel| Part { channel, channels })
    }

    proptest! {
        #[test]
        fn channels_have_every_element_of_a_shard_once_in_whole_rows(length in 0_usize..5_000, row_log2 in 0_u32..10, shard in 0_u16..9, channels in 1_u16..9) {
            let row = 1 << row_log2;
            let mut ranges: Vec<_> = parts(channels).map(|part| part.range(shard, length, row)).filter(|range| !range.is_empty()).collect();
            ranges.sort_by_key(|range| range.start);
            let mut next = 0;
            for range in &ranges {
                prop_assert_eq!(range.start, next);
                prop_assert!(range.start % row == 0);
                prop_assert!(range.len() <= length.div_ceil(row).div_ceil(usize::from(channels)) * row);
                next = range.end;
            }
            prop_assert_eq!(next, length);
        }
    }

    #[test]
    fn small_shards_are_the_first_channels_and_single_rows_go_round() {
        let busy = |shard, length| parts(3).position(|part| !part.range(shard, length, 64).is_empty());
        assert!((0..5).all(|shard| busy(shard, 63) == Some(0)));
        assert_eq!((0..4).map(|shard| busy(shard, 64)).collect::<Vec<_>>(), [0, 1, 2, 0].map(Some));
    }

    #[test]
    fn what_waits_for_a_read_still_does_where_other_shards_are_another_channels() {
        let at = |start| Some(Place { tensor: Tensor::Output, start });
        let shard = |shard, start, after| Blueprint {
            shard,
            length: 64,
            own: at(start),
            from: Vec::new(),
            phase_in: Phase::ReduceScatter,
            to: vec![1],
            phase_out: Phase::AllGather,
            write: at(start),
            sums: false,
            after,
            origin: None,
            hop: (1, 1),
            depth: 1,
        };
        let plan = vec![shard(0, 0, None), shard(1, 64, None), shard(0, 0, Some(0)), shard(1, 64, Some(1))];
        for part in parts(2) {
            let narrowed = part.narrow(plan.clone(), 64);
            let channel = usize::from(part.channel);
            assert_eq!(narrowed.len(), 2);
            assert_eq!(narrowed[1].after, Some(0));
            assert!(
                narrowed.iter().all(|left| left.own == at(64 * channel) && left.shard == 3 * part.channel)
            );
        }
    }

    #[test]
    fn more_channels_than_message_ids_tell_apart_are_refused_by_number() {
        assert_eq!(Part::new(0, 4, 256), Ok(Part { channel: 0, channels: 4 }));
        let error = Part::new(0, 5, 256).expect_err("1,280 parts").to_string();
        assert_eq!(error, "5 channels of 256 ranks: at most 4 are possible");
    }
}
