// SPDX-License-Identifier: Apache-2.0
//! How far ahead of its departure data is given out.

/// Bytes that are given out ahead at the line's rate, at most: what has been given out waits in
/// sockets, whose room is bounded, and cannot be taken back.
const MOST_BYTES: u64 = 1 << 20;

/// Data is given out up to so long before it is to leave, because somebody below holds it until
/// then. Who gives out everything that is due within the lead may rest until half of it has left: a
/// burst is not worth waking up for.
#[derive(Debug, Default)]
pub(super) struct Lead {
    ns: u64,
    /// The lead was half spent, and is not full yet.
    filling: bool,
}

impl Lead {
    /// `ns`, or what `MOST_BYTES` take at the line's rate.
    pub(super) fn set(&mut self, ns: u64, line_rate_bps: u64) {
        self.ns = ns.min(MOST_BYTES * 8_000_000_000 / line_rate_bps.max(1));
    }

    /// How long that is.
    pub(super) fn ns(&self) -> u64 {
        self.ns
    }

    /// The latest departure of what may be given out at `now_ns`.
    pub(super) fn horizon_ns(&self, now_ns: u64) -> u64 {
        now_ns.saturating_add(self.ns)
    }

    /// When to give out data whose departure is at `due_ns`, at the latest.
    pub(super) fn wake_ns(&self, due_ns: u64) -> u64 {
        due_ns.saturating_sub(self.ns / 2)
    }

    /// Whether data whose departure is at `due_ns` is given out at `now_ns`.
    pub(super) fn admits(&mut self, now_ns: u64, due_ns: u64) -> bool {
        if self.wake_ns(due_ns) <= now_ns {
            self.filling = true;
        } else if due_ns > self.horizon_ns(now_ns) {
            self.filling = false;
        }
        self.filling
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lead_is_filled_up_when_half_of_it_is_spent() {
        let mut lead = Lead::default();
        lead.set(200, 1);
        assert!(lead.admits(1_000, 900) && lead.admits(1_000, 1_150) && lead.admits(1_000, 1_200));
        assert!(!lead.admits(1_000, 1_201) && !lead.admits(1_050, 1_201), "full");
        assert!(!lead.admits(1_100, 1_201) && lead.admits(1_101, 1_201), "at half");
        assert_eq!(lead.wake_ns(1_201), 1_101);
    }

    #[test]
    fn without_a_lead_data_is_given_out_when_it_is_due() {
        let mut lead = Lead::default();
        assert!(!lead.admits(1_000, 1_001) && lead.admits(1_000, 1_000) && !lead.admits(1_000, 1_001));
    }

    #[test]
    fn a_lead_is_bounded_in_time_and_in_bytes() {
        let mut lead = Lead::default();
        for (line_rate_bps, ns) in [(0, 250_000), (10_000_000_000, 250_000), (100_000_000_000, 83_886)] {
            lead.set(250_000, line_rate_bps);
            assert_eq!(lead.horizon_ns(0), ns);
        }
        lead.set(u64::MAX, u64::MAX);
        assert_eq!((lead.horizon_ns(u64::MAX), lead.wake_ns(0)), (u64::MAX, 0));
    }
}
