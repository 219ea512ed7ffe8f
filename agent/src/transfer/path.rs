//! What is known of the way to a peer.

use super::backoff;
use crate::config::TimeoutConfig;
use crate::rtt::RttEstimator;

/// The most that a way may take of which nothing is known.
const UNKNOWN_NS: u64 = 1_000_000_000;
/// A queue that cuts takes at most so many trim delays: where the fabric file's defaults cut even important packets to one plane.
const QUEUES: u64 = 4;

/// Round trips to a peer, and what follows from them.
#[derive(Debug, Default)]
pub(crate) struct PathEstimate {
    /// Of whole DATA packets: forth in the data queue, back in the control queue.
    pub(crate) data: RttEstimator,
    /// Of control packets.
    pub(crate) control: RttEstimator,
    /// What hosts add, ns: a packet is on the wire so much later than was noted.
    host_jitter_ns: u64,
    /// Time that a queue takes which switches are about to cut.
    trim_delay_ns: u64,
    /// The most by which packets that arrived had been overtaken, of late.
    overtaken: Overtaken,
    /// How often packets counted as lost for their age while no round trip was known.
    given_up: u32,
}

/// By how much a packet that arrived had been overtaken: how much later, ns, the newest of those that were there before it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Overtaken {
    /// Among those of its own path.
    pub(crate) within_ns: u64,
    /// Among all.
    pub(crate) across_ns: u64,
}

impl Overtaken {
    pub(crate) fn max(self, other: Self) -> Self {
        Self {
            within_ns: self.within_ns.max(other.within_ns),
            across_ns: self.across_ns.max(other.across_ns),
        }
    }
}

impl PathEstimate {
    pub(crate) fn new(host_jitter_ns: u64, trim_delay_ns: u64) -> Self {
        Self { host_jitter_ns, trim_delay_ns, ..Self::default() }
    }

    /// A data packet sent longer ago than this, and not there, is lost. Where packets are sent again before any is heard of nothing is measured (Karn's algorithm), so the
    /// time doubles until one is (RFC 6298 §5.5), up to the second that TCP begins with (§2.1).
    pub(crate) fn loss_delay_ns(&self, timeouts: &TimeoutConfig) -> u64 {
        measured_ns(&self.data, timeouts)
            .unwrap_or_else(|| backoff(timeouts.initial_ns, self.given_up, UNKNOWN_NS))
            .max(timeouts.min_loss_delay_ns + self.host_jitter_ns)
    }

    /// Packets counted as lost.
    pub(crate) fn gave_up(&mut self) {
        if self.data.smoothed_ns().is_none() {
            self.given_up = self.given_up.saturating_add(1);
        }
    }

    /// A data packet should have been answered for so long after it was sent: 9/8 of the round trip (RFC 9002 §6.1.2).
    pub(crate) fn expected_ns(&self) -> Option<u64> {
        self.data.smoothed_ns().map(|rtt| rtt.saturating_add(rtt / 8))
    }

    /// Takes by how much the packets of a report had been overtaken. Windows follow at once, and shrink by and by, as paths change (RFC 8985 §6.2 step 4 doubles its
    /// window for each packet that it repaired for nothing; here packets tell that were late and not lost, before anything is repaired).
    pub(crate) fn overtook(&mut self, new: Overtaken) {
        let Overtaken { within_ns, across_ns } = self.overtaken;
        let faded =
            Overtaken { within_ns: within_ns - within_ns / 64, across_ns: across_ns - across_ns / 64 };
        self.overtaken = faded.max(new);
    }

    /// Packets on different paths overtake each other by no more than this: a quarter of the round trip (RFC 8985 §6.2 step 4 starts there); what queues add to it just
    /// now, which may be all on one path and nothing on another; or half as much again as was seen.
    pub(crate) fn reorder_ns(&self) -> Option<u64> {
        let (smoothed_ns, least_ns) = self.data.smoothed_ns().zip(self.data.minimum_ns())?;
        let seen_ns = self.overtaken.across_ns.saturating_add(self.overtaken.across_ns / 2);
        let queues_ns = smoothed_ns.saturating_sub(least_ns);
        Some((smoothed_ns / 4).max(queues_ns).max(seen_ns).max(self.host_jitter_ns))
    }

    /// Packets on one path: those of one burst have one time of sending, and a host's own queues are not always in order.
    pub(crate) fn reorder_within_path_ns(&self) -> Option<u64> {
        let seen_ns = self.overtaken.within_ns.saturating_add(self.overtaken.within_ns / 2);
        self.data.minimum_ns().map(|rtt| (rtt / 16).max(seen_ns))
    }

    /// With data on its way nothing is heard for so long only where something is wrong: two round trips, as for a tail loss probe (RFC 8985 §7.2), or the time-out of RFC 6298 where they
    /// vary; what the receiver may hold a report back for; and, since a queue may have built up since the last round trip was measured, and data may be in one that control packets overtake, the longest
    /// of a queue that cuts. `None` before any round trip was measured.
    pub(crate) fn silence_ns(&self, timeouts: &TimeoutConfig) -> Option<u64> {
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

    /// Wait for the answer to a control packet that `unanswered` others went before.
    pub(crate) fn answer_timeout_ns(&self, unanswered: u32, timeouts: &TimeoutConfig) -> u64 {
        // Data takes no less time than control, and messages on long ways may be over before a question is answered.
        let measured = measured_ns(&self.control, timeouts).or_else(|| measured_ns(&self.data, timeouts));
        let base = measured.unwrap_or(timeouts.initial_ns).max(timeouts.min_ns);
        backoff(base, unanswered, timeouts.max_ns)
    }
}

/// The time-out that round trips give. What some of them took longer than others is bounded, as hosts stand still for seconds at times; what all of the last ones took is not: ways
/// may be long, and queues.
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
}
