// SPDX-License-Identifier: Apache-2.0
//! Which losses mean congestion. Links with bit errors lose packets at any rate, and a slower
//! sender loses as many of a hundred.

use super::round::Round;
use super::{PathModel, Rate};
use std::num::NonZeroU16;

/// Separates losses of queues from random ones, by what comes with them.
///
/// - **A path that trims** loses packets to a queue only if its trim queue is full. Then half of
///   what arrives is trimmed, or whole packets wait longer than in queues that trim.
/// - **A queue that drops** is full, and what arrives has waited in it or is marked (TCP Veno, Fu
///   and Liew, JSAC 2003, separates by the queue as well). All of its losses count.
/// - **More than the part.** A sender with more than its part of the receiver's line may lose
///   packets there, from a queue too short to see. All of these losses count, too.
/// - **Neither.** Few losses are the link's (BBR tolerates 2 %: draft-ietf-ccwg-bbr, `LossThresh`).
///   More start a *trial* at half the rate (as PCC, Dong et al., NSDI 2015, tries rates). What is
///   lost at half the rate, the rate does not lose: this share counts as random from then on, and
///   the rate comes back if that explains what was lost before.
#[derive(Debug, Clone)]
pub(super) struct Losses {
    /// Packets have met a queue if they waited for longer than this, ns: where queues drop, and
    /// where they trim.
    queued_ns: f64,
    trim_queued_ns: f64,
    /// When the path trimmed last.
    trimmed_ns: Option<u64>,
    senders: Option<NonZeroU16>,
    /// Share of packets that is lost, over many rounds without a queue.
    lost: f64,
    /// Share that is lost at random, as a trial found.
    random: f64,
    trial: Option<Trial>,
}

/// Half the rate, to see what is lost at it.
#[derive(Debug, Clone, Copy)]
struct Trial {
    before_bps: f64,
    /// Of the round for which it began.
    cause_packets: f64,
    cause_lost: f64,
    packets: f64,
    lost: f64,
}

/// What an algorithm is told of a round.
#[derive(Debug, Clone, Copy)]
pub(super) struct Judged {
    /// Without the losses that say nothing of congestion.
    pub(super) round: Round,
    /// A trial begins: reports of packets that left before say nothing of it.
    pub(super) trial: bool,
}

/// A queue that drops delays by more than this share of the trim delay.
const QUEUED: f64 = 1.0 / 8.0;
/// Queues that trim delay whole packets by at most so many trim delays, as `transfer/path.rs` waits
/// for.
const TRIM_QUEUES: f64 = 4.0;
/// A path trims if it did within this time, as long as a least round trip is remembered.
const TRIMS_NS: u64 = 10_000_000_000;
/// Trim queues may be full where so much of what arrives is trimmed.
const SWAMPED: f64 = 0.5;
/// A share without a queue that needs no trial.
const TOLERATED: f64 = 0.03;
/// Or so much beyond what a trial found, of that.
const BEYOND: f64 = 1.5;
/// A round that loses as large a share, and so many packets, beyond what is random, starts a trial
/// at once.
const BURST: (f64, f64) = (0.1, 3.0);
/// Rounds that lose more than this are congested whatever else they say: at twice what a limiter
/// without a queue (a policer) lets pass it drops half, and at half the rate nothing.
const MOST: f64 = 0.5;
/// No trial finds a larger share random: with as much lost at half the rate, a limiter may lose it
/// still.
const MOST_RANDOM: f64 = 0.3;
/// Less than this is not remembered as random.
const LEAST: f64 = 0.02;
/// Packets of a trial.
const TRIAL_PACKETS: f64 = 64.0;
/// Weight of the newest round in the share that is lost.
const GAIN: f64 = 1.0 / 16.0;

impl Losses {
    pub(super) fn new(path: &PathModel) -> Self {
        let (trim_delay_ns, jitter_ns) = (path.trim_delay_ns as f64, path.host_jitter_ns as f64);
        Self {
            queued_ns: QUEUED * trim_delay_ns + jitter_ns,
            trim_queued_ns: TRIM_QUEUES * trim_delay_ns + jitter_ns,
            trimmed_ns: None,
            senders: None,
            lost: 0.0,
            random: 0.0,
            trial: None,
        }
    }

    /// Takes how many send to the receiver, if that is told.
    pub(super) fn told(&mut self, senders: Option<NonZeroU16>) {
        self.senders = senders.or(self.senders);
    }

    /// Whether the path has trimmed of late.
    pub(super) fn trims(&self, now_ns: u64) -> bool {
        self.trimmed_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < TRIMS_NS)
    }

    /// Takes a round. Trials change `rate`.
    pub(super) fn judge(&mut self, now_ns: u64, round: &Round, rate: &mut Rate) -> Judged {
        if round.trimmed > 0.0 {
            self.trimmed_ns = Some(now_ns);
        }
        let trims = self.trims(now_ns);
        if self.met_queue(round, trims) || (!trims && self.has_more_than_its_part(rate)) {
            return Judged { round: self.beyond_random(round), trial: false };
        }
        let gain = (GAIN * round.weight).min(1.0);
        self.lost = (1.0 - gain) * self.lost + gain * (round.lost / round.packets).min(1.0);
        self.random = self.random.min(2.0 * self.lost);
        if self.random < LEAST {
            self.random = 0.0;
        }
        let beyond = self.unexplained(round.packets, round.lost);
        if round.lost > usual(MOST, round.packets) {
            return Judged { round: self.beyond_random(round), trial: false };
        }
        let none = Judged { round: with(round, 0.0, 0.0), trial: false };
        if trims && self.lost <= MOST {
            return none;
        }
        if let Some(trial) = &mut self.trial {
            (trial.packets, trial.lost) = (trial.packets + round.packets, trial.lost + round.lost);
            if trial.packets >= TRIAL_PACKETS {
                self.end_trial(rate);
            }
            return none;
        }
        let burst = beyond >= BURST.0 * round.packets && beyond >= BURST.1;
        let trial = burst || self.lost > TOLERATED + BEYOND * self.random;
        if trial {
            self.begin_trial(round, rate);
        }
        Judged { trial, ..none }
    }

    /// Without a round trip nobody knows.
    fn met_queue(&self, round: &Round, trims: bool) -> bool {
        let limit_ns = if trims { self.trim_queued_ns } else { self.queued_ns };
        let waited = round.queue_ns.is_none_or(|queue_ns| queue_ns > limit_ns);
        let swamped = round.trimmed > 0.0 && round.trimmed >= SWAMPED * (round.packets - round.lost);
        waited || swamped || (!trims && round.marked > 0.0)
    }

    /// An equal part of the receiver's line, bit/s; `None` where the number of senders is not told.
    fn part_bps(&self, rate: &Rate) -> Option<f64> {
        self.senders.map(|senders| rate.line_bps / f64::from(senders.get()))
    }

    /// Who loses at random stays at its part: then the others, too, can tell random losses from
    /// those at the receiver's port.
    fn has_more_than_its_part(&self, rate: &mut Rate) -> bool {
        let Some(part_bps) = self.part_bps(rate).filter(|&part_bps| part_bps < rate.bps) else {
            return false;
        };
        if self.random > 0.0 {
            rate.set(part_bps);
        }
        rate.bps > part_bps && self.random == 0.0
    }

    fn begin_trial(&mut self, round: &Round, rate: &mut Rate) {
        self.trial = Some(Trial {
            before_bps: rate.bps,
            cause_packets: round.packets,
            cause_lost: round.lost,
            packets: 0.0,
            lost: 0.0,
        });
        rate.set(rate.bps / 2.0);
    }

    fn end_trial(&mut self, rate: &mut Rate) {
        let Some(trial) = self.trial.take() else { return };
        self.lost = trial.lost / trial.packets;
        self.random = if self.lost <= MOST_RANDOM { self.lost } else { 0.0 };
        if self.unexplained(trial.cause_packets, trial.cause_lost) < BURST.1 {
            // Also what was taken above the part, before anything was known of random losses.
            let back_bps = (2.0 * rate.bps).min(trial.before_bps);
            rate.set(back_bps.max(self.part_bps(rate).unwrap_or(0.0)));
        } else {
            rate.congested();
        }
    }

    /// The round with the losses that are more than what is random.
    fn beyond_random(&self, round: &Round) -> Round {
        let unheard_lost = self.unexplained(round.unheard, round.unheard_lost);
        with(round, self.unexplained(round.packets, round.lost), unheard_lost)
    }

    /// So many of a round's losses are more than what is random.
    fn unexplained(&self, packets: f64, lost: f64) -> f64 {
        (lost - usual(self.random, packets)).max(0.0)
    }
}

/// Hardly more of so many packets are lost where a share of all is: the mean and two standard
/// deviations.
fn usual(share: f64, packets: f64) -> f64 {
    let mean = share * packets;
    mean + 2.0 * mean.sqrt()
}

/// The round with only so many of its losses, and of those that were reported before it. The others
/// say nothing, as if these packets had not been sent.
fn with(round: &Round, lost: f64, unheard_lost: f64) -> Round {
    let packets = (round.packets - (round.lost - lost)).max(1.0);
    let unheard = round.unheard - (round.unheard_lost - unheard_lost);
    Round { packets, lost, unheard, unheard_lost, ..*round }
}
