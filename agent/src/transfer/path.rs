//! What is known of the way to a peer.

use super::backoff;
use crate::config::TimeoutConfig;
use crate::rtt::RttEstimator;

/// Round trips to a peer, and what follows from them.
#[derive(Debug, Default)]
pub(crate) struct PathEstimate {
    /// Of whole DATA packets: forth in the data queue, back in the control queue.
    pub(crate) data: RttEstimator,
    /// Of control packets.
    pub(crate) control: RttEstimator,
    /// What hosts add, ns: a packet is on the wire so much later than was noted.
    pub(crate) host_jitter_ns: u64,
}

impl PathEstimate {
    /// A data packet sent longer ago than this, and not there, is lost. On hosts four time-outs: round trips are sampled from the newest whole packets, which come by the fastest path,
    /// and another one's queue may be several times as long.
    pub(crate) fn loss_delay_ns(&self, timeouts: &TimeoutConfig) -> u64 {
        // A host that stood still for seconds makes no round trips of seconds.
        let least_ns = |timeout_ns: u64| timeout_ns.min(timeouts.max_ns);
        let timeout_ns = self.data.timeout_ns().map_or(timeouts.initial_ns, least_ns);
        let times = if self.host_jitter_ns == 0 { 1 } else { 4 };
        timeout_ns.saturating_mul(times).max(timeouts.min_loss_delay_ns + self.host_jitter_ns)
    }

    /// A data packet should have been answered for so long after it was sent: 9/8 of the round trip (RFC 9002 §6.1.2).
    pub(crate) fn expected_ns(&self) -> Option<u64> {
        self.data.smoothed_ns().map(|rtt| rtt.saturating_add(rtt / 8))
    }

    /// Packets on different paths overtake each other by no more than this: a quarter of the round trip (RFC 8985 §6.2 step 4 starts there), and twice what queues add to it
    /// just now, which may be none on one path and all on another. On hosts, where only the newest packet of many is timed and it is one of the fastest path, twice the time-out.
    pub(crate) fn reorder_ns(&self) -> Option<u64> {
        let (smoothed_ns, least_ns) = self.data.smoothed_ns().zip(self.data.minimum_ns())?;
        let queues_ns = smoothed_ns.saturating_sub(least_ns);
        let paths_ns = (smoothed_ns / 4).saturating_add(2 * queues_ns);
        if self.host_jitter_ns == 0 {
            return Some(paths_ns);
        }
        let timeout_ns = self.data.timeout_ns().unwrap_or(0);
        Some(paths_ns.max(timeout_ns.saturating_mul(2)).max(self.host_reorder_ns()))
    }

    /// Packets on one path keep their order in the network, and on hosts not always: a thread that changes its processor is overtaken by itself.
    pub(crate) fn reorder_within_path_ns(&self) -> Option<u64> {
        if self.host_jitter_ns > 0 {
            return self.reorder_ns();
        }
        self.data.minimum_ns().map(|rtt| rtt / 16)
    }

    /// A host with several processors hands packets on in another order when a thread changes from one to another.
    fn host_reorder_ns(&self) -> u64 {
        4 * self.host_jitter_ns
    }

    /// Wait for the answer to a control packet that `unanswered` others went before.
    pub(crate) fn answer_timeout_ns(&self, unanswered: u32, timeouts: &TimeoutConfig) -> u64 {
        let measured = self.control.timeout_ns().map(|timeout_ns| timeout_ns.min(timeouts.max_ns));
        let base = measured.unwrap_or(timeouts.initial_ns).max(timeouts.min_ns);
        backoff(base, unanswered, timeouts.max_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_of_seconds_makes_no_timeout_above_the_most() {
        let (mut estimate, timeouts) = (PathEstimate::default(), TimeoutConfig::default());
        estimate.control.sample(5_000_000_000);
        estimate.data.sample(5_000_000_000);
        assert_eq!(estimate.answer_timeout_ns(0, &timeouts), timeouts.max_ns);
        assert_eq!(estimate.loss_delay_ns(&timeouts), timeouts.max_ns);
    }
}
