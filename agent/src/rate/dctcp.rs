// SPDX-License-Identifier: Apache-2.0
//! ECN marks: DCTCP with a rate in place of a window.

use super::loss::Losses;
use super::round::{ROUND_PACKETS, Round, Rounds};
use super::share::Share;
use super::{Feedback, Limits, PathModel, Rate, RateAlgorithm};

/// Parameters of [`Dctcp`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DctcpConfig {
    /// Weight of the newest round in the estimated share of marked packets, in (0, 1] (RFC 8257
    /// §4.2: 1/16).
    pub gain: f64,
    /// Start, increase, least rate.
    pub limits: Limits,
}

impl Default for DctcpConfig {
    fn default() -> Self {
        Self { gain: 1.0 / 16.0, limits: Limits::default() }
    }
}

/// RFC 8257 §3.3 per round: α ← (1 − g) α + g F with F the marked share. Where §3.4 takes α/2 off a
/// window in which anything was marked, and a window without marks grows, this takes F α/2 off a
/// round and adds 1 − F of the increase: a slow flow's rounds are longer, so that more of them see
/// a mark, and it would stay slow. A trimmed packet has met a queue above every mark and counts as
/// marked (trimmable packets never are: without trims this algorithm would be deaf to them). When a
/// burst of others has gone, its rate comes back within a few rounds. A loss in sixteen packets
/// halves the rate (§3.5) where more than a few are lost: a link that loses one packet in a hundred
/// whatever the rate would otherwise starve its flows (MLT §6.3), and what queues do shows in trims
/// and marks before it shows in losses. Below that losses count as marks.
#[derive(Debug, Clone)]
pub struct Dctcp {
    config: DctcpConfig,
    rate: Rate,
    rounds: Rounds,
    losses: Losses,
    alpha: f64,
    /// The estimated share of lost packets.
    loss: f64,
    /// The last one, or the one that goes on.
    congestion: Congestion,
    planned_bps: f64,
    share: Share,
    /// What is trimmed is sent again.
    repaired: bool,
    /// Packets of an empty queue take no longer than this above the least round trip; `None` where
    /// hosts' own delays would hide a queue.
    empty_ns: Option<f64>,
}

/// Losses up to this share of many rounds may be the link's, not a queue's (BBR tolerates 2 % of
/// one: draft-ietf-ccwg-bbr, `LossThresh`).
const RANDOM_LOSS: f64 = 0.03;
/// Weight of the newest round in that share.
const LOSS_GAIN: f64 = 1.0 / 16.0;
/// A round that loses as large a share, and so many packets, has met a queue.
const BURST: (f64, f64) = (0.1, 3.0);

/// Reductions below this are answered round by round.
const WAIT_FROM: f64 = 0.03;

/// A round of which so much was trimmed met more than flows that answer to trims send: these keep
/// it below a third (docs/explanation/rates.md).
const SWAMPED: f64 = 0.5;

/// Whether a round lost more than a faulty link does.
fn is_burst(round: &Round) -> bool {
    round.lost >= BURST.0 * round.packets && round.lost >= BURST.1
}

/// What it began at comes back in a few rounds as far as this share of it.
const RECOVERED: f64 = 0.9;

/// A rate comes back in a few rounds as far as this share of what is planned for it.
const PLANNED: f64 = 0.8;

/// A queue is empty whose packets wait for less than this share of the trim delay.
const EMPTY: f64 = 1.0 / 8.0;

/// What is known of a time of congestion, from its first marked round until its rate is back, or
/// the next one.
#[derive(Debug, Clone, Copy, Default)]
struct Congestion {
    /// The rate at which it began.
    before_bps: f64,
    swamped: bool,
    /// Packets of its rounds, and those of them that were lost, and trimmed.
    packets: f64,
    lost: f64,
    trimmed: f64,
    /// Who caused it has stopped sending.
    gone: bool,
}

impl Congestion {
    /// A round of it, or of one that comes after calm rounds.
    fn on_marks(&mut self, round: &Round, rate: &Rate) {
        let drops = round.trimmed == 0.0;
        // Flows that answer to marks lose nothing where queues drop, once they know each other.
        let swamped = round.trimmed >= SWAMPED * round.packets || (drops && is_burst(round));
        if rate.is_calm() {
            // Where queues drop, whoever loses or is marked on the way back begins from there:
            // overshooting costs packets.
            if self.gone && !drops && rate.bps < RECOVERED * self.before_bps {
                // On the way back: of a trim or two less is believed to be free, by half of what is
                // missing still; another burst says nothing of that.
                if !swamped {
                    self.before_bps = f64::midpoint(self.before_bps, rate.bps);
                }
            } else {
                *self = Self { before_bps: rate.bps, ..Self::default() };
            }
        }
        self.gone = false;
        self.swamped |= swamped;
        self.packets += round.packets;
        self.lost += round.lost;
        self.trimmed += round.trimmed;
    }

    /// What a round without congestion adds, bit/s. `empty`: its packets found no queue.
    /// `planned_bps` is 0 where nothing is planned; `told_bps`: the part that the receiver tells.
    fn increase(
        &mut self,
        rate: &mut Rate,
        round: &Round,
        empty: bool,
        planned_bps: f64,
        told_bps: Option<f64>,
    ) -> f64 {
        let increase = rate.calm_increase(round);
        // A burst of neighbours who answer to nothing is over. Of many senders that begin at once
        // heads are lost, too: they are still there, and keep a queue that trims from being empty.
        // Where queues drop, a round without marks says as much: the queue has gone with the burst.
        // What comes back is no more than the part that is told, or half (RFC 5681 §3.1): others
        // may have lost as much.
        let drops = self.trimmed == 0.0;
        self.gone |= self.swamped && (drops || empty || self.lost <= RANDOM_LOSS * self.packets);
        let most_bps = if drops { told_bps.unwrap_or(self.before_bps / 2.0) } else { rate.line_bps };
        let before_bps = if self.gone { (RECOVERED * self.before_bps).min(most_bps) } else { 0.0 };
        // Where queues trim, who is too fast loses planes, and who is slow loses time: everybody
        // sends the planned part of it. Where they drop that would be lost, if others want parts,
        // too.
        let planned_bps = if self.trimmed > 0.0 { PLANNED * planned_bps } else { 0.0 };
        increase.max(rate.recovery(round, before_bps.max(planned_bps)))
    }
}

impl Dctcp {
    /// An algorithm for one path; α starts at 1 (§3.3, step 6).
    pub fn new(config: DctcpConfig, path: &PathModel) -> Self {
        Self {
            config,
            rate: Rate::new(&config.limits, path),
            rounds: Rounds::new(path),
            losses: Losses::new(path),
            alpha: 1.0,
            loss: 0.0,
            congestion: Congestion::default(),
            planned_bps: path.planned_bps.unwrap_or(0) as f64,
            share: Share::default(),
            repaired: false,
            empty_ns: Self::empty_ns(path),
        }
    }

    fn empty_ns(path: &PathModel) -> Option<f64> {
        let (trim_delay_ns, jitter_ns) = (path.trim_delay_ns as f64, path.host_jitter_ns as f64);
        let empty_ns = EMPTY * trim_delay_ns + jitter_ns;
        (empty_ns <= trim_delay_ns / 2.0).then_some(empty_ns)
    }

    fn found_no_queue(&self, round: &Round) -> bool {
        let queue_ns = round.rtt_ns.zip(self.rounds.least_rtt_ns()).map(|(rtt, least)| rtt - least as f64);
        queue_ns.zip(self.empty_ns).is_some_and(|(queue, empty)| queue <= empty)
    }

    fn on_round(&mut self, now_ns: u64, round: &Round) {
        let judged = self.losses.judge(now_ns, round, &mut self.rate);
        if judged.trial {
            return self.rounds.wait_for_effect(now_ns, 0.0);
        }
        let round = &judged.round;
        let marked = (round.marked + round.trimmed + round.lost).min(round.packets) / round.packets;
        // Also of what was reported while a reduction had yet to show: else fast flows, which wait,
        // would hear of fewer marks than slow ones.
        let all = round.packets + round.unheard;
        let all_marked = marked * round.packets + round.unheard_marked + round.unheard_lost;
        let gain = (self.config.gain * round.weight * all / round.packets).clamp(0.0, 1.0);
        self.alpha = (1.0 - gain) * self.alpha + gain * (all_marked / all).min(1.0);
        let gain = (LOSS_GAIN * round.weight).min(1.0);
        self.loss = (1.0 - gain) * self.loss + gain * (round.lost / round.packets).min(1.0);
        if marked == 0.0 {
            let empty = self.found_no_queue(round);
            let told_bps = self.share.told_bps(&self.rate);
            let increase = self.congestion.increase(&mut self.rate, round, empty, self.planned_bps, told_bps);
            let told = self.share.on_calm(round, &self.rate);
            // As with what is planned: where queues drop nobody insists.
            let told = if self.congestion.trimmed > 0.0 || self.losses.trims(now_ns) { told } else { 0.0 };
            return self.rate.set(self.rate.bps + increase.max(told));
        }
        self.rate.set(self.rate.bps + (1.0 - marked) * round.increase_weight * self.rate.increase());
        let lost = (round.lost * f64::from(ROUND_PACKETS) / round.packets).min(1.0);
        let lost = if is_burst(round) || self.loss > RANDOM_LOSS { lost } else { 0.0 };
        let share = (marked * self.alpha / 2.0).max(lost / 2.0);
        self.congestion.on_marks(round, &self.rate);
        let before_bps = self.rate.bps;
        let back_bps = self.rate.recovery(round, PLANNED * self.planned_bps);
        self.rate.reduce(share, round.weight);
        // Accepted trims have arrived, and cost planes; a lower rate costs time. All ranks' planned
        // parts fit the receiver's link together, so that nobody goes below its own for trims
        // alone.
        if !self.repaired && round.trimmed > 0.0 && round.lost == 0.0 {
            self.rate.set(self.rate.bps.max((before_bps + back_bps).min(self.planned_bps)));
        }
        self.share.on_congestion(round, before_bps, self.repaired, &mut self.rate);
        if share >= WAIT_FROM {
            self.rounds.wait_for_effect(now_ns, (round.trimmed + round.lost) / round.packets);
        }
    }
}

impl RateAlgorithm for Dctcp {
    fn on_feedback(&mut self, feedback: &Feedback) {
        self.repaired = feedback.repaired;
        self.share.told(feedback.senders, &mut self.rate);
        self.losses.told(feedback.senders);
        if let Some(round) = self.rounds.take(feedback, self.rate.bps) {
            self.on_round(feedback.now_ns, &round);
        }
    }

    fn rate_bps(&self) -> u64 {
        self.rate.bps as u64
    }
}
