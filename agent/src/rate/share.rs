// SPDX-License-Identifier: Apache-2.0
//! A sender's part of the receiver's link, from what the receiver tells: how many send to it.

use super::Rate;
use super::round::Round;
use std::num::NonZeroU16;

/// What a sender makes of the number that it is told.
///
/// The number is the receiver's word about its own link. Other links may be slower, so it is no
/// rate to send at, but one to come back to. Rounds without congestion give back half of what is
/// missing. Trims, marks and losses reduce as ever, and congestion below it makes it count for
/// less. A false number makes the receiver's own senders as slow as algorithms get, or as fast as
/// the line.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Share {
    senders: Option<NonZeroU16>,
    /// As much of the part as is believed to be free, bit/s; 0 where nothing was told.
    believed_bps: f64,
}

/// Congestion below this part of the believed share is not caused by senders to the same receiver.
const BELOW: f64 = 0.9;
/// What a round without congestion gives back of what is missing of the belief.
const REGAINED: f64 = 0.1;

impl Share {
    /// Takes what a report tells. When others have left, what they had is the rest's in proportion,
    /// at once: slow flows' rounds are longer than that may wait.
    pub(super) fn told(&mut self, senders: Option<NonZeroU16>, rate: &mut Rate) {
        let Some(now) = senders else { return };
        if self.senders == senders {
            return;
        }
        let before = self.senders.replace(now).unwrap_or(now);
        let part_bps = self.part_bps(rate);
        self.believed_bps = part_bps;
        let left_bps = (rate.bps * f64::from(before.get()) / f64::from(now.get())).min(part_bps);
        rate.set(rate.bps.max(left_bps));
    }

    /// An equal part of the line, bit/s; `None` where nothing was told.
    pub(super) fn told_bps(&self, rate: &Rate) -> Option<f64> {
        self.senders.map(|senders| rate.line_bps / f64::from(senders.get()))
    }

    fn part_bps(&self, rate: &Rate) -> f64 {
        self.told_bps(rate).unwrap_or(0.0)
    }

    /// What a round without congestion adds at least, bit/s.
    pub(super) fn on_calm(&mut self, round: &Round, rate: &Rate) -> f64 {
        let increase = rate.recovery(round, self.believed_bps);
        let missing_bps = self.part_bps(rate) - self.believed_bps;
        self.believed_bps += missing_bps * (1.0 - (1.0 - REGAINED).powf(round.increase_weight));
        increase
    }

    /// A round with congestion, after the algorithm's own reduction from `before_bps`. `repaired`:
    /// what is trimmed is sent again.
    pub(super) fn on_congestion(&mut self, round: &Round, before_bps: f64, repaired: bool, rate: &mut Rate) {
        if self.senders.is_none() {
            return;
        }
        if before_bps < BELOW * self.believed_bps {
            self.believed_bps = f64::midpoint(self.believed_bps, before_bps);
        }
        // Who has more than its part gives it back. Where trims are accepted that would only take
        // time: a trimmed packet has arrived.
        if repaired && round.trimmed > 0.0 {
            rate.set(rate.bps.min(self.part_bps(rate)));
        }
    }
}
