// SPDX-License-Identifier: Apache-2.0
//! One round trip's reports, taken together.

use super::{Feedback, PathModel};

/// Where a round trip has fewer packets than this, a round lasts until so many were reported: a
/// share of two packets says little, and slow flows would otherwise take more steps per packet than
/// fast ones.
pub const ROUND_PACKETS: u32 = 16;
/// A round ends after so many round trips even with fewer packets, and counts for less then.
const LONGEST: u64 = 8;
/// A report that covers many rounds counts for at most so many.
const MOST_WEIGHT: f64 = 4.0;
/// The least round trip is the least of this time, and of up to twice this time: routes change
/// (BBR's window is as long).
const MINIMUM_WINDOW_NS: u64 = 5_000_000_000;
/// A full trim queue takes about so many trim delays: the fabric file's defaults are 20 µs to 40
/// µs, and 100 µs at half the line.
const TRIM_QUEUES: f64 = 5.0;
/// A rate counts as used in full where half of it was (RFC 7661 §4.2: a window is validated if half
/// of it was acknowledged).
const VALIDATED: u64 = 2;
/// Length of a round as long as no round trip was measured, at least.
const UNKNOWN_RTT_NS: u64 = 10_000;

/// What a round's reports said in sum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Round {
    /// Packets that arrived or were lost; at least 1.
    pub(super) packets: f64,
    pub(super) trimmed: f64,
    pub(super) marked: f64,
    pub(super) lost: f64,
    /// Mean of the round trips.
    pub(super) rtt_ns: Option<f64>,
    /// 1 for a whole round, less for one of few packets, more for a report that covers several.
    pub(super) weight: f64,
    /// The same for increases, which go by time as long as the packets say enough for it.
    pub(super) increase_weight: f64,
    /// How long packets waited in queues: mean round trip above the least one, of this round or the
    /// one before, whichever is more. A loss is found out later than the queue that it met.
    pub(super) queue_ns: Option<f64>,
    /// Packets that were reported while the algorithm waited for its last step's effect, and how
    /// many of them were marked or trimmed, and lost.
    pub(super) unheard: f64,
    pub(super) unheard_marked: f64,
    pub(super) unheard_lost: f64,
    /// How long its packets tested the rate: its length, but no more than twice the time that they
    /// take at that rate. A sender that had nothing to send has learnt nothing of the path
    /// meanwhile, and gains nothing by it (RFC 7661 §4.3).
    pub(super) used_ns: u64,
    /// The newest round trip.
    pub(super) newest_rtt_ns: u64,
}

/// Adds reports up until a round is over.
#[derive(Debug, Clone)]
pub(super) struct Rounds {
    begin_ns: Option<u64>,
    deaf_from_ns: u64,
    deaf_until_ns: u64,
    arrived: u64,
    trimmed: u64,
    marked: u64,
    lost: u64,
    bytes: u64,
    unheard: u64,
    unheard_marked: u64,
    unheard_lost: u64,
    round_trips: Mean,
    /// Of the round before.
    earlier: Option<f64>,
    /// Of reports while the algorithm waited.
    unheard_round_trips: Mean,
    /// Least round trip of this window and of the last.
    least_ns: [Option<u64>; 2],
    window_ns: Option<u64>,
    latest_ns: u64,
    trim_delay_ns: u64,
}

impl Rounds {
    pub(super) fn new(path: &PathModel) -> Self {
        Self {
            begin_ns: None,
            deaf_from_ns: 0,
            deaf_until_ns: 0,
            trim_delay_ns: path.trim_delay_ns,
            arrived: 0,
            trimmed: 0,
            marked: 0,
            lost: 0,
            bytes: 0,
            unheard: 0,
            unheard_marked: 0,
            unheard_lost: 0,
            round_trips: Mean::default(),
            earlier: None,
            unheard_round_trips: Mean::default(),
            least_ns: [None; 2],
            window_ns: None,
            latest_ns: path.trim_delay_ns.saturating_add(path.host_jitter_ns).max(UNKNOWN_RTT_NS),
        }
    }

    /// Takes a report of packets that left at `rate_bps`; a round, if it ends with this one.
    pub(super) fn take(&mut self, feedback: &Feedback, rate_bps: f64) -> Option<Round> {
        let now_ns = feedback.now_ns;
        if let Some(rtt_ns) = feedback.rtt_ns.filter(|&rtt_ns| rtt_ns > 0) {
            self.measured(now_ns, rtt_ns);
        }
        if now_ns < self.deaf_until_ns && now_ns >= self.deaf_from_ns {
            let [arrived, trimmed, marked, lost] =
                [feedback.arrived, feedback.trimmed, feedback.marked, feedback.lost].map(u64::from);
            self.unheard = self.unheard.saturating_add(arrived + lost);
            self.unheard_marked = self.unheard_marked.saturating_add((trimmed + marked).min(arrived));
            self.unheard_lost = self.unheard_lost.saturating_add(lost);
            self.unheard_round_trips.add(feedback.rtt_ns);
            return None;
        }
        self.round_trips.add(feedback.rtt_ns);
        let arrived = u64::from(feedback.arrived);
        self.arrived = self.arrived.saturating_add(arrived);
        self.trimmed = self.trimmed.saturating_add(u64::from(feedback.trimmed).min(arrived));
        self.marked = self.marked.saturating_add(u64::from(feedback.marked).min(arrived));
        self.lost = self.lost.saturating_add(u64::from(feedback.lost));
        self.bytes = self.bytes.saturating_add(feedback.bytes);

        let begin_ns = *self.begin_ns.get_or_insert(now_ns.saturating_sub(self.latest_ns));
        let elapsed_ns = now_ns.saturating_sub(begin_ns);
        let packets = self.arrived.saturating_add(self.lost);
        let enough = packets >= u64::from(ROUND_PACKETS);
        let long_ns = if enough { self.latest_ns } else { self.latest_ns.saturating_mul(LONGEST) };
        if packets == 0 || elapsed_ns < long_ns {
            return None;
        }
        let by_packets = packets as f64 / f64::from(ROUND_PACKETS);
        let by_time = elapsed_ns as f64 / self.latest_ns as f64;
        let busy_ns =
            if self.bytes > 0 { (self.bytes as f64 * 8e9 / rate_bps.max(1.0)) as u64 } else { elapsed_ns };
        let used_ns = elapsed_ns.min(busy_ns.saturating_mul(VALIDATED));
        let by_use = used_ns as f64 / self.latest_ns as f64;
        let round = Round {
            packets: packets as f64,
            trimmed: self.trimmed as f64,
            marked: self.marked as f64,
            lost: self.lost as f64,
            rtt_ns: self.round_trips.mean(),
            weight: by_packets.min(by_time).min(MOST_WEIGHT),
            increase_weight: by_use.min(MOST_WEIGHT * by_packets.min(1.0)),
            unheard: self.unheard as f64,
            unheard_marked: self.unheard_marked.min(self.unheard) as f64,
            unheard_lost: self.unheard_lost.min(self.unheard) as f64,
            queue_ns: self.queue_ns(),
            used_ns,
            newest_rtt_ns: self.latest_ns,
        };
        self.restart(now_ns);
        Some(round)
    }

    /// Reports that arrive within a round trip speak of packets that left before the step that was
    /// just taken: they are not heard, or the algorithm would answer the same queue twice.
    ///
    /// `share` of the packets were trimmed: these waited in the trim queue, for a time that no
    /// round trip shows.
    pub(super) fn wait_for_effect(&mut self, now_ns: u64, share: f64) {
        let trim_queue_ns = share.clamp(0.0, 1.0) * TRIM_QUEUES * self.trim_delay_ns as f64;
        self.deaf_until_ns = now_ns.saturating_add(self.latest_ns).saturating_add(trim_queue_ns as u64);
        self.deaf_from_ns = now_ns;
        self.begin_ns = Some(self.deaf_until_ns);
    }

    /// The least round trip of the last seconds.
    pub(super) fn least_rtt_ns(&self) -> Option<u64> {
        self.least_ns.iter().flatten().min().copied()
    }

    fn measured(&mut self, now_ns: u64, rtt_ns: u64) {
        let window_ns = *self.window_ns.get_or_insert(now_ns);
        if now_ns.saturating_sub(window_ns) >= MINIMUM_WINDOW_NS {
            self.window_ns = Some(now_ns);
            self.least_ns = [None, self.least_ns[0]];
        }
        self.least_ns[0] = Some(self.least_ns[0].map_or(rtt_ns, |least| least.min(rtt_ns)));
        self.latest_ns = rtt_ns;
    }

    fn restart(&mut self, now_ns: u64) {
        self.begin_ns = Some(now_ns);
        (self.arrived, self.trimmed, self.marked, self.lost) = (0, 0, 0, 0);
        (self.bytes, self.unheard, self.unheard_marked, self.unheard_lost) = (0, 0, 0, 0);
        self.earlier = std::mem::take(&mut self.round_trips).mean();
        self.unheard_round_trips = Mean::default();
    }

    fn queue_ns(&self) -> Option<f64> {
        let means = [self.round_trips.mean(), self.unheard_round_trips.mean(), self.earlier];
        let longest_ns = means.into_iter().flatten().max_by(f64::total_cmp)?;
        Some(longest_ns - self.least_rtt_ns()? as f64)
    }
}

/// A mean of round trips.
#[derive(Debug, Clone, Copy, Default)]
struct Mean {
    sum_ns: u64,
    count: u64,
}

impl Mean {
    fn add(&mut self, rtt_ns: Option<u64>) {
        if let Some(rtt_ns) = rtt_ns.filter(|&rtt_ns| rtt_ns > 0) {
            self.sum_ns = self.sum_ns.saturating_add(rtt_ns);
            self.count += 1;
        }
    }

    fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64)
    }
}
