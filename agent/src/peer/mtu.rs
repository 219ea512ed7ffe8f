// SPDX-License-Identifier: Apache-2.0
//! How long packets to a peer may be: packetization-layer path MTU discovery (RFC 8899), as a
//! machine of times and sizes.
//!
//! ```text
//!  session begins ─► one question as long as both interfaces allow ─ answered ─► that is it (one round trip, beside the HELLO)
//!                       └ no answer in time ─► it again, and the usual sizes below, all at once ─► the longest that is answered
//!                                                └ between that and the shortest that is not: halves, while data flows already
//!  short packets get through a path, and long ones do not ([`paths`](crate::paths)) ─► a question of the size in use, as above
//! ```
//!
//! The network's ICMP messages are not needed, and not believed: what does not get through is seen
//! by its absence, be it a black hole or not (RFC 8899 §4.3). An answer that comes late counts
//! still, so that questions that were lost by chance cost a while of shorter packets at most.
//!
//! Sizes are those of IP packets, in bytes. One size holds for all paths of a peer: questions go
//! the way of control packets. A path that carries less than the others loses long packets, and is
//! used less for that (spraying).

use crate::config::MTU_LEAST;
use crate::rtt::backoff;

/// What control packets are kept within until more is known.
const LEAST: u16 = MTU_LEAST;
/// Sizes that paths have: jumbo frames, without and with what tunnels take off (VXLAN 50 or 70);
/// FDDI's and InfiniBand's; Ethernet, likewise; IPv6's least.
const RUNGS: [u16; 8] = [9_000, 8_900, 4_000, 1_500, 1_450, 1_400, 1_280, LEAST];
/// Rounds of questions (RFC 8899 §5.1.2: MAX_PROBES is 3 by default; here the first asks one).
const ROUNDS: u8 = 4;
/// Questions about a size between two rungs.
const TRIES: u8 = 2;
/// Halving ends here: a coordinate block of the default codec takes 96 bytes.
const GRAIN: u16 = 32;
/// A path that carried what it was suspected not to is not suspected again for so long.
const CALM_NS: u64 = 200_000_000;
/// A path that carries less than the interfaces, as far as is known, is asked for more after so
/// long: losses may have looked like that. Each time twice as long passes, at most as RFC 8899
/// §5.1.1 has it (PMTU_RAISE_TIMER).
const RETRY_NS: u64 = 1_000_000_000;
const RAISE_NS: u64 = 600_000_000_000;

#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// Nothing was asked yet.
    Idle,
    /// Asked, the longest first; what is known to get through already is `floor`.
    Round { asked: Vec<u16>, best: Option<u16>, floor: Option<u16>, times: u8 },
    /// `low` gets through, `high` does not.
    Halving { low: u16, high: u16, times: u8 },
    /// Nothing to find out.
    Done,
}

/// What is known of the way to a peer.
#[derive(Debug)]
pub(super) struct PathMtu {
    /// This rank's interfaces; `None`: nothing is asked, and everything fits.
    own: Option<u16>,
    /// The peer's, where it has told.
    told: Option<u16>,
    /// What data is made to fit, where that is known.
    size: Option<u16>,
    /// Something of the least size, or longer, was answered.
    proven: bool,
    /// The last search ended without any answer, and there has been none since.
    too_small: bool,
    stage: Stage,
    /// Of the questions since the latest doubt: answers to older ones say nothing.
    sequence: u32,
    /// To be asked.
    due: Vec<u16>,
    timer_ns: Option<u64>,
    calm_until_ns: u64,
    raise_ns: u64,
    /// Searches that found less than the interfaces carry, one after the other.
    raises: u32,
}

impl PathMtu {
    pub(super) fn new(own: Option<u16>) -> Self {
        Self {
            own: own.map(|own| own.max(LEAST)),
            told: None,
            size: None,
            proven: false,
            too_small: false,
            stage: Stage::Idle,
            sequence: 0,
            due: Vec::new(),
            timer_ns: None,
            calm_until_ns: 0,
            raise_ns: 0,
            raises: 0,
        }
    }

    /// The peer is another one, or may be somewhere else.
    pub(super) fn forget(&mut self) {
        // Sequence numbers go on, so that answers of before are none.
        let Self { own, sequence, .. } = *self;
        *self = Self { sequence, ..Self::new(own) };
    }

    /// Of this rank's interfaces.
    pub(super) fn own(&self) -> Option<u16> {
        self.own
    }

    /// The longest that there may be.
    fn most(&self) -> Option<u16> {
        Some(self.own?.min(self.told.unwrap_or(u16::MAX)))
    }

    /// Whether data may leave: it is known how long its packets may be.
    pub(super) fn is_settled(&self) -> bool {
        self.own.is_none() || self.size.is_some()
    }

    /// What packets have to fit, where they have to: the least, until more is known.
    pub(super) fn size(&self) -> Option<u16> {
        self.own.map(|_| self.size.unwrap_or(LEAST))
    }

    /// Whether not even the least gets through, as far as is known.
    pub(super) fn is_too_small(&self) -> bool {
        self.too_small
    }

    /// Number of the questions that are due.
    pub(super) fn sequence(&self) -> u32 {
        self.sequence
    }

    /// Sizes of questions that are due.
    pub(super) fn take_due(&mut self) -> Vec<u16> {
        std::mem::take(&mut self.due)
    }

    /// When to call [`Self::on_timeout`].
    pub(super) fn timer_ns(&self) -> Option<u64> {
        self.timer_ns
    }

    /// Begins to find out, where that has not begun; or asks for more, where that is due.
    /// `wait_ns`: for an answer to the first question.
    pub(super) fn begin(&mut self, now_ns: u64, wait_ns: u64) {
        let Some(most) = self.most() else { return };
        match self.stage {
            Stage::Idle => self.ask(now_ns, most, None, wait_ns),
            Stage::Done if self.size.is_some_and(|size| size < most) && now_ns >= self.raise_ns => {
                self.ask(now_ns, most, self.size.filter(|_| self.proven), wait_ns);
            }
            _ => {}
        }
    }

    /// Data of this size may not get through any more.
    pub(super) fn suspect(&mut self, now_ns: u64, wait_ns: u64) {
        if let (Stage::Done, Some(size)) = (&self.stage, self.size)
            && now_ns >= self.calm_until_ns
            && self.own.is_some()
        {
            self.calm_until_ns = now_ns.saturating_add(CALM_NS);
            // Where nothing was answered the network may have been away, and be back.
            let size = if std::mem::take(&mut self.proven) { size } else { self.most().unwrap_or(size) };
            self.ask(now_ns, size, None, wait_ns);
        }
    }

    fn ask(&mut self, now_ns: u64, size: u16, floor: Option<u16>, wait_ns: u64) {
        self.sequence = self.sequence.wrapping_add(1);
        self.stage = Stage::Round { asked: vec![size], best: None, floor, times: 0 };
        self.due = vec![size];
        self.timer_ns = Some(now_ns.saturating_add(wait_ns));
    }

    /// The peer's interfaces carry so much; 0: it does not say.
    pub(super) fn told(&mut self, now_ns: u64, mtu: u16, wait_ns: u64) {
        if mtu > 0 && self.own.is_some() {
            self.told = Some(mtu.max(LEAST));
            self.lower(now_ns, wait_ns);
        }
    }

    /// This rank's interfaces carry no more than that.
    pub(super) fn refused(&mut self, now_ns: u64, mtu: u16, wait_ns: u64) {
        if let Some(own) = self.own.filter(|&own| mtu < own) {
            self.own = Some(mtu.max(LEAST).min(own));
            self.lower(now_ns, wait_ns);
        }
    }

    /// An interface is known to carry less than was thought.
    fn lower(&mut self, now_ns: u64, wait_ns: u64) {
        let Some(most) = self.most() else { return };
        self.size = self.size.map(|size| size.min(most));
        match &self.stage {
            Stage::Round { asked, floor, .. } if asked.first().is_some_and(|&first| first > most) => {
                let floor = floor.map(|floor| floor.min(most));
                self.ask(now_ns, most, floor.filter(|&floor| floor < most), wait_ns);
            }
            Stage::Halving { high, .. } if *high > most => self.ask(now_ns, most, None, wait_ns),
            _ => {}
        }
    }

    /// A question has arrived at the peer.
    pub(super) fn on_answer(&mut self, now_ns: u64, sequence: u32, size: u16, wait_ns: u64) {
        if sequence != self.sequence || self.most().is_none_or(|most| size > most) || size < LEAST {
            return;
        }
        (self.proven, self.too_small) = (true, false);
        match &mut self.stage {
            Stage::Round { asked, best, floor, .. } => {
                let longest = best.unwrap_or(0).max(size).max(floor.unwrap_or(0));
                *best = Some(longest);
                let all = asked.first().is_some_and(|&first| longest >= first);
                // What gets through is no proof that longer packets do not: that takes all rounds.
                self.size = self.size.max(*best);
                if all {
                    self.done(now_ns);
                }
            }
            Stage::Halving { low, high, .. } if size > *low => {
                let (low, high) = (size, (*high).max(size));
                self.halve(now_ns, low, high, wait_ns);
            }
            Stage::Done if self.size.is_none_or(|known| size > known) => self.size = Some(size),
            _ => {}
        }
    }

    /// The timer has expired. `wait_ns`: how long to wait for an answer after so many waits in
    /// vain.
    pub(super) fn on_timeout(&mut self, now_ns: u64, wait_ns: impl Fn(u32) -> u64) {
        self.timer_ns = None;
        match &mut self.stage {
            Stage::Round { asked, best, floor, times } => {
                *times += 1;
                if *times == 1 {
                    let first = asked.first().copied().unwrap_or(LEAST);
                    let least = floor.unwrap_or(0);
                    asked.extend(RUNGS.into_iter().filter(|&rung| rung < first && rung > least));
                }
                if *times < ROUNDS {
                    let least = best.unwrap_or(0);
                    self.due = asked.iter().copied().filter(|&size| size > least).collect();
                    self.timer_ns = Some(now_ns.saturating_add(wait_ns((*times).into())));
                    return;
                }
                let low = best.or(*floor);
                let high = asked.iter().copied().filter(|&size| size > low.unwrap_or(0)).min();
                if let (Some(low), Some(high)) = (low, high) {
                    self.halve(now_ns, low, high, wait_ns(0));
                } else {
                    self.size = low.or(Some(LEAST));
                    self.done(now_ns);
                }
            }
            Stage::Halving { low, high, times } => {
                *times += 1;
                let (low, middle) = (*low, middle(*low, *high));
                if *times < TRIES {
                    self.due = vec![middle];
                    self.timer_ns = Some(now_ns.saturating_add(wait_ns((*times).into())));
                } else {
                    self.halve(now_ns, low, middle, wait_ns(0));
                }
            }
            Stage::Idle | Stage::Done => {}
        }
    }

    /// Between these is what gets through.
    fn halve(&mut self, now_ns: u64, low: u16, high: u16, wait_ns: u64) {
        self.size = Some(low);
        if high.saturating_sub(low) <= GRAIN {
            return self.done(now_ns);
        }
        self.stage = Stage::Halving { low, high, times: 0 };
        self.due = vec![middle(low, high)];
        self.timer_ns = Some(now_ns.saturating_add(wait_ns));
    }

    fn done(&mut self, now_ns: u64) {
        self.stage = Stage::Done;
        self.too_small = !self.proven;
        (self.timer_ns, self.due) = (None, Vec::new());
        let less = self.proven && self.size < self.most();
        self.raises = if less { self.raises.saturating_add(1) } else { 0 };
        self.raise_ns = now_ns.saturating_add(backoff(RETRY_NS, self.raises.saturating_sub(1), RAISE_NS));
    }
}

/// Halfway; even, as lengths of packets are.
fn middle(low: u16, high: u16) -> u16 {
    (low + (high - low) / 2) & !1
}

#[cfg(test)]
#[path = "mtu_tests.rs"]
mod tests;
