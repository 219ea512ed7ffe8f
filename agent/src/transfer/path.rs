// SPDX-License-Identifier: Apache-2.0
//! What is known of the path to a peer: round trips, and the time-outs that follow from them.

use crate::config::{TimeoutConfig, Traffic};
use crate::rtt::{RttEstimator, backoff};

/// Longest time-out of a path without a measured round trip.
const UNKNOWN_NS: u64 = 1_000_000_000;
/// A trimming queue takes at most this many trim delays. There the fabric file's defaults trim
/// important packets to one plane, too.
const QUEUES: u64 = 4;
/// Without ACKs the rate falls to this part of the algorithm's and no lower: some packets have to
/// find out when the path works again.
const LEAST_PART: u64 = 64;

/// Round trips to a peer, and what follows from them.
#[derive(Debug, Default)]
pub struct PathEstimate {
    /// Of whole DATA packets: there in the data queue, back in the control queue.
    pub data: RttEstimator,
    /// Of control packets.
    pub control: RttEstimator,
    /// What hosts add, ns: a packet leaves up to this much later than was noted.
    host_jitter_ns: u64,
    /// Time of a queue that switches are about to trim, ns.
    trim_delay_ns: u64,
    /// Longest wait of a whole packet in a trimming queue, ns.
    queues_ns: u64,
    /// The most by which recent packets were overtaken.
    overtaken: Overtaken,
    /// How often packets were declared lost by age while no round trip was known.
    given_up: u32,
}

/// How far a packet was overtaken: the difference, ns, between its sending time and that of the
/// newest packet that arrived before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Overtaken {
    /// By packets of its own path.
    pub within_ns: u64,
    /// By packets of any path.
    pub across_ns: u64,
}

impl Overtaken {
    /// The larger of each.
    pub fn max(self, other: Self) -> Self {
        Self {
            within_ns: self.within_ns.max(other.within_ns),
            across_ns: self.across_ns.max(other.across_ns),
        }
    }
}

impl PathEstimate {
    /// A path without measurements. See [`EndpointConfig`](crate::config::EndpointConfig) for the
    /// arguments.
    pub fn new(host_jitter_ns: u64, trim_delay_ns: u64, traffic: Traffic) -> Self {
        let queues_ns = if traffic == Traffic::Trimmable { QUEUES.saturating_mul(trim_delay_ns) } else { 0 };
        Self { host_jitter_ns, trim_delay_ns, queues_ns, ..Self::default() }
    }

    /// Age at which a data packet that has not arrived is declared lost, ns.
    ///
    /// Without a measured round trip it doubles with each loss (RFC 6298 §5.5), up to one second
    /// (§2.1), since resent packets cannot be measured (Karn's algorithm).
    ///
    /// A queue may have grown since the last measurement. A trimming queue has a longest time,
    /// which is added. A dropping queue has none: there a needless resend costs less than a long
    /// wait.
    pub fn loss_delay_ns(&self, timeouts: &TimeoutConfig) -> u64 {
        let known_ns = measured_ns(&self.data, timeouts).map(|ns| ns.saturating_add(self.queues_ns));
        known_ns
            .unwrap_or_else(|| backoff(timeouts.initial_ns, self.given_up, UNKNOWN_NS))
            .max(timeouts.min_loss_delay_ns + self.host_jitter_ns)
    }

    /// Packets were declared lost by age.
    pub fn gave_up(&mut self) {
        if self.data.smoothed_ns().is_none() {
            self.given_up = self.given_up.saturating_add(1);
        }
    }

    /// Takes how far the packets of a report were overtaken. Windows widen at once and shrink
    /// slowly, as paths change. (RFC 8985 §6.2 step 4 widens its window after a needless repair.
    /// Here late packets show the reordering before anything is repaired.)
    pub fn overtook(&mut self, new: Overtaken) {
        let Overtaken { within_ns, across_ns } = self.overtaken;
        let faded =
            Overtaken { within_ns: within_ns - within_ns / 64, across_ns: across_ns - across_ns / 64 };
        self.overtaken = faded.max(new);
    }

    /// The reordering window across paths, ns: the largest of
    ///
    /// - a quarter of the round trip (RFC 8985 §6.2 step 4),
    /// - the queue of the moment, at least a trim delay: a port trims only when its queue takes
    ///   that long, and one path may have such a queue while the others are idle,
    /// - half as much again as was seen,
    /// - the host's jitter.
    pub fn reorder_ns(&self) -> Option<u64> {
        let (smoothed_ns, least_ns) = self.data.smoothed_ns().zip(self.data.minimum_ns())?;
        let seen_ns = self.overtaken.across_ns.saturating_add(self.overtaken.across_ns / 2);
        let queues_ns = smoothed_ns.saturating_sub(least_ns).max(self.trim_delay_ns);
        Some((smoothed_ns / 4).max(queues_ns).max(seen_ns).max(self.host_jitter_ns))
    }

    /// The reordering window within one path, ns. Packets of one burst have one sending time, and a
    /// host's own queues may reorder.
    pub fn reorder_within_path_ns(&self) -> Option<u64> {
        let seen_ns = self.overtaken.within_ns.saturating_add(self.overtaken.within_ns / 2);
        self.data.minimum_ns().map(|rtt| (rtt / 16).max(seen_ns))
    }

    /// When to ask about packets that may be on their way, the newest of which left at `sent_ns`.
    ///
    /// First when the newest should be there, 9/8 of the round trip later (RFC 9002 §6.1.2): from
    /// then on the order of arrival tells what is lost. At last when it is declared lost by age.
    pub fn ask_again_ns(&self, now_ns: u64, sent_ns: u64, timeouts: &TimeoutConfig) -> u64 {
        let due_ns = |rtt_ns: u64| sent_ns.saturating_add(rtt_ns).saturating_add(rtt_ns / 8);
        let expected_ns = self.data.smoothed_ns().map(due_ns);
        let lost_ns = sent_ns.saturating_add(self.loss_delay_ns(timeouts));
        expected_ns.filter(|&at_ns| at_ns > now_ns).unwrap_or(u64::MAX).min(lost_ns.max(now_ns + 1))
    }

    /// Longest usual time without ACKs while data is on its way, ns; `None` before any round trip
    /// was measured. The sum of
    ///
    /// - two round trips, as for a tail loss probe (RFC 8985 §7.2), or RFC 6298's time-out if
    ///   longer,
    /// - the time for which the receiver may hold a report back, and the host's jitter,
    /// - the longest time of a trimming queue, since queues may have grown since the last
    ///   measurement, and control packets overtake data.
    pub fn silence_ns(&self, timeouts: &TimeoutConfig) -> Option<u64> {
        let known = if self.data.smoothed_ns().is_some() { &self.data } else { &self.control };
        let twice_ns = known.smoothed_ns()?.saturating_mul(2);
        let round_trips_ns = measured_ns(known, timeouts)?.max(twice_ns);
        let others_ns = timeouts.ack_delay_ns.saturating_add(self.host_jitter_ns);
        Some(
            round_trips_ns
                .saturating_add(others_ns)
                .saturating_add(QUEUES.saturating_mul(self.trim_delay_ns)),
        )
    }

    /// The sending rate after `silent_ns` without ACKs, bit/s; `full_bps` is the algorithm's.
    ///
    /// It falls in proportion to the time. A dead receiver, or a queue that drops this flow's
    /// packets only, reports no losses (RFC 9002 §7.6 and RFC 5681 §3.1 take the window to its
    /// minimum). The algorithm is told as soon as the fate of the packets is known.
    pub fn rate_in_silence_bps(&self, full_bps: u64, silent_ns: u64, timeouts: &TimeoutConfig) -> u64 {
        let Some(usual_ns) = self.silence_ns(timeouts).filter(|&usual_ns| usual_ns < silent_ns) else {
            return full_bps;
        };
        let reduced_bps = u128::from(full_bps) * u128::from(usual_ns) / u128::from(silent_ns);
        (reduced_bps as u64).max(full_bps / LEAST_PART)
    }

    /// Time-out of a control packet after `unanswered` others, ns.
    pub fn answer_timeout_ns(&self, unanswered: u32, timeouts: &TimeoutConfig) -> u64 {
        // Data takes at least as long as control. Messages on long paths may end before a question
        // is answered.
        let measured = measured_ns(&self.control, timeouts).or_else(|| measured_ns(&self.data, timeouts));
        let base = measured.unwrap_or(timeouts.initial_ns).max(timeouts.min_ns);
        backoff(base, unanswered, timeouts.max_ns)
    }
}

/// The time-out by measured round trips, ns. The variance is bounded, because hosts stall for
/// seconds at times. The shortest recent round trip is not: paths and queues may be long.
fn measured_ns(round_trips: &RttEstimator, timeouts: &TimeoutConfig) -> Option<u64> {
    let most_ns = timeouts.max_ns.saturating_add(round_trips.recent_minimum_ns().unwrap_or(0));
    round_trips.timeout_ns().map(|timeout_ns| timeout_ns.min(most_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_stood_still_once_is_not_waited_for_so_long_again() {
        let (mut estimate, timeouts) = (PathEstimate::default(), TimeoutConfig::default());
        (0..100).for_each(|_| estimate.control.sample(100_000));
        estimate.control.sample(5_000_000_000);
        assert!(estimate.answer_timeout_ns(0, &timeouts) <= timeouts.max_ns + 100_000);
        let mut estimate = PathEstimate::default();
        estimate.control.sample(5_000_000_000);
        estimate.data.sample(5_000_000_000);
        assert_eq!(estimate.answer_timeout_ns(0, &timeouts), timeouts.max_ns);
        assert_eq!(estimate.loss_delay_ns(&timeouts), timeouts.max_ns);
    }

    #[test]
    fn a_packet_that_waits_in_a_trimming_queue_is_not_lost() {
        let timeouts = TimeoutConfig::default();
        for (traffic, waits_ns) in [(Traffic::Trimmable, 80_000), (Traffic::Droppable, 0)] {
            let mut estimate = PathEstimate::new(0, 20_000, traffic);
            estimate.data.sample(10_000);
            // Three round trips: RFC 6298's first time-out.
            assert_eq!(estimate.loss_delay_ns(&timeouts), 30_000 + waits_ns, "{traffic:?}");
        }
    }

    #[test]
    fn a_way_that_takes_longer_than_the_most_is_waited_for() {
        let (mut estimate, timeouts) = (PathEstimate::default(), TimeoutConfig::default());
        (0..100).for_each(|_| estimate.data.sample(325_000_000));
        (0..100).for_each(|_| estimate.control.sample(250_000_000));
        assert!(estimate.loss_delay_ns(&timeouts) > 325_000_000);
        assert!((250_000_000..350_000_001).contains(&estimate.answer_timeout_ns(7, &timeouts)));
    }

    #[test]
    fn windows_widen_at_once_and_shrink_by_and_by() {
        let mut estimate = PathEstimate::default();
        estimate.overtook(Overtaken { within_ns: 1_000, across_ns: 80_000 });
        assert_eq!(
            (estimate.reorder_ns(), estimate.reorder_within_path_ns()),
            (None, None),
            "no round trip yet"
        );
        estimate.data.sample(40_000);
        assert_eq!(estimate.reorder_ns(), Some(120_000));
        assert_eq!(
            estimate.reorder_within_path_ns(),
            Some(2_500),
            "a sixteenth of the round trip is more than was seen"
        );
        estimate.overtook(Overtaken { within_ns: 8_000, across_ns: 0 });
        assert_eq!(estimate.reorder_within_path_ns(), Some(12_000));
        (0..1_000).for_each(|_| estimate.overtook(Overtaken::default()));
        assert_eq!((estimate.reorder_ns(), estimate.reorder_within_path_ns()), (Some(10_000), Some(2_500)));
    }

    #[test]
    fn a_path_whose_queue_is_as_long_as_they_get_is_waited_for() {
        let mut estimate = PathEstimate::default();
        estimate.data.sample(10_000);
        (0..100).for_each(|_| estimate.data.sample(100_000));
        assert!(
            estimate.reorder_ns().is_some_and(|window| (85_000..=90_000).contains(&window)),
            "{estimate:?}"
        );
    }

    #[test]
    fn a_queue_on_one_path_that_does_not_trim_yet_is_no_loss() {
        let mut estimate = PathEstimate::new(0, 20_000, Traffic::Trimmable);
        estimate.data.sample(10_000);
        assert_eq!(estimate.reorder_ns(), Some(20_000));
    }

    #[test]
    fn a_rate_falls_with_the_time_of_a_silence_to_a_64th() {
        let (mut estimate, timeouts) =
            (PathEstimate::new(0, 20_000, Traffic::Trimmable), TimeoutConfig::default());
        assert_eq!(estimate.rate_in_silence_bps(64_000, 1 << 40, &timeouts), 64_000, "nothing is known");
        estimate.control.sample(10_000);
        // Three round trips (RFC 6298's first time-out), a report that is held back, and a queue
        // that trims.
        let usual_ns = 30_000 + 25_000 + 80_000;
        assert_eq!(estimate.silence_ns(&timeouts), Some(usual_ns));
        for (silent_ns, bps) in [(0, 64_000), (usual_ns, 64_000), (2 * usual_ns, 32_000), (u64::MAX, 1_000)] {
            assert_eq!(estimate.rate_in_silence_bps(64_000, silent_ns, &timeouts), bps, "{silent_ns} ns");
        }
    }
}
